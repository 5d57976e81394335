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

sed -n 's/^DRA_OP(\(.*\))$/\1/p' src/ops/ops.def | sort >"$scratch/ops"
sed -n 's/^DRA_CUDA(\(.*\))$/\1/p' src/cuda/kernels.def | sort >"$scratch/claimed"

every_op_has_a_kernel() {
    [ -s "$scratch/ops" ] && diff "$scratch/ops" "$scratch/claimed"
}

# Without cuBLASLt's header, gemm.cu cannot be compiled; it holds no kernel of an op.
has_cublas() {
    echo '#include <cublasLt.h>' >"$scratch/cublas.cu"
    "$nvcc" -c "$scratch/cublas.cu" -o "$scratch/cublas.o" 2>/dev/null
}

compiles() {
    CUDA_ARCH=90 CUDA_OBJECTS_ONLY="$1" scripts/cuda.sh "$scratch/cuda" "$nvcc"
}

objects_hold_what_is_claimed() {
    nm --defined-only "$scratch"/cuda/objects/*.cu.o |
        sed -n 's/^.* dra_cuda_\([a-z0-9_]*\)$/\1/p' | sort -u |
            comm -13 - "$scratch/claimed" >"$scratch/missing"
    [ ! -s "$scratch/missing" ] || { cat "$scratch/missing"; false; }
}

check "every op has a kernel" every_op_has_a_kernel
if [ -z "$nvcc" ]; then
    skip "the plugin compiles" "no nvcc here"
elif has_cublas; then
    check "the plugin compiles" compiles ""
    check "its objects hold what its list claims" objects_hold_what_is_claimed
else
    check "the plugin compiles, without products" compiles "without gemm.cu"
    check "its objects hold what its list claims" objects_hold_what_is_claimed
    skip "products compile" "no cublasLt.h here"
fi
tap_end
