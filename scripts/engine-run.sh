#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The runner of the engine bundle: builds llama.cpp with ggml's CUDA backend, and the example that connects it to kvmem, then moves
# sessions out of GPUs and between processes. Needs nvcc, CMake, Ninja and a C++ compiler.
#
#   ./run          builds and runs all; with two GPUs or more, prefill is on GPU 1 and decode on GPU 0 in a second table
#   ./run build    only builds; a second call continues a build that was stopped
#   ./run tables   only runs
#
# OUT       where the tables are written  (default: results)
# WORK      where it builds               (default: /tmp/kvmem-engine)
# SECONDS_FOR_BUILD   the build stops after so many seconds  (default: 450)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly out=${OUT:-results}
readonly work=${WORK:-/tmp/kvmem-engine}
readonly llama=$work/llama

export PATH=$PATH:/usr/local/cuda/bin
if [[ -d /usr/local/cuda/lib64 ]]; then
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64
fi
nixl=$here/nixl/.nixl_cu13.mesonpy.libs/libnixl_capi.so
[[ ! -e $nixl ]] || export KVMEM_NIXL_LIBRARY=$nixl

main() {
    mkdir -p "$out" "$work"
    case ${1:-all} in
    all)
        build
        tables
        ;;
    build) build ;;
    tables) tables ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
    esac
}

# The GPU's architecture, such as 90: code for other GPUs would only take time.
architecture() { nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .; }

# Sets `cublas` to options for a cuBLAS that is not part of the toolkit, but of a Python package.
find_cublas() {
    cublas=()
    local header library toolkit
    toolkit=$(dirname "$(dirname "$(command -v nvcc)")")
    [[ ! -e $toolkit/include/cublas_v2.h ]] || return 0
    header=$(find / -xdev -name cublas_v2.h -print -quit 2>/dev/null)
    library=$(find / -xdev -name 'libcublas.so.13' -print -quit 2>/dev/null)
    [[ $header && $library ]] || fail "cuBLAS was not found: ggml's CUDA backend needs its headers and library."
    echo "cuBLAS: $library"
    export CPATH=${CPATH:+$CPATH:}$(dirname "$header")
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(dirname "$library")
    cublas=("-DCUDA_cublas_LIBRARY=$library" "-DCUDA_cublasLt_LIBRARY=${library/libcublas./libcublasLt.}")
}

build() {
    local start=$SECONDS
    command -v nvcc >/dev/null || fail "nvcc was not found; add its folder to PATH."
    find_cublas
    if [[ ! -d $work/source ]]; then
        mkdir -p "$work/source.new"
        tar -xJf "$here/llama.tar.xz" -C "$work/source.new"
        mv "$work/source.new" "$work/source"
    fi
    local parts=()
    for part in COMMON TOOLS SERVER EXAMPLES TESTS APP; do parts+=("-DLLAMA_BUILD_$part=OFF"); done
    # -O1 for the host's code: the time goes into kernels. Of the flash attention kernels with vectors only those of the program's types.
    cmake -S "$work/source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DCMAKE_INSTALL_PREFIX=$llama" \
        "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG" -DGGML_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$(architecture)-real" \
        "-DGGML_CUDA_FA_QUANTS=f16-f16;q8_0-q8_0" -DGGML_CUDA_NCCL=OFF -DGGML_CUDA_COMPRESSION_MODE=none -DGGML_NATIVE=OFF \
        -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=OFF -DGGML_CPU_REPACK=OFF -DGGML_CCACHE=OFF -DLLAMA_ALL_WARNINGS=OFF \
        -DGGML_CUDA_NO_VMM=ON "${cublas[@]}" "${parts[@]}" '-DCMAKE_INSTALL_RPATH=$ORIGIN' >"$out/llama-configure.txt" 2>&1 ||
        fail "llama.cpp could not be configured:" "$(tail -n 20 "$out/llama-configure.txt")"
    timeout "${SECONDS_FOR_BUILD:-450}" cmake --build "$work/build" --target llama >"$out/llama-build.txt" 2>&1 ||
        fail "llama.cpp was not built in $((SECONDS - start)) s; './run build' continues:" "$(tail -n 5 "$out/llama-build.txt")"
    cmake --install "$work/build" >/dev/null || fail "llama.cpp could not be installed"
    cmake -S "$here/bench/engine" -B "$work/programs" -G Ninja -DCMAKE_BUILD_TYPE=Release \
        "-DCMAKE_PREFIX_PATH=$here/kvmem;$llama" >"$out/program-build.txt" 2>&1 &&
        cmake --build "$work/programs" >>"$out/program-build.txt" 2>&1 ||
        fail "the program could not be built:" "$(tail -n 20 "$out/program-build.txt")"
    echo "built in $((SECONDS - start)) s"
}

tables() {
    local gpus failed=0
    gpus=$(nvidia-smi --list-gpus | wc -l)
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
    table one-gpu --gpu=0 --prefill-gpu=0 || failed=1
    ((gpus < 2)) || table two-gpus --gpu=0 --prefill-gpu=1 || failed=1
    if [[ ${KVMEM_NIXL_LIBRARY:-} ]]; then
        table one-gpu-nixl --gpu=0 --prefill-gpu=0 --nixl=yes --model=gqa || failed=1
        ((gpus < 2)) || table two-gpus-nixl --gpu=0 --prefill-gpu=1 --nixl=yes --model=gqa || failed=1
    fi
    bench one-gpu --gpu=0 --prefill-gpu=0 || failed=1
    ((gpus < 2)) || bench two-gpus --gpu=0 --prefill-gpu=1 || failed=1
    return "$failed"
}

table() {
    local name=$1
    shift
    echo && echo "$name: $*"
    timeout 240 "$work/programs/example/llama_handover" --tokens=1000 --layers=8 --nixl=no "--directory=$work" "$@" 2>&1 |
        tee "$out/table-$name.txt"
}

# Sessions of 8,192 tokens of a model with 32 layers, 8 KV heads of 128 elements: 1 GiB.
bench() {
    local name=$1
    shift
    echo && echo "row 20, $name: $*"
    timeout 240 "$work/programs/20_engine" "--output=$out/20-engine-$name.json" --tokens=8192 --nixl=no "--directory=$work" \
        "$@" 2>&1 | tee "$out/bench-$name.txt"
}

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

main "$@"
