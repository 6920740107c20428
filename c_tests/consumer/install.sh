#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install.sh TREE ORIGINAL MOVED SOURCE: installs the package to one prefix and moves it to another, so that nothing is
# left where it was installed. Nothing in it may name the prefix, the build tree or the source tree.
set -euo pipefail
tree=$1 original=$2 moved=$3 source=$4

rm -rf "$original" "$moved"
"$CMAKE" --install "$tree" --prefix "$original"
mv "$original" "$moved"
[[ ! -e $original ]]

# The first alone: the source tree may contain the build tree, or the build tree the source tree.
for path in "$original" "$tree" "$source" "${CARGO_HOME:-$HOME/.cargo}"; do
    if grep --recursive --fixed-strings --files-with-matches --text "$path" "$moved"; then
        echo "these name $path"
        exit 1
    fi
done

# The library contains no line tables, and names the file beside it that does.
library=$(find "$moved" -name 'libkvmem.so.*.*.*' -type f ! -name '*.debug')
debug=$(dirname "$library")/.debug/$(basename "$library").debug
! readelf --sections --wide "$library" | grep -q ' \.debug_line '
readelf --sections --wide "$debug" | grep -q ' \.debug_line '
readelf --string-dump=.gnu_debuglink "$library" | grep -qF "$(basename "$debug")"

# The pages link to files that are installed.
"$source/scripts/pages.py" "$moved"

# What it links is under licences that come with it.
licences=$(find "$moved" -name THIRD-PARTY-LICENSES)
for crate in cudarc rustix serde; do grep -q "^  $crate [0-9]" "$licences"; done
bill=$(find "$moved" -name kvmem.cdx.json)
for crate in cudarc rustix serde; do grep -q "\"pkg:cargo/$crate@[0-9]" "$bill"; done
