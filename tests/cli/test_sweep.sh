#!/bin/sh
# dra sweep as a process: every combination is a run as dra train writes it; what is done is
# skipped, what was interrupted is resumed; the table, JSON and page; what is refused.
#   test_sweep.sh PATH_OF_DRA
set -u
dra=$1
case $dra in /*) ;; *) dra=$PWD/$dra ;; esac
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1

awk 'BEGIN { while (i++ < 300) print "line", i, "of a text that says little,", i * i % 97 }' >text
small="--preset dra-ema-tiny --data text --split 0.1 --eval-every 4 --steps 4 --batch 2"
small="$small --context 16"

# sweep STATUS OPTIONS...: of small models, with two threads.
sweep() {
    status=$1
    shift
    # shellcheck disable=SC2086 # a list of options
    run "$status" sweep $small --set dim=16 --set heads=2 --set depth=1 --threads 2 "$@"
}

has() { # has TEXT FILE
    grep -q -e "$1" "$2" || { cat "$2"; return 1; }
}

combinations() {
    sweep 0 --out all --set lr=0.001,0.02 --set optimizer=adamw,muon --seeds 1,2 || return 1
    cp "$out" first
    [ "$(wc -l <"$out")" -eq 5 ] &&
        has '^lr     optimizer  evaluation      spread      lowest  runs  best run$' "$out" &&
        [ "$(find all -name log.jsonl | wc -l)" -eq 8 ] &&
        [ -f all/lr=0.02_optimizer=muon_seed=2/best/model.safetensors ] &&
        has '<svg' all/report.html && is_json all/sweep.json >/dev/null &&
        has '"measure": "eval_loss"' all/sweep.json &&
        [ "$(grep -c '"name": "lr=' all/sweep.json)" -eq 8 ] &&
        has '^done: sweep.json and report.html are in all$' "$err"
}

# Means, spread and order, computed again from the losses of the runs.
means_over_seeds() {
    awk 'NR > 1 { if ($3 + 0 < last + 0) exit 1; last = $3 }' "$out" || { cat "$out"; return 1; }
    for run in 1 2; do
        log=all/lr=0.02_optimizer=adamw_seed=$run/log.jsonl
        sed -n 's/.*"eval_loss":\([0-9.]*\).*/\1/p' "$log"
    done >losses
    awk '{ x[NR] = $1; s += $1 } END { m = s / 2; printf "0.02 adamw %.4f %.4f %.4f 2\n", m,
        sqrt((x[1] - m) ^ 2 + (x[2] - m) ^ 2), x[1] < x[2] ? x[1] : x[2] }' losses >want
    awk '$1 == "0.02" && $2 == "adamw" { print $1, $2, $3, $4, $5, $6 }' "$out" | cmp - want
}

# A run is what dra train would have written.
runs_are_runs() {
    # shellcheck disable=SC2086 # a list of options
    run 0 train $small --set dim=16 --set heads=2 --set depth=1 --lr 0.02 --optimizer muon \
        --seed 2 --out alone &&
        cmp alone/model.safetensors all/lr=0.02_optimizer=muon_seed=2/model.safetensors &&
        cmp alone/train/config.json all/lr=0.02_optimizer=muon_seed=2/train/config.json
}

# Nothing is trained again; another value is added to what is there; more steps make runs longer.
calls_again() {
    touch -d '2001-01-01' all/*/model.safetensors &&
        sweep 0 --out all --set lr=0.001,0.02 --set optimizer=adamw,muon --seeds 1,2 || return 1
    [ "$(grep -c ', done before$' "$err")" -eq 8 ] && cmp first "$out" &&
        [ -z "$(find all -maxdepth 2 -name model.safetensors -newermt '2002-01-01')" ] &&
        sweep 0 --out all --set lr=0.001,0.02 --set optimizer=adamw,muon,lion --seeds 1,2 &&
        [ "$(grep -c ', done before$' "$err")" -eq 8 ] &&
        [ -d all/lr=0.001_optimizer=lion_seed=1 ]
}

makes_them_longer() {
    # shellcheck disable=SC2086 # a list of options
    run 0 sweep ${small%--steps*} --batch 2 --context 16 --steps 6 --set dim=16 --set heads=2 \
        --set depth=1 --threads 2 --out all --set lr=0.001,0.02 --set optimizer=adamw,muon \
        --seeds 1,2 && [ "$(grep -c '^extended from 4 to 6 steps' "$err")" -eq 8 ]
}

# Killed in the middle of a run: the same command ends in the same bytes.
interrupted() {
    more="--preset gpt2-tiny --set dim=32 --set heads=2 --set depth=2 --data text --split 0.1"
    more="$more --steps 240 --batch 4 --context 32 --save-every 2 --set lr=0.001,0.01"
    # shellcheck disable=SC2086 # a list of options
    run 0 sweep $more --out whole || return 1
    for signal in KILL INT; do
        : >"$err"
        # shellcheck disable=SC2086 # a list of options
        "$dra" sweep $more --out parts >"$out" 2>"$err" </dev/null &
        job=$!
        tries=0
        # What is logged stays, where checkpoints come and go.
        in=parts/lr=0.01/log.jsonl
        [ "$signal" = INT ] || in=parts/lr=0.001/log.jsonl
        until grep -q '"step": *10,' "$in" 2>/dev/null || [ "$tries" -ge 3000 ]; do
            sleep 0.02
            tries=$((tries + 1))
        done
        kill -"$signal" "$job" 2>/dev/null
        wait "$job" 2>/dev/null
    done
    has 'the same command continues it\|done before' "$err" || return 1
    # shellcheck disable=SC2086 # a list of options
    run 0 sweep $more --out parts || return 1
    for lr in 0.001 0.01; do
        cmp whole/lr=$lr/model.safetensors parts/lr=$lr/model.safetensors &&
            cmp whole/lr=$lr/best/model.safetensors parts/lr=$lr/best/model.safetensors || return 1
    done
    awk '{ print $1, $2 }' "$out" | has '^0.01 ' /dev/stdin
}

# A run that fails is marked; the others have their turn, and the status says it.
one_fails() {
    sweep 1 --out fails --set accumulate=3,1 || return 1
    has '^3 .* failed$' "$out" && has '^1 .*accumulate=1$' "$out" &&
        has 'cannot be read in 3 equal microbatches' "$err" && has '"failed": true' fails/sweep.json
}

# Without evaluations the loss of training counts; lists of one value make one run.
without_evaluation() {
    run 0 sweep --preset gpt2-tiny --set dim=16 --set heads=2 --set depth=1 --data text --steps 2 \
        --batch 1 --context 8 -o single && has '^      loss  run$' "$out" &&
        [ -f single/run/model.safetensors ] && has '"measure": "loss"' single/sweep.json
}

# Values that go together are not multiplied out.
couples() {
    run 0 sweep --preset gpt2-tiny --set depth=1 \
        --set dim=16,24 --with heads=2,3 --with lr=0.1,0.2 \
        --set optimizer=adamw,lion --data text --steps 1 --batch 1 --context 8 --out pairs --json ||
        return 1
    is_json "$out" >/dev/null && cmp "$out" pairs/sweep.json &&
        [ "$(find pairs -name log.jsonl | wc -l)" -eq 4 ] &&
        has '"heads": 3' pairs/dim=24_heads=3_lr=0.2_optimizer=lion/config.json &&
        has 'dim=16_heads=2_lr=0.1_optimizer=adamw' "$out" && has '"lr": 0.1,' "$out"
}

# What a preset says of its memory is dropped where another one does not have it, and that is said;
# what was asked for is not.
other_memories() {
    run 0 sweep --preset dra-delta-tiny --set depth=1 --set dim=24 --set heads=2 --data text \
        --set mixer.memory=delta,moment,append --steps 1 --batch 1 --context 8 --out memories &&
        [ "$(grep -c '^notice ' "$err")" -eq 1 ] &&
        has '^notice   dropped mixer.decay of the preset dra-delta-tiny: ' "$err" &&
        [ "$(find memories -name log.jsonl | wc -l)" -eq 3 ] &&
        has ', of one seed each' memories/report.html &&
        failed "append: decay is set, which only moment, delta have" sweep --out new --data text \
            --preset dra-delta-tiny --set mixer.memory=append,delta --set mixer.decay=data &&
        run 0 init --preset hybrid-tiny --set mixer.blend=none --out single &&
        has '^notice   dropped mixer.blend_value, mixer.b of the preset hybrid-tiny: ' "$err" &&
        has '"memory": "append"' single/config.json && ! grep -q blend single/config.json
}

check "all combinations" combinations
check "means over seeds" means_over_seeds
check "runs are those of dra train" runs_are_runs
check "what is done is skipped" calls_again
check "more steps" makes_them_longer
check "killed and stopped" interrupted
check "a run that fails" one_fails
check "without evaluation" without_evaluation
check "values that go together" couples
check "another memory than the preset's" other_memories
check "values that do not" misused \
    "dra sweep: --with: heads: expected 2 values, one for each of dim, found 3" \
    sweep --preset gpt2-tiny --data text --out new --set dim=16,24 --with heads=2,3,4
check "nothing to go with" misused "dra sweep: --with: expected a --set before it, found none" \
    sweep --preset gpt2-tiny --data text --out new --with heads=2,3
required="dra sweep: --set KEY=VALUE,... or --seeds N,... is required"
check "no lists" misused "$required, as in: --set lr=0.001,0.003; a single run is dra train" \
    sweep --preset gpt2-tiny --data text --out new
check "no folder" sh -c '"$1" sweep --data text 2>&1 |
    grep "^dra sweep: --out DIR is required, as in: dra sweep --preset"' sh "$dra"
check "a wrong value" misused "dra sweep: --lr: expected a number from 0 to 100, found 'x'" \
    sweep --preset gpt2-tiny --data text --out new --set lr=0.1,x
check "no data" misused "dra sweep: --data FILE is required, as in: dra sweep --preset \
dra-slots-tiny --data book.txt --out run" sweep --preset gpt2-tiny --out new --set lr=0.1,0.2
check "no model" misused \
    "dra sweep: expected one of --model, --preset and --config, found none" \
    sweep --data text --out new --set lr=0.1,0.2
check "an unknown option" misused "dra sweep: no such option: '--stepps'; did you mean --steps?" \
    sweep --preset gpt2-tiny --data text --out new --stepps 3
check "a setting without value" misused "dra sweep: --set: expected KEY=VALUE,..., found 'lr'" \
    sweep --preset gpt2-tiny --data text --out new --set lr
check "a setting given twice" misused "dra sweep: --set: lr: given twice, expected once" \
    sweep --preset gpt2-tiny --data text --out new --set lr=1 --set lr=2
check "an empty value" misused "dra sweep: lr: expected values between commas, found '0.1,'" \
    sweep --preset gpt2-tiny --data text --out new --set lr=0.1,
check "seeds twice" misused "dra sweep: --seed: given twice, expected once" \
    sweep --preset gpt2-tiny --data text --out new --seeds 1,2 --seed 3
check "what is not a setting" misused "dra sweep: --set: out is not a setting of a run" \
    sweep --preset gpt2-tiny --data text --out new --set out=a,b
check "resume" misused "dra sweep: --resume: a sweep resumes what is there by itself" \
    sweep --preset gpt2-tiny --data text --out new --resume
check "a misspelt option" misused \
    "dra sweep: --set: no such setting: 'stepz'; did you mean steps?" \
    sweep --preset gpt2-tiny --data text --out new --set stepz=3,4
check "an unknown key" failed "did you mean" \
    sweep --preset gpt2-tiny --data text --out new --set mixer.memoryy=gru
check "a model that cannot be" failed "heads" \
    sweep --preset gpt2-tiny --data text --out new --set heads=2,5
check "nothing is left of what was refused" [ ! -e new ]
tap_end
