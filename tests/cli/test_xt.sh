#!/bin/sh
# Models of x-transformers write text: whole = token by token = resumed, with memory tokens and
# every kind of positions; where positions end; ends of texts; samplers.
#   test_xt.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1

# decoder NAME OPTIONS STACK: a folder with a small one; options of the wrapper and of its stack.
decoder() {
    {
        echo "{\"model_type\": \"x-transformers\", \"num_tokens\": 256, \"max_seq_len\": $places$2,"
        echo '"attn_layers": {"type": "Decoder", "dim": 32, "depth": 2, "heads": 2,'
        echo "\"attn_dim_head\": 16$3}}"
    } >"$1.json"
    "$dra" init --config "$1.json" --seed 3 --out "$1" >said || { cat said; exit 1; }
}

memory=', "num_memory_tokens": 3' places=24
decoder learned "$memory" ''
decoder none "$memory, \"use_abs_pos_emb\": false" ''
decoder rotary "$memory" ', "rotary_pos_emb": true, "attn_num_mem_kv": 2'
decoder xpos "" ', "rotary_xpos": true, "shift_tokens": 1'
decoder t5 "$memory" ', "rel_pos_bias": true, "residual_attn": true'
decoder alibi "$memory, \"use_abs_pos_emb\": false" ', "alibi_pos_bias": true'
decoder dynamic "$memory, \"use_abs_pos_emb\": false" \
    ', "dynamic_pos_bias": true, "attn_pre_talking_heads": true'

places=4
decoder xl ', "max_mem_len": 6' ''
decoder xl-t5 ', "max_mem_len": 6' ', "rel_pos_bias": true'
decoder xl-shift ', "max_mem_len": 8, "shift_mem_down": 1' \
    ', "rotary_pos_emb": true, "shift_tokens": 1'

json_tokens() { sed 's/.*"tokens": \[\([^]]*\)\].*/\1/' "$out" | head -n 1; }

# wrote NAME OPTIONS...: the ids that a model writes, in $ids.
wrote() {
    name=$1
    shift
    answers generate --model "$name" --json "$@" && ids=$(json_tokens)
}

# resumes NAME COUNT: prompt and text of COUNT tokens at once; in two runs; and from a state that
# forward left, which read the prompt token by token. Where logits differ in rounding, the tokens
# still are the same.
resumes() {
    wrote "$1" --prompt-tokens 9,8,7,6,5 --tokens "$2" --seed 4 && all=$ids &&
        wrote "$1" --prompt-tokens 9,8,7,6,5 --tokens 6 --seed 4 --state-out s && first=$ids &&
        wrote "$1" --state-in s --tokens $(($2 - 6)) --seed 4 || return 1
    [ "$all" = "$first, $ids" ] || { echo "$all; $first, then $ids"; return 1; }
    run 0 forward --model "$1" --tokens 9,8,7,6,5 --chunks 1,1,1,1,1 --out logits --state-out s &&
        wrote "$1" --state-in s --tokens "$2" --seed 4 || return 1
    [ "$all" = "$ids" ] || { echo "$all; token by token $ids"; return 1; }
}

# The most likely token of a text that is read from the start each time.
as_read_whole() {
    wrote "$1" --prompt-tokens 9,8,7 --tokens 8 --temperature 0 || return 1
    all=$ids prompt=9,8,7
    for id in $(echo "$all" | tr -d ,); do
        wrote "$1" --prompt-tokens $prompt --tokens 1 --temperature 0 && [ "$ids" = "$id" ] ||
            return 1
        prompt=$prompt,$id
    done
}

# Memory tokens take no places of the 24.
places_end() {
    wrote learned --prompt-tokens 9,8,7,6 --tokens 100 && has "$out" '"finish": "context"' &&
        [ "$(echo "$ids" | tr ',' '\n' | grep -c .)" -eq 20 ] || return 1
    run 0 generate --model learned --prompt-tokens 9,8,7,6 --tokens 100 && one_line "$err" &&
        has "$err" "ended where the model has no further position, at 24"
}

# Texts of several segments, also where positions are learned.
segments() {
    text=9,8,7,6,5,4,3,2,1,2,3
    run 0 forward --model "$1" --tokens $text --out whole &&
        run 0 forward --model "$1" --tokens $text --chunks 3,1,4 --out parts && cmp whole parts &&
        says " of 10 targets" grad --model "$1" --tokens $text --out gradients
}

texts_end() {
    wrote rotary --prompt-tokens 9,8,7 --tokens 9 --temperature 0 || return 1
    third=$(echo "$ids" | cut -d ' ' -f 3 | tr -d ,)
    before=$(echo "$ids" | tr -d , | tr ' ' '\n' | awk -v e="$third" '$1 == e { exit } { n++ }
        END { print n + 0 }')
    cp -r rotary ends &&
        echo "{\"do_sample\": false, \"eos_token_id\": $third}" >ends/generation_config.json &&
        wrote ends --prompt-tokens 9,8,7 --tokens 9 && has "$out" '"finish": "end"' &&
        [ "$(echo "$ids" | tr ',' '\n' | grep -c '[0-9]')" -eq "$before" ] &&
        wrote ends --prompt-tokens 9,8,7 --tokens 9 --ignore-end && has "$out" '"finish": "length"'
}

# Temperature 0 is the most likely token whatever the filters; top-a of 1 keeps few tokens; both
# orders of filters and temperature are there.
samplers() {
    wrote rotary --prompt-tokens 9,8,7 --tokens 12 --temperature 0 && best=$ids &&
        wrote rotary --prompt-tokens 9,8,7 --tokens 12 --temperature 0 --top-a 0.02 --top-k 2 \
            --min-p 0.1 --sampler x && [ "$best" = "$ids" ] &&
        wrote rotary --prompt-tokens 9,8,7 --tokens 12 --top-k 1 --sampler x &&
        [ "$best" = "$ids" ] || return 1
    wrote rotary --prompt-tokens 9,8,7 --tokens 40 --temperature 3 && plain=$ids &&
        wrote rotary --prompt-tokens 9,8,7 --tokens 40 --temperature 3 --top-p 0.5 && first=$ids &&
        wrote rotary --prompt-tokens 9,8,7 --tokens 40 --temperature 3 --top-p 0.5 --sampler x &&
        [ "$first" != "$ids" ] && [ "$first" != "$plain" ]
}

for name in learned none rotary xpos t5 alibi dynamic; do
    check "$name: resumes" resumes $name 18
    check "$name: as read whole" as_read_whole $name
done
for name in xl xl-t5 xl-shift; do
    check "$name: as read whole" as_read_whole $name
    check "$name: forward and grad in segments" segments $name
done
for name in none rotary xpos t5 alibi dynamic xl xl-t5 xl-shift; do
    check "$name: beyond its context" resumes $name 60
done
check "learned positions end" places_end
check "prompts longer than that are refused" failed \
    "the text has 25 tokens, this model has positions for 24" \
    generate --model learned --prompt "1234567890123456789012345"
check "texts end" texts_end
check "samplers" samplers
check "no such share" misused "dra generate: --top-a: expected a number from 0 to 1, found '2'" \
    generate --model rotary --prompt a --top-a 2
tap_end
