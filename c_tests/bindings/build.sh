#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh PREFIX BUILD: builds the C++ tests and the conformance runners against the package that was installed and moved.
set -euo pipefail
prefix=$1 build=$2

# The headers of an earlier installation are older than the objects that were built from them.
rm -rf "$build"
"$CMAKE" -S "$(dirname "${BASH_SOURCE[0]}")/cpp" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_PREFIX_PATH="$prefix"
"$CMAKE" --build "$build"
