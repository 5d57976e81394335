#!/bin/sh
# Transformer-XL from the command line: what stands further back than a piece is learned with a
# memory and not without; texts in segments, resuming, generating.
#   test_xl.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1

# Words of 24 letters, each three times: a piece of 16 alone says nothing about its next letter.
awk 'BEGIN {
    srand(5)
    for (i = 0; i < 600; i++) {
        w = ""
        for (j = 0; j < 24; j++) w = w substr("abcd", 1 + int(4 * rand()), 1)
        printf "%s", w w w
    }
}' >text
head -c 38880 text >train.txt
tail -c 4320 text >test.txt
model="--preset gpt2-tiny --set dim=32 --set heads=2 --set depth=1 --set positions=none
    --set mixer.rotary=true --set context=16"

# shellcheck disable=SC2086 # lists of options
train() { run 0 train $model --threads 1 --lr 0.01 --steps 150 --data train.txt "$@"; }
loss() { "$dra" eval --data test.txt --json "$@" | sed 's/.*"loss": \([0-9.]*\).*/\1/'; }

# Both read 512 tokens in every step; ln 4 = 1.386 is chance.
learns() {
    train --set xl.memory=32 --batch 8 --context 64 --save-every 75 --keep 9 --out with &&
        train --batch 32 --out without || return 1
    with=$(loss --model with) without=$(loss --model without --context 16)
    echo "with $with, without $without"
    echo "$with $without" | awk '{ exit !($1 < 1.25 && $2 > 1.35 && $2 < 1.45) }'
}

# What is read at a time does not matter, only where a text starts.
segments() {
    [ "$(loss --model with --chunk 7)" = "$(loss --model with --chunk 64)" ] &&
        loss --model with --context 16 | awk '{ exit !($1 > 1.35) }'
}

resumes() {
    train --set xl.memory=32 --batch 8 --context 64 --save-every 75 --keep 9 --out cut &&
        rm -rf cut/train/step-00000150 &&
        run 0 train --resume --threads 2 --data train.txt --out cut &&
        cmp with/model.safetensors cut/model.safetensors
}

# A state carried from row to row: rows of one piece see the memory of those before.
carries() {
    train --set xl.memory=32 --batch 32 --context 16 --carry --out carried &&
        loss --model carried | awk '{ exit !($1 < 1.3) }'
}

check "a memory lowers the loss" learns
check "texts are read in segments" segments
check "resumes bit for bit" resumes
check "carried from row to row" carries
tap_end
