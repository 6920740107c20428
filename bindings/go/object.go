// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"os"
	"runtime"
	"sync"
	"unsafe"
)

// A handle owns one object of the library. The object is destroyed when the handle is closed and no call uses it, so
// Close can run beside calls, which C does not allow.
type handle struct {
	kind    string
	destroy func(unsafe.Pointer)

	mu      sync.Mutex
	pointer unsafe.Pointer
	calls   int
	closed  bool
}

func (h *handle) close() {
	h.mu.Lock()
	h.closed = true
	h.destroyUnused()
}

func (h *handle) release() {
	h.mu.Lock()
	h.calls--
	h.destroyUnused()
}

// destroyUnused unlocks the handle.
func (h *handle) destroyUnused() {
	var unused unsafe.Pointer
	if h.closed && h.calls == 0 {
		unused, h.pointer = h.pointer, nil
	}
	h.mu.Unlock()
	if unused != nil {
		h.destroy(unused)
	}
}

// An object is the part that all types with a handle have in common. It is the first field of each, so that a finalizer
// can be attached to it.
type object struct{ handle *handle }

// own makes an object the owner of what the library has returned. Unless it is closed, the garbage collector closes it.
func (o *object) own(kind string, pointer unsafe.Pointer, destroy func(unsafe.Pointer)) {
	o.handle = &handle{kind: kind, pointer: pointer, destroy: destroy}
	closeUnreachable(o, o.handle)
}

// use returns the object of the library, which exists until done.
func (o *object) use() (unsafe.Pointer, error) {
	if o == nil || o.handle == nil {
		return nil, invalid("the object is nil; create it by a function of this package")
	}
	h := o.handle
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, &Error{Status: ErrInvalidArgument, Message: "the " + h.kind + " is closed", wrapped: os.ErrClosed}
	}
	h.calls++
	return h.pointer, nil
}

func (o *object) done() {
	o.handle.release()
	runtime.KeepAlive(o)
}

func (o *object) closeObject() error {
	if o != nil && o.handle != nil {
		o.handle.close()
		runtime.KeepAlive(o)
	}
	return nil
}

// call makes a call of the library with an object.
func (o *object) call(f func(object unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status) error {
	pointer, err := o.use()
	if err != nil {
		return err
	}
	defer o.done()
	return try(func(failure **C.kvmem_error) C.kvmem_status { return f(pointer, failure) })
}

// try makes a call of the library without an object.
func try(f func(failure **C.kvmem_error) C.kvmem_status) error {
	var failure *C.kvmem_error
	status := f(&failure)
	return check(status, &failure)
}

// blob returns the bytes of a blob, and destroys it.
func blob(b *C.kvmem_blob) []byte {
	defer C.kvmem_blob_destroy(b)
	return C.GoBytes(C.kvmem_blob_data(b), C.int(C.kvmem_blob_size(b)))
}

// memory returns a slice of memory of the library.
func memory(address, size uint64) []byte {
	return unsafe.Slice((*byte)(C.kvmem_go_pointer(C.uint64_t(address))), size)
}
