#!/bin/sh
# Links point downwards only, as includes do: no object of src/<layer> needs a symbol of ours that
# only objects of later layers define. Includes do not show this: the declaration may stand in the
# lower layer's own header.
# usage: check_links.sh BUILD_FOLDER LAYER...   (each layer may use the ones before it; A=B: equals)
set -eu
cd "$(dirname "$0")/.."
folder=$1/CMakeFiles
shift

# Exceptions, "layer>symbol". The gradient of a graph and the regions are built from these few ops:
# sums of what comes back, zeros, parts of arrays; the planner puts copies in between, fusing makes
# pointwise instructions and looks through concats, and bf16 is stored by casts.
exceptions="graph>dra_add graph>dra_broadcast graph>dra_number graph>dra_concat graph>dra_reshape\
 graph>dra_slice graph>dra_pad graph>dra_op_copy graph>dra_op_pointwise graph>dra_op_concat\
 graph>dra_op_pad graph>dra_op_cast graph>dra_op_add"

if ! ls "$folder"/dra_*.dir/src >/dev/null 2>&1; then
    echo "check  links skipped: no objects in $folder"
    exit 0
fi

# Lines of "layer source kind symbol"; kind U: needed, else defined. Objects of sources that are
# gone stay in the folder.
for root in "$folder"/dra_*.dir/src; do
    (cd "$root" && find . -name '*.c.o') | while read -r object; do
        source=${object#./}
        source=src/${source%.o}
        layer=${source#src/}
        layer=${layer%%/*}
        [ ! -f "$source" ] ||
            nm -gP "$root/$object" | sed "s|^\([^ ]*\) \(.\).*|$layer $source \2 \1|"
    done
done | awk -v layers="$*" -v exceptions="$exceptions" '
BEGIN {
    n = split(layers, name, " ")
    for (i = 1; i <= n; i++) {
        equals = split(name[i], equal, "=")
        for (k = 1; k <= equals; k++) rank[equal[k]] = i
    }
    n = split(exceptions, name, " "); for (i = 1; i <= n; i++) allowed[name[i]] = 1
}
$4 !~ /^dra_/ { next }
$3 == "U" { needs[++count] = $0; next }
!($4 in lowest) || rank[$1] < rank[lowest[$4]] { lowest[$4] = $1 }
END {
    for (i = 1; i <= count; i++) {
        split(needs[i], part, " ")
        to = lowest[part[4]]
        if (to == "" || rank[to] <= rank[part[1]] || (part[1] ">" part[4]) in allowed) continue
        printf "%s: needs %s, which only layer %s defines\n", part[2], part[4], to
        bad = 1
    }
    exit bad
}'
