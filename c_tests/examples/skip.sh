#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Reports a skip as the tests do: skip.sh PROGRAM CASE REASON. scripts/skips.py compares it with those that CI expects.
[ -z "$KVMEM_TEST_SKIPS" ] || printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$KVMEM_TEST_SKIPS"
echo "skipped: $3"
exit 77
