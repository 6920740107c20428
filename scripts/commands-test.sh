#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# commands-test.sh [TARGET [VARIABLE=VALUE]...]: runs the commands that the README and the pages name and that no other test runs, in a
# small form: the part of make check that make test has not run, the demo, the site, the benches, the wheel, the bundles, the fuzzer of calls, the load
# test and the soak. Their records do not change. make package is what the test consumer.packages does. A target of make runs beside them.
# `make commands-test` has set up, configured and built before.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
KVMEM_RECORD=$(mktemp)
export KVMEM_RECORD
export XZ_OPT=-1 # of the engine bundle, which is not kept
trap 'rm -f "$KVMEM_RECORD"' EXIT
mkdir -p build/commands

# run TARGET [VARIABLE=VALUE]...: prints a line; the output of a command that fails follows it.
run() {
    local start=$SECONDS log=build/commands/$1.log
    if make --old-file={setup,configure,library,build} "$@" >"$log" 2>&1 </dev/null; then
        echo "ok      make $*  $((SECONDS - start)) s"
    else
        echo "FAILED  make $*"
        cat "$log"
        exit 1
    fi
}

# Lanes beside each other, because most commands use one processor or wait. Commands that use the same folders are in one lane.
lanes=()
if (($#)); then
    run "$@" &
    lanes+=($!)
fi
{
    run checked-test CHECK_LABELS=contract
    run demo DEMO_ARGS='--blocks 16'
    run bench BENCH_ARGS='--quick --only 12_block_address,18_create'
} &
lanes+=($!)
{
    run wheel
    run docs
    run soak MINUTES=0.1 SEED=601
    run soak-faults FAULTS=byte
} &
lanes+=($!)
{
    run fuzz-calls FUZZ_SECONDS=8
    run load-test LOAD_SECONDS=1 LOAD_PROGRAMS=nixl_load
    run hostile-test LOAD_SECONDS=0 LOAD_PROGRAMS=hostile/hostile_epochs
    run gpu-bundle GPU_BUNDLE_ARGS=--small
    run engine-bundle
} &
lanes+=($!)
status=0
for lane in "${lanes[@]}"; do
    wait "$lane" || status=1
done
exit $status
