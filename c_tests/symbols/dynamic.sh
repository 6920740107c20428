#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dynamic.sh LIBRARY SONAME: what the loader reads in the library: its name, that it stays loaded, what it needs.
set -euo pipefail
library=$1 soname=$2
section=$(readelf --dynamic --wide "$library")
failed=0

check() { # check WHAT CONDITION...
    local what=$1
    shift
    "$@" || { echo "wrong: $what"; failed=1; }
}

named() { grep -qF "Library soname: [$soname]" <<<"$section"; }
stays() { grep -E '\(FLAGS_1\)' <<<"$section" | grep -qw NODELETE; }
no_search_path() { ! grep -E '\((RPATH|RUNPATH)\)' <<<"$section"; }
needs_only_the_system() {
    ! sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' <<<"$section" |
        grep -vE '^(libc\.so\.6|libm\.so\.6|libgcc_s\.so\.1|ld-linux-[a-z0-9_-]+\.so\.[0-9])$'
}

check "the SONAME is not $soname" named
check "NODELETE is not set: unloading Rust code that has threads crashes" stays
check "a search path of the build machine is left in it" no_search_path
check "it needs more than the system's own libraries" needs_only_the_system
[[ $failed == 0 ]] || { echo "$section"; exit 1; }
