#!/bin/sh
# Compares the ops and the mixers of the float and the double build with PyTorch on the CPU: prints
# tables, exits with 1 when a row is over its tolerance; then files with the safetensors library and
# text with the tokenizers and rwkv libraries, chat templates with Jinja, models with the
# transformers, the rwkv and the x-transformers library, optimizers with torch.optim, then the speed
# of a training step, of a recurrent layer and of x-transformers' models.
# Called by `make parity`, which has made build/ before.
# Arguments go on to ops.py: a part of the names of the rows to show.
#
# The first call makes build/parity-venv, later ones reuse it, see venv.sh.
set -eu
cd "$(dirname "$0")/../.."

who=parity
safetensors=safetensors==0.8.0
tokenizers=tokenizers==0.23.3
transformers=transformers==5.22.2
peft=peft==0.21.2
rwkv=rwkv==0.8.32
x_transformers=x-transformers==2.1.37
x_transformers_newer="x-transformers==2.26.4 torch-einops-utils==0.2.0"
x_transformers_resi_dual=x-transformers==1.44.8
venv=build/parity-venv
log=build/parity-pip.log

. tests/parity/venv.sh

[ -f build/libdra.so ] || fail "build/libdra.so not found; call this by make parity"
make_venv
# Small and not needed by the rest: where pip cannot get one, its script says that it is skipped.
add_packages "$safetensors" "$tokenizers" "$transformers" "$peft" "$rwkv"

# x-transformers in three releases: one as usual, two in folders of their own, without what they
# need, which the first has brought. (Its module has another name than its package.)
x_folder() {
    [ -d "$venv/x-transformers/$1" ] && return
    folder=$1
    shift
    "$venv/bin/pip" install --no-deps --target "$venv/x-transformers/$folder" "$@" >>"$log" 2>&1 ||
        rm -rf "$venv/x-transformers/$folder"
}
"$venv/bin/python" -c "import x_transformers" 2>/dev/null ||
    "$venv/bin/pip" install -c "$venv/constraint.txt" "$x_transformers" >>"$log" 2>&1 || true
# shellcheck disable=SC2086 # two packages
x_folder newer $x_transformers_newer
x_folder resi-dual "$x_transformers_resi_dual"

# As build-double of the Makefile, but only the library and the command line.
echo "build  build/double"
# shellcheck disable=SC2086 # a list of options
cmake -S . -B build/double --log-level=WARNING -DCMAKE_RULE_MESSAGES=OFF \
    -DCMAKE_TARGET_MESSAGES=OFF -DDRA_DOUBLE=ON ${CMAKE_OPTIONS:-} >/dev/null
MAKEFLAGS='' cmake --build build/double -j "${JOBS:-$(getconf _NPROCESSORS_ONLN)}" \
    --target dra_cli -- --no-print-directory

export PYTHONDONTWRITEBYTECODE=1
libraries="build/libdra.so build/double/libdra.so"
python=$venv/bin/python
# shellcheck disable=SC2086 # two words
"$python" tests/parity/ops.py $libraries "$@"
[ $# -eq 0 ] || exit 0
# shellcheck disable=SC2086
"$python" tests/parity/memories.py $libraries
# shellcheck disable=SC2086
"$python" tests/parity/files.py $libraries
"$python" tests/parity/text.py build/libdra.so
"$python" tests/parity/world.py build/libdra.so
"$python" tests/parity/templates.py build/libdra.so
"$python" tests/parity/hf.py build/dra
"$python" tests/parity/llama_models.py build/dra build/double/dra
"$python" tests/parity/lora.py build/dra
"$python" tests/parity/fla_models.py build/dra build/double/dra
"$python" tests/parity/rwkv_models.py build/dra
"$python" tests/parity/x_transformers.py build/dra build/double/dra
"$python" tests/parity/x_options.py build/libdra.so build/double/dra
"$python" tests/parity/optimizers.py build/double/dra
"$python" tests/parity/train.py build/dra
"$python" tests/parity/layer.py build/libdra.so
"$python" tests/parity/x_speed.py build/dra
