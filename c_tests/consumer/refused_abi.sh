#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# refused_abi.sh PREFIX BUILD ABI: a program for another binary interface is refused, with both numbers: by find_package, by the
# loader, and by the headers for C++ if a file has the name of the other library.
set -euo pipefail
prefix=$(realpath "$1") build=$2 abi=$3 other=4711
here=$(dirname "${BASH_SOURCE[0]}")
library=$(dirname "$(find "$prefix" -name "libkvmem.so.$abi")")

refuses() { # refuses WORDS COMMAND...: the command fails, and its output has the words
    local words=$1 output
    shift
    if output=$("$@" 2>&1); then
        echo "succeeded: $*"
        exit 1
    fi
    grep -qF "$words" <<<"$(tr -s ' \n' ' ' <<<"$output")" || { echo "the message lacks \"$words\":"; echo "$output"; exit 1; }
}

rm -rf "$build"
mkdir -p "$build"
cp -r "$prefix" "$build/prefix"
find "$build/prefix" -name base.h -exec sed -i "s/\(KVMEM_ABI_VERSION\) $abi$/\1 $other/" {} +
headers=$(dirname "$(find "$build/prefix" -name kvmem.h)")
grep -q "KVMEM_ABI_VERSION $other" "$headers/kvmem/base.h"

refuses "have binary interface $other, and" "$CMAKE" -S "$here/find_package" -B "$build/cmake" -DCMAKE_PREFIX_PATH="$(realpath "$build/prefix")"
printf '#include <kvmem.hpp>\nint main() {}\n' >"$build/main.cpp"
"$CXX" -std=c++17 -I"$headers" "$build/main.cpp" -L"$library" -lkvmem -o "$build/of_cpp"
refuses "has binary interface $abi, and this program was compiled for $other" env LD_LIBRARY_PATH="$library" "$build/of_cpp"

# A library of the other interface has another name, so the loader does not take this one for it.
echo 'unsigned kvmem_abi_version(void); int main(void) { return kvmem_abi_version() == 0; }' >"$build/main.c"
echo "unsigned kvmem_abi_version(void) { return $other; }" >"$build/other.c"
"$CC" -shared -fPIC -Wl,-soname,"libkvmem.so.$other" "$build/other.c" -o "$build/libkvmem.so"
"$CC" "$build/main.c" -L"$build" -lkvmem -o "$build/main"
refuses "libkvmem.so.$other: cannot open shared object file" env LD_LIBRARY_PATH="$library" "$build/main"
