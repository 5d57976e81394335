#!/bin/sh
# Includes point downwards only: a file of src/<layer> may include its own layer and those before
# it, and public headers; a public header those before it; programs see public headers only. What a
# GPU runs (*.cu, *.cuh, src/device/cuda) is the layer cuda, wherever it stands. Links too, where
# there is a build: check_links.sh.
set -eu
cd "$(dirname "$0")/.."

# Each may use the ones before it. Layers joined by = may use each other: a config says which
# format its folder has.
layers="base file text jinja data device graph ops cuda session comm sequence memory\
 model=formats train generate abi"
headers="base file text template data device comm bench graph sampler ops session sequence memory \
stack formats model train probe generate engine abi dra"
# Exceptions, "file-prefix>include", separated by blanks. An entry needs its reason next to it.
exceptions=""

status=0
folders=
for folder in include src cli examples; do
    [ ! -d "$folder" ] || folders="$folders $folder"
done

# shellcheck disable=SC2086 # a list of folders
find $folders -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort | xargs awk \
    -v layers="$layers" -v headers="$headers" -v exceptions="$exceptions" '
BEGIN {
    n = split(layers, name, " ")
    for (i = 1; i <= n; i++) {
        equals = split(name[i], equal, "=")
        for (k = 1; k <= equals; k++) layer[equal[k]] = i
    }
    n = split(headers, name, " "); for (i = 1; i <= n; i++) header[name[i]] = i
    n = split(exceptions, name, " "); for (i = 1; i <= n; i++) allowed[name[i]] = 1
}

function wrong(text) {
    printf "%s:%d: includes \"%s\": %s\n", FILENAME, FNR, target, text
    bad = 1
}

function stem(path) { sub(/^.*\//, "", path); sub(/\.[^.]*$/, "", path); return path }

function exists(path,    line, found) {
    found = (getline line < path) >= 0
    close(path)
    return found
}

function is_excepted(    entry, part) {
    for (entry in allowed) {
        split(entry, part, ">")
        if (index(FILENAME, part[1]) == 1 && part[2] == target) return 1
    }
    return 0
}

function check_public(    from, to) {
    from = stem(FILENAME); to = stem(target)
    if (target !~ /^dra\//) wrong("a public header includes only dra/ and the system")
    else if (!(from in header)) wrong("dra/" from ".h is missing in the list of headers")
    else if (!(to in header)) wrong("dra/" to ".h is missing in the list of headers")
    else if (header[to] >= header[from]) wrong("dra/" to ".h comes after dra/" from ".h")
}

# Of a path below src/.
function layer_of(path) {
    if (path ~ /\.cuh?$/ || path ~ /^device\/cuda\//) return "cuda"
    sub(/\/.*/, "", path)
    return path
}

function check_source(    from, to) {
    if (target ~ /^dra\//) return
    from = layer_of(substr(FILENAME, 5))
    to = layer_of(target)
    if (!(from in layer)) wrong("src/" from " is missing in the list of layers")
    else if (!exists("src/" target)) wrong("expected a path below src/")
    else if (!(to in layer)) wrong("not a layer")
    else if (layer[to] > layer[from]) wrong("layer " from " comes before " to)
}

function check_program(    folder, top) {
    if (target ~ /^dra\//) return
    folder = FILENAME; sub(/\/[^\/]*$/, "", folder)
    top = folder; sub(/\/.*/, "", top)
    if (!exists(folder "/" target) && !exists(top "/" target))
        wrong("programs see dra/ and their own folder")
}

/^[ \t]*#[ \t]*include[ \t]*("|<dra\/)/ {
    target = $0
    sub(/^[^"<]*["<]/, "", target); sub(/[">].*$/, "", target)
    if (is_excepted()) next
    if (FILENAME ~ /^include\//) check_public()
    else if (FILENAME ~ /^src\//) check_source()
    else check_program()
}
END { exit bad }
' || status=1

# shellcheck disable=SC2086 # a list of layers
scripts/check_links.sh "${1:-build}" $layers || status=1
exit $status
