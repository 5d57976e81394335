#!/bin/sh
# Builds the CUDA plugin, libdra-cuda.so.
#   scripts/cuda.sh FOLDER [NVCC]        e.g. scripts/cuda.sh build/cuda
# Only what changed is compiled again. It has machine code for compute capability 8.0 and 9.0, and
# PTX that the driver translates for newer ones. CUDA_ARCH="90" picks others.
# CUDA_OBJECTS_ONLY="without NAME": compiles all sources but that one and does not link, for tests
# where a library is missing.
set -eu

cd "$(dirname "$0")/.."
folder=$1
nvcc=${2:-nvcc}
jobs=${JOBS:-$(nproc)}
shared="src/base/error.c src/base/letter.c src/base/shape.c src/device/kernel.c
src/device/array.c"
codes=
for arch in ${CUDA_ARCH:-80 90}; do
    codes="$codes -gencode arch=compute_$arch,code=sm_$arch"
done
codes="$codes -gencode arch=compute_${arch},code=compute_${arch}"
flags="-std=c++17 -O3 --fmad=true -Xcompiler -fPIC,-fvisibility=hidden"
flags="$flags -Isrc -Iinclude ${CUDA_FLAGS:-}"

if [ -z "${CUDA_OBJECTS_ONLY:-}${3:-}" ] &&
    ! echo '#include <cublasLt.h>' | $nvcc ${CUDA_FLAGS:-} -x cu -E - >/dev/null 2>&1; then
    echo "cuda   no cublasLt.h: install cuBLAS with its headers (NVIDIA's libcublas-dev)," \
        "or say where it is by CUDA_FLAGS=-IFOLDER and CUDA_LIBS='-LFOLDER -lcublasLt'" >&2
    exit 1
fi
mkdir -p "$folder/objects"
newest=$(ls -t src/cuda/*.h src/cuda/*.def src/ops/*.h src/graph/pointwise.h src/device/*.h \
    src/base/*.h include/dra/*.h scripts/cuda.sh | head -n 1)

# compile SOURCE: one object, unless it is newer than its source and all headers.
compile() {
    object=$folder/objects/$(basename "$1").o
    [ ! -f "$object" ] || [ "$object" -ot "$1" ] || [ "$object" -ot "$newest" ] || return 0
    echo "nvcc   $1"
    case $1 in
    */graphs.cu) # calls CUDA from the GPU
        $nvcc $flags $codes -rdc=true -c "$1" -o "$object.new" ;;
    *.cu) $nvcc $flags $codes -c "$1" -o "$object.new" ;;
    *) ${CC:-cc} -std=c17 -O2 -fPIC -fvisibility=hidden -D_POSIX_C_SOURCE=200809L \
        -D_DEFAULT_SOURCE -Isrc -Iinclude -c "$1" -o "$object.new" ;;
    esac
    mv "$object.new" "$object"
}

if [ "${3:-}" ]; then # one of several that run at a time
    compile "$3"
    exit
fi
skipped=${CUDA_OBJECTS_ONLY:-}
ls src/cuda/*.cu $shared | tr ' ' '\n' | grep -v "/${skipped#without }\$" |
    xargs -P "$jobs" -I{} "$0" "$folder" "$nvcc" {}
[ -z "$skipped" ] || exit 0
$nvcc -shared $codes -Xlinker --exclude-libs,ALL -o "$folder/libdra-cuda.so.new" \
    "$folder"/objects/*.o ${CUDA_LIBS:--lcublasLt} -lcudadevrt -lpthread
mv "$folder/libdra-cuda.so.new" "$folder/libdra-cuda.so"
echo "$folder/libdra-cuda.so"
