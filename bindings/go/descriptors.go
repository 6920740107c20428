// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"sync"
	"unsafe"
)

// Descriptor is memory, a file, an object or a block as NIXL addresses it.
type Descriptor struct {
	// Address, or offset in a file or object.
	Address uint64
	// Size in bytes.
	Size uint64
	// DeviceID is 0 for host memory, the ordinal of a GPU, the file descriptor of a file, the number of an object or block
	// device.
	DeviceID uint64
	// Metadata is what the backend needs to register or query it, such as the key of an object or the path of a file.
	Metadata []byte
	// Agent that owns the memory, for memory views of peers; otherwise "".
	Agent string
}

func (d Descriptor) fill(a *arena, c *C.kvmem_descriptor) {
	c.address, c.size, c.device_id = C.uint64_t(d.Address), C.uint64_t(d.Size), C.uint64_t(d.DeviceID)
	if len(d.Metadata) > 0 {
		c.metadata, c.metadata_size = a.bytes(d.Metadata), C.size_t(len(d.Metadata))
	}
	c.agent = a.string(d.Agent)
}

// Descriptors is a list of descriptors of one memory type: the input of registrations, requests, queries, partial metadata
// and memory views, which copy it. The memory need not belong to kvmem. What is not Go memory needs no pinning; Go memory
// can move, so do not register it.
type Descriptors struct {
	object

	mu sync.RWMutex // held by writers, and by Get, which reads memory of the list after its call
}

// NewDescriptors creates a list.
func NewDescriptors(memoryType MemoryType, descriptors ...Descriptor) (*Descriptors, error) {
	var list *C.kvmem_descriptors
	err := try(func(failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_descriptors_create(C.uint32_t(memoryType), &list, failure)
	})
	if err != nil {
		return nil, err
	}
	d := newDescriptors(list)
	if err := d.Add(descriptors...); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// ImportDescriptors creates a list from the bytes of Descriptors.Export, which are not trusted.
func ImportDescriptors(bytes []byte) (*Descriptors, error) {
	var a arena
	defer a.free()
	data := a.bytes(bytes)
	var list *C.kvmem_descriptors
	err := try(func(failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_descriptors_import(data, C.size_t(len(bytes)), &list, failure)
	})
	if err != nil {
		return nil, err
	}
	return newDescriptors(list), nil
}

func newDescriptors(pointer *C.kvmem_descriptors) *Descriptors {
	d := &Descriptors{}
	d.own("list of descriptors", unsafe.Pointer(pointer), func(p unsafe.Pointer) {
		C.kvmem_descriptors_destroy((*C.kvmem_descriptors)(p))
	})
	return d
}

func (d *Descriptors) ref() *object {
	if d == nil {
		return nil
	}
	return &d.object
}

// Close closes the list. What was created from it is unchanged.
func (d *Descriptors) Close() error { return d.ref().closeObject() }

func (d *Descriptors) call(f func(*C.kvmem_descriptors, **C.kvmem_error) C.kvmem_status) error {
	return d.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return f((*C.kvmem_descriptors)(p), failure)
	})
}

// change makes a call that changes the list.
func (d *Descriptors) change(f func(*C.kvmem_descriptors, **C.kvmem_error) C.kvmem_status) error {
	return d.call(func(p *C.kvmem_descriptors, failure **C.kvmem_error) C.kvmem_status {
		d.mu.Lock()
		defer d.mu.Unlock()
		return f(p, failure)
	})
}

// Add adds descriptors to the end of the list: all of them, or none after an error.
func (d *Descriptors) Add(descriptors ...Descriptor) error {
	if len(descriptors) == 0 {
		return d.call(func(*C.kvmem_descriptors, **C.kvmem_error) C.kvmem_status { return C.KVMEM_STATUS_OK })
	}
	var a arena
	defer a.free()
	added := unsafe.Slice((*C.kvmem_descriptor)(a.allocate(uintptr(len(descriptors))*C.sizeof_kvmem_descriptor)), len(descriptors))
	for i, one := range descriptors {
		one.fill(&a, &added[i])
	}
	if err := a.check(); err != nil {
		return err
	}
	return d.change(func(p *C.kvmem_descriptors, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_descriptors_add(p, &added[0], C.size_t(len(added)), failure)
	})
}

// AddRegion adds the memory of a region. The list and each request on it keep the region alive.
func (d *Descriptors) AddRegion(region *Region) error {
	if region == nil {
		return invalid("the region to add is nil")
	}
	var u users
	defer u.done()
	added, err := u.pointer(&region.object)
	if err != nil {
		return err
	}
	return d.change(func(p *C.kvmem_descriptors, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_descriptors_add_region(p, (*C.kvmem_region)(added), failure)
	})
}

// Set replaces a descriptor.
func (d *Descriptors) Set(index int, descriptor Descriptor) error {
	var a arena
	defer a.free()
	c := (*C.kvmem_descriptor)(a.allocate(C.sizeof_kvmem_descriptor))
	descriptor.fill(&a, c)
	if err := a.check(); err != nil {
		return err
	}
	return d.change(func(p *C.kvmem_descriptors, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_descriptors_set(p, C.size_t(index), c, failure)
	})
}

// Get returns a copy of a descriptor.
func (d *Descriptors) Get(index int) (Descriptor, error) {
	var c C.kvmem_descriptor
	var found Descriptor
	err := d.call(func(p *C.kvmem_descriptors, failure **C.kvmem_error) C.kvmem_status {
		d.mu.RLock()
		defer d.mu.RUnlock()
		status := C.kvmem_descriptors_get(p, C.size_t(index), &c, failure)
		if status == C.KVMEM_STATUS_OK {
			found = Descriptor{Address: uint64(c.address), Size: uint64(c.size), DeviceID: uint64(c.device_id)}
			if c.metadata != nil {
				found.Metadata = C.GoBytes(c.metadata, C.int(c.metadata_size))
			}
			if c.agent != nil {
				found.Agent = C.GoString(c.agent)
			}
		}
		return status
	})
	return found, err
}

// Remove removes a descriptor. The indices of later ones decrease by one.
func (d *Descriptors) Remove(index int) error {
	return d.change(func(p *C.kvmem_descriptors, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_descriptors_remove(p, C.size_t(index), failure)
	})
}

// Resize removes the last descriptors, or adds descriptors of zeroes.
func (d *Descriptors) Resize(count int) error {
	return d.change(func(p *C.kvmem_descriptors, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_descriptors_resize(p, C.size_t(count), failure)
	})
}

// Clear removes all descriptors.
func (d *Descriptors) Clear() error {
	return d.change(func(p *C.kvmem_descriptors, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_descriptors_clear(p, failure)
	})
}

// Trim frees the memory that the list does not need for its descriptors.
func (d *Descriptors) Trim() error {
	return d.change(func(p *C.kvmem_descriptors, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_descriptors_trim(p, failure)
	})
}

// value reads a number of the list; 0 if the list is closed.
func (d *Descriptors) value(read func(*C.kvmem_descriptors) uint64) uint64 {
	var found uint64
	_ = d.call(func(p *C.kvmem_descriptors, _ **C.kvmem_error) C.kvmem_status {
		found = read(p)
		return C.KVMEM_STATUS_OK
	})
	return found
}

// Len returns the number of descriptors; 0 if the list is closed.
func (d *Descriptors) Len() int {
	return int(d.value(func(p *C.kvmem_descriptors) uint64 { return uint64(C.kvmem_descriptors_count(p)) }))
}

// MemoryType returns the memory type of the list; 0 if the list is closed.
func (d *Descriptors) MemoryType() MemoryType {
	return MemoryType(d.value(func(p *C.kvmem_descriptors) uint64 { return uint64(C.kvmem_descriptors_memory_type(p)) }))
}

// String returns the list as text: a line for the list, and one for each descriptor.
func (d *Descriptors) String() string {
	text, err := d.blob(func(p *C.kvmem_descriptors, b **C.kvmem_blob, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_descriptors_print(p, b, failure)
	})
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Export serializes the list for another process, with a version and a checksum.
func (d *Descriptors) Export() ([]byte, error) {
	return d.blob(func(p *C.kvmem_descriptors, b **C.kvmem_blob, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_descriptors_export(p, b, failure)
	})
}

func (d *Descriptors) blob(f func(*C.kvmem_descriptors, **C.kvmem_blob, **C.kvmem_error) C.kvmem_status) ([]byte, error) {
	var bytes *C.kvmem_blob
	err := d.call(func(p *C.kvmem_descriptors, failure **C.kvmem_error) C.kvmem_status { return f(p, &bytes, failure) })
	if err != nil {
		return nil, err
	}
	return blob(bytes), nil
}
