#!/bin/sh
# Options of samplers as processes: each has its effect in dra generate and dra chat, from the
# command line, /set and generation_config.json, and is refused in the same words.
#   test_sampling.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1

small="--set dim=24 --set heads=2 --set depth=2"
# shellcheck disable=SC2086 # a list of options
{
    "$dra" init --preset dra-gru-tiny $small --seed 2 --out m
    "$dra" init --preset xt-encoder-tiny --set vocab=256 --out e
} >/dev/null || exit 1

# wrote OPTIONS...: the tokens of a text in $ids, in lines.
wrote() {
    answers generate --model m --prompt Once --tokens 40 --json --seed 4 "$@" || return 1
    ids=$(sed 's/.*"tokens": \[\([^]]*\)\].*/\1/; s/, /\n/g' "$out")
}

distinct() { [ "$(echo "$ids" | sort | uniq -d)" = "" ]; }

# Greedy texts of a fresh model go in circles.
repeats() { wrote --temperature 0 && ! distinct; }

avoid_repeating() {
    for option in "--no-repeat-ngram 1" "--presence-penalty 100" "--frequency-penalty 100"; do
        # shellcheck disable=SC2086 # an option and its value
        wrote --temperature 0 $option && distinct || { echo "$option: $ids"; return 1; }
    done
}

# Two in a row may come again, three may not.
ngrams() {
    wrote --temperature 0 --no-repeat-ngram 3 || return 1
    echo "$ids" | awk '{ if (NR > 2 && seen[a, b, $1]++) exit 1; a = b; b = $1 }'
}

dry() {
    wrote --temperature 0 && plain=$ids && wrote --temperature 0 --dry-multiplier 100 &&
        [ "$plain" != "$ids" ] && dry=$ids &&
        wrote --temperature 0 --dry-multiplier 100 --dry-base 3 --dry-allowed-length 1 &&
        [ "$dry" != "$ids" ]
}

# Filters that leave the most likely token alone are greedy.
filters_apply() {
    wrote --temperature 0 && greedy=$ids && wrote && [ "$ids" != "$greedy" ] || return 1
    for option in "--top-k 1" "--top-p 1e-9" "--min-p 1" "--epsilon-cutoff 1"; do
        # shellcheck disable=SC2086
        wrote $option && [ "$ids" = "$greedy" ] || { echo "$option"; return 1; }
    done
    wrote && plain=$ids && wrote --typical-p 0.3 && [ "$ids" != "$plain" ]
}

# The text ends where two tokens come in a row, the second one left out.
stop_tokens() {
    wrote --temperature 0.7 && plain=$ids || return 1
    third=$(echo "$plain" | sed -n 3p)
    fourth=$(echo "$plain" | sed -n 4p)
    wrote --temperature 0.7 --stop-tokens 255,1 --stop-tokens "$third,$fourth" || return 1
    echo "$plain" | head -n "$(echo "$ids" | wc -l)" >begin
    [ "$(echo "$ids")" = "$(cat begin)" ] && [ "$(echo "$ids" | tail -n 1)" = "$third" ] &&
        says '"finish": "stop"' generate --model m --prompt Once --tokens 40 --json --seed 4 \
            --temperature 0.7 --stop-tokens "$third" &&
        answers generate --model m --prompt-tokens 1,2 --tokens 40 --temperature 0 \
            --stop-tokens 7 --stop-tokens 8
}

# What a folder says begins where the command line says nothing.
folders_say() {
    cp -r m h && cp -r e f &&
        echo '{"no_repeat_ngram_size": 1, "min_new_tokens": 3}' >h/generation_config.json &&
        echo '{"no_repeat_ngram_size": 1}' >f/generation_config.json &&
        answers generate --model h --prompt Once --tokens 40 --json --temperature 0 || return 1
    ids=$(sed 's/.*"tokens": \[\([^]]*\)\].*/\1/; s/, /\n/g' "$out")
    distinct && wrote --temperature 0 --no-repeat-ngram 1 || return 1
    answers generate --model f --tokenizer bytes --unmask 2 --tokens 5
}

# /set is the option.
chat_sets() {
    printf 'hi\n/set no-repeat-ngram 1\n/set presence-penalty=-2\n/set min-p 2\n/set\n' |
        "$dra" chat --model m --tokens 9 --seed 4 >"$out" 2>"$err"
    grep -q '^dra chat: /set: --min-p: expected a number from 0 to 1, found .2.$' "$err" &&
        grep -q '^tokens 9, presence-penalty -2, .*no-repeat-ngram 1, .*typical-p 1, ' "$err" ||
        { cat "$err"; return 1; }
}

check "greedy texts repeat themselves" repeats
check "options that avoid it" avoid_repeating
check "n-grams" ngrams
check "dry" dry
check "filters" filters_apply
check "stop tokens" stop_tokens
check "generation_config.json" folders_say
check "/set" chat_sets

g="generate --model m --prompt a"
# shellcheck disable=SC2086 # a list of options
{
    check "a penalty too high" misused \
        "dra generate: --presence-penalty: expected a number from -100 to 100, found '101'" \
        $g --presence-penalty 101
    check "a share too large" misused \
        "dra generate: --typical-p: expected a number from 0 to 1, found '1.5'" $g --typical-p 1.5
    check "a base below 1" misused \
        "dra generate: --dry-base: expected a number from 1 to 100, found '0.5'" $g --dry-base 0.5
    check "half an n-gram" misused \
        "dra generate: --no-repeat-ngram: expected a whole number from 0 to 100, found '1.5'" \
        $g --no-repeat-ngram 1.5
    check "filters and beams" misused \
        "dra generate: --typical-p is for drawing: with --beam it needs --beam-noise" \
        $g --beam 2 --typical-p 0.5
    check "filters and amateurs" misused \
        "dra generate: --epsilon-cutoff: not with --amateur, whose contrast takes its place" \
        $g --amateur m --epsilon-cutoff 0.5
    check "stop tokens that are none" misused \
        "dra generate: --stop-tokens: expected a whole number, found 'x'" $g --stop-tokens 1,x
    check "no stop tokens" misused "dra generate: --stop-tokens: expected ids, found none" \
        $g --stop-tokens ,
    check "stop tokens of another model" failed \
        "stop tokens: token 1 is 9999, the model has 0 to " $g --stop-tokens 1,9999
}
check "a text that is filled in has no past" misused \
    "dra generate: --no-repeat-ngram: expected none of it with --unmask" \
    generate --model e --tokenizer bytes --unmask 2 --tokens 5 --no-repeat-ngram 2
tap_end
