#!/bin/sh
# Texts of studies, fetched and checked: corpus.sh NAME...   NAME: enwik8, rfc, prose.
#   enwik8  10^8 bytes of Wikipedia, from the source package minGRU-pytorch 0.2.1 of Python's index;
#           whole.{train,valid,test}: the usual 90, 5 and 5 million bytes; sample.*: some of each
#   rfc     RFCs of Debian's non-free packages, page furniture off, documents of 8 KiB and more,
#           split by families: an RFC is with those that it obsoletes
#   prose   documentation of Debian's main packages
# They are written to build/corpus (or DRA_CORPUS). Nothing of the system changes.
set -eu
to=${DRA_CORPUS:-build/corpus}
mkdir -p "$to"
to=$(cd "$to" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$to/.work

fail() {
    echo "corpus: $*" >&2
    exit 1
}

needs() { command -v "$1" >/dev/null 2>&1 || fail "$2 needs the program $1"; }

is_sum() { # is_sum PROGRAM FILE SUM
    [ "$("$1" "$2" | cut -d ' ' -f 1)" = "$3" ]
}

part() { tail -c "+$(($2 + 1))" "$1" | head -c "$3" >"$4"; } # part FILE FROM BYTES TO

enwik8() {
    needs pip3 enwik8 && needs gzip enwik8
    pip3 download --quiet --no-deps --no-binary minGRU-pytorch --dest "$work" \
        minGRU-pytorch==0.2.1 >"$work/said" 2>&1 ||
        ls "$work"/*.tar.gz >/dev/null 2>&1 ||
        fail "enwik8: the package minGRU-pytorch 0.2.1 could not be fetched: $(tail -n 1 "$work/said")"
    tar -xzOf "$work"/[mM]in[gG][rR][uU]*0.2.1.tar.gz --wildcards '*/data/enwik8.gz' |
        gzip -dc >"$work/enwik8" || fail "enwik8: the package has no data/enwik8.gz"
    is_sum md5sum "$work/enwik8" a1fa5ffddb56f4953e226637dabbb36a ||
        fail "enwik8: the checksum is wrong, expected md5 a1fa5ffddb56f4953e226637dabbb36a"
    mkdir -p "$to/enwik8"
    part "$work/enwik8" 0 90000000 "$to/enwik8/whole.train"
    part "$work/enwik8" 90000000 5000000 "$to/enwik8/whole.valid"
    part "$work/enwik8" 95000000 5000000 "$to/enwik8/whole.test"
    part "$work/enwik8" 0 2000000 "$to/enwik8/sample.train"
    part "$work/enwik8" 90000000 50000 "$to/enwik8/sample.valid"
    part "$work/enwik8" 95000000 50000 "$to/enwik8/sample.test"
}

# packages COMPONENT NAME...: unpacks Debian packages into $work/x, by lists of its own.
packages() {
    component=$1
    shift
    needs apt-get "$name" && needs dpkg-deb "$name"
    mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
        sed -nE 's/^deb (\[[^]]*\] )?([^ ]*) .*/\2/p; s/^URIs: *([^ ]*).*/\1/p' | head -n 1)
    [ -n "$mirror" ] || fail "$name: no Debian mirror is configured in /etc/apt"
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/x"
    echo "deb $mirror bookworm $component" >"$work/sources"
    set -- "$@"
    options="-o Dir::Etc::sourcelist=$work/sources -o Dir::Etc::sourceparts=-
        -o Dir::State::lists=$work/lists -o Dir::Cache=$work/cache -o APT::Sandbox::User=root"
    # shellcheck disable=SC2086 # a list of options
    apt-get $options -qq update >"$work/said" 2>&1 ||
        fail "$name: $mirror could not be read: $(tail -n 1 "$work/said")"
    # shellcheck disable=SC2086 # a list of options
    (cd "$work" && apt-get $options -qq download "$@" >"$work/said" 2>&1) ||
        fail "$name: packages could not be fetched: $(tail -n 1 "$work/said")"
    for deb in "$work"/*.deb; do dpkg-deb -x "$deb" "$work/x"; done
}

rfc() {
    needs python3 rfc
    packages non-free doc-rfc-std doc-rfc-std-proposed doc-rfc-informational \
        doc-rfc-experimental doc-rfc-fyi-bcp doc-rfc-misc doc-rfc-old-std doc-rfc-others
    mkdir -p "$to/rfc"
    python3 "$here/corpus_rfc.py" "$work/x" "$to/rfc"
}

prose() {
    needs python3 prose
    packages main linux-doc-6.1 dict-gcide anarchism python3.11-doc perl-doc postgresql-doc-15 \
        dict-foldoc fortunes dict-jargon
    mkdir -p "$to/prose"
    python3 "$here/corpus_prose.py" "$work/x" "$to/prose"
}

[ $# -gt 0 ] || set -- enwik8 rfc prose
for name; do
    case $name in
        enwik8 | rfc | prose) ;;
        *) fail "no such text: $name; expected enwik8, rfc or prose" ;;
    esac
    rm -rf "$work"
    mkdir -p "$work"
    "$name"
    rm -rf "$work"
    echo "corpus: $to/$name"
done
