# shellcheck shell=sh
# The fixtures and what is done with them. make.sh sources this to write them and what is to come of
# them, tests/cli/test_presets.sh to do the same again. $dra is the command line, $fixtures this
# folder; $names the program model/test_presets; results are lines "WHAT VALUE" on stdout, files go
# to the current folder.
# shellcheck disable=SC2034,SC2154,SC2086 # of the two that source this; lists of options

kinds="adr dra-delta dra-ema dra-gru dra-moment dra-pooled dra-slot-gru dra-slots gpt2 hybrid
    retention rwkv4 hf-gpt2 hf-rwkv graft window post list"

data="--data $fixtures/tokens.safetensors --tokenizer none --threads 1"
prompt=5,17,40,2,2,31,8,44,19,0,26,13
more=7,3,41,0,22

# sum FILE: of its tensors, without its hash and the fingerprint of the model.
sum() {
    "$names" bare "$1" bare >&2 && sha256sum <bare | cut -c 1-32
}

# Not every model has any.
attentions() {
    if "$dra" forward $at --tokens $prompt --out maps --outputs attentions 2>said; then
        sum maps
    else
        echo none
    fi
}

# A state after the prompt, and what a model does next: all its outputs, its state, its tokens.
read_on() {
    at="--model $fixtures/$1/run --threads 1"
    "$dra" forward $at --tokens $prompt --out prompt --state-out start &&
        "$dra" forward $at --tokens $more --state-in "$fixtures/$1/state" --out logits \
            --state-out end &&
        "$dra" forward $at --tokens $more --state-in "$fixtures/$1/state" --out inside \
            --outputs hidden,streams,branches &&
        tokens=$("$dra" generate $at --state-in "$fixtures/$1/state" --prompt-tokens $more \
            --tokens 24 --seed 3) || return 1
    echo "prompt.logits $(sum prompt)"
    echo "prompt.state $(sum start)"
    echo "logits $(sum logits)"
    echo "state $(sum end)"
    echo "hidden,streams,branches $(sum inside)"
    echo "attentions $(attentions)"
    echo "generated $tokens"
}

# The first weights, and the config as it is written.
draw() {
    "$dra" init --config "$fixtures/$1/run/config.json" --out drawn --seed 2 --threads 1 >said &&
        echo "drawn $(sum drawn/model.safetensors)" &&
        cmp "$fixtures/$1/run/config.json" drawn/config.json >&2 && echo "config kept"
}

# losses WHAT RUN: a line for each step.
losses() {
    sed -n "s/^{\"step\":\([0-9]*\),\"loss\":\([0-9.e+-]*\),.*/$1.loss.\1 \2/p" "$2/log.jsonl"
}

# trained WHAT RUN: its losses, weights, moments and, where they are carried, states.
trained() {
    losses "$1" "$2"
    echo "$1.weights $(sum "$2/model.safetensors")"
    last=$(echo "$2"/train/step-*)
    for part in optimizer states; do
        file=${last##* }/$part.safetensors
        [ ! -f "$file" ] || echo "$1.$part $(sum "$file")"
    done
}

resume() {
    cp -R "$fixtures/$1/run" resumed && "$dra" train $data --out resumed --resume && trained resume \
        resumed
}

# train_on KIND WHAT OPTIONS...: two steps from the weights of a fixture.
train_on() {
    from=$fixtures/$1/run
    what=$2
    shift 2
    "$dra" train --model "$from" $data --out "$what" --steps 2 --batch 4 --context 24 --log-every 1 \
        --seed 11 "$@" && trained "$what" "$what"
}

# follow KIND: all of this.
follow() {
    draw "$1" && read_on "$1" && resume "$1" && train_on "$1" chunk --chunk 7 &&
        train_on "$1" accumulate --accumulate 2 --recompute
}
