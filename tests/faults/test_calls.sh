#!/bin/sh
# System calls that fail, and kills between them: after each fault every file is the old one or the
# new one, a line says what failed, and the next start makes up for it with the same bits.
#   test_calls.sh PATH_OF_DRA        DRA_TEST_FULL=1: every fault at every call, else some of them
# DRA_FAULT_ONLY=REGEX picks commands by their name.
set -u
dra=$(cd "$(dirname "$1")" && pwd)/dra
calls=$(dirname "$dra")/tests/faults/calls
. "$(dirname "$0")/../tap.sh"
data=$(cd "$(dirname "$0")/../data" && pwd) || exit 1
# Files in memory: what is slow here is waiting for a disk.
scratch=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
export dra scratch

# every NAME MOST FAULTS FROM CHECK COMMAND...: a loop, in whole or in part, as one test.
every() {
    name=$1
    most=$2
    faults=$3
    from=$4
    look=$5
    shift 5
    echo "$name" | grep -Eq "${DRA_FAULT_ONLY:-.}" || return 0
    [ -z "${DRA_TEST_FULL:-}" ] || most=0
    check "$name: any call may fail" "$calls" --loop "$name" --from "$from" --work work \
        --check "$look" --faults "$faults" --most "$most" "$@"
    printf '%s\n' "$tap_said" | sed -n '/ calls, /p'
}

all='ENOSPC EIO EACCES EINTR EMFILE kill-before kill-after'

"$calls" --probe
status=$?
if [ "$status" -ne 0 ]; then
    skip "system calls that fail" "ptrace is not permitted here"
    tap_end
    exit
fi

awk 'BEGIN { while (i++ < 60) print "line", i, "of a text that says little,", i * i % 97 }' >text
export text="$scratch/text"
small='--preset dra-gru-tiny --set dim=8 --set heads=1 --set depth=1'
long="train $small --data $text --out r --steps 4 --batch 2 --context 8 --save-every 2
    --log-every 1 --split 0.1 --eval-every 2 --threads 1 --tensorboard"
train="$long --keep 1"
export train

# ---- what is expected -------------------------------------------------------------------------

mkdir fresh
cp -a fresh whole
(cd whole && "$dra" $train) >out 2>err || { cat err; exit 1; }
cp -a fresh half
(cd half && "$dra" $long --keep 2) >out 2>err || { cat err; exit 1; }
rm -r half/r/train/step-00000004 half/r/events*

# A run that has ended, in whatever way, started again: the bytes of one that was never stopped,
# the steps each once in the log, as many checkpoints as it keeps, and nothing temporary.
cat >resumed <<'END'
again() { "$dra" $train --resume >../again.out 2>../again.err || { cat ../again.err; exit 1; }; }
steps() { sed -n 's/^\({"step":[0-9]*,"loss":[0-9.]*\),.*/\1/p' "$1/r/log.jsonl"; }
[ "$STATUS" = 0 ] && [ "$FAULT" = EINTR ] || again
find . -name '*.tmp' | grep . && exit 1
[ "$(ls -d r/train/step-* | wc -l)" -eq 1 ] || { ls r/train; exit 1; }
for f in model.safetensors best/model.safetensors config.json \
    train/step-00000004/optimizer.safetensors train/step-00000004/model.safetensors; do
    cmp "../whole/r/$f" "r/$f" || exit 1
done
[ "$(steps .)" = "$(steps ../whole)" ] || { steps .; exit 1; }
END
export resumed="$scratch/resumed"

every train 40 "$all" fresh '. "$resumed"' "$dra" $train
every resume 25 "$all" half '. "$resumed"' "$dra" $train --resume

# ---- other verbs ------------------------------------------------------------------------------

# settled FILE OLD NEW: it is one of both, whole; after status 0 the new one.
cat >functions <<'END'
settled() {
    [ "$STATUS" = 0 ] && { cmp "$1" "$3"; return; }
    cmp -s "$1" "$2" || cmp "$1" "$3"
}
clean() { ! find . -name '*.tmp' | grep .; } # nothing temporary, hidden or not
END
export functions="$scratch/functions"

# A model, a text and a state of it; what the verbs below make of them.
mkdir before made
(
    cd before && "$dra" init $small --out m --seed 3 &&
        "$dra" generate --seed 0 --model m --prompt Once --tokens 5 --threads 1 --state-out s &&
        cp -a ../whole/r . && echo old >page
) >out 2>err || { cat err; exit 1; }
init="init $small --seed 4 --out m --force"
convert="convert --from m --to new"
report="report r --out page"
state="generate --model m --state-in s --state-out s --tokens 6 --seed 2 --threads 1"
cache="train $small --set vocab=924 --tokenizer $data/bpe/tokenizer.json --data $text --steps 1
    --out c --batch 2 --context 8 --threads 1 --cache tokens"
export init convert report state cache
cp -a before/. made
(
    cd made || exit 1
    "$dra" $cache && "$dra" $convert && "$dra" $report && "$dra" $state && "$dra" $init
) >out 2>err || { cat err; exit 1; }

every convert 25 "$all" before '. "$functions"
    [ "$STATUS" = 0 ] || [ ! -e new ] || diff -r new ../made/new || exit 1
    [ -e new ] || "$dra" $convert >../again.out || exit 1
    diff -r new ../made/new && clean' "$dra" $convert
# Of the files of a model one goes after the other: the old model, the new one, or none.
every init 25 "$all" before '. "$functions"
    [ "$STATUS" != 0 ] || diff -r -x ".*" m ../made/m || exit 1
    [ ! -e m/config.json ] || diff -r -x ".*" m ../before/m || diff -r -x ".*" m ../made/m || exit 1
    [ "$STATUS" = 0 ] && clean || "$dra" $init >../again.out || exit 1
    diff -r m ../made/m && clean' "$dra" $init
every report 25 "$all" before '. "$functions"
    settled page ../before/page ../made/page || exit 1
    [ "$STATUS" = 0 ] || "$dra" $report >../again.out || exit 1
    cmp page ../made/page && clean' "$dra" $report
every state 25 "$all" before '. "$functions"
    settled s ../before/s ../made/s || exit 1
    cmp -s s ../made/s || "$dra" $state >../again.out || exit 1
    cmp s ../made/s && clean' "$dra" $state
every cache 20 "$all" before '. "$functions"
    for f in $(ls tokens 2>/dev/null | grep -v "[.]tmp$"); do
        cmp "tokens/$f" "../made/tokens/$f" || exit 1
    done
    [ "$STATUS" = 0 ] || "$dra" $cache --resume >../again.out 2>&1 || { cat ../again.out; exit 1; }
    diff -r tokens ../made/tokens && cmp c/model.safetensors ../made/c/model.safetensors &&
        clean' "$dra" $cache

# ---- blocks, GGUF and a server -------------------------------------------------------------------

(
    cd before && "$dra" init --preset gpt2-tiny --set dim=32 --set heads=2 --set depth=1 \
        --set context=16 --out wide --seed 3
) >out 2>err || { cat err; exit 1; }
quantise="convert --from wide --to blocks --quantise q8_0 --threads 1"
gguf="convert --from wide --to x.gguf --quantise q4_0 --threads 1"
export quantise gguf
cp -a before/wide made
(cd made && "$dra" $quantise && "$dra" $gguf) >out 2>err || { cat err; exit 1; }
every quantise 20 "$all" before '. "$functions"
    [ "$STATUS" = 0 ] || [ ! -e blocks ] || diff -r blocks ../made/blocks || exit 1
    [ -e blocks ] || "$dra" $quantise >../again.out || exit 1
    diff -r blocks ../made/blocks && clean' "$dra" $quantise
every gguf 20 "$all" before '. "$functions"
    [ "$STATUS" = 0 ] || [ ! -e x.gguf ] || cmp x.gguf ../made/x.gguf || exit 1
    # What a kill after the last rename leaves goes when the file is written again.
    [ "$STATUS" != killed ] || rm -f x.gguf
    [ -e x.gguf ] || "$dra" $gguf >../again.out || exit 1
    cmp x.gguf ../made/x.gguf && clean' "$dra" $gguf

# served: requests to a server whose calls fail; states are files that are old or new.
serves() {
    mkdir -p serving && cp -r before/m serving/m || return 1
    [ -z "${DRA_TEST_FULL:-}" ] && most=6 || most=0
    said=$(cd serving && "$(dirname "$calls")/served" calls "$most" "$calls" "$dra" m)
    status=$?
    printf '%s\n' "$said"
    return $status
}
if [ -x "$(dirname "$calls")/served" ] && echo serve | grep -Eq "${DRA_FAULT_ONLY:-.}"; then
    check "serve: any call may fail" serves
    printf '%s\n' "$tap_said" | sed -n 's/\(.* calls, \)/# serve: \1/p'
fi

# ---- what is read by streams, and a sweep --------------------------------------------------------

printf '{"prompt": "Once"}\n{"prompt": "Twice", "seed": 3}\n' >before/prompts.jsonl
every prompts 20 "$all" before : "$dra" generate --model m --prompts prompts.jsonl --tokens 3 \
    --seed 0 --threads 1
gzip -c text >before/text.gz
every tokenize 20 "$all" before : "$dra" tokenize --tokenizer "$data/bpe/tokenizer.json" \
    --file text.gz
sweep="sweep $small --data $text --split 0.1 --steps 1 --batch 2 --context 8 --threads 1
    --set lr=0.001,0.002 --out all"
export sweep
(cd made && "$dra" $sweep) >out 2>err || { cat err; exit 1; }
every sweep 20 EINTR before '. "$functions"
    cmp all/done.jsonl ../made/all/done.jsonl && clean || exit 1
    for f in lr=0.001 lr=0.002; do
        cmp "all/$f/model.safetensors" "../made/all/$f/model.safetensors" || exit 1
    done' "$dra" $sweep

tap_end
