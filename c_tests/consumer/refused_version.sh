#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# refused_version.sh PREFIX BUILD MAJOR MINOR: find_package accepts its own minor version, and no other.
set -euo pipefail
prefix=$1 build=$2 major=$3 minor=$4
here=$(dirname "${BASH_SOURCE[0]}")

accepts() { # accepts VERSION
    rm -rf "$build"
    "$CMAKE" -S "$here/find_package" -B "$build" -DCMAKE_PREFIX_PATH="$prefix" -DKVMEM_WANTED="$1"
}

accepts "$major.$minor"
others=("$major.$((minor + 1))" "$((major + 1)).$minor" "$major.$minor.999")
((minor == 0)) || others+=("$major.$((minor - 1))")
for version in "${others[@]}"; do
    if output=$(accepts "$version" 2>&1); then
        echo "find_package(kvmem $version) was accepted"
        exit 1
    fi
    grep -q "compatible with requested version \"$version\"" <<<"$(tr -s ' \n' ' ' <<<"$output")" ||
        { echo "find_package(kvmem $version) failed for another reason:"; echo "$output"; exit 1; }
done
