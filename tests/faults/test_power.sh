#!/bin/sh
# Power losses: commands are recorded, and tried on every state of their files that a power loss may
# leave (disk.h has the model): a file is old or new; what was saved is never lost; training goes to
# the same end; what a command said it wrote is there.
#   test_power.sh PATH_OF_DRA
# With DRA_TEST_FULL=1 all states, else some of them. $POWER_ONLY=NAME tries one command.
set -u
here=$(cd "$(dirname "$0")" && pwd)

# ---- one state: the folder we are in, by the program `power`, as test_power.sh --check NAME ------

fail() {
    echo "$*"
    exit 1
}

# said ARGUMENTS...: dra ends with status 0, or 1 and one line.
said() {
    timeout 60 "$dra" "$@" >said.out 2>said.err
    code=$?
    [ "$code" -eq 0 ] || { [ "$code" -eq 1 ] && [ "$(wc -l <said.err)" -eq 1 ]; } ||
        fail "dra $*: status $code: $(cat said.err)"
    return "$code"
}

# does ARGUMENTS...: status 0.
does() { said "$@" || fail "dra $*: $(cat said.err)"; }

same() { # same FILE: as in the run that nothing happened to
    cmp -s "$1" "$want/$1" ||
        fail "$1 is not what it should be"
}

# What a log says, without times.
facts() {
    sed 's/"tokens_per_second":[^,]*,//; s/"seconds":[^,]*,//' "$1"
}

# The run shows itself and its model works, whatever of it is there.
opens() {
    said info --model run
    said report run
    [ ! -f run/model.safetensors ] || does eval --model run --data text
    [ ! -f run/best/model.safetensors ] || does eval --model run/best --data text
}

has_checkpoint() { [ -n "$(find run/train -maxdepth 1 -name 'step-*[0-9]' 2>/dev/null)" ]; }

ends_as_it_should() {
    same run/model.safetensors
    same run/best/model.safetensors
    facts run/log.jsonl >facts
    facts "$want/run/log.jsonl" | cmp -s - facts || fail "log.jsonl: $(cat facts)"
}

# What a run that has ended must show.
has_ended() {
    ends_as_it_should
    [ "$(cat run/events.* | wc -c)" = "$(cat "$want"/run/events.* | wc -c)" ] ||
        fail "an event file is cut"
}

# shellcheck disable=SC2086 # options are lists
check_train() {
    opens
    [ "$POWER_END" = 0 ] || has_ended
    if has_checkpoint; then
        does train --resume --out run $how
    else
        does train $start --out run
    fi
    ends_as_it_should
    left=$(find . -name '*.tmp')
    [ -z "$left" ] || fail "left over: $left"
}

check_resume() {
    has_checkpoint || fail "the checkpoints are lost"
    check_train
}

# is FILE OTHER: the bytes of another one.
is() { cmp -s "$1" "$2"; }

# Of the old run and the new one no parts are joined. What is left of the old may be refused.
# shellcheck disable=SC2086
check_force() {
    said eval --model run --data text && is run/config.json "$want/run/config.json" &&
        is run/model.safetensors old/model.safetensors && fail "the new config has old weights"
    said eval --model run/best --data text && is run/best/config.json "$want/run/config.json" &&
        is run/best/model.safetensors old/best/model.safetensors &&
        fail "the new config has old weights in best"
    is run/train/config.json "$want/run/train/config.json" && [ -d run/train/step-00000005 ] &&
        fail "the new run has a checkpoint of the old one"
    [ "$POWER_END" = 0 ] || ends_as_it_should
    does train $start --force --out run
    ends_as_it_should
}

check_state() {
    [ "$POWER_END" = 1 ] || cmp -s old new || same new
    [ "$POWER_END" = 0 ] || same new
    does generate --model model --state-in new --tokens 2
    [ "$POWER_END" = 0 ] || same first
    [ ! -f first ] || same first
}

# whole FOLDER COMMAND...: it is not there, or refused by a line, or whole; then it can be made.
whole() {
    folder=$1
    shift
    if said eval --model "$folder" --data text; then
        for file in $(cd "$want" && find "$folder" -type f); do same "$file"; done
        return
    fi
    [ "$POWER_END" = 0 ] || fail "$folder: $(cat said.err)"
    does "$@"
    for file in $(cd "$want" && find "$folder" -type f); do same "$file"; done
}

# shellcheck disable=SC2086
check_init() { whole new init $model --force --out new; }

# shellcheck disable=SC2086
check_again() {
    if said eval --model new --data text; then
        is new/config.json old/config.json && is new/model.safetensors old/model.safetensors &&
            [ "$POWER_END" = 0 ] && return
        same new/config.json
        same new/model.safetensors
    fi
    whole new init $model --force --out new
}

check_tokenizer() {
    [ ! -f new/tokenizer.json ] || same new/tokenizer.json
    [ "$POWER_END" = 0 ] || same new/tokenizer.json
    does tokenizer train --data text --vocab 270 --out new
    same new/tokenizer.json
}

check_plain() {
    case $(cat file) in
    new) ;;
    old) [ "$POWER_END" = 0 ] || fail "the old file" ;;
    *) fail "neither the old file nor the new one" ;;
    esac
}

check_convert() { whole other convert --from model --to other --dtype bf16; }

# ---- the commands --------------------------------------------------------------------------------

# shellcheck disable=SC2086
do_train() { "$dra" train $start --out run; }
# shellcheck disable=SC2086
do_resume() { "$dra" train --resume --out run $how; }
# shellcheck disable=SC2086
do_force() { "$dra" train $start --force --out run; }
# shellcheck disable=SC2086
do_init() { "$dra" init $model --out new; }
# shellcheck disable=SC2086
do_again() { "$dra" init $model --force --out new; }
do_unsynced() { echo new >other && mv other file; }
do_synced() { echo new >other && sync other && mv other file && sync .; }
do_tokenizer() { "$dra" tokenizer train --data text --vocab 270 --out new; }
do_convert() { "$dra" convert --from model --to other --dtype bf16; }
do_state() {
    "$dra" generate --seed 0 --model model --prompt "line 1" --tokens 3 --state-out new &&
        "$dra" generate --seed 0 --model model --prompt "line" --tokens 3 --state-out first
}

case $1 in
--do) "do_$2"; exit ;;
--check) "check_$2"; exit 0 ;;
esac

# ---- all of them ---------------------------------------------------------------------------------

dra=$1
case $dra in /*) ;; *) dra=$PWD/$dra ;; esac
tools=$(dirname "$dra")/tests/faults
# Syncs take most of the time where there is a disk.
[ -n "${TMPDIR:-}" ] || [ ! -w /dev/shm ] || export TMPDIR=/dev/shm
. "$here/../cli/process.sh"
want=$scratch/want
model="--preset dra-delta-tiny --set dim=16 --set heads=2 --set depth=1 --set vocab=280"
model="$model --tokenizer tok.json"
start="$model --data text --split 0.1 --batch 2 --context 16 --save-every 1 --carry"
how="--sample-tokens 4 --cache cache --tensorboard --threads 1" # which a run does not keep
base="$start --sample-every 2 --eval-every 2 $how"
start="$base --steps 4 --keep 2"
export dra want model how start
box=$scratch/box
states=$scratch/states

# What all start with.
prepare() {
    mkdir "$scratch/base" && cd "$scratch/base" || return 1
    awk 'BEGIN { while (i++ < 60) print "line", i, "of a text that says little,", i * i % 97 }' \
        >text
    # shellcheck disable=SC2086
    run 0 tokenizer train --data text --vocab 280 --out tok.json && run 0 init $model --out model
}

# before NAME: what a command finds in the box.
before() {
    case $1 in
    resume) # a run that stopped after its second step
        # shellcheck disable=SC2086
        "$dra" train $base --steps 4 --keep 9 --out run && rm -r run/train/step-0000000[34] ;;
    force) # another run
        # shellcheck disable=SC2086
        "$dra" train $base --seed 7 --set norm_eps=0.001 --steps 5 --keep 2 --out run &&
            cp -r run old ;;
    again) # another model
        # shellcheck disable=SC2086
        "$dra" init $model --set norm_eps=0.001 --seed 7 --out new && cp -r new old ;;
    state)
        "$dra" generate --model model --prompt "another" --tokens 3 --state-out new && cp new old ;;
    esac
}

# tried NAME STATES: records a command, and tries that many states.
tried() {
    rm -rf "$box" "$want" "$states"
    mkdir "$states" && cp -r "$scratch/base" "$box" && cd "$box" || return 1
    before "$1" </dev/null >"$out" 2>&1 || { cat "$out"; return 1; }
    cp -r . "$want" && cd "$want" && "do_$1" </dev/null >"$out" 2>&1 || { cat "$out"; return 1; }
    cd "$box" && timeout 60 "$tools/record" . "$scratch/recording" sh "$here/test_power.sh" \
        --do "$1" </dev/null >"$out" 2>&1 || { cat "$out"; return 1; }
    some="-n $2"
    [ -z "${DRA_TEST_FULL:-}" ] || some='-a 48'
    # shellcheck disable=SC2086
    "$tools/power" $some "$scratch/recording" "$states" \
        sh "$here/test_power.sh" --check "$1" >"$scratch/$1"
    status=$?
    cat "$scratch/$1"
    return "$status"
}

try() { # try NAME STATES WHAT
    case ${POWER_ONLY:-$1} in "$1") ;; *) return ;; esac
    check "$3" tried "$1" "$2"
    sed -n "\$s/^#/# $1:/p" "$scratch/$1"
}

can_record() {
    mkdir "$scratch/none"
    "$tools/record" "$scratch/none" "$scratch/recording" true
}

check "prepares" prepare
if ! can_record 2>"$err"; then
    skip "power losses" "$(cat "$err")"
    tap_end
    exit
fi
# The tools themselves: a rename without syncs is found, the same with syncs is not.
plain() { # plain STATUS NAME
    rm -rf "$box" "$states"
    mkdir "$box" "$states" && cd "$box" && echo old >file || return 1
    timeout 60 "$tools/record" . "$scratch/recording" sh "$here/test_power.sh" --do "$2" || return 1
    "$tools/power" -a 1000 "$scratch/recording" "$states" \
        sh "$here/test_power.sh" --check plain
    status=$?
    [ "$status" -eq "$1" ] || { echo "status $status, expected $1"; return 1; }
}
check "finds a rename that is not synced" plain 1 unsynced
check "finds nothing where it is" plain 0 synced

try train 60 "a run that is interrupted resumes with the same bits"
try resume 40 "a run that is resumed, too"
try force 20 "a run over another run is the one or the other"
try init 30 "a new model is whole or refused"
try again 30 "over another model it is the one or the other, or refused"
try convert 20 "a converted model, too"
try tokenizer 10 "and a tokenizer"
try state 20 "a state is the old one or the new one"
tap_end
