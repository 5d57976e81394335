#!/bin/sh
# The verbs that read models, as processes: files, exit status, what is refused and left alone.
#   test_verbs.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
llama=$(cd "$(dirname "$0")/../data/llama" && pwd) || exit 1
cd "$scratch" || exit 1

# A small model m, another one of the same shape n, one with learned positions p, and a text.
small="--set dim=24 --set heads=2 --set depth=2"
# shellcheck disable=SC2086 # a list of options
{
    "$dra" init --preset dra-gru-tiny $small --seed 1 --out m
    "$dra" init --preset dra-gru-tiny $small --seed 2 --out n
    "$dra" init --preset gpt2-tiny $small --set context=16 --out p
} >/dev/null || exit 1
i=0
while [ "$i" -lt 60 ]; do
    echo "Line $i of a story that goes on and on, with numbers: $((i * i))."
    i=$((i + 1))
done >story.txt

same() { cmp "$1" "$2"; }
json_tokens() { sed 's/.*"tokens": \[\([^]]*\)\].*/\1/' "$1" | head -n 1; }
number() { sed "s/.*\"$1\": \([-0-9.e+]*\).*/\1/" "$out"; }

# flip FILE BYTE NEW: a copy called `broken` with one byte changed.
flip() { { head -c "$2" "$1"; printf '%b' "$3"; tail -c +$(($2 + 2)) "$1"; } >broken; }

# ---- presets, init, info -------------------------------------------------------------------------

presets_are_configs() {
    answers presets gpt2-tiny && cp "$out" c.json && run 0 init --config c.json --out by-config &&
        run 0 init --preset gpt2-tiny --out by-preset && same by-config/model.safetensors \
        by-preset/model.safetensors && same by-config/config.json by-preset/config.json
}

init_keeps_what_is_there() {
    cp m/model.safetensors before
    failed "m/config.json is there already; --force replaces it" init --preset gpt2 --out m &&
        same before m/model.safetensors
}

init_replaces_by_force() {
    cp -r n copy && run 0 init --config m/config.json --seed 1 --out copy --force &&
        same copy/model.safetensors m/model.safetensors && same copy/config.json m/config.json
}

init_leaves_nothing_of_another_model() {
    mkdir left && for name in pytorch_model.bin vocab.json merges.txt tokenizer.json mine.json; do
        echo '{}' >left/$name
    done
    failed "left/pytorch_model.bin is there already; --force replaces it" \
        init --preset gpt2-tiny --out left &&
        run 0 init --preset gpt2-tiny --out left --force &&
        [ "$(cd left && echo *)" = "config.json mine.json model.safetensors" ] &&
        run 0 generate --model left --prompt a --tokens 1
}

init_refuses_before_it_writes() {
    failed "$1" init --preset dra-gru-tiny --set "$2" --out never && [ ! -e never ]
}

info_has_all_numbers() {
    answers info --model m --json && is_json "$out" && grep -q '"state": {"bytes": ' "$out" &&
        [ "$(grep -c '"half_life": ' "$out")" -eq 4 ] || return 1
    sum=$(sed -n 's/.*"parts": {\([^}]*\)}.*/\1/p' "$out" | tr ',' '\n' |
        awk -F: '{ s += $2 } END { print s }')
    head -n 1 "$out" | grep -q "{\"parameters\": $sum, "
}

# 10^13 parameters, which nobody could draw; the decays are those that drawn weights have.
info_draws_nothing() {
    says '^parameters    [0-9]\{14\},' info --preset dra-ema-tiny --set vocab=1048576 \
        --set dim=1048576 --set ff.dim=8 --set heads=4 || return 1
    for preset in dra-ema-tiny dra-slots-tiny rwkv4-tiny retention-tiny dra-gru-tiny; do
        run 0 init --preset $preset --out drawn --force && answers info --model drawn --json &&
            cp "$out" drawn.json && answers info --preset $preset --json &&
            same "$out" drawn.json || return 1
    done
}

# ---- forward, grad -------------------------------------------------------------------------------

list=5,6,7,8,9,10,11,12,13,14,15

# Whole, in chunks, from a file of ids, token by token through state files.
forward_in_parts() {
    run 0 forward --model m --tokens $list --out a --state-out sa || return 1
    run 0 forward --model m --tokens $list --chunks 3,1,7 --out b --state-out sb || return 1
    echo "[$list]" | tr ',' ' ' >ids.txt
    run 0 forward --model m --tokens @ids.txt --chunks 2 --out c --state-out sc || return 1
    same a b && same sa sb && same a c && same sa sc || return 1
    state=
    for id in $(echo $list | tr ',' ' '); do
        # shellcheck disable=SC2086 # none or an option
        run 0 forward --model m --tokens "$id" $state --out d --state-out sd || return 1
        state="--state-in sd"
    done
    run 0 forward --model m --tokens $list --keep 1 --out e && same d e && same sa sd
}

# A list of positions: in its order, counted from the end, over borders of chunks; as --keep.
positions_in_any_order() {
    run 0 forward --model m --tokens $list --positions 8,9,10 --out a --state-out sa &&
        run 0 forward --model m --tokens $list --keep 3 --out b --state-out sb &&
        same a b && same sa sb &&
        run 0 forward --model m --tokens $list --positions=-3,-2,-1 --chunks 9 --out c \
            --state-out sc && same a c && same sa sc || return 1
    tensors ids:2,3 mask:2,3 >in &&
        run 0 forward --model m --inputs in --positions 0,1,2 --out a --state-out sa &&
        run 0 forward --model m --inputs in --out b --state-out sb && same a b && same sa sb
}

threads_change_nothing() {
    run 0 forward --model m --tokens $list --threads 1 --out a --outputs logits,hidden,state &&
        run 0 forward --model m --tokens $list --threads 7 --out b --outputs state,hidden,logits &&
        same a b
}

# holds FILE NAME SHAPE: the header of a safetensors file lists this tensor, of reals.
holds() {
    real=F32
    ! grep -q '"F64"' "$1" || real=F64
    has "$1" "\"$2\":{\"dtype\":\"$real\",\"shape\":[$3]"
}

# Sublayers one by one, two in each of two layers; hidden states also in chunks.
forward_shows_sublayers() {
    run 0 forward --model m --tokens $list --outputs hiddens,adds --out a &&
        holds a hiddens 5,11,24 && holds a adds 4,11,24 &&
        run 0 forward --model m --tokens $list --outputs adds,hiddens --chunks 3,4 --out b &&
        same a b || return 1
    run 0 forward --model m --tokens $list --outputs scores --out a &&
        holds a layers.0.scores 2,11,16 && holds a layers.1.scores 2,11,16 &&
        ! grep -q attention a &&
        run 0 forward --model m --tokens $list --outputs attentions --out b &&
        holds b layers.1.attention 2,11,16 && ! grep -q scores b || return 1
    tensors ids:2,3 >in &&
        run 0 forward --model m --inputs in --outputs hiddens,adds,scores,streams --out a &&
        holds a hiddens 5,2,3,24 && holds a adds 4,2,3,24 && holds a streams 3,2,3,24 &&
        holds a layers.0.scores 2,2,3,16 || return 1
    run 0 forward --preset xt-modern-tiny --set tied_layers=true --set depth=3 --tokens 1,2,3 \
        --outputs hiddens,attentions --out a && holds a hiddens 7,3,192 || return 1
    for l in 0 1 2; do holds a "layers.$l.attention" 6,3,16 || return 1; done
}

# safetensors NAME:SHAPE... : a file of bytes 1, 2, 3, ...; each tensor has 6.
tensors() {
    header= at=0 data=
    for part in "$@"; do
        header="$header,\"${part%%:*}\":{\"dtype\":\"U8\",\"shape\":[${part#*:}],"
        header="$header\"data_offsets\":[$at,$((at + 6))]}"
        at=$((at + 6))
        data="$data\\1\\2\\3\\4\\5\\6"
    done
    header="{${header#,}}"
    while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
    printf "\\$(printf '%03o' $((${#header} % 256)))\\$(printf '%03o' $((${#header} / 256)))"
    printf '\0\0\0\0\0\0%s' "$header"
    printf "$data"
}

forward_reads_tensors() {
    tensors ids:6 >in && run 0 forward --model m --inputs in --out a &&
        run 0 forward --model m --tokens 1,2,3,4,5,6 --out b && same a b || return 1
    tensors ids:2,3 mask:2,3 >in && run 0 forward --model m --inputs in --out c || return 1
    [ "$(wc -c <c)" -eq "$(wc -c <a)" ] && run 0 grad --model m --inputs in --out g
}

refuses_inputs() {
    tensors ids:6 y:6 >in &&
        failed "in: tensor y is not an input, expected ids, mask, reset, targets, x" \
        forward --model m --inputs in --out never && tensors mask:6 >in &&
        failed "in: tensor ids is missing, and there is no x" \
            forward --model m --inputs in --out never &&
        tensors ids:2,3 mask:6 >in && failed in forward --model m --inputs in --out never &&
        [ ! -e never ]
}

# embedded FILE SHAPE COUNT: from the streams that forward wrote, a file whose x is their first
# COUNT numbers, the embeddings.
embedded() {
    dtype=F32 width=4
    grep -q '"F64"' "$1" && dtype=F64 width=8
    header="{\"x\":{\"dtype\":\"$dtype\",\"shape\":[$2],\"data_offsets\":[0,$(($3 * width))]}}"
    while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
    printf "\\$(printf '%03o' ${#header})\0\0\0\0\0\0\0%s" "$header"
    tail -c +$(($(od -An -tu8 -N8 "$1") + 9)) "$1" | head -c $(($3 * width))
}

# The same logits as from the ids, in chunks too; one more axis.
forward_reads_embeddings() {
    run 0 forward --model m --tokens $list --outputs streams --out s &&
        embedded s 11,24 264 >in && run 0 forward --model m --inputs in --out a &&
        run 0 forward --model m --tokens $list --out b && same a b &&
        run 0 forward --model m --inputs in --chunks 4,5 --resets 6 --out a &&
        run 0 forward --model m --tokens $list --resets 6 --out b && same a b || return 1
    embedded s 2,4,24 192 >in && run 0 forward --model m --inputs in --out a &&
        tail -c +$(($(od -An -tu8 -N8 a) + 9)) a | head -c 4096 >first &&
        run 0 forward --model m --tokens 5,6,7,8 --out b &&
        tail -c +$(($(od -An -tu8 -N8 b) + 9)) b | head -c 4096 >second && same first second &&
        grep -q '\[2,4,256\]' a || return 1
    embedded s 4,12 48 >in && failed "in: tensor x has width 12, the model 24" \
        forward --model m --inputs in --out never &&
        embedded s 24 24 >in && failed "in: tensor x has 1 axes, expected 2 or 3" \
        forward --model m --inputs in --out never && tensors ids:6 x:6 >in &&
        failed "in: expected only one of ids and x" forward --model m --inputs in --out never &&
        tensors x:1,6 >in && failed "in: tensor x has width 6, the model 24" \
        forward --model m --inputs in --out never && embedded s 2,24 48 >in &&
        failed "in: tensor x is not an input, expected ids, mask, reset, targets" \
            grad --model m --inputs in --out never
}

# Half of a text, and the rest from the five tensors; another model or layout is refused.
forward_carries_rwkv_states() {
    rwkv="--preset rwkv4-tiny --set dim=24 --set heads=2 --set depth=3"
    # shellcheck disable=SC2086 # a list of options
    {
        run 0 forward $rwkv --tokens 5,6,7,8,9 --outputs logits,rwkv-state --out first &&
            has first '"state.0":{' '"state.4":{' '"shape":[1,24,3]' &&
            run 0 forward $rwkv --tokens 10,11,12,13,14,15 --rwkv-state first \
                --outputs logits,state --out a &&
            run 0 forward $rwkv --tokens $list --keep 6 --outputs logits,state --out b &&
            same a b &&
            misused "dra forward: expected only one of --state-in, --rwkv-state and --cache" \
                forward $rwkv --tokens 1 --rwkv-state first --state-in first --out never &&
            failed "a: tensor state.0 is missing" \
                forward $rwkv --tokens 1 --rwkv-state a --out never &&
            failed "first: tensor state.0 is not shaped as (1, channels, 2), rows and layers" \
                forward $rwkv --set depth=2 --tokens 1 --rwkv-state first --out never &&
            failed "rwkv state: 72 numbers, expected (1, 48, 3)" \
                forward $rwkv --set dim=48 --tokens 1 --rwkv-state first --out never &&
            tensors ids:2,3 >in &&
            failed "first: tensor state.0 is not shaped as (2, channels, 3), rows and layers" \
                forward $rwkv --inputs in --rwkv-state first --out never &&
            failed "rwkv state: layer 0 has no ff.x" \
                forward --model m --tokens 1 --outputs rwkv-state --out never && [ ! -e never ]
    }
}

# The rest of a text from the cache of its first part, and what has no cache.
forward_carries_caches() {
    for family in lfm2 mamba2 qwen3_5_text granitemoehybrid; do
        run 0 forward --model "$llama/$family" --tokens 5,6,7,8,9 --outputs cache --out first &&
            run 0 forward --model "$llama/$family" --tokens 10,9,8,7,6,5 --cache first \
                --outputs logits,cache --out a &&
            run 0 forward --model "$llama/$family" --tokens 5,6,7,8,9,10,9,8,7,6,5 --chunks 5 \
                --keep 6 --outputs logits,cache --out b && same a b || return 1
    done
    has b '"layers.0.keys":{' && run 0 forward --model "$llama/lfm2" --tokens 1,2 \
        --outputs cache --out first && has first '"layers.0.conv_states":{' '"layers.1.values":{' &&
        failed "first: tensor 'layers.0.conv_states': shape (1, 16, 3), expected (1, 48, 4)" \
            forward --model "$llama/mamba2" --tokens 1 --cache first --out never &&
        failed "first: tensor layers.0.keys is missing, expected (1, heads, tokens, channels)" \
            forward --model "$llama/qwen3_5_text" --tokens 1 --cache first --out never &&
        failed "cache: state layers.0.mixer.x has no place there, only those of attention" \
            forward --preset rwkv4-tiny --tokens 1 --outputs cache --out never &&
        failed "cache: state layers.0.mixer.x has no place there, only those of attention" \
            forward --preset rwkv4-tiny --tokens 1 --cache first --out never && [ ! -e never ]
}

# The same loss in chunks, to the digits that rounding leaves.
grad_in_parts() {
    answers grad --model m --tokens $list --out a --json && is_json "$out" || return 1
    loss=$(number loss)
    answers grad --model m --tokens $list --chunks 3,1,7 --out b --json || return 1
    awk -v a="$loss" -v b="$(number loss)" 'BEGIN { d = a - b; exit !(d * d < 1e-10 && a > 4) }'
}

# Segments are texts of their own: logits, states and what is generated next.
resets_are_texts_apart() {
    all="--model m --tokens $list --resets 5" second="--model m --tokens 10,11,12,13,14,15"
    # shellcheck disable=SC2086 # lists of options
    {
        run 0 forward $all --keep 6 --outputs logits,state --out a --state-out sa &&
            run 0 forward $second --outputs logits,state --out b --state-out sb && same a b &&
            run 0 forward $all --keep 6 --outputs logits,state --chunks 3,4 --out c && same a c &&
            run 0 forward $all --positions 0,1,2,3,4 --out d &&
            run 0 forward --model m --tokens 5,6,7,8,9 --out e && same d e &&
            run 0 forward --model m --tokens 1,2,3 --out f --state-out s &&
            run 0 forward $second --resets 0 --state-in s --out f &&
            run 0 forward $second --out g && same f g || return 1
    }
    for state in sa sb; do
        answers generate --model m --state-in $state --tokens 9 --seed 3 --json &&
            cp "$out" $state.json || return 1
    done
    [ "$(json_tokens sa.json)" = "$(json_tokens sb.json)" ] || return 1
    tensors ids:6 reset:6 >in && run 0 forward --model m --inputs in --out a &&
        run 0 forward --model m --tokens 1,2,3,4,5,6 --resets 0,1,2,3,4,5 --out b && same a b
}

# Positions count from the reset; without one there are too few.
resets_start_positions() {
    long=$list,$list
    run 0 forward --model p --tokens $long --resets 8,16 --out a &&
        failed "the text has 14 tokens, this model has" forward --preset gpt2-tiny \
            --set context=8 --tokens $long --resets 8 --out never &&
        failed "the text has 22 tokens, this model has positions for 16" \
            grad --model p --tokens $long --out never &&
        run 0 grad --model p --tokens $long --resets 8,16 --out a
}

# The loss of 4 and of 5 targets; no target crosses the reset.
grad_with_resets() {
    answers grad --model m --tokens 5,6,7,8,9 --out a --json && first=$(number loss) &&
        answers grad --model m --tokens 10,11,12,13,14,15 --out a --json && second=$(number loss) &&
        answers grad --model m --tokens $list --resets 5 --chunks 3,4 --out a --json || return 1
    [ "$(number targets)" -eq 9 ] &&
        awk -v a="$first" -v b="$second" -v c="$(number loss)" \
            'BEGIN { d = (4 * a + 5 * b) / 9 - c; exit !(d * d < 1e-10) }'
}

# A model that is cut off behind its back: one line, not a crash.
cut_off() {
    cp -r m cut && mkfifo pipe && exec 3<>pipe || return 1
    "$dra" chat --seed 0 --model cut --tokens 3 <pipe >"$out" 2>"$err" 3>&- &
    job=$!
    i=0
    until grep -q cut/model.safetensors "/proc/$job/maps" 2>/dev/null || [ $((i += 1)) -gt 200 ]; do
        sleep 0.05
    done
    : >cut/model.safetensors
    echo "a text" >&3
    exec 3>&-
    status=0
    wait $job || status=$?
    [ $status -eq 1 ] && one_line "$err" && grep -q "made shorter" "$err"
}

# ---- eval ----------------------------------------------------------------------------------------

# A carried state makes chunks invisible; a byte is a token, so the bits follow from the loss.
eval_in_parts() {
    answers eval --model m --data story.txt --json && is_json "$out" || return 1
    loss=$(number loss)
    [ "$(number tokens)" -eq $(($(wc -c <story.txt) - 1)) ] || return 1
    awk -v a="$loss" -v b="$(number bits_per_byte)" -v p="$(number perplexity)" 'BEGIN {
        d = a / log(2) - b; e = log(p) - a; exit !(d * d < 1e-10 && e * e < 1e-10) }' || return 1
    answers eval --model m --data story.txt --json --chunk 37 || return 1
    awk -v a="$loss" -v b="$(number loss)" 'BEGIN { d = a - b; exit !(d * d < 1e-10) }'
}

eval_in_windows() {
    answers eval --model m --data story.txt --context 100 --json && loss=$(number loss) || return 1
    answers eval --model m --data story.txt --context 100 --chunk 7 --json || return 1
    awk -v a="$loss" -v b="$(number loss)" 'BEGIN { d = a - b; exit !(d * d < 1e-10) }' &&
        answers eval --model p --data story.txt --json
}

# ---- what is not finite --------------------------------------------------------------------------

# A model whose numbers are all NaN: the bytes of the tensors, after the header, are 255.
make_broken_numbers() {
    cp -r m nan && file=m/model.safetensors || return 1
    head_bytes=$(($(od -An -tu8 -N8 $file) + 8))
    { head -c "$head_bytes" $file
      tail -c +$((head_bytes + 1)) $file | tr '\000-\377' '\377'; } >nan/model.safetensors
    [ "$(wc -c <nan/model.safetensors)" -eq "$(wc -c <$file)" ]
}

no_result() { # no_result TEXT ARGUMENTS...: fails; as JSON with null and a count
    failed "$@" && [ -s "$out" ] && failed "$@" --json && is_json "$out" &&
        has "$out" '"loss": null' '"not_finite": '
}

null_where_not_finite() {
    make_broken_numbers || return 1
    failed "nan/model.safetensors: is damaged: " grad --model nan --tokens $list --out a &&
        no_result "numbers of gradients are not finite" grad --model nan --skip-hash \
            --tokens $list --out a &&
        no_result "tokens are not finite" eval --model nan --skip-hash --data story.txt &&
        answers info --model nan --skip-hash --json && is_json "$out" &&
        has "$out" '"gamma": null' '"not_finite": ' &&
        answers info --model m --json && ! grep -q -e '"gamma": null' -e not_finite "$out"
}

# ---- generate ------------------------------------------------------------------------------------

going_on() {
    answers generate --model m --prompt "Once" --tokens 30 --seed 5 --json && is_json "$out" ||
        return 1
    all=$(json_tokens "$out")
    answers generate --model m --prompt "Once" --tokens 12 --seed 5 --json --state-out s || return 1
    first=$(json_tokens "$out")
    answers generate --model m --state-in s --tokens 18 --seed 5 --json || return 1
    [ "$all" = "$first, $(json_tokens "$out")" ]
}

# What is clamped in states is counted and said, by every verb; --state-limit is its bound.
clamping_is_reported() {
    says="clamped [1-9][0-9]* numbers of states that were not finite or beyond 1e-05"
    run 0 forward --model m --tokens $list --out a --state-out s && [ ! -s "$err" ] || return 1
    for way in "generate --model m --state-in s --tokens 2 --json" \
        "eval --model m --data story.txt --json" \
        "forward --model m --tokens $list --state-in s --out b"; do
        # shellcheck disable=SC2086 # a list of options
        { run 0 $way --state-limit 1e-5 && grep -q "^dra ${way%% *}: $says" "$err"; } || return 1
        case $way in *json) is_json "$out" && [ "$(number clamped)" -gt 0 ] || return 1 ;; esac
        # shellcheck disable=SC2086
        { run 0 $way --state-limit 0 && [ ! -s "$err" ]; } || return 1
        case $way in *json) [ "$(number clamped)" -eq 0 ] || return 1 ;; esac
    done
    echo Once | "$dra" chat --seed 0 --model m --tokens 2 --state-limit 1e-5 >"$out" 2>"$err" &&
        grep -q "^dra chat: $says" "$err"
}

# forward writes the state that generate continues from.
going_on_from_forward() {
    answers generate --model m --prompt "Once" --tokens 9 --json && all=$(json_tokens "$out") ||
        return 1
    run 0 forward --model m --tokens 79,110,99,101 --out a --outputs hidden --state-out s &&
        answers generate --model m --state-in s --tokens 9 --json &&
        [ "$all" = "$(json_tokens "$out")" ]
}

samples_equal_single_runs() {
    answers generate --model m --prompt "Once" --prompt "Twice, or thrice" --count 2 --tokens 9 \
        --seed 7 --json && is_json "$out" && grep '^  {' "$out" >samples || return 1
    for row in 1 2 3 4; do
        [ $row -le 2 ] && prompt=Once || prompt="Twice, or thrice"
        answers generate --model m --prompt "$prompt" --tokens 9 --seed $((8 - row % 2)) --json ||
            return 1
        sed -n ${row}p samples >sample
        [ "$(json_tokens "$out")" = "$(json_tokens sample)" ] || return 1
    done
}

# A stop string: neither it nor what follows, and a state as if it had not been.
stops() {
    answers generate --model m --prompt "Once" --tokens 30 --temperature 0 --json || return 1
    all=$(json_tokens "$out")
    answers generate --model m --prompt "Once" --tokens 30 --temperature 0 --state-out sa --json \
        --stop "$(printf "\\$(printf '%03o' "$(echo "$all" | cut -d ' ' -f 5 | tr -d ,)")")" ||
        return 1
    grep -q '"finish": "stop"' "$out" || return 1
    n=$(json_tokens "$out" | tr ',' '\n' | grep -c .)
    [ "$n" -lt 5 ] && [ "$(json_tokens "$out")" = "$(echo "$all" | cut -d , -f 1-"$n")" ] ||
        return 1
    ids=79,110,99,101,$(json_tokens "$out" | tr -d ' ')
    run 0 forward --model m --tokens "$ids" --out a --state-out sb && same sa sb
}

interrupts_end_it() {
    status=0
    "$dra" generate --model m --prompt "Once" --tokens 0 --state-out si >"$out" 2>"$err" &
    child=$!
    while [ "$(wc -c <"$out")" -lt 20 ]; do sleep 0.1; done
    kill -INT $child
    wait $child || status=$?
    [ "$status" -eq 0 ] && answers generate --model m --state-in si --tokens 3
}

context_ends() {
    run 0 generate --model p --prompt "12345678" --tokens 30 --json && [ "$(json_tokens "$out" |
        tr ',' '\n' | grep -c .)" -eq 8 ] && grep -q '"finish": "context"' "$out" &&
        failed "the text has 17 tokens, this model has positions for 16" \
            generate --model p --prompt "12345678901234567" &&
        failed "the text has 11 tokens, this model has positions for 8" \
            grad --preset gpt2-tiny --set context=8 --tokens $list --out never
}

# Any failure leaves the file that is there alone.
refused_and_left_alone() {
    text=$1
    shift
    echo old >kept
    failed "$text" "$@" && [ "$(cat kept)" = old ]
}

# Close to what full matrices give, and a state of its own.
generate_in_bf16() {
    answers eval --model m --data story.txt --json && loss=$(number loss) || return 1
    answers eval --model m --data story.txt --json --dtype bf16 || return 1
    awk -v a="$loss" -v b="$(number loss)" 'BEGIN { d = a - b; exit !(d * d < 1e-4 && d != 0) }' ||
        return 1
    answers generate --model m --prompt Once --tokens 5 --dtype bf16 --state-out s &&
        answers generate --model m --state-in s --tokens 5 --dtype bf16 &&
        failed "a state of other weights" generate --model m --state-in s --tokens 5
}

# ---- damaged files -------------------------------------------------------------------------------

damaged_states() {
    run 0 generate --model m --prompt Once --tokens 3 --state-out s || return 1
    bytes=$(wc -c <s)
    for part in 0 1 7 9 100 1000 $((bytes - 1)); do
        head -c "$part" s >broken
        refused_and_left_alone broken generate --model m --state-in broken --state-out kept ||
            return 1
    done
    refused_and_left_alone "a state of other weights" \
        generate --model n --state-in s --state-out kept &&
        refused_and_left_alone "fingerprint is" generate --model p --state-in s --state-out kept
}

damaged_models() {
    rm -rf bad && cp -r m bad
    for part in 0 5 200 2000; do
        head -c "$part" m/model.safetensors >bad/model.safetensors
        refused_and_left_alone bad/model.safetensors \
            forward --model bad --tokens 1 --out kept || return 1
    done
    cp m/model.safetensors bad/
    for text in '' '{' '[]' '{"model_type": "dra"}' '{"model_type": "dra", "dim": 1e99}' \
        '{"model_type": "dra", "vocab": 1048576, "dim": 1048576, "depth": 1048576}'; do
        printf '%s' "$text" >bad/config.json
        run 1 forward --model bad --tokens 1 --out kept && one_line "$err" || return 1
    done
    flip m/model.safetensors 20 '\377' && mv broken bad/model.safetensors &&
        cp m/config.json bad/ && refused_and_left_alone bad/ eval --model bad --data story.txt
}

check "presets" says '^gpt2-tiny ' presets
check "presets --json" says '"name": "rwkv4", "parameters": ' presets --json
check "a preset is a config" presets_are_configs
check "softmax is attention" failed "shortconv; did you mean attention?" \
    init --preset gpt2-tiny --set mixer.memory=softmax --out never
check "--dtype of training" misused \
    "dra train: no such option: '--dtype'; did you mean --precision?" train --dtype bf16
check "--resume-from-checkpoint" misused \
    "dra train: no such option: '--resume-from-checkpoint'; did you mean --resume?" \
    train --resume-from-checkpoint x
check "a file of a model" failed "m/config.json: is a file of a model; expected its folder, m" \
    generate --model m/config.json --prompt a
check "misspelt preset" failed "no preset is called gpt3; did you mean gpt2?" presets gpt3
check "init keeps what is there" init_keeps_what_is_there
check "init --force" init_replaces_by_force
check "init --force over another model" init_leaves_nothing_of_another_model
check "init: wrong key" init_refuses_before_it_writes \
    "mixer.memry is not a key; did you mean memory?" mixer.memry=gru
check "a key of nanoGPT" \
    init_refuses_before_it_writes "n_layer is not a key; did you mean depth?" n_layer=3
check "a key in an object" \
    init_refuses_before_it_writes "memory is not a key; did you mean mixer.memory?" memory=gru
check "a key that nothing is like" init_refuses_before_it_writes \
    "nonsense is not a key; 'dra help keys' lists them" nonsense=1
check "a preset as a model" failed "models are not downloaded from the Hub; --preset gpt2 is that" \
    info gpt2
check "a model by place" says "^parameters" info m
check "a prompt by place" says . generate m "Once upon" --tokens 4
check "a prompt by place of a preset" says . generate "Once" --preset gpt2-tiny --tokens 4
check "a folder too many" misused \
    "dra train: expected no further argument, found 'm'; did you mean --data?" \
    train m --preset gpt2-tiny
check "init: wrong value" init_refuses_before_it_writes "depth is 0" depth=0
check "init: no key" init_refuses_before_it_writes "--set: expected KEY=VALUE, found 'depth'" depth
check "init: nothing to make" \
    misused "dra init: expected one of --preset and --config, found none" init --out never
check "info" says '^state  ' info --model m
check "info --json" info_has_all_numbers
check "info draws no weights" info_draws_nothing
check "info of a preset" says '^parameters ' info --preset rwkv4-tiny
check "info: two models" misused \
    "dra info: expected one of --model, --preset and --config, found several" \
    info --model m --preset gpt2
check "info: no model" \
    failed "nowhere: no such folder or file; models are not downloaded from the Hub" info nowhere
check "forward in parts" forward_in_parts
check "forward: positions" positions_in_any_order
check "forward: no such position" failed "--positions: 11, expected -11 to 10" \
    forward --model m --tokens $list --positions 0,11 --out never
check "forward: two ways to say it" misused \
    "dra forward: expected only one of --keep and --positions" \
    forward --model m --tokens $list --positions 0 --keep 1 --out never
check "forward: threads" threads_change_nothing
check "forward: inputs" forward_reads_tensors
check "forward: wrong inputs" refuses_inputs
check "forward: embeddings" forward_reads_embeddings
check "forward: RWKV's state" forward_carries_rwkv_states
check "forward: caches" forward_carries_caches
check "forward: segments" resets_are_texts_apart
check "forward: segments have positions of their own" resets_start_positions
check "forward: no such reset" failed "--resets: 11, expected 0 to 10" \
    forward --model m --tokens $list --resets 3,11 --out never
check "grad: segments" grad_with_resets
check "forward: chunks too long" failed "--chunks: length 9 with 3 of 11 tokens left" \
    forward --model m --tokens $list --chunks 8,9 --out never
check "forward: no such token" failed "ids: token 1 is 256, the model has 0 to 255" \
    forward --model m --tokens 1,256 --out never
check "forward: no number" failed "--tokens: expected a whole number, found 'x'" \
    forward --model m --tokens 1,x --out never
check "forward: sublayers" forward_shows_sublayers
check "forward: attentions in chunks" failed "attentions need a single chunk, found 2" \
    forward --model m --tokens 1,2,3 --chunks 2 --outputs attentions,scores --out never
check "forward: scores in chunks" failed "scores need a single chunk, found 2" \
    forward --model m --tokens 1,2,3 --chunks 2 --outputs scores --out never
outputs="dra forward: --outputs: expected logits, hidden, streams, branches, hiddens, adds"
outputs="$outputs, attentions, scores, state, rwkv-state, cache, out, numbers, loss"
check "forward: wrong output" misused \
    "$outputs, found 'logit'" \
    forward --model m --tokens 1 --out never --outputs hidden,logit
check "grad in parts" grad_in_parts
check "a model that is cut off" cut_off
check "forward: nothing to show" failed "the model has no attentions" \
    forward --preset rwkv4-tiny --tokens 1,2 --outputs attentions --out a
check "grad: nothing to learn" failed "no token is followed by one that counts" \
    grad --model m --tokens 1 --out a
check "eval in parts" eval_in_parts
check "eval in windows" eval_in_windows
check "what is not finite is null" null_where_not_finite
check "eval: no file" failed "nothing.txt: cannot open" eval --model m --data nothing.txt
check "generate continues" going_on
check "generate continues from forward" going_on_from_forward
check "what was clamped is said" clamping_is_reported
check "samples equal single runs" samples_equal_single_runs
check "stop strings" stops
check "matrices in bf16" generate_in_bf16
check "Ctrl-C" interrupts_end_it
check "learned positions end" context_ends
check "nothing to go on from" misused \
    "dra generate: nothing to continue: expected --prompt or --state-in" generate --model m
check "a file without a name" misused \
    "dra train: expected no further argument, found 'm/config.json'; did you mean --data?" \
    train m/config.json --out never
several="expected one text, found 'words' after it; a text of several words needs quotes, and"
several="$several several"
check "a prompt without quotes" misused "dra generate: $several texts --prompt each" \
    generate m several words
check "a text without quotes" misused "dra embed: $several texts --text each" \
    embed m several words
check "no state file" failed "m/config.json: is not a state file, or a damaged one: " \
    generate m hi --state-in m/config.json
check "two prompts" run 0 generate m --prompt several --prompt words --tokens 2
check "an empty prompt" refused_and_left_alone "the prompt is empty" \
    generate --model m --prompt= --state-out kept
check "damaged states" damaged_states
check "damaged models" damaged_models
tap_end
