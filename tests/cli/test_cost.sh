#!/bin/sh
# Cost is proportional: a config of 100 bytes never stalls a verb; time grows with depth, not with
# its square; what is too large is refused with the limit.
#   test_cost.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1
awk 'BEGIN { while (i++ < 40) print "the cat " i " sat on the mat" }' >book.txt

config() { # config FIELDS: a small model in c.json, and what else is in it
    small='"model_type": "dra", "vocab": 256, "dim": 8, "heads": 1, "context": 16'
    printf '{%s, %s}' "$small" "$1" >c.json
}

# quick SECONDS ARGUMENTS...: ends well by then. Squares of these depths would take minutes; limits
# are generous, as machines of tests are slow and busy.
quick() {
    seconds=$1
    shift
    timeout "$seconds" "$dra" "$@" </dev/null >"$out" 2>"$err" && return 0
    echo "exit status $?"
    cat "$err"
    return 1
}

is_deep() {
    config '"depth": 20000, "mixer": {"memory": "delta"}'
    quick 100 info --config c.json && has "$out" "0 to 19999  delta"
}

runs_deep() { # runs_deep MIXER
    config "\"depth\": 2000, \"mixer\": {$1}"
    quick 100 forward --config c.json --tokens 1,2,3 --out o.safetensors && [ -s o.safetensors ]
}

learns_deep() {
    config '"depth": 500, "mixer": {"memory": "append"}'
    rm -rf run
    quick 100 train --config c.json --data book.txt --batch 1 --context 4 --steps 1 --out run
}

# ---- sizes that make no sense --------------------------------------------------------------------

# ends ARGUMENTS...: with an answer or one line, soon.
ends() {
    status=0
    timeout 60 "$dra" "$@" </dev/null >"$out" 2>"$err" || status=$?
    [ "$status" -le 2 ] && { [ "$status" -eq 0 ] || one_line "$err"; } && return 0
    echo "exit status $status"
    cat "$err"
    return 1
}

absurd() { # absurd KEY=VALUE...
    config '"depth": 1'
    sets=
    for set; do sets="$sets --set $set"; done
    for verb in info "init --out new" "forward --tokens 1,2 --out o.safetensors" \
        "train --data book.txt --batch 1 --context 4 --steps 1 --out new-run"; do
        rm -rf new-run new
        # shellcheck disable=SC2086
        ends $verb --config c.json $sets || { echo "$verb: $*"; return 1; }
    done
}

refuses() { # refuses TEXT FIELDS
    config "$2"
    failed "$1" info --config c.json
}

# A default config of Hugging Face is large: dra says so while one waits, or that it does not fit.
says_its_size() {
    printf '{"model_type": "gpt2", "n_layer": 1, "n_embd": 1024, "n_head": 1}' >c.json
    run 0 forward --config c.json --tokens 1 --out o.safetensors &&
        has "$err" "init     65.1 M parameters" || return 1
    printf '{"model_type": "rwkv", "hidden_size": 262144, "num_hidden_layers": 400}' >c.json
    failed "parameters need" init --config c.json --out other
}

check "info: depth 20000" is_deep
check "forward: depth 2000" runs_deep '"memory": "delta"'
check "forward: depth 2000, as a loop" runs_deep '"memory": "delta", "steps": true'
check "train: depth 500" learns_deep
most=1048576
check "the deepest" refuses \
    "depth is $most, expected 1 to 32768: a graph has 2^22 values, 128 a layer" "\"depth\": $most"
check "many heads" absurd heads=$most
check "many small heads" absurd dim=$most heads=$most
check "wide" absurd dim=$most
check "a large vocabulary" absurd vocab=$most dim=65536
check "a long context" absurd context=$most positions=learned
check "many streams" absurd block.streams=$most
check "a wide feed-forward" absurd ff.dim=$most
check "many slots" absurd mixer.memory=slots mixer.slots=$most
check "large weights" says_its_size
check "a range from high to low" refuses "gamma.range is 8, 1, expected the lower one first" \
    '"depth": 1, "mixer": {"memory": "ema", "gamma": {"range": [8, 1]}}'
tap_end
