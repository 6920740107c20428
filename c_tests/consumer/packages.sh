#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# packages.sh TREE SCRATCH VERSION SOVERSION: makes the tarball and the Debian packages, installs each where nothing else
# is, builds and runs programs against it, and removes the Debian packages without a trace.
set -euo pipefail
tree=$1 scratch=$2 version=$3 soversion=$4
here=$(dirname "${BASH_SOURCE[0]}")

rm -rf "$scratch"
mkdir -p "$scratch"/{made,tarball,clean/var/lib/dpkg/{info,updates}}
"$CPACK" --config "$tree/CPackConfig.cmake" -G "TGZ;DEB" -B "$scratch/made"

uses() { # uses PREFIX NAME
    "$here/find_package.sh" "$1" "$scratch/build/$2/find_package" "${version%.*}"
    "$here/pkg_config.sh" "$1" "$scratch/build/$2/pkg_config" "$version"
}

echo "== the tarball"
tar -xf "$scratch"/made/kvmem-"$version"-linux-*.tar.gz -C "$scratch/tarball" --strip-components 1
unpacked=$(dirname "$(find "$scratch/tarball" -type d -name include)")
uses "$unpacked" tarball
"$here/../doctor/installed.sh" "$unpacked"

echo "== the Debian packages"
: >"$scratch/clean/var/lib/dpkg/status"
names=("libkvmem$soversion" kvmem-doctor libkvmem-dev "libkvmem$soversion-dbg")
# The empty root has no C library to depend on. Their dependency on each other is still checked.
in_root() { dpkg --root="$scratch/clean" --force-not-root --force-script-chrootless --log=/dev/null "$@"; }
for name in "${names[@]}"; do
    [[ $name == "${names[0]}" || $name == kvmem-doctor ]] && force=(--force-depends) || force=()
    in_root "${force[@]}" --install "$scratch/made/${name}_${version}"_*.deb
done
uses "$scratch/clean/usr" debian
"$here/../doctor/installed.sh" "$scratch/clean/usr"
in_root --force-depends --purge "${names[@]}"
left=$(find "$scratch/clean/usr" ! -type d 2>/dev/null || true)
[[ ! $left ]] || { echo "left behind: $left"; exit 1; }
