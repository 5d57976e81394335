#!/bin/sh
# Encoders: what they learn, how it is measured, and what they say to verbs and options that need a
# model which reads from left to right.
#   test_encoder.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1

# encoder OPTIONS: a small one as JSON; options of its stack follow.
encoder() {
    echo '{"model_type": "x-transformers", "num_tokens": 257, "max_seq_len": 32, "attn_layers":'
    echo '{"type": "Encoder", "dim": 32, "depth": 2, "heads": 2,'
    echo "\"attn_dim_head\": 16${1-}}}"
}

awk 'BEGIN { while (i++ < 300) print "line", i, "of a text that says little,", i * i % 97 }' >text
head -c 3000 text >part
encoder >c.json
"$dra" init --config c.json --tokenizer bytes --out m >init.out || exit 1

same() { cmp "$1" "$2"; }
number() { sed "s/.*\"$1\": \([-0-9.e+]*\).*/\1/" "$out"; }

less() {
    awk -v x="$1" -v y="$2" 'BEGIN { exit !(x < y) }' || { echo "$1, not below $2"; return 1; }
}

# train RUN OPTIONS...: a run of the small encoder.
train() {
    run=$1
    shift
    run 0 train --config c.json --tokenizer bytes --data text --out "$run" --lr 0.003 "$@"
}

# ---- learning ------------------------------------------------------------------------------------

# Bytes alone have an entropy of 2.9 here.
learns() {
    train learns --steps 250 --eval-every 250 --batch 16 --split 0.1 &&
        has "$err" "learn    15 % of the tokens, masked by token 256" &&
        eval_loss=$(sed -n 's/.*"eval_loss":\([0-9.]*\).*/\1/p' learns/log.jsonl) &&
        less "$eval_loss" 2.5 && has learns/train/config.json '"objective": "masked"' \
        '"mask_token": 256' '"mask_share": 0.1' && run 0 report learns --out page.html
}

# A preset takes the tokenizer's vocabulary and one token more, and its run has the tokenizer.
preset_has_a_mask_token() {
    run 0 train --preset xt-encoder-tiny --data text --out preset --steps 1 --batch 2 \
        --context 16 && has preset/config.json '"num_tokens": 257' &&
        [ -e preset/tokenizer.json ] && run 0 eval --model preset --data part --context 16
}

resumes() {
    train whole --steps 12 --split 0.1 --save-every 4 || return 1
    cp -r whole resumed && rm -r resumed/train/step-00000012 &&
        run 0 train --data text --out resumed --resume --objective masked --mask-share 0.15 &&
        has "$err" "resume   after step 8" &&
        same whole/model.safetensors resumed/model.safetensors &&
        same whole/best/model.safetensors resumed/best/model.safetensors
}

another_objective_is_another_run() {
    failed 'resume: objective was "masked" and is "next" now' \
        train --data text --out whole --resume --objective next &&
        failed "resume: mask_share was 0.15 and is 0.3 now" \
            train --data text --out whole --resume --mask-share 0.3
}

# ---- measuring -----------------------------------------------------------------------------------

# The same tokens are masked each time: by eval, and by evaluations of a run of the same text.
evaluations_agree() {
    train measured --eval-data part --steps 3 --eval-every 3 --batch 4 || return 1
    eval_loss=$(sed -n 's/.*"eval_loss":\([0-9.]*\).*/\1/p' measured/log.jsonl)
    answers eval --model measured --data part --json && first=$(number loss) || return 1
    answers eval --model measured --data part --json --threads 3 &&
        [ "$first" = "$(number loss)" ] &&
        awk -v x="$first" -v y="$eval_loss" 'BEGIN { exit !((x - y) ^ 2 <= (1e-5 * x) ^ 2) }'
}

# As it was trained, unless told otherwise.
eval_knows_the_objective() {
    train other --steps 2 --mask-share 0.4 --mask-token 0 &&
        has "$err" "masked by token 0" || return 1
    answers eval --model other --data part --json && n=$(number tokens) && loss=$(number loss) &&
        less 1100 "$n" && less "$n" 1300 || return 1
    answers eval --model other --data part --json --mask-share 0.4 --mask-token 0 &&
        [ "$loss" = "$(number loss)" ] || return 1
    answers eval --model other --data part --json --mask-share 0.1 && less "$(number tokens)" 400
}

# ---- verbs ---------------------------------------------------------------------------------------

whole="which reads a text as a whole and has no state"

reads_at_once() {
    run 0 forward --model m --tokens 1,2,3,4,5 --out a \
        --outputs logits,hidden,streams,branches,attentions &&
        run 0 forward --model m --tokens 1,2,3,4,5 --keep 2 --out b &&
        run 0 forward --model m --tokens 1,2,3,4,5 --positions 3,4 --out c && same b c || return 1
    run 0 forward --model m --tokens 1,2,3,4,5 --resets 2 --positions 2,3,4 --out a &&
        run 0 forward --model m --tokens 3,4,5 --out b && same a b
}

# refused OPTION...: forward says which option it is and that it is about encoders.
refused() {
    misused "dra forward: $1: the model is an encoder, $whole" \
        forward --model m --tokens 1,2,3 --out never $2 && [ ! -e never ]
}

train_refuses() {
    failed "$1" train --config c.json --tokenizer bytes --data text --out never $2 &&
        [ ! -e never ]
}

writes="which writes no text: its tokens see later ones"
see="$writes; see --unmask"
encoder ', "rel_pos_bias": true, "shift_tokens": 1' >t5.json

check "learns" learns
check "a preset has a mask token" preset_has_a_mask_token
check "resumes to the same bytes" resumes
check "another objective is another run" another_objective_is_another_run
check "evaluations agree" evaluations_agree
check "eval knows the objective" eval_knows_the_objective
check "other positions, shifted tokens, skips" run 0 train --config t5.json --tokenizer bytes \
    --data text --out t5 --steps 2 --batch 2 --forgetful-mask 0.2 --recompute
check "forward" reads_at_once
check "forward: chunks" refused --chunks "--chunks 2,1"
check "forward: one chunk" refused --chunks "--chunks 3"
check "forward: a state to start from" refused --state-in "--state-in none"
check "forward: a state to save" refused --state-out "--state-out none"
check "forward: RWKV's state" refused --rwkv-state "--rwkv-state none"
check "forward: its state" refused "--outputs state" "--outputs logits,state"
check "grad: no targets" misused \
    "dra grad: --tokens: the model is an encoder, whose tokens see the next one; expected --inputs \
with targets" grad --model m --tokens 1,2,3 --out never
check "grad: chunks" misused \
    "dra grad: --chunks: the model is an encoder, which reads a text as a whole" \
    grad --model m --inputs none --chunks 2 --out never
check "eval: chunk" misused \
    "dra eval: --chunk: the model is an encoder, which reads a text as a whole; see --context" \
    eval --model m --data part --chunk 256
check "eval: context" failed "--context 33: the model has no more than 32 positions" \
    eval --model m --data part --context 33
check "eval: no such mask token" failed \
    "objective masked: mask_token is 257, the model has 0 to 256" \
    eval --model m --data part --mask-token 257
check "generate" misused "dra generate: the model is an encoder, $see" \
    generate --model m --prompt a
check "generate: from a state" misused "dra generate: the model is an encoder, $see" \
    generate --model m --state-in none --tokens 2
check "chat" misused "dra chat: the model is an encoder, $writes" chat --model m
check "probe" failed "probe copy: m is an encoder, whose tokens would see the answers" \
    probe copy --model m
check "probe: a preset" failed "probe copy: xt-encoder-tiny is an encoder" \
    probe copy --preset gpt2-tiny,xt-encoder-tiny --steps 1
check "train: carry" train_refuses "train: carry: the model is an encoder, which reads" --carry
check "train: chunk" train_refuses "train: chunk: the model is an encoder, which reads" "--chunk 8"
check "train: samples" train_refuses \
    "--sample-every: the model is an encoder, which writes no text" "--sample-every 2"
check "train: next" train_refuses "objective next: the model is an encoder" "--objective next"
check "train: no such mask token" train_refuses "objective masked: mask_token is 257" \
    "--mask-token 257"
check "train: masked needs an encoder" failed "objective masked: the model is causal" \
    train --preset gpt2-tiny --data text --out never --objective masked
check "train: shares need an encoder" failed \
    "objective next: mask_share is for the objective masked" \
    train --preset gpt2-tiny --data text --out never --mask-share 0.2
check "info" says '^state         0 bytes a sequence' info --model m
check "convert" run 0 convert --from m --to own --as dra --check
check "convert back" run 0 convert --from own --to back --as x-transformers --check
tap_end
