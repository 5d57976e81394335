#!/bin/sh
# Every public header compiles alone, as C17 and as C++17, for both kinds of dra_real; every public
# struct is in the list of dra/abi.h.
set -eu
cd "$(dirname "$0")/.."

flags="-Iinclude -fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror"
status=0
for header in include/dra/*.h; do
    for real in -UDRA_REAL_DOUBLE -DDRA_REAL_DOUBLE; do
        line="#include \"${header#include/}\""
        # shellcheck disable=SC2086 # a list of flags
        echo "$line" | ${CC:-cc} -std=c17 $flags $real -x c - || status=1
        # shellcheck disable=SC2086
        echo "$line" | ${CXX:-c++} -std=c++17 $flags $real -x c++ - || status=1
    done
done

# shellcheck disable=SC2013 # names have no blanks
for struct in $(sed -nE 's/^(typedef )?struct (dra_[a-z0-9_]+) \{.*/\2/p' include/dra/*.h); do
    grep -qF "row($struct)" include/dra/abi.h ||
        { echo "include/dra/abi.h: expected row($struct), a public struct" && status=1; }
done
exit $status
