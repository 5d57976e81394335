#!/bin/sh
# The models, states and runs of tests/data/presets load and continue bit for bit.
# model/test_presets compares their names and configs.
#   test_presets.sh PATH_OF_DRA
# Bits are those of the plain level. Where a compiler or libm gives others, the losses must be close
# and everything else must only work.
set -u
dra=$1
fixtures=$(cd "$(dirname "$0")/../data/presets" && pwd) || exit 1
. "$(dirname "$0")/../tap.sh"
. "$fixtures/kinds.sh"
DRA_CPU=ref
export DRA_CPU
where=${TMPDIR:-/tmp}
[ ! -w /dev/shm ] || where=/dev/shm # waiting for a disk would take most of the time
scratch=$(mktemp -d "$where/dra.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT

same() { diff "$fixtures/$1/expected" found; }

# The same lines, losses within a thousandth of each other.
close() {
    paste -d ' ' "$fixtures/$1/expected" found | awk '
        $1 ~ /^(generated|attentions)$/ { next }
        NF != 4 || $1 != $3 { print "lines differ:", $0; bad = 1 }
        $1 ~ /loss/ && !(($2 - $4) ^ 2 <= (0.001 * $2) ^ 2) { print; bad = 1 }
        END { exit bad }'
}

# continues KIND HOW: what follows from a fixture is what is expected, compared by HOW.
continues() {
    mkdir "$scratch/$1" && cd "$scratch/$1" || return 1
    follow "$1" >found 2>err || { cat err; return 1; }
    "$2" "$1"
}

names=$(dirname "$dra")/tests/model/test_presets
machine=$("$names" machine) || exit 1
how=same
if [ "$machine" != "$(cat "$fixtures/machine")" ]; then
    how=close
    skip "bit for bit" "arithmetic was $(cat "$fixtures/machine") and is $machine: losses are close"
fi
for kind in $kinds; do
    check "$kind continues" continues "$kind" $how
done
tap_end
