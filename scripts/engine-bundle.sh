#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Creates build/engine-bundle: the source of llama.cpp and of the example that connects it, and kvmem as installed, for a GPU host
# with nvcc and CMake, and without a network. Copy the folder there; `./run` builds llama.cpp with ggml's CUDA backend for the GPU of that
# host, and moves sessions between and out of GPUs. `make gpu-bundle` before it: NIXL is taken from that bundle, if it exists.
#
# KVMEM_PREFIX   an installed kvmem                        (default: that of build/cmake)
# KVMEM_PYTHON   the Python whose pip fetches the source   (default: python3)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly bundle=build/engine-bundle
readonly fresh=build/engine-bundle.new
readonly prefix=${KVMEM_PREFIX:-build/engine-prefix}
readonly source=build/llama-source

main() {
    rm -rf "$fresh"
    mkdir -p "$fresh"
    [[ -d $source ]] || scripts/llama-cpp.sh --source "$source"
    # Of ggml's backends only those that this machine builds.
    tar -cJf "$fresh/llama.tar.xz" -C "$source" \
        --exclude='ggml/src/ggml-'{vulkan,sycl,cann,metal,opencl,webgpu,hexagon,musa,hip,openvino,zdnn,virtgpu} \
        CMakeLists.txt LICENSE licenses cmake ggml include src vendor/{CMakeLists.txt,hash,miniaudio,nlohmann,sheredom,stb}
    if [[ ! ${KVMEM_PREFIX:-} ]]; then
        rm -rf "$prefix"
        cmake --install build/cmake --prefix "$prefix" --strip >/dev/null
    fi
    mkdir -p "$fresh/kvmem"
    cp -aL "$prefix"/{include,lib} "$fresh/kvmem/" # without links, which some copies lose
    rm -rf "$fresh/kvmem/lib/.debug"
    cp -a --parents examples/cpp/05_llama_cpp bench/engine bench/common "$fresh/"
    [[ ! -d build/gpu-bundle/nixl ]] || cp -a build/gpu-bundle/nixl "$fresh/nixl"
    install -m 755 scripts/engine-run.sh "$fresh/run"
    rm -rf "$bundle"
    mv "$fresh" "$bundle"
    echo "$bundle: $(du -sb "$bundle" | cut -f 1 | numfmt --to=si)B"
}

main
