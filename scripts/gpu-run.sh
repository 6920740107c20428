#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The runner of the GPU bundle: runs tests, benches, examples and the demo of kvmem on the GPU of this host, from this folder.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly out=${OUT:-results}
readonly deadline=${KVMEM_TEST_SECONDS:-590} # of all tests together
readonly most=$((deadline * 2 / 5))         # of one test, so that one that hangs leaves time for those that run alone
readonly skipped_status=77 # exit status of a test without failures and with skips

# NIXL and UCX are those of the bundle. UCX needs the CUDA runtime for GPU memory, which is part of the toolkit.
for nixl in "$here"/nixl/.nixl_cu*.mesonpy.libs/libnixl_capi.so; do export KVMEM_NIXL_LIBRARY=$nixl; done
# The tests with NIXL's Python client.
export KVMEM_TEST_PYTHON=${PYTHON:-python3} KVMEM_TEST_PYTHON_CLIENT=$here/clients/nixl_client.py
export PYTHONDONTWRITEBYTECODE=1
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
    bench) run_benches bench "$@" ;;
    host-bench) run_benches host-bench "$@" ;;
    demo) run_demo "$@" ;;
    examples) run_examples "$@" ;;
    clients) run_clients "$@" ;;
    doctor) exec "$here/bin/kvmem-doctor" "$@" ;;
    *) usage ;;
    esac
}

usage() {
    cat <<END
./run test [--jobs N] [NAME...]
                        runs the tests, N at a time (default here: $(usual_jobs)), all or the named ones of
                        $(names tests | xargs)
                        and also writes their output to tests.txt in \$OUT, or in ./results.
                        $(alone | xargs)
                        run one by one after the others, because they measure the GPU or its free memory. All end within
                        \$KVMEM_TEST_SECONDS ($deadline), and each within $most s; a test that has not passed by then has failed.
                        gpu_nixl_python and gpu_nixl_python_tcp need PyTorch with Python (\$PYTHON, or python3)
./run bench [NAME...] [OPTION...]
                        measures, and writes results.json to \$OUT, or to ./results: all benches, or the named ones of
                        $(names bench | xargs)
                        --quick only checks that they work; --seconds N limits the duration of each;
                        --only TEXT|TEXT selects the points with one of these texts in their titles (bench/README.md in the project)
./run host-bench [NAME...] [OPTION...]
                        the same for the benches that need no GPU:
                        $(names host-bench | xargs)
./run demo [OPTION...]  runs prefill and decode on every tier, over NIXL and by shared memory, or with the given options
                        (--help lists them)
./run doctor [OPTION...]
                        reports what kvmem can do on this host (--help lists the options)
./run examples [--without-gpu] [NAME...]
                        runs the examples, all or the named ones of
                        $(example_names | xargs)
./run clients [NAME...] shares memory between kvmem and programs that do not use it, all or the named ones of
                        $(client_names | xargs); the last two need CuPy, or CuPy and PyTorch
                        with Python (\$PYTHON, or python3)
END
    exit 2
}

names() { find "$here/$1" -type f -printf '%f\n' | sort; }

# The tests that must run alone.
alone() { cat "$here/alone"; }

# The tests that take longest, so that they begin first; the longest at the top.
readonly longest='gpu_share_rights gpu_share_lifetime gpu_share_region gpu_reshape gpu_context gpu_resets gpu_elastic_race
    gpu_nixl_served gpu_repeats gpu_copy gpu_paths gpu_ipc gpu_two_devices gpu_share_other_gpu gpu_share_damage_layout
    gpu_share_exhaustion gpu_share_fds gpu_lost_context gpu_share_mapped gpu_repeat gpu_share_damage gpu_nixl_share
    gpu_nixl_elastic_peer gpu_share_control gpu_share_handover gpu_share_layout gpu_vmm_import gpu_layers gpu_checksum gpu_disk
    gpu_elastic_layout gpu_outers gpu_nixl_transfer'

# Each test has up to six processes with a context of half a GiB, and takes less than 2 GiB besides; each keeps up to two processors
# busy.
usual_jobs() {
    local free jobs
    jobs=$(($(nproc) * 2 / 3))
    free=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits 2>/dev/null | sort -n | head -n 1) || free=
    [[ ! $free =~ ^[0-9]+$ ]] || ((free / 5120 >= jobs)) || jobs=$((free / 5120))
    ((jobs <= 12)) || jobs=12
    ((jobs > 0)) || jobs=1
    echo "$jobs"
}

# Prints the given names: those of `longest` first, in that order.
by_duration() {
    local name
    for name in $longest; do printf '%s\n' "$@" | grep -x "$name" || true; done
    # shellcheck disable=SC2086
    printf '%s\n' "$@" | grep -vxF "$(printf '%s\n' $longest)" || true
}

# Prints a line per program when it ends, then all of them by duration, and finally the number that passed. The output of a failed
# program follows its line, or the reasons of skips.
run_tests() {
    local at_once name reports passed failed skipped together apart
    if [[ ${1:-} == --jobs ]]; then
        at_once=$2
        shift 2
    else
        at_once=$(usual_jobs)
    fi
    cat "$here/about"
    nvidia-smi --query-gpu=name,driver_version,memory.total,memory.free --format=csv,noheader 2>/dev/null || true
    echo "$at_once at a time, each within $most s, all within $deadline s"
    # shellcheck disable=SC2046
    (($#)) || set -- $(names tests)
    together=$(by_duration "$@" | grep -vxF "$(alone)") || true
    apart=$(by_duration "$@" | grep -xF "$(alone)") || true
    reports=$(mktemp -d)
    # Kernels that one program has compiled are found by the others.
    export CUDA_CACHE_PATH=${CUDA_CACHE_PATH:-$reports/kernels}
    mkdir -p "$reports/ended"
    for name in $together; do
        (($(jobs -rp | wc -l) < at_once)) || wait -n || true
        report_test "$name" "$reports/ended" &
    done
    wait
    for name in $apart; do report_test "$name" "$reports/ended"; done
    echo
    echo "by duration:"
    cat "$reports/ended"/* | sort -rn | while read -r seconds status name; do
        printf '%5d s  %-7s %s\n' "$seconds" "$(outcome "$status")" "$name"
    done
    passed=$(count_status 0 "$reports/ended")
    skipped=$(count_status "$skipped_status" "$reports/ended")
    failed=$(($# - passed - skipped))
    rm -r "$reports"
    echo "$passed passed, $failed failed, $skipped with skips, in $SECONDS s"
    ((passed > 0 && failed == 0))
}

outcome() {
    case $1 in
    0) echo ok ;;
    "$skipped_status") echo skipped ;;
    *) echo FAILED ;;
    esac
}

# Prints the output of a test as a whole, and writes its duration, status and name to a file of its name.
report_test() {
    local status=0 printed start=$SECONDS
    printed=$(run_test "$1") || status=$?
    {
        flock 9
        echo "$printed"
    } 9<"$here/run"
    echo "$((SECONDS - start)) $status $1" >"$2/$1"
}

count_status() { cat "$2"/* | awk -v status="$1" '$2 == status' | wc -l; }

run_test() {
    local status=0 printed start=$SECONDS limit=$((deadline - SECONDS))
    if ((limit < 3)); then
        echo "FAILED  $1  not run: the $deadline s of all tests are over"
        return 1
    fi
    ((limit <= most)) || limit=$most
    # The program itself ends a little earlier, and says in which case.
    printed=$(KVMEM_TEST_DEADLINE=$((limit - 2)) timeout --kill-after=5 "$limit" "$here/tests/$1" 2>&1 </dev/null) || status=$?
    if ((status == 0)); then
        echo "ok      $1  $((SECONDS - start)) s"
        return
    fi
    if ((status == skipped_status)); then
        echo "skipped $1  $((SECONDS - start)) s"
        grep -E '^(skipped|partly) ' <<<"$printed" | sort -u | sed 's/^/        /'
        return "$status"
    fi
    local why="exit status $status"
    ((status != 124 && status != 137)) || why="ended at the limit of $limit s"
    echo "FAILED  $1  $((SECONDS - start)) s, $why"
    echo "        ${printed//$'\n'/$'\n'        }"
    return 1
}

client_names() { printf '%s\n' driver cupy torch; }

# Each client prints a line per check; finally prints the number of clients that passed.
run_clients() {
    local name failed=()
    cat "$here/about"
    # shellcheck disable=SC2046
    (($#)) || set -- $(client_names)
    for name in "$@"; do
        timeout --kill-after=10 600 "${PYTHON:-python3}" \
            "$here/clients/${name}_client.py" "$here/clients/kvmem_side" </dev/null 2>&1 || failed+=("$name")
    done
    echo "$(($# - ${#failed[@]})) of $# clients passed${failed[*]:+; failed: ${failed[*]}}"
    ((!${#failed[@]}))
}

# A bench that fails keeps the rows that it has written, and the others run nevertheless.
run_benches() {
    local folder=$1 chosen=() files=() failed=() name quick=false
    shift
    cat "$here/about"
    mkdir -p "$out"
    while [[ ${1:-} && $1 != -* ]]; do
        chosen+=("$1")
        shift
    done
    # shellcheck disable=SC2207
    ((${#chosen[@]})) || chosen=($(names "$folder"))
    [[ " $* " != *" --quick "* ]] || quick=true
    for name in "${chosen[@]}"; do
        echo "-- $name"
        rm -f "$out/$name.json"
        # UCX reports peers that end, and would take SIGHUP for itself.
        UCX_LOG_LEVEL=error UCX_DEBUG_SIGNO=0 "$here/$folder/$name" --output "$out/$name.json" "$@" || failed+=("$name")
        [[ ! -e $out/$name.json ]] || files+=("$out/$name.json")
    done
    if ((${#files[@]})); then
        join_results "$quick" "${files[@]}" >"$out/results.json"
        rm "${files[@]}"
        echo "rows in $out/results.json"
    fi
    ((${#failed[@]} == 0)) || echo "failed: ${failed[*]}"
    ((${#failed[@]} == 0))
}

# join_results QUICK FILE...: prints one object for bench/record. Each file is a list of rows, with its brackets on separate lines.
join_results() {
    local file comma= commit
    commit=$(sed -n 's/.*commit \([^;]*\);.*/\1/p' "$here/about")
    echo "{\"commit\": \"$commit\", \"date\": \"$(date -u +%F)\", \"quick\": $1, \"programs\": {"
    shift
    for file in "$@"; do
        echo "$comma\"$(basename "$file" .json)\": $(cat "$file")"
        comma=,
    done
    echo "}}"
}

run_demo() {
    local tier share
    cat "$here/about"
    if (($#)); then
        "$here/examples/cpp/04_prefill_decode" "$@"
        return
    fi
    for tier in $("$here/examples/cpp/04_prefill_decode" --help | sed -n 's/^tiers: //p' | tr -d ,); do
        for share in '' --share; do
            echo
            "$here/examples/cpp/04_prefill_decode" --tier "$tier" ${share:+"$share"}
        done
    done
}

example_names() { (cd "$here/examples" && find . -type f ! -name '*prefill_decode' -printf '%P\n' | sort); }

# In a folder of their own, because some write files. Each checks what it did, and says so by its exit status.
run_examples() {
    local name left_out='^$' printed failed=() start
    if [[ ${1:-} == --without-gpu ]]; then
        left_out='^c/([0-9]+_)?(stream|ipc|serve)$'
        shift
    fi
    export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    cat "$here/about"
    # shellcheck disable=SC2046
    (($#)) || set -- $(example_names | grep -vE "$left_out")
    cd "$(mktemp -d)"
    for name in "$@"; do
        start=$SECONDS
        if printed=$(timeout --kill-after=10 120 "$here/examples/$name" 2>&1 </dev/null); then
            echo "ok      $name  $((SECONDS - start)) s"
        else
            failed+=("$name")
            echo "FAILED  $name"
        fi
        echo "        ${printed//$'\n'/$'\n'        }"
    done
    rm -r "$PWD"
    echo "$(($# - ${#failed[@]})) of $# examples ran${failed[*]:+; failed: ${failed[*]}}"
    ((!${#failed[@]}))
}

main "$@"
