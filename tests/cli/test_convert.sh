#!/bin/sh
# dra convert, and models of other formats in other verbs, as processes.
#   test_convert.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
data=$(cd "$(dirname "$0")/../data/pth" && pwd) || exit 1
cd "$scratch" || exit 1
json_sorted() { tr -d ' \n' | sed 's/[{},]/\n&\n/g' | sed '/^[{},]*$/d' | sort; }
small="--set vocab=40 --set dim=24 --set heads=2 --set depth=2 --set context=32"

# shellcheck disable=SC2086 # a list of options
makes_models() {
    "$dra" init --preset gpt2-tiny $small --out gpt >"$out" &&
        "$dra" init --preset rwkv4-tiny $small --start rwkv --out rwkv >"$out" &&
        "$dra" convert --from gpt --to gpt-hf --as hf --check >"$out" 2>"$err" &&
        "$dra" convert --from rwkv --to rwkv-hf --as hf --check >"$out" 2>"$err"
}

prints_a_table() {
    "$dra" convert --from gpt-hf --to never --dry-run >"$out" 2>"$err" && [ ! -e never ] &&
        grep -q '^layers.1.mixer.W_v  *(24, 24)  *f[36][24]  *<- transformer.h.1.attn.c_attn' "$out"
}

answers_in_json() {
    says '"from": "transformer.wte.weight"' convert --from gpt-hf --to j --check --json &&
        is_json "$out" && grep -q '"difference": 0}' "$out"
}

there_and_back() {
    for kind in gpt rwkv; do
        "$dra" convert --from $kind-hf --to $kind-own --as dra >"$out" 2>"$err" &&
            cmp $kind/model.safetensors $kind-own/model.safetensors || return 1
    done
}

through_rwkv_cpp() {
    "$dra" convert --from rwkv-hf --to r.bin --as rwkv.cpp --check >"$out" 2>"$err" &&
        "$dra" convert --from r.bin --to r16.bin --as rwkv.cpp --dtype f16 --check \
            >"$out" 2>"$err" &&
        "$dra" forward --model r.bin --tokens 1,2,3 --out r.st
}

# A checkpoint of PyTorch alone, which has no config; and what it is not.
from_pytorch() {
    "$dra" convert --from "$data/rwkv.pth" --to from-pth --as hf --check >"$out" 2>"$err" &&
        grep -q '^rwkv.blocks.1.attention.key.weight .*<- blocks.1.att.key.weight (8, 8) BF16' \
            "$out" && grep -q '"num_hidden_layers": 2' from-pth/config.json &&
        failed "evil.pth: global 'posix.system' is not part of a state dict" \
            convert --from "$data/evil.pth" --to never && [ ! -e never ]
}

# A checkpoint of nanoGPT, with biases and without; a module that was pickled whole is none.
from_nanogpt() {
    nano=$data/../nanogpt
    printf '\1\0\2\0\3\0\4\0\5\0\6\0\7\0\10\0\11\0\12\0\13\0\14\0' >ids.bin
    says 'vocab 13, dim 8, depth 2, heads 2, context 16' info --model "$nano/bias.pt" &&
        "$dra" convert --from "$nano/bias.pt" --to nano-hf --as hf --check >"$out" 2>"$err" &&
        grep -q '^transformer.h.1.mlp.c_fc.weight .*(8, 32) .*(32, 8) F32' "$out" &&
        grep -q '"activation_function": "gelu"' nano-hf/config.json &&
        says '^loss ' eval --model "$nano/bias.pt" --data ids.bin && grep '^loss' "$out" >loss &&
        says '^loss ' eval --model nano-hf --data ids.bin && grep '^loss' "$out" | cmp - loss &&
        says '[0-9]' generate --model "$nano/plain.pt" --prompt-tokens 1,2,3 --tokens 3 &&
        "$dra" convert --from "$nano/plain.pt" --to nano-own --check >"$out" 2>"$err" &&
        failed "never: a gpt2 folder cannot hold norm_bias false, only the default" \
            convert --from "$nano/plain.pt" --to never --as hf && [ ! -e never ]
}

# RWKV 5 to 7: folders of flash-linear-attention and files of rwkv.cpp, and what they cannot hold.
later_rwkv() {
    later=$data/../rwkv567
    says 'delta .* 2 heads of 16' info --model "$later/fla-rwkv7" &&
        says 'moment .* 2 heads of 16' info --model "$later/v5.0-FP16.bin" &&
        "$dra" convert --from "$later/fla-rwkv7" --to seven --check >"$out" 2>"$err" &&
        grep -q '^layers.1.mixer.W_mix_1 .*<- model.layers.1.attn.v_lora.lora.0.weight' "$out" &&
        "$dra" convert --from seven --to seven-fla --as hf --check >"$out" 2>"$err" &&
        grep -aq '"model.layers.2.attn.r_k"' seven-fla/model.safetensors &&
        "$dra" convert --from "$later/fla-rwkv6" --to six --as fla-rwkv6 --check \
            >"$out" 2>"$err" &&
        failed "six.bin: a file of rwkv.cpp cannot hold mixer.head_norm_eps 1" \
            convert --from six --to six.bin --as rwkv.cpp && [ ! -e six.bin ] &&
        "$dra" convert --from six --to six.bin --as rwkv.cpp --set mixer.head_norm_eps=64e-5 \
            >"$out" 2>"$err" &&
        "$dra" generate --model six.bin --prompt-tokens 1,2 --tokens 3 >"$out" 2>"$err"
}

# Tiny presets have ranks and heads that folders of Hugging Face cannot say, unless made for them.
tiny_rwkv() {
    small="--set depth=2 --set dim=64 --set heads=2" # heads of 32, as the presets have
    for version in 6 7; do
        # shellcheck disable=SC2086 # a list of options
        run 0 init --preset rwkv$version-tiny $small --out tiny-$version || return 1
    done
    failed "never: a rwkv6 folder cannot hold mixer.decay_rank 32, only 64" \
        convert --from tiny-6 --to never --as hf &&
        failed "never: a rwkv7 folder cannot hold mixer.head_norm_eps 0.00064, only 0.00032" \
            convert --from tiny-7 --to never --as hf && [ ! -e never ] || return 1
    for version in 6 7; do
        settings="--set mixer.head_norm_eps=0.00032"
        [ $version = 7 ] || settings="--set mixer.shift_rank=32 --set mixer.decay_rank=64"
        # shellcheck disable=SC2086 # a list of options
        run 0 init --preset rwkv$version-tiny $small $settings --out fit-$version &&
            run 0 convert --from fit-$version --to fit-$version-hf --as hf --check || return 1
    done
}

# Folders of x-transformers: made, looked at, converted and back, learned, and read as PyTorch's.
x_transformers() {
    "$dra" init --preset xt-modern-tiny --out xt >"$out" &&
        grep -aq 'attn_layers.layers.7.1.ff.0.proj.weight' xt/model.safetensors &&
        grep -aq 'attn_layers.rotary_pos_emb.inv_freq' xt/model.safetensors &&
        grep -q '"attn_flash": true' xt/config.json && says "depth 4" info --model xt &&
        "$dra" convert --from xt --to xt-own --as dra --check >"$out" 2>"$err" &&
        grep -q '^layers.3.ff.W_gate  *(576, 192) .*<- attn_layers.layers.7.1.ff.0.proj.weight' \
            "$out" && grep -q '"model_type": "dra"' xt-own/config.json &&
        "$dra" convert --from xt-own --to xt-back --as x-transformers --check >"$out" 2>"$err" &&
        cmp xt/model.safetensors xt-back/model.safetensors &&
        "$dra" presets xt-modern-tiny | json_sorted >a.json &&
        json_sorted <xt-back/config.json | cmp a.json -
}

x_transformers_learns() {
    printf '%s' "0123456789 a text to learn from, again and again" >text
    "$dra" train --model xt --data text --out xt-run --steps 2 --batch 1 --context 16 \
        >"$out" 2>"$err" && grep -q '"attn_kv_heads": 2' xt-run/config.json &&
        grep -aq 'attn_layers.layers.0.1.to_q.weight' xt-run/model.safetensors &&
        "$dra" grad --model xt-run --tokens 1,2,3 --out xt-grad.st >"$out" &&
        grep -aq 'attn_layers.layers.0.1.to_q.weight' xt-grad.st && ! grep -aq inv_freq xt-grad.st
}

# Gradients have the names and shapes of the file.
learns_in_its_format() {
    printf '%s' "0123456789 a text to learn from, again and again" >text
    "$dra" init --preset gpt2-tiny --set dim=24 --set heads=2 --out bytes >"$out" &&
        "$dra" convert --from bytes --to bytes-hf --as hf >"$out" 2>"$err" &&
        "$dra" grad --model bytes-hf --tokens 1,2,3 --out g.st >"$out" &&
        grep -aq 'transformer.h.0.attn.c_attn.weight' g.st &&
        sed -i 's/"resid_pdrop": 0.0/"resid_pdrop": 0.5/' bytes-hf/config.json &&
        "$dra" grad --model bytes-hf --tokens 1,2,3 --out dropped.st >"$out" &&
        cmp g.st dropped.st &&
        "$dra" grad --model "$data/rwkv.pth" --tokens 1,2,3 --out g.st >"$out" &&
        grep -aq '"blocks.1.att.key.weight"' g.st && ! grep -aq 'rwkv.blocks' g.st &&
        "$dra" train --model bytes-hf --data text --out run --steps 2 --batch 1 --context 8 \
            >"$out" 2>"$err" &&
        grep -q '"model_type": "gpt2"' run/config.json &&
        "$dra" eval --model run --data text >"$out"
}

# What dra does not know of a config stays in a run, its best model and the next run, also by way of
# dra's own format.
keeps_unknown_keys() {
    sed -i 's/^{/{"summary_type": "cls_index",/; s/"eos_token_id": null/"eos_token_id": 7/' \
        bytes-hf/config.json
    echo '{"max_new_tokens": 3}' >bytes-hf/generation_config.json
    for runs in "bytes-hf kept" "kept kept-on"; do
        "$dra" train --model "${runs% *}" --data text --out "${runs#* }" --steps 1 --batch 1 \
            --context 8 --split 0.5 >"$out" 2>"$err" &&
            grep -q '"summary_type": "cls_index"' "${runs#* }/config.json" &&
            grep -q '"eos_token_id": 7' "${runs#* }/best/config.json" &&
            cmp bytes-hf/generation_config.json "${runs#* }/best/generation_config.json" || return 1
    done
    "$dra" train --resume --out kept-on --data text --steps 2 --force >"$out" 2>"$err" &&
        grep -q '"summary_type"' kept-on/config.json &&
        "$dra" convert --from kept --to kept-own >"$out" 2>"$err" &&
        "$dra" convert --from kept-own --to kept-back --as hf >"$out" 2>"$err" &&
        has kept-back/config.json '"summary_type": "cls_index"' '"eos_token_id": 7' &&
        "$dra" train --model kept-own --data text --out kept-own-run --steps 1 --batch 1 \
            --context 8 >"$out" 2>"$err" &&
        grep -q '"summary_type"' kept-own-run/config.json &&
        "$dra" init --config kept-own/config.json --out kept-fresh >"$out" &&
        ! grep -q summary_type kept-fresh/config.json
}

# The blend starts at 1 and training takes it to 0.
grafts() {
    "$dra" convert --from bytes-hf --to grafted --memory gru --check >"$out" 2>"$err" &&
        "$dra" train --model grafted --data text --out grown --steps 4 --batch 1 --context 8 \
            >"$out" 2>"$err" && grep -q '"blend":0' grown/log.jsonl
}

# What the first memory has learned stays: its parameters get other names, and no new numbers.
grafts_beside() {
    "$dra" init --preset "$1" --set depth=1 --seed 77 --out "own-$1" >"$out" 2>"$err" &&
        "$dra" convert --from "own-$1" --to "two-$1" --memory slots --check >"$out" 2>"$err"
}

# Of either format and of a grafted model that has learned: stopped, saved and gone on with in a new
# process is the same as in one; so is the state that both end with.
goes_on_from_a_state() {
    for model in gpt-hf rwkv-hf grown; do
        sampled="--model $model --temperature 0.9 --seed 4 --ignore-end"
        # shellcheck disable=SC2086 # a list of options
        "$dra" generate $sampled --prompt-tokens 1,2,3 --tokens 12 --state-out whole.st >whole &&
            "$dra" generate $sampled --prompt-tokens 1,2,3 --tokens 5 --state-out half.st >parts &&
            "$dra" generate $sampled --prompt-tokens "" --state-in half.st --tokens 7 \
                --state-out end.st >>parts ||
            return 1
        [ "$(tr -d ' ,\n' <whole)" = "$(tr -d ' ,\n' <parts)" ] && cmp whole.st end.st || return 1
    done
}

resizes() {
    "$dra" convert --from gpt-hf --to big --resize-vocab 50 --check >"$out" 2>"$err" &&
        grep -q '^largest difference of logits: 0 (relative)$' "$out"
}

# config.json alone names the end token: the converted model stops there, and writes it back.
keeps_the_end_token() {
    cp -r rwkv-hf ended && rm -f ended/generation_config.json &&
        with_seed generate --model ended --prompt-tokens 1,2 --tokens 4 --ignore-end >all ||
        return 1
    second=$(cut -d ' ' -f 2 all)
    sed -i "s/^{/{\"eos_token_id\": $second,/" ended/config.json &&
        "$dra" convert --from ended --to ended-own >"$out" 2>"$err" || return 1
    for model in ended ended-own; do
        with_seed generate --model $model --prompt-tokens 1,2 --tokens 4 >some &&
            [ "$(wc -w <some)" -lt 4 ] || { cat some; return 1; }
    done
    "$dra" convert --from ended-own --to ended-back --as hf >"$out" 2>"$err" &&
        grep -q "\"eos_token_id\": $second" ended-back/config.json &&
        "$dra" convert --from gpt-hf --to plain-own >"$out" 2>"$err" &&
        ! grep -q hugging_face plain-own/config.json
}

# One function of several names keeps its name, directly and by way of dra's own format.
keeps_the_activation() {
    for name in gelu_fast gelu_pytorch_tanh; do
        rm -rf named* && cp -r gpt-hf named && sed -i "s/gelu_new/$name/" named/config.json &&
            "$dra" convert --from named --to named-hf --as hf >"$out" 2>"$err" &&
            "$dra" convert --from named --to named-own >"$out" 2>"$err" &&
            "$dra" convert --from named-own --to named-back --as hf >"$out" 2>"$err" &&
            has named-hf/config.json "\"activation_function\": \"$name\"" &&
            has named-back/config.json "\"activation_function\": \"$name\"" || return 1
    done
    "$dra" convert --from named --to named-erf --as hf --set ff.kind=erf >"$out" 2>"$err" &&
        has named-erf/config.json '"activation_function": "gelu"'
}

# Heads play no part in wkv, whether they divide the width or not.
wkv_with_any_heads() {
    for heads in 1 5; do
        "$dra" init --preset rwkv4-tiny --set vocab=40 --set dim=24 --set depth=2 \
            --set heads=$heads --out heads-$heads >"$out" &&
            "$dra" forward --model heads-$heads --tokens 1,2,3 --out heads-$heads.st &&
            "$dra" info --model heads-$heads >heads-$heads.txt || return 1
    done
    cmp heads-1.st heads-5.st && cmp heads-1/model.safetensors heads-5/model.safetensors &&
        "$dra" convert --from heads-5 --to heads-hf --as hf --check >"$out" 2>"$err"
}

# Names as Hugging Face has them; the whole comes back.
writes_shards() {
    "$dra" convert --from gpt-hf --to shards --as hf --shard-size 8KB --check >"$out" 2>"$err" &&
        [ -e shards/model-00002-of-000??.safetensors ] &&
        grep -q '"total_size"' shards/model.safetensors.index.json &&
        "$dra" convert --from shards --to unsharded --as hf >"$out" 2>"$err" &&
        cmp unsharded/model.safetensors gpt-hf/model.safetensors
}

follows_habits() {
    echo '{"max_new_tokens": 3, "eos_token_id": 39}' >gpt-hf/generation_config.json
    "$dra" generate --model gpt-hf --prompt-tokens 1,2 >greedy &&
        "$dra" generate --model gpt-hf --prompt-tokens 1,2 --temperature 0 --tokens 3 >same &&
        cmp greedy same && [ "$(wc -w <greedy)" -eq 3 ] &&
        "$dra" generate --model gpt-hf --prompt-tokens 1,2 --tokens 5 --ignore-end >more &&
        [ "$(wc -w <more)" -eq 5 ] &&
        "$dra" convert --from gpt-hf --to habits.gguf >"$out" 2>"$err" &&
        grep -q '^habits.gguf: without the generation_config.json of its folder' "$err" &&
        "$dra" convert --from rwkv-hf --to habits.bin --as rwkv.cpp >"$out" 2>"$err" &&
        ! grep -q generation_config "$err"
}

# Loaded in the dtype its config names, a file must not be rounded: both say the same.
names_its_dtype() {
    cp -r bytes-hf said &&
        sed -i 's/^{/{"dtype": "float16",/; /"torch_dtype"/d' said/config.json &&
        "$dra" train --model said --data text --out said-run --steps 1 --batch 1 --context 8 \
            >"$out" 2>"$err" &&
        grep -q '"dtype": "float\(32\|64\)"' said-run/config.json &&
        "$dra" convert --from said-run --to said-16 --as hf --dtype bf16 >"$out" 2>"$err" &&
        grep -q '"dtype": "bfloat16"' said-16/config.json
}

# One NaN among the weights: the first number of the first tensor.
finds_no_number() {
    cp -r gpt broken || return 1
    header=$(od -An -tu8 -N8 broken/model.safetensors | tr -d ' ')
    printf '\377\377\377\377\377\377\377\377' |
        dd of=broken/model.safetensors bs=1 seek=$((8 + header)) conv=notrunc 2>/dev/null
    failed "broken/model.safetensors: is damaged: " convert --from broken --to never &&
        failed "relative difference of logits is nan" convert --from broken --to never --check \
            --skip-hash && [ ! -e never ]
}

# A tied head becomes a copy, and one again; heads that differ are not tied.
unties_and_ties() {
    "$dra" convert --from gpt-hf --to untied --as hf --set tied=false --check >"$out" 2>"$err" &&
        grep -q '^lm_head.weight  *(40, 24)  *f[36][24]  *<- transformer.wte.weight (40, 24)' \
            "$out" && grep -q '^largest difference of logits: 0 (relative)$' "$out" &&
        "$dra" convert --from untied --to tied --as hf --set tied=true >"$out" 2>"$err" &&
        cmp tied/model.safetensors gpt-hf/model.safetensors &&
        failed "dra: rwkv-hf: head and embedding differ, expected the same where tied is true" \
            convert --from rwkv-hf --to never --set tied=true && [ ! -e never ]
}

# The second try fails as the first one did.
a_failed_check_leaves_nothing() {
    for i in 1 2; do
        failed ", expected at most 5e-05; nothing written" \
            convert --from gpt-hf --to wrong --set norm_eps=0.5 --check &&
            [ "$(echo wrong* .wrong*)" = 'wrong* .wrong*' ] || return 1
    done
    failed "is there already" convert --from gpt-hf --to gpt --check --json && is_json "$out" &&
        ! grep -q difference "$out"
}

# stopped SIGNAL STATUS: what it prints fills a pipe, which holds it up before anything is written.
stopped() {
    rm -f pipe
    mkfifo pipe
    "$dra" convert --from deep --to cut >pipe 2>"$err" &
    child=$!
    exec 3<pipe
    head -c 1 <&3 >"$out"
    kill "-$1" $child
    cat <&3 >"$out"
    exec 3<&-
    status=0
    wait $child || status=$?
    [ "$status" -eq "$2" ] && has "$err" "dra: cut: stopped; nothing written" &&
        [ "$(echo cut* .cut*)" = 'cut* .cut*' ] || { echo "status $status"; cat "$err"; return 1; }
}

stops() {
    "$dra" init --preset gpt2-tiny --set vocab=8 --set dim=4 --set heads=1 --set context=4 \
        --set depth=80 --out deep >"$out" && stopped INT 130 && stopped TERM 143 || return 1
    if sh -c 'kill -HUP $$'; then echo "SIGHUP is ignored here"; else stopped HUP 129; fi
}

sweeps() {
    mkdir .swept.dra-99999999.tmp .swept.dra-$$.tmp .swept.dra-x.tmp swept.99999999.tmp &&
        touch .swept.dra-99999999.tmp/config.json &&
        "$dra" convert --from gpt --to swept >"$out" 2>"$err" &&
        [ "$(echo swept* .swept*)" = \
            "swept swept.99999999.tmp .swept.dra-$$.tmp .swept.dra-x.tmp" ]
}

# For a file that brings none, and instead of those that would come along.
brings_a_tokenizer() {
    "$dra" tokenizer train --data text --vocab 260 --out t.json >"$out" 2>"$err" &&
        failed "dra: never: the tokenizer has 260 tokens, the new model 13" \
            convert --from "$data/rwkv.pth" --to never --tokenizer t.json && [ ! -e never ] &&
        "$dra" convert --from "$data/rwkv.pth" --to with --as hf --tokenizer t.json \
            --resize-vocab 300 >"$out" 2>"$err" && cmp t.json with/tokenizer.json &&
        "$dra" generate --model with --prompt "a text" --tokens 2 >"$out" || return 1
    echo '{}' | tee with/vocab.json with/special_tokens_map.json >with/generation_config.json
    "$dra" tokenizer train --data text --vocab 258 --out u.json >"$out" 2>"$err" &&
        "$dra" convert --from with --to other --tokenizer u.json >"$out" 2>"$err" &&
        cmp u.json other/tokenizer.json &&
        [ "$(ls other | tr '\n' ' ')" = \
            "config.json generation_config.json model.safetensors tokenizer.json " ]
}

check "makes models" makes_models
check "prints a table, writes nothing" prints_a_table
check "--json" answers_in_json
check "there and back, to the bit" there_and_back
check "through rwkv.cpp" through_rwkv_cpp
check "RWKV 5 to 7" later_rwkv
check "tiny presets of RWKV in folders of Hugging Face" tiny_rwkv
check "from PyTorch" from_pytorch
check "from nanoGPT" from_nanogpt
check "learns in its format" learns_in_its_format
check "keeps keys it does not know" keeps_unknown_keys
check "keeps the end token" keeps_the_end_token
check "keeps the activation's name" keeps_the_activation
check "wkv with any number of heads" wkv_with_any_heads
check "grafts a memory" grafts
for preset in dra-delta-tiny dra-gru-tiny dra-slots-tiny rwkv4-tiny rwkv7-tiny; do
    check "grafts a memory beside that of $preset" grafts_beside $preset
done
check "goes on from a state, in another process" goes_on_from_a_state
check "generation_config.json" follows_habits
check "another size of vocabulary" resizes
check "shards" writes_shards
check "the config names the dtype of the file" names_its_dtype
check "heads are untied and tied" unties_and_ties
check "a failed check leaves nothing" a_failed_check_leaves_nothing
check "a check finds what is no number" finds_no_number
check "signals leave nothing" stops
check "sweeps what was left" sweeps
check "another tokenizer" brings_a_tokenizer
check "a file of no format" failed \
    "dra: text: is none of these: safetensors, a checkpoint of PyTorch, GGUF, a file of rwkv.cpp" \
    generate --model text --prompt a
check "no name" misused "dra convert: --to: expected a new name, found none" \
    convert --from gpt --to ""
check "a file has no tokenizer" misused \
    "dra convert: --tokenizer: an rwkv.cpp model is a single file" \
    convert --from rwkv --to never --as rwkv.cpp --tokenizer t.json
check "a size that is none" misused \
    "dra convert: --shard-size: expected a size such as 2GB, found '2 GB'" \
    convert --from gpt --to never --shard-size "2 GB"
check "a file has no shards" misused \
    "dra convert: --shard-size: an rwkv.cpp model is a single file" \
    convert --from rwkv --to never --as rwkv.cpp --shard-size 1MB
# Folders and GGUF of quantised weights give the same text; both say what was lost.
quantises() {
    run 0 convert --from wide --to wide-q4 --quantise q4_0 --keep emb &&
        has "$out" "perplexity " "activations q8 " "each alone " "layers.0 " &&
        run 0 convert --from wide --to wide.gguf --quantise q4_0 --keep emb --json &&
        has "$out" "\"perplexity\": [" "\"activations_q8\": " "\"parts\": [{\"part\": \"layers." &&
        run 0 generate --model wide-q4 --prompt abc --tokens 8 --temperature 0 || return 1
    text=$(cat "$out")
    run 0 generate --model wide.gguf --tokenizer bytes --prompt abc --tokens 8 --temperature 0 &&
        [ "$text" = "$(cat "$out")" ]
}
# Activations in 8 bits: near the full ones, and not the same.
rounds_activations() {
    printf 'one two three four five six seven eight nine ten' >numbers.txt
    run 0 perplexity --model wide-q4 --data numbers.txt || return 1
    full=$(sed -n 's/^loss *//p' "$out")
    run 0 perplexity --model wide-q4 --data numbers.txt --activations q8 || return 1
    awk -v a="$full" -v b="$(sed -n 's/^loss *//p' "$out")" \
        'BEGIN { d = a - b; exit !(d * d < 1e-4 && d != 0) }' &&
        run 0 generate --model wide-q4 --prompt abc --tokens 3 --activations q8 &&
        run 0 forward --model wide-q4 --tokens 1,2 --out rounded.safetensors --activations q8
}
run 0 init --preset gpt2 --set vocab=256 --set dim=64 --set heads=2 --set depth=1 \
    --set context=32 --out wide
check "quantised" quantises
check "rounded activations" rounds_activations
check "nothing to round" failed \
    "dra: --activations q8: activations are rounded where matrices are q8_0, q5_1, q5_0" \
    eval --model wide --data numbers.txt --activations q8
check "quantised weights do not learn" failed \
    "is q4_0, expected f32, f16 or bf16 to train: convert the model with --dtype f32 first" \
    train --model wide-q4 --data text --steps 1 --out no-run
check "what is kept of nothing" misused "dra convert: --keep: expected --quantise" \
    convert --from gpt --to never --keep head
check "quantised folders of others" failed "folders of gpt2 cannot hold q8_0" \
    convert --from wide --to never --as gpt2 --quantise q8_0
check "x-transformers" x_transformers
check "x-transformers learns" x_transformers_learns
check "what x-transformers cannot hold" failed "an x-transformers folder cannot hold " \
    convert --from gpt --to never --as x-transformers
run 0 init --preset dra-delta-tiny --set dim=16 --set heads=2 --set depth=1 --out delta
check "what Hugging Face has no class for" failed \
    "delta: Hugging Face has no class for this model: its layers have a delta memory; expected" \
    convert --from delta --to never --as hf
run 0 init --preset xt-modern-tiny --out modern
check "a feed-forward that GPT-2 lacks" failed \
    "modern: Hugging Face has no class for this model: its feed-forward layers are not those of" \
    convert --from modern --to never --as hf --dry-run
check "what is there" failed "dra: gpt-hf: is there already, expected a new name" \
    convert --from gpt --to gpt-hf
check "what a format cannot hold" failed "a rwkv folder cannot hold " \
    convert --from gpt --to never --as rwkv
check "no such folder" failed "dra: nowhere: no such folder or file" \
    convert --from nowhere --to never
check "a check of nothing" misused \
    "dra convert: --check needs the files that --dry-run does not write" \
    convert --from gpt --to never --dry-run --check
tap_end
