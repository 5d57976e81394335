#!/bin/sh
# Help, man pages and completion, all from the tables of the verbs.
#   test_help.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1

"$dra" help --install share || exit 1
verbs=$(ls share/man/man1 | sed -n 's/^dra-\(.*\)\.1$/\1/p')

# Options of a verb as help shows them, without dashes.
options_of() {
    "$dra" "$1" --help |
        sed -n 's/^ \{2,6\}\(-[a-zA-Z], \)\{0,1\}--\(\[no-\]\)\{0,1\}\([a-z0-9-]*\).*/\3/p'
}

# ---- pages ---------------------------------------------------------------------------------------

all_verbs_are_listed() {
    [ "$(echo "$verbs" | wc -w)" -ge 17 ] && answers --help || return 1
    for verb in $verbs; do
        grep -q "^  $verb  " "$out" || { echo "not listed: $verb"; return 1; }
    done
}

same_page() { # by verb and by option
    for verb in $verbs; do
        answers help "$verb" && cp "$out" by-verb && answers "$verb" --help && cmp by-verb "$out" ||
            return 1
    done
    answers help && cp "$out" by-verb && answers --help && cmp by-verb "$out"
}

# Every verb says what it does and shows it.
pages_are_whole() {
    for verb in $verbs; do
        answers help "$verb" || return 1
        for part in Examples 'Exit status'; do
            grep -q "^$part$" "$out" || { echo "$verb: no $part"; return 1; }
        done
        [ "$(sed -n '/^$/,/ptions$/p' "$out" | grep -c '^[A-Z-].*')" -ge 2 ] ||
            { echo "$verb: not explained"; return 1; }
    done
}

narrow() { # narrow COLUMNS FILE: no line is wider, but for commands
    awk -v n="$1" '{ sub(/\r$/, "") }
        !/^  \$ / && length > n { print; bad = 1 }
        END { exit bad }' "$2"
}

fits_80_columns() {
    for verb in $verbs; do answers help "$verb" && narrow 80 "$out" || return 1; done
    answers --help && narrow 80 "$out"
}

fits_the_terminal() {
    NO_COLOR=1 script -qec "stty cols $1; '$dra' help train" /dev/null </dev/null >"$out" ||
        return 1
    grep -q 'usage: dra train' "$out" && narrow "$1" "$out" &&
        awk -v n="$1" 'length > n - 12 { wide++ } END { exit !(wide > 10) }' "$out"
}

# ---- man pages -----------------------------------------------------------------------------------

every_option_has_its_place() {
    for verb in $verbs; do
        options_of "$verb" >names
        [ -s names ] || return 1
        while read -r name; do
            dashed=$(echo "$name" | sed 's/-/\\\\-/g')
            grep -q "^\.B .*[]-]$dashed\( \|\$\)" "share/man/man1/dra-$verb.1" ||
                { echo "dra-$verb.1 lacks --$name"; return 1; }
        done <names
    done
}

groff_has_no_complaint() {
    for page in share/man/man1/*.1; do
        groff -man -ww -Tutf8 -z "$page" >>"$err" 2>&1 || return 1
    done
    quiet "$err"
}

man_names_the_page() {
    MANWIDTH=80 man --warnings -l share/man/man1/dra-train.1 >"$out" 2>"$err" && quiet "$err" &&
        grep -q 'dra-train - train a model on texts' "$out"
}

# ---- completion ----------------------------------------------------------------------------------

# completes "WORDS..." EXPECTED...: the last of the words is at the cursor.
completes() {
    mkdir -p place/folder && : >place/file.txt
    (cd place && bash -c '
        . ../share/bash-completion/completions/dra
        COMP_WORDS=($1) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        [[ $1 != *" " ]] || { COMP_WORDS+=("") && COMP_CWORD=$((COMP_CWORD + 1)); }
        _dra
        printf "%s\n" "${COMPREPLY[@]}"' bash "$1") | sort >"$out"
    shift
    printf '%s\n' "$@" | sort >expected
    diff expected "$out"
}

completes_every_option() {
    for verb in $verbs; do
        options_of "$verb" | sed 's/^no-//' | sort >names
        # It takes those of train as well.
        [ "$verb" != sweep ] ||
            { cat names && options_of train; } | sed 's/^no-//' | sort -u -o names
        bash -c '. share/bash-completion/completions/dra
            COMP_WORDS=(dra $1 --) COMP_CWORD=2
            _dra
            printf "%s\n" "${COMPREPLY[@]}"' bash "$verb" | sed 's/^--//; s/^no-//' | sort >offered
        diff names offered || { echo "dra $verb"; return 1; }
    done
}

# if_there PROGRAM NAME COMMAND...
if_there() {
    program=$1
    shift
    if command -v "$program" >/dev/null 2>&1; then check "$@"; else skip "$1" "no $program"; fi
}

# ---- keys of a config ----------------------------------------------------------------------------

keys_are_listed() {
    answers help keys && [ "$(grep -cE '^  [a-z_.]+ ' "$out")" -gt 150 ] || return 1
    for line in '^  heads N  *heads of attention (default 1)$' '^mixer.gamma$' \
        '^  mixer.memory append|ema|' '^  cross  *attention over a context'; do
        grep -q "$line" "$out" || { echo "lacks: $line"; return 1; }
    done
    says "help keys" --help
}

keys_are_found() {
    answers help keys Tau && [ "$(grep -cE '^  mixer.tau(_learned)? ' "$out")" -eq 2 ] &&
        [ "$(grep -cE '^  [a-z_.]+ ' "$out")" -lt 10 ] || { cat "$out"; return 1; }
}
keys_fit_80_columns() { answers help keys && narrow 80 "$out"; }

# ---- misuse --------------------------------------------------------------------------------------

leaves_what_is_no_folder() {
    : >file && failed "file/man: cannot make the folder" help --install file
}

check "the overview lists all verbs" all_verbs_are_listed
check "dra help VERB is dra VERB --help" same_page
check "pages are whole" pages_are_whole
check "pages fit 80 columns" fits_80_columns
if has_terminal; then
    check "pages fit a narrow terminal" fits_the_terminal 60
    check "pages fit a wide terminal" fits_the_terminal 120
else
    skip "pages fit a terminal" "$no_terminal"
fi
check "as Markdown" says '^\* `-o, --out DIR` - folder of the run (required)$' \
    help train --as markdown
check "man: every option" every_option_has_its_place
check "man: letters" grep -qx '\.B \\-n, \\-\\-steps N' share/man/man1/dra-train.1
check "zsh: letters" grep -qF "'(-n --steps)'{-n+,--steps=}'[" share/zsh/site-functions/_dra
check "examples come last" sh -c '"$1" train --help | tail -n 2 | grep -q "dra train --model run"' \
    sh "$dra"
if_there groff "man: groff -ww" groff_has_no_complaint
if_there man "man: dra-train.1" man_names_the_page
if_there bash "bash: verbs" completes "dra tok" tokenize tokenizer
if_there bash "bash: every option" completes_every_option
if_there bash "bash: options" completes "dra train --sample" --sample-every --sample-prompt \
    --sample-tokens
if_there bash "bash: letters" completes "dra ops -" -j --json --help
if_there bash "bash: the value of a letter" completes "dra eval -d f" file.txt folder
if_there bash "bash: choices" \
    completes "dra train --schedule " cosine linear constant exponential wsd
if_there bash "bash: choices after a =" completes "dra train --schedule = co" cosine constant
if_there bash "bash: choices right after it" completes "dra train --precision =" full bf16 tf32
if_there bash "bash: presets" completes "dra init --preset gpt" gpt2 gpt2-tiny
if_there bash "bash: a preset by place" completes "dra presets rwkv" rwkv4 rwkv4-tiny \
    rwkv5 rwkv5-tiny rwkv6 rwkv6-tiny rwkv7 rwkv7-tiny
if_there bash "bash: folders" completes "dra info --model fo" folder
if_there bash "bash: no files for a folder" completes "dra info --model fi" ""
if_there bash "bash: files" completes "dra eval --data f" file.txt folder
if_there bash "bash: files and words" completes "dra train --tokenizer " bytes file.txt folder none
if_there bash "bash: files by place" completes "dra report fi" file.txt
if_there bash "bash: tasks" completes "dra probe re" recall
if_there bash "bash: verbs of help" completes "dra help conv" convert
if_there bash "bash: models by place" completes "dra tokenize fo" folder
if_there bash "bash: keys of a config" completes "dra init --set mixer.q" \
    mixer.qk_gain_offset= mixer.qk_gain_start= mixer.qk_groups= mixer.qk_norm= mixer.qk_whole= \
    mixer.qkv_eps= mixer.qkv_gain= mixer.qkv_norm= mixer.query_gain=
if_there bash "bash: an option's place" completes "dra info fo" folder
if_there bash "bash: nothing for a number" completes "dra train --steps " ""
if_there zsh "zsh: it can be read" zsh -n share/zsh/site-functions/_dra
check "keys: each with its values and its default" keys_are_listed
check "keys: 80 columns" keys_fit_80_columns
check "keys: of a pattern" keys_are_found
check "keys: none" failed "dra help: no key has 'nothing at all' in its name or text" \
    help keys "nothing at all"
check "a word after a verb" misused \
    "dra help: expected no further argument after a verb, found 'steps'" help train steps
check "keys: as Markdown" \
    says '^\* `dim N` - width of the stream (required)$' help keys --as markdown
check "zsh: keys of a config" grep -q '^    keys=(vocab= dim= .*mixer.gamma.range= ' \
    share/zsh/site-functions/_dra
check "completion is printed" cmp share/bash-completion/completions/dra /dev/stdin <<EOF
$("$dra" help --as bash)
EOF
check "misspelt verb" misused "dra trian: no such verb; did you mean train?" help trian
check "completion of one verb" \
    misused "dra help: expected no verb: completion and --install are for all" help --as zsh train
check "no folder to install into" leaves_what_is_no_folder
check "full disk" sh -c '"$1" help --as man train >/dev/full 2>&1; [ $? -eq 1 ]' sh "$dra"
tap_end
