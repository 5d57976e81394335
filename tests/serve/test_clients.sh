#!/bin/sh
# dra serve as a process, and dra generate and dra chat as its clients.
#   test_clients.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/../tap.sh"
scratch=$(mktemp -d) || exit 1
server=
trap 'kill $server 2>/dev/null; rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
small="--set dim=24 --set heads=2 --set depth=1"
# shellcheck disable=SC2086 # a list of options
"$dra" init --preset dra-gru-tiny $small --out m >/dev/null 2>&1 || exit 1
"$dra" serve --model m --port 0 2>log &
server=$!
url=
while [ -z "$url" ] && kill -0 $server; do url=$(sed -n 's/.*\(http:.*\)/\1/p' log); done

same_text() { # generate here and there
    "$dra" generate --model m --prompt "$1" --tokens 30 --seed "$2" >here &&
        "$dra" generate --server "$url" --prompt "$1" --tokens 30 --seed "$2" >there &&
        cmp here there
}

chats() {
    printf 'hello\nwho\n/reset\nhello\n' >lines
    "$dra" chat --server "$url" --tokens 9 --seed 3 --system 'Be brief.' <lines >all &&
        printf 'hello\n' | "$dra" chat --server "$url" --tokens 9 --seed 3 --system 'Be brief.' \
            >first && head -c "$(wc -c <first)" all | cmp - first &&
        tail -c "$(wc -c <first)" all | cmp - first
}

fails() { # fails STATUS WORDS COMMAND...: with one line that has the words
    status=$1 words=$2 found=0
    shift 2
    "$@" >out 2>err || found=$?
    [ "$found" -eq "$status" ] && [ "$(wc -l <err)" -eq 1 ] && grep -qF -- "$words" err && return
    echo "status $found"
    cat err
    return 1
}

# The first answer is known once the server is ready.
i=0
until "$dra" generate --server "$url" --prompt a --tokens 1 >/dev/null 2>&1 || [ $i -gt 200 ]; do
    i=$((i + 1))
    sleep 0.05
done
check "a server writes what the model writes" same_text "Once upon a time" 1
check "also with another seed" same_text "x" 7
check "a chat goes on and starts over" chats
check "an error of the server is told" fails 1 "max_tokens: expected at most" \
    "$dra" generate --server "$url" --prompt a --tokens 1000000
check "nobody is there" fails 1 "http://127.0.0.1:1: " \
    "$dra" generate --server http://127.0.0.1:1 --prompt a
check "what is no address" fails 2 "expected http://HOST:PORT" \
    "$dra" generate --server https://a --prompt a
check "a model and a server" fails 2 "--model: not with --server" \
    "$dra" chat --server "$url" --model m
check "an address for others needs a key" fails 2 "--api-key-file" \
    "$dra" serve --model m --host 0.0.0.0 --port 0
check "a chunk that is none" fails 2 "multiple of 64" "$dra" serve --model m --chunk 100 --port 0
check "a limit that is none" fails 2 "--memory-limit" "$dra" serve --model m --memory-limit 4X
check "a name that is none" fails 1 "expected NAME=DIR" "$dra" serve --model 'a b=m' --port 0
check "two models of one name" fails 1 "two models are called m" \
    "$dra" serve --model m --model m=m --port 0
kill -TERM $server
wait $server
ended=$?
server=
check "SIGTERM ends it" test "$ended" -eq 0
tap_end
