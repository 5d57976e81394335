#!/bin/sh
# The whole suite of the Python package, called by `make test-python`: the wheel in an environment
# of its own with torch and transformers, under -X dev (network, about 1 GB the first time; pip has
# its own settings).
#   tests/python/full.sh BUILD
# DRA_PYTHON names an environment that has torch and NumPy instead; the package is then BUILD's.
set -eu
cd "$(dirname "$0")/../.."
build=$(cd "$1" && pwd)
torch=torch==2.13.0
transformers=transformers==5.22.2
venv=$build/python-venv

if [ -n "${DRA_PYTHON:-}" ]; then
    exec env PYTHONPATH="$build/python" DRA_COMMAND="$build/dra" "$DRA_PYTHON" -X dev \
        tests/python/run.py
fi
if [ ! -x "$venv/bin/python" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q "$torch"
    echo "$torch" >"$venv/constraint"
    "$venv/bin/pip" install -q -c "$venv/constraint" numpy "$transformers"
fi
"$venv/bin/pip" install -q --force-reinstall --no-deps "$build"/wheel/dist/dra-*.whl
exec env DRA_COMMAND="$venv/bin/dra" "$venv/bin/python" -X dev tests/python/run.py
