// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import "unsafe"

// VMMAnyDevice accepts any location of imported memory.
const VMMAnyDevice = C.KVMEM_VMM_ANY_DEVICE

// VMMOptions are properties of VMM memory.
type VMMOptions struct {
	Flags VMMFlags
	// Size in bytes, a multiple of the minimum granularity. VMMGranularity ignores it.
	Size uint64
	// Location is VMMDevice (0 selects it too) or VMMHostNUMA.
	Location VMMLocation
	// ID is the GPU, or the number of the NUMA node.
	ID int32
}

func (o VMMOptions) c() *C.kvmem_vmm_options {
	return &C.kvmem_vmm_options{
		struct_size: C.sizeof_kvmem_vmm_options, flags: C.uint64_t(o.Flags), size: C.uint64_t(o.Size),
		location: C.uint32_t(o.Location), id: C.int32_t(o.ID),
	}
}

// VMMGranularity returns a granularity of VMM memory in bytes.
func VMMGranularity(options VMMOptions, which Granularity) (uint64, error) {
	var granularity C.uint64_t
	err := try(func(failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_vmm_get_granularity(options.c(), C.uint32_t(which), &granularity, failure)
	})
	return uint64(granularity), err
}

// VMMMemory is physical memory without an address.
type VMMMemory struct{ object }

func createVMMMemory(create func(**C.kvmem_vmm_memory, **C.kvmem_error) C.kvmem_status) (*VMMMemory, error) {
	var memory *C.kvmem_vmm_memory
	err := try(func(failure **C.kvmem_error) C.kvmem_status { return create(&memory, failure) })
	if err != nil {
		return nil, err
	}
	m := &VMMMemory{}
	m.own("memory", unsafe.Pointer(memory), func(p unsafe.Pointer) {
		C.kvmem_vmm_memory_destroy((*C.kvmem_vmm_memory)(p))
	})
	return m, nil
}

// NewVMMMemory creates VMM memory.
func NewVMMMemory(options VMMOptions) (*VMMMemory, error) {
	return createVMMMemory(func(memory **C.kvmem_vmm_memory, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_vmm_memory_create(options.c(), memory, failure)
	})
}

// ImportVMMFD imports memory from a file descriptor that another process exported. The device is the GPU that the memory
// must be located on; VMMAnyDevice for any location.
func ImportVMMFD(fd int, size uint64, device int32) (*VMMMemory, error) {
	return createVMMMemory(func(memory **C.kvmem_vmm_memory, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_vmm_memory_import_fd(fdOf(fd), C.uint64_t(size), C.int32_t(device), memory, failure)
	})
}

// FabricHandle is VMM memory that other processes of the same fabric can import.
type FabricHandle [64]byte

// ImportVMMFabric imports memory from a fabric handle that another process exported, as ImportVMMFD does.
func ImportVMMFabric(handle FabricHandle, size uint64, device int32) (*VMMMemory, error) {
	return createVMMMemory(func(memory **C.kvmem_vmm_memory, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_vmm_memory_import_fabric((*C.kvmem_fabric_handle)(unsafe.Pointer(&handle)), C.uint64_t(size),
			C.int32_t(device), memory, failure)
	})
}

// RetainVMMMemory retains memory that is mapped at an address in this process, such as by an engine.
func RetainVMMMemory(address uint64) (*VMMMemory, error) {
	return createVMMMemory(func(memory **C.kvmem_vmm_memory, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_vmm_memory_retain(C.uint64_t(address), memory, failure)
	})
}

func (m *VMMMemory) ref() *object {
	if m == nil {
		return nil
	}
	return &m.object
}

// Close closes the handle. The memory is freed when it has no mapping and no open file descriptor.
func (m *VMMMemory) Close() error { return m.ref().closeObject() }

// ExportFD exports the memory as a file descriptor, which the caller closes.
func (m *VMMMemory) ExportFD() (int, error) {
	var fd C.int32_t
	err := m.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_vmm_memory_export_fd((*C.kvmem_vmm_memory)(p), &fd, failure)
	})
	if err != nil {
		return -1, err
	}
	return int(fd), nil
}

// ExportFabric exports the memory as a fabric handle, which does not keep the memory allocated.
func (m *VMMMemory) ExportFabric() (FabricHandle, error) {
	var handle FabricHandle
	err := m.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_vmm_memory_export_fabric((*C.kvmem_vmm_memory)(p),
			(*C.kvmem_fabric_handle)(unsafe.Pointer(&handle)), failure)
	})
	return handle, err
}

// VMMRange is a reserved range of device addresses.
type VMMRange struct {
	object
	// Address of the first byte.
	Address uint64
	// Size in bytes.
	Size uint64
}

// NewVMMRange reserves a range of device addresses. It allocates no memory. Alignment 0 is the driver's default.
func NewVMMRange(size, alignment uint64) (*VMMRange, error) {
	var (
		reserved *C.kvmem_vmm_range
		span     C.kvmem_vmm_span
	)
	err := try(func(failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_vmm_range_create(C.uint64_t(size), C.uint64_t(alignment), &span, &reserved, failure)
	})
	if err != nil {
		return nil, err
	}
	r := &VMMRange{Address: uint64(span.address), Size: uint64(span.size)}
	r.own("range", unsafe.Pointer(reserved), func(p unsafe.Pointer) { C.kvmem_vmm_range_destroy((*C.kvmem_vmm_range)(p)) })
	return r, nil
}

func (r *VMMRange) ref() *object {
	if r == nil {
		return nil
	}
	return &r.object
}

// Close closes the handle. The addresses are freed when nothing is mapped there.
func (r *VMMRange) Close() error { return r.ref().closeObject() }

// VMMMapping is VMM memory that is mapped into a range. It keeps both alive.
type VMMMapping struct {
	object
	// Address of the first byte.
	Address uint64
	// Size in bytes: that of the memory.
	Size    uint64
	parents any
}

// Map maps memory into the range, as a whole. No GPU has access until SetAccess grants it.
func (r *VMMRange) Map(offset uint64, memory *VMMMemory) (*VMMMapping, error) {
	if memory == nil {
		return nil, invalid("the memory to map is nil")
	}
	var u users
	defer u.done()
	mapped, err := u.pointer(&memory.object)
	if err != nil {
		return nil, err
	}
	var (
		mapping *C.kvmem_vmm_mapping
		span    C.kvmem_vmm_span
	)
	err = r.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_vmm_mapping_create((*C.kvmem_vmm_range)(p), C.uint64_t(offset), (*C.kvmem_vmm_memory)(mapped),
			&span, &mapping, failure)
	})
	if err != nil {
		return nil, err
	}
	m := &VMMMapping{Address: uint64(span.address), Size: uint64(span.size), parents: []any{r, memory}}
	m.own("mapping", unsafe.Pointer(mapping), func(p unsafe.Pointer) {
		C.kvmem_vmm_mapping_destroy((*C.kvmem_vmm_mapping)(p))
	})
	return m, nil
}

func (m *VMMMapping) ref() *object {
	if m == nil {
		return nil
	}
	return &m.object
}

// Close unmaps the memory. No GPU may use its addresses any more.
func (m *VMMMapping) Close() error { return m.ref().closeObject() }

// SetAccess sets the access of a GPU to the mapping.
func (m *VMMMapping) SetAccess(device int32, access Access) error {
	return m.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_vmm_mapping_set_access((*C.kvmem_vmm_mapping)(p), C.int32_t(device), C.uint32_t(access), failure)
	})
}

// Access returns the access of a GPU to the mapping.
func (m *VMMMapping) Access(device int32) (Access, error) {
	var access C.uint32_t
	err := m.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_vmm_mapping_get_access((*C.kvmem_vmm_mapping)(p), C.int32_t(device), &access, failure)
	})
	return Access(access), err
}
