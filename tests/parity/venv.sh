# shellcheck shell=sh
# What run.sh and conformance.sh share: a virtual environment with torch, which nothing replaces.
# Sets nothing but functions; `who`, `venv` and `log` are the caller's.
torch=torch==2.13.0

fail() {
    echo "$who: $*" >&2
    exit 1
}

# The first call makes it (network, about 1 GB), later ones reuse it. pip's own settings hold, for
# instance an index with the CPU build of torch, which needs no CUDA libraries.
make_venv() {
    [ "$(cat "$venv/complete" 2>/dev/null)" = "$torch" ] && return
    command -v python3 >/dev/null 2>&1 ||
        fail "python3 not found; on Debian: apt-get install python3 python3-venv"
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        fail "$(python3 --version 2>&1) is too old, 3.10 or later is needed"
    echo "setup  $venv"
    rm -rf "$venv"
    python3 -m venv "$venv" >"$log" 2>&1 ||
        fail "python3 -m venv failed, see $log; on Debian: apt-get install python3-venv"
    # torch alone first; the constraint then keeps whatever else comes from replacing it.
    echo "$torch" >"$venv/constraint.txt"
    "$venv/bin/pip" install "$torch" >"$log" 2>&1 ||
        fail "pip could not install $torch (is there a network?), see $log"
    "$venv/bin/pip" install -c "$venv/constraint.txt" numpy >>"$log" 2>&1 ||
        fail "pip could not install numpy with $torch (is there a network?), see $log"
    echo "$torch" >"$venv/complete"
}

# Packages that a script can do without, MODULE==VERSION each: it says that it is skipped.
add_packages() {
    for package; do
        module=$(echo "${package%%=*}" | tr - _)
        "$venv/bin/python" -c "import $module" 2>/dev/null ||
            "$venv/bin/pip" install -c "$venv/constraint.txt" "$package" >>"$log" 2>&1 || true
    done
}
