#!/bin/sh
# Programs made for a release keep working with what is here now: abidiff finds no function that is
# gone and no public struct or parameter that has changed since the last release of this minor
# version. New functions are fine.
#   check_abi.sh BUILD_FOLDER [COMMIT]
# COMMIT: compare with that instead. Both libraries are compiled with debug information, which is
# where abidiff reads types, into BUILD_FOLDER/abi; that of a commit is kept there.
set -eu
cd "$(dirname "$0")/.."
folder=$1/abi
header=include/dra/base.h

skip() {
    echo "check  abi: skipped, $*"
    exit 0
}

number() { sed -n "s/^#define DRA_VERSION_$1 //p" "$header"; }

command -v abidiff >/dev/null 2>&1 || skip "no abidiff; it is in Debian's abigail-tools"
base=${2:-}
series=v$(number MAJOR).$(number MINOR)
[ -n "$base" ] || base=$(git tag --list "$series.*" --sort=-version:refname 2>/dev/null | head -n 1)
[ -n "$base" ] || skip "$series has no release yet, so nothing is promised"
commit=$(git rev-parse --verify --quiet "$base^{commit}") ||
    { echo "check_abi: $base: expected a commit" >&2 && exit 1; }

# library SOURCES FOLDER: the layout of types does not depend on optimization.
library() {
    mkdir -p "$2"
    { cmake -S "$1" -B "$2" -DCMAKE_BUILD_TYPE=Debug -DDRA_TESTS=OFF &&
        cmake --build "$2" -j "${JOBS:-1}" --target dra; } >"$2/log" 2>&1 ||
        { tail -n 20 "$2/log" >&2 && exit 1; }
}

if [ ! -e "$folder/$commit/done" ]; then
    rm -rf "${folder:?}/$commit"
    mkdir -p "$folder/$commit/source"
    git archive "$commit" | tar -x -C "$folder/$commit/source"
    library "$folder/$commit/source" "$folder/$commit/build"
    : >"$folder/$commit/done"
fi
library . "$folder/now"
# Only what public headers show counts: opaque structs may change.
abidiff --no-added-syms --leaf-changes-only \
    --headers-dir1 "$folder/$commit/source/include" --headers-dir2 include \
    "$folder/$commit/build/libdra.so" "$folder/now/libdra.so" ||
    { echo "check_abi: breaks programs made for $base: see docs/c-interface.md" >&2 && exit 1; }
echo "check  abi: as in $base"
