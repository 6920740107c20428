// SPDX-License-Identifier: Apache-2.0

//go:build cgo && !go1.24

package kvmem

import "runtime"

// closeUnreachable closes the handle of an object that the garbage collector finds unreachable.
func closeUnreachable(o *object, h *handle) { runtime.SetFinalizer(o, func(*object) { h.close() }) }

// pin keeps memory of the caller allocated until the function that it returns is called. These versions of Go cannot pin
// memory, but none of their garbage collectors moves what is on the heap.
func pin(memory []byte) func() {
	return func() { runtime.KeepAlive(memory) }
}
