#!/bin/sh
# dra chat with a chat template: what the model reads is what the template makes of the messages,
# each part once; answers end where the template says; what goes wrong.
#   test_chat_template.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1

# A model that has learned to answer, and one that says anything; both read bytes.
awk 'BEGIN { while (i++ < 120)
    printf "User: %s\n\nAssistant: %s\n\n", i % 2 ? "hi" : "who", i % 2 ? "hello" : "me" }' \
    >talk.txt
{
    "$dra" train --preset dra-gru-tiny --set dim=32 --set heads=2 --set depth=1 --data talk.txt \
        --out m --steps 80 --batch 8 --context 64 --lr 0.01 --warmup 5 --seed 1 &&
        "$dra" init --preset dra-slots-tiny --set dim=24 --set heads=2 --set depth=1 --seed 1 \
            --out any
} >/dev/null 2>&1 || exit 1

# A vocabulary of bytes and two special tokens, for a model of its own.
"$dra" tokenizer train --data talk.txt --vocab 259 --special '<|im_start|>' --special '<|im_end|>' \
    --out words >/dev/null 2>&1 || exit 1
"$dra" init --preset dra-slots-tiny --set dim=24 --set heads=2 --set depth=1 --set vocab=259 \
    --seed 3 --out marks >/dev/null 2>&1 || exit 1

# said LINES OPTIONS...: what a chat answers to lines; \n is a newline.
said() {
    printf "$1" >lines
    shift
    status=0
    with_seed chat "$@" <lines >"$out" 2>"$err" || status=$?
}

answered() {
    printf "$1" >expected
    shift
    said "$@"
    [ "$status" -eq 0 ] && cmp expected "$out" && quiet "$err" && return 0
    cat "$out" "$err"
    return 1
}

# complains TEXT LINES OPTIONS...: status 1 and one line with the text.
complains() {
    text=$1
    shift
    said "$@"
    [ "$status" -eq 1 ] && one_line "$err" && grep -qF -e "$text" "$err" && return 0
    echo "status $status, expected: $text"
    cat "$err"
    return 1
}

greedy="--model m --temperature 0"

# The state after two turns is that of the transcript, read in one piece.
reads_the_transcript() {
    said 'hi\nwho\n/save s\n' --model any --chat-template plain --system 'A talk.' --tokens 9 \
        --seed 4 --state-out t
    [ "$status" -eq 0 ] && cmp s t || return 1
    said 'hi\n/save a\n' --model any --chat-template plain --system 'A talk.' --tokens 9 --seed 4
    answers generate --model any --tokens 9 --seed 4 --stop "$(printf '\n\nUser:')" --state-out b \
        --prompt "$(printf 'System: A talk.\n\nUser: hi\n\nAssistant:')" && cmp a b
}

# The template of the folder, unless another form is asked for.
reads_the_folder() {
    cp -r m f && printf '%s' '{"chat_template": "{% for m in messages %}{{ m.role|capitalize }}: ' \
        '{{ m.content|trim }}\n\n{% endfor %}Assistant:", "eos_token": "l"}' \
        >f/tokenizer_config.json
    answered 'he\nme\n' 'hi\nwho\n' --model f --temperature 0 || return 1
    said 'hi\n/save a\n' --model f --user 'User: ' --tokens 3
    said 'hi\n/save b\n' --model m --tokens 3
    cmp a b || return 1
    rm f/tokenizer_config.json
    printf '{%% for m in messages %%}Q{{ loop.length }}{%% endfor %%}' >f/chat_template.jinja
    said 'hi\n/stats\n' --model f --tokens 3
    grep -q "read 2 at" "$err"
}

# <|im_end|> ends an answer and is read with the next turn, as one token: 21 are read for the first
# turn, 23 for the second.
reads_special_tokens() {
    said 'hi\n/stats\nhi\n/stats\n' --model marks --tokenizer words --chat-template chatml \
        --tokens 4
    [ "$status" -eq 0 ] && grep -q "read 21 at" "$err" && grep -q "read 44 at" "$err" && return 0
    cat "$err"
    return 1
}

# In one process or two; /undo and /reset forget messages, too.
goes_on() {
    how="--model any --chat-template chatml --seed 11 --tokens 9"
    # shellcheck disable=SC2086 # a list of options
    {
        said 'first\nthen?\n/save whole\n' $how && cp "$out" whole.txt
        said 'first\n/save half\n' $how && cp "$out" parts.txt
        said '/load half\nthen?\n/save parts\n' $how && cat "$out" >>parts.txt
        cmp whole.txt parts.txt && cmp whole parts || return 1
        said 'first\nwhat\n/undo\nthen?\n/save undone\n' $how && cmp whole undone || return 1
        said 'what\n/reset\nfirst\nthen?\n/save anew\n' $how && cmp whole anew || return 1
        said 'first\n/save a\n/more\n/undo\n/save b\n' $how && cmp a b
    }
}

# A template that numbers messages from the end: all is read again, which is told once.
reads_again() {
    printf '{%% for m in messages %%}{{ loop.revindex }}{{ m.content }}{%% endfor %%}:' >re.jinja
    said 'hi\nho\nhu\n/stats\n' --model any --chat-template re.jinja --tokens 1 --ignore-end
    [ "$status" -eq 0 ] && [ "$(grep -c 'reads all of them again' "$err")" -eq 1 ] &&
        grep -q '^1[0-9] tokens in a state' "$err" && return 0
    cat "$err"
    return 1
}

# Variables of the template, in every turn and after a state file.
sets_variables() {
    printf '%s' '{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}' \
        '{{ "" if enable_thinking|default(true) else "<no>" }}{{ tools[0].name }}' >set.jinja
    how="--model any --chat-template set.jinja --seed 2 --tokens 1 --ignore-end"
    # shellcheck disable=SC2086 # a list of options
    {
        said 'hi\n/stats\n' $how --template-set 'tools=[{"name": "search"}]'
        grep -q "read 12 at" "$err" || return 1 # userhisearch
        said 'hi\n/stats\n' $how --template-set enable_thinking=false \
            --template-set 'tools=[{"name": ""}]'
        grep -q "read 10 at" "$err" && return 0
    }
    cat "$err"
    return 1
}

# A tokenizer that puts a token in front of texts: a template writes it itself, once; a prompt gets
# it, unless it has it.
begins_once() {
    words=$(dirname "$0")/../data/tokenizers/llama3
    "$dra" init --preset dra-slots-tiny --set dim=24 --set heads=2 --set depth=1 --set vocab=620 \
        --out begins >/dev/null 2>&1 || return 1
    printf '%s' '{{ "<|begin_of_text|>" }}HI' >begin.jinja
    said 'x\n/stats\n' --model begins --tokenizer "$words" --chat-template begin.jinja --tokens 1 \
        --ignore-end
    grep -q "read 3 at" "$err" || { cat "$err"; return 1; }
    for prompt in HI '<|begin_of_text|>HI'; do
        answers generate --model begins --tokenizer "$words" --prompt "$prompt" --tokens 1 --json &&
            grep -qF '"prompt": "<|begin_of_text|>HI"' "$out" || return 1
    done
    answers generate --model begins --tokenizer "$words" --prompt '' --tokens 1 --json &&
        grep -qF '"prompt": "<|begin_of_text|>"' "$out"
}

# A message that the template refuses has not been said.
survives_refusals() {
    printf '{%% if messages[-1].content == "no" %%}{{ raise_exception("not that") }}{%% endif %%}' \
        >r
    printf '{%% for m in messages %%}{{ m.content }}{{ ":" if m.role == "user" }}{%% endfor %%}' >>r
    said 'hi\n/save a\nno\n/save b\nwho\n' --model any --chat-template r --tokens 2
    [ "$status" -eq 1 ] && one_line "$err" && grep -qF 'r: line 1: not that' "$err" && cmp a b
}

# shellcheck disable=SC2086
{
    check "answers" answered 'hello\nme\n' 'hi\nwho\n' $greedy --chat-template plain
    check "a transcript" reads_the_transcript
    check "the template of the folder" reads_the_folder
    check "special tokens" reads_special_tokens
    check "goes on" goes_on
    check "earlier turns written anew" reads_again
    check "a text begins once" begins_once
    check "--template-set" sets_variables
    check "a variable that is no JSON" complains "--template-set: variables of a template: JSON" \
        'hi\n' $greedy --chat-template chatml --template-set enable_thinking=maybe
    check "a variable of the conversation" complains "'messages'" 'hi\n' $greedy \
        --chat-template chatml --template-set 'messages=[]'
    check "a variable without a template" complains "no chat template" 'hi\n' $greedy \
        --template-set 'x=1'
    check "a variable without a value" misused "dra chat: --template-set x: expected KEY=JSON" \
        chat --model m --template-set x
    check "raise_exception" survives_refusals
    check "no such template" complains \
        "nope: no such file, and no chat template of: chatml, gemma," 'hi\n' $greedy \
        --chat-template nope
    printf 'a\n{{ nope(1) }}' >bad.jinja
    check "a wrong template" complains \
        "bad.jinja: line 2: no such function or macro is known: 'nope'" 'hi\n' $greedy \
        --chat-template bad.jinja
    check "two forms" misused "dra chat: --chat-template: found with --user, --bot or --plain, \
which say how messages are written, too" chat --model m --chat-template plain --plain
}
tap_end
