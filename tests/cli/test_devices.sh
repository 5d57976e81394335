#!/bin/sh
# Devices by name: what is listed, and what is said where one is missing.
#   test_devices.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
plugin=$(dirname "$dra")/tests/cuda_host
cd "$scratch" || exit 1
unset DRA_DEVICE DRA_PLUGIN_PATH

"$dra" init --preset dra-gru-tiny --set dim=24 --set heads=2 --set depth=1 --out m >/dev/null ||
    exit 1

cpu_is_listed() {
    answers devices && grep -q '^cpu ' "$out" && answers devices --json &&
        grep -q '"device": "cpu"' "$out"
}

limits_are_measured() {
    answers devices --limits --threads 1 &&
        grep -Eq '^cpu +[0-9.]+ +- +([0-9.]+|-)( +[0-9.]+){3} +- +-$' "$out" &&
        answers devices --limits --threads 1 --json && is_json "$out" &&
        grep -q '"limits": {"flops": [1-9].*"tf32_flops": null, .*"upload": null' "$out"
}

missing_plugin_is_named() {
    answers devices &&
        grep -q "^no GPU: device 'cuda': no libdra-cuda.so in DRA_PLUGIN_PATH" "$out" &&
        failed "device 'cuda': no libdra-cuda.so in DRA_PLUGIN_PATH, beside libdra or in " \
            forward --model m --tokens 1,2 --out o.safetensors --device cuda
}

wrong_names_are_refused() {
    for name in gpu:x cuda: cuda:-1 CUDA cuda:99999; do
        failed "device '$name': expected cpu, cuda, or cuda:NUMBER" \
            forward --model m --tokens 1,2 --out o.safetensors --device "$name" || return 1
    done
    [ ! -e o.safetensors ]
}

other_files_are_no_plugins() {
    mkdir -p bad && echo "no library" >bad/libdra-cuda.so
    DRA_PLUGIN_PATH=bad failed "device 'cuda': bad/libdra-cuda.so: " \
        forward --model m --tokens 1,2 --out o.safetensors --device cuda
}

environment_names_the_device() {
    run 0 forward --model m --tokens 1,2 --out a.safetensors --device cpu &&
        DRA_DEVICE=cpu run 0 forward --model m --tokens 1,2 --out b.safetensors &&
        cmp a.safetensors b.safetensors
}

environment_names_a_missing_one() {
    DRA_DEVICE=cuda failed "device 'cuda': no libdra-cuda.so" \
        forward --model m --tokens 1,2 --out o.safetensors
}

emulated_gpu_is_found() {
    answers devices && grep -q '^cuda:0 .*CUDA on the host, for tests' "$out" &&
        ! grep -q '^no GPU' "$out" &&
        failed "cuda:1: GPUs are numbered from 0 to 0 here" \
            forward --model m --tokens 1,2 --out o.safetensors --device cuda:1
}

# with_gpu CHECK: on the plugin compiled for the host.
with_gpu() {
    DRA_PLUGIN_PATH="/nowhere:$plugin"
    export DRA_PLUGIN_PATH
    "$@"
    found=$?
    unset DRA_PLUGIN_PATH
    return $found
}

emulated_gpu_has_limits() {
    answers devices --limits --threads 1 &&
        grep -Eq '^cuda:0( +[0-9.]+){8}$' "$out" &&
        answers devices --limits --threads 1 --json && is_json "$out" &&
        [ "$(grep -c '"upload": ' "$out")" -eq 2 ] &&
        grep -q '"device": "cuda:0".*"streaming_write": null' "$out" &&
        grep -q '"upload": [1-9].*"mapped": [1-9]' "$out"
}

bench_runs_on_it() {
    run 0 bench limits --device cuda --repeats 2 &&
        grep -q '^dra [0-9.]*, level cuda sm_[0-9]*, median of 2$' "$out" &&
        grep -q '^limits: .*; pinned memory of the host: to the GPU ' "$out" &&
        tr '\n' ' ' <"$out" | grep -Eq 'a mapped +file +to +it +[0-9.]+ +GB/s, +[0-9]+ +%' &&
        run 0 bench executor-tiny --device cuda --repeats 1 --json && is_json "$out" &&
        grep -q '"name": "executor-tiny", .*"bar": null, .*"met": null, "unit": "node"' "$out"
}

bench_profiles_it() {
    DRA_DEVICE=cuda run 0 bench executor-tiny --repeats 1 --profile &&
        grep -Eq '^  copy +1000 +[0-9.]+ +100.0 ' "$err"
}

# A case that takes more memory than there is, is named; the others are measured.
bench_goes_on() {
    run 1 bench gpt2-124m-b32 executor-tiny --device cuda --repeats 1 --json && is_json "$out" &&
        grep -q '^dra: gpt2-124m-b32: ' "$err" && [ "$(grep -c '"name": ' "$out")" -eq 1 ]
}

scaling_is_of_the_cpu() {
    misused "dra bench: scaling varies the number of CPU threads, and 'cuda sm_00' is not a \
CPU; add --device cpu" bench scaling executor-tiny --device cuda
}

# lacks WHAT LINE: the emulation lacks something, and the line says what.
lacks() {
    DRA_CUDA_HOST_LACKS=$1 DRA_PLUGIN_PATH=$plugin failed "$2" \
        forward --model m --tokens 1,2 --out o.safetensors --device cuda
}

what_is_missing_is_named() {
    lacks driver "cuda:0: no NVIDIA driver is installed" &&
        lacks newer "cuda:0: the driver is for CUDA 11.4, the plugin needs 13.0 or newer" &&
        lacks gpu "cuda:0: there is no NVIDIA GPU" &&
        lacks free "cuda:0: the GPU is busy: another process has it" &&
        lacks memory "cuda:0: too little memory is free on the GPU" && [ ! -e o.safetensors ]
}

check "the CPU is listed" cpu_is_listed
check "limits are measured" limits_are_measured
if [ -e "$(dirname "$dra")/libdra-cuda.so" ]; then
    skip "a missing plugin is named" "it is there"
else
    check "a missing plugin is named" missing_plugin_is_named
    check "the environment names a missing one" environment_names_a_missing_one
fi
check "wrong names are refused" wrong_names_are_refused
check "other files are no plugins" other_files_are_no_plugins
check "the environment names the device" environment_names_the_device
if [ -e "$plugin/libdra-cuda.so" ]; then
    check "a plugin on the path is found" with_gpu emulated_gpu_is_found
    check "what its GPU reaches" with_gpu emulated_gpu_has_limits
    check "bench runs on it" with_gpu bench_runs_on_it
    check "bench profiles it" with_gpu bench_profiles_it
    check "bench goes on after a failure" with_gpu bench_goes_on
    check "bench: scaling is of the CPU" with_gpu scaling_is_of_the_cpu
    check "a GPU that is missing or taken is named" what_is_missing_is_named
fi
tap_end
