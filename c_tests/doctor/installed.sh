#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# installed.sh PREFIX: kvmem-doctor of an installation that was moved runs with an empty environment and its own library.
set -euo pipefail
prefix=$1
doctor=$prefix/bin/kvmem-doctor

env -i "$doctor" --no-rates >/dev/null
env -i "$doctor" --no-rates --json | python3 -c 'import json, sys; assert json.load(sys.stdin)["findings"]'
loaded=$(env -i LD_TRACE_LOADED_OBJECTS=1 "$doctor" | sed -n 's/.*libkvmem[^ ]* => \([^ ]*\).*/\1/p')
[[ $(realpath "$loaded") == "$(realpath "$prefix")"/* ]] || { echo "it loads $loaded"; exit 1; }
