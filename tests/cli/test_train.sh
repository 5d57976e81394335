#!/bin/sh
# dra train as a process: killed at any moment it goes on to the same bytes; signals save; what is
# wrong is one line.
#   test_train.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/../tap.sh"
data=$(cd "$(dirname "$0")/../data" && pwd) || exit 1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
out=$scratch/out
err=$scratch/err

awk 'BEGIN { while (i++ < 400) print "line", i, "of a text that says little,", i * i % 97 }' >text
awk 'BEGIN { while (i++ < 400) print "another text, and", i }' >other

# launch RUN PRESET OPTIONS...: becomes the process that trains a small model, and saves often.
launch() {
    run=$1
    preset=$2
    shift 2
    exec "$dra" train --preset "$preset" --set dim=32 --set heads=2 --set depth=2 --data text \
        --out "$run" --steps 40 --batch 4 --context 32 --save-every 2 --log-every 4 --split 0.05 \
        --eval-every 10 --threads 2 "$@" >"$out" 2>"$err"
}

train() { (launch "$@") || { cat "$err"; return 1; }; }

one_line() {
    [ "$(wc -l <"$1")" -eq 1 ] || { cat "$1"; return 1; }
}

# refused STATUS TEXT COMMAND...: that status and one line with the text.
refused() {
    expected=$1
    text=$2
    shift 2
    status=0
    "$@" >"$out" 2>"$err" || status=$?
    [ "$status" -eq "$expected" ] && one_line "$err" && grep -qF -e "$text" "$err" && return 0
    echo "status $status, expected $expected and: $text"
    cat "$err"
    return 1
}

# moment N: a number of seconds that is another one each time.
moment() {
    awk -v seed="$(($$ + $1 * 7919))" 'BEGIN { srand(seed); printf "%.2f", 0.05 + 0.4 * rand() }'
}

# Trained in one go, and killed again and again: the same bytes in the end.
killed_goes_on() {
    preset=$1
    train "$preset.whole" "$preset" || return 1
    for i in 1 2 3 4; do
        launch "$preset.killed" "$preset" --resume &
        job=$!
        sleep "$(moment $i)"
        kill -KILL "$job" 2>/dev/null
        wait "$job" 2>/dev/null
    done
    train "$preset.killed" "$preset" --resume || return 1
    cmp "$preset.whole/model.safetensors" "$preset.killed/model.safetensors" &&
        cmp "$preset.whole/best/model.safetensors" "$preset.killed/best/model.safetensors" &&
        cmp "$preset.whole/train/step-00000040/optimizer.safetensors" \
            "$preset.killed/train/step-00000040/optimizer.safetensors" &&
        same_log "$preset"
}

# The same steps with the same losses, each once.
same_log() {
    for run in whole killed; do
        sed -n 's/^\({"step":[0-9]*,"loss":[0-9.]*\),.*/\1/p' "$1.$run/log.jsonl" >$run.steps
    done
    [ "$(wc -l <whole.steps)" -eq 10 ] && cmp whole.steps killed.steps
}

# A tokenizer goes along with a run, as the file it is, and all verbs find it there.
tokenizer_goes_along() {
    folder=$data/$1 file=$2 prompt=$3 ids=$4
    "$dra" train --preset rwkv4-tiny --set dim=8 --set heads=1 --set depth=1 --data text --force \
        --out along --tokenizer "$folder" --steps 2 --batch 1 --context 8 >"$out" 2>"$err" &&
        cmp "$folder/$file" "along/$file" &&
        [ "$("$dra" tokenize --model along "$prompt")" = "$ids" ] &&
        "$dra" generate --model along --prompt "$prompt" --tokens 3 >"$out" 2>"$err" &&
        rm -rf copy && "$dra" convert --from along --to copy >"$out" 2>"$err" &&
        cmp "$folder/$file" "copy/$file" &&
        "$dra" train --model copy --data text --out more --force --steps 2 --batch 1 --context 8 \
            >"$out" 2>"$err" && cmp "$folder/$file" "more/$file" && return 0
    cat "$err"
    return 1
}

# A signal saves, says how to go on, and exits with 0.
signal_saves() {
    run=signal.$1
    : >"$err"
    "$dra" train --preset dra-gru-tiny --set dim=32 --set heads=2 --set depth=2 --data text \
        --out "$run" --steps 100000 --batch 4 --context 32 --save-every -1 >"$out" 2>"$err" &
    job=$!
    tries=0
    while ! grep -q '^step ' "$err" && [ "$tries" -lt 400 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    kill -"$1" "$job"
    wait "$job" || { cat "$err"; return 1; }
    last=$(tail -n 1 "$err")
    case $last in
    "stopped and saved at step "*"; go on with: dra train --resume --out $run --data text") ;;
    *) echo "$last"; return 1 ;;
    esac
    set -- "$run"/train/step-*
    [ $# -eq 1 ] && [ -f "$run/model.safetensors" ]
}

says() { # says TEXT COMMAND...: works, and the text is on stderr
    text=$1
    shift
    "$@" >"$out" 2>"$err" && grep -q -e "$text" "$err" && return 0
    cat "$err"
    return 1
}

# The settings come from the run; only the data are named again.
goes_on_without_settings() {
    says '^done' "$dra" train --preset gpt2-tiny --set dim=32 --set heads=2 --set depth=1 \
        --data text --out settings --steps 6 --batch 2 --context 16 &&
        says '^settings has all its 6 steps$' "$dra" train --resume --out settings --data text
}

reports_before_the_run() {
    says '^model .* parameters$' "$dra" train --preset dra-gru-tiny --set dim=32 --set depth=1 \
        --set heads=2 --data text --out report --steps 12 --batch 2 --context 16:0,32:6 \
        --add drift=0.1 --guard \
        --sample-every 12 --sample-prompt "line " --sample-tokens 5 || return 1
    [ ! -s "$out" ] && grep -q '^data .* tokens$' "$err" &&
        grep -q '^run  *12 steps of 2 x 16, 32 (from step 7 on) tokens: 576 tokens' "$err" &&
        grep -q '^memory .*weights .*activations ' "$err" && grep -q '^time ' "$err" &&
        grep -q '^sample  *line ' "$err" && grep -q '"sample":"line ' report/log.jsonl &&
        grep -q '"drift":[0-9.e-]*,"guarded":0' report/log.jsonl &&
        says 'report has all' "$dra" train --resume --out report --data text &&
        grep -q '"steps": 12' report/train/config.json && return 0
    cat "$err" report/log.jsonl
    return 1
}

for preset in gpt2-tiny dra-gru-tiny dra-slots-tiny; do
    check "killed: $preset goes on to the same bytes" killed_goes_on $preset
done
check "SIGINT saves" signal_saves INT
check "SIGTERM saves" signal_saves TERM
check "goes on without settings" goes_on_without_settings
check "the tokenizer of RWKV World" tokenizer_goes_along world rwkv_vocab_v20230424.txt \
    "I'll 'd test" "74 5229 274 101 32223"
check "a report before the run" reports_before_the_run

run=gpt2-tiny.whole
again() { "$dra" train --resume --out $run "$@"; }
check "a run that is there" refused 1 "holds a run of 40 steps; resume it, or force" \
    "$dra" train --preset gpt2-tiny --data text --out $run
check "another model" refused 1 'is a run of another model: config.json says "dim": 32 where' \
    again --data text --preset gpt2-tiny
check "other data" refused 1 "was trained on other data" again --data other
check "other settings" refused 1 "resume: lr was 0.001 and is 0.5 now" again --data text --lr 0.5
check "no model" refused 2 "dra train: expected one of --model, --preset and --config, found none" \
    "$dra" train --data text --out new
check "no data" refused 2 "dra train: --data: expected a value, found nothing" \
    "$dra" train --preset gpt2-tiny --out new
check "context" refused 2 "--context: expected T or T:STEP,T:STEP,..., found '16:x'" \
    "$dra" train --preset gpt2-tiny --data text --out new --context 16:x
check "add" refused 2 "--add: expected drift=X with a number X, found 'drif=1'" \
    "$dra" train --preset dra-gru-tiny --data text --out new --add drif=1
check "carry" refused 1 "carry: the model has learned positions" \
    "$dra" train --preset gpt2-tiny --data text --out new --carry
check "a missing file" refused 1 "nowhere: cannot open it" \
    "$dra" train --preset gpt2-tiny --data nowhere --out new
check "nothing is left of what was refused" [ ! -e new ]
tap_end
