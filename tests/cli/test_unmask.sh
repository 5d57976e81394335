#!/bin/sh
# Unmasking: an encoder learns a text by a schedule of masks and fills in what is hidden: after a
# prompt, between given tokens, from nothing; what the options say, and what is refused.
#   test_unmask.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1

echo '{"model_type": "x-transformers", "wrapper": "NonAutoregressiveWrapper", "mask_id": 256, "net":
{"wrapper": "TransformerWrapper", "num_tokens": 257, "max_seq_len": 16, "attn_layers":
{"type": "Encoder", "dim": 32, "depth": 2, "heads": 2, "attn_dim_head": 16}}}' >c.json
# Rows of 16 tokens begin with any of the seven letters.
awk 'BEGIN { while (i++ < 500) printf "abcdefg" }' >text

number() { sed "s/.*\"$1\": \([-0-9.e+]*\).*/\1/" "$out"; }
less() {
    awk -v x="$1" -v y="$2" 'BEGIN { exit !(x < y) }' || { echo "$1, not below $2"; return 1; }
}
train() {
    run=$1
    shift
    run 0 train --config c.json --tokenizer bytes --data text --out "$run" --lr 0.01 --batch 16 "$@"
}

# prints TEXT OPTIONS...: what the trained encoder prints.
prints() {
    wanted=$1
    shift
    answers generate --model learned "$@" || return 1
    [ "$(cat "$out")" = "$wanted" ] || { echo "expected $wanted"; cat "$out"; return 1; }
}

# ---- learning ------------------------------------------------------------------------------------

# A letter that nothing is known about costs ln 7 = 1.95.
learns() {
    train learned --steps 500 --eval-every 500 --split 0.1 --mask-schedule cosine &&
        has "$err" "learn    a random share of each row, masked by token 256" &&
        has learned/train/config.json '"mask_schedule": "cosine"' '"mask_token": 256' &&
        has learned/config.json NonAutoregressiveWrapper '"mask_id": 256' &&
        ! grep -q mask_share learned/train/config.json &&
        eval_loss=$(sed -n 's/.*"eval_loss":\([0-9.]*\).*/\1/p' learned/log.jsonl) &&
        less "$eval_loss" 1.2
}

# The same ones are hidden every time; a constant share can be measured, too.
evaluates() {
    answers eval --model learned --data text --json && first=$(number loss) n=$(number tokens) &&
        less 1900 "$n" && less "$n" 2600 && less "$first" 1.2 || return 1
    answers eval --model learned --data text --json --threads 3 &&
        [ "$first" = "$(number loss)" ] || return 1
    answers eval --model learned --data text --json --mask-schedule constant &&
        less "$(number tokens)" 700
}

resumes() {
    train whole --steps 8 --save-every 4 --mask-schedule linear || return 1
    cp -r whole resumed && rm -r resumed/train/step-00000008 &&
        run 0 train --data text --out resumed --resume --mask-schedule linear &&
        cmp whole/model.safetensors resumed/model.safetensors &&
        failed 'resume: mask_schedule was "linear" and is "cosine" now' \
            train --data text --out whole --resume --mask-schedule cosine
}

# Microbatches learn from the same rows, up to rounding.
microbatches() {
    train parts --steps 8 --accumulate 4 --mask-schedule linear && train one --steps 8 \
        --mask-schedule linear || return 1
    for r in one parts; do sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' $r/log.jsonl >$r.loss; done
    paste one.loss parts.loss | awk '{ d = $1 - $2; if (d * d > 1e-8) exit 1 }'
}

# ---- filling in ----------------------------------------------------------------------------------

letters() { # the ids of letters; . is hidden
    printf %s "$1" | sed 's/./&\n/g' |
        awk 'BEGIN { for (i = 97; i < 104; i++) id[sprintf("%c", i)] = i; id["."] = 256 }
             { printf "%s%d", (NR > 1 ? "," : ""), id[$1] }'
}

# Any prompt is followed by the letters that follow it.
writes() {
    for p in abcd cdef gabc; do
        all=$(awk -v p="$p" 'BEGIN { for (i = 0; i < 16; i++)
            printf "%s", substr("abcdefg", (index("abcdefg", substr(p, 1, 1)) - 1 + i) % 7 + 1, 1)
            }')
        for s in linear cosine; do
            prints "$all" --prompt $p --tokens 12 --unmask 6 --temperature 0 --schedule $s ||
                return 1
        done
        prints "$all" --prompt $p --unmask 12 --temperature 0.1 --remask || return 1
    done
}

infills() {
    prints cdefgabcdefgabcd --unmask 4 --temperature 0 \
        --prompt-tokens "$(letters "c.efg..cd..gab.d")" &&
        prints bcdefgabcdefgabc --unmask 4 --temperature 0 \
            --prompt-tokens "$(letters "bcd")" --tokens 13 &&
        prints abcdefgabcdefgab --unmask 3 --temperature 0 \
            --prompt-tokens "$(letters "abcde..abc")" --tokens 6
}

# The same seed gives the same texts, with any number of threads; samples have seeds one apart.
samples() {
    set -- generate --model learned --unmask 5 --temperature 3 --prompt ab --prompt g
    answers "$@" --count 2 --seed 4 && cp "$out" a &&
        answers "$@" --count 2 --seed 4 --threads 3 && cmp "$out" a &&
        [ "$(wc -l <a)" -eq 7 ] || return 1
    answers "$@" --seed 5 && [ "$(sed -n 1p "$out")" = "$(sed -n 3p a)" ] &&
        [ "$(sed -n 3p "$out")" = "$(sed -n 7p a)" ]
}

json() {
    answers generate --model learned --unmask 6 --temperature 0 --prompt abcd --prompt cdef \
        --json &&
        is_json "$out" && has "$out" '"text": "abcdefgabcdefgab"' '"samples": [' \
        '"finish": "length"' '"prompt_tokens": 8' '"tokens": [97, 98, 99, 100, 101, 102' &&
        answers generate --preset xt-encoder-tiny --unmask 2 --tokens 3 &&
        [ "$(wc -w <"$out")" -eq 3 ] &&
        answers generate --preset xt-encoder-tiny --unmask 2 --prompt-tokens 1,256,3 --json &&
        has "$out" '{"tokens": [1, ' ', 3], '
}

# ---- misuse --------------------------------------------------------------------------------------

# misused_with OPTION ARGUMENTS...: of --unmask
misused_with() {
    option=$1
    shift
    misused "dra generate: $option: expected none of it with --unmask" \
        generate --model learned --unmask 2 --prompt a "$@"
}

check "learns by a schedule" learns
check "eval" evaluates
check "resumes to the same bytes" resumes
check "microbatches" microbatches
check "train: a share and a schedule" failed \
    "objective masked: expected one of mask_share and mask_schedule, found both (mask_share 0.2)" \
    train --config c.json --tokenizer bytes --data text --out never --mask-share 0.2 \
    --mask-schedule linear
check "train: schedules are of masked" failed \
    "objective next: mask_schedule is for the objective masked" \
    train --preset gpt2-tiny --data text --out never --mask-schedule linear
check "writes after a prompt" writes
check "fills in" infills
check "samples" samples
check "json, ids" json
check "another mask token" prints abc --unmask 1 --mask-token 5 --prompt-tokens 97,98,99 --tokens 0
check "an encoder needs it" misused \
    "dra generate: the model is an encoder, which writes no text: its tokens see later ones; see \
--unmask" generate --model learned --prompt a
check "a causal model has none" misused \
    "dra generate: --unmask: the model is causal, not an encoder, and writes text from left to \
right" generate --preset gpt2-tiny --prompt a --unmask 2
for o in "--remask" "--schedule cosine" "--mask-token 3"; do
    check "$o alone" misused "dra generate: ${o%% *}: expected --unmask" \
        generate --model learned --prompt a $o
done
check "with a state" misused_with --state-in --state-in none
check "with beams" misused_with --beam --beam 2
check "with stop strings" misused_with --stop --stop x
check "with a prefix" misused_with --prefix --prefix
check "with echo" misused_with --echo --echo
check "too long" failed "the text has 17 tokens, this model has positions for 16" \
    generate --model learned --unmask 2 --prompt a --tokens 16
check "no such model" failed "nowhere: no such folder or file" \
    generate --model nowhere --prompt a --unmask 4
check "no such token" failed "unmask: row 0, token 1 is 300, the model has 0 to 256" \
    generate --model learned --unmask 2 --prompt-tokens 1,300
check "no such mask token" failed "objective masked: mask_token is 257, the model has 0 to 256" \
    generate --model learned --unmask 2 --prompt a --mask-token 257
check "nothing to fill in" failed "--unmask: nothing to fill in: no prompt and no --tokens" \
    generate --model learned --unmask 2 --tokens 0
tap_end
