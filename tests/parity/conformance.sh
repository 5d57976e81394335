#!/bin/sh
# Prints the table of docs/conformance.md: families x ways to read a text x engines, by
# conformance.py. Called by `make conformance`, which has made build/ before. Arguments are
# families.
#
# In a virtual environment of its own, as make parity has one. llama-cpp-python is compiled by pip,
# which takes a quarter of an hour once and is left out where it fails.
set -eu
cd "$(dirname "$0")/../.."

who=conformance
venv=build/conformance-venv
log=build/conformance-pip.log
. tests/parity/venv.sh

[ -x build/dra ] || fail "build/dra not found; call this by make conformance"
make_venv
add_packages safetensors==0.8.0 transformers==5.23.0 einops==0.8.2
# Its package is called otherwise than its module.
"$venv/bin/python" -c 'import llama_cpp' 2>/dev/null ||
    "$venv/bin/pip" install -c "$venv/constraint.txt" llama-cpp-python==0.3.36 >>"$log" 2>&1 || true

export PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/python" tests/parity/conformance.py build/dra "$@"
