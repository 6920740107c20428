// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"runtime/cgo"
	"unsafe"
)

// MemoryOptions select the memory that a layout allocates: SystemOptions, PinnedOptions, DeviceOptions, ElasticOptions or
// DiskOptions, with Size 0.
type MemoryOptions interface {
	allocate(*C.kvmem_layout_options, *arena)
}

// SystemOptions are options of NewSystemRegion.
type SystemOptions struct {
	Flags SystemFlags
	// Size in bytes, at least 1. It must be 0 in the options of a layout, which computes it.
	Size uint64
	// HugePageSize in bytes, from the reserved pool of the system: 2097152 or 1073741824; 0 for other pages.
	HugePageSize uint64
	// NUMANode of SystemNUMABind; 0 without that flag.
	NUMANode uint32
	// PrefaultThreads touch every page before the call returns; 0: pages are allocated on first access.
	PrefaultThreads uint32
}

func (s SystemOptions) c(a *arena) *C.kvmem_system_options {
	o := newOptions[C.kvmem_system_options](a)
	o.flags = C.uint64_t(s.Flags)
	o.size = C.uint64_t(s.Size)
	o.huge_page_size = C.uint64_t(s.HugePageSize)
	o.numa_node = C.uint32_t(s.NUMANode)
	o.prefault_threads = C.uint32_t(s.PrefaultThreads)
	return o
}

func (s SystemOptions) allocate(o *C.kvmem_layout_options, a *arena) { o.system = s.c(a) }

// PinnedOptions are options of NewPinnedRegion.
type PinnedOptions struct {
	Flags PinnedFlags
	// Size in bytes, at least 1. It must be 0 in the options of a layout, which computes it.
	Size uint64
	// ChunkSize in bytes per page lock, a multiple of the page size; 0 for 64 GiB.
	ChunkSize uint64
	// Progress is called between chunks with the number of bytes; false cancels the allocation. Not called for a layout.
	Progress func(done, total uint64) bool
	// Device is the GPU that accesses the memory.
	Device int32
	// NUMANode of PinnedNUMABind; 0 without that flag.
	NUMANode uint32
	// Threads that touch the pages; 0 for one per core, at most 8.
	Threads uint32
}

func (s PinnedOptions) c(a *arena) *C.kvmem_pinned_options {
	o := newOptions[C.kvmem_pinned_options](a)
	o.flags = C.uint64_t(s.Flags)
	o.size = C.uint64_t(s.Size)
	o.chunk_size = C.uint64_t(s.ChunkSize)
	o.device = C.int32_t(s.Device)
	o.numa_node = C.uint32_t(s.NUMANode)
	o.threads = C.uint32_t(s.Threads)
	return o
}

func (s PinnedOptions) allocate(o *C.kvmem_layout_options, a *arena) { o.pinned = s.c(a) }

func newHandle(value any) cgo.Handle { return cgo.NewHandle(value) }

// DeviceOptions are options of NewDeviceRegion.
type DeviceOptions struct {
	// Size in bytes, at least 1. It must be 0 in the options of a layout, which computes it.
	Size uint64
	// Device is the GPU, in the order of CUDA_VISIBLE_DEVICES.
	Device int32
}

func (s DeviceOptions) c(a *arena) *C.kvmem_device_options {
	o := newOptions[C.kvmem_device_options](a)
	o.size = C.uint64_t(s.Size)
	o.device = C.int32_t(s.Device)
	return o
}

func (s DeviceOptions) allocate(o *C.kvmem_layout_options, a *arena) { o.device = s.c(a) }

// ElasticOptions are options of NewElasticRegion.
type ElasticOptions struct {
	Flags ElasticFlags
	// Size is the maximum size in bytes, rounded up to whole extents. It must be 0 in the options of a layout.
	Size uint64
	// ExtentSize in bytes, a multiple of the recommended granularity; 0 for 64 MiB. It must be 0 in the options of a layout.
	ExtentSize uint64
	// Device is the GPU, in the order of CUDA_VISIBLE_DEVICES.
	Device int32
}

func (s ElasticOptions) c(a *arena) *C.kvmem_elastic_options {
	o := newOptions[C.kvmem_elastic_options](a)
	o.flags = C.uint64_t(s.Flags)
	o.size = C.uint64_t(s.Size)
	o.extent_size = C.uint64_t(s.ExtentSize)
	o.device = C.int32_t(s.Device)
	return o
}

func (s ElasticOptions) allocate(o *C.kvmem_layout_options, a *arena) { o.elastic = s.c(a) }

// DiskOptions are options of NewDiskRegion.
type DiskOptions struct {
	Flags DiskFlags
	// Size in bytes, at least 1; 0 with DiskOpenExisting for the whole file. It must be 0 in the options of a layout.
	Size uint64
	// Path of the file; "" for a temporary file, which is deleted with the region or with the process.
	Path string
	// Directory of a temporary file; "" for $TMPDIR, or /tmp if that is not set.
	Directory string
}

func (s DiskOptions) c(a *arena) *C.kvmem_disk_options {
	o := newOptions[C.kvmem_disk_options](a)
	o.flags = C.uint64_t(s.Flags)
	o.size = C.uint64_t(s.Size)
	o.path = a.string(s.Path)
	o.directory = a.string(s.Directory)
	return o
}

func (s DiskOptions) allocate(o *C.kvmem_layout_options, a *arena) { o.disk = s.c(a) }

// ObjectOptions are options of NewObjectRegion.
type ObjectOptions struct {
	// KeyPrefix is what all keys begin with, 1 to 1014 bytes.
	KeyPrefix string
	// ObjectSize is the bytes of an object at most, usually the block stride of the layout.
	ObjectSize uint64
	// Count of objects, usually the number of blocks of the layout.
	Count uint64
}

func (s ObjectOptions) c(a *arena) *C.kvmem_object_options {
	o := newOptions[C.kvmem_object_options](a)
	o.key_prefix = a.string(s.KeyPrefix)
	o.object_size = C.uint64_t(s.ObjectSize)
	o.count = C.uint64_t(s.Count)
	return o
}

// BlockOptions are options of NewBlockRegion.
type BlockOptions struct {
	// DeviceID is the number of the device, as the backend knows it.
	DeviceID uint64
	// Offset in bytes from the start of the device.
	Offset uint64
	// Size in bytes, at least 1.
	Size uint64
	// Alignment of I/O, a power of two; 0 for 1.
	Alignment uint64
	// Metadata is what the backend needs to register the part.
	Metadata []byte
}

func (s BlockOptions) c(a *arena) *C.kvmem_block_options {
	o := newOptions[C.kvmem_block_options](a)
	o.device_id = C.uint64_t(s.DeviceID)
	o.offset = C.uint64_t(s.Offset)
	o.size = C.uint64_t(s.Size)
	o.alignment = C.uint64_t(s.Alignment)
	o.metadata = a.bytes(s.Metadata)
	o.metadata_size = C.size_t(len(s.Metadata))
	return o
}

// RegionInfo has the properties of a region.
type RegionInfo struct {
	// Address of the first byte: a host address, a device address, or an offset in the file.
	Address uint64
	// Size in bytes.
	Size uint64
	// MemoryPageSize in bytes of the mapping for system and pinned; bytes per extent for elastic.
	MemoryPageSize uint64
	// Alignment: offsets, sizes and memory addresses of I/O to a file must be multiples of it. Others: 1.
	Alignment uint64
	Flags     RegionFlags
	Tier      Tier
	Origin    Origin
	// Device is the GPU that the memory is located on, or was page-locked for; -1 for none.
	Device int32
	// NUMANode of the pages; -1 for any.
	NUMANode int32
	// FD is the open file of a disk region, which the caller must not close. Others: -1.
	FD int32
	// RegistrationCount is the number of agents that the region is registered with; AgentName returns their names.
	RegistrationCount uint32
	// NumExtents that the addresses of elastic memory can hold. This and the next two fields of a view are those of its region.
	NumExtents uint64
	// NumCommitted extents have memory.
	NumCommitted uint64
	// Generation is the number of times that the memory at any address has changed.
	Generation uint64
}

// Residency is the resident memory of a region, in bytes.
type Residency struct{ ResidentBytes, TransparentHugeBytes, SwappedBytes uint64 }

// Holders are references to the memory of a region at one moment.
type Holders struct {
	// References in this process: one per handle, view, registration and share; one or more per layout.
	References uint64
	// Views of it, including those that a layout created for its parts.
	Views uint64
	// Registrations with agents.
	Registrations uint64
	// Shares of it that are not closed.
	Shares uint64
	// Importers is the number of times that other processes have it open.
	Importers uint64
	// Handles to it that are not closed, including this one.
	Handles uint64
}

// pairsOf returns a pointer to pairs in C memory.
func pairsOf(a *arena, pairs []BlockPair) *C.kvmem_block_pair {
	if len(pairs) == 0 {
		return nil
	}
	result := a.allocate(uintptr(len(pairs)) * C.sizeof_kvmem_block_pair)
	copy(unsafe.Slice((*BlockPair)(result), len(pairs)), pairs)
	return (*C.kvmem_block_pair)(result)
}
