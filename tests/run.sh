#!/bin/sh
# Runs the tests of several builds and counts them.
#   tests/run.sh LABEL=BUILD_FOLDER...        e.g. tests/run.sh float=build asan=build/asan
# BUILD_FOLDER@LEVEL, e.g. build@avx2, runs with DRA_CPU=LEVEL what computes and does not try all
# levels anyway; a level the machine does not have is skipped. BUILD_FOLDER+apart runs what computes
# on the test device (tests/apart.h): all of it with DRA_TEST_FULL, else a part that has everything
# once. BUILD_FOLDER+host runs ops, with DRA_TEST_FULL all of it, on the CUDA plugin compiled for
# the host (tests/cuda_host), BUILD_FOLDER+cuda on a GPU with the plugin in BUILD_FOLDER.
# DRA_TEST_ONLY=REGEX picks test programs by name, DRA_TEST_JOBS=N runs N at a time (default 2).
# DRA_TEST_CASE=PATTERN picks tests of a program.
#
# Counted are TAP lines of the test programs. A program that crashes, runs out of time, stops
# before its plan is done or fails without saying `not ok` is one more failure; one that prints no
# TAP lines at all is one test. The last line is always "N passed, M failed, K skipped"; the exit
# status is 1 if something failed or nothing ran.
set -u

here=$(dirname "$0")
apart_ops='matmul|attend|write_rows|wkv|delta|adamw|reduce|view|cross_entropy|embedding'
apart_part="^(graph/|session/|sequence/|ops/[a-z]+/test_($apart_ops)\$"
apart_part="$apart_part|memory/test_(loops|golden)\$|model/test_models\$"
apart_part="$apart_part|train/test_(gradients|train)\$|generate/test_generate\$)"
# Of the emulated GPU, which is slow: every kernel, but not what loops for long.
host_slow='ops/[a-z]+/test_(attend_paths|attend_rules|.*_loops)$'
# What computes nothing on a device.
host_only='abi|base|cli|data|device|docs|examples|feed|file|install|jinja|python|text'
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
: >"$scratch/counts"
: >"$scratch/names"

for pair in "$@"; do
    label=${pair%%=*}
    folder=${pair#*=}
    level=
    without='^$'
    device=
    plugins=
    only=${DRA_TEST_ONLY:-.}
    case $folder in
    *+apart)
        device=apart
        folder=${folder%+apart}
        without="^($host_only)/"
        [ -n "${DRA_TEST_ONLY:-}${DRA_TEST_FULL:-}" ] || only=$apart_part
        ;;
    *+host | *+cuda)
        device=cuda
        plugins=.
        without="^($host_only|faults|fuzz)/|cuda/test_build"
        if [ "${folder##*+}" = host ]; then
            plugins=tests/cuda_host
            without="$without|$host_slow"
            [ -n "${DRA_TEST_ONLY:-}${DRA_TEST_FULL:-}" ] || only='^(ops|session)/'
        fi
        folder=${folder%+*}
        plugins=$folder/$plugins
        ;;
    *@*)
        level=${folder#*@}
        folder=${folder%@*}
        without='^(base|cli|device|docs|install)/'
        ;;
    esac
    if [ ! -f "$folder/CTestTestfile.cmake" ]; then
        echo "failed   $label: $folder is not a build folder with tests" >>"$scratch/names"
        echo 0 1 0 >>"$scratch/counts"
        continue
    fi
    if [ -n "$level" ] && ! DRA_CPU=$level "$folder/examples/01_graph" >/dev/null 2>&1; then
        echo "skipped  $label: this machine has no $level" >>"$scratch/names"
        echo 0 0 1 >>"$scratch/counts"
        continue
    fi
    env ${level:+DRA_CPU="$level"} ${device:+DRA_TEST_DEVICE="$device"} \
        ${plugins:+DRA_PLUGIN_PATH="$(cd "$plugins" && pwd)"} \
        ctest --test-dir "$folder" -V -j "${DRA_TEST_JOBS:-2}" -R "$only" \
        -E "$without" 2>&1 |
        LC_ALL=C awk -v label="$label" -v counts="$scratch/counts" -v names="$scratch/names" \
            -f "$here/count.awk"
done

echo
sort -r "$scratch/names"
awk '{ ok += $1; bad += $2; skip += $3 }
     END { printf "%d passed, %d failed, %d skipped\n", ok, bad, skip; exit !(ok > 0 && !bad) }' \
    "$scratch/counts"
