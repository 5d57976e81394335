#!/bin/sh
# dra tokenize and dra detokenize as processes.
#   test_tokenize.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
small=$(dirname "$0")/../data/bpe
world=$(dirname "$0")/../data/world

gives() { # gives ANSWER ARGUMENTS...: exactly this line
    line=$1
    shift
    answers "$@" && [ "$(cat "$out")" = "$line" ] || { cat "$out"; return 1; }
}

# Any bytes, more than are read at a time, come back through a pipe.
comes_back() {
    head -c 3000000 /dev/urandom >"$scratch/bytes"
    "$dra" tokenize --tokenizer bytes --data-format bytes --file "$scratch/bytes" \
        >"$scratch/ids" || return 1
    "$dra" detokenize --tokenizer bytes <"$scratch/ids" | cmp - "$scratch/bytes"
}

# A text of several parts, read from a pipe, from a file and whole: the same ids.
same_ids_from_everywhere() {
    i=0
    while [ $i -lt 12 ]; do
        cat "$small/cases.json" "$small/tokenizer.json"
        i=$((i + 1))
    done >"$scratch/long"
    "$dra" tokenize --tokenizer "$small" --file "$scratch/long" >"$scratch/file" || return 1
    { head -c 77777 "$scratch/long"; sleep 0.2; tail -c +77778 "$scratch/long"; } |
        "$dra" tokenize --model "$small" | cmp - "$scratch/file" || return 1
    "$dra" detokenize --tokenizer "$small" --file "$scratch/file" | cmp - "$scratch/long"
}

check "arguments" gives "104 105 32 33" tokenize --tokenizer bytes hi !
check "an empty argument" gives "" tokenize --tokenizer bytes ""
check "--count" gives 5 tokenize --tokenizer bytes --count "hi  !"
check "--json" gives '{"ids": [104, 105], "tokens": 2, "bytes": 2}' \
    tokenize --tokenizer bytes --json hi
check "--json --count" gives '{"tokens": 2, "bytes": 2}' \
    tokenize --tokenizer bytes --json --count hi
check "special tokens" gives "900" tokenize --tokenizer "$small" '<|endoftext|>'
check "--plain" gives "<|endoftext|>" detokenize --tokenizer "$small" \
    "$("$dra" tokenize --plain --tokenizer "$small" '<|endoftext|>')"
check "--skip-special" gives "!" detokenize --tokenizer "$small" --skip-special 900 0
check "ids between blanks and commas" gives "hi !" detokenize --tokenizer bytes 104,105 "[32 33]"
check "text as JSON" gives '{"text": "h\u0000\"�", "tokens": 4}' \
    detokenize --tokenizer bytes --json 104 0 34 200
check "--valid" gives "h�" detokenize --tokenizer bytes --valid 104 200
check "RWKV World" gives "74 5229 274 101 32223" tokenize --tokenizer "$world" "I'll 'd test"
check "RWKV World, its file" gives "74 5229 274 101 32223" \
    tokenize --tokenizer "$world/rwkv_vocab_v20230424.txt" "I'll 'd test"
check "RWKV World, the end of a text" gives "<|endoftext|>" detokenize --tokenizer "$world" 0
kinds=$(dirname "$0")/../data/tokenizers
bos=$("$dra" tokenize --tokenizer "$kinds/llama3" --bare '<|begin_of_text|>')
check "a text begins once" gives "$bos 39 40" tokenize --tokenizer "$kinds/llama3" HI
check "what begins already" gives "$bos 39 40" tokenize --tokenizer "$kinds/llama3" \
    '<|begin_of_text|>HI'
check "--bare" gives "39 40" tokenize --tokenizer "$kinds/llama3" --bare HI
check "an empty text begins" gives "$bos" tokenize --tokenizer "$kinds/llama3" ""
check "characters come back" gives "a story,  \"∮\"" detokenize --tokenizer "$kinds/prepend" \
    --skip-special "$("$dra" tokenize --tokenizer "$kinds/prepend" 'a story,  "∮"')"

# Parts of a file give the ids of the whole, in all kinds.
same_ids_of_parts() {
    cat "$small/cases.json" "$small/cases.json" >"$scratch/part"
    while [ "$(wc -c <"$scratch/part")" -lt 1500000 ]; do
        cat "$scratch/part" "$scratch/part" >"$scratch/twice" && mv "$scratch/twice" "$scratch/part"
    done
    for kind in llama3 qwen35 digits prepend replace metaspace-first; do
        "$dra" tokenize --tokenizer "$kinds/$kind" --bare --file "$scratch/part" >"$scratch/once" &&
            { head -c 99999 "$scratch/part"; sleep 0.2; tail -c +100000 "$scratch/part"; } |
            "$dra" tokenize --tokenizer "$kinds/$kind" --bare | cmp - "$scratch/once" &&
            "$dra" detokenize --tokenizer "$kinds/$kind" --file "$scratch/once" |
            cmp - "$scratch/part" || { echo "$kind"; return 1; }
    done
}
check "the same ids of parts" same_ids_of_parts
check "any bytes come back" comes_back
check "the same ids from everywhere" same_ids_from_everywhere
check "no tokenizer" \
    misused "dra tokenize: expected one of --model and --tokenizer" tokenize
check "a model by place" gives "900" tokenize "$small" '<|endoftext|>'
check "and back" gives "<|endoftext|>" detokenize "$small" 900
"$dra" init --preset dra-gru-tiny --set dim=16 --set heads=2 --set depth=1 --out "$scratch/m" \
    >/dev/null 2>&1
check "a model of bytes" gives "104 105" tokenize "$scratch/m" hi
check "a word where a model was expected" failed "dra: hi: " tokenize hi
check "two tokenizers" misused "dra detokenize: expected one of --model and --tokenizer" \
    detokenize --model x --tokenizer y 1
check "file and text" misused "dra tokenize: --file: expected no further argument" \
    tokenize --tokenizer bytes --file f hi
check "not a number" \
    misused "dra detokenize: id 0: expected a whole number from 0 to 255, found '1x'" \
    detokenize --tokenizer bytes 1x
check "not an id" failed "dra: decode: id 256: the tokenizer has ids 0 to 255" \
    detokenize --tokenizer bytes 256
check "no such file" failed "dra: /nowhere: cannot open it: No such file or directory" \
    tokenize --tokenizer bytes --file /nowhere
check "no such tokenizer" failed "dra: /nowhere: cannot open it: No such file or directory" \
    tokenize --tokenizer /nowhere hi
tap_end
