#!/bin/sh
# dra demo as a process: all its parts in seconds, what it leaves behind, what it refuses.
#   test_demo.sh PATH_OF_DRA
set -u
case $1 in
/*) dra=$1 ;;
*) dra=$PWD/$1 ;;
esac
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1

quick() { answers demo --quick --steps 3 --out "$@"; }

all_parts() {
    quick first && cp "$out" shown &&
        has shown 'Once upon a time.' ' 3/3 ' 'dra continues:' 'softmax continues:' \
            'below 50' 'above 800' 'longer distances are extrapolation' ' 2000 ' 'bit for bit' \
            'first/report.html' 'dra train --preset' 'The whole demo took'
}

# The end is one screen of 24 rows with the prompt of the shell: what was measured, what to try.
last_screen() {
    sed -n '/^7  In short/,$p' shown >last && [ "$(wc -l <last)" -le 23 ] &&
        tr '\n' ' ' <last | tr -s ' ' >told &&
        grep -q "in 2,000 tokens dra's memory stayed at [0-9.]* KiB; a token took" told &&
        grep -q "Transformer's memory grew from [0-9.]* MiB to [0-9.]* MiB; a token took" told &&
        has told 'Neither has learned to remember: asked ' \
            'told more than 800 tokens ago, dra was right' \
            'generate --model first/dra --prompt' 'chat --model first/dra' \
            'serve --model first/dra' 'report first/dra'
}

# The two models are in a table, and nothing about a state runs into the number of parameters.
columns() {
    has shown '  dra      479 k parameters  delta memory and slots: a state of constant size' \
        '  softmax  470 k parameters  a Transformer: attends to all tokens before'
}

# Below chance nobody knows anything, whatever the difference is.
claims_nothing() {
    [ "$(grep -c '^  Told .* tokens ago: neither knows more than a guess' shown)" -eq 2 ] &&
        ! grep -q 'knows more, ' shown
}

# No line is longer than a terminal is wide, and nothing but text is in it.
plain() {
    [ "$(LC_ALL=C.UTF-8 wc -L <shown)" -le 79 ] && ! grep -q "$(printf '\033')" shown
}

files() {
    for file in demo.json stories.txt tokenizer.json report.html dra/config.json \
        dra/model.safetensors dra/tokenizer.json dra/log.jsonl dra/probes.jsonl \
        softmax/model.safetensors softmax/probes.jsonl; do
        [ -s "first/$file" ] || { echo "no $file"; return 1; }
    done
}

# The runs, the facts and the long text are on the page, and nothing is fetched from elsewhere.
page() {
    has first/report.html 'Training' 'Samples' 'Probes' 'facts, by tokens since they were told' \
        'dra, below 50' 'softmax, above 800' 'Reading a long text' 'microseconds per token' \
        'bytes of state' 'data-x="token"' 'class="finding">Constant memory' \
        's memory grew from ' '<th>mean at end</th>' &&
        ! grep -Eo "(src|href|url|@import|https?:)[^ ]*//[^ ]*" first/report.html
}

# What the end of the demo proposes works with what is there.
usable() {
    answers generate --model first/dra --prompt "Once upon a time." --tokens 8 &&
        echo "Once upon a time." | "$dra" chat --model first/dra --tokens 8 >"$out" &&
        [ -s "$out" ] &&
        answers report first/dra && [ -s first/dra/report.html ] &&
        run 0 eval --model first/softmax --data first/stories.txt --separator= --json &&
        is_json "$out" >/dev/null
}

same_seed() {
    quick again && cmp first/stories.txt again/stories.txt &&
        cmp first/tokenizer.json again/tokenizer.json &&
        cmp first/dra/model.safetensors again/dra/model.safetensors
}
other_seed() { quick again --seed 2 && ! cmp -s first/stories.txt again/stories.txt; }

# Over an earlier demo, but nothing of others is touched.
replaced() {
    echo mine >again/notes && quick again && cmp first/stories.txt again/stories.txt &&
        [ "$(cat again/notes)" = mine ]
}
refused() {
    mkdir other && echo mine >other/stories.txt &&
        failed "other: expected no folder, an empty one or that of an earlier demo" \
            demo --quick --out other &&
        [ "$(ls other)" = stories.txt ] && [ "$(cat other/stories.txt)" = mine ]
}
empty() { mkdir empty && answers demo --quick --out empty && grep -q " 6/6 " "$out"; }

interrupted() {
    "$dra" demo --quick --steps 20000 --out stopped >"$out" 2>"$err" &
    process=$!
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        [ -e stopped/dra/log.jsonl ] && break
        sleep 0.5
    done
    kill -INT $process
    status=0
    wait $process || status=$?
    [ $status -eq 130 ] && [ "$(cat "$err")" = "dra: stopped; the demo is not complete" ] &&
        return 0
    echo "status $status"
    cat "$err"
    return 1
}

check "all parts in seconds" all_parts
check "the end is one screen" last_screen
check "a table of the models" columns
check "80 columns, no escapes" plain
check "no claims below chance" claims_nothing
check "its files" files
check "its page" page
check "its models are models" usable
check "the same seed, the same bytes" same_seed
check "another seed, other stories" other_seed
check "an earlier demo is replaced, no more" replaced
check "another folder is refused" refused
check "an empty folder is fine" empty
check "Ctrl-C" interrupted
check "nowhere to write" failed "no/where: cannot create it" demo --quick --out no/where
check "misused" misused \
    "dra demo: --steps: expected a whole number from 1 to 1000000, found '0'" demo --steps 0
tap_end
