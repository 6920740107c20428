#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python.sh SOURCE PREFIX BUILD wheel|test|vllm_logic|vllm|engine|adapter|test_cuda|types|notebook|conformance|page: makes the wheel from an installed prefix, and tests what pip
# installs of it. KVMEM_LIBRARY is not set: the library is that of the wheel.
set -euo pipefail
source=$1 prefix=$2 build=$3 what=$4
tools=$source/build/python-tools/bin
here=$source/c_tests/bindings/python
site=$build/site
[[ -x $tools/python ]] || { echo "there is no Python at $tools: run scripts/setup.sh"; exit 1; }
unset KVMEM_LIBRARY
# A case that hangs is ended with all that was printed until then.
export PYTHONUNBUFFERED=1
export PYTHONPATH=$site PYTHONDONTWRITEBYTECODE=1 KVMEM_TEST_INCLUDE=$prefix/include

tests() { "$tools/python" -X dev -m pytest -q -rs -p no:cacheprovider --rootdir "$here" "$@"; }

case $what in
wheel)
    rm -rf "$build/wheels" "$site"
    wheel=$("$tools/python" "$source/scripts/wheel.py" "$prefix" "$build/wheels")
    # What auditwheel finds is the tag that the wheel has: no other library is needed, and no newer glibc.
    tag=$(basename "$wheel" .whl)
    [[ $("$tools/auditwheel" show "$wheel" | tr '\n' ' ') == *"consistent with the following platform tag: \"${tag##*-}\""* ]]
    "$tools/twine" check --strict "$wheel"
    "$tools/python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --target "$site" "$wheel"
    [[ -f $(echo "$site"/kvmem-*.dist-info/licenses/THIRD-PARTY-LICENSES) ]]
    # The package needs cffi's backend and nothing else: no compiler, no other package, no variable. So do the first programs of the page.
    rm -rf "$build/bare"
    mkdir "$build/bare"
    cp -r "$site/kvmem" "$("$tools/python" -c 'import _cffi_backend; print(_cffi_backend.__file__)')" "$build/bare"
    env -i "$tools/python" -I -S "$here/bare.py" "$build/bare" "$source/docs/python.md"
    ;;
test) tests "$here"/test_{imports,regions,layouts,transfers,statistics,stores,store_files,misuse,peers,nixl}.py ;;
vllm_logic)
    tests "$here"/test_{blocks,vllm,vllm_units,vllm_host_copies,vllm_handover,vllm_exchange,vllm_faults,vllm_epochs,vllm_by_layer,vllm_states,vllm_directory,vllm_tier_jobs}.py
    UCX_TLS=tcp UCX_NET_DEVICES=lo tests "$here/test_vllm_epochs.py" -k nixl
    ;;
vllm) "$source/examples/python/vllm/demo.py" "$5" --small ;;
adapter)
    python=$5
    shift 5
    tested=("${@/#/$here/test_}")
    PATH=$(dirname "$python"):$PATH "$python" -m pytest -q -p no:cacheprovider --rootdir "$here" "${tested[@]/%/.py}"
    ;;
engine) "$5" "$source/examples/python/paged_demo.py" --device cpu --small ;;
test_cuda) LD_LIBRARY_PATH=$KVMEM_STAND_IN tests "$here"/test_{cuda,vmm,vllm_units_cuda}.py ;;
types)
    cd "$site"
    "$tools/mypy" --strict --no-incremental -p kvmem
    # basedpyright is pyright with a node of its own. Then what a user's program sees: each public name has a type and a docstring.
    echo '{"include": ["kvmem"], "typeCheckingMode": "standard", "pythonVersion": "3.10", "reportMissingModuleSource": "none"}' >pyrightconfig.json
    # PyTorch is not installed with these tools, and is not the module kvmem.torch: its names have any type.
    mkdir -p typings/torch
    echo 'def __getattr__(name: str): ...' >typings/torch/__init__.pyi
    "$tools/basedpyright" --pythonpath "$tools/python" --warnings
    "$tools/basedpyright" --pythonpath "$tools/python" --verifytypes kvmem --ignoreexternal >"$build/types"
    grep -x 'Type completeness score: 100%' "$build/types"
    ! grep -E '(Functions|Classes) without docstring: [^0]' "$build/types"
    ;;
notebook) "$tools/python" "$here/notebook.py" "$source/examples/python/tour.py" ;;
conformance) "$source/c_tests/conformance/run.sh" "$tools/python" -X dev "$source/c_tests/conformance/python/main.py" ;;
page) "$tools/python" "$here/page.py" "$build/page" "$source"/{docs/python,README}.md ;;
*) exit 2 ;;
esac
