#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# size.sh STRIP LIBRARY LIMIT: stripped, the library has fewer bytes than the limit.
set -euo pipefail
strip=$1 library=$2 limit=$3

stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
"$strip" -o "$stripped" "$library"
size=$(stat -c %s "$stripped")
echo "$size bytes stripped, limit $limit"
((size < limit))
