// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import "unsafe"

// Region is a range of memory on one tier: host memory, GPU memory, a file, objects or block storage. Views, registrations, layouts, shares and
// transfers keep the memory of their regions allocated.
type Region struct {
	object
	parent any // the region of a view, the layout of one of its regions
}

func newRegion(pointer *C.kvmem_region, parent any) *Region {
	r := &Region{parent: parent}
	r.own("region", unsafe.Pointer(pointer), func(p unsafe.Pointer) { C.kvmem_region_destroy((*C.kvmem_region)(p)) })
	return r
}

// createRegion makes a call that returns a region.
func createRegion(a *arena, create func(region **C.kvmem_region, failure **C.kvmem_error) C.kvmem_status) (*Region, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	var region *C.kvmem_region
	err := try(func(failure **C.kvmem_error) C.kvmem_status { return create(&region, failure) })
	if err != nil {
		return nil, err
	}
	return newRegion(region, nil), nil
}

func (r *Region) ref() *object {
	if r == nil {
		return nil
	}
	return &r.object
}

// Close closes the handle. The memory is freed when nothing refers to it any more.
func (r *Region) Close() error { return r.ref().closeObject() }

// NewSystemRegion allocates host memory. It is page-aligned and zeroed.
func NewSystemRegion(options SystemOptions) (*Region, error) {
	var a arena
	defer a.free()
	o := options.c(&a)
	return createRegion(&a, func(region **C.kvmem_region, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_create_system(o, region, failure)
	})
}

// NewPinnedRegion allocates page-locked host memory: near the GPU, touched by several threads, page-locked and mapped for
// all contexts.
func NewPinnedRegion(options PinnedOptions) (*Region, error) {
	var a arena
	defer a.free()
	o := options.c(&a)
	if options.Progress != nil {
		handle := newHandle(options.Progress)
		defer handle.Delete()
		C.kvmem_go_set_progress(o, C.uintptr_t(handle))
	}
	return createRegion(&a, func(region **C.kvmem_region, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_create_pinned(o, region, failure)
	})
}

// NewDeviceRegion allocates GPU memory. Its content is undefined.
func NewDeviceRegion(options DeviceOptions) (*Region, error) {
	var a arena
	defer a.free()
	o := options.c(&a)
	return createRegion(&a, func(region **C.kvmem_region, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_create_device(o, region, failure)
	})
}

// NewElasticRegion reserves GPU addresses for memory that grows and shrinks. Commit allocates the memory.
func NewElasticRegion(options ElasticOptions) (*Region, error) {
	var a arena
	defer a.free()
	o := options.c(&a)
	return createRegion(&a, func(region **C.kvmem_region, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_create_elastic(o, region, failure)
	})
}

// NewDiskRegion creates or opens a file of fixed size. While the region exists, a named file is locked against other
// writers.
func NewDiskRegion(options DiskOptions) (*Region, error) {
	var a arena
	defer a.free()
	o := options.c(&a)
	return createRegion(&a, func(region **C.kvmem_region, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_create_disk(o, region, failure)
	})
}

// NewObjectRegion names objects of an object store. Nothing is read or written.
func NewObjectRegion(options ObjectOptions) (*Region, error) {
	var a arena
	defer a.free()
	o := options.c(&a)
	return createRegion(&a, func(region **C.kvmem_region, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_create_object(o, region, failure)
	})
}

// NewBlockRegion names a part of a block device. Nothing is opened.
func NewBlockRegion(options BlockOptions) (*Region, error) {
	var a arena
	defer a.free()
	o := options.c(&a)
	return createRegion(&a, func(region **C.kvmem_region, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_create_block(o, region, failure)
	})
}

// View creates a region that is a part of this one. It keeps the memory of its parent.
func (r *Region) View(offset, size uint64) (*Region, error) {
	var view *C.kvmem_region
	err := r.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_create_view((*C.kvmem_region)(p), C.uint64_t(offset), C.uint64_t(size), &view, failure)
	})
	if err != nil {
		return nil, err
	}
	return newRegion(view, r), nil
}

// Commit allocates memory for a part of an elastic region, in whole extents. Addresses do not change.
func (r *Region) Commit(offset, size uint64) error {
	return r.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_commit((*C.kvmem_region)(p), C.uint64_t(offset), C.uint64_t(size), failure)
	})
}

// Decommit frees the memory of whole extents, after it was deregistered from agents. It fails with ErrBusy if a transfer
// or a share uses an extent.
func (r *Region) Decommit(offset, size uint64) error {
	return r.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_decommit((*C.kvmem_region)(p), C.uint64_t(offset), C.uint64_t(size), failure)
	})
}

// Sync waits until the written data of a disk region is durable. It does nothing for other regions.
func (r *Region) Sync() error {
	return r.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_sync((*C.kvmem_region)(p), failure)
	})
}

// CheckOwner fails with ErrPeerLost if the owner of an imported region has freed it or has ended.
func (r *Region) CheckOwner() error {
	return r.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_check_owner((*C.kvmem_region)(p), failure)
	})
}

// Path returns the absolute path of the file of a disk region.
func (r *Region) Path() (string, error) {
	var path *C.kvmem_blob
	err := r.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_get_path((*C.kvmem_region)(p), &path, failure)
	})
	if err != nil {
		return "", err
	}
	return string(blob(path)), nil
}

// AgentName returns the name of an agent that the region is registered with. The index is less than RegistrationCount of
// the info.
func (r *Region) AgentName(index int) (string, error) {
	var name *C.kvmem_blob
	err := r.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_get_agent((*C.kvmem_region)(p), C.size_t(index), &name, failure)
	})
	if err != nil {
		return "", err
	}
	return string(blob(name)), nil
}

// Info returns the properties of the region.
func (r *Region) Info() (RegionInfo, error) {
	var i C.kvmem_region_info
	err := r.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_get_info((*C.kvmem_region)(p), &i, failure)
	})
	if err != nil {
		return RegionInfo{}, err
	}
	return RegionInfo{
		Address: uint64(i.address), Size: uint64(i.size), MemoryPageSize: uint64(i.memory_page_size), Alignment: uint64(i.alignment),
		Flags: RegionFlags(i.flags), Tier: Tier(i.tier), Origin: Origin(i.origin), Device: int32(i.device),
		NUMANode: int32(i.numa_node), FD: int32(i.fd), RegistrationCount: uint32(i.registration_count),
		NumExtents: uint64(i.num_extents), NumCommitted: uint64(i.num_committed), Generation: uint64(i.generation),
	}, nil
}

// Residency returns how much of a system or pinned region is resident in memory. It is for diagnosis, and takes
// milliseconds.
func (r *Region) Residency() (Residency, error) {
	var i C.kvmem_region_residency
	err := r.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_get_residency((*C.kvmem_region)(p), &i, failure)
	})
	if err != nil {
		return Residency{}, err
	}
	return Residency{
		ResidentBytes: uint64(i.resident_bytes), TransparentHugeBytes: uint64(i.transparent_huge_bytes),
		SwappedBytes: uint64(i.swapped_bytes),
	}, nil
}

// Holders returns the number of references to the region, in this process and in others.
func (r *Region) Holders() (Holders, error) {
	var i C.kvmem_region_holders
	err := r.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_get_holders((*C.kvmem_region)(p), &i, failure)
	})
	if err != nil {
		return Holders{}, err
	}
	return Holders{
		References: uint64(i.references), Views: uint64(i.views), Registrations: uint64(i.registrations),
		Shares: uint64(i.shares), Importers: uint64(i.importers), Handles: uint64(i.handles),
	}, nil
}

// Bytes returns the memory of a region in host memory. The slice is valid until the region, and all objects that use its
// memory, are closed. Memory of a region with RegionReadOnly must not be written.
func (r *Region) Bytes() ([]byte, error) {
	info, err := r.Info()
	if err != nil {
		return nil, err
	}
	if info.Tier != TierSystem && info.Tier != TierPinned {
		return nil, &Error{Status: ErrUnsupported, Message: "the region is not in host memory: only transfers access it"}
	}
	return memory(info.Address, info.Size), nil
}
