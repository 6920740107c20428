#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# exports.sh COMPILER LIBRARY HEADER...: the library exports every function that the headers declare, and nothing else.
set -euo pipefail
compiler=$1 library=$2
shift 2

declared=$("$compiler" -E -P -x c "$@" | grep -oE '\bkvmem_[a-z0-9_]+ *\(' | tr -d ' (' | sort -u)
exported=$(nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u)
[[ $declared ]] || { echo "no function found in $*"; exit 1; }

missing=$(comm -23 <(echo "$declared") <(echo "$exported"))
extra=$(comm -13 <(echo "$declared") <(echo "$exported"))
[[ ! $missing ]] || printf 'declared, not exported:\n%s\n' "$missing"
[[ ! $extra ]] || printf 'exported, not declared:\n%s\n' "$extra"
[[ ! $missing$extra ]] || exit 1
echo "$(wc -l <<<"$declared") functions"
