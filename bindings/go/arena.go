// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"strings"
	"unsafe"
)

// An arena is C memory for the arguments of one call: cgo does not allow Go memory that contains pointers to Go memory.
// All of it is zeroed, and freed after the call.
type arena struct {
	chunks     []unsafe.Pointer
	next       unsafe.Pointer
	left       uintptr
	badStrings []string
}

const arenaChunk = 4096

func (a *arena) allocate(size uintptr) unsafe.Pointer {
	size = (size + 15) &^ 15
	if size > a.left {
		chunk := uintptr(arenaChunk)
		if size > chunk {
			chunk = size
		}
		a.next = C.calloc(1, C.size_t(chunk))
		if a.next == nil {
			panic("kvmem: no memory for the arguments of a call")
		}
		a.left = chunk
		a.chunks = append(a.chunks, a.next)
	}
	result := a.next
	a.next = unsafe.Add(a.next, size)
	a.left -= size
	return result
}

func (a *arena) free() {
	for _, chunk := range a.chunks {
		C.free(chunk)
	}
	a.chunks, a.left = nil, 0
}

// newOptions returns a struct of options that has its size, which is the first field of each.
func newOptions[T any](a *arena) *T {
	size := unsafe.Sizeof(*new(T))
	options := a.allocate(size)
	*(*C.size_t)(options) = C.size_t(size)
	return (*T)(options)
}

// string copies a string; "" becomes NULL.
func (a *arena) string(s string) *C.char {
	if s == "" {
		return nil
	}
	return a.text(s)
}

// text copies a string; "" stays one.
func (a *arena) text(s string) *C.char {
	if strings.IndexByte(s, 0) >= 0 {
		a.badStrings = append(a.badStrings, s)
	}
	result := a.allocate(uintptr(len(s)) + 1)
	copy(unsafe.Slice((*byte)(result), len(s)), s)
	return (*C.char)(result)
}

// bytes copies bytes. An empty slice becomes a pointer that is not NULL, nil becomes NULL.
func (a *arena) bytes(b []byte) unsafe.Pointer {
	if b == nil {
		return nil
	}
	result := a.allocate(uintptr(len(b)) + 1)
	copy(unsafe.Slice((*byte)(result), len(b)), b)
	return result
}

// words copies block ids, checksums or user ids.
func (a *arena) words(w []uint32) *C.uint32_t {
	if len(w) == 0 {
		return nil
	}
	result := (*C.uint32_t)(a.allocate(uintptr(len(w)) * 4))
	copy(unsafe.Slice((*uint32)(unsafe.Pointer(result)), len(w)), w)
	return result
}

// epochs copies epochs.
func (a *arena) epochs(e []uint64) *C.uint64_t {
	if len(e) == 0 {
		return nil
	}
	result := (*C.uint64_t)(a.allocate(uintptr(len(e)) * 8))
	copy(unsafe.Slice((*uint64)(unsafe.Pointer(result)), len(e)), e)
	return result
}

// pointers returns an array for pointers to objects.
func (a *arena) pointers(count int) []unsafe.Pointer {
	if count == 0 {
		return nil
	}
	return unsafe.Slice((*unsafe.Pointer)(a.allocate(uintptr(count)*unsafe.Sizeof(uintptr(0)))), count)
}

// check fails if a string cannot be a string of C.
func (a *arena) check() error {
	if len(a.badStrings) > 0 {
		return invalid("the string " + quote(a.badStrings[0]) + " contains a NUL")
	}
	return nil
}

func quote(s string) string { return `"` + strings.ReplaceAll(s, "\x00", `\x00`) + `"` }

// users holds objects that one call uses together.
type users struct{ objects []*object }

// pointer returns the object of the library; nil if the object is nil.
func (u *users) pointer(o *object) (unsafe.Pointer, error) {
	if o == nil {
		return nil, nil
	}
	pointer, err := o.use()
	if err == nil {
		u.objects = append(u.objects, o)
	}
	return pointer, err
}

func (u *users) done() {
	for _, o := range u.objects {
		o.done()
	}
}
