#!/bin/sh
# Counts functions of one file that have a name of one word, check() instead of check_config(): in
# backtraces, tags and searches those cannot be told apart. Fails if there are more than MOST, which
# is lowered when some go.
set -eu
cd "$(dirname "$0")/.."
MOST=11

find src cli -name '*.c' | sort | LC_ALL=C xargs awk -v most="$MOST" '
/^static / && !/^[^(]*[={;]/ && !/\);$/ {
    head = $0
    if (!sub(/\(.*/, "", head)) next
    sub(/^.*[ *]/, "", head)
    if (head !~ /_/ && !((FILENAME, head) in seen)) { seen[FILENAME, head] = 1; n++ }
}
END {
    printf "%d names of one word, at most %d\n", n, most
    exit n > most
}'
