#!/bin/sh
# Folders that are moved, shared or limited while a command writes there.
#   test_folders.sh PATH_OF_DRA
set -u
dra=$(cd "$(dirname "$1")" && pwd)/dra
. "$(dirname "$0")/../tap.sh"
scratch=$(mktemp -d) || exit 1
jobs=
trap 'for job in $jobs; do kill -KILL "$job" 2>/dev/null; done; rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

awk 'BEGIN { while (i++ < 60) print "line", i, "of a text that says little,", i * i % 97 }' >text
small='--preset dra-gru-tiny --set dim=8 --set heads=1 --set depth=1'

# start NAME RUN STEPS OPTIONS...: trains in the background; $job, NAME.err
start() {
    name=$1
    out=$2
    steps=$3
    shift 3
    timeout --foreground 60 "$dra" train $small --data text --out "$out" --steps "$steps" \
        --batch 2 --context 8 --save-every 20 --log-every 20 --sample-every 0 --threads 1 "$@" \
        >"$name.out" 2>"$name.err" </dev/null &
    job=$!
    jobs="$jobs $job"
}

# until COMMAND...: waits until it succeeds, 20 s at most.
until_true() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 400 ] || { echo "waited in vain: $*"; return 1; }
        sleep 0.05
    done
}

# finish JOB STATUS
finish() {
    status=0
    wait "$1" || status=$?
    [ "$status" -eq "$2" ] || { echo "status $status, expected $2"; return 1; }
}

has_checkpoint() { ls "$1" | grep -q '^step-[0-9]*$'; }
one_line_of() { # FILE TEXT
    [ "$(grep -c '^dra' "$1")" -eq 1 ] && grep -qF -e "$2" "$1" || { cat "$1"; return 1; }
}

# A is moved away while it trains, B starts in its place: A ends and B loses nothing.
moved_run_ends() {
    rm -rf r5 r6
    start a r5 1000000
    a=$job
    until_true has_checkpoint r5/train || return 1
    mv r5 r6
    start b r5 400
    b=$job
    finish "$a" 1 && finish "$b" 0 || { cat a.err b.err; return 1; }
    one_line_of a.err 'r5: was moved or replaced while this run used it' || return 1
    start whole r7 400
    finish "$job" 0 && cmp r5/model.safetensors r7/model.safetensors &&
        [ "$(ls r5/train)" = "$(ls r7/train)" ] && [ "$(wc -l <r5/log.jsonl)" -eq 20 ] &&
        ! find r5 r6 -name '*.tmp' | grep . || return 1
    # What was moved is whole and can be resumed where it is now.
    at=$(ls r6/train | sed -n 's/^step-0*//p' | tail -1)
    "$dra" train --resume --out r6 --steps $((at + 20)) --force </dev/null >out 2>err ||
        { cat err; return 1; }
}

# The folder train alone, and a folder that is gone.
replaced_run_ends() {
    rm -rf r5 r6
    start a r5 1000000
    until_true has_checkpoint r5/train || return 1
    mv r5/train old-train && mkdir r5/train && echo mine >r5/train/note
    finish "$job" 1 && one_line_of a.err 'r5/train: was moved or replaced' || return 1
    [ "$(ls r5/train)" = note ] || { ls r5/train; return 1; }
    start a r8 1000000
    until_true has_checkpoint r8/train || return 1
    mv r8 r9
    finish "$job" 1 && one_line_of a.err 'r8: was moved or replaced' && [ ! -e r8 ]
}

# Three at the same time in a folder: one trains, and the others are told why they do not.
one_of_three() {
    for round in 1 2 3 4 5; do
        rm -rf race
        trio=
        for i in 1 2 3; do
            start "race$i" race 1000000
            trio="$trio $job"
        done
        until_true two_lost || { cat race?.err; return 1; }
        has_checkpoint race/train || until_true has_checkpoint race/train || return 1
        lost=0
        i=0
        for job in $trio; do
            i=$((i + 1))
            if grep -q 'another process is training' "race$i.err"; then
                finish "$job" 1 || return 1
                lost=$((lost + 1))
                continue
            fi
            kill -TERM "$job"
            wait "$job"
            until_true grep 'stopped and saved' "race$i.err" || { cat "race$i.err"; return 1; }
        done
        [ "$lost" -eq 2 ] || { cat race?.err; return 1; }
    done
}
two_lost() {
    [ "$(cat race?.err | grep -cxF 'dra: another process is training in race')" -eq 2 ]
}

# A limit on file sizes is an error, and nothing temporary is left of it.
limited() {
    for limit in 4 16 32; do # of 512 bytes; messages fit
        rm -rf l
        status=0
        (ulimit -f "$limit" && exec "$dra" train $small --data text --out l --steps 40 --batch 2 \
            --context 8 --save-every 2 --log-every 1 --threads 1) >out 2>err </dev/null || status=$?
        [ "$status" -eq 1 ] || { echo "status $status"; return 1; }
        one_line_of err 'File too large' || return 1
        ! find l -name '*.tmp' | grep . || return 1
    done
    "$dra" train $small --data text --out l --steps 40 --batch 2 --context 8 --save-every 2 \
        --log-every 1 --threads 1 --resume >out 2>err </dev/null || { cat err; return 1; }
}

# A run that was killed between its last checkpoint and the removal of an older one.
keeps_as_many() {
    rm -rf k
    for keep in 3 1; do
        "$dra" train $small --data text --out k --steps 4 --batch 2 --context 8 --save-every 1 \
            --keep $keep --threads 1 --resume >out 2>err </dev/null || { cat err; return 1; }
        [ "$(ls k/train | grep -c '^step-')" -eq $keep ] || { ls k/train; return 1; }
    done
}

# What a process left that was killed at its first write goes at the next start.
leftovers_go() {
    rm -rf k
    mkdir -p k/train
    echo part >k/train/config.json.4711-0.tmp
    "$dra" train $small --data text --out k --steps 1 --batch 2 --context 8 --threads 1 \
        >out 2>err </dev/null || { cat err; return 1; }
    ! find k -name '*.tmp' | grep .
}

# A state is replaced only after its text has arrived.
state_stays() {
    "$dra" init $small --out m >out 2>err && "$dra" generate --model m --prompt Once --tokens 5 \
        --state-out s >out 2>err </dev/null || { cat err; return 1; }
    cp s s.before
    for how in '--tokens 6' '--tokens 6 --json' '--tokens 6 --count 1 --beam 2'; do
        status=0
        timeout 20 "$dra" generate --model m --state-in s --state-out s $how \
            >/dev/full 2>err </dev/null || status=$?
        [ "$status" -eq 1 ] && cmp s s.before && one_line_of err 'stdout: cannot write' || return 1
    done
    status=0
    printf 'more\n' | timeout 20 "$dra" chat --model m --tokens 6 --state-in s --state-out s \
        >/dev/full 2>err || status=$?
    [ "$status" -eq 1 ] && cmp s s.before && one_line_of err 'stdout: cannot write' || return 1
    "$dra" generate --model m --state-in s --state-out s --tokens 6 >out 2>err </dev/null &&
        ! cmp -s s s.before
}

check "a run whose folder is moved ends, and the one in its place loses nothing" moved_run_ends
check "a run whose folder is replaced ends" replaced_run_ends
check "one of three that start in a folder trains, the others say why not" one_of_three
check "a limit on file sizes is an error, without leftovers" limited
check "a run has as many checkpoints as it keeps when it is started again" keeps_as_many
check "what a killed process left is gone after the next start" leftovers_go
check "a state file is replaced only after the output has arrived" state_stays
tap_end
