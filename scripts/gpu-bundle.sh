#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Creates build/gpu-bundle from the output of `make build`: a folder with the tests, the benches, the examples and the demo of
# kvmem, for a GPU host without a compiler or a network. Copy the folder there; `./run` lists the commands.
#
# gpu-bundle.sh --small   fills build/gpu-bundle-small with NIXL as set-up has installed it, and without the examples in Go and
#                         Zig: it takes a minute, and needs no network. If that NIXL is for another version of CUDA or Python than
#                         the GPU host has, the programs gpu_nixl_* fail there: UCX then takes GPU memory for host memory.
#
# KVMEM_GPU_NIXL_WHEEL  a pip requirement or a wheel file of NIXL for CUDA 13    (default: nixl-cu13==1.5.1)
# KVMEM_GPU_PYTHON      the version of Python on the GPU host, for NIXL's client (default: 3.12)
# KVMEM_PYTHON          the Python whose pip installs the wheel                  (default: python3)
set -euo pipefail

nixl_wheel=${KVMEM_GPU_NIXL_WHEEL:-nixl-cu13==1.5.1}
[[ -f $nixl_wheel ]] && nixl_wheel=$(realpath "$nixl_wheel")
readonly gpu_python=${KVMEM_GPU_PYTHON:-3.12}
readonly small=$([[ ${1:-} != --small ]] || echo yes)
python=${KVMEM_PYTHON:-python3}
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly bundle=build/gpu-bundle${small:+-small}
readonly fresh=$bundle.new # created and tested here, then renamed
readonly log=$bundle.log
readonly venv=build/nixl-cu13
wheel=$venv/unpacked
cuda=cu13
if [[ $small ]]; then
    if [[ ! $(<build/nixl-library) =~ /\.nixl_(cu[0-9]+)\.mesonpy\.libs/[^/]+$ ]]; then
        echo "the bundle needs NIXL of a wheel, and set-up has found $(<build/nixl-library):" \
            "unset KVMEM_NIXL_LIBRARY, and run 'make setup'" >&2
        exit 1
    fi
    cuda=${BASH_REMATCH[1]}
    wheel=$(realpath "$(dirname "$(<build/nixl-library)")/..")
    nixl_wheel=$(cat build/venv/wheel 2>/dev/null) || nixl_wheel=nixl-$cuda
fi
readonly wheel cuda
readonly prefix=build/gpu-prefix${small:+-small} # kvmem as installed, stripped
readonly examples=build/gpu-examples             # builds of the examples in Go and Zig
readonly max_bytes=90000000

readonly libraries=.nixl_$cuda.mesonpy.libs # the folder of NIXL in site-packages
readonly others=nixl_$cuda.libs             # the folder of the libraries that NIXL needs
readonly client=nixl_$cuda                  # the package of its Python client
readonly plugins=(UCX POSIX GDS_MT)
readonly ucx_modules=(libucm_cuda libuct_cuda libuct_cma) # loaded by UCX at run time, so no library has them as NEEDED

main() {
    rm -rf "$fresh"
    mkdir -p "$fresh"/{lib,tests,bench,host-bench,bin,examples/{c,cpp,go,zig},clients,nixl}
    kvmem
    programs
    examples_in_c
    if [[ ! $small ]]; then
        examples_in_go
        examples_in_zig
        fetch_wheel
    fi
    nixl
    cp LICENSE "$fresh/"
    cp c_tests/gpu/alone.txt "$fresh/alone"
    install -m 755 scripts/gpu-run.sh "$fresh/run"
    about >"$fresh/about"
    check_size
    check_demo
    rm -rf "$bundle"
    mv "$fresh" "$bundle"
    echo "$bundle: $(bytes "$bundle" | numfmt --to=si)B, $(cat "$bundle/about")"
}

# ---- contents --------------------------------------------------------------------------------------------------------

kvmem() {
    cmake --install build/cmake --prefix "$prefix" --strip >/dev/null
    # Named as its SONAME, by which the programs load it.
    cp -L "$prefix/lib/libkvmem.so" "$fresh/lib/$(soname "$prefix/lib/libkvmem.so")"
}

# All programs have ../lib as their RPATH.
programs() {
    shopt -s nullglob
    local tests=(build/cmake/gpu_tests/gpu_*) test bench
    ((${#tests[@]})) || fail "build/cmake/gpu_tests has no tests." "Run make gpu-bundle, which builds them first."
    for test in "${tests[@]}"; do
        # These tests need the stand-in driver.
        [[ $test == */gpu_sim_* ]] || add_program "$test" tests
    done
    for bench in build/cmake/gpu_bench/*; do add_program "$bench" bench; done
    # footprint measures the build tree's library, so it is not among them.
    for bench in build/cmake/bench/[0-9]*; do add_program "$bench" host-bench; done
    add_program build/cmake/gpu_tests/kvmem_side clients
    install -m 644 c_tests/gpu/clients/*.py "$fresh/clients/"
    install -m 644 c_tests/nixl/python_client.py "$fresh/clients/nixl_client.py"
    add_program "$prefix/bin/kvmem-doctor" bin
}

# Those in C and C++, which `make build` builds as a user does, against the installed package.
examples_in_c() {
    local source name program
    for source in examples/c/*/ examples/cpp/*/; do
        name=${source#examples/}
        name=${name%/}
        # The first is in the engine bundle; the others need an object store, or plugins of NIXL, which are not in this one.
        [[ ! $name =~ ^(cpp/[0-9]+_llama_cpp|c/[0-9]+_(objects|block_storage))$ ]] || continue
        program=$(basename "$name" | sed 's/^[0-9]*_//') # the folder has the number of the lesson
        install -s "build/cmake/examples/$name/$program" "$fresh/examples/$name"
    done
}

# Set-up installs Go and Zig. Programs in these languages find the library by LD_LIBRARY_PATH.
examples_in_go() (
    local go=$PWD/build/go/go/bin/go target=$PWD/$fresh/examples/go/
    # shellcheck disable=SC2030
    export PKG_CONFIG_PATH=$PWD/$prefix/lib/pkgconfig GOPROXY=off GOTOOLCHAIN=local GOENV=off GOTELEMETRY=off
    export GOCACHE=$PWD/$examples/go/cache GOPATH=$PWD/$examples/go/path
    cd examples/go
    "$go" build -trimpath -buildvcs=false '-ldflags=-s -w' -o "$target" ./...
)

examples_in_zig() (
    local zig=$PWD/build/zig/ziglang/zig source=$PWD/examples/zig package=$PWD/$prefix/share/kvmem/zig
    local target=$PWD/$fresh/examples/zig work=$PWD/$examples/zig example name
    # shellcheck disable=SC2031
    export PKG_CONFIG_PATH=$PWD/$prefix/lib/pkgconfig ZIG_GLOBAL_CACHE_DIR=$work/cache ZIG_LOCAL_CACHE_DIR=$work/local
    # Zig compiles its build system first; without optimisation that takes a fifth of the time.
    export ZIG_DEBUG_CMD=1
    for example in "$source"/*/; do
        example=$(basename "$example")
        name=${example#*_} # a name of Zig does not begin with a digit
        rm -rf "${work:?}/$name"
        mkdir -p "$work/$name/src"
        cd "$work/$name"
        "$zig" init --minimal >/dev/null
        "$zig" fetch --save=kvmem "$package"
        cp "$source/build.zig" .
        cp "$source/$example/main.zig" src/
        # For any x86-64 machine, not for this one.
        "$zig" build -Doptimize=ReleaseSafe -Dcpu=baseline
        install -s zig-out/bin/engine "$target/$example"
    done
)

add_program() {
    install -s "$1" "$fresh/$2/"
}

fetch_wheel() {
    [[ -e $venv/wheel && $(<"$venv/wheel") == "$(wheel_identity)" ]] && return
    echo "fetching $nixl_wheel for Python $gpu_python"
    "$python" -m venv --clear "$venv"
    # NIXL's C library needs nothing of Python; its client is for one version.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-compile --no-deps \
        --only-binary :all: --python-version "$gpu_python" --target "$wheel" "$nixl_wheel"
    wheel_identity >"$venv/wheel"
}

# Identifies a wheel: a file by its name, size and time, so that a rewritten file is installed again.
wheel_identity() {
    local file=$nixl_wheel
    [[ ! -f $file ]] || file=$(stat -c '%n %s %Y' "$file")
    echo "$file, Python $gpu_python"
}

# Copies NIXL, its Python client, the plugins that tests and benches use, and the libraries that these need: a third of the
# wheel.
nixl() (
    local target=$PWD/$fresh/nixl roots=() name
    cd "$wheel"
    roots=("$libraries/libnixl_capi.so" "$client"/*.so)
    for name in "${plugins[@]}"; do roots+=("$libraries/plugins/libplugin_$name.so"); done
    for name in "${ucx_modules[@]}"; do roots+=("$others/ucx/$name".so*); done
    { needed_by "${roots[@]}" && printf '%s\n' "$client"/*.py; } | xargs cp --parents -t "$target"
)

# Prints the given files and, recursively, the libraries of the wheel that they need.
needed_by() {
    local -A seen=()
    local queue=("$@") file name folder
    while ((${#queue[@]})); do
        file=${queue[0]}
        queue=("${queue[@]:1}")
        [[ ! ${seen[$file]:-} ]] || continue
        seen[$file]=yes
        echo "$file"
        while read -r name; do
            for folder in "$libraries" "$others"; do
                [[ ! -e $folder/$name ]] || queue+=("$folder/$name")
            done
        done < <(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
    done
}

about() {
    local commit
    commit=$(git describe --always --dirty 2>/dev/null) || commit=unknown
    echo "kvmem $(sed -n 's/^version *= *"\(.*\)"/\1/p' Cargo.toml | head -n 1), commit $commit;" \
        "$(basename "$nixl_wheel"); needs glibc $(newest_glibc) or newer"
}

# The newest version of glibc that a file of the bundle needs.
newest_glibc() {
    find "$fresh" -type f -exec readelf -V {} + 2>/dev/null | grep -o 'GLIBC_2\.[0-9]*' | sort -Vu | tail -n 1 |
        cut -d _ -f 2
}

# ---- checks ----------------------------------------------------------------------------------------------------------

check_size() {
    local size
    size=$(bytes "$fresh")
    ((size < max_bytes)) || fail "the bundle has $size bytes; it must stay below $max_bytes." \
        "List the largest files: du -a $fresh | sort -n | tail"
}

# Runs the demo, the doctor and the examples without a GPU and with an empty environment: the library, NIXL, UCX and POSIX must
# be found in the bundle.
check_demo() {
    env -i "$fresh/run" demo --tier system --blocks 16 --timeout 60 >"$log" 2>&1 ||
        fail "the demo does not run from the bundle." "$(tail -n 5 "$log")"
    env -i "$fresh/run" doctor --require=plugin:UCX,plugin:POSIX --no-rates >"$log" 2>&1 ||
        fail "kvmem-doctor does not find NIXL in the bundle." "$(tail -n 5 "$log")"
    env -i "$fresh/run" examples --without-gpu >"$log" 2>&1 ||
        fail "an example does not run from the bundle." "$(tail -n 20 "$log")"
}

soname() { readelf --dynamic --wide "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p'; }

bytes() { du -sb "$1" | cut -f 1; }

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

main
