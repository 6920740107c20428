#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# load-test.sh TREE NIXL_LIBRARY SECONDS: the tests of agents under load and of peers that fail or behave badly, each load for so long,
# over shared memory and over TCP. A run without a failure adds its rows to c_tests/nixl/load-records.md.
#
# LOAD_PROGRAMS  the programs   (default: nixl_many_agents nixl_load nixl_peer_steps share/share_epochs)
# KVMEM_RECORD   the file that gets the rows
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tree=$1 nixl=$2 seconds=$3
readonly record=${KVMEM_RECORD:-c_tests/nixl/load-records.md}

export KVMEM_NIXL_LIBRARY=$nixl NIXL_LOG_LEVEL=FATAL UCX_LOG_LEVEL=error
export KVMEM_TEST_LOAD_SECONDS=$seconds KVMEM_TEST_DEADLINE=$((10 * seconds + 300))

# run PROGRAM TRANSPORT [VARIABLE=VALUE]...
run() {
    local program=$1 transport=$2 output rows
    shift 2
    echo "-- $program, $transport"
    output=$(env "$@" "$tree/c_tests/$program" | tee /dev/stderr)
    rows=$(sed -n 's/^load: //p' <<<"$output")
    [[ $rows ]] || rows="all cases passed"
    while read -r row; do
        echo "| $(date -u +%F) | $(git rev-parse --short HEAD) | $program | $transport | $seconds | $row |" >>"$record"
    done <<<"$rows"
}

for program in ${LOAD_PROGRAMS:-nixl_many_agents nixl_load nixl_peer_steps share/share_epochs}; do
    run "$program" "shared memory"
    case $program in
    nixl_many_agents | hostile/hostile_share | hostile/hostile_broker | hostile/hostile_epochs | hostile/hostile_leases | hostile/hostile_directory | \
        hostile/hostile_objects) ;;
    *) run "$program" TCP UCX_TLS=tcp UCX_NET_DEVICES=lo ;;
    esac
done
