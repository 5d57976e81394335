#!/bin/sh
# dra train as several ranks, by mpirun: the bits of one, what is refused, and what ends them.
#   test_ranks.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1
unset DRA_DEVICE DRA_PLUGIN_PATH
# Ranks that wait would keep the cores of a busy machine from those that compute.
export OMPI_MCA_mpi_yield_when_idle=1

seq 400 | sed 's/.*/line & of a book about nothing in particular, with the number &/' >book.txt
model="--preset dra-gru-tiny --set dim=32 --set heads=2 --set depth=1 --context 32"
settings="--data book.txt --batch 8 --sample-every 0 --seed 3"
root=
[ "$(id -u)" -ne 0 ] || root=--allow-run-as-root

torchrun_is_told_of_mpirun() {
    # shellcheck disable=SC2086 # lists of words
    TORCHELASTIC_RUN_ID=1 RANK=0 WORLD_SIZE=4 failed "expected MPI: mpirun -np 4 dra train" \
        train $model $settings --out torchrun && [ ! -e torchrun ]
}

one_rank_is_misused() {
    misused "dra train: --ranks: expected a whole number from 2 to 1024, found '1'" \
        train --ranks 1 --out one
}

# A copy elsewhere has no plugin beside its library.
missing_plugin_is_named() {
    mkdir -p bare && cp "$dra" bare/ && cp "$(dirname "$dra")"/libdra.so* bare/ || return 1
    # shellcheck disable=SC2086
    (dra=$scratch/bare/dra LD_LIBRARY_PATH=$scratch/bare &&
        export LD_LIBRARY_PATH &&
        failed "ranks 'mpi': no libdra-mpi.so in DRA_PLUGIN_PATH, beside libdra or in " \
            train $model $settings --out bare.run --ranks 2 &&
        answers devices && grep -q "^no ranks: ranks 'mpi': no libdra-mpi.so" "$out") &&
        [ ! -e bare.run ]
}

check torchrun torchrun_is_told_of_mpirun
check one_rank one_rank_is_misused
check missing_plugin missing_plugin_is_named

reason=
command -v mpirun >/dev/null 2>&1 || reason="no mpirun (Debian: openmpi-bin)"
[ -n "$reason" ] || "$dra" devices | grep -q '^ranks: ' || reason="this build has no libdra-mpi.so"
if [ -n "$reason" ]; then
    skip ranks "$reason"
    tap_end
    exit
fi

# train_on RANKS FOLDER OPTIONS...
train_on() {
    n=$1
    folder=$2
    shift 2
    # shellcheck disable=SC2086
    run 0 train $model $settings --out "$folder" --ranks "$n" "$@"
}

same_step() { # same_step FOLDER FOLDER STEP
    for file in model optimizer; do
        cmp "$1/train/step-$3/$file.safetensors" "$2/train/step-$3/$file.safetensors" || return 1
    done
}

ranks_have_the_bits_of_one() {
    # shellcheck disable=SC2086
    run 0 train $model $settings --out alone --accumulate 8 --steps 6 --split 0.1 || return 1
    for n in 2 4; do
        train_on $n "on.$n" --accumulate 8 --steps 6 --split 0.1 &&
            has "$err" "ranks    $n, for 8 microbatches" "done: the model is in on.$n" &&
            [ "$(grep -c '^done' "$err")" -eq 1 ] && same_step alone "on.$n" 00000006 &&
            cmp alone/best/model.safetensors "on.$n/best/model.safetensors" || return 1
    done
}

mpirun_starts_them_too() {
    # shellcheck disable=SC2086
    mpirun $root --oversubscribe -np 3 "$dra" train $model $settings --out by.mpirun \
        --accumulate 8 --steps 6 --split 0.1 --json >"$out" 2>"$err" </dev/null &&
        is_json "$out" && one_line "$out" && same_step alone by.mpirun 00000006
}

other_numbers_of_ranks_go_on() {
    train_on 2 parts --accumulate 8 --steps 3 --split 0.1 --schedule-end 6 --warmup 1 &&
        run 0 train --resume --out parts --steps 5 --ranks 3 &&
        run 0 train --resume --out parts --steps 6 &&
        # shellcheck disable=SC2086
        run 0 train $model $settings --out whole --accumulate 8 --steps 6 --split 0.1 \
            --schedule-end 6 --warmup 1 && same_step whole parts 00000006
}

more_ranks_than_microbatches() {
    # shellcheck disable=SC2086
    failed "4 ranks, but accumulate is 2: each needs a microbatch of its own" \
        train $model $settings --out more --accumulate 2 --ranks 4 && [ ! -e more ]
}

what_one_rank_meets_is_said_once() {
    # shellcheck disable=SC2086
    failed "missing.txt: cannot open it" \
        train $model --data missing.txt --batch 8 --out missing --ranks 3 && [ ! -e missing ] &&
        misused "dra train: --lr: expected a number from 0 to 100, found 'x'" \
            train $model $settings --out misused --ranks 2 --lr x
}

# differ TEXT COMMAND...: rank 0 and another command as rank 1.
differ() {
    text=$1
    shift
    # shellcheck disable=SC2086
    ! mpirun $root --oversubscribe -np 1 "$dra" train $model $settings --out differ : \
        -np 1 "$@" >"$out" 2>"$err" </dev/null && [ ! -e differ ] &&
        [ "$(grep -c '^dra: ' "$err")" -eq 1 ] && has "$err" "dra: $text"
}

different_ranks_are_refused() {
    sed 's/book/look/' book.txt >look.txt
    # shellcheck disable=SC2086
    differ "rank 1: its settings are not that of rank 0" \
        "$dra" train $model $settings --out differ --lr 0.5 &&
        differ "rank 1: its data is not that of rank 0" \
            "$dra" train $model --data look.txt --batch 8 --sample-every 0 --seed 3 --out differ &&
        differ "rank 1: look.tzt: cannot open it" \
            "$dra" train $model --data look.tzt --batch 8 --sample-every 0 --seed 3 --out differ ||
        return 1
    # The double build has no other level.
    "$dra" devices | grep -q '^cpu  *ref ' ||
        differ "rank 1: its level of kernels is ref, expected that of rank 0" \
            env DRA_CPU=ref "$dra" train $model $settings --out differ
}

a_world_of_one_is_refused() {
    # shellcheck disable=SC2086
    ! mpirun $root -np 1 "$dra" train $model $settings --out world >"$out" 2>"$err" </dev/null &&
        has "$err" "dra: ranks: MPI knows of one rank, expected 2 or more" && [ ! -e world ]
}

# ---- ends ---------------------------------------------------------------------------------------

# rank_of NUMBER: the process of a rank of the long run, a child of its launcher.
rank_of() {
    for launcher in $(cat "/proc/$begun/task/$begun/children"); do
        for process in $(cat "/proc/$launcher/task/$launcher/children"); do
            tr '\0' '\n' <"/proc/$process/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1" &&
                echo "$process" && return 0
        done
    done
    return 1
}

# begin_long FOLDER STEPS: until the run has a checkpoint; its process is $begun.
begin_long() {
    # shellcheck disable=SC2086
    "$dra" train $model $settings --accumulate 8 --steps "$2" --save-every 100 --out "$1" \
        --ranks 3 >"$out" 2>"$err" &
    begun=$!
    tries=0
    until ls "$1/train" 2>/dev/null | grep -q '^step-[0-9]*$'; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] && kill -0 "$begun" 2>/dev/null || { cat "$err"; return 1; }
        sleep 0.1
    done
}

ends_with() { # ends_with STATUS: the long run, within seconds
    expected=$1
    tries=0
    while kill -0 "$begun" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || { echo "it goes on"; kill -9 "$begun"; return 1; }
        sleep 0.1
    done
    status=0
    wait "$begun" || status=$?
    [ "$status" -eq "$expected" ] || { echo "status $status"; cat "$err"; return 1; }
}

ends_too() { # ends_too PROCESS: within seconds
    tries=0
    while [ -e "/proc/$1" ] && ! grep -q '^State:.*Z' "/proc/$1/status" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || { echo "process $1 goes on"; return 1; }
        sleep 0.1
    done
}

killed_rank_ends_all() {
    # shellcheck disable=SC2086
    run 0 train $model $settings --accumulate 8 --steps 1200 --save-every 100 --out unharmed ||
        return 1
    for rank in 0 1 2; do
        begin_long "killed.$rank" 1200 && other=$(rank_of $(((rank + 1) % 3))) &&
            kill -9 "$(rank_of $rank)" && ends_with 1 &&
            [ "$(grep -c '^dra: ' "$err")" -eq 1 ] &&
            has "$err" "dra: rank $rank was ended by signal 9, and all others with it" &&
            ends_too "$other" &&
            run 0 train --resume --out "killed.$rank" --ranks 2 &&
            same_step unharmed "killed.$rank" 00001200 || return 1
    done
}

hanging_rank_is_named() {
    DRA_RANKS_TIMEOUT=2
    export DRA_RANKS_TIMEOUT
    begin_long hangs 100000 && hung=$(rank_of 2) && kill -STOP "$hung" && ends_with 1 &&
        has "$err" "dra: rank 2 does not answer: the others wait since 2 seconds" &&
        [ "$(grep -c '^dra: ' "$err")" -eq 1 ] && ends_too "$hung"
    status=$?
    unset DRA_RANKS_TIMEOUT
    return $status
}

signal_saves() {
    begin_long saved 100000 && kill -INT "$begun" && ends_with 0 &&
        has "$err" "stopped and saved at step "
}

check same_bits ranks_have_the_bits_of_one
check mpirun mpirun_starts_them_too
check resume other_numbers_of_ranks_go_on
check more_ranks more_ranks_than_microbatches
check said_once what_one_rank_meets_is_said_once
check different different_ranks_are_refused
check world_of_one a_world_of_one_is_refused
check killed killed_rank_ends_all
check hanging hanging_rank_is_named
check signal signal_saves
tap_end
