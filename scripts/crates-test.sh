#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# crates-test.sh [ADVISORIES]: cargo-deny finds nothing wrong with the sources, licences, versions and advisories of the crates that the libraries
# are built from, and finds each kind of fault that is seeded. It is installed in build/cargo-deny, which takes some minutes.
#
# ADVISORIES is a checkout of https://github.com/RustSec/advisory-db, for a machine without a network (default: it is fetched).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly version=0.20.2 root=build/cargo-deny
readonly deny=$root/bin/cargo-deny database=$root/advisory-dbs
# The name that cargo-deny gives the folder of its default database.
readonly checkout=$database/advisory-db-3157b0e258782691

[[ -x $deny && $("$deny" --version) == "cargo-deny $version" ]] ||
    CARGO_TARGET_DIR=$root/target cargo install --quiet --locked --root "$root" --version "$version" cargo-deny

offline=()
if [[ ${1:-} ]]; then
    offline=(--offline)
    rm -rf "$database"
    mkdir -p "$database"
    git clone --quiet "$1" "$checkout"
fi

# checked FOLDER CONFIG
checked() { "$deny" "${offline[@]}" --locked --log-level error --manifest-path "$1/Cargo.toml" --config "$2" check >"$root/output" 2>&1; }

sed "s|^\[advisories\]|&\ndb-path = \"$PWD/$database\"|" deny.toml >"$root/deny.toml"
for folder in . etcd; do
    checked "$folder" "$root/deny.toml" || { cat "$root/output"; exit 1; }
done

# found WORDS COMMAND_OF_SED: the changed settings have cargo-deny report these words.
found() {
    sed "$2" "$root/deny.toml" >"$root/seeded.toml"
    if checked . "$root/seeded.toml" || ! grep -q "$1" "$root/output"; then
        echo "not found: $1"
        cat "$root/output"
        exit 1
    fi
}
found "error\[rejected\].*license" 's/"MIT", //'
found "error\[duplicate\].*libloading" '/libloading/d'
found "error\[source-not-allowed\]" 's/^unknown-registry.*/&\nallow-registry = []/'
mkdir -p "$checkout/crates/libc"
printf '```toml\n[advisory]\nid = "RUSTSEC-2000-0001"\npackage = "libc"\ndate = "2000-01-01"\n[versions]\npatched = []\n```\n# A seeded advisory\nOf libc.\n' \
    >"$checkout/crates/libc/RUSTSEC-2000-0001.md"
trap 'rm "$checkout/crates/libc/RUSTSEC-2000-0001.md"' EXIT
offline=(--offline)
found "error\[vulnerability\]" ''
echo "crates-test: nothing found; 4 of 4 seeded faults were found; advisories of $(git -C "$checkout" log -1 --format=%cs)"
