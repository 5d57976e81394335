#!/bin/sh
# dra train as a process: killed at any moment it resumes to the same bytes; signals save; what is
# wrong is one line.
#   test_train.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/../tap.sh"
data=$(cd "$(dirname "$0")/../data" && pwd) || exit 1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
out=$scratch/out
err=$scratch/err

awk 'BEGIN { while (i++ < 400) print "line", i, "of a text that says little,", i * i % 97 }' >text
awk 'BEGIN { while (i++ < 400) print "another text, and", i }' >other

# launch RUN PRESET OPTIONS...: becomes the process that trains a small model, and saves often.
launch() {
    run=$1
    preset=$2
    shift 2
    exec "$dra" train --preset "$preset" --set dim=32 --set heads=2 --set depth=2 --data text \
        --out "$run" --steps 40 --batch 4 --context 32 --save-every 2 --log-every 4 --split 0.05 \
        --eval-every 10 --threads 2 "$@" >"$out" 2>"$err"
}

train() { (launch "$@") || { cat "$err"; return 1; }; }

one_line() {
    [ "$(wc -l <"$1")" -eq 1 ] || { cat "$1"; return 1; }
}

# One object at the end, with the numbers of the log's last lines; nothing else is on stdout.
ends_in_json() {
    train gpt2-tiny.json gpt2-tiny --json || return 1
    last=$(sed -n 's/.*"step":40,.*"loss":\([0-9.]*\).*/\1/p' gpt2-tiny.json/log.jsonl | head -n 1)
    one_line "$out" &&
        grep -q '^{"run": "gpt2-tiny.json", "steps": 40, "of": 40, "stopped_early": false' "$out" &&
        grep -q "\"loss\": $last" "$out" && grep -q '"best_eval_loss": [0-9]' "$out"
}

# --minutes saves where it is; the same run goes on.
stops_in_time() {
    "$dra" train --preset gpt2-tiny --set dim=32 --set heads=2 --set depth=2 --data text \
        --out timed --steps 1000000 --batch 4 --context 32 --eval-every 0 --sample-every 0 \
        --save-every 0 --minutes 0.02 --threads 2 --json >"$out" 2>"$err" || return 1
    steps=$(sed 's/.*"steps": \([0-9]*\),.*/\1/' "$out")
    [ "$steps" -ge 1 ] && [ "$steps" -lt 1000000 ] && grep -q '"peak_bytes": [1-9]' "$out" &&
        grep -q '^stopped and saved at step' "$err" && [ -f timed/model.safetensors ] || return 1
    "$dra" train --resume --out timed --minutes 0.01 --threads 2 --json >"$out" 2>"$err" &&
        [ "$(sed 's/.*"steps": \([0-9]*\),.*/\1/' "$out")" -gt "$steps" ]
}

# refused STATUS TEXT COMMAND...: that status and one line with the text.
refused() {
    expected=$1
    text=$2
    shift 2
    status=0
    "$@" >"$out" 2>"$err" || status=$?
    [ "$status" -eq "$expected" ] && one_line "$err" && grep -qF -e "$text" "$err" && return 0
    echo "status $status, expected $expected and: $text"
    cat "$err"
    return 1
}

# moment N: a number of seconds that is another one each time.
moment() {
    awk -v seed="$(($$ + $1 * 7919))" 'BEGIN { srand(seed); printf "%.2f", 0.05 + 0.4 * rand() }'
}

# Computed at another level than the best, stopped and resumed: the bytes of that level.
keeps_level() {
    DRA_CPU=ref train level dra-gru-tiny || return 1
    cp level/model.safetensors level.model
    grep -q '"level": "ref"' level/train/step-00000038/train.json || return 1
    rm -r level/train/step-00000040
    train level dra-gru-tiny --resume && cmp level.model level/model.safetensors
}

# Trained in one go, and killed again and again: the same bytes in the end.
killed_goes_on() {
    preset=$1
    train "$preset.whole" "$preset" || return 1
    for i in 1 2 3 4; do
        launch "$preset.killed" "$preset" --resume &
        job=$!
        sleep "$(moment $i)"
        kill -KILL "$job" 2>/dev/null
        wait "$job" 2>/dev/null
    done
    train "$preset.killed" "$preset" --resume || return 1
    cmp "$preset.whole/model.safetensors" "$preset.killed/model.safetensors" &&
        cmp "$preset.whole/best/model.safetensors" "$preset.killed/best/model.safetensors" &&
        cmp "$preset.whole/train/step-00000040/optimizer.safetensors" \
            "$preset.killed/train/step-00000040/optimizer.safetensors" &&
        same_log "$preset"
}

# The same steps with the same losses, each once.
same_log() {
    for run in whole killed; do
        sed -n 's/^\({"step":[0-9]*,"loss":[0-9.]*\),.*/\1/p' "$1.$run/log.jsonl" >$run.steps
    done
    [ "$(wc -l <whole.steps)" -eq 10 ] && cmp whole.steps killed.steps
}

# A tokenizer goes along with a run, as the file it is, and all verbs find it there.
tokenizer_goes_along() {
    folder=$data/$1 file=$2 prompt=$3 ids=$4
    "$dra" train --preset rwkv4-tiny --set dim=8 --set heads=1 --set depth=1 --data text --force \
        --out along --tokenizer "$folder" --steps 2 --batch 1 --context 8 >"$out" 2>"$err" &&
        cmp "$folder/$file" "along/$file" &&
        [ "$("$dra" tokenize --model along "$prompt")" = "$ids" ] &&
        "$dra" generate --model along --prompt "$prompt" --tokens 3 >"$out" 2>"$err" &&
        rm -rf copy && "$dra" convert --from along --to copy >"$out" 2>"$err" &&
        cmp "$folder/$file" "copy/$file" &&
        "$dra" train --model copy --data text --out more --force --steps 2 --batch 1 --context 8 \
            >"$out" 2>"$err" && cmp "$folder/$file" "more/$file" && return 0
    cat "$err"
    return 1
}

# A signal saves, says how to resume, and exits with 0.
signal_saves() {
    run=signal.$1
    : >"$err"
    "$dra" train --preset dra-gru-tiny --set dim=32 --set heads=2 --set depth=2 --data text \
        --out "$run" --steps 100000 --batch 4 --context 32 --save-every 0 >"$out" 2>"$err" &
    job=$!
    tries=0
    while ! grep -q '^step ' "$err" && [ "$tries" -lt 400 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    kill -"$1" "$job"
    wait "$job" || { cat "$err"; return 1; }
    last=$(tail -n 1 "$err")
    case $last in
    "stopped and saved at step "*"; resume with: dra train --resume --out $run") ;;
    *) echo "$last"; return 1 ;;
    esac
    set -- "$run"/train/step-*
    [ $# -eq 1 ] && [ -f "$run/model.safetensors" ]
}

says() { # says TEXT COMMAND...: works, and the text is on stderr
    text=$1
    shift
    "$@" >"$out" 2>"$err" && grep -q -e "$text" "$err" && return 0
    cat "$err"
    return 1
}

# The settings come from the run; the data may be named again.
goes_on_without_settings() {
    says '^done' "$dra" train --preset gpt2-tiny --set dim=32 --set heads=2 --set depth=1 \
        --data text --out settings --steps 6 --batch 2 --context 16 &&
        says '^settings has all its 6 steps$' "$dra" train --resume --out settings --data text
}

# A run knows its data: by the path they have, from any folder, or as they were given; and how they
# were read. What is missing is named.
finds_its_data() {
    mkdir -p found && cp text found/train.txt && cp other found/eval.txt || return 1
    sed 's/.*/{"body": "&"}/' text >found/lines.jsonl
    small="--preset gpt2-tiny --set dim=16 --set heads=2 --set depth=1"
    small="$small --steps 4 --batch 1 --context 8"
    # shellcheck disable=SC2086 # a list of options
    says '^done' "$dra" train $small --data found/train.txt --eval-data found/eval.txt \
        --out found/run &&
        says '^done' "$dra" train $small --data found/lines.jsonl --text-key body \
            --tokenizer bytes --log found/keyed.log --out found/keyed || return 1
    (cd / && says 'has all its 4 steps' "$dra" train --resume --out "$scratch/found/run" &&
        grep -q '^data .* for evaluation' "$err" &&
        says '^done' "$dra" train --resume --steps 6 --out "$scratch/found/keyed") || return 1
    grep -q '"step":6,' found/keyed.log && [ ! -e found/keyed/log.jsonl ] || return 1
    gone="its data is not there: $scratch/found/train.txt; give the new path"
    mv found elsewhere && refused 1 "$gone by --data" \
        "$dra" train --resume --out elsewhere/run && mv elsewhere found &&
        cp other found/train.txt &&
        refused 1 "found/run: was trained on other data" "$dra" train --resume --out found/run &&
        cp text found/train.txt && rm found/run/train/sources.jsonl &&
        refused 1 "found/run: does not say what data it was trained on; give it by --data" \
            "$dra" train --resume --out found/run &&
        says 'has all its 4 steps' "$dra" train --resume --out found/run --data found/train.txt &&
        says 'has all its 4 steps' "$dra" train --resume --out found/run
}

# Longer, with its schedule kept: the bytes of a run that was planned so. What changes is said.
is_made_longer() {
    small="--preset gpt2-tiny --set dim=16 --set heads=2 --set depth=1 --data text --batch 1"
    small="$small --context 8 --warmup 2 --optimizer muon"
    # shellcheck disable=SC2086 # a list of options
    says '^done' "$dra" train $small --steps 10 --out long &&
        says '^extended from 10 to 16 steps; the schedule .* ends at step 10 as before$' \
            "$dra" train --resume --out long --steps 16 --schedule-end 10 &&
        says '^done' "$dra" train $small --steps 16 --schedule-end 10 --out longer &&
        cmp long/model.safetensors longer/model.safetensors &&
        cmp long/train/step-00000016/optimizer.safetensors \
            longer/train/step-00000016/optimizer.safetensors &&
        says '^extended from 16 to 20 steps; the schedule .* ends at step 10 as before$' \
            "$dra" train --resume --out long --steps 20 &&
        says '^done' "$dra" train $small --steps 4 --out stretched &&
        says '^extended from 4 to 6 steps; .* is stretched to the new end (--schedule-end 4 keeps' \
            "$dra" train --resume --out stretched --steps 6 &&
        says '^changed  the schedule of the learning rate ends at step 5, before at 6$' \
            "$dra" train --resume --out stretched --schedule-end 5 &&
        refused 1 "resume: steps was 6 and is 5 now: another run" \
            "$dra" train --resume --out stretched --steps 5
}

# A trapezoid that is stopped on its plateau and made longer: the bytes of one that was planned so.
plateau_is_made_longer() {
    small="--preset gpt2-tiny --set dim=16 --set heads=2 --set depth=1 --data text --batch 1"
    small="$small --context 8 --warmup 2 --schedule wsd --min-lr 0"
    # shellcheck disable=SC2086 # a list of options
    says '^done' "$dra" train $small --steps 9 --decay-steps 1 --save-every 8 --out plateau &&
        rm -r plateau/train/step-00000009 && # leaves the checkpoint of step 8
        says '^extended from 9 to 12 steps' \
            "$dra" train --resume --out plateau --steps 12 --decay-steps 3 &&
        says '^done' "$dra" train $small --steps 12 --decay-steps 3 --out planned &&
        cmp plateau/model.safetensors planned/model.safetensors
}

# Nothing gets better with this rate: it says so, in the log as well, and keeps the best one.
stops_early() {
    says '^early.stop stopped early at step [0-9]*: 2 evaluations without a better one; the best' \
        "$dra" train --preset gpt2-tiny --set dim=16 --set heads=2 --set depth=1 --data text \
        --out early.stop --steps 500 --batch 1 --context 8 --lr 5 --warmup 1 --split 0.02 \
        --eval-every 2 --early-stop 2 &&
        tail -n 1 early.stop/log.jsonl | grep -q '"stopped_early":"2 evaluations' &&
        [ -f early.stop/best/model.safetensors ] &&
        says '^early.stop stopped early at step' "$dra" train --resume --out early.stop &&
        refused 1 "early_stop is 2, but there is nothing to evaluate on" "$dra" train \
            --preset gpt2-tiny --data text --out new --early-stop 2
}

# early DIM OPTIONS...: becomes the process of a run that saves at its end only.
early() {
    dim=$1
    shift
    exec "$dra" train --preset gpt2-tiny --set "dim=$dim" --set heads=2 --set depth=2 --data text \
        --out early --steps 100000 --context 32 --save-every 0 --log-every 1 "$@"
}

begin_early() { (early "$@"); }

# Killed before its first checkpoint: without the command that started it nothing is begun, and it
# must be the same one.
killed_early() {
    early 32 --seed 5 >"$out" 2>"$err" &
    job=$!
    tries=0
    while ! grep -qs '^{' early/log.jsonl && [ "$tries" -lt 400 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    kill -KILL "$job"
    wait "$job" 2>/dev/null
    cp early/train/config.json settings.json || { cat "$err"; return 1; }
    began="early: has no checkpoint yet; repeat the command that started it: dra train --preset"
    began="$began gpt2-tiny --set dim=32 --set heads=2 --set depth=2 --data text --out early"
    refused 1 "$began --steps 100000 --context 32 --save-every 0 --log-every 1 --seed 5" \
        "$dra" train --resume --data text --out early &&
        refused 1 "repeat the command that started it: dra train" \
            "$dra" train --resume --out early &&
        refused 1 "resume: seed was 5 and is 6 now" begin_early 32 --resume --seed 6 &&
        refused 1 'is a run of another model: config.json says "dim": 32, expected' \
            begin_early 16 --resume --seed 5 &&
        cmp settings.json early/train/config.json &&
        refused 1 "no-run: is not a run that can be resumed; a new one needs a model" \
            "$dra" train --resume --data text --out no-run && [ ! -e no-run ]
}

# As it stands then, with the settings said again or left out: it ends in the same bytes.
begins_as_told() {
    train told gpt2-tiny --seed 5 && rm -rf again.told && mkdir -p again.told/train &&
        cp told/train/config.json again.told/train && cp told/config.json again.told &&
        says '^done' "$dra" train --resume --preset gpt2-tiny --set dim=32 --set heads=2 \
            --set depth=2 --data text --out again.told --seed 5 &&
        cmp told/model.safetensors again.told/model.safetensors
}

# tokens FILE: 64 of them, 1 to 8 again and again.
tokens() {
    {
        printf '\100\0\0\0\0\0\0\0%-64s' '{"ids":{"dtype":"U8","shape":[64],"data_offsets":[0,64]}}'
        for _ in 1 2 3 4 5 6 7 8; do printf '\1\2\3\4\5\6\7\10'; done
    } >"$1"
}

# Folders of Hugging Face and of PyTorch, its files and those of rwkv.cpp, in the same way. Data
# that are tokens need no tokenizer.
trains_weights_of_all_kinds() {
    pth=$data/pth/rwkv.pth
    tokens ids.safetensors
    "$dra" convert --from "$pth" --to rwkv --as hf >"$out" 2>"$err" &&
        "$dra" convert --from rwkv --to rwkv.bin --as rwkv.cpp >"$out" 2>"$err" &&
        mkdir bin && cp rwkv/config.json bin && cp "$pth" bin/pytorch_model.bin || return 1
    for model in rwkv "$pth" rwkv.bin bin; do
        says '^done' "$dra" train --model "$model" --data ids.safetensors --out kinds --force \
            --steps 2 --batch 1 --context 8 --log-every 1 || return 1
        # rwkv.cpp stores exponentials of decays: the last digits may differ
        sed -n 's/.*"loss":\([0-9]\.[0-9]\{4\}\).*/\1/p' kinds/log.jsonl >kinds.loss
        [ -s kinds.first ] || cp kinds.loss kinds.first
        cmp kinds.first kinds.loss || return 1
    done
    [ "$(wc -l <kinds.first)" -eq 2 ]
}

# What tokens are is never guessed.
tokens_are_not_guessed() {
    "$dra" init --preset gpt2-tiny --set dim=16 --set heads=2 --set depth=1 --set vocab=300 \
        --out three >"$out" || return 1
    small="--steps 2 --batch 1 --context 8"
    # shellcheck disable=SC2086 # a list of options
    none="no tokenizer files, and 300 tokens are not bytes; give one by --tokenizer PATH"
    refused 1 "three: $none" \
        "$dra" train --model three --data text --out guessed $small && [ ! -e guessed ] &&
        refused 1 "the tokenizer $data/bpe has 924 tokens, the model three only 300" \
            "$dra" train --model three --tokenizer "$data/bpe" --data text --out guessed $small &&
        refused 1 "the tokenizer $data/bpe has 924 tokens, the model gpt2-tiny only 300" \
            "$dra" train --preset gpt2-tiny --set vocab=300 --tokenizer "$data/bpe" --data text \
            --out guessed && [ ! -e guessed ] &&
        says '^done' "$dra" train --model three --tokenizer bytes --data text --out guessed \
            $small &&
        says '^guessed has all its 2 steps' "$dra" train --resume --data text --out guessed &&
        [ "$("$dra" tokenize --model guessed abc)" = "97 98 99" ]
}

# A run over the folder of another model is one that all verbs can use.
force_leaves_nothing() {
    "$dra" init --preset gpt2-tiny --set dim=16 --set heads=2 --set depth=1 --set vocab=1000 \
        --tokenizer "$data/bpe" --out over >"$out" || return 1
    for name in vocab.json merges.txt tokenizer_config.json pytorch_model.bin notes.txt; do
        echo '{}' >over/$name
    done
    says '^done' "$dra" train --preset gpt2-tiny --set dim=16 --set heads=2 --set depth=1 \
        --data text --out over --force --steps 2 --batch 1 --context 8 &&
        "$dra" generate --model over --prompt a --tokens 2 >"$out" 2>"$err" &&
        [ "$(cd over && echo *)" = "config.json log.jsonl model.safetensors notes.txt train" ]
}

# The last step was not finite: the model is saved, and the status says it.
ends_not_finite() {
    "$dra" init --preset gpt2-tiny --set dim=16 --set heads=2 --set depth=1 --out nan >"$out" &&
        size=$(wc -c <nan/model.safetensors) &&
        printf '\000\000\300\177' |
        dd of=nan/model.safetensors bs=1 seek=$((size - 4)) conv=notrunc 2>/dev/null || return 1
    status=0
    "$dra" train --model nan --data text --out ends --steps 2 --batch 1 2>"$err" && return 1
    grep -q '^dra: nan/model.safetensors: is damaged: ' "$err" && [ ! -e ends ] || return 1
    "$dra" train --model nan --data text --out ends --steps 2 --batch 1 --skip-hash 2>"$err" ||
        status=$?
    [ $status -eq 1 ] && tail -n 1 "$err" |
        grep -q '^dra: step 2: loss .*nan, .* not finite in the last 2 steps; saved' &&
        ! grep -q '^done' "$err" && [ -f ends/model.safetensors ] && return 0
    cat "$err"
    return 1
}

# Sanitizers say something, too, before the last line.
too_large() {
    status=0
    "$dra" train --preset gpt2-tiny --data text --out new --batch 1000000 --context 64 2>"$err" ||
        status=$?
    [ $status -eq 1 ] &&
        tail -n 1 "$err" |
        grep -q '^dra: train: out of memory for steps of 1000000 x 64 tokens: ' &&
        return 0
    cat "$err"
    return 1
}

# Groups: the plan says what decays; a run keeps what it was told.
learns_in_groups() {
    small="--preset dra-gru-tiny --set dim=32 --set depth=1 --set heads=2 --data text --steps 4"
    small="$small --batch 2"
    wrong="--group: expected decay:lr=Nx,wd=X"
    refused 2 "$wrong" "$dra" train $small --out g --group decay:lr=2 &&
        refused 2 "$wrong" "$dra" train $small --out g --group decai:wd=1 &&
        refused 2 "found 'decay:wd=1,wd=2'" "$dra" train $small --out g --group decay:wd=1,wd=2 &&
        refused 1 "group head is set" "$dra" train $small --out g --group head:wd=1 || return 1
    says '^groups   matrix .*: decay 0.02$' "$dra" train $small --out grouped --context 16 \
        --group decay:lr=2x,wd=0.5 --group matrix:wd=0.02 --group norm:lr=0x || return 1
    grep -q '^         norm [0-9.k ]*: lr x 0, no decay$' "$err" &&
        grep -q '^         decay [0-9]*: lr x 2, decay 0.5$' "$err" &&
        grep -q '^         embedding .*: no decay$' "$err" &&
        says '^extended' "$dra" train --resume --out grouped --steps 6 &&
        grep -q '^         decay [0-9]*: lr x 2, decay 0.5$' "$err" &&
        refused 1 "resume: group was " "$dra" train --resume --out grouped --steps 8 \
            --group norm:lr=1x && return 0
    cat "$err"
    return 1
}

reports_before_the_run() {
    says '^model .* parameters$' "$dra" train --preset dra-gru-tiny --set dim=32 --set depth=1 \
        --set heads=2 --data text --out report --steps 12 --batch 2 --context 16:0,32:6 \
        --aux-loss drift=0.1 --clamp-states \
        --sample-every 12 --sample-prompt "line " --sample-tokens 5 || return 1
    [ ! -s "$out" ] && grep -q '^data .* tokens$' "$err" &&
        grep -q '^run  *12 steps of 2 x 16, 32 (from step 7 on) tokens: 576 tokens' "$err" &&
        grep -q '^memory .*weights .*activations ' "$err" && grep -q '^time ' "$err" &&
        grep -q '^sample  *line ' "$err" && grep -q '"sample":"line ' report/log.jsonl &&
        grep -q '"drift":[0-9.e-]*,"clamped":0' report/log.jsonl &&
        says 'report has all' "$dra" train --resume --out report --data text &&
        grep -q '"steps": 12' report/train/config.json && return 0
    cat "$err" report/log.jsonl
    return 1
}

# Further keys of a config come from the weights once; a resumed run has its own.
goes_on_as_it_is() {
    "$dra" init --preset gpt2-tiny --set dim=16 --set heads=2 --set depth=1 --set vocab=1000 \
        --tokenizer "$data/bpe" --out plain >"$out" &&
        "$dra" convert --from plain --to hf --as hf >"$out" 2>"$err" || { cat "$err"; return 1; }
    small="--data text --out keys --steps 2 --batch 1 --context 8"
    sed -i '1a "name": "first",' hf/config.json
    # shellcheck disable=SC2086 # a list of options
    says '^done' "$dra" train --model hf $small && grep -q '"first"' keys/config.json || return 1
    sed -i 's/"first"/"other"/' hf/config.json
    # shellcheck disable=SC2086 # a list of options
    says '^keys has all' "$dra" train --model hf $small --resume &&
        grep -q '"first"' keys/config.json
}

# Killed when it had its config, and neither a tokenizer nor a checkpoint.
goes_on_without_its_tokenizer() {
    mkdir -p half/train && cp keys/train/config.json half/train && cp keys/config.json half &&
        says '^done' "$dra" train --model hf --data text --out half --resume &&
        cmp keys/tokenizer.json half/tokenizer.json &&
        cmp keys/model.safetensors half/model.safetensors
}

# One that is done, and one without a checkpoint yet.
init_leaves_runs_alone() {
    mkdir -p begun/train && cp keys/train/config.json begun/train &&
        cp keys/model.safetensors before || return 1
    for run in keys begun; do
        refused 1 "$run is a run; take another folder" "$dra" init --preset gpt2-tiny --out $run &&
            refused 1 "$run is a run; take another folder" \
                "$dra" init --preset gpt2-tiny --out $run --force || return 1
    done
    cmp before keys/model.safetensors && [ "$(echo begun/*)" = begun/train ]
}

# Neither the data nor a folder is taken for a log, whatever is forced.
log_is_no_data() {
    mkdir texts && cp text texts/a && cp text copied && ln copied linked || return 1
    small="train --preset gpt2-tiny --out logs --force --steps 2 --batch 1 --context 8"
    for pair in "copied copied" "copied linked" "texts texts/a"; do
        # shellcheck disable=SC2086 # a list of options
        refused 2 "--log: expected a file that is not part of the data, found '${pair#* }'" \
            "$dra" $small --data "${pair% *}" --log "${pair#* }" &&
            refused 2 "--log: expected a file that is not part of the data" \
                "$dra" $small --data other --eval-data "${pair% *}" --log "${pair#* }" || return 1
    done
    # shellcheck disable=SC2086 # a list of options
    refused 1 "--log: texts is a folder, expected a file" "$dra" $small --data text --log texts &&
        cmp text copied && cmp text texts/a && [ ! -e logs ]
}

for preset in gpt2-tiny dra-gru-tiny dra-slots-tiny; do
    check "killed: $preset resumes to the same bytes" killed_goes_on $preset
done
check "SIGINT saves" signal_saves INT
check "SIGTERM saves" signal_saves TERM
check "resumes without settings" goes_on_without_settings
check "finds its data again" finds_its_data
check "a run is made longer" is_made_longer
check "stops early" stops_early
check "stops in time" stops_in_time
check "killed before its first checkpoint" killed_early
check "begins as it was told first" begins_as_told
check "weights of all kinds" trains_weights_of_all_kinds
check "tokens are not guessed" tokens_are_not_guessed
check "--force leaves nothing of another model" force_leaves_nothing
check "resumes as it is" goes_on_as_it_is
check "killed before it had its tokenizer" goes_on_without_its_tokenizer
check "init leaves runs alone" init_leaves_runs_alone
check "the log is none of the data" log_is_no_data
check "the last steps were not finite" ends_not_finite
check "the tokenizer of RWKV World" tokenizer_goes_along world rwkv_vocab_v20230424.txt \
    "I'll 'd test" "74 5229 274 101 32223"
check "an object of JSON at the end" ends_in_json
check "a plateau that is made longer" plateau_is_made_longer
check "groups of parameters" learns_in_groups
check "a report before the run" reports_before_the_run

run=gpt2-tiny.whole
printf 'abc' >few
again() { "$dra" train --resume --out $run "$@"; }
check "a run that is there" refused 1 \
    "holds a run of 40 steps; resume it (--resume), or force a new one over it (--force)" \
    "$dra" train --preset gpt2-tiny --data text --out $run
check "too little data" refused 1 \
    "few: 3 tokens to read, expected at least 256, a row of 256 (the context)" \
    "$dra" train --preset gpt2-tiny --data few --out few-run
check "another model" refused 1 'is a run of another model: config.json says "dim": 32, expected' \
    again --data text --preset gpt2-tiny
check "other data" refused 1 "was trained on other data" again --data other
check "other settings" refused 1 "resume: lr was 0.001 and is 0.5 now" again --data text --lr 0.5
check "no model" refused 2 "dra train: expected one of --model, --preset and --config, found none" \
    "$dra" train --data text --out new
check "no data" refused 2 "dra train: --data FILE is required, as in: dra train" \
    "$dra" train --preset gpt2-tiny --out new
check "context" refused 2 "T:STEP,..., T from 1 to 1048576, found '16:x'" \
    "$dra" train --preset gpt2-tiny --data text --out new --context 16:x
check "aux-loss" refused 2 "--aux-loss: expected drift=X with a number X, found 'drif=1'" \
    "$dra" train --preset dra-gru-tiny --data text --out new --aux-loss drif=1
check "momentum" refused 1 "train: momentum is 0.5, but optimizer adamw has none" \
    "$dra" train --preset gpt2-tiny --data text --out new --momentum 0.5
check "optimizer" refused 2 "--optimizer: no such choice: 'lin'; did you mean lion?" \
    "$dra" train --preset gpt2-tiny --data text --out new --optimizer lin
check "carry" refused 1 "carry: the model has learned positions" \
    "$dra" train --preset gpt2-tiny --data text --out new --carry
check "a resumed run keeps its level of kernels" keeps_level
check "a missing file" refused 1 "nowhere: cannot open it" \
    "$dra" train --preset gpt2-tiny --data nowhere --out new
check "too large" too_large
# Its only step, whose own loss is fine, ruins the weights: saved, but no success. Squares of
# squares without norms overflow in every precision.
ruins() {
    "$dra" train --preset gpt2-tiny --set depth=12 --set ff.kind=relu2 --set block.norm=none \
        --data text --out ruined --force --steps 1 --batch 1 --context 16 --lr 50 "$@" >ruin 2>&1
    [ $? -eq 1 ] && grep -q 'the run diverged' ruin && [ -e ruined/model.safetensors ] &&
        ! grep -q '^done' ruin
}
check "a run whose last step ruins the weights fails" ruins
check "also where its evaluation tells" ruins --sample-every 0 --eval-data text --eval-every 1
check "nothing is left of what was refused" [ ! -e new ]
tap_end
