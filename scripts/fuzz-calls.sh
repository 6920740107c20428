#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fuzz-calls.sh TREE NIXL_LIBRARY SECONDS: fuzzes call sequences of the C ABI with new seeds, in four forms, and adds a row
# for each to fuzz/records.md, or to $KVMEM_RECORD. A failure is printed with the command that replays it; --minimise reduces the calls.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tree=$1 nixl=$2 seconds=$(($3 / 4))
readonly record=${KVMEM_RECORD:-fuzz/records.md}

export LD_LIBRARY_PATH=$PWD/$tree/c_tests/cuda_sim/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export KVMEM_NIXL_LIBRARY=$nixl KVMEM_SIM_FABRIC=1 NIXL_LOG_LEVEL=FATAL UCX_LOG_LEVEL=FATAL

# fuzz FORM [OPTION]...
fuzz() {
    local form=$1 output seed
    shift
    echo "-- $form, $seconds s"
    # A new seed for each run; KVMEM_FUZZ_SEED repeats a run.
    seed=${KVMEM_FUZZ_SEED:-$(date +%s)000000}
    output=$("$tree/gpu_tests/calls_fuzz" --seed "$seed" --seconds "$seconds" "$@" 2>/dev/null | tee /dev/stderr | tail -n 1)
    [[ $output == *"nothing found" ]] || exit 1
    local sequences=${output%% sequences*} calls
    calls=$(sed 's/.*sequences, \([0-9]*\) calls.*/\1/' <<<"$output")
    echo "| $(date -u +%F) | $(git rev-parse --short HEAD) | $form | $seed | $sequences | $calls | $seconds | none |" >>"$record"
}

fuzz "one thread"
fuzz "4 threads" --threads 4
fuzz "one thread, with failures from below" --faults
fuzz "NIXL: POSIX and UCX" --nixl POSIX,UCX
