#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the commands that the README and the pages name and that no other test runs, in a small form: the part of make check that
# make test has not run, the demo, the benches, the wheel, the bundles, the fuzzer of calls and the load test. Their records do not change.
# make package is what the test consumer.packages does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly log=build/commands.log
KVMEM_RECORD=$(mktemp)
export KVMEM_RECORD
trap 'rm -f "$KVMEM_RECORD"' EXIT

# run COMMAND...: prints a line; the output of a command that fails follows it.
run() {
    local start=$SECONDS
    if "$@" >"$log" 2>&1 </dev/null; then
        echo "ok      $*  $((SECONDS - start)) s"
    else
        echo "FAILED  $*"
        tail -n 40 "$log"
        exit 1
    fi
}

run make checked-test CHECK_LABELS=contract
run make demo DEMO_ARGS='--blocks 16'
run make bench BENCH_ARGS='--quick --only 12_block_address,18_create'
run make wheel
run make gpu-bundle GPU_BUNDLE_ARGS=--small
run make engine-bundle
run make fuzz-calls FUZZ_SECONDS=8
run make load-test LOAD_SECONDS=1 LOAD_PROGRAMS=nixl_load
