#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The runner of the engine bundle: builds llama.cpp with ggml's CUDA backend, and the example that connects it to kvmem, then moves
# sessions out of GPUs and between processes. Needs nvcc, CMake, Ninja and a C++ compiler.
#
#   ./run          builds and runs all; with two GPUs or more, prefill is on GPU 1 and decode on GPU 0 in a second table
#   ./run build    only builds; a second call continues a build that was stopped
#   ./run tables   only runs
#
# OUT       where the tables and logs are written   (default: results)
# WORK      where it builds                         (default: /tmp/kvmem-engine)
# BACKEND   cuda, or cpu to try all of it without a GPU   (default: cuda)
# SECONDS_FOR_BUILD   the build stops after so many seconds   (default: 450)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly out=${OUT:-results}
readonly work=${WORK:-/tmp/kvmem-engine}
readonly backend=${BACKEND:-cuda}
readonly llama=$work/llama
readonly log=$out/build.txt

export PATH=$PATH:/usr/local/cuda/bin
# NIXL is in this bundle, or in a GPU bundle beside it.
for nixl in "$here" "$here/../gpu-bundle"; do
    nixl=$nixl/nixl/.nixl_cu13.mesonpy.libs/libnixl_capi.so
    if [[ ! ${KVMEM_NIXL_LIBRARY:-} && -e $nixl ]]; then export KVMEM_NIXL_LIBRARY=$nixl; fi
done

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

# ---- build -----------------------------------------------------------------------------------------------------------

build() {
    local start=$SECONDS options
    : >"$log"
    if [[ ! -d $work/source ]]; then
        rm -rf "$work/source.new"
        mkdir -p "$work/source.new"
        tar -xJf "$here/llama.tar.xz" -C "$work/source.new"
        mv "$work/source.new" "$work/source"
    fi
    # -O1 for the host's code: the time goes into kernels.
    options=(-DCMAKE_BUILD_TYPE=Release "-DCMAKE_INSTALL_PREFIX=$llama" "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG" -DGGML_NATIVE=OFF
        -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=OFF -DGGML_CPU_REPACK=OFF -DGGML_CCACHE=OFF -DLLAMA_ALL_WARNINGS=OFF
        "-DCMAKE_INSTALL_RPATH=\$ORIGIN")
    local part
    for part in COMMON TOOLS SERVER EXAMPLES TESTS APP; do options+=("-DLLAMA_BUILD_$part=OFF"); done
    [[ $backend == cpu ]] || add_cuda
    step "configure llama.cpp" cmake -S "$work/source" -B "$work/build" -G Ninja "${options[@]}"
    step "build llama.cpp; './run build' continues a build that was stopped" \
        timeout "${SECONDS_FOR_BUILD:-450}" cmake --build "$work/build" --target llama
    step "install llama.cpp" cmake --install "$work/build"
    echo "llama.cpp built in $((SECONDS - start)) s"
    step "configure the program" cmake -S "$here/bench/engine" -B "$work/programs" -G Ninja -DCMAKE_BUILD_TYPE=Release \
        "-DCMAKE_PREFIX_PATH=$here/kvmem;$llama"
    step "build the program" cmake --build "$work/programs"
    echo "built in $((SECONDS - start)) s"
}

# Appends to `options` those of ggml's CUDA backend.
add_cuda() {
    local architecture toolkit header library rpath
    command -v nvcc >/dev/null || fail "nvcc was not found; add its folder to PATH."
    # Such as 90: code for other GPUs would only take time.
    architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
    toolkit=$(dirname "$(dirname "$(realpath "$(command -v nvcc)")")")
    rpath="\$ORIGIN;$toolkit/lib64"
    # Of the flash attention kernels with vectors only those of the program's types. Without VMM, ggml does not link to libcuda.
    options+=(-DGGML_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$architecture-real" "-DGGML_CUDA_FA_QUANTS=f16-f16;q8_0-q8_0"
        -DGGML_CUDA_NCCL=OFF -DGGML_CUDA_COMPRESSION_MODE=none -DGGML_CUDA_NO_VMM=ON)
    if [[ ! -e $toolkit/include/cublas_v2.h ]]; then
        # cuBLAS is not part of the toolkit, but of a Python package.
        header=$(find / -name proc -prune -o -name cublas_v2.h -print -quit 2>/dev/null)
        library=$(find / -name proc -prune -o -name 'libcublas.so.1[23]' -print -quit 2>/dev/null)
        [[ $header && $library ]] || fail "cuBLAS was not found: ggml's CUDA backend needs its headers and library."
        echo "cuBLAS: $library"
        export CPATH=${CPATH:+$CPATH:}$(dirname "$header")
        options+=("-DCUDA_cublas_LIBRARY=$library" "-DCUDA_cublasLt_LIBRARY=${library/libcublas./libcublasLt.}")
        rpath+=";$(dirname "$library")"
    fi
    options+=("-DCMAKE_INSTALL_RPATH=$rpath") # instead of the one before
}

# step TITLE COMMAND...: its output is in the log; if it fails, the end of it is printed.
step() {
    local title=$1
    shift
    echo "$title: $*" >>"$log"
    "$@" >>"$log" 2>&1 || fail "failed: $title" "$(tail -n 30 "$log")"
}

# ---- tables ----------------------------------------------------------------------------------------------------------

tables() {
    local gpus=0 failed=0 first="one GPU"
    local one=(--gpu=0 --prefill-gpu=0) two=(--gpu=0 --prefill-gpu=1)
    : >"$out/tables.txt"
    if [[ $backend == cpu ]]; then
        one=() first="no GPU"
    else
        gpus=$(nvidia-smi --list-gpus | wc -l)
        nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee -a "$out/tables.txt"
    fi
    table "$first" "${one[@]}" --nixl=no || failed=1
    ((gpus < 2)) || table "two GPUs" "${two[@]}" --nixl=no || failed=1
    bench "${first// GPU/-gpu}" "${one[@]}" || failed=1
    ((gpus < 2)) || bench two-gpus "${two[@]}" || failed=1
    if [[ ${KVMEM_NIXL_LIBRARY:-} ]]; then
        table "$first, NIXL" "${one[@]}" --nixl=yes --model=gqa || failed=1
        ((gpus < 2)) || table "two GPUs, NIXL" "${two[@]}" --nixl=yes --model=gqa || failed=1
    fi
    return "$failed"
}

table() {
    local title=$1
    shift
    show "$title" timeout 240 "$work/programs/example/llama_handover" --tokens=1000 "--directory=$work" "$@"
}

# Sessions of 4,096 tokens of a model with 32 layers, 8 KV heads of 128 elements: 512 MiB.
bench() {
    local name=$1
    shift
    show "row 20, $name" timeout 240 "$work/programs/20_engine" "--output=$out/20-engine-$name.json" \
        "--tokens=${TOKENS:-4096}" --rounds=5 --nixl=no "--directory=$work" "$@"
}

show() {
    local title=$1 start=$SECONDS status=0
    shift
    {
        printf '\n%s: %s\n' "$title" "$(basename "$3") ${*:4}"
        "$@" 2>&1 || status=$?
        echo "exit status $status after $((SECONDS - start)) s"
        return "$status"
    } | tee -a "$out/tables.txt"
}

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

main "$@"
