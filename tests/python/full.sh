#!/bin/sh
# The whole suite of the Python package, called by `make test-python`: the wheel in an environment
# of its own with torch, transformers, lm-eval, x-transformers and tensorboard, under -X dev
# (network, about 1 GB the first time; pip has its own settings).
#   tests/python/full.sh BUILD
# DRA_PYTHON names an environment that has torch and NumPy instead; the package is then BUILD's.
set -eu
cd "$(dirname "$0")/../.."
build=$(cd "$1" && pwd)
torch=torch==2.13.0
others="numpy transformers==5.22.2 lm-eval==0.4.13 x-transformers==2.1.37 tensorboard tqdm"
venv=$build/python-venv
export PYTHONDONTWRITEBYTECODE=1

if [ -n "${DRA_PYTHON:-}" ]; then
    exec env PYTHONPATH="$build/python" DRA_COMMAND="$build/dra" "$DRA_PYTHON" -X dev \
        tests/python/run.py
fi
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
if [ "$(cat "$venv/installed" 2>/dev/null)" != "$torch $others" ]; then
    "$venv/bin/pip" install -q "$torch"
    echo "$torch" >"$venv/constraint"
    # shellcheck disable=SC2086 # a list
    "$venv/bin/pip" install -q -c "$venv/constraint" $others
    echo "$torch $others" >"$venv/installed"
fi
"$venv/bin/pip" install -q --force-reinstall --no-deps "$build"/wheel/dist/dra-*.whl
# Alone, as most people have it: NumPy is all that it asks for, and nothing is on the PATH.
bare=$build/wheel/bare
came=$("$bare/bin/pip" list --format=freeze | sed 's/[ =@].*//' | grep -v '^pip$\|^setuptools$' |
    sort | tr '\n' ' ')
[ "$came" = "dra numpy " ] || {
    echo "full: with the wheel came $came, expected dra and numpy" >&2
    exit 1
}
env -i HOME="$venv" PYTHONDONTWRITEBYTECODE=1 DRA_COMMAND="$bare/bin/dra" "$bare/bin/python" \
    -X dev tests/python/run.py
exec env DRA_COMMAND="$venv/bin/dra" "$venv/bin/python" -X dev tests/python/run.py
