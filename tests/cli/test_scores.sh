#!/bin/sh
# dra eval in detail: sliding windows, scores of tokens, questions with several answers.
#   test_scores.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1

small="--set dim=24 --set heads=2 --set depth=2"
# shellcheck disable=SC2086 # a list of options
{
    "$dra" init --preset dra-gru-tiny $small --seed 1 --out m
    "$dra" init --preset gpt2-tiny $small --set context=40 --seed 3 --out g
    "$dra" init --preset dra-delta-tiny $small --seed 2 --out d
} >/dev/null || exit 1
first="The first of two texts, which says little."
second="A second one."
printf '{"text": "%s"}\n' "$first" "$second" >two.jsonl

same() { cmp "$1" "$2"; }
number() { sed "s/.*\"$1\": \([-0-9.e+]*\).*/\1/" "$out"; }
# Ids and log-probabilities of a file of tokens.
scores() { sed 's/.*"id": \([0-9]*\), .*"logprob": \([-0-9.e]*\)}/\1 \2/' "$1"; }
close() {
    paste -d ' ' "$1" "$2" | awk '
        NF != 4 || $1 != $3 || !(($2 - $4) ^ 2 < 1e-8) { print; bad = 1 } END { exit bad || !NR }'
}

# ---- windows -------------------------------------------------------------------------------------

# Every window of a text as a line, in order.
windows() { # TEXT CONTEXT STRIDE
    awk -v text="$1" -v M="$2" -v N="$3" 'BEGIN {
        for (at = 1; ; at += N) {
            print substr(text, at, M)
            if (at + M > length(text)) exit
        }
    }'
}

# Of windows read one by one, each from a file of its own, those tokens count that no window before
# had.
as_read_one_by_one() { # MODEL CONTEXT STRIDE
    : >expected
    for text in "$first" "$second"; do
        windows "$text" "$2" "$3" >each && least=1 || return 1
        while IFS= read -r window; do
            printf '%s' "$window" >window.txt &&
                run 0 eval --model "$1" --data window.txt --per-token one || return 1
            tail -n "+$least" one >>expected
            least=$(($2 - $3 > 0 ? $2 - $3 : 1))
        done <each
    done
    answers eval --model "$1" --data two.jsonl --context "$2" --stride "$3" --per-token found \
        --json && is_json "$out" >/dev/null &&
        has "$out" "\"convention\": \"sliding windows\", \"context\": $2, \"stride\": $3" ||
        return 1
    scores expected >a && scores found >b && close a b || return 1
    [ "$(number tokens)" -eq "$(wc -l <found)" ] &&
        awk -v loss="$(number loss)" '{ s -= $2 } END { exit !((s / NR - loss) ^ 2 < 1e-9) }' a
}

# With a stride all tokens but the first of each document count, as without windows.
says_the_convention() {
    answers eval --model g --data two.jsonl --stride 4 &&
        has "$out" "tokens             53" \
            "convention         sliding windows of 40 tokens, stride 4 (Hugging Face)"
}

# A window that has the whole text is the text.
one_window_is_the_text() {
    answers eval --model m --data two.jsonl --json --per-token a && number loss >plain &&
        answers eval --model m --data two.jsonl --json --context 100 --stride 7 --per-token b &&
        [ "$(number loss)" = "$(cat plain)" ] && same a b
}

for how in "m 16 4" "m 16 16" "m 9 1" "g 16 4" "g 24 8" "d 13 5"; do
    # shellcheck disable=SC2086 # three words
    check "model, window and stride $how" as_read_one_by_one $how
done
# Of windows of 8 that follow each other, tokens 5 to 7 of each count, and no rest.
halves_count() {
    answers perplexity --model g --data two.jsonl --convention llama.cpp --context 8 \
        --per-token found --json &&
        has "$out" "\"convention\": \"second halves\", \"context\": 8" || return 1
    sed 's/.*"position": \([0-9]*\),.*/\1/' found | awk '$1 % 8 < 5 { exit 1 } END { exit !NR }'
}
check "the convention is named" says_the_convention
check "second halves count" halves_count
check "one window is the text" one_window_is_the_text
check "a stride without a window" failed "--stride: expected --context" \
    eval --model m --data two.jsonl --stride 4
check "a stride beyond the window" failed "--stride 9: expected at most --context, 8" \
    eval --model m --data two.jsonl --stride 9 --context 8
check "an encoder has no stride" misused \
    "dra eval: --stride: the model is an encoder, which sees both sides of a token; see --context" \
    eval --preset xt-encoder-tiny --data two.jsonl --stride 4

# ---- tokens --------------------------------------------------------------------------------------

tokens_are_named() {
    answers eval --model m --data two.jsonl --per-token t.jsonl && [ "$(wc -l <t.jsonl)" -eq 53 ] &&
        head -n 1 t.jsonl >line && is_json line >/dev/null &&
        has line '{"document": 0, "position": 1, "id": 104, "text": "h", "logprob": -' &&
        sed -n 42p t.jsonl >line &&
        has line '{"document": 1, "position": 1, "id": 32, "text": " ", "logprob": -'
}

# Windows are read in any order, tokens are written in that of the text.
tokens_are_in_order() {
    run 0 eval --model m --data two.jsonl --context 4 --per-token t.jsonl &&
        sed 's/.*"id": \([0-9]*\),.*/\1/' t.jsonl >found &&
        printf '%s' "$first" | tail -c +2 | od -An -v -w1 -tu1 | tr -d ' ' >expected &&
        printf '%s' "$second" | tail -c +2 | od -An -v -w1 -tu1 | tr -d ' ' >>expected &&
        same found expected
}

array() {
    run 0 eval --model m --data two.jsonl --per-token t.jsonl &&
        run 0 eval --model m --data two.jsonl --per-token t.npy &&
        has t.npy "[('document', '<i8'), ('position', '<i8'), ('id', '<i4'), ('logprob', '<f8')]" \
            "'shape': (53,)" && [ "$(wc -c <t.npy)" -eq $((192 + 53 * 28)) ] || return 1
    tail -c 8 t.npy | od -An -tf8 >found &&
        awk -v x="$(cat found)" 'END { sub(/.*"logprob": /, ""); sub(/}/, "")
            exit !(($0 - x) ^ 2 < 1e-12) }' t.jsonl
}

# Losses by position, computed again from those of the tokens.
by_position() {
    run 0 eval --model m --data two.jsonl --per-token t.jsonl --by-position &&
        sed -n 's/^ *\([0-9]*\)  *\([0-9]*\)  *\([0-9.]*\)  .*/\1 \2 \3/p' "$out" >found || return 1
    sed 's/.*"position": \([0-9]*\),.*"logprob": -\([-0-9.e]*\)}/\1 \2/' t.jsonl | awk '
        { for (bin = 1; 2 * bin <= $1; bin *= 2); n[bin]++; sum[bin] += $2 }
        END { for (bin = 1; n[bin]; bin *= 2) printf "%d %d %.4f\n", bin, n[bin], sum[bin] / n[bin] }
    ' >expected
    [ "$(wc -l <found)" -eq 6 ] && same found expected
}

# The first 2^n - 1 predicted tokens are those of a prefix.
by_position_of_prefixes() {
    printf '%s' "$first" >whole.txt
    run 0 eval --model d --data whole.txt --by-position --json && is_json "$out" >/dev/null &&
        sed 's/.*"by_position": \[//; s/\].*//' "$out" | tr '}' '\n' |
        sed -n 's/.*"position": \([0-9]*\), "tokens": \([0-9]*\), "loss": \([-0-9.e]*\),.*/\1 \2 \3/p' \
            >bins || return 1
    for length in 4 16 32; do
        printf '%s' "$first" | head -c "$length" >prefix.txt
        run 0 eval --model d --data prefix.txt --json || return 1
        awk -v most="$length" -v loss="$(number loss)" '
            $1 < most { n += $2; sum += $2 * $3 }
            function abs(x) { return x < 0 ? -x : x }
            END { exit !(n == most - 1 && abs(sum / n - loss) < 1e-5) }' bins ||
            { cat bins "$out"; return 1; }
    done
}

# A reset starts again: no position is beyond the window.
by_position_of_windows() {
    run 0 eval --model m --data two.jsonl --context 4 --by-position &&
        sed -n '/tokens read/,$p' "$out" | awk 'NR > 1 { n += $2; last = $1 }
            END { exit !(n == 53 && last == 4) }' || { cat "$out"; return 1; }
}

check "losses by position" by_position
check "losses by position, of prefixes" by_position_of_prefixes
check "losses by position, of windows" by_position_of_windows
check "an encoder has no positions" misused \
    "dra eval: --by-position: the model is an encoder, which reads all tokens at once" \
    eval --preset xt-encoder-tiny --data two.jsonl --by-position
check "tokens are named" tokens_are_named
check "tokens are in order" tokens_are_in_order
check "an array" array
check "no place to write" failed "nowhere/t" \
    eval --model m --data two.jsonl --per-token nowhere/t

# ---- questions -----------------------------------------------------------------------------------

cat >q.jsonl <<'END'
{"context": "The sky is", "choices": [" blue", " \"very\" large\n", " \u00e9"], "answer": 0}

{"context": "Two and two are ", "choices": ["4", "a number which is long"], "answer": 1, "n": 2}
{"answer": 0, "choices": ["x", "x"], "context": "Equal ones: the first"}
END

# The choices of the first two questions, each after its context as a text: how many of its last
# bytes are the choice, blanks before it included.
each_choice() {
    while IFS='|' read -r bytes text; do
        printf '{"text": "%s"}\n' "$text" >one.jsonl &&
            run 0 eval --model "$1" --data one.jsonl --per-token one || return 1
        scores one | tail -n "$bytes" | awk '{ s += $2 } END { printf "0 %.7f\n", s }'
    done <<'END'
5|The sky is blue
14|The sky is \"very\" large\n
3|The sky is é
2|Two and two are 4
23|Two and two are a number which is long
END
}

sums_are_those_of_texts() {
    each_choice "$1" >expected &&
        answers eval --model "$1" --data q.jsonl --per-question q.out || return 1
    head -n 2 q.out | sed 's/.*"logprobs": \[//; s/\].*//' | tr -d ' ' | tr , '\n' |
        sed 's/^/0 /' >found
    close expected found
}

# The record of a question says what was chosen; bytes are those of the choice as it is written.
records() {
    answers eval --model m --data q.jsonl --per-question q.out --json &&
        is_json "$out" >/dev/null &&
        has "$out" '"questions": 3, ' '"headline": "accuracy"' '"chance": 0.444444444' &&
        [ "$(wc -l <q.out)" -eq 3 ] || return 1
    awk -F'[][]' '
        function best(list,  x, n, i, b) {
            n = split(list, x, ", "); b = 1
            for (i = 2; i <= n; i++) if (x[i] + 0 > x[b] + 0) b = i
            return b - 1
        }
        function value(name) {
            match($0, "\"" name "\": [0-9]+")
            return substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) + 0
        }
        best($2) != value("chosen") || best($4) != value("chosen_per_byte") { print; bad = 1 }
        { right += best($2) == value("answer"); bytes += best($4) == value("answer") }
        END { print right / NR, bytes / NR > "accuracies"; exit bad }' q.out || return 1
    [ "$(awk '{ printf "%.6f %.6f", $1, $2 }' accuracies)" = \
        "$(printf '%.6f %.6f' "$(number accuracy)" "$(number accuracy_per_byte)")" ] || return 1
    sed -n 2p q.out >line && has line '"file": "q.jsonl", "line": 3, "answer": 1' &&
        awk -F'[][]' '{ split($2, x, ", "); split($4, y, ", ")
            exit !((x[2] / 22 - y[2]) ^ 2 < 1e-10) }' line
}

table() {
    answers eval --model m --data q.jsonl &&
        has "$out" "questions          3" "accuracy           " "accuracy per byte  " \
            "headline: largest sum of log-probabilities, lm-eval's acc" "acc_norm"
}

several_files() {
    cp q.jsonl r.jsonl && says '"questions": 6' eval --model m --data q.jsonl --data r.jsonl --json
}

# Text with choices is still text.
texts_stay_texts() {
    printf '{"text": "%s", "choices": ["a", "b"]}\n' "$first" >t.jsonl &&
        says "perplexity" eval --model m --data t.jsonl &&
        says "perplexity" eval --model m --data q.jsonl --text-key context
}

bad() { # bad TEXT LINE: the second of two lines is refused
    printf '{"context": "a", "choices": ["b", "c"], "answer": 0}\n%s\n' "$2" >bad.jsonl
    rm -f never
    failed "bad.jsonl:2: $1" eval --model m --data bad.jsonl --per-question never &&
        [ ! -e never ] && quiet "$out"
}

for model in m g d; do check "$model: sums are those of texts" sums_are_those_of_texts $model; done
check "records of questions" records
check "a table" table
check "several files" several_files
check "texts with choices" texts_stay_texts
check "one choice" bad "choices: expected 2 to 256 texts" \
    '{"context": "a", "choices": ["b"], "answer": 0}'
check "a choice that is no text" bad "choices: expected a list of texts" \
    '{"context": "a", "choices": ["b", 3], "answer": 0}'
check "an empty choice" bad "choices: expected texts that are not empty" \
    '{"context": "a", "choices": ["b", ""], "answer": 0}'
check "no choices" bad "choices: expected a list of texts" '{"context": "a", "answer": 0}'
check "no such choice" bad "answer: expected the index of a choice, counted from 0" \
    '{"context": "a", "choices": ["b", "c"], "answer": 2}'
check "an answer as text" bad "answer: expected the index of a choice" \
    '{"context": "a", "choices": ["b", "c"], "answer": "0"}'
check "no context" bad "context: expected a text" '{"choices": ["b", "c"], "answer": 1}'
check "an empty context" bad "context: expected a text, as the tokenizer has no end of text" \
    '{"context": "", "choices": ["b", "c"], "answer": 1}'
check "no object" bad "expected a JSON object" '["context"]'
printf '{"context": "a", "choices": ["b", "%050d"], "answer": 0}\n' 0 >long.jsonl
check "beyond the positions" failed \
    "long.jsonl:1: 49 tokens after 1: this model has positions for 40" \
    eval --model g --data long.jsonl
tap_end
