#!/bin/sh
# Writes the fixtures of this folder:
#   make.sh PATH_OF_DRA [PATH_OF_TEST_PRESETS]
# For each kind a run in the middle (a model folder with the checkpoint of step 3 of 6), a state
# after a prompt, and `expected`: what follows from both (kinds.sh). The plain level is used. The
# program model/test_presets then writes the lists of names and `machine`.
set -eu
dra=$(realpath "$1")
names=$(realpath "${2:-$(dirname "$dra")/tests/model/test_presets}")
fixtures=$(cd "$(dirname "$0")" && pwd)
. "$fixtures/kinds.sh"
DRA_CPU=ref
export DRA_CPU
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

small="--set dim=12 --set depth=2 --set heads=2 --set vocab=48 --set context=24"
dropouts="--set dropout=0.1 --set attention_dropout=0.1 --set embed_dropout=0.1"

# The run of a kind to its end, with a checkpoint after each three of its six steps.
train() {
    "$dra" train $data --out run --steps 6 --save-every 3 --batch 2 --context 24 --log-every 1 \
        --seed 7 "$@" 2>log || { cat log; exit 1; }
}

train_preset() {
    preset=$1
    shift
    train --preset "$preset-tiny" $small $dropouts "$@"
}

# hugging_face PRESET OPTIONS...: the folder hf, in the format of that model.
hugging_face() {
    preset=$1
    shift
    "$dra" init --preset "$preset-tiny" $small "$@" --out own --seed 5 >log
    "$dra" convert --from own --to hf --as hf >log 2>&1
}

train_kind() {
    slots="--set mixer.slots=4"
    case $1 in
    adr) train_preset adr --recompute ;;
    dra-delta) train_preset dra-delta --carry --chunk 8 ;;
    dra-ema) train_preset dra-ema --accumulate 2 ;;
    dra-slots) train_preset dra-slots $slots --carry --chunk 8 --state-dropout 0.1 ;;
    hybrid) train_preset hybrid --set mixer.b.slots=4 --blend-steps 5 ;;
    rwkv4) train_preset rwkv4 --carry --chunk 8 --rwkv-rates ;;
    hf-gpt2) hugging_face gpt2 $dropouts && train --model hf ;;
    hf-rwkv) hugging_face rwkv4 && train --model hf --state-dropout 0.1 ;; # the format has no dropout
    graft)
        hugging_face gpt2 $dropouts
        "$dra" convert --from hf --to grafted --memory gru >log 2>&1
        train --model grafted --blend-steps 5 --chunk 8
        ;;
    window)
        train_preset dra-gru --set mixer.retrieval=window --set mixer.window=10 --carry --chunk 8
        ;;
    post)
        train_preset dra-gru --set block.norm=post --set block.memory_residual=true \
            --set block.project=true --set ff.kind=swiglu --set ff.dim=20 --set norm=layer \
            --set bias=true
        ;;
    list)
        train --config "$fixtures/list.json" --aux-loss drift=0.1
        ;;
    *) train_preset "$1" ;;
    esac
}

# As if it had been killed after its third step.
cut_run() {
    rm -r run/train/step-00000006
    rm -f run/train/started.jsonl run/train/sources.jsonl # they name folders of this machine
    cp run/train/step-00000003/model.safetensors run/model.safetensors
}

for kind in $kinds; do
    rm -rf "${fixtures:?}/$kind" "$scratch"/*
    mkdir "$fixtures/$kind"
    train_kind "$kind"
    trained resume run >whole
    cut_run
    mv run "$fixtures/$kind/run"
    "$dra" forward --model "$fixtures/$kind/run" --tokens $prompt --out prompt --threads 1 \
        --state-out "$fixtures/$kind/state"
    follow "$kind" >expected 2>log || { cat log; exit 1; }
    grep '^resume' expected | cmp - whole
    mv expected "$fixtures/$kind/expected"
done

mkdir -p "$fixtures/lists"
cd "$fixtures/../../.."
"$names" write
"$names" machine >"$fixtures/machine"
