#!/bin/sh
# The CUDA plugin: every op of the CPU has a kernel in its list, and where nvcc is, its sources
# compile and hold a kernel for every op that the list claims.
#   test_build.sh PATH_OF_DRA
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
. "$here/../tap.sh"
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
cd "$root" || exit 1
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)

# names_in MACRO FILE: what the lines MACRO(name) of FILE and of functions.def, which it includes,
# stand for.
names_in() {
    { sed -n "s/^$1(\(.*\))\$/\1/p" "$2"
      sed -n 's/^DRA_UNARY([A-Z]*, [A-Z0-9_]*, \([a-z0-9_]*\), .*/\1/p' src/device/functions.def
    } | sort
}
names_in DRA_OP src/ops/ops.def >"$scratch/ops"
names_in DRA_CUDA src/device/cuda/kernels.def >"$scratch/claimed"

every_op_has_a_kernel() {
    [ -s "$scratch/ops" ] && diff "$scratch/ops" "$scratch/claimed"
}

# As a project of its own. Without cuBLASLt's header it leaves out gemm.cu, which holds no kernel of
# an op.
configures() {
    cmake -S src/device/cuda -B "$scratch/cuda" -DCMAKE_CUDA_COMPILER="$nvcc" \
        -DDRA_CUDA_ARCHITECTURES=90-real
}

has_cublas() { ! grep -q '^CUBLASLT_HEADER.*NOTFOUND' "$scratch/cuda/CMakeCache.txt"; }

compiles() {
    cmake --build "$scratch/cuda" -j "${DRA_TEST_JOBS:-2}" --target dra_cuda_objects \
        --target dra_cuda_graphs
}

objects_hold_what_is_claimed() {
    find "$scratch/cuda" -name '*.cu.o' -exec nm --defined-only {} + |
        sed -n 's/^.* dra_cuda_\([a-z0-9_]*\)$/\1/p' | sort -u |
            comm -13 - "$scratch/claimed" >"$scratch/missing"
    [ ! -s "$scratch/missing" ] || { cat "$scratch/missing"; false; }
}

check "every op has a kernel" every_op_has_a_kernel
if [ -z "$nvcc" ]; then
    skip "the plugin compiles" "no nvcc here"
else
    check "the plugin configures alone" configures
    check "the plugin compiles" compiles
    check "its objects hold what its list claims" objects_hold_what_is_claimed
    has_cublas || skip "products compile" "no cublasLt.h here"
fi
tap_end
