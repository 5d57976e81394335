#!/bin/sh
# The first hour as people see it: all commands of docs/first-hour.md run at a terminal of 80 x 24,
# and what is on the screen afterwards is what the page shows below the command.
#   test_first_hour.sh PATH_OF_DRA
#
# A line "..." of the page stands for any lines. Numbers, their units and the marks of curves and
# bars may differ, blanks too. Runs are cut short by the file `limits`. With SHOW=FILE the screens
# are written to that file, to renew the page; LIMITS= then runs everything at full length, with the
# text BOOK.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
page=$root/docs/first-hour.md
. "$here/../tap.sh"

for need in "command -v tmux" has_terminal; do
    $need >/dev/null && continue
    skip "the screens of the first hour" "no tmux, or no pseudo terminals"
    tap_end
    exit
done

scratch=$(mktemp -d) || exit 1
TMUX_TMPDIR=$scratch # a server of its own
export TMUX_TMPDIR
trap 'tmux kill-server 2>/dev/null; rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT PIPE TERM
LC_ALL=C.UTF-8 DRA_REAL=$1 DRA_LIMITS=$here/limits DRA_MAKEFILE=$root/Makefile
export LC_ALL DRA_REAL DRA_LIMITS DRA_MAKEFILE
unset NO_COLOR TMUX
# A server without sessions ends, while the next command may already be talking to it.
tmux -f /dev/null new-session -d -s keep "sleep 3600"
mkdir "$scratch/bin" "$scratch/page"
ln -s "$here/dra.sh" "$scratch/bin/dra"
ln -s "$here/make.sh" "$scratch/bin/make"
PATH=$scratch/bin:$PATH

# One file for each command, in order, and one for what the page shows below it.
split_page() {
    awk -v to="$scratch/" '
        function number() { return sprintf("%03d", n) }
        /^    / {
            text = substr($0, 5)
            if (text ~ /^\$ /) {
                n++
                text = substr(text, 3)
                sub(/^\.\/run /, "make ", text)
                print text >(to number() ".command")
            } else if (n && inside) print text >(to number() ".shown")
            inside = 1
            next
        }
        { inside = 0 }' "$page"
}

# at_terminal COMMAND_FILE: its last screen goes to the file `screen`.
at_terminal() {
    cat >"$scratch/step.sh" <<STEP
printf '\$ %s\n' "\$(cat '$1')"
sh -c "\$(cat '$1')"
echo \$? >'$scratch/status'
tmux wait-for -S over
sleep 600
STEP
    (cd "$scratch/page" &&
        tmux -f /dev/null new-session -d -s hour -x 80 -y 24 "sh '$scratch/step.sh'") &&
        timeout 300 tmux wait-for over && sleep 0.1 &&
        tmux capture-pane -p -t hour >"$scratch/screen"
    seen=$?
    tmux kill-session -t hour 2>/dev/null
    [ "$seen" -eq 0 ] && [ "$(cat "$scratch/status")" -eq 0 ]
}

# What may differ from one run to another is taken out.
masked() {
    LC_ALL=C sed -E 's/[0-9]+([.,:][0-9]+)*(e[-+]?[0-9]+)?/#/g
        s/# ?(k|M|G|KiB|MiB|GiB|B|bytes)([ ,)]|$)/#\2/g
        s/[\x80-\xff]//g; s/[[:space:]]+/ /g; s/^ //; s/ $//' "$1" | grep -v '^$'
}

compare() {
    masked "$1" >"$scratch/want"
    masked "$scratch/screen" >"$scratch/have"
    awk '
        function fits(w, h) { # lines of the page from w on are those of the screen from h on
            if (w == n) return h == m
            if (want[w] != "...") return h < m && want[w] == have[h] && fits(w + 1, h + 1)
            return fits(w + 1, h) || (h < m && fits(w, h + 1))
        }
        NR == FNR { want[n++] = $0; next }
        { have[m++] = $0 }
        END { exit !(fits(0, 0) || fits(0, 1)) } # the first line may be the command
        ' "$scratch/want" "$scratch/have" && return 0
    echo "the page shows, numbers aside:"
    cat "$scratch/want"
    echo "the screen has:"
    cat "$scratch/screen"
    return 1
}

step() { # step NUMBER
    at_terminal "$scratch/$1.command" || { cat "$scratch/screen"; return 1; }
    [ -z "${SHOW-}" ] || { echo "# $1" && cat "$scratch/screen"; } >>"$SHOW"
    [ ! -e "$scratch/$1.shown" ] || compare "$scratch/$1.shown"
}

prepared() { cd "$scratch/page" && (. "$here/prepare.sh") >/dev/null 2>&1; }

check "what the page takes for granted" prepared
if [ "${BOOK-}" ]; then
    cp "$BOOK" "$scratch/page/my.txt"
    tail -n 400 "$BOOK" >"$scratch/page/other.txt"
fi
[ "${LIMITS-limits}" ] || DRA_LIMITS=/dev/null
split_page
for file in "$scratch"/*.command; do
    number=$(basename "$file" .command)
    check "$(head -c 60 "$file" | tr -d '#')" step "$number"
done
tap_end
