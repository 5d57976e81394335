#!/bin/sh
# Caches in bf16 (--cache bf16): half the bytes, other numbers, the same in parts and from files; a
# state of one kind is not read as the other; refused where there is no cache.
#   test_cache.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1
none="model: a cache in bf16, but the model has no cache that grows with the text"

init() { run 0 init --preset gpt2-tiny --set dim=24 --set heads=2 --set depth=2 --out m; }

bytes() { # bytes CACHE: of a token
    run 0 info --model m --cache "$1" --json &&
        sed -n 's/.*"bytes_per_token": \([0-9]*\).*/\1/p' "$out" >"$1.bytes"
}

half_the_bytes() {
    bytes f32 && bytes bf16 && [ "$(cat f32.bytes)" -gt 0 ] || return 1
    real=$((24 * 2 * 2)) # numbers
    [ "$(cat bf16.bytes)" -eq $((2 * real)) ] && [ "$(cat f32.bytes)" -ge $((4 * real)) ]
}

list=5,6,7,8,9,10,11,12,13,14,15
forward() { # forward CACHE OUT OPTIONS...
    cache=$1 to=$2
    shift 2
    run 0 forward --model m --cache-dtype "$cache" --tokens $list --out "$to" \
        --state-out "$to.s" "$@"
}

parts() {
    forward bf16 a && forward bf16 b --chunks 3,1,7 && cmp a b && cmp a.s b.s &&
        forward f32 c && ! cmp -s a c &&
        [ "$(wc -c <a.s)" -lt "$(wc -c <c.s)" ]
}

# A text that goes on from a file is the one that was written at once.
goes_on() {
    greedy="--model m --cache bf16 --temperature 0"
    # shellcheck disable=SC2086 # options
    run 0 generate $greedy --prompt Once --tokens 20 && tr -d '\n' <"$out" >whole &&
        run 0 generate $greedy --prompt Once --tokens 8 --state-out s && cp "$out" parts &&
        run 0 generate $greedy --state-in s --tokens 12 || return 1
    cat parts "$out" | tr -d '\n' | cmp - whole
}

# refuses CACHE FILE TEXT: a state of the other kind
refuses() {
    run 1 generate --model m --cache "$1" --state-in "$2" --tokens 3 && one_line "$err" &&
        grep -q "$2: keeps layers.0.mixer.K in $3; --cache says which" "$err" && return
    cat "$err"
    return 1
}

other_kind() {
    for cache in f32 bf16; do
        run 0 generate --model m --cache $cache --prompt Once --tokens 3 --state-out $cache.state ||
            return 1
    done
    refuses f32 bf16.state "bf16, but the model's cache is f\(32\|64\)" &&
        refuses bf16 f32.state "f\(32\|64\), but the model's cache is bf16"
}

no_cache() {
    run 1 generate --preset rwkv4-tiny --cache bf16 --prompt a --tokens 2 &&
        [ "$(cat "$err")" = "dra: rwkv4-tiny: $none" ] &&
        run 1 info --preset dra-delta-tiny --cache bf16 && [ "$(cat "$err")" = "dra: $none" ]
}

check "a model" init
check "half the bytes for each token" half_the_bytes
check "whole and in parts, not as in full precision" parts
check "a text goes on from a file" goes_on
check "states of the other kind" other_kind
check "a model without a cache" no_cache
check "a state file has its own" misused \
    "dra info: --cache is of a model, and bf16.state is a state" info bf16.state --cache bf16
tap_end
