#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cpp_page.sh PREFIX BUILD: does what docs/cpp.md of an installed and moved package says, in an empty folder and with the files
# that the page shows. Then builds and runs the larger example of the package.
set -euo pipefail
prefix=$1 build=$2
page=$(find "$prefix" -path '*/docs/cpp.md')
examples=$(find "$prefix" -path '*/examples/cpp')
library=$(dirname "$(find "$prefix" -name libkvmem.so)")
readonly printed='block 42 has the values of block 7 in layer 3'

# block LANGUAGE: the first block of the page in that language.
block() {
    awk -v fence='```'"$1" '$0 == fence { inside = 1; next } inside && $0 == "```" { exit } inside' "$page"
}

rm -rf "$build"
mkdir -p "$build"
cd "$build"
block cmake >CMakeLists.txt
block cpp >main.cpp
"$CMAKE" -S . -B build -DCMAKE_PREFIX_PATH="$prefix"
"$CMAKE" --build build
[[ $(build/quickstart) == "$printed" ]]

export PKG_CONFIG_LIBDIR=$library/pkgconfig # in place of the system's directories, which may contain another kvmem
# shellcheck disable=SC2046
"$CXX" -std=c++20 main.cpp $(pkg-config --cflags --libs kvmem) "-Wl,-rpath,$library" -o quickstart
[[ $(./quickstart) == "$printed" ]]

"$CMAKE" -S "$examples/03_two_processes" -B two_processes -DCMAKE_PREFIX_PATH="$prefix"
"$CMAKE" --build two_processes
two_processes/two_processes | tee output
grep -q 'all blocks have the checksums of prefill' output
