#!/bin/sh
# Stands for `make` and `./run` while commands of the documentation run: targets must exist.
for target in "$@"; do
    case $target in
    *=*) ;;
    *) grep -q "^$target:" "$DRA_MAKEFILE" || { echo "no target $target"; exit 1; } ;;
    esac
done
