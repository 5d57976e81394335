#!/bin/sh
# Every verb, with one allocation after the other that fails (alloc.c, loop.c): out of memory is
# status 1 and a line that says so, or the command does what it does anyway. Sampled; every
# allocation with DRA_TEST_FULL=1. DRA_FAULT_ONLY=REGEX picks commands by their name.
#   test_alloc.sh PATH_OF_DRA
set -u
dra=$1
faults=$(dirname "$dra")/tests/faults
data=$(cd "$(dirname "$0")/../data" && pwd) || exit 1
TMPDIR=${DRA_FAULT_TMPDIR:-$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")}
export TMPDIR
. "$(dirname "$0")/../cli/process.sh"
cd "$scratch" || exit 1

# The address sanitizer is slow, but finds what is not freed.
runs=8 every=0 two=2
if grep -q __asan_init "$dra"; then
    runs=1 every=40 two=1 # a thread of its own fails without memory
    ASAN_OPTIONS=verify_asan_link_order=0:allocator_may_return_null=1
    export ASAN_OPTIONS
fi
[ -z "${DRA_TEST_FULL:-}" ] || runs=$every
runs=${DRA_FAULT_RUNS:-$runs}

# ---- what the commands need ----------------------------------------------------------------------

tiny="--set dim=8 --set heads=2 --set depth=1"
mkdir none in
awk 'BEGIN { while (i++ < 30) printf "User: hi\n\nBot: line %d of a story.\n\n", i * i }' \
    >in/story.txt
printf '{"text": "one"}\n{"text": "a second one, compressed"}\n' | gzip >in/lines.jsonl.gz
printf 'hi\n/set temperature 0\n/stats\n/save kept\n/undo\nagain\n/quit\n' >in/said
printf '{"prompt": "Once"}\n{"ids": [65, 66], "seed": 3}\n' >in/prompts.jsonl
echo 'root ::= "a" [b-d]+ | "x"' >in/letters.gbnf
echo '{"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}' >in/schema.json
echo '{"model_type": "x-transformers", "wrapper": "TransformerWrapper", "num_tokens": 256,
    "max_seq_len": 16, "attn_layers": {"type": "Decoder", "dim": 8, "depth": 1, "heads": 2,
    "attn_dim_head": 4, "rotary_pos_emb": true, "ff_glu": true}}' >in/xt.json
brief="--batch 2 --context 16 --log-every 1 --sample-every 0 --threads 1 --seed 3"
# shellcheck disable=SC2086 # lists of options
{
    "$dra" init --preset dra-gru-tiny $tiny --out in/m &&
        "$dra" init --preset gpt2-tiny $tiny --set context=16 --out in/gpt2 &&
        "$dra" init --preset rwkv4-tiny --set dim=8 --set depth=1 --out in/rwkv &&
        "$dra" init --preset gpt2-tiny --set dim=32 --set heads=2 --set depth=1 --set context=16 \
            --out in/wide &&
        "$dra" convert --from in/wide --to in/wide.gguf &&
        "$dra" convert --from in/gpt2 --to in/hf --as hf &&
        "$dra" init --config in/xt.json --out in/xt &&
        "$dra" tokenizer train --data in/story.txt --vocab 270 --out in/words &&
        "$dra" generate --seed 0 --model in/m --prompt ab --tokens 3 --state-out in/state &&
        "$dra" train --preset dra-gru-tiny $tiny --data in/story.txt --steps 1 $brief \
            --out in/run &&
        "$dra" probe copy --preset dra-gru-tiny $tiny --steps 1 --batch 2 --length 12 --tests 2 \
            --json >in/probe.jsonl
} >said 2>&1 </dev/null || {
    cat said
    exit 1
}
mkdir started && cp -r in/run started/run

# ---- the loop ------------------------------------------------------------------------------------

in=$scratch/in
: >counts

# faults NAME START INPUT ARGUMENTS...: the command in a copy of START, with each fault.
faults() {
    name=$1 begin=$scratch/$2 from=$3
    shift 3
    echo "$name" | grep -Eq "${DRA_FAULT_ONLY:-.}" || return 0
    check "$name" looped "$begin" "$from" "$@"
}

looped() {
    begin=$1 from=$2
    shift 2
    said=$("$faults/loop" "$faults/alloc.so" "$begin" "$runs" "$from" "$dra" "$@")
    status=$?
    printf '%-18s %s\n' "$name" "$(printf '%s\n' "$said" | tail -n 1)" >>"$scratch/counts"
    printf '%s\n' "$said"
    return $status
}

# shellcheck disable=SC2086 # lists of options
all() {
    quiet=/dev/null
    faults init none $quiet init --preset dra-gru-tiny $tiny --out m
    faults train none $quiet train --preset dra-gru-tiny $tiny --data "$in/story.txt" --split 0.2 \
        --steps 2 --eval-every 2 --cache kept $brief --out run
    faults train-words none $quiet train --preset dra-slots-tiny $tiny --data "$in/lines.jsonl.gz" \
        --tokenizer "$in/words" --steps 1 $brief --out run
    faults resume started $quiet train --resume --steps 2 --out run --threads 1
    # Runs of a sweep that fail do not keep the others from their turn.
    DRA_FAULT_MAY_DIFFER="report.html sweep.json done.jsonl" \
        faults sweep none $quiet sweep --preset dra-gru-tiny $tiny --data "$in/story.txt" \
        --split 0.2 --steps 1 --batch 2 --context 16 --sample-every 0 --threads 1 \
        --set lr=0.001,0.002 --out s
    faults probe none $quiet probe copy --preset dra-gru-tiny $tiny --steps 1 --batch 2 \
        --length 12 --tests 2 --threads 1
    faults eval none $quiet eval --model "$in/m" --data "$in/story.txt" --context 32 --threads 1 \
        --json
    faults generate none $quiet generate --seed 0 \
        --model "$in/m" --prompt ab --tokens 4 --state-out s \
        --threads 1
    faults generate-state none $quiet generate --seed 0 \
        --model "$in/m" --state-in "$in/state" --prompt c \
        --tokens 3 --count 2 --logprobs 2 --json --threads $two
    faults generate-grammar none $quiet generate --seed 0 \
        --model "$in/m" --prompt a --tokens 3 \
        --grammar "$in/letters.gbnf" --threads 1
    faults generate-schema none $quiet generate --seed 0 \
        --model "$in/m" --prompt a --tokens 8 \
        --json-schema "$in/schema.json" --threads 1
    faults generate-prompts none $quiet generate --seed 0 \
        --model "$in/m" --prompts "$in/prompts.jsonl" \
        --tokens 3 --threads 1
    faults generate-stdin none "$in/said" generate --seed 0 \
        --model "$in/m" --prompt - --tokens 3 --threads 1
    faults generate-beams none $quiet generate --seed 0 \
        --model "$in/gpt2" --prompt ab --tokens 3 --beam 2 \
        --threads 1
    faults chat none "$in/said" chat --model "$in/m" --tokens 4 --seed 2 --threads 1
    faults chat-template none "$in/said" chat --model "$in/m" --tokens 4 --seed 2 --threads 1 \
        --chat-template chatml --system brief
    faults forward none $quiet forward --model "$in/m" --text abc --text d --out f.safetensors \
        --state-out s --threads 1
    faults grad none $quiet grad --model "$in/gpt2" --tokens 1,2,3,4 --out g.safetensors \
        --threads $two
    faults embed none $quiet embed --model "$in/m" --texts "$in/story.txt" --out e.npy --threads 1
    faults info none $quiet info --model "$in/m" --threads $two
    faults info-json none $quiet info --model "$in/m" --json --threads $two
    faults convert-hf none $quiet convert --from "$in/gpt2" --to hf --as hf --check --threads 1
    faults convert-from none $quiet convert --from "$in/hf" --to m --threads 1 --json
    faults convert-graft none $quiet convert --from "$in/gpt2" --to m --memory gru --dtype bf16 \
        --resize-vocab 260 --shard-size 2KB
    faults convert-rwkv.cpp none $quiet convert --from "$in/rwkv" --to r.bin --as rwkv.cpp
    faults convert-xt none $quiet convert --from "$in/xt" --to x --as x-transformers
    faults convert-pth none $quiet convert --from "$data/pth/rwkv.pth" --to m
    faults convert-quantise none $quiet convert --from "$in/wide" --to q --quantise q8_0 --threads 1
    faults convert-gguf none $quiet convert --from "$in/wide" --to q.gguf --quantise q4_0 \
        --threads 1
    faults convert-from-gguf none $quiet convert --from "$in/wide.gguf" --to m --threads 1
    faults perplexity none $quiet perplexity --model "$in/m" --data "$in/story.txt" --context 16 \
        --convention llama.cpp --threads 1
    faults report started $quiet report run "$in/probe.jsonl" --threads 1
    faults tokenizer none $quiet tokenizer train --data "$in/story.txt" --vocab 270 --out t.json \
        --threads $two
    faults tokenize none $quiet tokenize --tokenizer "$in/words" --file "$in/story.txt"
    faults tokenize-world none $quiet tokenize --tokenizer "$data/world" "a story" --json
    faults detokenize none $quiet detokenize --tokenizer "$in/words" 72 101 260 --json
    faults presets none $quiet presets --json
    faults ops none $quiet ops
    faults help none $quiet help --install share
    faults bench none $quiet bench --list
}

# A server with faults.
served() {
    mkdir -p serving && cp -r in/m serving/m || return 1
    said=$(cd serving && "$faults/served" alloc "$runs" "$faults/alloc.so" "$dra" m)
    status=$?
    printf '%-18s %s\n' serve "$(printf '%s\n' "$said" | tail -n 1)" >>"$scratch/counts"
    printf '%s\n' "$said"
    return $status
}

all
if [ -x "$faults/served" ] && echo serve | grep -Eq "${DRA_FAULT_ONLY:-.}"; then
    check serve served
fi
sed 's/^/# /' counts
tap_end
