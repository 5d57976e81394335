#!/bin/sh
# The documentation does what it says: every command in README.md, docs/ and `dra VERB --help` runs,
# every name and link in it exists.
#   test_docs.sh PATH_OF_DRA
#
# A command is a line "    $ COMMAND". Pages run one by one, each in its own copy of what
# prepare.sh makes. Long runs are cut short by the file `limits`, in no other way; make and ./run
# only look their targets up.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/../tap.sh"
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
cd "$root" || exit 1
pages=$(find README.md docs -name '*.md' | sort)

DRA_REAL=$1 DRA_LIMITS=$here/limits DRA_MAKEFILE=$root/Makefile DRA_EXAMPLE_FAST=1
export DRA_REAL DRA_LIMITS DRA_MAKEFILE DRA_EXAMPLE_FAST
mkdir "$scratch/bin" "$scratch/help" "$scratch/given"
ln -s "$here/dra.sh" "$scratch/bin/dra"
ln -s "$here/make.sh" "$scratch/bin/make"
PATH=$scratch/bin:$PATH
verbs=$(dra --help | sed -n '/^Make$/,/^Options$/s/^  \([a-z][a-z-]*\)  .*/\1/p')
for verb in $verbs; do dra help "$verb" >"$scratch/help/$verb"; done
dra --help >"$scratch/help/dra"

# ---- commands ------------------------------------------------------------------------------------

# What every page finds: texts and models, and the program where a build puts it.
given() {
    cd "$scratch/given" || return 1
    (. "$here/prepare.sh") || return 1
    mkdir -p build docs
    ln -s "$here/dra.sh" build/dra
    ln -s "$(dirname "$DRA_REAL")/examples" build/examples
    ln -s "$root/studies" studies
}

commands_run() { # commands_run FILE: one after the other; what came before the failure is shown
    awk -f "$here/commands.awk" "$1" >"$scratch/commands.sh"
    rm -rf "$scratch/page" && cp -a "$scratch/given" "$scratch/page" && cd "$scratch/page" &&
        sh -eu "$scratch/commands.sh" </dev/null >"$scratch/said" 2>&1 && return 0
    tail -n 20 "$scratch/said"
    return 1
}

# Lines of code that look like commands but have no dollar are tried by nobody.
no_other_commands() {
    ! grep -nE '^    +(build/|dra [a-z]|make |\./|cmake |DRA_[A-Z]+=)' "$1" &&
        ! grep -nE '^(```|~~~)(sh|bash|console|shell)' "$1"
}

# Limits make all runs alike, so they would hide that a run cannot go on with other settings, but
# for more steps.
resumes_as_it_began() { ! grep -nE '\$ .*dra train .*--resume.* --(batch|context)' "$1"; }

# ---- C -------------------------------------------------------------------------------------------

flat() { sed 's/^ *//; s/ *$//' "$@" | tr '\n' '\001'; } # one line, without indentation

is_an_excerpt() { # is_an_excerpt BLOCK: of an example or a test
    flat "$1" >"$scratch/flat"
    for source in examples/*.c tests/*/*.c tests/*/*/*.c; do
        if flat "$source" | grep -qFf "$scratch/flat"; then return 0; fi
    done
    cat "$1"
    return 1
}

code_is_real() {
    rm -f "$scratch"/block.*
    awk -v to="$scratch/block." '
        /^```c$/ { inside = 1; n++; next }
        /^```/ { inside = 0 }
        inside { print >(to n) }' "$1"
    for block in "$scratch"/block.*; do
        [ ! -e "$block" ] || is_an_excerpt "$block" || return 1
    done
}

# ---- names ---------------------------------------------------------------------------------------

# What stands between backquotes in running text, one a line.
quoted() {
    awk '/^```/ { code = !code } code || /^    / { print ""; next } { print }' "$1" |
        tr '\n' ' ' | grep -o '`[^`]*`' | tr -d '`'
}

is_verb() { [ -e "$scratch/help/$1" ] || { echo "no such verb: $1"; return 1; }; }

# `dra VERB --option`: both are there.
verbs_exist() {
    quoted "$1" | sed -n 's/^\(build\/\)\{0,1\}dra \([a-z]\)/\2/p' | sort -u >"$scratch/calls"
    while read -r verb options; do
        is_verb "$verb" || return 1
        for option in $(printf '%s\n' "$options" | grep -oE -- '--[a-z][a-z0-9-]*'); do
            grep -qE -- "^ +(-[a-zA-Z], )?--(\[no-\])?${option#--}( |\$)" "$scratch/help/$verb" ||
                { echo "dra $verb has no $option"; return 1; }
        done
    done <"$scratch/calls"
}

# `make TARGET`, `./run TARGET`: the same for targets.
targets_exist() {
    quoted "$1" | sed -nE 's/^(make|\.\/run) ([a-z].*)/\2/p' >"$scratch/targets"
    while read -r target rest; do make "$target" || return 1; done <"$scratch/targets"
}

is_there() { [ -e "$1" ] || [ -e "$1.c" ] || [ -e "$1.sh" ]; } # tests are named without their end

# Links lead somewhere; so do names of pages, sources and tests between backquotes.
folders='docs|src|cli|tests|examples|scripts|include|presets'
links_exist() {
    folder=$(dirname "$1")
    for link in $(grep -oE '\]\([^)]*\)' "$1" | sed 's/^](//; s/)$//; s/#.*//; /^https*:/d'); do
        [ -e "$folder/$link" ] || { echo "leads nowhere: $link"; return 1; }
    done
    for name in $(quoted "$1" | grep -E "^[A-Za-z0-9_./-]+\$" | grep -E "\.md\$|^($folders)/"); do
        is_there "$name" || is_there "docs/$name" || is_there "$folder/$name" ||
            is_there "tests/$name" || { echo "not there: $name"; return 1; }
    done
}

# Titles of docs/verbs/ are the verbs, all of them; the index links every page.
verbs_have_pages() {
    for page in docs/verbs/*.md; do head -n 1 "$page"; done |
        tr -d '#,' | tr -s ' ' '\n' | grep . | sort >"$scratch/titles"
    printf '%s\n' "$verbs" | sort | diff - "$scratch/titles" || return 1
    for page in docs/verbs/*.md; do
        grep -qF "(verbs/$(basename "$page"))" docs/verbs.md ||
            { echo "docs/verbs.md has no link to $page"; return 1; }
    done
}

# A page with one fault of each kind: what looks for them finds them.
faults_are_found() {
    page=$scratch/faulty.md
    for fault in 'commands_run:    $ dra info --model nowhere' 'no_other_commands:    dra presets' \
        'resumes_as_it_began:    $ dra train --resume --out run --batch 9' \
        'verbs_exist:`dra trian`' 'verbs_exist:`dra train --stepz 3`' \
        'targets_exist:`make nothing`' 'links_exist:[a page](nowhere.md)' \
        'links_exist:`docs/nowhere.md`' \
        'commands_run:    $ make nothing' 'commands_run:    $ ./run nothing'; do
        printf '%s\n' "# Faulty" "${fault#*:}" >"$page"
        if (${fault%%:*} "$page") >/dev/null 2>&1; then echo "not found: $fault"; return 1; fi
    done
    printf '%s\n' '```c' 'int nowhere_to_be_found;' '```' >"$page"
    ! code_is_real "$page" >/dev/null
}

# ---- all pages -----------------------------------------------------------------------------------

check "what pages take for granted" given
[ "$tap_bad" -eq 0 ] || { tap_end; exit 1; }
check "faults are found" faults_are_found
run_commands() { # run_commands NAME FILE: what a page calls and is not installed is a skip
    if ! grep -q '^ *\$ ' "$2"; then return; fi
    if grep -q '^ *\$ curl ' "$2" && ! command -v curl >/dev/null; then
        skip "$1: commands run" "no curl"
    else
        check "$1: commands run" commands_run "$2"
    fi
}

for page in $pages; do
    run_commands "$page" "$page"
    check "$page: no other commands" no_other_commands "$page"
    check "$page: resumes as it began" resumes_as_it_began "$page"
    check "$page: C is real" code_is_real "$page"
    check "$page: verbs and options exist" verbs_exist "$page"
    check "$page: targets exist" targets_exist "$page"
    check "$page: links lead somewhere" links_exist "$page"
done
for verb in $verbs dra; do
    run_commands "help $verb" "$scratch/help/$verb"
done
check "every verb has a page" verbs_have_pages
tap_end
