#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The runner of the GPU bundle: runs tests, benches and the demo of kvmem on the GPU of this host, from this folder.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly out=${OUT:-results}
readonly deadline=600 # seconds per test
export KVMEM_TEST_DEADLINE=$((deadline / 2 - 10)) # a test runs its cases in two rounds
readonly skipped_status=77 # exit status of a test without failures and with skips

# NIXL and UCX are those of the bundle. UCX needs the CUDA runtime for GPU memory, which is part of the toolkit.
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
    examples) run_examples ;;
    clients) run_clients "$@" ;;
    doctor) exec "$here/bin/kvmem-doctor" "$@" ;;
    *) usage ;;
    esac
}

usage() {
    cat <<END
./run test [NAME...]    runs the tests, all or the named ones of
                        $(names tests | xargs)
                        and also writes their output to tests.txt in \$OUT, or in ./results
./run bench [NAME...] [OPTION...]
                        measures, and writes results.json to \$OUT, or to ./results: all benches, or the named ones of
                        $(names bench | xargs)
                        --quick only checks that they work; --seconds N limits the duration of each;
                        --only POINT selects the points with that text in their titles (bench/README.md in the project)
./run demo [OPTION...]  runs prefill and decode on every tier, over NIXL and by shared memory, or with the given options
                        (--help lists them)
./run doctor [OPTION...]
                        reports what kvmem can do on this host (--help lists the options)
./run examples          runs the C++ examples that need no options
./run clients [NAME...] shares memory between kvmem and programs that do not use it, all or the named ones of
                        $(client_names | xargs); the last two need CuPy, or CuPy and PyTorch
                        with Python (\$PYTHON, or python3)
END
    exit 2
}

names() { find "$here/$1" -type f -printf '%f\n' | sort; }

# Prints a line per program, and finally the number that passed. The output of a failed program follows its line, or the
# reasons of skips.
run_tests() {
    local passed=0 failed=0 skipped=0 name status
    cat "$here/about"
    # shellcheck disable=SC2046
    (($#)) || set -- $(names tests)
    for name in "$@"; do
        status=0
        run_test "$name" || status=$?
        case $status in
        0) passed=$((passed + 1)) ;;
        "$skipped_status") skipped=$((skipped + 1)) ;;
        *) failed=$((failed + 1)) ;;
        esac
    done
    echo "$passed passed, $failed failed, $skipped with skips"
    ((passed > 0 && failed == 0))
}

run_test() {
    local status=0 printed start=$SECONDS
    printed=$(timeout --kill-after=10 "$deadline" "$here/tests/$1" 2>&1 </dev/null) || status=$?
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
    ((status != 124 && status != 137)) || why="timed out after $deadline s"
    echo "FAILED  $1  $why"
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
        PYTHONDONTWRITEBYTECODE=1 timeout --kill-after=10 "$deadline" "${PYTHON:-python3}" \
            "$here/clients/${name}_client.py" "$here/clients/kvmem_side" </dev/null 2>&1 || failed+=("$name")
    done
    echo "$(($# - ${#failed[@]})) of $# clients passed${failed[*]:+; failed: ${failed[*]}}"
    ((!${#failed[@]}))
}

# A bench that fails keeps the rows that it has written, and the others run nevertheless.
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

# Joins JSON lists. Each has its brackets on separate lines.
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

run_examples() {
    local name
    cat "$here/about"
    for name in two_processes events; do
        echo
        "$here/bin/$name"
    done
}

main "$@"
