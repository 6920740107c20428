#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# soak-test.sh TREE NIXL_LIBRARY PYTHON SITE MINUTES [SEED]: the soak of c_tests/soak with the package in SITE. A run that finds nothing adds a row
# to c_tests/soak/records.md, or to $KVMEM_RECORD. With MINUTES=faults, each seeded fault must be found.
#
# FAULTS               the seeded faults                                          (default: byte leak lost hang late)
# SOAK_DRIVER=machine  the driver of the machine's GPU instead of the stand-in
# SOAK_DIRECTORY=etcd  agents are found in etcd instead of in a folder
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tree=$1 nixl=$2 python=$3 site=$4 minutes=$5 seed=${6:-$(date +%s)}
readonly record=${KVMEM_RECORD:-c_tests/soak/records.md}

export KVMEM_NIXL_LIBRARY=$nixl PYTHONPATH=$PWD/$site PYTHONDONTWRITEBYTECODE=1 KVMEM_SIM_FABRIC=1 NIXL_LOG_LEVEL=FATAL UCX_LOG_LEVEL=FATAL
unset KVMEM_LIBRARY
driver="stand-in"
if [[ ${SOAK_DRIVER:-} == machine ]]; then
    driver=$(nvidia-smi --query-gpu=name --format=csv,noheader | uniq -c | xargs)
else
    export LD_LIBRARY_PATH=$PWD/$tree/c_tests/cuda_sim/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

if [[ $minutes == faults ]]; then
    declare -A words=([byte]="elements differ" [leak]="left after everything was closed" [lost]="is lost" [hang]="is in '*thread " [late]="thread kvmem-*was not complete after")
    for fault in ${FAULTS:-byte leak lost hang late}; do
        if output=$("$python" c_tests/soak/soak.py --minutes 5 --seed "$seed" --calm --workers 1 --agents 0 --cycle 3 --settle 5 --patience 10 \
            --fault "$fault") || [[ $output != *FOUND*${words[$fault]}* ]]; then
            echo "the fault '$fault' was not found:"
            echo "$output"
            exit 1
        fi
        echo "found: $fault"
    done
    exit 0
fi

options=()
if [[ ${SOAK_DIRECTORY:-} == etcd ]]; then
    options+=(--etcd)
    driver+=", etcd"
fi
output=$("$python" c_tests/soak/soak.py --minutes "$minutes" --seed "$seed" "${options[@]}" | tee /dev/stderr)
result=$(sed -n 's/^soak: \(.* nothing found\)$/\1/p' <<<"$output")
[[ $result ]]
echo "| $(date -u +%F) | $(git rev-parse --short HEAD) | $driver | $seed | $minutes | $result |" >>"$record"
