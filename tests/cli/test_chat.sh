#!/bin/sh
# dra chat as a process: what is said and answered, the same in one process or several, what goes
# wrong and is survived; at a terminal its prompts, keys and lines from before.
#   test_chat.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1
XDG_STATE_HOME=$scratch/state # nobody's own history
export XDG_STATE_HOME

# A model that has learned to answer, one that says anything (and another such one), and one whose
# positions end soon (and one where they do not).
small="--set dim=24 --set heads=2 --set depth=1"
awk 'BEGIN { while (i++ < 60) printf "User: hi\n\nBot: hello\n\nUser: who\n\nBot: me\n\n" }' \
    >talk.txt
# shellcheck disable=SC2086 # a list of options
{
    "$dra" train --preset dra-gru-tiny --set dim=32 --set heads=2 --set depth=1 --data talk.txt \
        --out m --steps 80 --batch 8 --context 64 --lr 0.01 --warmup 5 --seed 1 &&
        "$dra" init --preset dra-slots-tiny $small --seed 1 --out any &&
        "$dra" init --preset dra-slots-tiny $small --seed 2 --out other &&
        "$dra" init --preset gpt2-tiny $small --set context=40 --out p &&
        "$dra" init --preset gpt2-tiny $small --set context=8192 --out p2
} >/dev/null 2>&1 || exit 1

# said TEXT OPTIONS...: what a chat answers to lines; \n is a newline.
said() {
    lines=$1
    shift
    printf "$lines" >lines
    status=0
    with_seed chat "$@" <lines >"$out" 2>"$err" || status=$?
}

# answered EXPECTED LINES OPTIONS...: exactly that, and no word on stderr.
answered() {
    printf "$1" >expected
    shift
    said "$@"
    [ "$status" -eq 0 ] && cmp expected "$out" && quiet "$err"
}

# complains TEXT LINES OPTIONS...: one line with the text; the answers around it are there.
complains() {
    text=$1
    shift
    said "$@" --model m --temperature 0
    [ "$status" -eq 1 ] && one_line "$err" && grep -qF -e "$text" "$err" && printf 'hello\nme\n' |
        cmp - "$out" && return 0
    echo "status $status, expected: $text"
    cat "$err" "$out"
    return 1
}

greedy="--model m --temperature 0"

# ---- turns ---------------------------------------------------------------------------------------

# What the model reads is the transcript; what it writes ends before the user's name.
is_a_transcript() {
    said 'hi\n/save s\nwho\n' --model any --system 'A talk.' --tokens 9 --seed 4
    [ "$status" -eq 0 ] || return 1
    cp "$out" chatted
    answers generate --model any --tokens 9 --seed 4 --stop "$(printf '\n\nUser:')" --state-out t \
        --prompt "$(printf 'A talk.\n\nUser: hi\n\nBot:')" && cmp s t || return 1
    cp "$out" generated
    answers generate --model any --tokens 9 --seed 4 --state-in s \
        --prompt "$(printf '\n\nUser: who\n\nBot:')" && cat "$out" >>generated || return 1
    # The model says anything, also blanks in front, which are not shown.
    sed 's/^[ \t]*//' chatted >a && sed 's/^[ \t]*//' generated >b && cmp a b
}

is_plain_text() {
    said 'Once upon\n\n/more\n' --model any --plain --tokens 9 --seed 4
    [ "$status" -eq 0 ] && cp "$out" chatted || return 1
    answers generate --model any --tokens 27 --seed 4 --prompt 'Once upon' || return 1
    tr -d '\n' <chatted >a && tr -d '\n' <"$out" >b && cmp a b
}

# More than a generator reads at a time.
long_questions() {
    awk 'BEGIN { while (i++ < 300) printf "%d words, ", i }' >long.txt
    for model in any p2; do
        said "$(cat long.txt)\n/save s\n" --model $model --plain --tokens 4 --seed 3 && answers \
            generate --model $model --prompt-file long.txt --tokens 4 --seed 3 --state-out t &&
            cmp s t || return 1
    done
}

several_lines() {
    said 'one\\\ntwo\n/save s\n' --model any --plain --tokens 4 &&
        said '/save t\n' --model any --plain --tokens 4 --state-in s && cmp s t || return 1
    answers generate --model any --tokens 4 --state-out u --prompt "$(printf 'one\ntwo')" &&
        cmp s u
}

commands_need_one_slash() {
    said '//hi\n/save s\n' --model any --plain --tokens 4 &&
        answers generate --model any --tokens 4 --state-out t --prompt /hi && cmp s t
}

# ---- states --------------------------------------------------------------------------------------

# Two turns in one process, and in two.
goes_on() {
    how="--model $1 --seed 11 --tokens 25 --repetition-penalty 1.1"
    # shellcheck disable=SC2086 # a list of options
    {
        said 'first things first\nand then?\n/save whole\n' $how && cp "$out" whole.txt
        said 'first things first\n/save half\n' $how && cp "$out" parts.txt
        said '/load half\nand then?\n/save parts\n' $how && cat "$out" >>parts.txt
    }
    [ -s whole.txt ] && cmp whole.txt parts.txt && cmp whole parts || return 1
    # shellcheck disable=SC2086
    said 'and then?\n' $how --state-in half --state-out parts && cmp whole parts
}

# As if the second turn, /more, /reset and /load had not been.
takes_back() {
    said 'hi\n/save a\nwho\n/undo\n/save b\n/more\n/undo\n/save c\n/reset\n/undo\n/save d\n' \
        --model any --tokens 9
    [ "$status" -eq 0 ] && cmp a b && cmp a c && cmp a d || return 1
    said 'hi\n/undo\nhi\n/save e\nwho\n/load a\n/undo\n/undo\n/save f\n/undo\n/undo\n' \
        --model any --tokens 9
    [ "$status" -eq 1 ] && cmp a e && cmp a f &&
        grep -qF 'dra chat: /undo: nothing to take back' "$err"
}

starts_anew() {
    said 'who\n/reset\nhi\n/save a\n' --model any --tokens 9 &&
        said 'hi\n/save b\n' --model any --tokens 9 && cmp a b
}

settings_change() {
    said 'hi\n/set temperature 0\n/set seed=5\n/set ignore-end\nwho\n/set\n' --model any --tokens 9
    [ "$status" -eq 0 ] && one_line "$err" &&
        grep -q "^tokens 9, .*temperature 0, .*seed 5" "$err" || return 1
    tail -n +2 "$out" >a
    said 'hi\n/save s\n' --model any --tokens 9
    said '/load s\nwho\n' --model any --tokens 9 --temperature 0 && tail -n +1 "$out" >b
    [ -s b ] && cmp a b
}

counts() {
    said 'hi\n/stats\n' $greedy
    [ "$status" -eq 0 ] && grep -qE "^[0-9]+ tokens in a state of [0-9]+ bytes; read 14 at .*, \
wrote 6 at " "$err"
}

# ---- what goes wrong -----------------------------------------------------------------------------

survives_states() {
    said 'hi\n/save there\n' --model other --tokens 3
    echo old >kept
    said 'hi\n/save a\n/load there\n/load kept\n/load .\n/save nowhere/b\n/save b\n' \
        --model any --tokens 3
    [ "$status" -eq 1 ] && [ "$(wc -l <"$err")" -eq 4 ] && cmp a b && [ "$(cat kept)" = old ] &&
        grep -q "a state of other weights" "$err"
}

positions_end() {
    said 'hi there\nand again\nonce more\n/reset\nhi there\n' --model p --tokens 12 --seed 3
    [ "$status" -eq 1 ] && [ "$(grep -cxF "dra chat: 23 tokens after 32: this model has \
positions for 40; nothing is cut off; /reset starts over" "$err")" -eq 2 ] ||
        { cat "$err"; return 1; }
    [ "$(wc -l <"$err")" -eq 2 ] && cp "$out" both || return 1
    said 'hi there\n' --model p --tokens 12 --seed 3 && cat "$out" "$out" | cmp - both || return 1
    said 'hi there\n' --model p --tokens 0
    [ "$status" -eq 0 ] && one_line "$err" && grep -qF "ended where the model has no further \
position, at 40; /reset starts over" "$err"
}

reads_odd_lines() {
    printf 'a\0b\377\n\n   \nend without a newline' >lines
    "$dra" chat --seed 0 --model any --tokens 3 <lines >"$out" 2>"$err" && quiet "$err" || return 1
    : >lines
    run 0 chat --model m <lines && quiet "$out" && quiet "$err"
}

# In a pipe Ctrl-C ends the answer and the chat, in the middle of an answer or waiting for a line.
interrupted_in_a_pipe() {
    for tokens in 0 30; do
        rm -f pipe s && mkfifo pipe || return 1
        "$dra" chat --seed 0 --model any --tokens $tokens --state-out s <pipe >"$out" 2>"$err" &
        child=$!
        exec 3>pipe
        echo hi >&3
        await 20 "$out" || return 1
        [ $tokens -eq 0 ] || sleep 0.5
        kill -INT $child
        wait $child
        [ $? -eq 130 ] && quiet "$err" && [ -s s ] || return 1
        exec 3>&-
    done
}

# An answer that waits for its reader, who is slow, arrives whole: 65536 bytes fill the pipe.
interrupted_while_writing() {
    rm -f pipe && mkfifo pipe && exec 4<>pipe || return 1
    head -c 65530 /dev/zero >&4
    echo hi | "$dra" chat --seed 0 --model any --tokens 0 >pipe 2>"$err" &
    child=$!
    sleep 0.7
    kill -INT $child
    (sleep 0.3 && head -c 65531 <&4 >"$out") &
    reader=$!
    wait $child
    [ $? -eq 130 ] || return 1
    exec 4>&-
    wait $reader
    quiet "$err" && [ "$(wc -c <"$out")" -gt 65530 ]
}

# A question of four million tokens, stopped while it is read. It is longer than a pipe holds, so
# when it is written, nearly all of it has been taken.
interrupted_while_reading() {
    rm -f pipe && mkfifo pipe || return 1
    "$dra" chat --seed 0 --model any --tokens 3 --state-out b <pipe >"$out" 2>"$err" &
    child=$!
    exec 3>pipe
    printf 'hi\n/save a\n' >&3
    head -c 4000000 /dev/zero | tr '\0' x >&3
    echo >&3
    sleep 0.5
    kill -INT $child
    wait $child
    [ $? -eq 130 ] && exec 3>&- && one_line "$err" && cmp a b &&
        grep -q "^dra chat: stopped at token [0-9]* of 4000014" "$err"
}

# await BYTES FILE: until a file has that many, for half a minute at most.
await() {
    tries=0
    while [ "$(wc -c <"$2")" -lt "$1" ]; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || { echo "waited for $1 bytes of $2"; return 1; }
        sleep 0.1
    done
}

# ---- at a terminal -------------------------------------------------------------------------------

# at_terminal TERM OPTIONS...: a chat whose keys come from `press` and whose screen is a file.
at_terminal() {
    term=$1
    shift
    rm -f keys screen && mkfifo keys && : >screen || return 1
    TERM=$term script -qec "'$dra' chat $*" /dev/null <keys >screen 2>&1 &
    child=$!
    exec 3>keys
    seen=0
}

press() { printf "$1" >&3; }

# sees TEXT: on the screen, after what was seen before.
sees() {
    tries=0
    until at=$(tail -c +$((seen + 1)) screen | LC_ALL=C grep -aobF -e "$1"); do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || { echo "waited for: $1"; tail -c 300 screen | cat -v; return 1; }
        sleep 0.1
    done
    seen=$((seen + ${at%%:*} + ${#1}))
}

leaves() {
    exec 3>&-
    wait $child
}

# Ctrl-C ends an answer, which stays said; at the prompt it says how to leave.
keys() {
    rm -f said state/dra/history
    at_terminal "$1" --model any --tokens 0 && sees User: && press 'hi\r' && sees Bot: &&
        sleep 0.3 && press '\003' && sees User: && press '\003' && sees "Ctrl-D or /quit leaves" &&
        sees User: && press '/save said\r' && sees "saved " && sees User: && press '/stat\r' &&
        sees "did you mean /stats?" && sees User: && press '\004' && leaves && [ -s said ] ||
        return 1
    n=$(sed -n 's/.*saved \([0-9]*\) tokens.*/\1/p' screen)
    [ "$n" -gt 14 ] && answers generate --model any --state-in said --tokens 1
}

coloured_names() {
    at_terminal xterm $greedy && sees User: && press 'hi\r' && sees hello && sees User: &&
        press '/quit\r' && leaves && grep -qF "$(printf '\033[1;34mBot:\033[0m')" screen || return 1
    NO_COLOR=1 at_terminal dumb $greedy && sees User: && press 'hi\r' && sees hello && sees User: &&
        press '/quit\r' && leaves && ! grep -q "$(printf '\033')" screen
}

# A name that is no text, and one that is too long: another stands in front of the line.
odd_names() {
    odd=$(printf '\377\376: ')
    at_terminal xterm $greedy --user "'$odd'" && sees '>' && press '/quit\r' && leaves || return 1
    long=$(printf 'é%.0s' 1 2 3 4 5 6 7 8 9 10)
    long=$long$long$long$long$long$long$long$long$long
    at_terminal xterm $greedy --user "'$long'" && sees User: && press '/quit\r' && leaves
}

# Prompts on the screen, answers in a file.
answers_in_a_file() {
    at_terminal xterm $greedy '>answers' && sees User: && press 'hi\r' && sees User: &&
        press '/quit\r' && leaves && [ "$(cat answers)" = hello ] && ! grep -qF Bot: screen
}

# What was typed is found by the arrow key in the next process.
remembers() {
    rm -rf state
    at_terminal xterm $greedy && sees User: && press 'hi\r' && sees hello && sees User: &&
        press '/quit\r' && leaves && [ "$(cat state/dra/history)" = "$(printf 'hi\n/quit')" ] &&
        [ "$(ls -l state/dra/history | cut -c 1-10)" = -rw------- ] || return 1
    at_terminal xterm $greedy && sees User: && press '\033[A\033[A\r' && sees hello && sees User: &&
        press '\004' && leaves || return 1
    rm -rf state
    at_terminal xterm $greedy --no-history && sees User: && press 'hi\r' && sees hello &&
        sees User: && press '\004' && leaves && [ ! -e state ] || return 1
    at_terminal xterm $greedy --history "$scratch/talk.txt/no" && sees User: && press 'hi\r' &&
        sees "history: " && sees hello && sees User: && press '\004' && leaves
}

# $greedy is a list of options all through.
# shellcheck disable=SC2086
{
    check "answers" answered 'hello\nme\nhello\n' 'hi\nwho\nhi\n' $greedy
    check "empty lines say nothing" answered 'hello\nme\n' '\nhi\n\n\nwho' $greedy
    check "/quit" answered 'hello\n' 'hi\n/quit\nwho\n' $greedy
    check "a stop string" answered 'hel\n' 'hi\n' $greedy --stop lo
    for draft in ngram m; do
        check "guesses: $draft" answered 'hello\nme\nhello\n' 'hi\nwho\nhi\n' $greedy \
            --draft $draft
        check "guesses and /undo: $draft" answered 'hello\nme\nme\n' 'hi\nwho\n/undo\nwho\n' \
            $greedy --draft $draft --draft-tokens 3
    done
    check "other names" answered 'hello\n' 'hi\n' $greedy --user 'User: ' --bot 'Bot:'
    check "a transcript" is_a_transcript
    check "plain text" is_plain_text
    check "long questions" long_questions
    check "several lines" several_lines
    check "//" commands_need_one_slash
    for model in m any p; do check "goes on from a file: $model" goes_on $model; done
    check "/undo" takes_back
    check "/reset" starts_anew
    check "/set" settings_change
    check "/stats" counts
    check "/help" answered '' '/quit\n/help\n' $greedy
    check "unknown command" complains "dra chat: no such command: '/sav'; did you mean /save?" \
        'hi\n/sav x\nwho\n'
    check "another word for /quit" complains "no such command: '/exit'; did you mean /quit?" \
        'hi\n/exit\nwho\n'
    check "no command" complains "dra chat: no such command: '/zzzzzz'; /help lists them" \
        'hi\n/zzzzzz\nwho\n'
    check "/save without a file" complains "dra chat: /save: expected FILE, found nothing" \
        'hi\n/save\nwho\n'
    check "/reset with a word" complains "dra chat: /reset: expected nothing, found 'all'" \
        'hi\n/reset all\nwho\n'
    check "/load nowhere" complains "dra chat: nowhere: cannot open" 'hi\n/load nowhere\nwho\n'
    check "/set: wrong name" complains "did you mean --temperature?" 'hi\n/set temprature 1\nwho\n'
    check "/set: wrong value" complains \
        "dra chat: /set: --top-p: expected a number from 0 to 1, found '2'" \
        'hi\n/set top-p 2\nwho\n'
    check "/save at once" complains "nothing to save: nothing was said yet" '/save x\nhi\nwho\n'
    check "/more at once" complains "nothing to continue: nothing was said yet" \
        '/more\nhi\nwho\n'
    check "states that do not fit" survives_states
    check "learned positions end" positions_end
    check "odd lines" reads_odd_lines
    check "Ctrl-C in a pipe" interrupted_in_a_pipe
    check "Ctrl-C while writing" interrupted_while_writing
    check "Ctrl-C while reading" interrupted_while_reading
    check "no model" misused \
        "dra chat: expected one of --model, --preset and --config, found none" chat
    check "two histories" misused \
        "dra chat: expected one of --history and --no-history, found both" \
        chat --model m --history h --no-history
    if has_terminal; then
        check "keys of a plain terminal" keys dumb
        check "keys while editing" keys xterm
        check "colours" coloured_names
        check "odd names" odd_names
        check "answers in a file" answers_in_a_file
        if ldd "$dra" | grep -q libedit; then
            check "lines from before" remembers
        else
            skip "lines from before" built without libedit
        fi
    else
        for name in "keys of a plain terminal" "keys while editing" colours "answers in a file" \
            "lines from before"; do
            skip "$name" "$no_terminal"
        done
    fi
}
tap_end
