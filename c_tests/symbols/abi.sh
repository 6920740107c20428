#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# abi.sh PYTHON ABI_PY COMPILER BASELINE HEADER...: a program that was compiled with the headers of BASELINE runs with the library of these
# headers: abidiff finds no change of a function or a struct but new functions, and new fields at the end of structs that begin with struct_size.
# It finds each kind of change that is seeded.
set -euo pipefail
python=$1 abi=$2 compiler=$3 baseline=$4
shift 4
command -v abidiff >/dev/null || { echo "abidiff was not found; it is in the package abigail-tools"; exit 1; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" "$abi" code "$baseline" "$folder/before.c" "$folder/growing"
"$python" "$abi" code "$@" "$folder/after.c" "$folder/unused"

compiled() { "$compiler" -std=c11 -g -shared -fPIC -o "$folder/$1.so" "$folder/$1.c"; }
compared() { abidiff --no-added-syms --suppressions "$folder/growing" "$folder/before.so" "$folder/$1.so"; }

compiled before
compiled after
compared after >"$folder/changes" || { cat "$folder/changes"; echo "$baseline has what programs were compiled with"; exit 1; }

# Each seeded change is a command of sed.
found=0
while read -r change; do
    sed -E "$change" "$folder/after.c" >"$folder/seeded.c"
    ! cmp -s "$folder/after.c" "$folder/seeded.c" || { echo "nothing to change for: $change"; exit 1; }
    compiled seeded
    ! compared seeded >/dev/null || { echo "not found: $change"; exit 1; }
    found=$((found + 1))
done <<'END'
/^void kvmem_region_destroy\(/d
s/^(void kvmem_region_destroy\()kvmem_region \*region/\1kvmem_layout *region/
s/^typedef int32_t kvmem_status;/typedef int16_t kvmem_status;/
s/^(struct kvmem_block \{ uint64_t address; uint)64_t size/\132_t size/
s/^(struct kvmem_block \{.*)\};/\1uint64_t end; };/
s/^(struct kvmem_block \{ )(uint64_t address; )(uint64_t size; )/\1\3\2/
s/^(struct kvmem_agent_options \{ size_t struct_size; )/\1uint64_t first; /
s/^(struct kvmem_agent_options \{.*) uint32_t sync_mode;/\1/
s/^(kvmem_status kvmem_agent_connect\(.*)uint64_t timeout_ns/\1uint32_t timeout_ns/
END
echo "no change but additions; $found of $found seeded changes were found"
