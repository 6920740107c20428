#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The bundle's runner: tests, measures and shows kvmem on the GPU of this host, with what lies beside it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly out=${OUT:-results}
readonly deadline=600 # seconds a test has
export KVMEM_TEST_DEADLINE=$((deadline / 2 - 10)) # half of it for each of two rounds of its cases
readonly two_gpus='gpu_two_devices gpu_two_orders gpu_peer_rates gpu_share_orders gpu_share_other_gpu' # the tests that one GPU is too few for

# NIXL and its UCX are the bundle's own. UCX reaches GPU memory by the CUDA runtime, which comes with the toolkit.
export KVMEM_NIXL_LIBRARY=$here/nixl/.nixl_cu13.mesonpy.libs/libnixl_capi.so
if [[ -d /usr/local/cuda/lib64 ]]; then
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64
fi

main() {
    local command=${1:-}
    shift || true
    case $command in
    test)
        mkdir -p "$out"
        run_tests "$@" | tee "$out/tests.txt"
        ;;
    bench) run_benches "$@" ;;
    demo) run_demo "$@" ;;
    clients) run_clients "$@" ;;
    *) usage ;;
    esac
}

usage() {
    cat <<END
./run test [NAME...]    run the tests, and write what they tell to tests.txt in \$OUT, else in ./results, too: all, or
                        those named of $(names tests | xargs)
./run bench [NAME...] [OPTION...]
                        measure, and write results.json to \$OUT, else to ./results: all, or those named of
                        $(names bench | xargs)
                        with --quick only to see that it works; with --seconds N none takes much longer;
                        with --only POINT only points with that in their titles (bench/README.md in the project)
./run demo [OPTION...]  prefill and decode on every tier, over NIXL and by shared memory, or as the options say
                        (--help lists them)
./run clients [NAME...] have programs that were not made for kvmem share memory with it, or those named:
                        $(client_names | xargs); the last two need CuPy, or CuPy and PyTorch
                        with Python (\$PYTHON, else python3)
END
    exit 2
}

names() { find "$here/$1" -type f -printf '%f\n' | sort; }

# A line a program, and at the end how many passed; what failed also tells what it printed.
run_tests() {
    local passed=0 failed=0 left_out=0 named=$# name
    cat "$here/about"
    # shellcheck disable=SC2046
    ((named)) || set -- $(names tests)
    for name in "$@"; do
        if ((!named)) && leave_out "$name"; then
            left_out=$((left_out + 1))
        elif run_test "$name"; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
        fi
    done
    echo "$passed passed, $failed failed, $left_out left out"
    ((passed > 0 && failed == 0))
}

# Whether this host can't pass a test, which is said, not hidden. Named on the command line it runs all the same.
leave_out() {
    [[ " $two_gpus " == *" $1 "* && $(count_gpus) == 1 ]] || return
    echo "left out  $1  needs 2 GPUs, this host has 1"
}

# As CUDA counts them; nothing where nobody knows.
count_gpus() {
    if [[ ${CUDA_VISIBLE_DEVICES:-} ]]; then
        tr , '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .
    elif command -v nvidia-smi >/dev/null; then
        nvidia-smi -L | grep -c '^GPU '
    fi
}

run_test() {
    local status=0 printed start=$SECONDS
    printed=$(timeout --kill-after=10 "$deadline" "$here/tests/$1" 2>&1 </dev/null) || status=$?
    if ((status == 0)); then
        echo "ok      $1  $((SECONDS - start)) s"
        return
    fi
    local why="exit status $status"
    ((status != 124 && status != 137)) || why="not done after $deadline s"
    echo "FAILED  $1  $why"
    echo "        ${printed//$'\n'/$'\n'        }"
    return 1
}

client_names() { printf '%s\n' driver cupy torch; }

# A line a check, from each client; then how many of them passed in all.
run_clients() {
    local name failed=()
    cat "$here/about"
    # shellcheck disable=SC2046
    (($#)) || set -- $(client_names)
    for name in "$@"; do
        PYTHONDONTWRITEBYTECODE=1 timeout --kill-after=10 "$deadline" "${PYTHON:-python3}" \
            "$here/clients/${name}_client.py" "$here/clients/kvmem_side" </dev/null 2>&1 || failed+=("$name")
    done
    echo "$(($# - ${#failed[@]})) of $# clients passed${failed[*]:+; failed: ${failed[*]}}"
    ((!${#failed[@]}))
}

# One that fails has written the rows it has, and does not keep the others from running.
run_benches() {
    local chosen=() files=() failed=() name
    cat "$here/about"
    mkdir -p "$out"
    while [[ ${1:-} && $1 != -* ]]; do
        chosen+=("$1")
        shift
    done
    # shellcheck disable=SC2207
    ((${#chosen[@]})) || chosen=($(names bench))
    for name in "${chosen[@]}"; do
        echo "-- $name"
        rm -f "$out/$name.json"
        "$here/bench/$name" --output "$out/$name.json" "$@" || failed+=("$name")
        [[ ! -e $out/$name.json ]] || files+=("$out/$name.json")
    done
    if ((${#files[@]})); then
        join_lists "${files[@]}" >"$out/results.json"
        rm "${files[@]}"
        echo "rows in $out/results.json"
    fi
    ((${#failed[@]} == 0)) || echo "failed: ${failed[*]}"
    ((${#failed[@]} == 0))
}

# One JSON list of several, each of which has its brackets on lines of their own.
join_lists() {
    local file comma=
    echo "["
    for file in "$@"; do
        [[ ! $comma ]] || echo ","
        sed '1d;$d' "$file"
        comma=yes
    done
    echo "]"
}

run_demo() {
    local tier share
    cat "$here/about"
    if (($#)); then
        "$here/bin/prefill_decode" "$@"
        return
    fi
    for tier in $("$here/bin/prefill_decode" --help | sed -n 's/^tiers: //p' | tr -d ,); do
        for share in '' --share; do
            echo
            "$here/bin/prefill_decode" --tier "$tier" ${share:+"$share"}
        done
    done
}

main "$@"
