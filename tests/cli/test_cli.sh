#!/bin/sh
# The command line as a process: exit status, and what goes to stdout and to stderr.
#   test_cli.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"

shows_overview_when_bare() { run 2 && quiet "$out" && grep -q '^usage: dra VERB' "$err"; }

version_form() { answers --version && grep -Eqx 'dra [0-9]+\.[0-9]+\.[0-9]+' "$out"; }

no_escapes() { answers "$@" && ! grep -q "$(printf '\033')" "$out"; }

# A line per op, as many as the JSON has.
same_ops_in_both_forms() {
    answers ops && lines=$(wc -l <"$out") || return 1
    answers ops --json || return 1
    names=$(grep -c '"name": ' "$out")
    [ "$names" -gt 0 ] && [ "$lines" -eq $((names + 1)) ]
}

json_is_one_object() {
    answers ops --json || return 1
    [ "$(head -c 1 "$out")" = '{' ] && [ "$(tail -c 2 "$out")" = '}' ] || return 1
    if command -v python3 >/dev/null 2>&1; then python3 -m json.tool <"$out"; fi
}

# One quick case: progress on stderr, one object with the limits and the row on stdout.
bench_measures_one_case() {
    run 0 bench executor-tiny --repeats 1 --threads 2 --json || return 1
    grep -q '^bench  executor-tiny (2 of 2)$' "$err" || { cat "$err"; return 1; }
    grep -q '"threads": 2, ' "$out" && grep -q '"limits": {"flops": [1-9]' "$out" || return 1
    [ "$(grep -c '"name": ' "$out")" -eq 1 ] || return 1
    grep -q '"name": "executor-tiny", .*"seconds": [0-9.e-]*, .*"unit": "node"' "$out" || return 1
    grep -Eq '"peer": null, .*"bar": 2, "bar_of": "us_a_node", "met": (true|false)' "$out" ||
        return 1
    if command -v python3 >/dev/null 2>&1; then python3 -m json.tool <"$out"; fi
}

bench_prints_a_table() {
    run 0 bench limits matmul-512x384x384 --repeats 1 --threads 1 || return 1
    grep -q '^limits: [0-9.]* GFLOP/s' "$out" &&
        grep -Eq '^matmul-512x384x384 .* (us|ms|s) .* (compute|memory) .* 95 peer +(yes|no|-)$' \
            "$out" && return 0
    cat "$out"
    return 1
}

notices_a_full_disk() {
    [ -c /dev/full ] || return 0
    status=0
    "$dra" "$@" >/dev/full 2>"$err" || status=$?
    [ "$status" -eq 1 ] && one_line "$err" && grep -q '^dra: stdout: cannot write' "$err"
}

notices_a_closed_stdout() {
    status=0
    "$dra" ops >&- 2>"$err" || status=$?
    [ "$status" -eq 1 ] && one_line "$err"
}

works_with_closed_stdout() {
    "$dra" forward --preset gpt2-tiny --tokens 1,2 --out "$scratch/f" >&- 2>"$err" &&
        "$dra" forward --preset gpt2-tiny --tokens 1,2 --out "$scratch/g" &&
        cmp "$scratch/f" "$scratch/g"
}

check "no verb" shows_overview_when_bare
check "--version" version_form
check "--help lists the verbs" says '^  ops ' --help
check "-h" says '^usage:' -h
check "verb --help" says '--json' ops --help
check "no escapes without a terminal" no_escapes --help
check "misspelt verb" misused "dra opss: no such verb; did you mean ops?" opss
check "unknown verb" misused "dra xyzzy: no such verb; 'dra --help' lists them" xyzzy
check "empty verb" misused "dra : no such verb; 'dra --help' lists them" ""
check "unknown option before the verb" \
    misused "dra --frobnicate: no such option; 'dra --help' lists them" --frobnicate
check "misspelt option" misused "dra ops: no such option: '--josn'; did you mean --json?" ops --josn
check "argument nobody takes" misused "dra ops: expected no further argument, found 'x'" ops x
check "ops" says '^op ' ops
check "ops --json is one object" json_is_one_object
check "the same ops in both forms" same_ops_in_both_forms
check "bench --list" says '^gpt2-small ' bench --list
check "bench: misspelt case" \
    misused "dra bench: no such case: 'sofmax'; did you mean softmax?" bench add sofmax
check "bench: unknown case" \
    misused "dra bench: no such case: 'xyzzy'; 'dra bench --list' lists them" bench xyzzy --list
check "bench: no repeats" \
    misused "dra bench: --repeats: expected a whole number from 1 to 1000, found '0'" \
    bench --repeats 0
check "bench measures one case" bench_measures_one_case
check "bench prints a table" bench_prints_a_table
check "full disk: ops" notices_a_full_disk ops
check "full disk: --help" notices_a_full_disk --help
check "full disk: --version" notices_a_full_disk --version
check "closed stdout" notices_a_closed_stdout
check "closed stdout, nothing to print" works_with_closed_stdout
tap_end
