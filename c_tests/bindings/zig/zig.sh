#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# zig.sh ZIG PREFIX BUILD SOURCE test|conformance|example: uses the Zig package of a prefix as docs/zig.md says.
set -euo pipefail
zig=$1 prefix=$2 build=$3 source=$4 what=$5
[[ -x $zig ]] || { echo "there is no Zig at '$zig': run scripts/setup.sh"; exit 1; }

library=$(dirname "$(find "$prefix" -name libkvmem.so)")
package=$prefix/share/kvmem/zig
export PKG_CONFIG_PATH=$library/pkgconfig LD_LIBRARY_PATH=$library:$KVMEM_STAND_IN
export ZIG_GLOBAL_CACHE_DIR=$build/cache ZIG_LOCAL_CACHE_DIR=$build/local KVMEM_TEST_CUDA=1
# Zig compiles its build system and its translator of C first; without optimization that takes a fifth of the time.
export ZIG_DEBUG_CMD=1

# project NAME: an empty folder that fetches the package, as a user's does.
project() {
    rm -rf "${build:?}/$1"
    mkdir -p "$build/$1/src"
    cd "$build/$1"
    "$zig" init --minimal
    "$zig" fetch --save=kvmem "$package"
    cp "$source/examples/zig/build.zig" .
}

case $what in
test)
    "$zig" fmt --check "$package" "$source/examples/zig" "$source/c_tests/conformance/zig"
    if grep -rnE 'pub .*\[\*c\]' "$package"; then
        echo "the package exports a C pointer"
        exit 1
    fi
    rm -rf "$build/package"
    cp -r "$package" "$build/package"
    cd "$build/package"
    "$zig" build test
    ;;
conformance)
    project conformance
    cp "$source"/c_tests/conformance/zig/src/*.zig src/
    "$zig" build
    "$source/c_tests/conformance/run.sh" "$PWD/zig-out/bin/engine"
    ;;
example)
    for example in "$source"/examples/zig/*/; do
        name=$(basename "$example")
        project "${name#*_}" # a name of Zig does not begin with a digit
        cp "$example/main.zig" src/
        "$zig" build run 2>&1 | tee output
    done
    grep -q 'block 42 has the keys of block 7' ../quickstart/output
    grep -q 'blocks restored from the file have prefill.s bytes' ../two_processes/output
    ;;
esac
