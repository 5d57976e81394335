#!/bin/sh
# Patterns that do not belong: calls a library must not make, untidy text, machine paths.
# Prints file:line: reason for each and exits with 1; long files are only warned about.
set -eu
cd "$(dirname "$0")/.."

find . \( -path ./build -o -path ./.git -o -path ./tests/data \) -prune -o -type f \
    \( -name '*.[ch]' -o -name '*.def' -o -name '*.cu' -o -name '*.cuh' -o -name '*.sh' \
    -o -name '*.awk' -o -name '*.md' -o -name '*.cmake' -o -name '*.in' -o -name 'CMakeLists.txt' \
    -o -name Makefile -o -name run -o -path '*/python/*.py' \) -print | sort | LC_ALL=C xargs awk '
function wrong(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; bad = 1 }

function calls(name) { return code ~ ("(^|[^A-Za-z0-9_])(" name ")[ \t]*\\(") }

# Bytes after the first of a UTF-8 letter take no column.
function columns(text) { gsub(/[\200-\277]/, "", text); return length(text) }

function end_of_file() {
    if (is_c && last > 600) printf "%s: warning: %d lines; split at 600\n", previous, last
}

# Code without text in quotes and comments; a comment over several lines starts with " *".
function strip(text) {
    gsub(/\\./, "", text)
    gsub(/"[^"]*"/, "\"\"", text)
    gsub(/\/\*([^*]|\*[^\/])*\*\//, "", text)
    sub(/\/[*\/].*$/, "", text)
    if (text ~ /^ *\* /) text = ""
    return text
}

function check_text() {
    if ($0 ~ /[ \t]$/) wrong("blanks at the end of the line")
    if ($0 ~ /\t/ && FILENAME !~ /Makefile$/) wrong("tab")
    if ($0 ~ /\/(work|root|home)\//) wrong("path of one machine")
    if (FILENAME !~ /\.md$/ && columns($0) > 100) wrong("longer than 100 columns")
}

function check_todo() {
    if ($0 ~ /(FIXME|XXX|HACK)/) wrong("say what is wrong and when it can be done: TODO when ...")
    if ($0 ~ /TODO/ && $0 !~ /TODO (when|once|if|after) /)
        wrong("a TODO names its condition: TODO when ...")
}

function check_library() {
    if (calls("exit|_exit|_Exit|quick_exit|abort")) wrong("the library never ends the process")
    if (calls("printf|vprintf|puts|putchar|perror") || code ~ /(^|[^A-Za-z0-9_])std(out|err)[^a-z]/)
        wrong("the library never prints")
    if (calls("signal|sigaction")) wrong("the library sets no signal handlers")
}

# JSON is made by file/json_make.c, which forgets no failure, and read by file/json.c, which tells
# want of memory from wrong texts.
function check_json() {
    if (FILENAME ~ /(file\/json(_make)?|cli\/serve\/json)\.c$/) return
    if (calls("json_(object|array|stringn?(_nocheck)?|integer|real|v?pack(_ex)?|v?sprintf)") ||
        calls("json_(object_(set|update|del)|array_(set|append|insert|extend))[a-z_]*") ||
        calls("json_(string|integer|real)_set[a-z_]*|json_(deep_)?copy|json_dump[a-z]*"))
        wrong("JSON is made with file/json_make.h")
    if (calls("json_load[a-z_]*")) wrong("JSON is read with file/json.h")
}

# Streams that lose no text when memory fails, and repeat what a signal interrupts: file/stream.c.
function check_streams() {
    if (calls("open_memstream")) wrong("it loses text: dra_stream_memory()")
    if (calls("fopen|fdopen"))
        wrong("it repeats nothing that is interrupted: dra_stream_open(), dra_file_writer")
}

function check_c() {
    if (calls("v?sprintf|strn?cpy|strn?cat|gets|ato[ilf]|s?scanf|alloca"))
        wrong("unbounded or unchecked call")
    if (calls("rand|srand|random|strtok")) wrong("hidden global state")
}

FNR == 1 { end_of_file(); previous = FILENAME; is_c = FILENAME ~ /\.(c|h|cuh?)$/ }
{
    last = FNR
    check_text()
    if (is_c || FILENAME ~ /\.def$/) {
        code = strip($0)
        check_todo()
        check_c()
        if (FILENAME ~ /^\.\/(src|include)\//) check_library()
        if (FILENAME ~ /^\.\/(src|cli)\//) check_json()
        if (FILENAME ~ /^\.\/(src|cli)\//) check_streams()
        if (FILENAME ~ /ops\/attrs\.h$/ && code ~ /\*/)
            wrong("attributes are plain data: another device cannot follow a pointer")
    }
    if (FILENAME !~ /\.(md|sh)$/ && $0 ~ /f(ast-math|unsafe-math)/)
        wrong("it makes NaN checks lie")
}
END { end_of_file(); exit bad }
'
