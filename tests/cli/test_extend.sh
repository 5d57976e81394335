#!/bin/sh
# dra extend: losses by position before and after training with carried states. They are those of
# dra eval, and the training is that of dra train --carry.
#   test_extend.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1
common="--threads 1 --length 2048"

for i in $(seq 1 200); do echo "row $((i % 9)) says hello to cat $((i * 3 % 7)) and $i"; done >text
for i in $(seq 1 90); do echo "row $((i % 7)) says hello to cat $((i * 5 % 7)) and $i"; done >other

makes_a_model() {
    cat >mamba.json <<'END'
{"model_type": "mamba2", "vocab_size": 256, "hidden_size": 32, "num_hidden_layers": 2,
 "num_heads": 8, "head_dim": 8, "state_size": 16, "n_groups": 2, "expand": 2, "conv_kernel": 4}
END
    run 0 init --config mamba.json --seed 5 --out mamba &&
        run 0 train --model mamba --data text --steps 10 --batch 4 --context 32 --lr 0.01 \
            --threads 1 --seed 3 --sample-every 0 --out short
}

extends() {
    cksum short/config.json short/model.safetensors >before
    run 0 extend --model short --data text --eval-data other $common --steps 20 --batch 4 \
        --context 32 --lr 0.003 --seed 7 --out long --json && cp "$out" answer &&
        cmp answer long/extend.json && is_json answer >/dev/null || return 1
    cksum short/config.json short/model.safetensors | cmp - before || return 1
    tr '{' '\n' <answer | awk -F'[:,} ]+' '
        /position"/ && $2 >= 64 && $4 >= 64 { n++; better += $8 < $6 }
        END { print n, better; exit !(n >= 5 && better == n) }'
}

# losses MODEL: those of dra eval, one for each position.
losses() {
    run 0 eval --model "$1" --data other --context 2048 --by-position --json --threads 1 &&
        tr '{' '\n' <"$out" | sed -n 's/.*"position.*"loss": \([0-9.]*\).*/\1/p' >"$1.losses"
}

is_eval_and_train() {
    losses short && losses long &&
        tr '{' '\n' <answer | sed -n 's/.*"before": \([0-9.]*\).*/\1/p' | cmp - short.losses &&
        tr '{' '\n' <answer | sed -n 's/.*"after": \([0-9.]*\).*/\1/p' | cmp - long.losses ||
        return 1
    run 0 train --model short --data text --carry --steps 20 --batch 4 --context 32 --lr 0.003 \
        --seed 7 --threads 1 --sample-every 0 --out same &&
        cmp same/model.safetensors long/model.safetensors &&
        run 0 train --resume --out long --steps 22
}

refuses() {
    run 0 init --preset xt-modern-tiny --set dim=16 --set heads=2 --set depth=1 --out rotary &&
        run 1 extend --model rotary --data text --eval-data other $common --steps 2 --out no &&
        grep -q "keeps every token and would grow without limit" "$err" && [ ! -e no ] &&
        run 2 extend --model short --data text --out no &&
        has "$err" "dra extend: --eval-data FILE is required"
}

check "a model that learned short rows" makes_a_model
check "the loss falls at all positions" extends
check "it is dra eval, dra train --carry, dra eval" is_eval_and_train
check "what cannot be is refused" refuses
tap_end
