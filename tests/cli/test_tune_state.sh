#!/bin/sh
# dra tune-state: held-out loss falls, only the state file is new, and it is an ordinary one.
#   test_tune_state.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
. "$(dirname "$0")/tensors.sh"
cd "$scratch" || exit 1
fit="--batch 4 --context 32 --threads 1 --seed 3 --steps 24"
small="--set dim=32 --set heads=2 --set depth=2"

for i in $(seq 1 300); do echo "row $((i % 9)) says hello to cat $((i * 3 % 7)) and $i"; done >text

number() { sed "s/.*\"$1\": \([0-9.]*\).*/\1/" "$out"; }

less() { # less A B
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 < b + 0) }' || { echo "$1, $2"; return 1; }
}

config() { # config NAME JSON...
    printf '{"model_type": "%s", "vocab_size": 256, "hidden_size": 32, %s}\n' "$2" "$3" >"$1.json"
    run 0 init --config "$1.json" --seed 5 --out "$1"
}

linear='"intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
"linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention",
"linear_attention", "linear_attention", "full_attention"]'

inits() {
    config qwen qwen3_5_text "$linear, \"num_key_value_heads\": 2, \"head_dim\": 16" &&
        config olmo olmo_hybrid "$linear, \"num_key_value_heads\": 4" &&
        config mamba mamba2 '"num_hidden_layers": 2, "num_heads": 8, "head_dim": 8,
            "state_size": 16, "n_groups": 2, "expand": 2, "conv_kernel": 4' &&
        config granite granitemoehybrid '"shared_intermediate_size": 48, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "mamba_n_heads": 8,
            "mamba_d_head": 8, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_d_conv": 4,
            "mamba_expand": 2, "num_local_experts": 0, "position_embedding_type": "nope",
            "layer_types": ["mamba", "attention", "mamba"]' || return 1
    for p in delta ema gru moment slots; do
        run 0 init --preset "dra-$p-tiny" $small --out "$p" || return 1
    done
    for p in rwkv6 rwkv7; do run 0 init --preset "$p-tiny" $small --out "$p" || return 1; done
}

# The loss falls, and nothing of the model's folder changes.
falls() { # falls MODEL
    cksum "$1"/* >before
    answers_with tune-state --model "$1" --data text --out "$1.state" $fit --json || return 1
    cksum "$1"/* | cmp - before && less "$(number after)" "$(awk -v b="$(number before)" \
        'BEGIN { print b - 0.02 }')"
}

answers_with() { run 0 "$@" && [ -s "$out" ]; }

all_fall() {
    for m in qwen olmo mamba granite delta ema gru moment slots rwkv6 rwkv7; do
        falls "$m" || { echo "$m"; return 1; }
    done
}

# The loss of a text from logits (T, 256), f32 or f64, of `forward`.
loss_of() { # loss_of FILE TEXT
    bytes=$(($(wc -c <"$2") * 256))
    [ $(($(wc -c <"$1") / bytes)) -ge 8 ] && size=8 || size=4
    od -An -v -tu1 -w1 "$2" >ids
    tail -c $((bytes * size)) "$1" | od -An -v -tf$size -w$((256 * size)) | paste ids - | awk '
        NR > 1 { sum += most + log(total) - x[$1 + 2] }
        { most = $2; for (i = 2; i <= NF; i++) { x[i] = $i; if ($i > most) most = $i }
          total = 0; for (i = 2; i <= NF; i++) total += exp(x[i] - most) }
        END { print sum / (NR - 1) }'
}

# What was measured is what the model itself makes of the state.
is_a_state() {
    head -c 30 text >piece
    run 0 forward --model delta --text "$(cat piece)" --out plain &&
        run 0 forward --model delta --text "$(cat piece)" --state-in delta.state --out tuned ||
        return 1
    plain=$(loss_of plain piece)
    less "$(loss_of tuned piece)" "$(awk -v a="$plain" 'BEGIN { print a - 0.3 }')" &&
        run 0 generate --model delta --state-in delta.state --prompt row --tokens 8
}

# With a rate of 0 the state stays what it was, and so does what it measures.
goes_on() {
    run 0 tune-state --model delta --data text --out a.state $fit --json &&
        after=$(number after) && run 0 tune-state --model delta --from a.state --data text --out \
        b.state --batch 4 --context 32 --threads 1 --seed 3 --steps 1 --lr 0 --min-lr 0 --json &&
        awk -v a="$after" -v b="$(number before)" -v c="$(number after)" 'BEGIN {
            exit !(a - b < 1e-5 && b - a < 1e-5 && b == c) }' || { cat "$out"; return 1; }
    run 0 tune-state --model delta --data text --out c.state $fit && cmp a.state c.state
}

# A time_state of RWKV's trainers: values before keys, which turned twice is what it was.
reads_time_state() {
    zeros="254*0,0"
    tensors "blocks.0.att.time_state:F32:2,16,16:0,0.5,$zeros,255*0" \
        "blocks.1.att.time_state:F32:2,16,16:1,$zeros,256*0" >time.safetensors
    run 0 tune-state --model rwkv7 --from time.safetensors --steps 0 --out time.state &&
        run 0 generate --model rwkv7 --state-in time.state --prompt row --tokens 4 &&
        failed "holds states of RWKV 5 to 7" tune-state --model delta --from time.safetensors \
            --steps 0 --out no.state && [ ! -e no.state ]
}

refuses() {
    run 0 init --preset gpt2-tiny $small --out gpt && run 0 init --preset rwkv4-tiny $small --out \
        rwkv4 && failed "no layer has a memory of fixed size" tune-state --model gpt --data text \
        --out no.state && failed "is a running maximum" tune-state --model rwkv4 --data text --out \
        no.state && misused "dra tune-state: expected --data, the texts to learn from" tune-state \
        --model delta --out no.state && misused \
        "dra tune-state: --steps 0: expected --from and no --data" tune-state --model delta \
        --data text --steps 0 --out no.state && [ ! -e no.state ]
}

check "random models of each family" inits
check "held-out loss falls on each, nothing else changes" all_fall
check "it is a state of the model" is_a_state
check "a state is learned further, the same each time" goes_on
check "time_state of RWKV's trainers" reads_time_state
check "what cannot be is refused" refuses
tap_end
