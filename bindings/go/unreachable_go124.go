// SPDX-License-Identifier: Apache-2.0

//go:build cgo && go1.24

package kvmem

import "runtime"

// closeUnreachable closes the handle of an object that the garbage collector finds unreachable.
func closeUnreachable(o *object, h *handle) { runtime.AddCleanup(o, (*handle).close, h) }

// pin keeps memory of the caller where it is until the function that it returns is called. Memory that is not Go's is
// not affected.
func pin(memory []byte) func() {
	pinner := new(runtime.Pinner)
	pinner.Pin(&memory[0])
	return pinner.Unpin
}
