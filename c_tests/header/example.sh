#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# example.sh C_COMPILER CXX_COMPILER INCLUDE: the example in the introduction of kvmem.h compiles as C and as C++.
set -euo pipefail
c=$1 cxx=$2 include=$3

# The indented lines of the paragraph after "Example."
example=$(sed -n '/^ \* Example\./,/^ \* Errors\./s/^ \*     \( *[^ ].*\)$/\1/p' "$include/kvmem.h" | grep -v '^ *Move blocks')
lines=$(wc -l <<<"$example")
((lines >= 8)) || { echo "only $lines lines of the example found in $include/kvmem.h"; exit 1; }

program() {
    echo '#include <kvmem.h>'
    echo '#include <stdio.h>'
    echo 'void move(const kvmem_layout *source, const kvmem_layout *destination);'
    echo 'void move(const kvmem_layout *source, const kvmem_layout *destination) {'
    echo "$example"
    echo '}'
}

program | "$c" -std=c99 -Wall -Wextra -Wpedantic -Werror -I "$include" -x c -c - -o /dev/null
program | "$cxx" -std=c++20 -Wall -Wextra -Wpedantic -Werror -Wno-missing-field-initializers -I "$include" -x c++ -c - -o /dev/null
# First checks that a mistake is detected.
if program | sed 's/num_pairs/num_pears/' | "$c" -I "$include" -x c -c - -o /dev/null 2>/dev/null; then
    echo "a mistake in the example compiles"
    exit 1
fi
