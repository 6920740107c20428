#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# faults-test.sh TREE: makes each system call of each operation fail in every way, and each allocation (c_tests/faults), then each call of the
# GPU's driver (c_tests/gpu/sim/walk.h), and holds the calls below each function that waits (c_tests/held). A program of system calls or
# allocations without a finding adds its row to c_tests/faults/records.md, or to $KVMEM_RECORD.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tree=$1
readonly record=${KVMEM_RECORD:-c_tests/faults/records.md}
KVMEM_NIXL_LIBRARY=$(find "$PWD/$tree/c_tests/nixl_sim" -name 'libnixl_capi.so*' | head -n 1)
export KVMEM_NIXL_LIBRARY KVMEM_FAULTS=all KVMEM_TEST_DEADLINE=3000

for program in memory files sharing directory store nixl allocations_{memory,files,sharing,directory,store,nixl,plain,lists}; do
    echo "-- faults_$program"
    output=$("$tree/c_tests/faults/faults_$program" | tee /dev/stderr)
    total=$(sed -n 's/^\([0-9]*\) operations, \([0-9]*\) [a-z]*, .*/\1 | \2/p' <<<"$output")
    echo "| $(date -u +%F) | $(git rev-parse --short HEAD) | $program | $total | none |" >>"$record"
done

ctest --no-tests=error --test-dir "$tree" --output-on-failure --tests-regex '^gpu_sim\.([a-z]+_)?walk$'

KVMEM_HELD=all ctest --no-tests=error --test-dir "$tree" --output-on-failure --tests-regex '^held\.' --timeout 1200
