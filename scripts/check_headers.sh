#!/bin/sh
# Every public header compiles alone, as C17 and as C++17, for both kinds of dra_real.
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
exit $status
