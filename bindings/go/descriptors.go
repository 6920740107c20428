// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import "unsafe"

// Descriptor is memory, a file, an object or a block as NIXL addresses it. The memory need not belong to kvmem. What is not Go
// memory needs no pinning; Go memory can move, so do not register it. The descriptors of a call have one memory type.
type Descriptor struct {
	// Address, or offset in a file or object.
	Address uint64
	// Size in bytes.
	Size uint64
	// DeviceID is 0 for host memory, the ordinal of a GPU, the file descriptor of a file, the number of an object or block
	// device.
	DeviceID uint64
	// MemoryType of the memory; 0 for MemoryDRAM.
	MemoryType MemoryType
	// Metadata is what the backend needs to register or query it, such as the key of an object or the path of a file.
	Metadata []byte
	// Agent that owns the memory, for memory views of peers; otherwise "".
	Agent string
	// Region of the memory, which objects that are created from the descriptor keep alive, or nil.
	Region *Region
}

// Descriptors returns the memory of the region as descriptors: one per span that is registered.
func (r *Region) Descriptors() ([]Descriptor, error) {
	var found []C.kvmem_nixl_descriptor
	var descriptors []Descriptor
	err := r.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		region, count := (*C.kvmem_region)(p), C.size_t(0)
		status := C.kvmem_region_get_descriptors(region, nil, 0, &count, failure)
		for status == C.KVMEM_STATUS_OK && count > C.size_t(len(found)) {
			found = make([]C.kvmem_nixl_descriptor, count)
			status = C.kvmem_region_get_descriptors(region, &found[0], count, &count, failure)
			if status == C.KVMEM_STATUS_OUT_OF_RANGE { // elastic memory has got more of them
				C.kvmem_error_destroy(*failure)
				*failure = nil
				status = C.kvmem_region_get_descriptors(region, nil, 0, &count, failure)
			}
		}
		if status != C.KVMEM_STATUS_OK {
			return status
		}
		// Within the call: the metadata belongs to the region.
		for _, c := range found[:count] {
			d := Descriptor{Address: uint64(c.address), Size: uint64(c.size), DeviceID: uint64(c.device_id),
				MemoryType: MemoryType(c.memory_type), Region: r}
			if c.metadata != nil {
				d.Metadata = C.GoBytes(c.metadata, C.int(c.metadata_size))
			}
			descriptors = append(descriptors, d)
		}
		return status
	})
	return descriptors, err
}

// descriptors converts the descriptors of a call, during which the users keep their regions.
func (u *users) descriptors(a *arena, descriptors []Descriptor) (*C.kvmem_nixl_descriptor, error) {
	if len(descriptors) == 0 {
		return nil, nil
	}
	list := unsafe.Slice((*C.kvmem_nixl_descriptor)(a.allocate(uintptr(len(descriptors))*C.sizeof_kvmem_nixl_descriptor)),
		len(descriptors))
	for i, d := range descriptors {
		c := &list[i]
		c.address, c.size, c.device_id = C.uint64_t(d.Address), C.uint64_t(d.Size), C.uint64_t(d.DeviceID)
		c.memory_type = C.uint32_t(d.MemoryType)
		if d.MemoryType == 0 {
			c.memory_type = C.KVMEM_MEMORY_DRAM
		}
		if len(d.Metadata) > 0 {
			c.metadata, c.metadata_size = a.bytes(d.Metadata), C.size_t(len(d.Metadata))
		}
		c.agent = a.string(d.Agent)
		region, err := u.pointer(d.Region.ref())
		if err != nil {
			return nil, err
		}
		c.region = (*C.kvmem_region)(region)
	}
	return &list[0], a.check()
}
