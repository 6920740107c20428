#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# configure.sh TREE CARGO_TARGET_DIR: configures a CMake tree for what this machine can build, and prints what it lacks. Installs
# nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly tree=$1 target=$2

main() {
    local options=()
    require cargo "Rust (rustup)"
    require cmake cmake
    require ninja ninja-build
    require g++ g++
    require python3 python3
    if ! has protoc; then
        left_out libkvmem_etcd.so protoc
        options+=(-DKVMEM_ETCD=OFF)
    fi
    if ! has clang++ || ! has clang; then
        left_out "the C tests" clang
        options+=(-DKVMEM_BUILD_TESTS=OFF)
    elif [[ -e build/nixl-library ]]; then
        options+=(-DKVMEM_TEST_NIXL_LIBRARY="$(<build/nixl-library)")
    else
        left_out "tests, benches and examples that can find NIXL" NIXL
    fi
    cmake -S . -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DKVMEM_ETCD=ON -DKVMEM_BUILD_TESTS=ON "${options[@]}" \
        -DKVMEM_CARGO_TARGET_DIR="$target" \
        -DKVMEM_TEST_LLAMA="$(scripts/llama-cpp.sh --if-built)" >/dev/null
}

has() { command -v "$1" >/dev/null; }

require() {
    has "$1" && return
    echo "kvmem needs $1 to build, and it was not found. Install $2, or run 'make setup', which installs all tools." >&2
    exit 1
}

# left_out WHAT LACKING
left_out() { echo "without $1: $2 is missing; 'make setup' installs it"; }

main
