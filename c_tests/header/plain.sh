#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# plain.sh COMPILER HEADER: the header holds nothing that Go, Zig or another reader of C headers would stumble over.
set -euo pipefail
compiler=$1 header=$2

# Prints the lines of the header on standard input that are not allowed, each under the reason.
stumbling_blocks() {
    local code
    code=$("$compiler" -fpreprocessed -dD -E -P -x c - | grep -v '^#define __') # without comments
    refuse 'includes more than stddef.h, stdint.h, stdbool.h and headers of kvmem' \
        '^ *# *include' '<(stddef|stdint|stdbool)\.h>|"(kvmem/)?[a-z_]+\.h"'
    refuse 'a union' '\bunion\b'
    refuse 'an inline function' '\binline\b|\)[[:space:]]*\{'
    refuse 'a bitfield' ':[[:space:]]*[0-9]+[[:space:]]*;'
    refuse 'variable arguments' '\.\.\.'
    refuse 'a macro with parameters' '^ *# *define +[A-Za-z0-9_]+\('
    refuse 'a number that is an expression' '^ *# *define +[A-Za-z0-9_]+ .*[0-9] *(<<|>>|[-+*/|&^])'
    refuse 'a negative number without parentheses' '^ *# *define +[A-Za-z0-9_]+ +-'
    refuse 'a struct without a tag' '\bstruct[[:space:]]*(\{|$)'
    refuse 'a macro that casts' '^ *# *define .*\([a-z_][a-z0-9_ ]*\**\)'
}

# refuse REASON PATTERN [ALLOWED]
refuse() {
    local lines
    lines=$(grep -E "$2" <<<"$code" | grep -vE "${3:-^$}" || true)
    [[ ! $lines ]] || printf '%s:\n%s\n' "$1" "$lines"
}

# First checks that each kind of mistake is detected.
while IFS= read -r sample; do
    [[ $(stumbling_blocks <<<"$sample") ]] || { echo "the check lets through: $sample"; exit 1; }
done <<'EOS'
#include <stdio.h>
typedef union { int a; float b; } kvmem_either;
static inline int kvmem_one(void) { return 1; }
int kvmem_two(void) { return 2; }
typedef struct { unsigned a : 3; } kvmem_bits;
int kvmem_print(const char *format, ...);
#define KVMEM_MAX(a, b) a
#define KVMEM_ONE (uint64_t)1
#define KVMEM_FLAG 1 << 3
#define KVMEM_NONE -1
typedef struct { int a; } kvmem_untagged;
EOS

found=$(stumbling_blocks <"$header")
[[ ! $found ]] || { echo "$header"; echo "$found"; exit 1; }
