#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh RUNNER...: a runner passes all tables, runs every line of them, and fails for every file in broken/.
# KVMEM_STAND_IN is the directory of the stand-in driver, KVMEM_NIXL_LIBRARY that of NIXL: the tables need both.
set -euo pipefail
export LD_LIBRARY_PATH=${KVMEM_STAND_IN:?}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# By default UCX logs to the standard output, which is compared. It logs, for example, that an agent ended while it
# connected.
export UCX_LOG_FILE=stderr
cd "$(dirname "${BASH_SOURCE[0]}")"

tables=(tables/*.table)
expected=$(awk 'FNR == 1 && NR > 1 { report() } FNR == 1 { name = FILENAME; sub(".*/", "", name); cases = steps = 0 }
    function report() { printf "%s: %d cases, %d steps\n", name, cases, steps }
    /^#/ || NF == 0 { next } $1 == "case" { cases++; next } { steps++ } END { report() }' "${tables[@]}")
found=$("$@" "${tables[@]}")
[[ $found == "$expected" ]] || { printf 'expected:\n%s\nfound:\n%s\n' "$expected" "$found"; exit 1; }
printf '%s\n' "$found"

for table in broken/*.table; do
    status=0
    message=$("$@" "$table" 2>&1 >/dev/null) || status=$?
    ((status == 1)) || { echo "$table: the runner returned $status instead of 1: $message"; exit 1; }
    line=$(awk 'END { print NR }' "$table")
    [[ $message == *"$table:$line: "* ]] || { echo "$table: the runner failed without naming line $line: $message"; exit 1; }
done
