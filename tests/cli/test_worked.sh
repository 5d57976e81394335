#!/bin/sh
# The worked examples of docs/examples/, with fewer steps: real data, results that a person can
# judge, and resuming.
#   test_worked.sh PATH_OF_DRA
set -u
dra=$1
here=$(cd "$(dirname "$0")" && pwd)
. "$here/process.sh"
cd "$scratch" || exit 1
digits=$here/../data/digits sunspots=$here/../data/sunspots
page=$here/../../docs/examples

same() { cmp "$1" "$2"; }

at_least() { # at_least X Y
    awk -v x="$1" -v y="$2" 'BEGIN { exit !(x >= y) }' || { echo "$1, not $2 or more"; return 1; }
}

# ---- images --------------------------------------------------------------------------------------

vit() { # vit RUN OPTIONS...
    at=$1
    shift
    run 0 train --preset vit-tiny --set source.patch=4 --dropout 0.1 --batch 64 --lr 0.002 \
        --data "$digits/train.safetensors" --out "$at" "$@"
}

# Half of the steps have been made when it is resumed.
digits_are_learned() {
    vit digits --steps 60 --save-every 30 --eval-data "$digits/test.safetensors" || return 1
    answers eval --model digits --data "$digits/test.safetensors" --json || return 1
    at_least "$(sed 's/.*"accuracy": \([0-9.]*\).*/\1/' "$out")" 0.9
}

digits_resume() {
    cp -r digits resumed && rm -r resumed/train/step-00000060 &&
        run 0 train --resume --data "$digits/train.safetensors" \
            --eval-data "$digits/test.safetensors" --out resumed &&
        has "$err" "resume   after step 30" && same digits/model.safetensors \
        resumed/model.safetensors && same digits/best/model.safetensors \
        resumed/best/model.safetensors
}

# An image model has no tokens, and no tokenizer either.
digits_have_no_tokenizer() {
    [ ! -e digits/tokenizer.json ] && ! grep -q vocab digits/config.json &&
        says "^model         dim 64" info --model digits --draw digits.svg &&
        has digits.svg "4 patches of 4" && run 0 report digits --out page.html &&
        has page.html "Accuracy"
}

# What forward puts out for an image is what eval counts: the label is the largest logit.
digits_are_told_apart() {
    answers eval --model digits --data "$digits/test.safetensors" --json &&
        accuracy=$(sed 's/.*"accuracy": \([0-9.]*\).*/\1/' "$out") &&
        run 0 forward --model digits --inputs "$digits/test.safetensors" --outputs logits \
            --out logits || return 1
    tail -c 359 "$digits/test.safetensors" | od -An -v -tu1 -w1 >labels
    tail -c $((359 * 40)) logits | od -An -v -tf4 -w40 | paste labels - | awk -v a="$accuracy" '
        { best = 2; for (i = 3; i <= NF; i++) if ($i > $best) best = i; hits += best - 2 == $1 }
        END { exit !(NR == 359 && (hits / NR - a) ^ 2 < 1e-10) }'
}

# ---- a series ------------------------------------------------------------------------------------

series() { # series RUN OPTIONS...
    at=$1
    shift
    run 0 train --config "$page/sunspots.json" --batch 32 --lr 0.003 \
        --data "$sunspots/train.safetensors" --out "$at" "$@"
}

# forecasts RUN: the error of the model, then those of the number 1 and 11 years ago.
forecasts() {
    run 0 forward --model "$1" --inputs "$sunspots/test.safetensors" --out "$1.out" &&
        sh "$page/forecast.sh" "$sunspots/test.safetensors" "$1.out" >"$1.said" &&
        awk '/error of the model/ { m = $NF } /a year ago/ { n = $NF } /11 years ago/ { c = $NF }
            END { exit !(m > 0 && m < 0.75 * n && n == "30.4" && c == "34.2") }' "$1.said" ||
        { cat "$1.said"; return 1; }
}

sunspots_are_forecast() { series squared --steps 100 --save-every 50 && forecasts squared; }

sunspots_resume() {
    cp -r squared again && rm -r again/train/step-00000100 &&
        run 0 train --resume --data "$sunspots/train.safetensors" --out again &&
        same squared/model.safetensors again/model.safetensors
}

variances_are_right() {
    series gaussian --set head.dim=2 --objective gaussian --steps 100 && forecasts gaussian &&
        at_least "$(sed -n 's/.*interval *\([0-9]*\) %/\1/p' gaussian.said)" 75
}

sunspots_continue() {
    answers generate --model squared --inputs "$sunspots/last.safetensors" --tokens 20 \
        --out next --json && is_json "$out" >json &&
        [ "$(sed 's/"count".*//' "$out" | grep -o '\[-*[0-9]' | wc -l)" -eq 20 ]
}

# ---- fixtures ------------------------------------------------------------------------------------

# The years of the two files are those of the list.
numbers_are_those_of_the_list() {
    { cat "$sunspots/numbers.csv"; tail -c $((88 * 33 * 4)) "$sunspots/test.safetensors" |
        od -An -v -tf4 -w132; } | awk '
        /^[0-9]+,/ { split($0, field, ","); number[field[1]] = field[2]; next }
        /^year/ { next }
        { rows++ }
        { for (i = 1; i <= 33; i++) bad += (100 * $i ^ 2 - number[1887 + rows + i]) ^ 2 > 1e-4 }
        END { exit !(rows == 88 && !bad) }'
}

check "digits are learned" digits_are_learned
check "digits: resumed, the same bits" digits_resume
check "digits: no tokenizer, a picture, a report" digits_have_no_tokenizer
check "digits: forward and eval agree" digits_are_told_apart
check "sunspots: better than last year's number" sunspots_are_forecast
check "sunspots: resumed, the same bits" sunspots_resume
check "sunspots: variances" variances_are_right
check "sunspots: 20 more years" sunspots_continue
check "sunspots: rows are those of the list" numbers_are_those_of_the_list
tap_end
