#!/bin/sh
# dra generate for scripts: --prompts, stdin, --logprobs, --logit-bias, --grammar, --json-schema.
#   test_prompts.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1

small="--set dim=24 --set heads=2 --set depth=2"
# shellcheck disable=SC2086 # a list of options
{
    "$dra" init --preset dra-gru-tiny $small --seed 1 --out m
    "$dra" init --preset gpt2-tiny $small --set context=24 --seed 2 --out g
    "$dra" init --preset dra-gru-tiny $small --set vocab=40 --seed 3 --out ids
} >/dev/null || exit 1
cat >p.jsonl <<'END'
{"prompt": "Once"}
{"prompt": "Twice, or \u00e9ven thrice", "seed": 7, "tokens": 9}

{"ids": [79, 110, 99], "tokens": 1, "note": [1, {"deep": "x"}]}
{"prompt": "\"quoted\"\n", "seed": 8}
{"prompt": "Once", "tokens": 12}
{"prompt": "last", "seed": 3, "tokens": 4}
END
# Prompts, seeds and tokens of these lines, for runs of their own.
one() {
    case $1 in
    0) set -- Once 0 6 ;; 1) set -- "Twice, or éven thrice" 7 9 ;; 2) set -- Onc 0 1 ;;
    3) set -- '"quoted"
' 8 6 ;; 4) set -- Once 0 12 ;; 5) set -- last 3 4 ;;
    esac
    answers generate --model m --prompt "$1" --seed "$2" --tokens "$3" --json --logprobs 2
}

fields() { sed 's/.*\("seed": .*\), "\(finish\|prompt_tokens\)": .*/\1/' "$1"; }

# Every record is what a run of its own gives, for any number of rows, in the order of the lines.
records_are_as_alone() {
    for batch in 1 2 8; do
        answers generate --model m --prompts p.jsonl --tokens 6 --batch $batch --logprobs 2 &&
            cp "$out" all || return 1
        [ "$(wc -l <all)" -eq 6 ] || return 1
        [ "$(sed 's/{"index": \([0-9]*\), .*/\1/' all | tr '\n' ' ')" = "0 1 2 3 4 5 " ] || return 1
        while read -r line; do
            printf '%s\n' "$line" >line && is_json line >/dev/null || return 1
        done <all
        [ "$batch" -gt 1 ] || cp all alone
        cmp all alone || return 1
    done
    for i in 0 1 2 3 4 5; do
        sed -n "$((i + 1))p" all >line
        one $i && [ "$(fields line)" = "$(fields "$out")" ] || { cat line "$out"; return 1; }
    done
}

record_has_its_names() {
    answers generate --model m --prompts p.jsonl --tokens 6 --logprobs 1 &&
        sed -n 2p "$out" >line &&
        for name in index prompt text ids logprobs id logprob top seed finish; do
            has line "\"$name\": " || return 1
        done && has line '"prompt": "Twice, or éven thrice"' '"seed": 7' '"finish": "length"'
}

from_stdin() {
    answers generate --model m --prompts p.jsonl --tokens 6 && cp "$out" file &&
        answers generate --model m --prompts - --tokens 6 <p.jsonl && cmp "$out" file &&
        printf Once >once &&
        answers generate --model m --prompt Once --tokens 9 && cp "$out" text &&
        answers generate --model m --prompt - --tokens 9 <once && cmp "$out" text &&
        answers generate --model m --prompt-file - --tokens 9 <once && cmp "$out" text
}

samples() {
    answers generate --model m --prompts p.jsonl --tokens 3 --count 2 --seed 4 --batch 3 &&
        cp "$out" two && [ "$(wc -l <two)" -eq 12 ] &&
        answers generate --model m --prompt Once --tokens 3 --seed 5 --json &&
        [ "$(sed -n 2p two | sed 's/.*"ids": \([^]]*\).*/\1/')" = \
            "$(sed 's/.*"ids": \([^]]*\).*/\1/' "$out")" ] &&
        has two '"index": 5' '"seed": 4' '"seed": 5' '"seed": 8'
}

finishes() {
    printf '{"prompt": "abc"}\n' >f.jsonl
    answers generate --model m --prompts f.jsonl --tokens 9 --logit-bias 98=99 --stop bb &&
        has "$out" '"text": ""' '"finish": "stop"' &&
        answers generate --model m --prompts f.jsonl --tokens 9 --grammar abc.gbnf &&
        has "$out" '"text": "abc"' '"finish": "eos"' &&
        answers generate --model g --prompts f.jsonl --tokens 0 && has "$out" '"finish": "context"'
}

without_tokenizer() {
    printf '{"ids": [1, 2]}\n{"ids": [39,0], "seed": 2}\n' >i.jsonl
    answers generate --model ids --prompts i.jsonl --tokens 4 &&
        has "$out" '"prompt": null, "text": null' && [ "$(wc -l <"$out")" -eq 2 ] &&
        failed "p.jsonl:1: expected ids, as the model has no tokenizer" \
            generate --model ids --prompts p.jsonl
}

# broken TEXT LINE: the lines before it are answered, then one line says what is wrong.
broken() {
    { head -n 2 p.jsonl; printf '%s\n' "$2"; tail -n 1 p.jsonl; } >b.jsonl
    for batch in 1 8; do
        failed "$1" generate --model "${3-m}" --prompts b.jsonl --tokens 3 --batch $batch ||
            return 1
        [ "$(wc -l <"$out")" -eq 2 ] && has "$out" '"index": 0' '"index": 1' || return 1
    done
}

schema='{"type": "object", "properties": {"name": {"enum": ["Ann", "Bob"]}, "old":
    {"type": "boolean"}, "tags": {"type": "array", "items": {"const": 1}}},
    "required": ["name", "old"]}'
printf '%s' "$schema" >s.json
echo 'root ::= "abc"' >abc.gbnf
echo 'root ::= "<" [a-c]{4} ">"' >tag.gbnf

grammars() {
    for seed in 1 2 3; do
        answers generate --model m --prompt Once --seed $seed --grammar tag.gbnf &&
            grep -qx '<[abc][abc][abc][abc]>' "$out" || return 1
        answers generate --model m --prompt Once --seed $seed --json-schema s.json &&
            is_json "$out" >/dev/null &&
            grep -q '^{"name": \{0,1\}"\(Ann\|Bob\)", \{0,1\}"old":' "$out" || return 1
    done
    answers generate --model m --prompt Once --beam 3 --grammar tag.gbnf --json &&
        [ "$(grep -c '"text": "<[abc]*>"' "$out")" -eq 4 ] &&
        answers generate --model m --prompts p.jsonl --grammar tag.gbnf &&
        [ "$(grep -c '"text": "<[abc]\{4\}>".*"finish": "\(eos\|length\)"' "$out")" -eq 4 ]
}

biases() {
    answers generate --model m --prompt Once --tokens 5 --logit-bias 120=90 &&
        [ "$(cat "$out")" = xxxxx ] &&
        answers generate --model m --prompt Once --tokens 5 --logit-bias x=90 --logit-bias x=-inf \
            --logit-bias 121=90,122=-inf && [ "$(cat "$out")" = yyyyy ] &&
        answers generate --model m --prompt Once --tokens 5 --logit-bias ==90 &&
        [ "$(cat "$out")" = "=====" ]
}

chat_has_biases() {
    printf 'hi\n/set temperature 0.5\nho\n' >said
    answers chat --model m --plain --tokens 3 --logit-bias z=90 <said &&
        [ "$(tr '\n' ' ' <"$out")" = "zzz zzz " ]
}

# The log-probability of a token does not depend on what is done before it is drawn.
logprobs_are_the_models() {
    first() { sed 's/.*"logprobs": \[{[^[]*"top": \[\([^]]*\)\].*/\1/' "$out"; }
    answers generate --model m --prompt Once --tokens 1 --json --logprobs 3 && plain=$(first) &&
        answers generate --model m --prompt Once --tokens 1 --json --logprobs 3 --temperature 0.3 \
            --top-k 2 --logit-bias 65=9 --repetition-penalty 2 --grammar tag.gbnf &&
        [ "$(first)" = "$plain" ] && [ "$(printf '%s' "$plain" | grep -o '"id"' | wc -l)" -eq 3 ]
}

check "records are as alone" records_are_as_alone
check "a record has its names" record_has_its_names
check "from stdin" from_stdin
check "samples of prompts" samples
check "how texts finish" finishes
check "ids alone" without_tokenizer
check "grammars" grammars
check "biases" biases
check "biases in a chat" chat_has_biases
check "log-probabilities are the model's" logprobs_are_the_models
check "no JSON" broken "b.jsonl:3: expected a JSON object" "oops"
check "half a line" broken "b.jsonl:3: expected a JSON object" '{"prompt": "a'
check "no prompt" broken "b.jsonl:3: expected one of prompt and ids" '{"seed": 1}'
check "two prompts" broken "b.jsonl:3: expected one of prompt and ids" '{"prompt": "a", "ids": [1]}'
check "no text" broken "b.jsonl:3: prompt: expected a text" '{"prompt": 3}'
check "no ids" broken "b.jsonl:3: ids: expected a list of whole numbers" '{"ids": ["a"]}'
check "no seed" broken "b.jsonl:3: seed: expected a whole number from 0 to 9e15" \
    '{"prompt": "a", "seed": -1}'
check "no tokens" broken "b.jsonl:3: tokens: expected a whole number from 0 to" \
    '{"prompt": "a", "tokens": 1.5}'
check "an id that is none" broken "b.jsonl:3: token 1 is 300, the model has 0 to 255" \
    '{"ids": [1, 300]}'
check "an empty prompt" broken "b.jsonl:3: the prompt is empty" '{"prompt": ""}'
check "bytes that are not UTF-8" broken "b.jsonl:3: is not UTF-8" "$(printf '{"prompt": "\377"}')"
check "too long" broken "b.jsonl:3: the text has 25 tokens, this model has positions for 24" \
    '{"prompt": "0123456789012345678901234"}' g
check "no such prompts" failed "nowhere: cannot open it" generate --model m --prompts nowhere
check "no such grammar" failed "nowhere: cannot open" \
    generate --model m --prompt a --grammar nowhere
check "a broken grammar" failed "p.jsonl:1: expected a rule: NAME ::= ..., found '{'" \
    generate --model m --prompt a --grammar p.jsonl
check "a broken schema" failed "p.jsonl: JSON, line 2" \
    generate --model m --prompt a --json-schema p.jsonl
check "a grammar without a tokenizer" failed "a grammar needs a tokenizer" \
    generate --model ids --prompt-tokens 1 --grammar abc.gbnf
check "a bias without a token" failed "--logit-bias: token 256, the model has 0 to 255" \
    generate --model m --prompt a --logit-bias 256=1
check "a bias of two tokens" failed "--logit-bias: 'xy=1': expected one token, found 2" \
    generate --model m --prompt a --logit-bias xy=1
check "no bias" misused \
    "dra generate: --logit-bias: expected ID=X[,ID=X] or TEXT=X, found '65'" \
    generate --model m --prompt a --logit-bias 65
check "a bias that is no number" misused \
    "dra generate: --logit-bias: expected ID=X[,ID=X] or TEXT=X, found '65=1,66=x'" \
    generate --model m --prompt a --logit-bias 65=1,66=x
check "an endless bias" misused \
    "dra chat: --logit-bias: expected ID=X[,ID=X] or TEXT=X, found 'a=inf'" \
    chat --model m --logit-bias a=inf
check "a schema instead of its file" failed \
    "--json-schema: expected a file that has it, found a schema itself" \
    generate --model m --prompt a --json-schema '{"type": "object"}'
check "two grammars" misused "dra generate: expected one of --grammar and --json-schema" \
    generate --model m --prompt a --grammar abc.gbnf --json-schema s.json
check "log-probabilities of text" misused "dra generate: --logprobs: expected --json or --prompts" \
    generate --model m --prompt a --logprobs 2
check "log-probabilities of beams" misused "dra generate: --logprobs: not with --beam" \
    generate --model m --prompt a --json --logprobs 2 --beam 2
check "a batch alone" misused "dra generate: --batch: expected --prompts" \
    generate --model m --prompt a --batch 2
check "prompts twice" misused \
    "dra generate: expected one of --prompt, --prompt-file, --prompt-tokens and --prompts" \
    generate --model m --prompt a --prompts p.jsonl
check "prompts and states" misused "dra generate: --state-out: not with --prompts" \
    generate --model m --prompts p.jsonl --state-out s
check "prompts and beams" misused "dra generate: --beam: not with --prompts" \
    generate --model m --prompts p.jsonl --beam 2
check "stdin twice" misused "dra generate: --prompt: stdin can be read once" \
    generate --model m --prompt - --prompt -
tap_end
