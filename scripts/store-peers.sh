#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what bench/22_store_peers.py compares with, under build/store-peers, once: LMCache and vLLM (scripts/engine-env.sh), LMCache's package
# for raw_block, and foyer, which cargo builds in some minutes. The newest wheel of kvmem is installed each time. Prints the Python that has them.
#
# store-peers.sh --if-built   prints nothing if they are not installed yet, or another wheel of kvmem
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly folder=$PWD/build/store-peers
readonly env=$folder/env
readonly requirements=scripts/store-peers-requirements.txt
readonly log=$folder/install.log

main() {
    case ${1:-} in
    --build) build "$2" "$3" ;;
    *) install "${1:-}" ;;
    esac
}

install() {
    local python wheel
    python=$(scripts/engine-env.sh lmcache "$1")
    wheel=$(ls -t build/wheels/kvmem-*.whl 2>/dev/null | head -n 1)
    if [[ $1 == --if-built ]]; then
        [[ $python && $wheel && -e $folder/foyer/release/libfoyer_reference.so ]] || return 0
        cmp -s "$requirements" "$env/installed" && cmp -s "$wheel" "$env/kvmem.whl" || return 0
    else
        [[ $wheel ]] || {
            echo "there is no wheel of kvmem: make wheel" >&2
            exit 1
        }
        mkdir -p "$folder"
        echo "installing foyer and LMCache's raw_block; the output is in $log" >&2
        scripts/store-peers.sh --build "$python" "$wheel" >"$log" 2>&1 || {
            echo "they could not be installed; see $log" >&2
            exit 1
        }
    fi
    echo "$env/bin/python"
}

# What LMCache and vLLM import is in their environments, which stay as they are.
build() {
    local site
    CARGO_TARGET_DIR=$folder/foyer cargo build --release --locked --manifest-path bench/reference/foyer/Cargo.toml
    if ! cmp -s "$requirements" "$env/installed"; then
        site=$("$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        rm -rf "$env"
        "$1" -m venv "$env"
        add --no-cache-dir -r "$requirements"
        echo "import site; site.addsitedir('$site')" >"$env/lib/python3.11/site-packages/engines.pth"
        cp "$requirements" "$env/installed"
    fi
    add --no-index --force-reinstall "$2"
    cp "$2" "$env/kvmem.whl"
}

add() {
    "$env/bin/python" -m pip install --disable-pip-version-check --no-input --no-deps "$@"
}

main "$@"
