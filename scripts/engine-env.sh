#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# engine-env.sh lmcache|sglang: installs an unmodified LMCache or SGLang under build/NAME/env, over the packages of scripts/vllm-env.sh, once.
# LMCache is 60 MB, SGLang 260 MB. Prints the Python that has it. Once done, nothing needs a network.
#
# engine-env.sh NAME --if-built   prints nothing if it is not installed yet
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly name=$1
readonly folder=$PWD/build/$name
readonly env=$folder/env
readonly requirements=scripts/$name-requirements.txt
readonly log=$folder/install.log

main() {
    case ${2:-} in
    --build) build "$3" ;;
    *) install "${2:-}" ;;
    esac
}

install() {
    local vllm
    vllm=$(scripts/vllm-env.sh "$1")
    [[ $vllm ]] || return 0
    if ! cmp -s "$requirements" "$env/installed"; then
        [[ $1 != --if-built ]] || return 0
        mkdir -p "$folder"
        echo "installing $name; the output is in $log" >&2
        scripts/engine-env.sh "$name" --build "$vllm" >"$log" 2>&1 || {
            echo "$name could not be installed; see $log" >&2
            exit 1
        }
    fi
    echo "$env/bin/python"
}

# PyTorch and what vLLM imports are those of vLLM's environment, which stays as it is: what is installed here comes first.
build() {
    local site
    site=$("$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    rm -rf "$env"
    "$1" -m venv "$env"
    "$env/bin/pip" install --disable-pip-version-check --no-input --no-cache-dir --no-deps -r "$requirements"
    echo "$site" >"$env/lib/python3.11/site-packages/vllm.pth"
    "$env/bin/python" -c "import $name, torch"
    cp "$requirements" "$env/installed"
}

main "$@"
