#!/bin/sh
# Settings are what they say: a 0 is 0, a run measures and samples by default, epochs, what is
# written is tried first, what is unusual is said.
#   test_settings.sh PATH_OF_DRA
set -u
dra=$1
case $dra in /*) ;; *) dra=$PWD/$dra ;; esac
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1

awk 'BEGIN { while (i++ < 300) print "line", i, "of a text that says little,", i * i % 97 }' >text
small="--preset dra-gru-tiny --set dim=16 --set heads=2 --set depth=1 --data text --batch 2"
small="$small --context 16 --threads 2"

# train STATUS RUN OPTIONS...
train() {
    status=$1
    folder=$2
    shift 2
    # shellcheck disable=SC2086 # a list of options
    run "$status" train $small --out "$folder" "$@"
}

has() { # has TEXT FILE
    grep -q -e "$1" "$2" || { cat "$2"; return 1; }
}

count() { # count NUMBER TEXT FILE
    [ "$(grep -c -e "$2" "$3")" -eq "$1" ] || { cat "$3"; return 1; }
}

# What is written down is what holds, and what holds is not the default.
zeros() {
    train 0 plain --steps 6 && train 0 zero --steps 6 --weight-decay 0 --warmup 0 --clip 0 \
        --min-lr 0 --beta1 0 --log-every 1 --eval-every 0 --sample-every 0 || return 1
    for key in weight_decay warmup clip min_lr beta1 eval_every sample_every; do
        has "\"$key\": 0\(\.0\)\{0,1\},\{0,1\}$" zero/train/config.json || return 1
    done
    has '"lr":0.001,' zero/log.jsonl && has '"step":6,.*"lr":0.0,' zero/log.jsonl &&
        ! cmp -s plain/model.safetensors zero/model.safetensors
}

# Each of them alone changes the run.
each_zero() {
    for option in weight-decay clip beta1 min-lr; do
        train 0 "zero-$option" --steps 6 --lr 0.1 --seed 1 "--$option" 0 &&
            train 0 "none-$option" --steps 6 --lr 0.1 --seed 1 || return 1
        cmp -s "zero-$option/model.safetensors" "none-$option/model.safetensors" &&
            { echo "--$option 0 changes nothing"; return 1; }
    done
    return 0
}

# Below 0 nothing has a meaning.
negative() {
    for option in weight-decay clip min-lr dropout momentum early-stop eval-every save-every; do
        # shellcheck disable=SC2086 # a list of options
        run 2 train $small --out negative "--$option" -1 && one_line "$err" &&
            has "^dra train: --$option: expected a .* from 0.*, found '-1'$" "$err" &&
            [ ! -e negative ] || return 1
    done
}

# A key whose default is another number cannot be 0.
zero_keys() {
    for key in "mixer.tau=0 4" "heads=0 1" "norm_eps=0 1e-5" "ff.dim=0 4 dim" \
        "cross.heads=0 the"; do
        default=${key#* }
        key=${key%% *}
        failed "setting: ${key%=0} is 0, which stands for the default ($default" \
            init --preset gpt2-tiny --set "$key" --out none && [ ! -e none ] || return 1
    done
    run 0 init --preset gpt2-tiny --set dropout=0 --set mixer.softcap=0 --set depth=1 --out none
}

swept() {
    # shellcheck disable=SC2086 # a list of options
    run 0 sweep ${small%--threads*} --steps 6 --split 0.1 --lr 0.1 --set clip=0,1 --out sweep ||
        return 1
    has '"clip": 0.0' sweep/clip=0/train/config.json &&
        has '"clip": 1.0' sweep/clip=1/train/config.json &&
        ! cmp -s sweep/clip=0/model.safetensors sweep/clip=1/model.safetensors
}

# A run that is resumed keeps its zeros, and refuses others.
resumed() {
    "$dra" train --resume --out zero --steps 8 --clip 0 --chunk 0 --seed 0 >"$out" 2>"$err" ||
        { cat "$err"; return 1; }
    has '"clip": 0.0' zero/train/config.json &&
        failed "resume: weight_decay was 0.01 and is 0.0 now" train --resume --out plain \
            --steps 8 --weight-decay 0
}

# About ten evaluations and four samples; none of what nobody could read.
by_default() {
    train 0 usual --steps 40 --split 0.1 && count 10 '"eval_loss"' usual/log.jsonl &&
        count 4 '"sample"' usual/log.jsonl && count 4 '^sample ' "$err" &&
        has '"eval_every": 4,' usual/train/config.json &&
        has '"sample_every": 10,' usual/train/config.json || return 1
    # shellcheck disable=SC2086 # a list of options
    run 0 train --preset gpt2-tiny --set visible=bidirectional ${small#*tiny} --steps 8 \
        --out encoder &&
        count 0 '"sample"' encoder/log.jsonl
}

epochs() {
    tokens=$(wc -c <text)
    train 0 epochs --epochs 1.5 || return 1
    steps=$(sed -n 's/.*"steps": \([0-9]*\).*/\1/p' epochs/train/config.json)
    least=$((tokens * 3 / 2 / 32 - 2))
    [ "$steps" -ge "$least" ] && [ "$steps" -le $((least + 4)) ] ||
        { echo "$steps steps of $tokens tokens"; return 1; }
    # shellcheck disable=SC2086 # a list of options
    misused "dra train: expected one of --steps and --epochs, found both" \
        train $small --out both --epochs 1 --steps 3 &&
        misused "dra train: --epochs: a run that is resumed is made longer by --steps" \
            train --resume --out epochs --epochs 3
}

# The last number of the weights, which is one of the last gain, in a file of another program.
broken_weights() {
    run 0 init --preset gpt2-tiny --set dim=16 --set heads=2 --set depth=1 --out whole || return 1
    cp -r whole broken && file=broken/model.safetensors
    LC_ALL=C sed 's/"dra":"2","hash"/"old":"2","gone"/' whole/model.safetensors >$file || return 1
    answers eval --model broken --data text && answers info --model broken || return 1
    printf '\377\377' | dd of=$file bs=1 seek=$(($(wc -c <$file) - 2)) conv=notrunc 2>/dev/null
    warning='^warning  broken: weights that are NaN or infinite: 1, first in [a-z0-9._]*$'
    run 0 info --model broken && one_line "$err" && has "$warning" "$err" &&
        run 1 eval --model broken --data text && has "$warning" "$err" &&
        answers info --model broken --skip-hash
}

# What cannot be written is said before anything is computed.
outputs() {
    for path in no/x x; do
        [ "$path" = x ] && mkdir -p x
        where="cannot be written: its folder: "
        [ "$path" = x ] && where="x is a folder, expected a file"
        failed "$where" generate --model plain --prompt a --tokens 3 --state-out $path &&
            quiet "$out" &&
            failed "--out: " forward --model plain --tokens 1,2 --out $path &&
            failed "$where" eval --model plain --data text --per-token $path &&
            failed "$where" embed --model plain --text a --out $path &&
            failed "$where" info --model plain --draw $path &&
            failed "$where" grad --model plain --tokens 1,2 --out $path &&
            failed "$where" report plain --out $path || return 1
        train 1 logged --steps 2 --log $path && one_line "$err" && has "$where" "$err" &&
            [ ! -e logged ] || return 1
    done
}

# What is written is not what these names say, or not a page of a run.
names_of_files() {
    for path in l.npy l.pt l.gguf; do
        failed "--out: expected a name such as l.safetensors" forward --model plain --tokens 1,2 \
            --out $path && [ ! -e $path ] &&
            failed "--out: expected a name such as l.safetensors" grad --model plain --tokens 1,2 \
                --out $path || return 1
    done
    run 0 init --preset gpt2-tiny --set dim=16 --set heads=2 --set depth=1 --out fresh &&
        failed "fresh: expected a run, found no log.jsonl" report fresh &&
        [ ! -e fresh/report.html ] && run 0 report fresh --out fresh.html && [ -s fresh.html ]
}

# Words of other programs lead to ours.
synonyms() {
    leads() { # leads VERB WORD OURS OPTIONS...
        verb=$1
        word=$2
        ours=$3
        shift 3
        misused "dra $verb: no such option: '$word'; did you mean $ours?" "$verb" "$@" "$word"
    }
    leads generate --greedy --temperature --model plain --prompt a &&
        leads generate --rep-penalty --repetition-penalty --model plain --prompt a &&
        leads convert --format --as --from plain --to other &&
        leads sweep --grid --set --preset gpt2-tiny --data text &&
        leads chat --template --chat-template --model plain &&
        leads generate --limit --tokens --model plain --prompt a &&
        leads generate --n -n --model plain --prompt a &&
        leads convert --outfile --to --from plain &&
        leads train --seq-len --context --preset gpt2-tiny &&
        leads train --layers '--set depth=VALUE' --preset gpt2-tiny &&
        leads sweep --dim '--set dim=VALUE' --preset gpt2-tiny &&
        misused "dra convert: --as: no such choice: 'xt'; did you mean x-transformers?" \
            convert --from plain --to other --as xt &&
        misused "dra ls: no such verb; did you mean presets?" ls &&
        misused "dra evaluate: no such verb; did you mean eval?" evaluate &&
        misused "dra version: no such verb; did you mean --version?" version &&
        misused "dra --versoin: no such option; did you mean --version?" --versoin
}

# Options that change nothing of this run are refused, and nothing is made.
useless() {
    awk 'BEGIN { while (i++ < 40) print "{\"text\": \"line\"}" }' >lines.jsonl
    # refuses_option STATUS OPTION WHY OPTIONS...
    refuses_option() {
        status=$1 option=$2 why=$3
        shift 3
        train "$status" useless --steps 2 "$@" && one_line "$err" &&
            has "dra.*: $option: $why" "$err" && [ ! -e useless ]
    }
    refuses_option 2 --eval-every "there is nothing to evaluate on; expected --split or" \
        --eval-every 2 &&
        refuses_option 2 --sample-prompt "no samples are written" --sample-every 0 \
            --sample-prompt a &&
        refuses_option 2 --sample-tokens "no samples are written" --sample-every 0 \
            --sample-tokens 3 &&
        refuses_option 1 --blend-steps "the model has no blend" --blend-steps 3 &&
        refuses_option 1 --text-key "no file of the data is lines of JSON" --text-key body &&
        refuses_option 1 --src-key "expected pairs of texts" --src-key a || return 1
    failed "--separator: no file of the data is a text" tokenizer train --data lines.jsonl \
        --vocab 260 --separator === --out words &&
        failed "--text-key: no file" eval --model plain --data text --text-key a
}

disk() {
    train 0 room --steps 3 --split 0.1 && has '^disk     .* free: 1 checkpoint, the best model$' \
        "$err" || return 1
    failed "large: checkpoints need " train --preset gpt2-tiny --data text --out large \
        --steps 100000000 --save-every 1 --keep 1000000 && [ ! -e large ]
}

# A run that ends worse than it began, and one that reads its data again and again.
unusual() {
    train 0 wild --steps 60 --lr 30 --clip 0 && has '^warning  the loss rose from 5\.[0-9]* to ' \
        "$err" && has '^ended: the model is in wild' "$err" && count 0 'dra generate' "$err" ||
        return 1
    head -c 40 text >tiny
    # shellcheck disable=SC2086 # a list of options
    run 0 train ${small%--data*} --data tiny --batch 8 --context 16 --steps 400 --out often &&
        has '^run .*, 1,[0-9][0-9][0-9] epochs$' "$err" &&
        has '^warning  the data is read' "$err" || return 1
    train 0 slow --steps 6 --warmup 60 &&
        has '^warning  the warm-up of 60 steps is longer than the run' "$err" &&
        count 0 slow/best "$err"
}

# The command to go on with takes the best model where the last one is worse: the more it learns of
# one letter, the less it expects others.
goes_on_with_the_best() {
    awk 'BEGIN { while (i++ < 200) printf "a" }' >letters
    # shellcheck disable=SC2086 # a list of options
    run 0 train ${small%--data*} --data letters --batch 2 --context 16 --steps 12 --lr 0.1 \
        --eval-data text --eval-every 1 --out worse || return 1
    best=$(sed -n 's/.*"eval_loss":\([0-9.]*\).*/\1/p' worse/log.jsonl | sort -n | head -n 1)
    last=$(sed -n 's/.*"eval_loss":\([0-9.]*\).*/\1/p' worse/log.jsonl | tail -n 1)
    [ "$best" != "$last" ] || { echo "the last model is the best"; return 1; }
    has '--model worse/best ' "$err" && has 'dra report worse$' "$err"
}

one_run() {
    # shellcheck disable=SC2086 # a list of options
    run 0 sweep ${small%--threads*} --steps 2 --out alone &&
        has '^sweep    nothing to compare: --set and --seeds name one run$' "$err"
}

# What is named bytes is unpacked all the same.
packed_bytes() {
    gzip -c text >text.gz || return 1
    for format in "" "--data-format bytes"; do
        # shellcheck disable=SC2086 # a list of options
        says "\"tokens\": $(($(wc -c <text) - 1))," eval --model plain --data text.gz $format \
            --json || return 1
    done
}

# A call draws by a seed of its own and says so; the same seed writes the same text.
seeds() {
    plain="generate --model plain --prompt a --tokens 12"
    # shellcheck disable=SC2086 # a list of options
    {
        "$dra" $plain >one 2>"$err" && one_line "$err" && seed=$(sed -n 's/^seed  *//p' "$err") &&
            "$dra" $plain --seed "$seed" >two 2>"$err" && quiet "$err" && cmp one two &&
            "$dra" $plain >three 2>"$err" && ! cmp -s one three &&
            "$dra" $plain --temperature 0 >"$out" 2>"$err" && quiet "$err"
    }
}

# A state file is shown as what it is.
shows_a_state() {
    run 0 generate --model plain --prompt "ab" --tokens 4 --state-out a.state &&
        says '^tokens        6 read$' info --model a.state &&
        has '^fingerprint   [0-9a-f]' "$out" &&
        has '^  layers.0.mixer.*F[0-9]* (1, ' "$out" &&
        says '"tokens": "6"' info --model a.state --json &&
        says '^tokens        6 read$' info a.state
}

check "0 is 0" zeros
check "each 0 changes the run" each_zero
check "nothing below 0" negative
check "keys whose 0 is another number" zero_keys
check "a sweep over 0" swept
check "0 when a run is resumed" resumed
check "evaluations and samples by default" by_default
check "epochs" epochs
check "weights that are not finite" broken_weights
check "outputs are tried first" outputs
check "names of files" names_of_files
check "words of other programs" synonyms
check "the best model is the one to go on with" goes_on_with_the_best
check "options that change nothing" useless
check "the disk is part of the plan" disk
check "what is unusual is said" unusual
check "a sweep of one run" one_run
check "bytes that are compressed" packed_bytes
check "seeds" seeds
check "a state file" shows_a_state
tap_end
