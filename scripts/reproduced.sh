#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# reproduced.sh TREE: builds the library once more, from a copy of the sources in another folder, and compares every byte with the library
# of TREE, which must be built from the same sources.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly tree=$1 copy=build/reproduced

rm -rf "$copy"
mkdir -p "$copy/sources"
git ls-files -z | tar --null --files-from=- -cf - | tar -C "$copy/sources" -xf -
cmake -S "$copy/sources" -B "$copy/tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DKVMEM_CARGO_TARGET_DIR="$PWD/$copy/cargo" \
    -DKVMEM_ETCD=OFF -DKVMEM_INSTALL=OFF -DKVMEM_BUILD_TESTS=OFF -DKVMEM_BUILD_DOCTOR=OFF -DKVMEM_BUILD_BENCH=OFF \
    -DKVMEM_BUILD_EXAMPLES=OFF >/dev/null
cmake --build "$copy/tree" --target kvmem
library=$(cd "$tree/lib" && echo libkvmem.so.*.*.*)
if ! cmp "$tree/lib/$library" "$copy/tree/lib/$library"; then
    echo "$library differs between two builds of the same sources. A path, a time or an order is in it: compare the two by" \
        "'objdump -s' or 'diffoscope'." >&2
    exit 1
fi
sha256sum "$copy/tree/lib/$library"
