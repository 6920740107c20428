#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs llama.cpp for the demo, unmodified, with its CMake package, under build/llama: its libraries for the CPU, from the
# source in a Python package. It takes minutes, once. Prints the folder for CMAKE_PREFIX_PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly package=llama-cpp-python==0.3.36
readonly venv=build/llama

installed() { [[ -f $venv/package && $(<"$venv/package") == "$package" ]]; }

prefix() { "$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

if ! installed; then
    echo "building llama.cpp; the output is in $venv.log" >&2
    rm -rf "$venv"
    python3 -m venv "$venv"
    options=(-DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF)
    for part in COMMON TOOLS SERVER EXAMPLES TESTS; do options+=("-DLLAMA_BUILD_$part=OFF"); done
    CMAKE_ARGS="${options[*]}" "$venv/bin/pip" install --no-deps --disable-pip-version-check "$package" >"$venv.log" 2>&1 || {
        echo "pip could not build $package; see $venv.log" >&2
        exit 1
    }
    echo "$package" >"$venv/package"
fi
prefix
