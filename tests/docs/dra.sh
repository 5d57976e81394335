#!/bin/sh
# Stands for `dra` while commands of the documentation run: the program DRA_REAL, with the options
# of the file DRA_LIMITS.
limits=$(awk -v verb="${1-}" '$1 == verb { printf " %s %s", $2, $3 }' "$DRA_LIMITS")
left=$#
while [ "$left" -gt 0 ]; do
    word=$1
    shift
    left=$((left - 1))
    case " $limits " in
    *" $word "*)
        case $word in
        --*) # said by the limits, with another value
            shift
            left=$((left - 1))
            continue
            ;;
        esac
        ;;
    esac
    set -- "$@" "$word"
done
# shellcheck disable=SC2086 # a list of options
exec "$DRA_REAL" "$@" $limits
