#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# add_subdirectory.sh SOURCE BUILD CARGO: C and C++ programs take the source tree in by add_subdirectory. Cargo builds
# where this tree has built already, so the Rust library is not built twice.
set -euo pipefail
source=$1 build=$2 cargo=$3
here=$(dirname "${BASH_SOURCE[0]}")

rm -rf "$build"
"$CMAKE" -S "$here/add_subdirectory" -B "$build" -DKVMEM_SOURCE="$source" -DKVMEM_CARGO_TARGET_DIR="$cargo"
"$CMAKE" --build "$build"
"$build/consumer_c"
"$build/consumer_cpp"
