#!/bin/sh
# dra probe as a process: tables, lines of JSON, sweeps, what is refused. The argument is the path
# of the program.
set -u
dra=${1:?path of dra}
case $dra in /*) ;; *) dra=$PWD/$dra ;; esac
. "$(dirname "$0")/process.sh"

# A tiny run; arguments follow.
small() {
    "$dra" probe "$@" --set dim=16 --set depth=1 --steps 2 --batch 4 --tests 4 --threads 1
}

probe() { small "$@" >"$out" 2>"$err" || { cat "$err"; return 1; }; }

lines() { # lines N: as many on stdout
    [ "$(wc -l <"$out")" -eq "$1" ] || { cat "$out"; return 1; }
}

has() { # has TEXT: on stdout
    grep -qF -e "$1" "$out" || { cat "$out"; return 1; }
}

table() {
    probe copy recall --suite --only append,delta --length 64 && lines 5 || return 1
    has "task    model   accuracy   chance      loss     steps" || return 1
    [ "$(grep -c '^recall  delta ' "$out")" -eq 1 ] && [ "$(grep -c ' % .* % ' "$out")" -eq 4 ] &&
        [ "$(grep -c '^recall .* % *1\.56 % ' "$out")" -eq 2 ]
}

every_line_is_json() {
    while read -r line; do
        echo "$line" >"$scratch/line"
        is_json "$scratch/line" >/dev/null || return 1
    done <"$out"
}

tasks_as_json() {
    probe copy recall addition parens needle --preset gpt2-tiny --set heads=2 --json &&
        lines 5 && every_line_is_json || return 1
    for task in copy recall addition parens needle; do
        has "{\"probe\": \"$task\", \"model\": \"gpt2-tiny\", \"set.heads\": 2, " || return 1
    done
    has '"pairs": 16, "queries": 16' && has '"digits": 3' && has '"depth": -1' &&
        has '"set.dim": 16, "set.depth": 1, "length": 64, "vocab": 42, "symbols": 32, "batch": 4' &&
        has '"tests": 4'
}

sweep() {
    probe recall --suite --only slots-16 --length 32,48 --pairs 2 --slots 2,4,8 --json &&
        lines 6 && every_line_is_json || return 1
    for length in 32 48; do
        for slots in 2 4 8; do
            row="\"set.mixer.slots\": $slots, .*, \"length\": $length,"
            [ "$(grep -c -e "$row" "$out")" -eq 1 ] || { cat "$out"; return 1; }
        done
    done
}

report() { # the rows are what dra report reads
    probe copy --suite --only moment,delta --json && cp "$out" "$scratch/rows.jsonl" &&
        "$dra" report "$scratch/rows.jsonl" --out "$scratch/page.html" >"$out" 2>"$err" &&
        grep -q "copy" "$scratch/page.html"
}

sweep_of_keys() { # values with commas in brackets are one
    probe parens --preset dra-ema-tiny --set heads=2 --set "mixer.gamma.range=[1,2],[3,8]" \
        --kinds 2,3,4 --length 8 && lines 7 && has "[3,8]" &&
        has "kinds  mixer.gamma.range  accuracy"
}

seeds_and_rates() { # each seed with each rate; a seed alone gives the same row
    probe copy --suite --only moment --lr 0.001,0.01 --seeds 1,2,3 --json && lines 6 || return 1
    for seed in 1 2 3; do
        for lr in 0.001 0.01; do
            [ "$(grep -c "\"lr\": $lr, \"seed\": $seed, " "$out")" -eq 1 ] || return 1
        done
    done
    sed -n 's/"seconds.*//; 5p' "$out" >"$scratch/a"
    probe copy --suite --only moment --lr 0.01 --seed 2 --json &&
        sed 's/"seconds.*//' "$out" >"$scratch/b" && cmp "$scratch/a" "$scratch/b" &&
        probe copy --suite --only moment --seeds 1,2 && lines 3 && has "model   seed  accuracy"
}

further_tasks() {
    probe mqar update select parity modular permute --suite --only delta --json && lines 6 &&
        every_line_is_json || return 1
    has '"probe": "mqar", "model": "delta", "set.dim": 16' && has '"vocab": 8192' &&
        has '"by_answer": [{"answer": 1, "accuracy": ' && has '"by_age": [{"age": 1, ' &&
        has '"by_depth": [{"depth": 0, ' && has '"peak_bytes": '
}

other_lengths() { # each is a line; the trained length again says the same
    probe recall --suite --only delta --length 24 --pairs 4 --test-length 24,48,1100 --json &&
        lines 4 && every_line_is_json && has '"length": 1100, ' || return 1
    [ "$(grep -c '"trained_length": 24, ' "$out")" -eq 3 ] || return 1
    sed -n 's/.*"accuracy": \([0-9.]*\), "chance".*"test_loss": \([0-9.]*\),.*/\1 \2/p; 2q' "$out" |
        uniq | wc -l | grep -qx 1 || { cat "$out"; return 1; }
    probe recall --suite --only delta --length 24 --pairs 4 --test-length 48 &&
        has "  length 48: "
}

kept() { # a model that other verbs read, with what was learned
    probe copy --suite --only append --length 8 --out "$scratch/kept" --json &&
        "$dra" probe copy --model "$scratch/kept" --length 8 --lr 1e-30 --steps 1 --tests 4 --batch 4 \
            --threads 1 --json >"$scratch/again" 2>"$err" || { cat "$err"; return 1; }
    for name in accuracy test_loss; do
        sed "s/.*\"$name\": \([0-9.]*\),.*/\1/" "$out" >"$scratch/a"
        sed "s/.*\"$name\": \([0-9.]*\),.*/\1/" "$scratch/again" | cmp - "$scratch/a" || return 1
    done
}

in_a_text() {
    echo "A story in which something is hidden." >"$scratch/story"
    probe needle --suite --only append --text "$scratch/story" --length 60 --json &&
        has '"vocab": 330'
}

in_time() {
    "$dra" probe copy --suite --only append --steps 1000000 --batch 1 --tests 1 --eval-every 0 \
        --until 0 --minutes 0.01 --threads 1 --json >"$out" 2>"$err" && lines 1 &&
        ! grep -q '"steps": 1000000' "$out"
}

as_in_train() { # each option changes what is learned
    probe copy --suite --only gru --lr 0.05 --json && sed 's/.*"test_loss": //; s/,.*//' "$out" >"$scratch/a"
    for option in "--optimizer lion" "--beta1 0.5" "--beta2 0.5" "--eps 0.1" "--schedule constant" \
        "--group matrix:lr=2x" "--aux-loss drift=5"; do
        # shellcheck disable=SC2086 # an option and its value
        probe copy --suite --only gru --lr 0.05 --json $option || return 1
        sed 's/.*"test_loss": //; s/,.*//' "$out" >"$scratch/b"
        ! cmp -s "$scratch/a" "$scratch/b" || { echo "$option changes nothing"; return 1; }
    done
}

half_lives() {
    probe needle --preset dra-ema-tiny --set heads=2 --half-life 4,64 --depth 0,0.5 --length 24 &&
        lines 5 && has "depth  half-life  accuracy"
}

same_again() {
    probe copy --suite --only moment --json && sed 's/"seconds.*//' "$out" >"$scratch/a" &&
        probe copy --suite --only moment --json && sed 's/"seconds.*//' "$out" >"$scratch/b" &&
        cmp "$scratch/a" "$scratch/b"
}

trains_a_folder() {
    "$dra" init --preset dra-delta-tiny --set dim=16 --set heads=2 --out "$scratch/model" \
        >/dev/null 2>&1 &&
        "$dra" probe copy --model "$scratch/model" --steps 1 --batch 2 --tests 2 >"$out" 2>"$err" &&
        lines 2
}

tells_progress() {
    probe copy --suite --only append && grep -qF "copy  append  step 2/2  loss " "$err" &&
        grep -qF " left" "$err"
}

learns() { # and ends early
    "$dra" probe copy --suite --only append --symbols 2 --vocab 18 --set dim=32 --set depth=1 \
        --lr 0.01 --eval-every 20 --steps 400 --batch 16 --until 0.9 --json >"$out" 2>"$err" &&
        has '"reached": true'
}

# What was made of a run is shown, and that it was cut short.
stopped_early() {
    : >"$err"
    "$dra" probe copy --suite --only append --steps 100000 --eval-every 1 --tests 2 \
        >"$out" 2>"$err" &
    child=$! tries=0
    until [ -s "$err" ] || [ $tries -ge 300 ]; do # it has begun
        tries=$((tries + 1))
        sleep 0.1
    done
    kill -INT $child
    wait $child
    [ $? -eq 130 ] && grep -q "^dra: stopped; " "$err" && grep -q append "$out"
}

check "a table" table
check "all tasks as JSON" tasks_as_json
check "a sweep of options" sweep
check "a sweep of keys" sweep_of_keys
check "a report of them" report
check "half-lives and depths" half_lives
check "further tasks" further_tasks
check "other lengths" other_lengths
check "a model is kept" kept
check "a needle in a text" in_a_text
check "minutes" in_time
check "options of train" as_in_train
check "several models are not kept" misused "dra probe: --out: expected a single run, found 2" \
    probe copy --suite --only append,delta --out x
check "no lengths" misused "dra probe: --test-length: expected up to 16 numbers from 1 on between \
commas, found '8,x'" probe copy --suite --test-length 8,x
check "too short a test" failed "probe recall: length is 4, expected 48 to" \
    probe recall --suite --only append --test-length 4
check "a text for another task" failed "probe copy: has no option text" \
    probe copy --suite --text "$scratch/story"
check "seeds and learning rates" seeds_and_rates
check "the same numbers again" same_again
check "a folder with a model" trains_a_folder
check "progress" tells_progress
check "learns" learns
check "help" says "addition: digits of each number (default 3)" probe --help

task="dra probe: TASK is required, as in: dra probe recall"
check "no task" misused "$task --preset dra-delta-tiny --pairs 8 --length 128" probe --suite
check "no model" misused \
    "dra probe: expected one of --model, --preset, --config and --suite, found none" probe copy
check "several models" misused \
    "dra probe: expected one of --model, --preset, --config and --suite, found several" \
    probe copy --suite --preset gpt2
check "an empty value" misused \
    "dra probe: --pairs: expected values between commas, found '4,,5'" \
    probe recall --suite --pairs 4,,5
check "a setting without value" misused "dra probe: --set: expected KEY=VALUE, found 'dim'" \
    probe copy --suite --set dim
check "an unknown task" failed "no such task: 'recal'; did you mean recall?" probe recal --suite
check "Ctrl-C" stopped_early
check "an unknown model" failed \
    "--only: no such model of the suite: 'apend'; did you mean append?" \
    probe copy --suite --only apend
check "another task's option" failed "probe copy: has no option pairs" probe copy --suite --pairs 4
check "no number" failed "--pairs: expected a number from 1 on, found 'x'" \
    probe recall --suite --pairs 4,x
check "no learning rate" failed "--lr: expected a number from 0 to 100, found '-1'" \
    probe copy --suite --lr=0.1,-1
check "no seed" failed "--seeds: expected whole numbers from 0 to 1e15, found 'x'" \
    probe copy --suite --seeds 1,x
check "two kinds of seeds" misused "dra probe: expected one of --seed and --seeds, found both" \
    probe copy --suite --seed 1 --seeds 1,2
check "too short" failed "probe recall: length is 20, expected 48 to" \
    probe recall --suite --length 256,20
check "an unknown key" failed "did you mean" probe copy --suite --set mixer.slot=4
"$dra" init --preset gpt2-tiny --set dim=16 --set heads=2 --out "$scratch/gpt" >/dev/null 2>&1
check "positions end" failed "the model has learned positions for 256" \
    probe copy --model "$scratch/gpt" --length 258
tap_end
