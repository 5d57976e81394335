#!/bin/sh
# Texts as inputs: dra forward --text and --unpadded, dra embed.
#   test_texts.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1

small="--set dim=24 --set heads=2 --set depth=2"
encoder='{"model_type": "x-transformers", "num_tokens": 257, "max_seq_len": 40, "attn_layers":
    {"type": "Encoder", "dim": 24, "depth": 1, "heads": 2, "attn_dim_head": 12}}'
echo "$encoder" >e.json
# shellcheck disable=SC2086 # a list of options
{
    "$dra" init --preset dra-gru-tiny $small --seed 1 --out m
    "$dra" init --preset dra-delta-tiny $small --seed 2 --out d
    "$dra" init --preset gpt2-tiny $small --set context=24 --seed 3 --out g
    "$dra" init --config e.json --tokenizer bytes --out e
} >/dev/null || exit 1
awk 'BEGIN { while (i++ < 70) printf "word %d, ", i * i }' >long
size=4
"$dra" forward --model m --text a --out one && ! grep -q F64 one || size=8

# last N FILE: the last N numbers of a file as bytes.
last() { tail -c "$(($1 * size))" "$2"; }
# part NAME FROM N FILE: N numbers of a tensor of a safetensors file, as bytes.
part() {
    head=$(head -c 8 "$4" | od -An -tu8 | tr -d ' ')
    from=$(head -c "$((8 + head))" "$4" | tail -c "$head" |
        sed "s/.*\"$1\":{[^}]*\"data_offsets\":\[\([0-9]*\),.*/\1/")
    tail -c "+$((9 + head + from + $2 * size))" "$4" | head -c "$(($3 * size))"
}
holds() { has "$1" "\"$2\":{\"dtype\":\"F$((8 * size))\",\"shape\":[$3]"; }
same() { cmp "$1" "$2"; }

# ---- forward -------------------------------------------------------------------------------------

text_is_its_tokens() {
    run 0 forward --model m --text Once --out a --state-out s &&
        run 0 forward --model m --tokens 79,110,99,101 --out b --state-out t &&
        same a b && same s t && printf Once >once &&
        run 0 forward --model m --text - --out b <once && same a b &&
        run 0 forward --model m --text Once --tokenizer bytes --chunks 1,2 --out b && same a b
}

# Rows are what each text gives alone, and 0 after its end.
rows_are_as_alone() {
    run 0 forward --model m --text Once --text Twice,thrice --text x --outputs hidden --out all &&
        holds all hidden 3,12,24 && has all '"lengths":{"dtype":"I32","shape":[3]' || return 1
    run 0 forward --model m --text Once --outputs hidden --out one && last 96 one >a &&
        part hidden 0 96 all >b && same a b || return 1
    run 0 forward --model m --text x --outputs hidden --out one && last 24 one >a &&
        part hidden 576 24 all >b && same a b || return 1
    part hidden 600 264 all >a && head -c $((264 * size)) /dev/zero >b && same a b
}

several_of_one_length() {
    run 0 forward --model m --text ab --text cd --out a &&
        holds a logits 2,2,256 && run 0 forward --model m --text ab --out b && ! grep -q lengths b
}

# Negative ones count from the end of each text.
positions_of_rows() {
    run 0 forward --model m --text Once --text xy --positions 0,-1 --out a &&
        holds a logits 2,2,256 && run 0 forward --model m --text Once --keep 1 --out b &&
        part logits 256 256 a >found && last 256 b >expected && same found expected
}

# Maps have as many columns as there are tokens.
maps_have_no_spare_columns() {
    run 0 forward --model m --text Once --outputs attentions --out a &&
        holds a layers.0.attention 2,4,4 && ! grep -q scores a &&
        run 0 forward --model m --text Once --outputs attentions,scores --out a &&
        holds a layers.1.attention 2,4,4 && holds a layers.1.scores 2,4,4 || return 1
    run 0 forward --model m --tokens 79,110,99,101 --outputs attentions,scores --unpadded --out b &&
        same a b && run 0 forward --model m --tokens 1,2,3,4 --outputs attentions --out b &&
        holds b layers.0.attention 2,4,16 || return 1
    run 0 forward --model m --text Once --text xy --outputs attentions --out a &&
        holds a layers.0.attention 2,2,4,4
}

# What is left out is what nobody may look at; the rest stays in place.
columns_are_those_of_tokens() {
    run 0 forward --model m --tokens 1,2,3,4 --outputs scores --out padded &&
        run 0 forward --model m --tokens 1,2,3,4 --outputs scores --unpadded --out bare || return 1
    for file in padded bare; do
        columns=4
        [ $file = bare ] || columns=16
        tail -c $((2 * 2 * 4 * columns * size)) $file | od -An -v -w$size -tf$size |
            awk -v n=$columns '(NR - 1) % n < 4' >$file.numbers
    done
    [ "$(wc -l <bare.numbers)" -eq 64 ] && same padded.numbers bare.numbers
}

# Slots follow the tokens: only the room between them goes.
joint_keeps_its_slots() {
    run 0 forward --preset adr-tiny --text Once --outputs attentions --out a &&
        holds a layers.0.attention 6,4,5
}

from_a_state() {
    run 0 forward --model m --text Onc --out a --state-out s &&
        run 0 forward --model m --text e --state-in s --outputs attentions --out a &&
        holds a layers.0.attention 2,1,4
}

check "forward: a text is its tokens" text_is_its_tokens
check "forward: rows are as alone" rows_are_as_alone
check "forward: texts of one length" several_of_one_length
check "forward: positions of rows" positions_of_rows
check "forward: maps without spare columns" maps_have_no_spare_columns
check "forward: the columns of tokens stay" columns_are_those_of_tokens
check "forward: slots stay" joint_keeps_its_slots
check "forward: maps after a state" from_a_state
check "forward: a text and tokens" misused \
    "dra forward: expected one of --tokens, --text and --inputs" \
    forward --model m --text a --tokens 1 --out never
check "forward: an empty text" failed "--text: text 2: no tokens, expected 1 or more" \
    forward --model m --text a --text "" --out never
check "forward: the last of ragged rows" failed \
    "--keep: texts have different lengths, expected --positions" \
    forward --model m --text a --text bc --keep 1 --out never
check "forward: resets of ragged rows" failed "--resets: texts have different lengths" \
    forward --model m --text a --text bc --resets 1 --out never
check "forward: a position that a row lacks" failed "--positions: 1, expected -1 to 0" \
    forward --model m --text a --text bc --positions 1 --out never
check "forward: more than the positions" failed "this model has positions for 24" \
    forward --model g --text 0123456789012345678901234 --out never
check "forward: texts for images" failed "--text: expected --inputs, as the model reads img" \
    forward --preset vit-tiny --text a --out never

# ---- embed ---------------------------------------------------------------------------------------

vectors() { sed 's/.*"tokens"/"tokens"/' "$1"; }

# A text gets the same bits alone, in any batch and by any number of threads.
bits_do_not_depend_on_others() {
    printf '%s\n' Once x "Twice, or more" ab "$2" cd "$2 and" >lines
    answers embed --model "$1" --texts lines && vectors "$out" >all || return 1
    [ "$(wc -l <all)" -eq 7 ] || return 1
    for options in "--batch 1" "--batch 3 --threads 1" "--threads 7"; do
        # shellcheck disable=SC2086 # a list
        answers embed --model "$1" --texts lines $options && vectors "$out" | same - all || return 1
    done
    while IFS= read -r line; do
        answers embed --model "$1" --text "$line" && vectors "$out" || return 1
    done <lines >alone
    same alone all
}

# pooled NAME AWK: pooling is what awk makes of all hidden states.
pooled() {
    run 0 forward --model m --text "Once upon a time" --outputs hidden --out h &&
        answers embed --model m --text "Once upon a time" --pool "$1" || return 1
    sed 's/.*\[//; s/\].*//' "$out" | tr -d ' ' | tr , '\n' >found
    last $((16 * 24)) h | od -An -v -w$size -tf$size | awk -v how="$1" '
        { t = int((NR - 1) / 24); c = (NR - 1) % 24
          if (how == "mean") s[c] += $1 / 16
          if ((how == "last" && t == 15) || (how ~ /first|cls/ && t == 0)) s[c] = $1 }
        END { for (c = 0; c < 24; c++) print s[c] }' >expected
    paste found expected | awk '!(($1 - $2) ^ 2 < 1e-9) { print; bad = 1 }
        END { exit bad || NR != 24 }'
}

length_is_one() {
    answers embed --model m --text Once --normalise &&
        sed 's/.*\[//; s/\].*//' "$out" | tr -d ' ' | tr , '\n' |
        awk '{ s += $1 * $1 } END { exit !((s - 1) ^ 2 < 1e-10) }'
}

# Files hold the bits that the hidden states have.
files() {
    run 0 embed --model m --text Once --text more --pool last --out v.npy && quiet "$out" &&
        run 0 embed --model m --text Once --text more --pool last --out v.safetensors &&
        has v.npy "'shape': (2, 24)" && holds v.safetensors embeddings 2,24 &&
        has v.safetensors '"lengths":{"dtype":"I32","shape":[2]' || return 1
    [ "$(wc -c <v.npy)" -eq $((128 + 48 * size)) ] || return 1
    run 0 forward --model m --text more --outputs hidden --out h &&
        last 24 h >a && last 24 v.npy >b && same a b
}

from_lines() {
    printf '{"text": "On\\u0063e"}\n\n{"n": [1], "text": "x\\ny"}\n' >l.jsonl
    printf '{"body": "Once"}\n{"body": "x\\ny"}\n' >b.jsonl
    answers embed --model m --text Once --text "x
y" && cp "$out" all &&
        answers embed --model m --texts l.jsonl && same "$out" all &&
        answers embed --model m --texts b.jsonl --text-key body && same "$out" all &&
        answers embed --model m --texts - --text-key body <b.jsonl && same "$out" all &&
        printf 'Once\nab\n' >l.txt &&
        answers embed --model m --texts - <l.txt && cp "$out" all &&
        answers embed --model m --texts l.txt && same "$out" all &&
        printf Once >once && answers embed --model m --text - --text ab <once && same "$out" all
}

long=$(cat long)
for model in m d; do
    check "embed: $model: bits" bits_do_not_depend_on_others $model "$long"
done
check "embed: positions end: bits" bits_do_not_depend_on_others g "to the end, and"
check "embed: an encoder: bits" bits_do_not_depend_on_others e "up to the last pos"
for how in mean last first cls; do check "embed: $how" pooled $how; done
check "embed: length 1" length_is_one
check "embed: files" files
check "embed: lines" from_lines
check "embed: no texts" misused "dra embed: expected --text or --texts" embed --model m
check "embed: another file" misused \
    "dra embed: --out: expected a name that ends with .safetensors or .npy, found a.txt" \
    embed --model m --text a --out a.txt
images="the model is not a language model: it reads images"
check "embed: images" misused "dra embed: $images; see 'dra forward --outputs hidden'" \
    embed --preset vit-tiny --text a
check "embed: an empty text" failed "--text: text 1: no tokens" embed --model m --text ""
check "embed: no file" failed "nowhere: cannot open it" embed --model m --texts nowhere
printf 'good\n\377\n' >bad.txt
check "embed: not UTF-8" failed "bad.txt:2: is not UTF-8" embed --model m --texts bad.txt
printf '{"text": "a"}\n\n{"body": "b"}\n' >bad.jsonl
check "embed: a line without text" failed "bad.jsonl:3: expected a text called text" \
    embed --model m --texts bad.jsonl
printf '{"text": 3}\n' >bad.jsonl
check "embed: a number" failed "bad.jsonl:1: text: expected a text" \
    embed --model m --texts bad.jsonl
printf 'text\n' >bad.jsonl
check "embed: no object" failed "bad.jsonl:1: expected a JSON object" \
    embed --model m --texts bad.jsonl
: >empty.txt
check "embed: an empty file" failed "empty.txt: no texts, expected 1 or more" \
    embed --model m --texts empty.txt
check "embed: more than the positions" failed "text 2: the text has 25 tokens" \
    embed --model g --text a --text 0123456789012345678901234
tap_end
