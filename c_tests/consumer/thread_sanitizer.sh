#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# thread_sanitizer.sh PREFIX BUILD SOURCE: a program that is compiled with ThreadSanitizer, which leaves the library out as
# docs/errors.md says.
set -euo pipefail
prefix=$1 build=$2 source=$3

rm -rf "$build"
mkdir -p "$build"
library=$(dirname "$(find "$prefix" -name libkvmem.so)")
"$CC" -fsanitize=thread -g "$source" -o "$build/program" -I "$prefix/include" -L "$library" -Wl,-rpath,"$library" -lkvmem
cd "$build"
TSAN_OPTIONS=ignore_noninstrumented_modules=1 ./program store
