#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs llama.cpp for the demo and the tests of label `engines`: unmodified, its libraries for the CPU, its headers and its CMake
# package, under build/llama. It takes minutes, once. Prints the folder for CMAKE_PREFIX_PATH.
#
# llama-cpp.sh --if-built        prints nothing if llama.cpp is not installed yet
# llama-cpp.sh --source FOLDER   only fetches the source, into a new folder
#
# KVMEM_LLAMA_PREFIX   an installed llama.cpp to use instead
# KVMEM_PYTHON         the Python whose pip fetches the source   (default: python3)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A Python package, because package indexes and their mirrors have it: its source contains that of llama.cpp.
readonly package=llama-cpp-python==0.3.36
readonly prefix=$PWD/build/llama
readonly log=build/llama.log
# Only libraries. The models of the demo have random weights, so the optimisation matters less than the time of the build:
# measured, 224 instead of about 600 seconds of one core.
readonly options=(
    -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG" "-DCMAKE_C_FLAGS_RELEASE=-O2 -DNDEBUG"
    -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=OFF -DGGML_CPU_REPACK=OFF -DGGML_CCACHE=OFF
    -DLLAMA_ALL_WARNINGS=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_APP=OFF '-DCMAKE_INSTALL_RPATH=$ORIGIN')

main() {
    case ${1:-} in
    --source) fetch "$2" ;;
    --build) build ;;
    *) install "${1:-}" ;;
    esac
}

install() {
    if [[ ${KVMEM_LLAMA_PREFIX:-} ]]; then
        realpath -m "$KVMEM_LLAMA_PREFIX"
        return
    fi
    if [[ ! -f $prefix/package || $(<"$prefix/package") != "$package" ]]; then
        [[ $1 != --if-built ]] || return 0
        mkdir -p build
        echo "building llama.cpp; the output is in $log" >&2
        # As a process of its own, which ends with the first command that fails.
        scripts/llama-cpp.sh --build >"$log" 2>&1 || {
            echo "llama.cpp could not be built; see $log" >&2
            exit 1
        }
    fi
    echo "$prefix"
}

build() {
    local work
    work=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    fetch "$work/source"
    rm -rf "$prefix"
    cmake -S "$work/source" -B "$work/build" -G Ninja "-DCMAKE_INSTALL_PREFIX=$prefix" "${options[@]}"
    cmake --build "$work/build" --target llama
    cmake --install "$work/build"
    echo "$package" >"$prefix/package"
}

# Extracts llama.cpp from the package, without its documentation and models.
fetch() {
    local packages=build/llama-package
    mkdir -p "$packages" "$1"
    "${KVMEM_PYTHON:-python3}" -m pip download --disable-pip-version-check --retries 2 --no-input --no-deps \
        --no-binary "${package%%==*}" --dest "$packages" "$package" >&2
    tar -xzf "$packages"/*.tar.gz -C "$1" --wildcards '*/vendor/llama.cpp/*' --exclude '*/llama.cpp/models/*' \
        --exclude '*/llama.cpp/docs/*' --strip-components=3
    rm -rf "$packages"
}

main "$@"
