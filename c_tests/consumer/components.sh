#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# components.sh PREFIX BUILD: find_package(kvmem) finds the component `shared`, and refuses those that it does not have.
set -euo pipefail
prefix=$1 build=$2
here=$(dirname "${BASH_SOURCE[0]}")

finds() { # finds COMPONENT
    rm -rf "$build"
    "$CMAKE" -S "$here/find_package" -B "$build" -DCMAKE_PREFIX_PATH="$prefix" "-DKVMEM_COMPONENTS=COMPONENTS;$1"
}

finds shared
for component in static nonsense; do
    if output=$(finds "$component" 2>&1); then
        echo "find_package(kvmem COMPONENTS $component) succeeded"
        exit 1
    fi
    grep -qF "kvmem has no component $component" <<<"$output" ||
        { echo "the message does not name the component $component:"; echo "$output"; exit 1; }
done
