#!/bin/sh
# Runs tests on a GPU under compute-sanitizer: bad addresses, races in shared memory, memory that
# nobody wrote, barriers that not all threads reach.
#   scripts/sanitize_cuda.sh BUILD_FOLDER [TEST...]   e.g. ... build ops/recurrent/test_wkv
# TOOLS="memcheck racecheck" picks tools, DRA_TEST_CASE='*wide*' tests of each program by name:
# racecheck takes minutes for whole ones. Exit status 1: something was found.
set -u
folder=$1
shift
[ $# -gt 0 ] || set -- ops/reduce/test_softmax ops/norm/test_norm ops/reduce/test_reduce \
    ops/products/test_matmul ops/movement/test_embedding ops/movement/test_gather \
    ops/movement/test_write_rows ops/attention/test_attend ops/recurrent/test_ema \
    ops/recurrent/test_wkv ops/recurrent/test_gru ops/chunked/test_moment ops/chunked/test_delta \
    ops/chunked/test_slots ops/sampling/test_sample
export DRA_TEST_DEVICE=cuda DRA_PLUGIN_PATH="$folder" CMOCKA_MESSAGE_OUTPUT=TAP
bad=0
for tool in ${TOOLS:-memcheck racecheck initcheck synccheck}; do
    for test in "$@"; do
        log=$(compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 5 \
            "$folder/tests/$test" 2>&1)
        code=$?
        echo "$tool $test: $(echo "$log" | sed -n 's/^=* *[A-Z]* SUMMARY: //p' | tail -n 1)," \
            "$(echo "$log" | grep -c '^ok') tests passed"
        [ "$code" = 0 ] && continue
        bad=1
        echo "$log" | grep -E '^=|^not ok|^# ' | head -n 30
    done
done
exit "$bad"
