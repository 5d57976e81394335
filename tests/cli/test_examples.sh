#!/bin/sh
# dra train and dra eval on examples: arrays of NumPy, pairs of texts, what is refused, resuming.
#   test_examples.sh PATH_OF_DRA
set -u
. "$(dirname "$0")/../tap.sh"
dra=$1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
model="--preset gpt2-tiny --set dim=16 --set heads=2 --set depth=1 --set context=40"

array() { # array DESCR SHAPE: a header of NumPy, then what is read
    printf '\223NUMPY\001\000\166\000'
    printf '%-117s\n' "{'descr': '$1', 'fortran_order': False, 'shape': ($2), }"
    cat
}

i=0
while [ "$i" -lt 40 ]; do
    printf 'row %02d of bytes, all alike %03d\n' "$i" "$((i * i % 1000))"
    i=$((i + 1))
done >rows.txt
head -c 1200 rows.txt | array '|u1' '40, 30' >ids.npy
sed 's/\(.*\) of \(.*\)/{"src": "\1", "tgt": "\2"}/' rows.txt >pairs.jsonl

# shellcheck disable=SC2086 # lists of options
train() { "$dra" train $model --threads 1 --batch 4 --log-every 2 "$@" >said 2>&1; }

trains() {
    train --data ids.npy --split 0.25 --steps 6 --save-every 3 --out whole || return 1
    grep -q '^data     30 examples, 10 for evaluation$' said &&
        grep -qE '^step 6/6  loss [0-9.]+  perplexity [0-9.]+  lr' said &&
        grep -qE '^step 6  evaluation loss [0-9.]+  perplexity' said &&
        grep -q '"step":6.*"eval_perplexity":' whole/log.jsonl
}

resumes() { # from the middle, bit for bit
    train --data ids.npy --split 0.25 --steps 6 --save-every 3 --keep 9 --out cut || return 1
    rm -rf cut/train/step-00000006
    "$dra" train --resume --data ids.npy --out cut >said 2>&1 || return 1
    grep -q '^resume   after step 3$' said && cmp whole/model.safetensors cut/model.safetensors
}

evaluates() {
    "$dra" eval --model whole --data ids.npy >said || return 1
    grep -q '^examples             40$' said && grep -q '^perplexity           [0-9.]*$' said &&
        "$dra" eval --model whole --data ids.npy --json | grep -q '"examples": 40, "tokens": 1160,'
}

reads_pairs() {
    train --data pairs.jsonl --tgt-key tgt --steps 2 --out pairs &&
        grep -q '^data     40 examples$' said &&
        "$dra" eval --model pairs --data pairs.jsonl --tgt-key tgt >said &&
        grep -q '^examples             40$' said
}

refused() { # refused TEXT OPTIONS...: by one line, before anything is made
    text=$1
    shift
    train --out none --steps 1 "$@" && return 1
    [ "$(cat said)" = "dra: $text" ] && [ ! -e none ] && return 0
    cat said
    return 1
}

refuses() {
    head -c 1200 rows.txt | array '|u1' '30, 40, 1' >wide/ids.npy
    head -c 1200 rows.txt | array '>i2' '30, 20' >big/ids.npy
    head -c 1100 rows.txt | array '|u1' '40, 30' >short/ids.npy
    head -c 1200 rows.txt | array '|u1' '20, 60' >long/ids.npy
    head -c 1200 rows.txt | array '|u1' '40, 30' >name/idz.npy
    one="expected (40): ids of tokens"
    learned="but the model has learned positions for 40"
    of_ids="expected one of f2 f4 f8 i1 i2 i4 i8 u1 u2 bool, little-endian"
    range="expected 0 to 99, or -100 where there is none"
    refused "name/idz.npy: no tensor 'ids', expected ids of tokens" --data name/idz.npy &&
        refused "wide/ids.npy: tensor 'ids': examples of shape (40, 1), $one" --data wide/ids.npy &&
        refused "big/ids.npy: dtype '>i2', $of_ids" --data big/ids.npy &&
        refused "short/ids.npy: its header says 1200 bytes of numbers, found 1100" \
            --data short/ids.npy &&
        refused "long/ids.npy: tensor 'ids': rows of 59, $learned" --data long/ids.npy &&
        refused "ids.npy: tensor 'ids', example 0: element 0 is 114, $range" \
            --data ids.npy --set vocab=100 --tokenizer none &&
        refused "train: cross: the data are examples, expected texts" --data ids.npy --cross &&
        refused "pairs.jsonl:1: no 'german', expected a text" --data pairs.jsonl --tgt-key german &&
        refused "objective classes: the model has no head of classes (head.kind)" --data ids.npy \
            --objective classes
}

mkdir wide big long name short
check "trains on an array of NumPy" trains
check "resumes bit for bit" resumes
check "evaluates" evaluates
check "reads pairs of texts" reads_pairs
check "refuses by one line" refuses
tap_end
