#!/bin/sh
# Runs each fuzzer of a build folder for some seconds.
#   scripts/fuzz.sh BUILD_FOLDER SECONDS [NAME...]     e.g. scripts/fuzz.sh build/fuzz 60 pth zip
# In a build of libFuzzer (DRA_SANITIZE=fuzzer) they search by coverage, starting with the inputs of
# tests/fuzz/corpus; what is new stays in BUILD_FOLDER/corpus for the next time. In other builds
# they mutate by themselves. What was found is told with the input or the seed that shows it again.
# As many run at a time as there are cores (JOBS). Exit status 1: something was found.
#
# Limits of libFuzzer: 10 s an input, 2 GB of memory, 1 GB by one allocation. Inputs that take more
# than a second are told and kept, but are no failure: the machine may be busy. For the same reason
# one that took more than 10 s is tried again alone.
set -u

here=$(dirname "$0")/..
folder=$1
seconds=$2
shift 2
scratch=$(mktemp -d "$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)/dra-fuzz-XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
# Sanitizers of this age lose their way when addresses are too random.
fixed=$(setarch -R true 2>/dev/null && echo setarch -R)
by_coverage=$(grep -c '^DRA_SANITIZE:STRING=fuzzer$' "$folder/CMakeCache.txt")

# search NAME: by coverage, its lines on stdout.
search() {
    log=$scratch/$1.log
    mkdir -p "$folder/corpus/$1" "$folder/found"
    $fixed "$folder/tests/fuzz/fuzz_$1" -max_total_time="$seconds" -max_len=16384 \
        -timeout=10 -report_slow_units=1 -rss_limit_mb=2048 -malloc_limit_mb=1024 \
        -print_final_stats=1 \
        -artifact_prefix="$folder/found/$1-" "$folder/corpus/$1" "$here/tests/fuzz/corpus/$1" \
        >"$log" 2>&1
    code=$?
    late=$(sed -n 's/^.*Test unit written to \(.*-timeout-.*\)$/\1/p' "$log" | tail -n 1)
    if [ -n "$late" ] && $fixed "$folder/tests/fuzz/fuzz_$1" -timeout=10 "$late" >"$log.again" 2>&1
    then
        echo "       busy: an input took more than 10 s, but not alone: $late"
        code=0
    fi
    if [ "$code" != 0 ]; then
        grep -E 'BROKEN|ERROR|SUMMARY|runtime error|/(src|cli|tests)/[^ ]*\.[ch]:' "$log" |
            head -n 40
        sed -n "s|^.*Test unit written to |reproduce: $folder/tests/fuzz/fuzz_$1 |p" "$log"
    fi
    sed -n 's/^.*Slowest unit: \([0-9]*\) s.*/       slow: \1 s/p' "$log" | tail -n 1
    sed -n 's/^stat::number_of_executed_units: */       executions: /p' "$log"
    return "$code"
}

if [ $# -eq 0 ]; then
    for program in "$folder"/tests/fuzz/fuzz_*; do
        [ -x "$program" ] || { echo "fuzz: no fuzzers in $folder/tests/fuzz" >&2; exit 1; }
        set -- "$@" "${program##*/fuzz_}"
    done
fi

# fuzz NAME: runs one, tells it as a whole when it ends, and leaves NAME.found if something was
# found.
fuzz() {
    mkdir "$scratch/$1"
    export TMPDIR="$scratch/$1"
    if [ "$by_coverage" = 1 ] && [ "$1" != graph ]; then
        search "$1"
    else
        $fixed "$folder/tests/fuzz/fuzz_$1" "$seconds" 2>&1
    fi >"$scratch/$1.told" || touch "$scratch/$1.found"
    echo "fuzz   $1, $seconds s" | cat - "$scratch/$1.told"
}

# Lane k of n takes every n-th name.
lanes=${JOBS:-$(nproc)}
lane=0
while [ "$lane" -lt "$lanes" ]; do
    (
        at=0
        for name in "$@"; do
            [ $((at % lanes)) != "$lane" ] || fuzz "$name"
            at=$((at + 1))
        done
    ) &
    lane=$((lane + 1))
done
wait
[ -z "$(find "$scratch" -maxdepth 1 -name '*.found')" ]
