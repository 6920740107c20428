#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# arm-test.sh [FILTER]...: compiles the Rust unit tests for 64-bit Arm and runs them under qemu, by default those of all modules
# that need neither NIXL nor a GPU. Those that depend on the page size run again with pages of 64 KiB, which many Arm kernels have.
#
# The emulation shows what the instructions compute, not how fast they are. It executes memory accesses in the order of x86-64,
# so it does not find a missing fence.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh arm

readonly target=aarch64-unknown-linux-gnu sysroot=/usr/aarch64-linux-gnu
readonly default=(base:: copy:: layout:: plan:: region:: run:: share::)
readonly by_page=(base:: copy:: region:: share::)
# What qemu does not emulate: the statistics of mappings are those of its own addresses, and it ignores MADV_WIPEONFORK, by which a
# forked child knows that it is one.
readonly not_emulated=(each_step_is_followed_once_it_is_populated after_a_stall_the_remaining_memory_has_small_pages
    transparent_huge_pages_start_on_their_boundary dropping_a_local_file_in_a_forked_child_closes_no_other_file)

# The build script of nixl-sys names its C++ compiler g++ for every target.
mkdir -p build/arm/bin
ln -sf "$(command -v aarch64-linux-gnu-g++)" build/arm/bin/g++
export PATH=$PWD/build/arm/bin:$PATH
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export BINDGEN_EXTRA_CLANG_ARGS_aarch64_unknown_linux_gnu="--sysroot=$sysroot -isystem $sysroot/include"
# Emulated code is slow.
export CARGO_PROFILE_TEST_OPT_LEVEL=1

# With pages of 64 KiB the emulated program crashes where it reads its own files for a backtrace.
export RUST_BACKTRACE=0

echo "-- cross-compile"
program=$(cargo test --locked --lib --no-run --target "$target" --target-dir build/arm/cargo \
    --message-format json-render-diagnostics | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
[[ -x $program ]] || { echo "cargo named no program that it has compiled" >&2; exit 1; }

# run PAGE FILTER...: fails if a test fails, or if none is selected.
run() {
    local page=$1 output count
    shift
    echo "-- pages of $page bytes: $*"
    output=$(timeout 3600 qemu-aarch64-static -L "$sysroot" -p "$page" "$program" "$@" \
        "${not_emulated[@]/#/--skip=}" | tee /dev/stderr)
    count=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' <<<"$output")
    ((count > 0)) || { echo "no test matches $*" >&2; exit 1; }
    passed+=("$count with pages of $page bytes")
}

passed=()
if (($# > 0)); then
    run 4096 "$@"
    run 65536 "$@"
else
    run 4096 "${default[@]}"
    run 65536 "${by_page[@]}"
fi
emulator=$(qemu-aarch64-static --version | sed -n '1s/.*version \([0-9.]*\).*/\1/p')
printf 'arm-test: at %s, %s, under qemu %s: passed' "$(git rev-parse --short HEAD)" "$(date -u +%F)" "$emulator"
printf ' %s;' "${passed[@]}"
echo
