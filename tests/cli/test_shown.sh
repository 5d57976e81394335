#!/bin/sh
# Text that is shown is clean: whatever stands in files and flags, an error is one line without
# control characters; what a model writes sends none to a terminal.
#   test_shown.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
. "$(dirname "$0")/tensors.sh"
cd "$scratch" || exit 1

# ESC, BEL, CR, LF, a tab, CSI of C1, a line separator, two directions, DEL, and a byte that is no
# text.
odd=$(printf 'a\033[31m\007\rb\nc\td\302\233e\342\200\250f\342\200\256\342\201\246g\177\377h')
# The same in JSON, which has no such byte.
json='a\u001b[31m\u0007\rb\nc\td\u009be\u2028f\u202e\u2066g\u007fh'

# clean STATUS: what is in $err: one line of UTF-8 that a terminal only shows.
clean() {
    [ "$1" -gt 0 ] && [ "$1" -le 2 ] && one_line "$err" &&
        [ "$(LC_ALL=C tr -d '\040-\176\200-\377' <"$err" | wc -c)" -eq 1 ] &&
        [ -z "$(LC_ALL=C sed -n '/\xc2[\x80-\x9f]\|\xe2\x80[\xa8-\xae]\|\xe2\x81[\xa6-\xa9]/p' \
            "$err")" ] && iconv -f UTF-8 -t UTF-16 <"$err" >/dev/null && return 0
    echo "status $1"
    cat -v "$err"
    return 1
}

# refused TEXT ARGUMENTS...: ends with a clean error that has the text.
refused() {
    text=$1
    shift
    status=0
    timeout 60 "$dra" "$@" </dev/null >"$out" 2>"$err" || status=$?
    clean "$status" && grep -qF -e "$text" "$err" && return 0
    echo "expected: $text"
    cat -v "$err"
    return 1
}

# ---- flags ---------------------------------------------------------------------------------------

verbs="bench chat convert demo detokenize embed eval forward generate grad info init ops presets \
probe report sweep tokenize tokenizer train"

flags() { # flags VERB: names, places and values of options
    for word in "--$odd" "$odd" "--model=$odd" "--config=$odd" "--preset=$odd" "--data=$odd" \
        "--threads=$odd"; do
        refused "" "$1" "$word" || return 1
    done
}

sets() { # sets VERB ARGUMENTS...: of a model that is there
    for word in "$odd=1" "mixer.$odd=1" "mixer.memory=$odd" "dim=$odd" "mixer.memory=\"$json\"" \
        "layers.$odd.dim=3"; do
        refused "" "$@" --preset dra-delta-tiny --set "$word" || return 1
    done
}

# ---- files ---------------------------------------------------------------------------------------

printf 'text\n' >book.txt
"$dra" init --preset dra-delta-tiny --set dim=16 --set heads=2 --set depth=1 --out m >/dev/null ||
    exit 1
tensors 'tokens:I32:1,3:1,2,3' >t.safetensors

config() { # config NAME TEXT
    printf '%s\n' "$2" >"$1.json"
}
small='"model_type": "dra", "vocab": 256, "dim": 16, "heads": 2, "depth": 1, "context": 16'
config key "{$small, \"$json\": 1}"
config inner "{$small, \"mixer\": {\"memory\": \"delta\", \"$json\": {\"x\": 1}}}"
config value "{$small, \"mixer\": {\"memory\": \"$json\"}}"
config number "{$small, \"norm\": \"$json\", \"mixer\": {\"memory\": 3}}"
config type "{\"model_type\": \"$json\", \"vocab\": 256, \"dim\": 16}"
config gpt2 "{\"model_type\": \"gpt2\", \"n_embd\": 16, \"activation_function\": \"$json\"}"
config broken "{\"model_type\": \"dra\", \"$odd\": 1}"
config twice "{$small, \"$json\": 1, \"$json\": 2}"
config rwkv "{\"model_type\": \"rwkv\", \"$json\": 1, \"hidden_size\": \"$json\"}"
config names "{$small, \"source\": {\"kind\": \"$json\"}, \"inputs\": [{\"name\": \"$json\"}]}"

configs() { # configs "FILES" VERB ARGUMENTS...
    files=$1
    shift
    for file in $files; do
        refused "" "$@" --config "$file.json" || { echo "$file"; return 1; }
    done
}

folder() { # folder NAME: a copy of the model, to be damaged
    rm -rf "$1" && cp -r m "$1"
}
models() { # models VERB ARGUMENTS...
    for file in key broken; do
        folder "m-$file" && cp $file.json "m-$file/config.json" &&
            refused "" "$@" --model "m-$file" || { echo $file; return 1; }
    done
    folder "$odd" && rm "$odd/model.safetensors" && refused "model.safetensors" "$@" --model "$odd"
}

other_tensors() {
    folder names && tensors "$json:F32:1:1" >names/model.safetensors &&
        refused "" info --model names && refused "" generate --model names --prompt a || return 1
    tensors "$odd:F32:1:1" >names/model.safetensors && refused "" info --model names || return 1
    tensors "$json:F32:1:1" >n.safetensors &&
        refused "" forward --model m --inputs n.safetensors --out o.safetensors &&
        refused "" generate --seed 0 --model m --state-in n.safetensors --prompt a &&
        refused "" convert --from names --to new
}

tokenizers() {
    folder words
    for text in "{\"$json\": 1}" "{\"model\": {\"type\": \"$json\"}}" \
        "{\"model\": 3, \"$odd\": 1}" \
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"$json\": 0, \"b\": 0}, \"merges\": []}}" \
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"b\": 0}, \"merges\": [\"$json x\"]}}" \
        "{\"normalizer\": {\"type\": \"$json\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {}}}"; do
        printf '%s' "$text" >words/tokenizer.json
        refused "tokenizer.json" generate --model words --prompt a &&
            refused "tokenizer.json" tokenize --model words a &&
            refused "tokenizer.json" detokenize --model words 1 &&
            refused "tokenizer.json" train --model words --data book.txt --out new --steps 1 &&
            refused "tokenizer.json" eval --model words --data book.txt || return 1
    done
}

habits() { # keys of generation_config.json that are not followed are a warning
    folder "$odd" && printf '{"num_beams": 2}' >"$odd/generation_config.json" || return 1
    run 0 generate --model "$odd" --prompt a --tokens 1 && clean 1 &&
        has "$err" "keys that dra does not follow: num_beams" && folder h || return 1
    printf '{"temperature": %s}' "$odd" >h/generation_config.json &&
        refused "generation_config.json" generate --model h --prompt a
}

grammars() {
    printf 'root ::= %s\n' "$odd" >g.gbnf
    refused "g.gbnf" generate --seed 0 --model m --grammar g.gbnf --prompt a || return 1
    printf '{"type": "%s"}' "$json" >g.json
    refused "g.json" generate --seed 0 --model m --json-schema g.json --prompt a || return 1
    printf '{"type": "object", "properties": {"%s": {"%s": 1}}}' "$json" "$json" >g.json
    refused "g.json" generate --seed 0 --model m --json-schema g.json --prompt a
}

data_files() {
    printf '{"%s": 1}\n' "$json" >lines.jsonl
    refused "lines.jsonl" train --model m --data lines.jsonl --out new --steps 1 &&
        refused "lines.jsonl" generate --seed 0 --model m --prompts lines.jsonl || return 1
    printf '{"text": %s}\n' "$odd" >lines.jsonl
    refused "lines.jsonl" train --model m --data lines.jsonl --out new --steps 1
}

# ---- what a model writes -------------------------------------------------------------------------

# The bytes of the text as ids: ESC BEL CR, a tab, a newline, C1, a direction in parts, é, a byte
# that is none, DEL.
ids='27 7 13 9 10 194 155 226 128 174 195 169 255 127 65'
visible() { printf '^[^G^M\t\n<U+009B><U+202E>\303\251\357\277\275^?A'; }
bytes() { printf '\033\007\r\t\n\302\233\342\200\256\303\251\377\177A'; }

# at COMMAND...: at a terminal, which turns \n into \r\n; the answer is in $out.
at() {
    TERM=xterm timeout 60 script -qec "$*" /dev/null </dev/null | sed 's/\r$//' >"$out"
}

decodes() {
    at "'$dra' detokenize --tokenizer bytes $ids" && visible | cmp - "$out" || return 1
    at "stty -opost; '$dra' detokenize --raw --tokenizer bytes $ids" && bytes | cmp - "$out" ||
        return 1
    "$dra" detokenize --tokenizer bytes $ids >"$out" && bytes | cmp - "$out"
}

# A model that is sure to write what it was given: a prompt that is echoed.
prompt=$(printf 'x\033]0;t\007\302\233\342\200\256y')
echoes() {
    at "'$dra' generate --seed 0 --model m --echo --prompt '$prompt' --tokens 1 $1" &&
        has "$out" "$2"
}

# Samples of all bytes: none of them reaches the terminal that it would obey.
silent() {
    [ -z "$(tr -d '\r' <"$out" | LC_ALL=C sed -n '/[\x01-\x08\x0b-\x1f\x7f]/p')" ] ||
        { cat -v "$out"; return 1; }
    iconv -f UTF-8 -t UTF-16 <"$out" >/dev/null
}
writes() { at "NO_COLOR=1 '$dra' $*" && [ -s "$out" ] && silent; }
samples() {
    at "TERM=dumb '$dra' train --preset dra-delta-tiny --set dim=16 --set heads=2 --set depth=1 \
        --data book.txt --batch 1 --context 4 --steps 2 --sample-every 1 --sample-tokens 200 \
        --sample-prompt '$prompt' --out run" && has "$out" 'sample   x^[]0;t^G<U+009B><U+202E>y' &&
        silent
}
chats() {
    printf 'hi\n' >lines
    at "NO_COLOR=1 '$dra' chat --model m --plain --tokens 200 <lines" && silent
}

# ---- all of it -----------------------------------------------------------------------------------

for verb in $verbs; do check "flags: $verb" flags "$verb"; done
inputs="--tokens 1,2 --out o.safetensors"
# shellcheck disable=SC2086
for verb in info "init --out new" "train --data book.txt --out new" "forward $inputs" \
    "eval --data book.txt" "generate --prompt a" "grad $inputs" chat "embed --text a"; do
    check "configs: $verb" configs "key value type" $verb
    case $verb in init*) ;; *) check "models: $verb" models $verb ;; esac
done
check "settings" sets info
check "settings of a run" sets train --data book.txt --out new
check "all configs" configs "inner number gpt2 broken twice rwkv names" info
check "tensors" other_tensors
check "tokenizers" tokenizers
check "habits" habits
check "grammars" grammars
check "data" data_files
if has_terminal; then
    check "detokenize at a terminal" decodes
    check "generate at a terminal" echoes "" 'x^[]0;t^G<U+009B><U+202E>y'
    check "generate --raw" echoes --raw "$prompt"
    check "several texts at a terminal" echoes "--count 2" 'x^[]0;t^G<U+009B><U+202E>y'
    check "a text of anything" writes generate --seed 0 --model m --prompt a --tokens 300
    check "samples of a training run" samples
    check "chat at a terminal" chats
else
    skip "at a terminal" "$no_terminal"
fi
tap_end
