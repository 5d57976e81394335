#!/bin/sh
# dra tokenizer train as a process.
#   test_tokenizer.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
docs=$(dirname "$0")/../../docs
text=$scratch/text
printf 'aaabdaaabac' >"$text"


learns() {
    says "$scratch/t.json: 259 tokens: 0 special, 256 bytes, 3 merges" \
        tokenizer train --data "$text" --vocab 259 --no-end --out "$scratch/t.json" || return 1
    [ "$("$dra" tokenize --tokenizer "$scratch/t.json" aaabdaaabac)" = "258 67 258 64 66" ]
}

learns_in_a_folder() {
    says "fewer than 300: no pair is left that is seen 2 times" \
        tokenizer train --data "$text" --vocab 300 --special '<pad>' --out "$scratch/new" ||
        return 1
    [ "$("$dra" tokenize --tokenizer "$scratch/new" '<pad>ab<|endoftext|>')" = "1 259 0" ]
}

answers_in_json() {
    says '"tokens": 260, "special": 1, "merges": 3, "seconds": ' \
        tokenizer train --data "$text" --vocab 300 --json --out "$scratch/t.json" && is_json "$out"
}

same_with_any_threads() {
    for n in 1 2 7; do
        "$dra" tokenizer train --data "$docs" --vocab 1500 --out "$scratch/$n.json" --threads $n \
            >"$out" || return 1
        cmp "$scratch/1.json" "$scratch/$n.json" || return 1
    done
    "$dra" tokenize --tokenizer "$scratch/1.json" --file "$docs/text.md" >"$scratch/ids" || return 1
    "$dra" detokenize --tokenizer "$scratch/1.json" --file "$scratch/ids" | cmp - "$docs/text.md"
}

# Stopped on the way: the old file stays, and nothing else is there.
leaves_nothing_behind() {
    mkdir "$scratch/stopped" && echo old >"$scratch/stopped/tokenizer.json" || return 1
    head -c 12000000 /dev/urandom | base64 >"$scratch/long"
    "$dra" tokenizer train --data "$scratch/long" --vocab 60000 --min-count 1 \
        --out "$scratch/stopped" >"$out" 2>"$err" &
    pid=$!
    sleep 0.1
    kill -TERM "$pid"
    wait "$pid" 2>/dev/null
    [ $? -eq 143 ] && [ "$(ls -A "$scratch/stopped")" = tokenizer.json ] &&
        [ "$(cat "$scratch/stopped/tokenizer.json")" = old ]
}

check "learns" learns
check "learns, in a folder, with special tokens" learns_in_a_folder
check "--json" answers_in_json
check "the same file with any number of threads" same_with_any_threads
check "stopped" leaves_nothing_behind
check "no such file" failed "dra: /nowhere: cannot open it: No such file or directory" \
    tokenizer train --data /nowhere --vocab 300 --out "$scratch/x.json"
check "nowhere to write" failed "dra: /nowhere/x.json: " \
    tokenizer train --data "$text" --vocab 300 --out /nowhere/x.json
check "too few tokens" failed "size 256 with 1 special tokens, expected from 257" \
    tokenizer train --data "$text" --vocab 256 --out "$scratch/x.json"
as="is required, as in: dra tokenizer train --data book.txt --vocab 1000 --out words"
check "no action" misused "dra tokenizer: train $as" \
    tokenizer --data "$text" --vocab 300 --out "$scratch/x.json"
check "no size" \
    misused "dra tokenizer: --vocab N $as" \
    tokenizer train --data "$text" --out "$scratch/x.json"
tap_end
