#!/bin/sh
# Pairs of texts from the first step to the translation: an encoder with a decoder learns to reverse
# words of two letters. Resuming, beams, files of sources, tokenizers, what is refused.
#   test_translate.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1

awk 'BEGIN {
    for (i = 0; i < 16; i++) {
        a = substr("abcd", 1 + i % 4, 1)
        b = substr("abcd", 1 + int(i / 4), 1)
        printf "{\"src\": \"%s%s\", \"tgt\": \"%s%s\"}\n", a, b, b, a
    }
}' >pairs.jsonl
sed 's/.*"src": "\([^"]*\)".*/\1/' pairs.jsonl >src
sed 's/.*"tgt": "\([^"]*\)".*/\1/' pairs.jsonl >tgt
sizes="--set depth=1 --set dim=32 --set heads=2
    --set encoder.depth=1 --set encoder.dim=32 --set encoder.heads=2 --set encoder.context=8"

# shellcheck disable=SC2086 # lists of options
train() {
    run 0 train --preset xt-seq2seq-tiny $sizes --threads 1 --batch 16 --lr 0.01 --steps 80 "$@"
}
translates() { # translates OPTIONS...: every source becomes its target
    answers generate --threads 1 --source-file src "$@" && cmp "$out" tgt
}

learns() {
    train --data pairs.jsonl --eval-data pairs.jsonl --save-every 40 --keep 9 --out whole &&
        has "$err" "data     16 examples, 16 for evaluation" \
            "80 steps of 16 x 3 tokens" 'dra generate --model whole --source "' &&
        says '^examples  *16$' eval --model whole --data pairs.jsonl &&
        awk '/^perplexity/ { p = $2 } END { exit !(p >= 1 && p < 1.1) }' "$out"
}

right() {
    translates --model whole --temperature 0 && translates --model whole --beam 4 &&
        answers generate --model whole --source ab --source dc --beam 2 &&
        printf 'ba\n---\ncd\n' | cmp - "$out"
}

# The first of the beams is the answer; their scores fall.
beams() {
    answers generate --model whole --source ab --source dc --beam 3 --json && is_json "$out" &&
        [ "$(grep -c '"score": -' "$out")" -eq 6 ] && has "$out" '"text": "ba", ' \
        '"count": 2, "finish": "end", "beams": [' &&
        sed -n 's/.*"score": \([-0-9.e]*\).*/\1/p' "$out" |
        awk 'NR % 3 != 1 && $1 > last { exit 1 } { last = $1 }'
}

resumes() {
    train --data pairs.jsonl --eval-data pairs.jsonl --save-every 40 --keep 9 --out cut &&
        rm -rf cut/train/step-00000080 &&
        run 0 train --resume --threads 2 --data pairs.jsonl --eval-data pairs.jsonl --out cut &&
        grep -q '^resume   after step 40$' "$err" &&
        cmp whole/model.safetensors cut/model.safetensors
}

# Tokenizers of their own for both sides, one of them without an end of text.
tokenizers() {
    run 0 tokenizer train --data src --vocab 260 --out words &&
        train --data pairs.jsonl --tokenizer words --src-tokenizer bytes --set source.shared=false \
            --out own && grep -q '"vocab": 256' own/config.json &&
        train --data pairs.jsonl --tokenizer words --out both && translates --model both --beam 2
}

# A model with a vocabulary of its own has it with or without room for an end.
own_vocabulary() {
    train --data pairs.jsonl --tokenizer bytes --set vocab=300 --set encoder.vocab=300 --out more &&
        translates --model more --temperature 0
}

refuses() {
    head -n 3 pairs.jsonl >bad.jsonl
    echo '{"source": "ab", "tgt": "ba"}' >>bad.jsonl
    failed "bad.jsonl:4: no 'src', expected a text" train --preset xt-seq2seq-tiny \
        --data bad.jsonl --out never || return 1
    echo '{"src": "abcdabcda", "tgt": "ba"}' >long.jsonl
    # shellcheck disable=SC2086 # a list of options
    failed "long.jsonl: tensor 'src': rows of 9, but the model has learned positions for 8" \
        train --preset xt-seq2seq-tiny $sizes --data long.jsonl --out never &&
        failed "objective next: the model also reads a source: expected examples, found a text" \
            train --preset xt-seq2seq-tiny --data tgt --out never &&
        failed "--source: the text has 9 tokens, this model has positions for 8" \
            generate --model whole --source abcdabcda --beam 2 && : >none &&
        failed "none: expected a text in every line, found none" generate --model whole \
            --source-file none &&
        misused "dra generate: expected only one of --inputs, --source and --source-file" \
            generate --model whole --source-file src --source a &&
        misused "dra generate: --length-penalty: expected --beam" generate --model whole \
            --source a --length-penalty 1 &&
        misused "dra generate: --top-k is for drawing: with --beam it needs --beam-noise" generate \
            --model whole --source a --beam 2 --top-k 3 && [ ! -e never ]
}

check "pairs learn" learns
check "translations are right, with and without beams" right
check "beams and their scores" beams
check "resumes bit for bit" resumes
check "tokenizers of both sides" tokenizers
check "a vocabulary of its own" own_vocabulary
check "refuses by one line" refuses
tap_end
