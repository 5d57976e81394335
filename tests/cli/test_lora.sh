#!/bin/sh
# LoRA: the folder of a run is an adapter, which stands for the model with its factors added: the
# same for all families, resumed bit for bit, merged by convert, read as PEFT writes it.
#   test_lora.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1
still="--batch 4 --context 32 --sample-every 0 --threads 1 --seed 3 --lr 0 --min-lr 0"
fit="--batch 4 --context 32 --sample-every 0 --threads 1 --seed 3 --lr 0.01"

for i in $(seq 1 300); do echo "row $((i % 9)) says hello to cat $((i * 3 % 7)) and $i"; done >text

config() { # config NAME JSON...
    printf '{"model_type": "%s", "vocab_size": 256, %s}\n' "$2" "$3" >"$1.json"
}

hybrid='"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
"num_attention_heads": 4'
linear='"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
"linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention",
"linear_attention", "linear_attention", "full_attention"]'
config qwen qwen3_5_text "$hybrid, $linear, \"num_key_value_heads\": 2, \"head_dim\": 16"
config olmo olmo_hybrid "$hybrid, $linear, \"num_key_value_heads\": 4"
config mamba mamba2 '"hidden_size": 32, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 8,
"state_size": 16, "n_groups": 2, "expand": 2, "conv_kernel": 4, "tie_word_embeddings": true'
config granite granitemoehybrid "$hybrid, \"shared_intermediate_size\": 48, \"mamba_n_heads\": 8,
\"mamba_d_head\": 8, \"mamba_d_state\": 16, \"mamba_n_groups\": 1, \"mamba_d_conv\": 4,
\"num_key_value_heads\": 2, \"mamba_expand\": 2, \"num_local_experts\": 0,
\"position_embedding_type\": \"nope\", \"layer_types\": [\"mamba\", \"mamba\", \"attention\",
\"mamba\"]"
config llama llama "$hybrid, \"num_key_value_heads\": 2"
config gpt gpt2 '"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "resid_pdrop": 0.0,
"attn_pdrop": 0.0, "embd_pdrop": 0.0'
families="qwen olmo mamba granite llama gpt"

own() { run 0 init --preset dra-delta-tiny --set dim=32 --set heads=2 --set depth=2 --out own; }

inits() {
    for f in $families; do run 0 init --config "$f.json" --seed 5 --out "$f" || return 1; done
    own
}

loss() { # loss MODEL: in bits per byte
    run 0 eval --model "$1" --data text --threads 1 --json &&
        sed 's/.*"bits_per_byte": \([0-9.]*\).*/\1/' "$out" >"$1.loss"
}

near() { # near A B: losses of models that are equal up to rounding
    awk -v a="$(cat "$1.loss")" -v b="$(cat "$2.loss")" \
        'BEGIN { d = a - b; exit !(a > 0 && d < 1e-4 && d > -1e-4) }' && return
    echo "$1 $(cat "$1.loss"), $2 $(cat "$2.loss")"
    return 1
}

# The loss falls, the model's folder stays as it is, and what learned is small.
learns() { # learns FAMILY
    cksum "$1"/* >before
    run 0 train --model "$1" --lora r=2,alpha=4,targets=all --data text --steps 12 $fit \
        --out "$1-lora" && cksum "$1"/* | cmp - before && loss "$1" && loss "$1-lora" || return 1
    [ ! -e "$1-lora/model.safetensors" ] && [ ! -e "$1-lora/config.json" ] || return 1
    awk -v a="$(cat "$1-lora.loss")" -v b="$(cat "$1.loss")" 'BEGIN { exit !(a < b - 0.5) }'
}

merges() { # merges FAMILY
    run 0 convert --from "$1-lora" --to "$1-merged" && loss "$1-merged" &&
        near "$1-lora" "$1-merged" && [ -e "$1-merged/config.json" ]
}

all_learn() { for f in $families own; do learns "$f" || { echo "$f"; return 1; }; done; }
all_merge() { for f in $families own; do merges "$f" || { echo "$f"; return 1; }; done; }

# Without factors, too: folders of all families are trained, stay what they are and resume.
all_train() {
    for f in $families; do
        rm -rf whole parts
        run 0 train --model "$f" --data text --steps 4 --warmup 1 $fit --out whole &&
            run 0 train --model "$f" --data text --steps 2 --warmup 1 --schedule-end 4 $fit \
                --out parts && run 0 train --resume --out parts --steps 4 &&
            cmp whole/model.safetensors parts/model.safetensors &&
            grep -q "$(grep -o '"model_type": "[a-z0-9_]*"' "$f/config.json")" whole/config.json ||
            { echo "$f"; return 1; }
    done
}

# Only factors have gradients and moments: 2 x (32 + 32) numbers for W_q and W_o of four layers.
plan_is_small() {
    run 0 train --model llama --lora r=2,targets=q,o --data text --steps 1 $fit --out plan &&
        has "$err" "groups   low_rank 1.0 k: no decay" &&
        grep -q 'gradients \(4.0 KiB, moments 8.0\|8.0 KiB, moments 16.0\) KiB' "$err"
}

step_0_is_the_model() {
    run 0 train --model qwen --lora r=4,targets=all --data text --steps 1 $still \
        --out still && run 0 forward --model qwen --text "row 3" \
        --out a && run 0 forward --model still --text "row 3" --out b && cmp a b
}

# qwen and gpt have several parameters in one tensor.
resumes_bit_for_bit() {
    for f in qwen gpt own; do
        rm -rf whole parts
        run 0 train --model "$f" --lora r=2,targets=all --data text --steps 8 $fit --out whole &&
            run 0 train --model "$f" --lora r=2,targets=all --data text --steps 4 --warmup 1 \
                --schedule-end 8 $fit --out parts &&
            run 0 train --resume --out parts --steps 8 &&
            run 0 train --model "$f" --lora r=2,targets=all --data text --steps 8 --warmup 1 \
                --schedule-end 8 $fit --force --out whole &&
            cmp whole/adapter_model.safetensors parts/adapter_model.safetensors || return 1
    done
    failed "resume: lora was" train --resume --out parts --steps 9 --lora r=3,targets=all
}

# As another program writes it: other parts in front, an alpha of its own for a tensor.
reads_patterns() {
    cp -r llama-lora other &&
        all='"q_proj": 4, "k_proj": 4, "v_proj": 4, "o_proj": 4, "up_proj": 4, "gate_proj": 4' &&
        sed "s/\"lora_alpha\": 4.0/\"lora_alpha\": 8, \"use_rslora\": false/
             s/\"alpha_pattern\": {}/\"alpha_pattern\": {$all, \"mlp.down_proj\": 4}/" \
            llama-lora/adapter_config.json >other/adapter_config.json &&
        loss other && cmp other.loss llama-lora.loss
}

# Moved together they find each other; the states and the text are the merged model's.
works_as_a_model() {
    run 0 generate --model own-lora --prompt "row" --tokens 8 --temperature 0 && cp "$out" a &&
        run 0 generate --model own-merged --prompt "row" --tokens 8 --temperature 0 &&
        cmp "$out" a && mkdir -p there && cp -r own own-lora there && mv own away || return 1
    run 0 generate --model there/own-lora --prompt "row" --tokens 8 --temperature 0 &&
        cmp "$out" a || return 1
    failed "own-lora: is an adapter of" info --model own-lora
    status=$?
    mv away own
    return $status
}

refuses() {
    misused "dra train: --lora: expected --model, the model that is adapted" train --preset \
        gpt2-tiny --data text --out no --lora r=2 &&
        misused "dra train: --lora: expected r=N,alpha=X,targets=q,k,v,o with r from 1 to 65536, \
each once, found 'r=0'" train --model gpt --data text --out no --lora r=0 &&
        failed "targets has qkv, expected some of the model's matrices: q," train --model gpt \
            --data text --out no --lora r=1,targets=q,qkv || return 1
    cp -r gpt-lora bad && sed 's/"LORA"/"IA3"/' gpt-lora/adapter_config.json \
        >bad/adapter_config.json && failed "is an adapter of type IA3, expected LORA" info \
        --model bad || return 1
    sed 's/"r": 2/"r": 2, "use_dora": true/' gpt-lora/adapter_config.json \
        >bad/adapter_config.json && failed "use_dora is set" eval --model bad --data text &&
        sed 's/"base_model.*/"base_model_name_or_path": "llama",/' gpt-lora/adapter_config.json \
            >bad/adapter_config.json && failed "its base model has no such matrix" eval --model \
        bad --data text && [ ! -e no ]
}

check "random models of each family" inits
check "all learn by their weights" all_train
check "all learn by factors" all_learn
check "convert merges them" all_merge
check "gradients and moments are those of factors" plan_is_small
check "step 0 is the model" step_0_is_the_model
check "resuming is exact" resumes_bit_for_bit
check "patterns of alpha are read" reads_patterns
check "an adapter is a model" works_as_a_model
check "what cannot be is refused" refuses
tap_end
