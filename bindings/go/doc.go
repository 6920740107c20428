// SPDX-License-Identifier: Apache-2.0

// Package kvmem is KV-cache memory for LLM inference engines: the Go binding of the C library kvmem.
//
// A Region is a range of memory on one tier: host memory, page-locked host memory, GPU memory or a file. A Layout maps
// each block of a KV cache to its addresses in regions. A Transfer moves blocks between two layouts. A Queue collects
// completions of transfers. A Share carries a region or a layout to another process; a Broker publishes shares by name.
// An Agent is a NIXL agent, and a Registration registers a region with it, so that peers can access the region.
//
// # Closing
//
// Each handle has a Close method, which can be called any number of times. It waits for no transfer. If the object has a
// thread, as an Agent does, its last Close waits for the end of the thread. Handles may be closed in any order: an object
// exists as long as another object uses it. A call that is in progress on another goroutine completes with the object.
// Calls after Close fail with an error that is os.ErrClosed. A handle that becomes unreachable without Close is closed by
// the garbage collector, at an undefined time.
//
// Slices that Region.Bytes, Layout.Bytes and Layout.RowBytes return are memory of the library. They are valid until the object
// they came from, and all others that use its memory, are closed: keep the object reachable while you use the slice.
//
// # Errors
//
// A call that fails returns an *Error, which has the status, the message and the native cause. errors.Is(err, ErrStale)
// compares the status, and errors.Is(err, syscall.ENOSPC) the cause.
//
// # Contexts
//
// Calls that wait have a context. Transfer.Wait cancels the transfer when the context is done, and still waits for its
// end: when it returns, the library no longer uses the blocks, unless the run ended at its RunTimeout.
//
// # Goroutines
//
// All methods of all types may be called by any number of goroutines at the same time.
package kvmem

// #cgo pkg-config: kvmem
// #include "shim.h"
import "C"

import "fmt"

// Version is the version of the library, such as "0.1.0".
func Version() string { return C.GoString(C.kvmem_version_string()) }

// ABIVersion is the version of the library's binary interface. It must equal HeaderABIVersion.
func ABIVersion() uint32 { return uint32(C.kvmem_abi_version()) }

// HeaderABIVersion is the version of the binary interface that this package was compiled with.
const HeaderABIVersion uint32 = C.KVMEM_ABI_VERSION

// Structs of another binary interface have other sizes and fields, so nothing may be called.
func init() {
	if found := ABIVersion(); found != HeaderABIVersion {
		panic(fmt.Sprintf("kvmem: libkvmem.so has binary interface %d, and this program was compiled for %d; install one of them",
			found, HeaderABIVersion))
	}
}
