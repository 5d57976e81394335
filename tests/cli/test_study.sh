#!/bin/sh
# dra study as a process: plan, runs, the same lines after kill -9, minutes, several at once, failed
# runs, verdicts, the page, files that are wrong. The argument is the path of the program.
set -u
dra=${1:?path of dra}
case $dra in /*) ;; *) dra=$PWD/$dra ;; esac
. "$(dirname "$0")/process.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)
tiny=$root/tests/data/study/tiny.json
cd "$scratch" || exit 1

study() { # study STATUS OPTIONS...
    status=$1
    shift
    run "$status" study "$@" --threads 1
}

# What a line says but for times: its run, axes, score and commands.
facts() { # facts DIR
    sed 's/"seconds": [0-9.e+-]*//g; s/"tokens_per_second": [0-9.e+-]*//g
        s/"peak_bytes": [0-9]*//g; s/"date": "[^"]*"//; s|"model": "[^"]*/models|"model": "models|g' \
        "$1/lines.jsonl" | sort
}

lines() { # lines DIR N
    [ "$(wc -l <"$1/lines.jsonl")" -eq "$2" ] || { cat "$1/lines.jsonl"; return 1; }
}

plan() {
    study 0 "$tiny" --plan --speed 1000 && [ ! -d tiny-full ] || return 1
    grep -Eq '^parens +1 +6 +0 ' "$out" && grep -Eq '^later +2 +2 +0 ' "$out" &&
        grep -Eq '^all +8 +0 ' "$out" && grep -Eq '^append +4144$' "$out" &&
        study 0 "$tiny" --plan --json && is_json "$out" >/dev/null && has '"runs": 8, "done": 0}'
}

has() { grep -qF -e "$1" "${2:-$out}" || { cat "${2:-$out}"; return 1; }; }

# 6 * 8 * 8 tokens of 4144 parameters, at 6.4 tokens a second: a minute a run.
plan_counts_minutes() {
    study 0 "$tiny" --plan --speed 6.4 --block parens &&
        grep -Eq '^parens +1 +6 +0 +6\.0[0-9] +0\.10$' "$out" || { cat "$out"; return 1; }
}

whole() {
    study 0 "$tiny" --out whole && lines whole 8 || return 1
    has "done: lines.jsonl and report.html are in whole" "$err" &&
        has '<svg' whole/report.html && [ -f whole/models/delta.json ] &&
        [ "$(head -n 6 whole/lines.jsonl | grep -c '"block": "parens"')" -eq 6 ] &&
        has "study    8 of 8: later/slots=4: done" "$err" || return 1
    while read -r line; do
        echo "$line" >line
        is_json line >/dev/null || return 1
    done <whole/lines.jsonl
}

# The second seed is trained at the best rate of the first one alone.
tuned() {
    for model in append delta; do
        best=$(grep "\"run\": \"parens/model=$model.*_seed=0\"" whole/lines.jsonl |
            sed 's/.*"lr": \([0-9.]*\),.*"score": \([0-9.]*\),.*/\2 \1/' | sort -g | head -n 1)
        [ "$(grep -c "model=${model}_lr=${best#* }_seed=1" whole/lines.jsonl)" -eq 1 ] &&
            [ "$(grep -c "model=${model}_lr=.*_seed=1" whole/lines.jsonl)" -eq 1 ] || return 1
    done
}

# Means, spreads and verdicts, computed again from the lines.
table() {
    study 0 "$tiny" --out whole --report && cp "$out" table || return 1
    for model in append delta; do
        grep "\"model\": \"$model\"" whole/lines.jsonl | grep parens |
            sed 's/.*"lr": \([0-9.]*\), "seed": \([0-9]*\), "score": \([0-9.]*\),.*/\1 \2 \3/' |
            awk '{ x[$1, $2] = $3; if ($2 == 0 && (best == "" || $3 < x[best, 0])) best = $1 }
                END { a = x[best, 0]; b = x[best, 1]; m = (a + b) / 2
                    s = sqrt((a - m) ^ 2 + (b - m) ^ 2)
                    printf "%.3f %.3f %.2f\n", m, s, 12.706 * s / sqrt(2) }'
    done >want
    awk '/^(append|delta) / { printf "%.3f %.3f %.2f\n", $2, $3, $4 }' table | cmp - want &&
        grep -Eq '^ +1  holds ' table && grep -Eq '^ +2  refuted ' table
}

done_is_skipped() {
    cp whole/lines.jsonl before
    study 0 "$tiny" --out whole && cmp before whole/lines.jsonl
}

# What changes is made again, and only that: the rest has the same commands.
changed_is_made_again() {
    cp -r whole changed
    sed 's/--vocab 18/--vocab 20/' "$tiny" >changed.json
    study 0 changed.json --out changed && lines changed 10
}

several_at_once() {
    study 0 "$tiny" --out jobs --jobs 3 && facts whole >a && facts jobs >b && cmp a b
}

killed() { # after its first line; the rest is made later
    "$dra" study "$tiny" --out killed --threads 1 >/dev/null 2>&1 &
    child=$!
    tries=0
    until [ -s killed/lines.jsonl ] || [ $tries -ge 200 ]; do
        tries=$((tries + 1))
        sleep 0.02
    done
    kill -9 $child 2>/dev/null
    wait $child 2>/dev/null
    printf '{"run": "parens/mod' >>killed/lines.jsonl # half a line, as after a power loss
    study 0 "$tiny" --out killed || return 1
    grep -v 'parens/mod{*$' killed/lines.jsonl | grep -v '^{"run": "parens/mod$' >rest
    mv rest killed/lines.jsonl
    facts killed >b && cmp a b
}

in_time() {
    began=$(date +%s)
    study 0 "$tiny" --scale slow --block parens --minutes 0.02 --out slow &&
        [ $(($(date +%s) - began)) -lt 20 ] && [ ! -s slow/lines.jsonl ] &&
        has "0 of 2 runs are done; the same command continues the study" "$err"
}

interrupted() {
    "$dra" study "$tiny" --scale slow --block parens --out slow --threads 1 >"$out" 2>"$err" &
    child=$!
    sleep 1
    kill -INT $child
    wait $child
    [ $? -eq 130 ] && [ ! -s slow/lines.jsonl ]
}

# A block waits for the one it needs, also where there are jobs to spare.
needs() {
    study 0 "$tiny" --out needs --block later && [ ! -e needs/lines.jsonl ] || return 1
    has "0 of 2 runs are done" "$err" && study 0 "$tiny" --out needs --jobs 8 &&
        [ "$(head -n 6 needs/lines.jsonl | grep -c '"block": "parens"')" -eq 6 ]
}

failing() { # a run that fails leaves a line; the others are made
    sed 's/--symbols 2/--symbols 99999999/' "$tiny" >failing.json
    study 1 failing.json --out failing && lines failing 8 || return 1
    [ "$(grep -c '"failed": "dra: probe copy: symbols is 99999999' failing/lines.jsonl)" -eq 2 ] ||
        { cat failing/lines.jsonl; return 1; }
    study 0 failing.json --out failing && lines failing 8 &&
        study 1 failing.json --out failing --retry && lines failing 10
}

wrong() { # wrong TEXT SED: the file with a change is refused with this text
    sed "$2" "$tiny" >wrong.json
    run 1 study wrong.json --plan --speed 1 && one_line "$err" && has "$1" "$err"
}

misplaced() {
    sed "$2" "$tiny" >wrong.json
    run 2 study wrong.json --plan --speed 1 && one_line "$err" && has "$1" "$err"
}

check "a plan" plan
check "minutes of a plan" plan_counts_minutes
check "a study" whole
check "rates are tuned" tuned
check "table and verdicts" table
check "what is done is skipped" done_is_skipped
check "what changes is made again" changed_is_made_again
check "several at once" several_at_once
check "kill -9" killed
check "minutes" in_time
check "Ctrl-C" interrupted
check "a block that needs another" needs
check "failed runs" failing
check "no JSON" wrong "wrong.json: line 3: " 's/"about"/about/'
check "an unknown key" wrong "blocks[0]: no such key: 'prioritty'; did you mean priority?" \
    's/"priority": 2/"prioritty": 2/'
check "no such value" wrong "block later: \$stepz is no axis of it and no value of scale full" \
    's/--steps $steps --batch $batch --tests 8/--steps $stepz/'
check "no such list" wrong "blocks[1].over.lr: expected a list of texts or numbers, found nothing" \
    's/"$rates"/"$rats"/'
check "no such model" wrong "blocks[0].over.model: no such model: 'gru'" \
    's/"model": \["delta"\], "slots"/"model": ["gru"], "slots"/'
check "no such tuned axis" wrong "blocks[1].tune: expected an axis of over" \
    's/"tune": "lr"/"tune": "l"/'
check "an unknown setting" wrong "mixer.memry" 's/mixer.memory=delta"\]/mixer.memry=delta"]/'
check "no way to match" wrong "expected within 3 %" \
    's/"mixer.memory=delta"\]/"mixer.memory=delta", "dim=64"]/'
check "no such need" wrong "block later: needs parns, which is no block before it" \
    's/"needs": "parens"/"needs": "parns"/'
check "a rule" wrong "claims[0].rule: expected above, at least or times, found better" \
    's/"rule": "at least"/"rule": "better"/'
check "an axis of a claim" wrong "claims[0].of: block parens has no axis 'modell'" \
    's/"of": {"model"/"of": {"modell"/'
check "no command" misplaced "block later: expected commands of dra, found 'prob'" \
    's/"probe copy/"prob copy/'
check "no option" misplaced "no such option" 's/--symbols 2/--symbls 2/'
check "no such scale" failed "scale: no such scale: 'huge'" study "$tiny" --scale huge --plan
check "no such block" misused \
    "dra study: --block: no such block in scale full: 'parnes'; did you mean parens?" \
    study "$tiny" --plan --block parnes
check "no such file" failed "nowhere.json" study nowhere.json --plan
tap_end
