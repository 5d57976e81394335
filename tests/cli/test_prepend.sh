#!/bin/sh
# Learning from texts that come after something else: an image before a source (PaLI), before an
# encoder's own text, or vectors. Gradients as `dra grad` has them, losses, resuming, refusals.
#   test_prepend.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
. "$(dirname "$0")/tensors.sh"
cd "$scratch" || exit 1

small='"dim": 16, "depth": 2, "heads": 2'
encoder="\"encoder\": {\"vocab\": 20, $small, \"context\": 6, \"positions\": \"learned\",
    \"visible\": \"bidirectional\""
decoder="\"decoder\": {\"vocab\": 22, $small, \"max_seq_len\": 8, \"positions\": \"learned\",
    \"layout\": \"acf\", \"tied\": false, \"context\": \"encoder\"}"
eye="\"eye\": {$small, \"visible\": \"bidirectional\",
    \"source\": {\"kind\": \"image\", \"size\": 4, \"patch\": 2, \"channels\": 1}}"
two='"two": {"dim": 16, "depth": 0, "visible": "bidirectional",
    "source": {"kind": "vectors", "length": 2, "dim": 3}}'
text="\"text\": {\"vocab\": 9, $small, \"visible\": \"bidirectional\", \"prepend\": \"eye\""
stacks() { echo "{\"model_type\": \"dra\", \"stacks\": {$1}}"; }
stacks "$eye, $encoder, \"prepend\": \"eye\"}, $decoder" >pali.json
stacks "$two, $encoder, \"prepend\": \"two\"}, $decoder" >told.json
stacks "$eye, $text}" >shown.json
stacks "$eye, $text, \"head\": {\"kind\": \"classes\", \"dim\": 2}}" >judged.json

same() { cmp "$1" "$2"; }
near() { # FILE FILE: their numbers, but for rounding
    listed "$1" >near-a && listed "$2" >near-b && paste near-a near-b |
        awk '{ d = $1 - $2; if (d * d > 1e-10) bad = 1 } END { exit bad || !NR }'
}
less() {
    awk -v x="$1" -v y="$2" 'BEGIN { exit !(x < y) }' || { echo "$1, not below $2"; return 1; }
}
# Gradients of examples are those of their tokens with targets, whatever comes before the source.
gradients_after_others() {
    tgt="tgt:I32:2,4:1,2,3,4,9,8,7,6" read="tgt:I32:2,3:1,2,3,9,8,7" src="src:I32:2,2:1,2,3,4"
    targets="targets:I32:2,3:2,3,4,8,7,6" mask="src_mask:U8:2,2:1,1,1,0"
    img="img:F32:2,1,4,4:0,1,2,0.5,12*1,8*0,8*-1" two="prepend:F32:2,2,3:0,1,2,0.5,8*-1"
    for kind in "pali $img" "told $two"; do
        tensors "${kind#* }" $tgt $src $mask >whole && tensors "${kind#* }" $read $src $targets \
            $mask >parts && says " of 6 targets" grad --config ${kind% *}.json --inputs whole \
            --out a && run 0 grad --config ${kind% *}.json --inputs parts --out b && near a b &&
            run 0 grad --config ${kind% *}.json --inputs whole --threads 3 --out b && same a b ||
            return 1
    done
}

logged() { sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' "$1/log.jsonl"; }

# Images that differ within their patches, which are normed: upright and level stripes.
upright=0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1
other=1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0
level=4*0,4*1,4*0,4*1

# The tokens follow from the image alone.
learns_after_images() {
    tensors img:F32:4,1,4,4:$upright,$other,$level,4*1,4*0,4*1,4*0 src:I32:4,2:8*3 \
        tgt:I32:4,4:1,2,3,4,1,7,6,5,1,4,2,7,1,9,9,2 src_mask:U8:4,2:1,1,1,0,1,1,1,1 \
        >data.safetensors
    run 0 train --config pali.json --data data.safetensors --out pali-run --steps 60 --batch 4 \
        --lr 0.01 --save-every 30 --log-every 1 &&
        logged pali-run | awk 'NR == 1 { first = $1 } { last = $1 }
        END { exit !(last < 0.1 && first > 2) }' || { logged pali-run; return 1; }
    answers eval --model pali-run --data data.safetensors --json &&
        less "$(sed 's/.*"loss": \([0-9.]*\).*/\1/' "$out")" 0.1 || return 1
    cp -r pali-run again && rm -r again/train/step-00000060 &&
        run 0 train --data data.safetensors --out again --resume &&
        same pali-run/model.safetensors again/model.safetensors &&
        run 0 train --config pali.json --data data.safetensors --out parts-run --steps 2 \
            --batch 4 --accumulate 4
}



# An encoder's own text after an image: what is hidden, and a class of both.
encoders_after_images() {
    tensors img:F32:4,1,4,4:$upright,$other,$upright,$other ids:I32:4,3:3*1,3*2,1,1,-100,2,2,-100 \
        labels:I32:4:0,1,0,1 >data.safetensors
    run 0 train --config shown.json --data data.safetensors --out shown-run --steps 60 \
        --batch 4 --lr 0.01 --mask-schedule linear --mask-token 8 &&
        answers eval --model shown-run --data data.safetensors --json &&
        less "$(sed 's/.*"loss": \([0-9.]*\).*/\1/' "$out")" 0.1 || return 1
    run 0 train --config judged.json --data data.safetensors --out judged-run --steps 60 \
        --batch 4 --lr 0.01 && answers eval --model judged-run --data data.safetensors --json &&
        has "$out" '"accuracy": 1' || return 1
    for run in shown judged; do
        tensors img:F32:2,1,4,4:16*0,16*1 ids:I32:2,3:3*1,3*2 >few &&
            run 0 forward --model $run-run --inputs few --out a || return 1
    done
}

before_is_needed() {
    tensors src:I32:2,2:1,2,3,4 tgt:I32:2,3:1,2,3,9,8,7 >data.safetensors
    failed "data.safetensors: no tensor 'img', expected images" \
        train --config pali.json --data data.safetensors --out never &&
        failed "data.safetensors: no tensor 'prepend', expected vectors before a text" \
            train --config told.json --data data.safetensors --out never || return 1
    tensors prepend:F32:2,3,3:18*1 src:I32:2,2:1,2,3,4 tgt:I32:2,3:1,2,3,9,8,7 >data.safetensors
    failed "tensor 'prepend': examples of shape (3, 3), expected (2, 3): vectors before a text" \
        train --config told.json --data data.safetensors --out never || return 1
    tensors img:F32:2,1,2,4:16*1 src:I32:2,2:1,2,3,4 tgt:I32:2,3:1,2,3,9,8,7 >data.safetensors
    failed "tensor 'img': examples of shape (1, 2, 4), expected (1, 4, 4): images" \
        eval --config pali.json --data data.safetensors &&
        echo abc >text && failed "objective masked: the model reads something before its text" \
        train --config shown.json --set vocab=257 --tokenizer bytes --data text --out never
}

check "gradients" gradients_after_others
check "an image before a source" learns_after_images
check "an image before an encoder's text" encoders_after_images
check "what is missing or misshapen" before_is_needed
tap_end
