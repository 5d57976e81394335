#!/bin/sh
# Lists the functions of include/dra/ops.h that no test names. Prints nothing when there are none.
set -eu
cd "$(dirname "$0")/.."

# Declarations may span lines: join them, drop comments, take the name before the first bracket.
declared() {
    awk '{ text = text $0 " " }
         END {
             while (match(text, /\/\*([^*]|\*+[^*\/])*\*+\//))
                 text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
             n = split(text, part, ";")
             for (i = 1; i <= n; i++)
                 if (part[i] ~ /DRA_API/ && match(part[i], /dra_[a-z0-9_]+ *\(/)) {
                     name = substr(part[i], RSTART, RLENGTH)
                     sub(/ *\($/, "", name)
                     print name
                 }
         }' include/dra/ops.h
}

status=0
for name in $(declared); do
    grep -rqw --include='*.[ch]' --include='*.def' "$name" tests && continue
    echo "$name"
    status=1
done
exit $status
