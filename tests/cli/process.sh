# shellcheck shell=sh
# Running the command line in tests: `. tests/cli/process.sh` with its path in $dra. Streams of the
# last run are the files $out and $err, in the folder $scratch, which goes in the end.
. "$(dirname "$0")/../tap.sh"
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
out=$scratch/out
err=$scratch/err

# with_seed ARGUMENTS...: dra; where no seed is given, 0 is, so that what is drawn is the same.
with_seed() {
    case ${1:-} in
        generate | chat)
            case " $* " in
                *" --seed"* | *" -s "*) ;;
                *) verb=$1 && shift && set -- "$verb" --seed 0 "$@" ;;
            esac
            ;;
    esac
    "$dra" "$@"
}

# run STATUS ARGUMENTS...: runs dra and compares the exit status; the streams are kept in files.
run() {
    expected=$1
    shift
    status=0
    with_seed "$@" >"$out" 2>"$err" || status=$?
    [ "$status" -eq "$expected" ] && return 0
    echo "exit status: expected $expected, found $status"
    cat "$err"
    return 1
}

quiet() { # nothing in a file
    [ ! -s "$1" ] || { cat "$1"; return 1; }
}

one_line() {
    [ "$(wc -l <"$1")" -eq 1 ] || { cat "$1"; return 1; }
}

# answers ARGUMENTS...: status 0, an answer on stdout, nothing on stderr.
answers() { run 0 "$@" && [ -s "$out" ] && quiet "$err"; }

# misused TEXT ARGUMENTS...: status 2, the text as the only line on stderr, nothing on stdout.
misused() {
    text=$1
    shift
    run 2 "$@" && quiet "$out" && one_line "$err" || return 1
    [ "$(cat "$err")" = "$text" ] && return 0
    echo "expected: $text"
    echo "found:    $(cat "$err")"
    return 1
}

says() { # says TEXT ARGUMENTS...: an answer with the text in it
    text=$1
    shift
    answers "$@" && { grep -q -e "$text" "$out" || { cat "$out"; return 1; }; }
}

# failed TEXT ARGUMENTS...: status 1, one line on stderr with the text in it.
failed() {
    text=$1
    shift
    run 1 "$@" && one_line "$err" || return 1
    grep -qF -e "$text" "$err" && return 0
    echo "expected: $text"
    echo "found:    $(cat "$err")"
    return 1
}

is_json() { # a file is one JSON object
    [ "$(head -c 1 "$1")" = '{' ] && [ "$(tail -c 2 "$1")" = '}' ] || { cat "$1"; return 1; }
    if command -v python3 >/dev/null 2>&1; then python3 -m json.tool <"$1"; fi
}

# has FILE TEXT...: all texts are in it.
has() {
    file=$1
    shift
    for text; do
        grep -qF -e "$text" "$file" || { echo "$file lacks: $text"; return 1; }
    done
}
