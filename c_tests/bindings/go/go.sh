#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# go.sh GO PREFIX BUILD SOURCE test|test_race|conformance|example: uses the Go package of a prefix as docs/go.md says, without a
# network and without modules of others.
set -euo pipefail
go=$1 prefix=$2 build=$3 source=$4 what=$5
[[ -x $go ]] || { echo "there is no Go at '$go': run scripts/setup.sh"; exit 1; }

library=$(dirname "$(find "$prefix" -name libkvmem.so)")
module=$prefix/share/kvmem/go
export PKG_CONFIG_PATH=$library/pkgconfig LD_LIBRARY_PATH=$library:$KVMEM_STAND_IN
export GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local GOENV=off GOTELEMETRY=off
export GOCACHE=$build/cache GOPATH=$build/path KVMEM_TEST_CUDA=1

# project NAME: an empty folder that requires the package, as a user's does.
project() {
    rm -rf "${build:?}/$1"
    mkdir -p "$build/$1"
    cd "$build/$1"
    "$go" mod init "kvmem-test/$1" 2>/dev/null
    "$go" mod edit -require kvmem/bindings/go@v0.1.0 -replace "kvmem/bindings/go=$module"
}

case $what in
test)
    cd "$module"
    "$go" vet ./...
    reference=$("$go" doc -all .)
    [[ $reference == *"type Region struct"* ]]
    if grep -E '\bC\.[a-z]|_Ctype' <<<"$reference"; then
        echo "the package exports a type of C"
        exit 1
    fi
    # Without cgo the message says what is missing.
    message=$(CGO_ENABLED=0 "$go" build . 2>&1) && { echo "the package compiles without cgo"; exit 1; }
    [[ $message == *"set_CGO_ENABLED_1"* && $(wc -l <<<"$message") -eq 2 ]] || { echo "without cgo: $message"; exit 1; }
    GODEBUG=cgocheck=1 "$go" test -count=1 -timeout 240s ./...
    ;;
test_race)
    cd "$module"
    unformatted=$("$(dirname "$go")/gofmt" -l . "$source/c_tests/conformance/go" "$source/examples/go")
    [[ ! $unformatted ]] || { echo "gofmt changes: $unformatted"; exit 1; }
    export GOEXPERIMENT=cgocheck2
    "$go" vet -race ./...
    "$go" test -race -count=1 -timeout 540s ./...
    ;;
conformance)
    project conformance
    cp "$source"/c_tests/conformance/go/*.go .
    "$go" vet .
    "$go" build -o runner .
    "$source/c_tests/conformance/run.sh" "$PWD/runner"
    ;;
example)
    # Follows the page: a folder with main.go, two commands of go mod, go run.
    for example in "$source"/examples/go/*/; do
        name=$(basename "$example")
        project "${name#*_}"
        cp "$example/main.go" .
        "$go" vet .
        "$go" run . >output
        cat output
    done
    grep -q 'block 42 has the keys of block 7' ../quickstart/output
    grep -q 'all requests are offloaded' ../queue/output
    grep -q 'KVMEM_STATUS_NOT_FOUND.*/nowhere/blocks' ../queue/output
    grep -q 'blocks restored from the file have prefill.s bytes' ../two_processes/output
    ;;
esac
