#!/bin/sh
# dra serve as a process: what it says, what it refuses, how it ends.
#   test_process.sh PATH_OF_DRA
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

fails() { # fails STATUS WORDS COMMAND...: with one line that has the words
    status=$1 words=$2 found=0
    shift 2
    "$@" >out 2>err || found=$?
    [ "$found" -eq "$status" ] && [ "$(wc -l <err)" -eq 1 ] && grep -qF -- "$words" err && return
    echo "status $found"
    cat err
    return 1
}

check "it says where it listens" test -n "$url"
check "clients are other programs" fails 2 "no such option: '--server'" \
    "$dra" generate --server "$url" --prompt a
check "an address for others needs a key" fails 2 "--api-key-file" \
    "$dra" serve --model m --host 0.0.0.0 --port 0
check "a chunk that is none" fails 2 "multiple of 64" "$dra" serve --model m --chunk 100 --port 0
check "a limit that is none" fails 2 "--memory-limit" "$dra" serve --model m --memory-limit 4X
check "a log that cannot be written" fails 1 "--log nowhere/log: No such file" \
    "$dra" serve --model m --log nowhere/log --port 0
check "guesses by nothing" fails 2 "--draft-tokens: expected --draft" \
    "$dra" serve --model m --draft-tokens 3 --port 0
check "a name that is none" fails 1 "expected NAME=DIR" "$dra" serve --model 'a b=m' --port 0
check "a model that is none" fails 1 "NOWHERE: no such folder or file" \
    "$dra" serve NOWHERE --port 0
check "two models of one name" fails 1 "two models are called m" \
    "$dra" serve --model m --model m=m --port 0
kill -TERM $server
wait $server
ended=$?
server=
check "SIGTERM ends it" test "$ended" -eq 0
tap_end
