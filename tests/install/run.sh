#!/bin/sh
# Installs a build to a temporary prefix and uses it from outside.
#   run.sh BUILD_FOLDER VERSION           (environment: CC, CMAKE)
set -u
build=$1
version=$2
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../tap.sh"
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix
: "${CC:=cc}" "${CMAKE:=cmake}"

install_build() { "$CMAKE" --install "$build" --prefix "$prefix"; }

# Where files end up depends on the system, so they are searched for.
find_one() { find "$prefix" -name "$1" | grep .; }
library_folder() { dirname "$(find_one libdra.so)"; }

complete() {
    for file in dra.h base.h libdra.so libdra.a dra.pc draConfig.cmake draTargets.cmake \
        dra.1 dra-train.1 _dra; do
        find_one "$file" || { echo "missing: $file"; return 1; }
    done
}

# Pages that help names, and programs that pages name, are where they say.
pages() {
    doc=$prefix/share/doc/dra
    for file in README.md LICENSE docs/models.md docs/verbs/train.md examples/01_graph.c; do
        [ -s "$doc/$file" ] || { echo "missing: $doc/$file"; return 1; }
    done
    for verb in $("$prefix/bin/dra" --help |
        sed -n '/^Make$/,/^Options$/s/^  \([a-z]*\)  .*/\1/p'); do
        "$prefix/bin/dra" help "$verb"
    done | grep -o 'docs/[a-z0-9/-]*\.md' | sort -u >"$scratch/named"
    "$prefix/bin/dra" help keys | grep -o 'docs/[a-z0-9/-]*\.md' >>"$scratch/named"
    [ -s "$scratch/named" ] && while read -r page; do
        [ -s "$doc/$page" ] || { echo "missing: $page"; return 1; }
    done <"$scratch/named"
}

# They make sense without the source tree: the README begins with what is installed, its links lead
# somewhere, and no command needs a checkout before one of the installed dra.
readme() {
    doc=$prefix/share/doc/dra
    grep -m 1 '^    \$ ' "$doc/README.md" | grep -q '^    \$ dra ' || return 1
    ! grep -n -e '\./run' -e 'build/' "$doc/README.md" || return 1
    grep -o '](docs/[^)]*)' "$doc/README.md" | sed 's/^](//; s/)$//' >"$scratch/links"
    [ "$(wc -l <"$scratch/links")" -gt 10 ] && while read -r page; do
        [ -s "$doc/$page" ] || { echo "missing: $page"; return 1; }
    done <"$scratch/links"
    grep -m 1 '^    \$ ' "$doc/docs/first-hour.md" | grep -q '^    \$ dra '
}

completion() { [ -s "$prefix/share/bash-completion/completions/dra" ]; }

# Before 1.0 it has the minor version, too.
soname() {
    case $version in
    0.*) name=${version%.*} ;;
    *) name=${version%%.*} ;;
    esac
    readelf -d "$(find_one libdra.so)" | grep -F "SONAME" | grep -F "[libdra.so.$name]"
}

exports_only_dra() {
    names=$(nm -D --defined-only "$(find_one libdra.so)" | awk '{ print $3 }')
    [ -n "$names" ] && ! printf '%s\n' "$names" | grep -v '^dra_'
}

installed_command() { "$prefix/bin/dra" --version | grep -qx "dra $version"; }

package() { PKG_CONFIG_PATH=$(dirname "$(find_one dra.pc)") pkg-config "$@"; }

by_pkg_config() {
    # shellcheck disable=SC2046 # words are meant to split
    "$CC" -std=c17 -Wall -Wextra -Wpedantic -Werror -o "$scratch/use" "$here/use.c" \
        $(package --cflags --libs dra) "-Wl,-rpath,$(library_folder)" || return 1
    [ "$(package --modversion dra)" = "$version" ] && "$scratch/use" "$version"
}

# refused TEXT FLAGS...: a program compiled with other headers or flags says so and stops.
refused() {
    text=$1
    shift
    # shellcheck disable=SC2046
    "$CC" -std=c17 -o "$scratch/other" "$here/use.c" $(package --cflags dra | sed 's/-I[^ ]*//') \
        "$@" $(package --libs dra) "-Wl,-rpath,$(library_folder)" || return 1
    ! "$scratch/other" "$version" 2>"$scratch/said" && cat "$scratch/said" &&
        grep -q "$text" "$scratch/said"
}

# As of another version: a struct has grown, the minor version is a later one.
other_headers() {
    mkdir "$scratch/grown" "$scratch/later" && installed=$(dirname "$(find_one base.h)") &&
        cp -r "$installed" "$scratch/grown" && cp -r "$installed" "$scratch/later" || return 1
    sed 's/^} dra_sampler_config;/    double more;\n&/' "$installed/generate.h" \
        >"$scratch/grown/dra/generate.h"
    sed 's/^\(#define DRA_VERSION_MINOR\) .*/\1 999/' "$installed/base.h" \
        >"$scratch/later/dra/base.h"
    refused "^dra_sampler_config has [0-9]* bytes in the program and [0-9]* in" \
        "-I$scratch/grown" &&
        refused "compiled for dra [0-9]*\.999\.[0-9]*, the library is $version" "-I$scratch/later"
}

other_real() {
    flag=-DDRA_REAL_DOUBLE
    case $(package --cflags dra) in *$flag*) flag=-UDRA_REAL_DOUBLE ;; esac
    refused "^dra_real has" "-I$(dirname "$(dirname "$(find_one base.h)")")" "$flag"
}

# Without abidiff there is a line about it, and no failure.
abi_skipped() {
    mkdir "$scratch/bare" && ln -s "$(command -v dirname)" "$scratch/bare" || return 1
    shell=$(command -v sh)
    PATH=$scratch/bare "$shell" "$here/../../scripts/check_abi.sh" "$scratch" |
        grep -F "check  abi: skipped, no abidiff"
}

# The example of a memory from outside is built from outside; it writes a file where it runs.
example_by_pkg_config() {
    # shellcheck disable=SC2046
    "$CC" -std=c17 -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Werror \
        -o "$scratch/new_memory" "$here/../../examples/05_new_memory.c" \
        $(package --cflags --libs dra) "-Wl,-rpath,$(library_folder)" || return 1
    (cd "$scratch" && ./new_memory) | grep 'the same bits'
}

# --as-needed leaves out the shared library, of which nothing is missing any more.
statically() {
    # shellcheck disable=SC2046
    "$CC" -std=c17 -Wl,--as-needed -o "$scratch/use_static" "$here/use.c" \
        "$(find_one libdra.a)" $(package --cflags --libs --static dra) || return 1
    "$scratch/use_static" "$version" && ! ldd "$scratch/use_static" | grep libdra
}

by_cmake() {
    "$CMAKE" -S "$here" -B "$scratch/cmake" -DCMAKE_PREFIX_PATH="$prefix" \
        -DCMAKE_C_COMPILER="$CC" -DDRA_EXPECTED="$version" &&
        "$CMAKE" --build "$scratch/cmake" &&
        "$scratch/cmake/use_shared" "$version" && "$scratch/cmake/use_static" "$version"
}

check "install" install_build
check "all files are there" complete
check "pages that help names" pages
check "a README of what is installed" readme
check "completion for bash" completion
check "SONAME" soname
check "exports nothing but dra_*" exports_only_dra
check "installed command" installed_command
check "program through pkg-config" by_pkg_config
check "other headers are told" other_headers
check "another dra_real is told" other_real
check "the comparison with a release is skipped visibly" abi_skipped
check "a memory from outside through pkg-config" example_by_pkg_config
check "static program through pkg-config" statically
check "program through find_package" by_cmake
tap_end
