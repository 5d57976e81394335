#!/bin/sh
# JSON by the letter: what every verb prints or writes as JSON parses strictly, also where numbers
# are NaN or infinite. Those are null, with a count, and a result that is none has status 1.
#   test_strict_json.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
parser=$(dirname "$dra")/tests/cli/strict_json
cd "$scratch" || exit 1

strict() { "$parser" "$1" && [ "$(head -c 1 "$1")" = '{' ] || { cat "$1"; return 1; }; }
strict_lines() { "$parser" --lines "$1" || { cat "$1"; return 1; }; }

# all_numbers BYTES NAME: the model `NAME` is m with all its numbers of these bytes, as printf takes
# them, and without a hash, as of another program.
all_numbers() {
    cp -r m "$2" && file=m/model.safetensors || return 1
    head_bytes=$(($(od -An -tu8 -N8 $file) + 8))
    bytes=$(($(wc -c <$file) - head_bytes))
    printf '%b' "$1" >numbers
    while [ "$(wc -c <numbers)" -lt $bytes ]; do
        cat numbers numbers >more && mv more numbers || return 1
    done
    {
        head -c $head_bytes $file | LC_ALL=C sed 's/"dra":"2","hash"/"old":"2","gone"/'
        head -c $bytes numbers
    } >"$2/model.safetensors"
}

small="--set dim=16 --set heads=2 --set depth=1"
# shellcheck disable=SC2086 # a list of options
"$dra" init --preset dra-gru-tiny $small --out m >/dev/null || exit 1
if grep -q '"F64"' m/model.safetensors; then
    all_numbers '\0000\0000\0000\0000\0000\0000\0370\0177' nan &&
        all_numbers '\0000\0000\0000\0000\0000\0000\0360\0177' inf
    large='\0000\0000\0000\0000\0000\0000\0131\0100' # 100 and -100
    other='\0000\0000\0000\0000\0000\0000\0131\0300'
else
    all_numbers '\0000\0000\0300\0177' nan && all_numbers '\0000\0000\0200\0177' inf
    large='\0000\0000\0310\0102' other='\0000\0000\0310\0302'
fi && all_numbers "$large$large$other" large || exit 1
i=0
while [ "$i" -lt 12 ]; do
    echo "Line $i of a story that goes on and on, with \"quotes\" and numbers: $((i * i))."
    i=$((i + 1))
done >story.txt
printf '{"src": "row of", "tgt": "bytes"}\n{"src": "another", "tgt": "row"}\n' >pairs.jsonl
printf '{"context": "The sky", "choices": [" blue", " large"], "answer": 0}\n' >questions.jsonl
printf '{"prompt": "Once"}\n{"prompt": "Twice", "seed": 3}\n' >prompts.jsonl

# ---- numbers that are not finite -----------------------------------------------------------------

# none TEXT ARGUMENTS...: status 1 with the text; what is printed is JSON with null and a count.
none() {
    text=$1
    shift
    run 1 "$@" </dev/null && has "$err" "$text" && strict "$out" &&
        has "$out" ': null' '"not_finite": '
}

# refused TEXT ARGUMENTS...: status 1 with the text, nothing printed.
refused() {
    text=$1
    shift
    run 1 "$@" </dev/null && has "$err" "$text" && quiet "$out"
}

evaluates() { # evaluates MODEL: status 1, as JSON and as text, and lines for all tokens
    none "tokens are not finite" eval --model "$1" --data story.txt --json --per-token t &&
        strict_lines t && has t '"logprob": null' &&
        none "tokens are not finite" eval --model "$1" --data story.txt --json --context 16 \
            --stride 8 &&
        none "the loss is not finite" eval --model "$1" --data pairs.jsonl --tgt-key tgt --json &&
        run 1 eval --model "$1" --data story.txt && has "$out" nan &&
        run 1 eval --model "$1" --data pairs.jsonl --tgt-key tgt && has "$out" nan &&
        refused "its log-probability is not finite" eval --model "$1" --data questions.jsonl --json
}

differentiates() {
    none "the loss is" grad --model "$1" --tokens 1,2,3,4 --out g --json &&
        run 1 grad --model "$1" --tokens 1,2,3,4 --out g && has "$out" "loss " nan
}

generates() {
    refused "logits are not finite" generate --model "$1" --prompt Once --tokens 2 --json \
        --logprobs 2 &&
        refused "logits are not finite" generate --model "$1" --prompt Once --tokens 2 --beam 2 \
            --json &&
        refused "not finite" generate --model "$1" --prompts prompts.jsonl --tokens 2 --logprobs 2
}

shows() { # decays are shown as they are: that is no failure
    run 0 info --model "$1" --json && strict "$out" && has "$out" '"not_finite": ' ': null'
}

converts() {
    none "relative difference of logits" convert --from "$1" --to "new-$1" --check --json &&
        has "$out" '"failed": true, "difference": null' && [ ! -e "new-$1" ] &&
        run 0 convert --from "$1" --to "new-$1" --json && strict "$out"
}

trains() { # lines of the log, and what report and sweep make of them
    run 1 train --model "$1" --data story.txt --split 0.2 --steps 2 --batch 1 --context 8 \
        --log-every 1 --eval-every 1 --tensorboard --out "run-$1" </dev/null &&
        strict_lines "run-$1/log.jsonl" &&
        has "run-$1/log.jsonl" '"loss":null' '"grad_norm":null' '"not_finite":2' \
            '"eval_loss":null' &&
        run 0 report "run-$1" --out "$1.html"
}

sweeps() { # sweeps STATUS MODEL
    run "$1" sweep --model "$2" --data story.txt --split 0.2 --steps 2 --batch 1 --context 8 \
        --set lr=0.001,0.01 --out "all-$2" </dev/null && strict "all-$2/sweep.json" || return 1
    for log in "all-$2"/*/log.jsonl; do strict_lines "$log" || return 1; done
}

probes() {
    refused "not finite" probe copy --model "$1" --length 16 --steps 1 --tests 8 --json
}

for model in nan inf; do
    check "eval: $model" evaluates $model
    check "grad: $model" differentiates $model
    check "generate: $model" generates $model
    check "embed: $model" refused "hidden states are not finite" embed --model $model --text Once
    check "info: $model" shows $model
    check "convert: $model" converts $model
    check "train: $model" trains $model
    check "sweep: $model" sweeps 1 $model
    check "probe: $model" probes $model
done
# Losses that are finite, but their perplexity is not: the loss is the result, and it is there.
perplexed() {
    run 0 eval --model large --data story.txt --json && strict "$out" &&
        has "$out" '"perplexity": null' '"not_finite": 1' || return 1
    ! grep -q '"loss": null' "$out" || { cat "$out"; return 1; }
}
check "eval: a perplexity too large for a number" perplexed

# ---- all else ------------------------------------------------------------------------------------

# whole ARGUMENTS...: an answer that is one JSON object, without a count; lines: one on each line.
whole() { run 0 "$@" </dev/null && strict "$out" && ! grep -q not_finite "$out"; }
lines() { run 0 "$@" </dev/null && strict_lines "$out" && ! grep -q not_finite "$out"; }

texts() {
    whole tokenize --tokenizer bytes --json 'a "b" \ c' &&
        whole tokenize --tokenizer bytes --json --count a &&
        whole detokenize --tokenizer bytes --json 97 34 200 92 &&
        whole tokenizer train --data story.txt --vocab 260 --out words --json
}
check "eval" whole eval --model m --data story.txt --json
check "eval of pairs" whole eval --model m --data pairs.jsonl --tgt-key tgt --json
check "eval of questions" whole eval --model m --data questions.jsonl --json
check "grad" whole grad --model m --tokens 1,2,3,4 --out g --json
check "info" whole info --model m --json
check "generate" whole generate --model m --prompt 'On"ce' --tokens 3 --logprobs 2 --json
check "beams" whole generate --model m --prompt Once --tokens 3 --beam 2 --json
check "prompts" lines generate --model m --prompts prompts.jsonl --tokens 3 --logprobs 2
check "embed" lines embed --model m --text Once
check "probe" lines probe copy --preset gpt2-tiny --set heads=2 --length 16 --steps 1 --tests 8 \
    --json
check "convert" whole convert --from m --to other --check --json
check "texts and tokens" texts
sweeps_well() {
    sweeps 0 m && strict_lines all-m/done.jsonl && ! grep -q not_finite all-m/sweep.json
}
check "sweep" sweeps_well
check "presets" whole presets --json
check "ops" whole ops --json
check "bench" whole bench executor-tiny --repeats 1 --threads 2 --json

tap_end
