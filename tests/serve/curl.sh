#!/bin/sh
# The lines with curl of docs/serve.md, as far as they speak to a server: curl.sh URL.
set -u
url=$1
here=$(dirname "$0")
. "$here/../tap.sh"
awk '/^    \$ curl/ { line = "" ; on = 1; sub(/^    \$ /, "") }
    on { sub(/^ +/, ""); on = sub(/\\$/, ""); line = line $0; if (!on) print line }' \
    "$here/../../docs/serve.md" |
    sed "s|http://localhost:8080|$url|g" >"${TMPDIR:-/tmp}/curl-lines.$$"
answers() {
    sh -c "$1 --silent --show-error --fail-with-body"
}
while read -r line; do
    check "$line" answers "$line"
done <"${TMPDIR:-/tmp}/curl-lines.$$"
rm -f "${TMPDIR:-/tmp}/curl-lines.$$"
tap_end
