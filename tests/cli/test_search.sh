#!/bin/sh
# dra generate --amateur and --beam as processes: states, rows, JSON, what is refused.
#   test_search.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
data=$(cd "$(dirname "$0")/../data" && pwd)
cd "$scratch" || exit 1

# A model m, two amateurs a and b, one with another vocabulary v, an encoder e.
small="--set dim=24 --set heads=2 --set depth=2"
# shellcheck disable=SC2086 # a list of options
{
    "$dra" init --preset gpt2-tiny $small --set context=64 --seed 1 --out m
    "$dra" init --preset dra-gru-tiny $small --seed 2 --out a
    "$dra" init --preset rwkv4-tiny $small --seed 3 --out b
    "$dra" init --preset dra-gru-tiny $small --set vocab=300 --out v
    "$dra" init --preset xt-encoder-tiny --set vocab=256 --out e
} >/dev/null || exit 1

json_tokens() { sed 's/.*"tokens": \[\([^]]*\)\].*/\1/' "$1" | sed -n "${2:-1}p"; }

contrast="generate --model m --amateur a --amateur b --contrast-beta 3 --seed 5"

# ---- contrast ------------------------------------------------------------------------------------

contrast_continues() {
    # shellcheck disable=SC2086 # lists of options
    {
        answers $contrast --prompt Once --tokens 20 --json || return 1
        all=$(json_tokens "$out")
        answers $contrast --prompt Once --tokens 8 --json --state-out s || return 1
        first=$(json_tokens "$out")
        [ -s s ] && [ -s s.amateur1 ] && [ -s s.amateur2 ] || return 1
        answers $contrast --state-in s --tokens 12 --json || return 1
    }
    [ "$all" = "$first, $(json_tokens "$out")" ] || return 1
    answers generate --model m --prompt Once --tokens 20 --seed 5 --json &&
        [ "$all" != "$(json_tokens "$out")" ]
}

contrast_rows() {
    # shellcheck disable=SC2086
    answers $contrast --prompt Once --prompt "Twice, or thrice" --tokens 9 --json &&
        is_json "$out" && grep '^  {' "$out" >rows || return 1
    for row in 1 2; do
        [ $row -eq 1 ] && prompt=Once || prompt="Twice, or thrice"
        # shellcheck disable=SC2086
        answers $contrast --prompt "$prompt" --tokens 9 --json || return 1
        [ "$(json_tokens "$out")" = "$(json_tokens rows $row)" ] || return 1
    done
}

# An amateur inside its loss wrapper is the amateur.
wrapped_amateurs() {
    stack='"attn_layers": {"type": "Decoder", "dim": 16, "depth": 1, "heads": 2}'
    net="\"wrapper\": \"TransformerWrapper\", \"num_tokens\": 256, \"max_seq_len\": 64, $stack"
    echo "{\"model_type\": \"x-transformers\", $net}" >bare.json &&
        echo '{"model_type": "x-transformers", "wrapper": "AutoregressiveWrapper",' \
            "\"net\": {$net}}" >inside.json || return 1
    for name in bare inside; do
        run 0 init --config $name.json --seed 4 --out of-$name &&
            answers generate --model m --amateur of-$name --prompt Once --tokens 9 --seed 5 \
                --json || return 1
        json_tokens "$out" >tokens-$name
    done
    cmp tokens-bare tokens-inside && answers generate --model of-inside --amateur of-bare \
        --prompt Once --tokens 9 --json
}

# A state saved without amateurs, or next to another one.
wrong_amateur_states() {
    # shellcheck disable=SC2086
    {
        answers generate --model m --prompt Once --tokens 2 --state-out alone &&
            failed "alone.amateur1: cannot open" $contrast --state-in alone || return 1
        answers $contrast --prompt Once --tokens 2 --state-out s &&
            answers $contrast --prompt Twice --tokens 2 --state-out t && mv t.amateur1 s.amateur1 &&
            failed "s.amateur1: a state of an amateur next to another state" \
                $contrast --state-in s || return 1
        answers $contrast --prompt Once --tokens 2 --state-out s &&
            failed "s.amateur1: fingerprint is" generate --model m --amateur b --amateur a \
                --state-in s
    }
}

# A folder's own settings give way to contrast, options do not.
habits_give_way() {
    rm -rf h && cp -r m h &&
        echo '{"do_sample": true, "top_k": 50, "max_new_tokens": 4}' >h/generation_config.json &&
        answers generate --model h --prompt Once --amateur a &&
        answers generate --model h --prompt Once --beam 2 &&
        answers generate --model h --prompt Once --beam 2 --beam-noise || return 1
    echo '{"max_new_tokens": 4}' >h/generation_config.json &&
        answers generate --model h --prompt Once --beam 2 --beam-noise
}

other_tokenizers() {
    rm -rf x y && cp -r v x && cp -r v y &&
        "$dra" tokenizer train --data "$data/../tap.sh" --vocab 300 --out x/tokenizer.json &&
        cp x/tokenizer.json y &&
        answers generate --model x --prompt Once --tokens 3 --amateur y &&
        "$dra" tokenizer train --data "$data/../run.sh" --vocab 290 --out words.json &&
        mv words.json y/tokenizer.json &&
        failed "y: the amateur has another tokenizer" generate --model x --prompt Once --amateur y
}

# ---- beams ---------------------------------------------------------------------------------------

one_beam_is_greedy() {
    answers generate --model m --prompt Once --tokens 12 --temperature 0 && cp "$out" greedy &&
        answers generate --model m --prompt Once --tokens 12 --beam 1 && cmp "$out" greedy
}

# All beams, best first; the state is that of the best.
beams_have_scores() {
    answers generate --model m --prompt Once --tokens 6 --beam 3 --json --state-out s &&
        is_json "$out" && grep '^    {' "$out" >beams || return 1
    [ "$(wc -l <beams)" -eq 3 ] && [ "$(json_tokens "$out")" = "$(json_tokens beams)" ] || return 1
    sed 's/.*"score": \([-0-9.e+]*\).*/\1/' beams >scores
    sort -g -r scores | cmp - scores || return 1
    ids=79,110,99,101,$(json_tokens beams | tr -d ' ')
    run 0 forward --model m --tokens "$ids" --out o --state-out t || return 1
    answers generate --model m --state-in s --tokens 6 --temperature 0 && cp "$out" after &&
        answers generate --model m --state-in t --tokens 6 --temperature 0 && cmp "$out" after
}

# beams_of OPTIONS...: the tokens of all beams, one by line.
beams_of() {
    answers generate --model m --tokens 7 --beam 3 --json "$@" && is_json "$out" >/dev/null &&
        grep '^    {' "$out" | sed 's/.*"tokens": \[\([^]]*\)\].*/\1/'
}

beams_of_rows() {
    for noise in "" "--beam-noise --top-k 9"; do
        # shellcheck disable=SC2086 # a list of options
        {
            beams_of --prompt Once --prompt "Twice, or thrice" --seed 4 $noise >rows &&
                beams_of --prompt Once --seed 4 $noise >alone &&
                beams_of --prompt "Twice, or thrice" --seed 4 $noise >>alone || return 1
        }
        [ "$(wc -l <rows)" -eq 6 ] && cmp rows alone || return 1
    done
}

fewer_texts_than_beams() {
    answers generate --model m --prompt Once --tokens 1 --beam 300 --json && is_json "$out" &&
        [ "$(grep -c '^    {' "$out")" -eq 256 ]
}

known_beams() {
    answers generate --model "$data/xt-search/expert" --prompt-tokens 3,1,4,1,5,9,2,6 --tokens 8 \
        --beam 3 && [ "$(cat "$out")" = "9 3 6 10 0 8 3 6" ] &&
        answers generate --model "$data/xt-search/expert" --prompt-tokens 3,1,4,1,5,9,2,6 \
            --amateur "$data/xt-search/amateur" --tokens 8 --temperature 0 &&
        [ "$(cat "$out")" = "18 10 3 6 3 6 10 3" ]
}

beams_with_amateurs() {
    answers generate --model m --amateur a --prompt Once --tokens 6 --temperature 0 &&
        cp "$out" greedy &&
        answers generate --model m --amateur a --prompt Once --tokens 6 --beam 1 &&
        cmp "$out" greedy &&
        answers generate --model m --amateur a --prompt Once --tokens 6 --beam 4 --json
}

check "contrast continues" contrast_continues
check "contrast: rows" contrast_rows
check "amateurs inside a wrapper" wrapped_amateurs
check "contrast: states that do not belong" wrong_amateur_states
check "a folder's settings give way" habits_give_way
check "another tokenizer" other_tokenizers
check "one beam is greedy" one_beam_is_greedy
check "beams have scores" beams_have_scores
check "beams of several prompts" beams_of_rows
check "fewer texts than beams" fewer_texts_than_beams
check "as x-transformers" known_beams
check "beams with amateurs" beams_with_amateurs
check "no such amateur" failed "nowhere: no such folder or file" \
    generate --model m --prompt a --amateur nowhere
check "another vocabulary" failed \
    "amateur 1 has a vocabulary of 300 tokens, the model of 256" \
    generate --model m --prompt a --amateur v
check "an encoder" failed \
    "amateur 1: expected a model that reads and writes tokens from left to right" \
    generate --model m --prompt a --amateur e
check "filters" misused \
    "dra generate: --top-p: not with --amateur, whose contrast takes its place" \
    generate --model m --prompt a --amateur a --top-p 0.9
check "alpha 0" misused \
    "dra generate: --contrast-alpha: expected a number from 1e-09 to 1, found '0'" \
    generate --model m --prompt a --amateur a --contrast-alpha 0
check "alpha above 1" misused \
    "dra generate: --contrast-alpha: expected a number from 1e-09 to 1, found '1.5'" \
    generate --model m --prompt a --amateur a --contrast-alpha 1.5
check "alpha alone" misused "dra generate: --contrast-alpha: expected an --amateur" \
    generate --model m --prompt a --contrast-alpha 0.5
check "no beams" misused \
    "dra generate: --beam: expected a whole number from 1 to 1024, found '0'" \
    generate --model m --prompt a --beam 0
check "too many beams" misused \
    "dra generate: --beam: expected a whole number from 1 to 1024, found '1025'" \
    generate --model m --prompt a --beam 1025
check "too many rows" failed "beam search: 100 rows of 1024 beams, expected up to 65536" \
    generate --model m --prompt a --beam 1024 --beam-noise --count 100 --tokens 1
check "noise alone" misused "dra generate: --beam-noise: expected --beam" \
    generate --model m --prompt a --beam-noise
check "a length penalty alone" misused "dra generate: --length-penalty: expected --beam" \
    generate --model m --prompt a --length-penalty 1
check "beams and stop strings" misused "dra generate: --stop: not with --beam" \
    generate --model m --prompt a --beam 2 --stop x
check "beams and filters" misused \
    "dra generate: --top-k is for drawing: with --beam it needs --beam-noise" \
    generate --model m --prompt a --beam 2 --top-k 3
check "beams and temperature" misused \
    "dra generate: --temperature is for drawing: with --beam it needs --beam-noise" \
    generate --model m --prompt a --beam 2 --temperature 0.7
check "beams and samples" misused \
    "dra generate: --count would give the same text again: with --beam it needs --beam-noise" \
    generate --model m --prompt a --beam 2 --count 3
check "noise without temperature" misused \
    "dra generate: --beam-noise: expected a --temperature above 0" \
    generate --model m --prompt a --beam 2 --beam-noise --temperature 0
tap_end
