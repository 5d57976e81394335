#!/bin/sh
# What people see at a terminal, at widths of 40, 80 and 120 columns and elsewhere: nothing wraps.
#   test_terminal.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
here=$(cd "$(dirname "$0")" && pwd)
cd "$scratch" || exit 1

awk 'BEGIN { while (i++ < 400) print "the cat " i " sat on the mat, and dog " i % 17 " barked" }' \
    >book.txt
small="--set dim=16 --set heads=2 --set depth=1"
tiny="--preset dra-delta-tiny $small --data book.txt --batch 2 --context 16"

# at WIDTH COMMAND...: at a terminal; the answer, with its escape sequences, is in $out.
at() {
    width=$1
    shift
    TERM=xterm timeout 60 script -qec "stty cols $width rows 30; $*" /dev/null </dev/null >"$out"
}

# fits WIDTH: no line, of those that were redrawn as well, is wider. Letters of more than one byte
# count once.
fits() {
    tr -d '\r' <"$out" | sed 's/\x1b\[[0-9;]*[A-Za-z]/\n/g' | LC_ALL=C sed 's/[\x80-\xbf]//g' |
        LC_ALL=C awk -v n="$1" 'length > n { print length ": " $0; bad = 1 } END { exit bad }'
}

# ---- progress ------------------------------------------------------------------------------------

trains() { # trains WIDTH FIELD...: these are in the status line, and a curve is above it
    width=$1
    shift
    at "$width" "'$dra'" train $tiny --out "run$width" --split 0.1 --steps 60 --eval-every 30 \
        --sample-every 0 ||
        { cat "$out"; return 1; }
    # What comes after the run may name paths, and the plan is folded.
    sed '/^done: /,$d' "$out" >shown && mv shown "$out"
    tr -d '\r' <"$out" | grep -q '^          0  .*  60$' && grep -q '│' "$out" &&
        grep -q '[0-9]A.*J' "$out" && has "$out" "step 60/60  loss" "$@" &&
        fits "$width"
}

# The lines of a sample stand below its first one.
indents_samples() {
    at 60 "'$dra'" train $tiny --out indented --steps 2 --sample-every 1 --sample-tokens 300 ||
        { cat "$out"; return 1; }
    grep -q 'sample   ' "$out" && grep -q '^         [^ │]' "$out" && fits 60
}

# A resumed run has the curve of all its steps from its first step on.
resumes_curve() {
    at 80 "'$dra'" train $tiny --out resumed --steps 40 --log-every 2 &&
        at 80 "'$dra'" train --out resumed --resume --steps 44 || { cat "$out"; return 1; }
    sed '/step 41\/44  loss/,$d' "$out" | grep -q '│'
}

# The curve is as wide as the terminal is.
fills_width() { rm -rf run120; trains 120 && ! fits 110; }

drops_fields() { trains 40 && ! grep 'loss ' "$out" | grep -q -e ' lr ' -e ' norm '; }

ends_with_totals() {
    run 0 train $tiny --out plain --steps 3 && has "$err" "total    96 tokens in 0:00, loss " \
        ", lowest of a step " "done: the model is in plain" \
        "  dra generate --model plain --prompt " "  dra report plain" &&
        ! grep -q "$(printf '\033')" "$err"
}

dumb() { # a terminal that cannot move its cursor gets lines
    TERM=dumb timeout 60 script -qec "'$dra' train $tiny --out dumb$1 --steps 20" /dev/null \
        </dev/null >"$out" && has "$out" "step 10/20  loss " "step 20/20  loss " &&
        ! grep -q -e "$(printf '\033')" -e '│' "$out"
}

probes() {
    at "$1" "'$dra'" probe copy recall --suite --only append,delta --set dim=16 --steps 60 \
        --length 64 --tests 8 || { cat "$out"; return 1; }
    grep -q 'run [1-4]/4' "$out" && grep -q 'copy *delta' "$out" && fits "$1"
}

evaluates() {
    at "$1" "'$dra'" eval $tiny_model --data book.txt --chunk 4 && grep -q 'bits per byte' "$out" &&
        fits "$1"
}

tokenizes() {
    at "$1" "'$dra'" tokenizer train --data book.txt --vocab 300 --out words && fits "$1"
}

demonstrates() {
    at "$1" "'$dra'" demo --quick --out "demo$1" || { cat "$out"; return 1; }
    sed '/In short/,$d; s/^  |.*//' "$out" >shown && mv shown "$out" # paths, a story
    has "$out" "step 6/6" "2000 of 2000 tokens" "left" && fits "$2"
}

# ---- a long run ----------------------------------------------------------------------------------

# Its estimate is days; a terminal is asked once it is known.
long="$tiny --steps 1000000000"

# answered TEXT COMMAND...: waits until a terminal shows the text, and says what the command prints.
answered() {
    text=$1
    shift
    (
        tries=0
        until grep -qF "$text" "$out" || [ "$tries" -gt 200 ]; do
            tries=$((tries + 1))
            sleep 0.05
        done
        "$@"
        sleep 3
    )
}

asks() { # asks ANSWER: the answer ends it, and not what was typed before
    rm -rf long
    : >"$out"
    { printf 'y\n'; answered "Continue? [Y/n]" printf '%s\n' "$1"; } |
        TERM=xterm timeout 60 script -qefc "'$dra' train $long --out long" /dev/null >>"$out"
    has "$out" "Continue? [Y/n]" "stopped and saved at step"
}

# Ctrl-C is answered before the step ends, on a line of its own.
answers_at_once() {
    rm -rf long
    : >"$out"
    answered "step 2" printf '\003' |
        TERM=xterm timeout 60 script -qefc "'$dra' train $long --yes --out long" /dev/null >>"$out"
    has "$out" "stopping after this step; Ctrl-C again ends at once" "stopped and saved at step" &&
        grep -q '^stopping after' "$out"
}

# A pipe, and who says --yes, are never asked.
# Without --foreground timeout would send the signal twice, and a second one ends a run at once.
asks_nobody() {
    rm -rf long
    timeout --foreground -s INT 3 "$dra" train $long --out long </dev/null >"$out" 2>"$err"
    has "$err" "time     about " "stopped and saved at step" && ! grep -q 'Continue?' "$err"
}

asks_nobody_who_says_yes() {
    rm -rf long
    stopped="timeout --foreground -s INT 3"
    TERM=xterm timeout 60 script -qec "$stopped '$dra' train $long --yes --out long" /dev/null \
        </dev/null >"$out"
    has "$out" "time     about " "stopped and saved at step" && ! grep -q 'Continue?' "$out"
}

says_bytes() { # a full-size preset without its vocabulary
    full="--preset dra-delta $small --data book.txt --batch 2 --context 16 --steps 1"
    run 0 train $full --out b || return 1
    has "$err" "note     dra-delta is made for a vocabulary of 50257 tokens; without" || return 1
    run 0 train $full --tokenizer bytes --out c && ! grep -q '^note' "$err" || return 1
    run 0 train $tiny --steps 1 --out d && ! grep -q '^note' "$err"
}

# ---- a build -------------------------------------------------------------------------------------

builds() { # a line every tenth; warnings and the exit status are passed on
    progress=$here/../../scripts/progress.sh
    status=0
    "$progress" folder sh -c 'echo "[ 12%] one"; echo careful; echo "[100%] two"; exit 3' \
        >"$out" 2>"$err" || status=$?
    [ "$status" -eq 3 ] && [ "$(cat "$err")" = careful ] &&
        printf 'build  folder\nbuild  folder  12 %%\nbuild  folder  100 %%\n' | cmp - "$out"
}

# ---- tables --------------------------------------------------------------------------------------

shows() { # shows WIDTH ARGUMENTS...
    width=$1
    shift
    at "$width" "'$dra'" "$@" && fits "$width"
}

presets_are_explained() {
    answers presets && has "$out" "  GPT-2" "linear attention" &&
        awk 'NR > 1 && NF < 7 { print; bad = 1 } length > 80 { print; bad = 1 } END { exit bad }' \
            "$out" && grep -q '^dra-delta-tiny .* delta  *[0-9.]* KiB  *the delta rule$' "$out" &&
        grep -q '^gpt2-tiny .* append  *+[0-9.]* KiB/token  *GPT' "$out" &&
        grep -q '^hybrid-tiny .* blend   +[0-9.]* KiB/token  *append and slots$' "$out" &&
        grep -q '^vit-tiny .* append  *none  *names' "$out" &&
        answers presets --json && is_json "$out" &&
        has "$out" '"memory": "delta", "about": "' '"memory": "append+slots"'
}

layers_are_listed() {
    answers info --preset hybrid-tiny && has "$out" "layers      memory" \
        "  0 to 3    append and slots  " " B a token" || return 1
    answers info --preset hybrid-tiny --json && is_json "$out" &&
        has "$out" '{"layer": 3, "memory": "append and slots"' '"state_bytes_per_token": '
}

helps_in_chat() {
    printf '/help\n' | timeout 20 "$dra" chat --preset dra-delta-tiny $small >"$out" 2>"$err" &&
        has "$err" "/undo" && mv "$err" "$out" && fits 90
}

# ---- all of it -----------------------------------------------------------------------------------

tiny_model="--model run80"
if has_terminal; then
    check "training: 80 columns" trains 80 tokens/s " left"
    check "training: 120 columns" trains 120 tokens/s " lr " " norm " " left"
    check "training: a curve of 120 columns" fills_width
    check "training: 40 columns" drops_fields
    check "a resumed run: its whole curve" resumes_curve
    check "lines of samples are indented" indents_samples
    check "training: a dumb terminal" dumb 1
    check "probes: 40 columns" probes 40
    check "evaluation: 40 columns" evaluates 40
    check "a tokenizer: 40 columns" tokenizes 40
    check "the demo: 80 columns" demonstrates 80 80
    check "a long run asks" asks n
    check "nobody is asked with --yes" asks_nobody_who_says_yes
    check "Ctrl-C is answered at once" answers_at_once
    check "a table of cases fits" shows 80 bench --list
    check "a table of stacks fits" shows 80 info --preset xt-seq2seq-tiny
    check "a table of decays fits" shows 80 info --preset rwkv4-tiny
    check "presets fit" shows 80 presets
else
    skip "at a terminal" "$no_terminal"
fi
check "a build" builds
check "totals and what is next" ends_with_totals
check "nobody is asked in a pipe" asks_nobody
check "bytes instead of a vocabulary" says_bytes
check "presets are explained" presets_are_explained
check "layers are listed" layers_are_listed
check "chat: /help" helps_in_chat
check "a word of a preset" failed "no preset is called delta; did you mean dra-delta-tiny?" \
    presets delta
check "a preset without -tiny" failed "did you mean xt-seq2seq-tiny?" presets xt-seq2seq
check "a letter is missing" failed "did you mean dra-slots-tiny?" presets dra-slot-tiny
check "a preset of softmax" failed "did you mean gpt2-tiny?" presets softmax
check "a word is missing" failed "did you mean dra-slot-gru-tiny?" presets slot-gru
check "a group of slow cases" misused \
    "dra bench: all cases of generate are slow; name one of them, or add --all" bench generate
tap_end
