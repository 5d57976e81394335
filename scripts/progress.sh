#!/bin/sh
# Runs a build and shows how far it is: at a terminal a percentage that changes in place, elsewhere
# a line every tenth. What is not progress, such as warnings, is passed on to stderr.
#   scripts/progress.sh LABEL COMMAND...
set -u
label=$1
shift
moves=
[ -t 1 ] && [ "${TERM:-dumb}" != dumb ] && moves=1

clear_line() { [ -z "$moves" ] || printf '\r\033[K'; }

# Reads lines such as "[ 12%] Building C object ...".
show() {
    shown=0
    while IFS= read -r line; do
        case $line in
        \[*%\]*)
            percent=${line%%%*}
            percent=${percent##*[\[ ]}
            if [ -n "$moves" ]; then
                printf '\rbuild  %s  %s %%\033[K' "$label" "$percent"
            elif [ "$((percent / 10))" -gt "$shown" ]; then
                shown=$((percent / 10))
                echo "build  $label  $percent %"
            fi
            ;;
        *)
            clear_line
            printf '%s\n' "$line" >&2
            ;;
        esac
    done
    clear_line
}

echo "build  $label"
exec 4>&1
status=$({ { "$@" 2>&1; echo $? >&3; } | show >&4; } 3>&1)
exit "$status"
