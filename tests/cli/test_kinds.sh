#!/bin/sh
# Models that are not language models: encoders with decoders, images, vectors, numbers, attention
# over a context alone. What verbs read by name, put out, continue and refuse.
#   test_kinds.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
. "$(dirname "$0")/tensors.sh"
cd "$scratch" || exit 1

small='"dim": 16, "depth": 2, "heads": 2'
encoder="\"encoder\": {\"vocab\": 20, $small, \"context\": 6, \"positions\": \"learned\",
    \"visible\": \"bidirectional\"}"
decoder="\"decoder\": {\"vocab\": 22, $small, \"max_seq_len\": 8, \"positions\": \"learned\",
    \"layout\": \"acf\", \"tied\": false, \"context\": \"encoder\"}"
image='"source": {"kind": "image", "size": 4, "patch": 2, "channels": 1}'
encodes='"visible": "bidirectional"'
vit="{\"model_type\": \"dra\", $small, $encodes, \"positions\": \"learned\", $image"

echo "{\"model_type\": \"dra\", \"stacks\": {$encoder, $decoder}}" >seq.json
echo "$vit, \"head\": {\"kind\": \"classes\", \"dim\": 3}}" >vit.json
echo "$vit, \"head\": {\"kind\": \"classes\"}}" | sed 's/"size": 4/"size": 2/' >mean.json
echo "{\"model_type\": \"dra\", $small, \"context\": 8, \"positions\": \"learned\",
    \"source\": {\"kind\": \"vectors\", \"dim\": 1},
    \"head\": {\"kind\": \"vectors\", \"dim\": 1}}" >series.json
echo "{\"model_type\": \"dra\", $small, \"source\": {\"kind\": \"vectors\"},
    \"head\": {\"kind\": \"vectors\"}}" >same.json
echo "{\"model_type\": \"dra\", \"vocab\": 5, $small, \"tied\": false,
    \"source\": {\"numbers\": true, \"number_token\": 3},
    \"head\": {\"numbers\": true, \"bias\": true}}" >xval.json
echo "{\"model_type\": \"dra\", \"stacks\": {\"other\": {\"dim\": 2, \"depth\": 0,
    \"visible\": \"bidirectional\", \"source\": {\"kind\": \"vectors\"}},
    \"reader\": {$small, \"visible\": \"bidirectional\", \"layout\": \"cf\",
    \"source\": {\"kind\": \"vectors\"}, \"head\": {\"kind\": \"none\"},
    \"context\": \"other\", \"cross\": {\"context_dim\": 2}}}}" >cross.json
echo "{\"model_type\": \"dra\", \"stacks\": {\"eye\": {$small, $encodes, $image},
    \"text\": {\"vocab\": 22, $small, \"layout\": \"acf\", \"context\": \"eye\"}}}" >caption.json
echo "{\"model_type\": \"dra\", \"stacks\": {\"eye\": {$small, $encodes, $image},
    $encoder, $decoder}}" | sed 's/"vocab": 20,/"vocab": 20, "prepend": "eye",/' >pali.json

echo "{\"model_type\": \"dra\", \"stacks\": {\"other\": {\"dim\": 2, \"depth\": 0,
    \"visible\": \"bidirectional\", \"source\": {\"kind\": \"vectors\", \"input\": \"context\"}},
    \"text\": {\"vocab\": 22, $small,
    \"layout\": \"acf\", \"context\": \"other\", \"cross\": {\"context_dim\": 2}}}}" >words.json

tensors src:I32:2,4:1,2,3,4,5,6,7,0 tgt:I32:2,3:1,2,3,9,8,7 \
    src_mask:U8:2,4:1,1,1,1,1,1,1,0 >seq
tensors img:F32:2,1,4,4:0,1,2,0.5,12*1,8*0,8*-1 labels:I32:2:2,0 >vit
tensors x:F32:2,4,1:0,1,0.5,-1,2,1,0,0.5 >series
tensors nums:F32:2,4:nan,2,nan,1,1,nan,0.5,nan ids:I32:2,4:1,3,0,3,3,2,3,4 >xval
tensors x:F32:1,3,16:8*0,8*1,8*2,8*0.5,16*-1 context:F32:1,2,2:0,1,2,-1 \
    context_mask:U8:1,2:1,1 >cross
tensors img:F32:2,1,4,4:0,1,2,0.5,12*1,8*0,8*-1 tgt:I32:2,3:1,2,3,9,8,7 >caption
tensors img:F32:2,1,4,4:32*1 tgt:I32:2,3:1,2,3,9,8,7 src:I32:2,2:1,2,3,4 >pali

same() { cmp "$1" "$2"; }
near() { # FILE FILE: their numbers, but for rounding
    listed "$1" >near-a && listed "$2" >near-b && paste near-a near-b |
        awk '{ d = $1 - $2; if (d * d > 1e-10) bad = 1 } END { exit bad || !NR }'
}
forward() { kind=$1; shift; run 0 forward --config $kind.json "$@"; }
real=F32
"$dra" forward --config vit.json --inputs vit --out probe && grep -q '"F64"' probe && real=F64
holds() { # FILE NAME SHAPE
    has "$1" "\"$2\":{\"dtype\":\"$real\",\"shape\":[$3]"
}

# ---- forward -------------------------------------------------------------------------------------

names_and_shapes() {
    forward seq --inputs seq --out a && holds a logits 2,3,22 &&
        forward vit --inputs vit --out a && holds a logits 2,3 && holds a loss '' &&
        forward series --inputs series --out a && holds a out 2,4,1 &&
        forward xval --inputs xval --out a && holds a logits 2,4,5 && holds a numbers 2,4 &&
        forward cross --inputs cross --out a && holds a hidden 1,3,16 &&
        forward caption --inputs caption --out a && holds a logits 2,3,22 &&
        forward pali --inputs pali --out a && holds a logits 2,3,22
}

# Of a single patch the mean is what is hidden, and vectors that are not mapped are, too.
heads_that_do_nothing() {
    tensors img:F32:1,1,2,2:0,1,2,0.5 >one && forward mean --inputs one --out a &&
        holds a out 1,16 && forward mean --inputs one --outputs hidden --out b &&
        numbers_of a >p && numbers_of b >q && same p q || return 1
    tensors x:F32:1,2,16:16*1,16*0.5 >two && forward same --inputs two --out a &&
        forward same --inputs two --outputs hidden --out b && numbers_of a >p && numbers_of b >q &&
        same p q
}

whole_is_parts() {
    for kind in seq series xval caption; do
        forward $kind --inputs $kind --out a && forward $kind --inputs $kind --chunks 1,1 --out b &&
            same a b || return 1
    done
    run 0 init --config seq.json --out m &&
        run 0 forward --model m --inputs seq --keep 1 --out a &&
        tensors src:I32:2,4:1,2,3,4,5,6,7,0 tgt:I32:2,2:1,2,9,8 mask:U8:2,4:7*1,0 >first &&
        tensors ids:I32:2,1:3,7 >rest &&
        run 0 forward --model m --inputs first --state-out s --out b &&
        run 0 forward --model m --inputs rest --state-in s --out b && same a b
}

# Pads of a source are as if they were not there, tokens hidden by no mask are.
pads_are_nothing() {
    tensors src:I32:1,3:5,6,7 tgt:I32:1,3:9,8,7 >short &&
        tensors src:I32:1,4:5,6,7,9 tgt:I32:1,3:9,8,7 src_mask:U8:1,4:3*1,0 >long &&
        forward seq --inputs short --out a && forward seq --inputs long --out b && same a b &&
        tensors src:I32:1,4:5,6,7,9 tgt:I32:1,3:9,8,7 >long &&
        forward seq --inputs long --out b && ! cmp -s a b
}

numbers_of_other_tokens() {
    tensors nums:F32:2,4:1,2,1,1,1,1,0.5,1 ids:I32:2,4:1,3,0,3,3,2,3,4 >in &&
        forward xval --inputs xval --out a && forward xval --inputs in --out b && same a b
}

inside() {
    forward seq --inputs seq --out a --outputs logits,hidden,hiddens,adds,attentions,state &&
        holds a hiddens 7,2,3,16 && holds a layers.1.cross.attention 2,2,3,4 &&
        has a state.layers.0.cross
}

# ---- losses and gradients ------------------------------------------------------------------------

# equal_losses KIND LEARNED READ: that of grad is that of forward with targets.
equal_losses() {
    run 0 grad --config "$1.json" --inputs "$2" --out g || return 1
    loss=$(sed 's/loss \([^ ]*\).*/\1/' "$out")
    forward "$1" --inputs "$3" --outputs loss --out a &&
        listed a | awk -v x="$loss" '{ d = x - $1 } END { exit !(NR == 1 && d * d < 1e-10) }'
}

losses() {
    equal_losses vit vit vit || return 1
    tensors src:I32:2,4:1,2,3,4,5,6,7,0 tgt:I32:2,2:1,2,9,8 targets:I32:2,2:2,3,8,7 \
        src_mask:U8:2,4:7*1,0 >read && equal_losses seq seq read || return 1
    tensors x:F32:2,3,1:0,1,0.5,2,1,0 targets:F32:2,3,1:1,0.5,-1,1,0,0.5 >read &&
        equal_losses series series read || return 1
    tensors nums:F32:2,3:nan,2,nan,1,nan,0.5 target_nums:F32:2,3:2,nan,1,nan,0.5,nan \
        ids:I32:2,3:1,3,0,3,2,3 targets:I32:2,3:3,0,3,2,3,4 >read && equal_losses xval xval read
}

# With targets nothing is shifted: the same gradients as of examples, and those of models that no
# objective is for.
given_targets() {
    run 0 grad --config seq.json --inputs seq --out a &&
        tensors src:I32:2,4:1,2,3,4,5,6,7,0 tgt:I32:2,2:1,2,9,8 targets:I32:2,2:2,3,8,7 \
            src_mask:U8:2,4:7*1,0 >read &&
        run 0 grad --config seq.json --inputs read --out b && near a b || return 1
    run 0 grad --config series.json --inputs series --out a &&
        tensors x:F32:2,3,1:0,1,0.5,2,1,0 targets:F32:2,3,1:1,0.5,-1,1,0,0.5 >read &&
        run 0 grad --config series.json --inputs read --out b && near a b || return 1
    tensors nums:F32:2,3:nan,2,nan,1,nan,0.5 target_nums:F32:2,3:2,nan,1,nan,0.5,nan \
        ids:I32:2,3:1,3,0,3,2,3 targets:I32:2,3:3,0,3,2,3,4 >read &&
        run 0 grad --config xval.json --inputs xval --out a &&
        run 0 grad --config xval.json --inputs read --out b && near a b || return 1
    tensors x:F32:1,3,16:48*1 context:F32:1,2,2:0,1,2,-1 targets:F32:1,3,16:48*0.5 \
        context_mask:U8:1,2:1,0 >read &&
        says " of 3 targets" grad --config cross.json --inputs read --out a || return 1
    tensors img:F32:2,1,4,4:32*1 tgt:I32:2,3:1,2,3,9,8,7 src:I32:2,2:1,2,3,4 \
        targets:I32:2,3:2,3,-100,8,7,6 >read &&
        says " of 5 targets" grad --config pali.json --inputs read --out a
}

# xVal with memory tokens and pads: a row is what it is alone.
padded_numbers() {
    echo '{"model_type": "x-transformers", "wrapper": "XValTransformerWrapper", "num_tokens": 5,
        "numerical_token_id": 3, "max_seq_len": 8, "num_memory_tokens": 2, "attn_layers":
        {"type": "Decoder", "dim": 16, "depth": 2, "heads": 2}}' >remembers.json
    tensors nums:F32:1,4:nan,2,0.5,1 ids:I32:1,4:1,3,3,3 mask:U8:1,4:1,1,1,0 >long &&
        tensors nums:F32:1,3:nan,2,0.5 ids:I32:1,3:1,3,3 >short &&
        run 0 grad --config remembers.json --inputs long --out a &&
        run 0 grad --config remembers.json --inputs short --out b && near a b &&
        has a '"memory_tokens":{' && has b '"memory_tokens":{' &&
        run 0 forward --config remembers.json --inputs long --positions 0,1,2 --outputs logits \
            --out a && run 0 forward --config remembers.json --inputs short --outputs logits \
            --out b && near a b
}

# A mask of a context has two names.
masks_of_contexts() {
    seen=context:F32:2,3,2:0,1,2,-1,1,1,2,1,0,0,0.5,1
    ids=ids:I32:2,3:1,2,3,9,8,7
    tensors $seen $ids context_mask:U8:2,3:1,1,0,1,1,1 >first &&
        tensors $seen $ids src_mask:U8:2,3:1,1,0,1,1,1 >second && tensors $seen $ids >none &&
        for name in first second none; do
            run 0 grad --config words.json --inputs $name --out of-$name || return 1
        done
    same of-first of-second && ! cmp -s of-first of-none
}

# ---- generate ------------------------------------------------------------------------------------

# What a vector model continues with is what it puts out last.
vectors_follow() {
    run 0 generate --config series.json --inputs series --out a --tokens 1 && holds a out 2,1,1 &&
        forward series --inputs series --out b && listed a >p &&
        listed b | sed -n '4p;8p' >q && same p q &&
        run 0 generate --config series.json --inputs series --out a --tokens 3 &&
        holds a out 2,3,1 && listed a | sed -n '1p;4p' >q && same p q
}

vectors_are_printed() {
    answers generate --config series.json --inputs series --out a --tokens 3 --json &&
        is_json "$out" >json && listed a | awk '{ printf "%.5f\n", $1 }' >p &&
        sed 's/"count".*//' "$out" | grep -o '\[-*[0-9][^],[]*\]' | tr -d '[]' |
        awk '{ printf "%.5f\n", $1 }' >q && same p q
}

tokens_follow() {
    run 0 generate --config seq.json --inputs seq --out a --tokens 4 --seed 3 && has a '"tgt"' \
        '"tgt_mask":{"dtype":"BOOL","shape":[2,4]' || return 1
    tensors src:I32:2,4:1,2,3,4,5,6,7,0 src_mask:U8:2,4:7*1,0 >alone &&
        run 0 generate --config seq.json --inputs alone --start 1 --out a --tokens 4 &&
        tensors src:I32:2,4:1,2,3,4,5,6,7,0 start:I32:2,1:1,1 src_mask:U8:2,4:7*1,0 >started &&
        run 0 generate --config seq.json --inputs started --end 1 --out b --tokens 4 && same a b &&
        run 0 generate --config caption.json --inputs caption --out b --tokens 4 --json &&
        is_json "$out" && run 0 generate --config pali.json --inputs pali --out b --tokens 2 &&
        run 0 generate --config xval.json --inputs xval --out b --tokens 3 && holds b nums 2,3
}

# A text alone and among others; the same as its bytes from a file.
translates() {
    t="--preset xt-seq2seq-tiny --set encoder.depth=1 --set depth=1 --tokenizer bytes --tokens 6"
    answers generate $t --source abc && cp "$out" first &&
        answers generate $t --source abc --source "a longer one" && head -n 1 "$out" >second &&
        head -n 1 first | cmp - second || return 1
    answers generate $t --source abc --json && is_json "$out" &&
        sed -n 's/.*"tokens": \(\[[^]]*\]\).*/\1/p' "$out" >first &&
        tensors src:I32:1,3:97,98,99 start:I32:1,1:256 >in &&
        answers generate $t --inputs in --out a --json &&
        sed -n 's/.*"tokens": \(\[[^]]*\]\).*/\1/p' "$out" | cmp - first
}

# ---- looking at them -----------------------------------------------------------------------------

infos() {
    says "reads         ids or tgt (B, T), src (B, S)" info --config seq.json &&
        has "$out" "stack         encoder, context of decoder: src (B, S) -> hidden (B, S, 16)" \
            "cross-attention" "2 times" "for each token of its context" || return 1
    for kind in seq vit series xval cross caption pali; do
        answers info --config $kind.json --json --draw $kind.svg && is_json "$out" >json &&
            has "$out" '"stacks": [' && has $kind.svg '<svg ' '</svg>' || return 1
        if command -v xmllint >tool; then xmllint --noout $kind.svg || return 1; fi
    done
    has pali.svg prepended context && answers info --preset gpt2 --draw gpt2.svg &&
        has gpt2.svg "× 12" "by the table of tokens" && ! grep -q "reads  " "$out"
}

folders() {
    for kind in seq vit series xval cross caption pali; do
        run 0 init --config $kind.json --seed 4 --out folder-$kind &&
            run 0 convert --from folder-$kind --to copy-$kind --check &&
            has "$out" "largest difference of logits: 0 (relative)" &&
            run 0 forward --model folder-$kind --inputs $kind --out a &&
            run 0 forward --model copy-$kind --inputs $kind --out b && same a b || return 1
    done
    for preset in xt-seq2seq-tiny vit-tiny series-tiny; do
        run 0 init --preset $preset --out of-$preset || return 1
    done
}

# ---- what is refused -----------------------------------------------------------------------------

refused() { # KIND TEXT TENSORS...
    kind=$1 text=$2
    shift 2
    tensors "$@" >bad && failed "$text" forward --config $kind.json --inputs bad --out never &&
        [ ! -e never ]
}

bad_inputs() {
    refused seq "bad: tensor src is missing: the model reads ids or tgt (B, T), src (B, S)" \
        tgt:I32:1,2:1,2 &&
        refused seq "bad: tensor src: number 1 of row 0 is 20, expected 0 to 19" \
            src:I32:1,2:1,20 tgt:I32:1,2:1,2 &&
        refused seq "bad: tensor img is not an input of this model, expected ids, tgt, src, " \
            src:I32:1,2:1,2 tgt:I32:1,2:1,2 img:U8:1,1:1 &&
        refused seq "bad: tensor src is F32, expected integers" src:F32:1,2:1,2 tgt:I32:1,2:1,2 &&
        refused seq "bad: tensor src_mask is (B, 3), expected (B, 2)" src:I32:1,2:1,2 \
            tgt:I32:1,2:1,2 src_mask:U8:1,3:1,1,1 &&
        refused seq "bad: tensor src: the text has 7 tokens, this model has positions for 6" \
            src:I32:1,7:7*1 tgt:I32:1,2:1,2 &&
        refused seq "the text has 9 tokens, this model has positions for 8" \
            src:I32:1,2:1,2 tgt:I32:1,9:9*1 &&
        refused vit "bad: tensor img is (B, 3, 4, 4), expected (B, 1, 4, 4)" img:F32:1,3,4,4:48*1 &&
        refused vit "bad: tensor img: number 1 of row 0 is nan, expected a finite one" \
            img:F32:1,1,4,4:1,nan,14*1 &&
        refused vit "bad: tensor labels: number 0 of row 1 is 3, expected -1 to 2" \
            img:F32:2,1,4,4:32*1 labels:I32:2:1,3 &&
        refused series "bad: tensor x is (B, 2, 2), expected (B, 1 or more, 1)" x:F32:1,2,2:4*1 &&
        refused xval "bad: tensor nums: number 0 of row 0 is nan, expected a finite one" \
            nums:F32:1,2:nan,1 ids:I32:1,2:3,3 &&
        refused xval "bad: tensor nums is missing: the model reads ids (B, T), nums (B, T)" \
            ids:I32:1,2:3,3 &&
        refused cross "bad: tensor context is (B, 2, 3), expected (B, 1 or more, 2)" \
            x:F32:1,1,16:16*1 context:F32:1,2,3:6*1
}

language="the model is not a language model: it"

other_verbs() {
    failed "--tokens: expected --inputs, as the model reads img (B, 1, 4, 4)" \
        forward --config vit.json --tokens 1,2 --out never &&
        failed "--outputs out: the model has no output out" \
            forward --config vit.json --inputs vit --outputs out --out never &&
        misused "dra chat: $language reads images" chat --config vit.json &&
        misused "dra generate: $language reads vectors; see --inputs and --source" \
            generate --config series.json --prompt a &&
        misused "dra generate: --prompt: expected none of it with --inputs" \
            generate --config series.json --inputs series --out never --prompt a &&
        misused "dra generate: --inputs: expected --out, too" \
            generate --config series.json --inputs series &&
        failed "continue: the model is an encoder, whose tokens see later ones" \
            generate --config vit.json --inputs vit --out never &&
        failed "--source: the model does not translate texts, it reads x (B, T, 1); see --inputs" \
            generate --config series.json --source a --tokenizer bytes &&
        failed "is not a language model" probe recall --config xval.json --steps 1 &&
        misused "dra grad: --tokens: the model is not a language model; expected --inputs alone" \
            grad --config vit.json --tokens 1,2 --out never && echo text >t &&
        failed "--data: $language" eval --config xval.json --data t && [ ! -e never ]
}

check "names and shapes" names_and_shapes
check "heads that do nothing" heads_that_do_nothing
check "whole = chunks = resumed" whole_is_parts
check "pads of a source" pads_are_nothing
check "numbers of other tokens do not matter" numbers_of_other_tokens
check "hidden states, maps and states" inside
check "losses of forward and grad" losses
check "gradients of given targets" given_targets
check "masks of contexts" masks_of_contexts
check "numbers with memory tokens and pads" padded_numbers
check "generate: vectors" vectors_follow
check "generate: vectors as JSON" vectors_are_printed
check "generate: tokens" tokens_follow
check "generate: translations" translates
check "info and pictures" infos
check "init and convert" folders
check "bad inputs" bad_inputs
check "verbs that need a text" other_verbs
tap_end
