#!/bin/sh
# Data of other programs: whatever file the same ids are in, training and evaluating them gives the
# same bits; what is no data is refused by one line before anything is made.
#   test_formats.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1
model="--preset gpt2-tiny --set dim=16 --set heads=2 --set depth=1 --set context=16"

byte() { printf "\\$(printf '%03o' "$1")"; }
u16() { for x; do byte $((x % 256)); byte $((x / 256)); done; }
u32() { for x; do u16 $((x % 65536)) $((x / 65536)); done; }
zeros() { head -c "$1" /dev/zero; }

# 400 ids from 0 to 299; 299 is no end of text for anyone.
all=$(awk 'BEGIN { x = 7; for (i = 0; i < 400; i++) { x = (x * 31 + i) % 300; print x } }')
# shellcheck disable=SC2086 # a list of numbers
{
    u16 $all >ids
    u32 $all >wide.ids
}
header='{"ids":{"dtype":"U16","shape":[400],"data_offsets":[0,800]}}    '
{ u32 64 0 && printf '%s' "$header" && cat ids; } >ids.safetensors
cp ids nano.bin
{ u32 20240520 1 400 && zeros 1012 && cat ids; } >llmc.bin
{ u32 20240801 7 400 && zeros 1012 && cat wide.ids; } >llama.bin
{
    printf '\223NUMPY\001\000\166\000'
    printf '%-117s\n' "{'descr': '<u2', 'fortran_order': False, 'shape': (400,), }"
    cat ids
} >array.npy
gzip -c nano.bin >packed.bin.gz

# shellcheck disable=SC2086 # lists of options
formats="auto|text|bytes|jsonl|safetensors|npy|tokens-u16|tokens-u32|llmc"

train() { # train NAME OPTIONS...
    name=$1
    shift
    timeout 60 "$dra" train $model --set vocab=300 --tokenizer none --threads 1 --batch 4 \
        --steps 4 --split 0.2 --seed 3 --out "$name" "$@" >said 2>&1 </dev/null && return
    cat said
    return 1
}

loss() { timeout 60 "$dra" eval --json "$@" </dev/null | sed 's/, "tokens_per.*//'; }

same() { # same FILE TEXT OPTIONS...: the model and the loss of the ids in safetensors
    file=$1
    text=$2
    shift 2
    rm -rf run
    train run --data "$file" "$@" && cmp run/model.safetensors base/model.safetensors || return 1
    grep -qxF "read     $text" said || { cat said; return 1; }
    loss --model base --data "$file" "$@" >found && cmp found expected
}

makes_the_base() {
    train base --data ids.safetensors && ! grep '^read' said &&
        loss --model base --data ids.safetensors >expected && grep -q '"loss"' expected
}

refused() { # refused TEXT ARGUMENTS...: status 1, one line, no folder
    text=$1
    shift
    # shellcheck disable=SC2086
    failed "$text" train $model --steps 1 --out none "$@" && [ ! -e none ]
}

refuses() {
    printf 'PAR1\001\002\000\377' >x.parquet
    head -c 801 llama.bin >odd.bin
    head -c 1001 packed.bin.gz | head -c 300 >cut.bin.gz
    refused "x.parquet: is a Parquet file: write its texts as lines of JSON" --data x.parquet &&
        refused "x.parquet: is a Parquet file" --data x.parquet --set vocab=300 &&
        failed "x.parquet: is a Parquet file" eval --preset gpt2-tiny --set vocab=300 \
            --data x.parquet &&
        refused "odd.bin: its header of llm.c is cut short: 801 bytes, expected 1024" \
            --data odd.bin &&
        refused "cut.bin.gz: ends after 300 bytes, in the middle of its gzip stream" \
            --data cut.bin.gz &&
        refused "nano.bin: token 12 is 295, expected an id from 0 to 255; it was taken for" \
            --data nano.bin --tokenizer bytes &&
        refused "wide.bin: every second number of 16 bits is nearly 0" --data wide.bin &&
        misused "dra train: --data-format: expected $formats, found 'csv'" \
            train --data nano.bin --data-format csv --out none
}

compressed_text() { # the same tokenizer, counts and loss as of the plain text
    # shellcheck disable=SC2086
    for i in $all; do echo "line $i of a text"; done >text.txt
    gzip -c text.txt >text.txt.gz
    "$dra" tokenizer train --data text.txt --vocab 270 --out a.json >/dev/null &&
        "$dra" tokenizer train --data text.txt.gz --vocab 270 --out b.json >/dev/null &&
        cmp a.json b.json || return 1
    "$dra" tokenize --tokenizer a.json --file text.txt >a.ids &&
        "$dra" tokenize --tokenizer a.json --file text.txt.gz | cmp - a.ids || return 1
    failed "nano.bin: holds tokens, 16 bits each (nanoGPT), expected text" \
        tokenize --tokenizer a.json --file nano.bin || return 1
    loss --preset gpt2-tiny --tokenizer bytes --data text.txt >a.loss &&
        loss --preset gpt2-tiny --tokenizer bytes --data text.txt.gz | cmp - a.loss
}

# The tokenizer of a run tells where documents of ids end, in training and in evaluation.
documents() {
    "$dra" tokenizer train --data text.txt --vocab 270 --out tok >/dev/null || return 1
    # shellcheck disable=SC2046 # a list of numbers
    u16 $(tr ' ' '\n' <a.ids | awk '{ print NR % 100 ? $1 : 0 } NR == 350 { exit }') >docs.bin
    timeout 60 "$dra" train --preset gpt2-tiny --set dim=16 --set heads=2 --set depth=1 \
        --tokenizer tok --threads 1 --steps 2 --batch 2 --context 16 --data docs.bin --out cut \
        >said 2>&1 </dev/null || { cat said; return 1; }
    loss --model cut --data docs.bin >a.loss && cp -r cut bare && rm bare/tokenizer.json &&
        loss --model bare --data docs.bin >b.loss && grep -q '"tokens": 346,' a.loss &&
        grep -q '"tokens": 349,' b.loss # one document
}

mv wide.ids wide.bin
check "the ids in safetensors" makes_the_base
check "nanoGPT" same nano.bin "tokens, 16 bits each (nanoGPT), 400 of them"
check "llm.c" same llmc.bin "tokens, 16 bits each (llm.c), 400 of them"
check "llm.c, Llama 3" same llama.bin "tokens, 32 bits each (llm.c), 400 of them"
check "NumPy" same array.npy "tokens in an array of NumPy, 400 of them"
check "compressed ids" same packed.bin.gz "tokens, 16 bits each (nanoGPT), gzip, 400 of them"
check "a format that is named" same ids "tokens, 16 bits each (nanoGPT), 400 of them" \
    --data-format tokens-u16
check "32 bits, by name" same wide.bin "tokens, 32 bits each, 400 of them" --data-format tokens-u32
check "refuses by one line" refuses
check "compressed text" compressed_text
check "documents" documents
tap_end
