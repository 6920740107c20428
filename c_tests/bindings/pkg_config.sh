#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pkg_config.sh PREFIX BUILD: a program with kvmem.hpp finds the moved package by pkg-config.
set -euo pipefail
prefix=$1 build=$2
here=$(dirname "${BASH_SOURCE[0]}")
export PKG_CONFIG_LIBDIR # in place of the system's directories, which may contain another kvmem
PKG_CONFIG_LIBDIR=$(dirname "$(find "$prefix" -name kvmem.pc)")

read -ra flags < <(pkg-config --cflags --libs kvmem)
rm -rf "$build"
mkdir -p "$build"
"$CXX" -std=c++17 -Wall -Wextra -Wpedantic -Werror "$here/cpp/results_test.cpp" -o "$build/results" "${flags[@]}" \
    "-Wl,-rpath,$(pkg-config --variable=libdir kvmem)"
"$build/results"
