#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pkg_config.sh PREFIX BUILD VERSION: C and C++ programs find the package by pkg-config.
set -euo pipefail
prefix=$1 build=$2 version=$3
here=$(dirname "${BASH_SOURCE[0]}")
export PKG_CONFIG_LIBDIR # in place of the system's directories, which may hold another kvmem
PKG_CONFIG_LIBDIR=$(dirname "$(find "$prefix" -name kvmem.pc)")

found=$(pkg-config --modversion kvmem)
[[ $found == "$version" ]] || { echo "version $found, not $version"; exit 1; }
read -ra compile < <(pkg-config --cflags kvmem)
read -ra link < <(pkg-config --libs kvmem)
link+=("-Wl,-rpath,$(pkg-config --variable=libdir kvmem)")
warnings=(-Wall -Wextra -Wpedantic -Werror)

rm -rf "$build"
mkdir -p "$build"
"$CC" -std=c11 "${warnings[@]}" "${compile[@]}" "$here/consumer.c" -o "$build/consumer_c" "${link[@]}"
"$CXX" -std=c++17 "${warnings[@]}" "${compile[@]}" "$here/consumer.cpp" -o "$build/consumer_cpp" "${link[@]}"
"$build/consumer_c"
"$build/consumer_cpp"
