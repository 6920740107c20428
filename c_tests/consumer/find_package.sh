#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# find_package.sh PREFIX BUILD VERSION: C and C++ programs find the package by find_package(kvmem VERSION).
set -euo pipefail
prefix=$1 build=$2 version=$3
here=$(dirname "${BASH_SOURCE[0]}")

rm -rf "$build"
"$CMAKE" -S "$here/find_package" -B "$build" -DCMAKE_PREFIX_PATH="$prefix" -DKVMEM_WANTED="$version"
"$CMAKE" --build "$build"
"$build/consumer_c"
"$build/consumer_cpp"

# In a merged /usr, CMake may find the package through /lib, a link to usr/lib.
merged=$build/merged
mkdir "$merged"
cp -a "$prefix" "$merged/usr"
ln -s usr/lib "$merged/lib"
"$CMAKE" -S "$here/find_package" -B "$build/through_link" -DCMAKE_PREFIX_PATH="$merged" -DKVMEM_WANTED="$version"
"$CMAKE" --build "$build/through_link"
"$build/through_link/consumer_c"
