#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fuzz-inputs.sh SECONDS: has libFuzzer search for inputs that fail, for the same part of SECONDS for each target of fuzz/, and prints the
# rows of fuzz/records.md. Inputs that reach further code are kept in build/fuzz/inputs, with which the next run begins, too. An input that
# fails is kept there as well, and its program is printed, which replays it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly folder=build/fuzz
targets=$(sed -n '/^\[\[bin\]\]/{n;s/^name = "\(.*\)"/\1/p}' fuzz/Cargo.toml)
seconds=$(($1 / $(wc -w <<<"$targets")))
host=$(rustc -vV | sed -n 's/^host: //p')

# The counters, the table of addresses and the comparisons that libFuzzer needs, as cargo-fuzz has them, and the address sanitizer. An
# explicit target keeps the flags away from build scripts.
flags="-Zsanitizer=address -Cforce-frame-pointers=yes -Cdebug-assertions=yes -Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=" -Cllvm-args=-sanitizer-coverage-$option"
done
RUSTUP_TOOLCHAIN=nightly RUSTFLAGS=$flags CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
    cargo build --quiet --locked --release --manifest-path fuzz/Cargo.toml --target "$host" --target-dir "$folder/cargo"

# Numbers from the log of libFuzzer: of the line of an event, and of the last line.
number() { sed -n "s/^#[0-9]*\t$2 *cov: \([0-9]*\).*/\1/p" "$1" | tail -n 1; }

for target in $targets; do
    inputs=$folder/inputs/$target log=$folder/$target.log program=$folder/cargo/$host/release/$target
    mkdir -p "$inputs"
    if ! "$program" "$inputs" "fuzz/corpus/$target" -max_total_time="$seconds" -print_final_stats=1 \
        -artifact_prefix="$folder/inputs/$target-" >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        echo "$target fails. Replay it: $program $folder/inputs/$target-..." >&2
        exit 1
    fi
    runs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$log") added=$(sed -n 's/^stat::new_units_added: *//p' "$log")
    echo "| $(date -u +%F) | $(git rev-parse --short HEAD) | \`$target\` | $seconds | $runs | $(number "$log" INITED) |" \
        "$(number "$log" DONE) | $added | none |"
done
