#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dynamic.sh LIBRARY SONAME: what the loader reads in the library: its name, that it stays loaded, what it needs, and the versions of its symbols.
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
has_versions() {
    local symbols
    symbols=$(nm -D --defined-only --with-symbol-versions "$library" | awk '$2 == "T" { print $3 }')
    [[ $symbols ]] && ! grep -vF "@@$soname" <<<"$symbols"
}

check "the SONAME is not $soname" named
check "NODELETE is not set: unloading Rust code that has threads crashes" stays
check "a search path of the build machine is left in it" no_search_path
check "a function has not the SONAME as its version" has_versions
check "it needs more than the system's own libraries" needs_only_the_system
[[ $failed == 0 ]] || { echo "$section"; exit 1; }
