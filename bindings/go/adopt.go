// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"runtime/cgo"
	"unsafe"
)

// AdoptHost adopts host memory of the caller, such as memory of syscall.Mmap or of C. The memory must stay mapped until
// release is called, on a thread of the library, after the last object that uses the memory was closed; release may be nil.
// If the call fails, release is not called.
//
// Memory of the Go heap is pinned until then (Go 1.24 or newer; older versions keep it allocated).
func AdoptHost(memory []byte, flags AdoptFlags, release func()) (*Region, error) {
	if len(memory) == 0 {
		return nil, invalid("the memory to adopt is empty")
	}
	unpin := pin(memory)
	region, err := adopt(uint64(uintptr(unsafe.Pointer(&memory[0]))), uint64(len(memory)), flags, func() {
		unpin()
		if release != nil {
			release()
		}
	}, func(o *C.kvmem_adopt_options, region **C.kvmem_region, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_adopt_host(o, region, failure)
	})
	if err != nil {
		unpin()
	}
	return region, err
}

// AdoptDevice adopts GPU memory of the caller, such as a tensor. See AdoptHost for release.
func AdoptDevice(address, size uint64, device int32, release func()) (*Region, error) {
	if release == nil {
		release = func() {}
	}
	return adopt(address, size, 0, release,
		func(o *C.kvmem_adopt_options, region **C.kvmem_region, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_region_adopt_device(o, C.int32_t(device), region, failure)
		})
}

func adopt(address, size uint64, flags AdoptFlags, release func(),
	call func(*C.kvmem_adopt_options, **C.kvmem_region, **C.kvmem_error) C.kvmem_status) (*Region, error) {
	var a arena
	defer a.free()
	o := newOptions[C.kvmem_adopt_options](&a)
	o.flags = C.uint64_t(flags)
	o.size = C.uint64_t(size)
	handle := cgo.NewHandle(release) // deleted by kvmemGoRelease
	C.kvmem_go_set_release(o, C.uint64_t(address), C.uintptr_t(handle))
	region, err := createRegion(&a, func(region **C.kvmem_region, failure **C.kvmem_error) C.kvmem_status {
		return call(o, region, failure)
	})
	if err != nil {
		handle.Delete()
	}
	return region, err
}

// AdoptMemfdOptions are options of AdoptMemfd.
type AdoptMemfdOptions struct {
	Flags AdoptFlags
	// Offset in bytes from the start of the file to the memory, a multiple of the page size of the file.
	Offset uint64
	// Size in bytes, at least 1. The part must be within the file.
	Size uint64
	// Address at which the caller has mapped this part of the file with MAP_SHARED, until Release is called. 0: the library
	// maps it.
	Address uintptr
	// Release is called when the library no longer uses the memory; may be nil.
	Release func()
	// FD is a file from memfd_create, or on tmpfs or hugetlbfs; not 0. The caller may close it after the call.
	FD int32
}

// AdoptMemfd adopts a part of a memory file of the caller, so that it can be shared with other processes.
func AdoptMemfd(options AdoptMemfdOptions) (*Region, error) {
	var a arena
	defer a.free()
	o := newOptions[C.kvmem_adopt_memfd_options](&a)
	o.flags = C.uint64_t(options.Flags)
	o.offset = C.uint64_t(options.Offset)
	o.size = C.uint64_t(options.Size)
	o.fd = C.int32_t(options.FD)
	release := options.Release
	if release == nil {
		release = func() {}
	}
	handle := cgo.NewHandle(release)
	C.kvmem_go_set_file_release(o, C.uint64_t(options.Address), C.uintptr_t(handle))
	region, err := createRegion(&a, func(region **C.kvmem_region, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_adopt_memfd(o, region, failure)
	})
	if err != nil {
		handle.Delete()
	}
	return region, err
}
