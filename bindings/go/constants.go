// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

// LogLevel is the importance of a log message.
type LogLevel uint32

const (
	// No messages.
	LogOff LogLevel = C.KVMEM_LOG_OFF
	// Failures that no return value can report.
	LogError LogLevel = C.KVMEM_LOG_ERROR
	// Something works, but not as well as requested.
	LogWarn LogLevel = C.KVMEM_LOG_WARN
	// Milestones, such as a loaded library, and slow paths that are caused by the setup.
	LogInfo LogLevel = C.KVMEM_LOG_INFO
	// Creation and destruction of regions, layouts and transfers; start and end of runs; opened files,
	// registrations, shares; failed calls. Regions, layouts, transfers, shares, queues and agents have
	// a number, as in "transfer #7".
	LogDebug LogLevel = C.KVMEM_LOG_DEBUG
	// All calls, timeouts, and the steps of operations.
	LogTrace LogLevel = C.KVMEM_LOG_TRACE
)

// Domain is the library or system that the native cause of an error is from.
type Domain uint32

const (
	// There is no native cause.
	DomainNone Domain = C.KVMEM_DOMAIN_NONE
	// The code is an errno value.
	DomainErrno Domain = C.KVMEM_DOMAIN_ERRNO
	// The code is a status of NIXL's C API.
	DomainNIXL Domain = C.KVMEM_DOMAIN_NIXL
	// The code is a CUresult.
	DomainCUDA Domain = C.KVMEM_DOMAIN_CUDA
)

// Tier is the kind of memory of a region.
type Tier uint32

const (
	// Host memory.
	TierSystem Tier = C.KVMEM_TIER_SYSTEM
	// A file.
	TierDisk Tier = C.KVMEM_TIER_DISK
	// Page-locked host memory, which GPUs access by DMA.
	TierPinned Tier = C.KVMEM_TIER_PINNED
	// GPU memory.
	TierDevice Tier = C.KVMEM_TIER_DEVICE
	// GPU memory that grows and shrinks at fixed addresses.
	TierElastic Tier = C.KVMEM_TIER_ELASTIC
	// Objects of an object store, which NIXL reads and writes.
	TierObject Tier = C.KVMEM_TIER_OBJECT
	// Block storage, which NIXL reads and writes.
	TierBlock Tier = C.KVMEM_TIER_BLOCK
)

// SystemFlags are flags of SystemOptions.
type SystemFlags uint64

const (
	// Ask the kernel for transparent huge pages for a region of any size, and report their absence:
	// RegionHugePageFallback. Without this flag kvmem asks for them for regions of at least one huge page
	// (2 MiB on x86-64).
	SystemTransparentHugePages SystemFlags = C.KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES
	// Fail if the requested page size is not available. Without this flag smaller pages are used, and
	// the info of the region has RegionHugePageFallback.
	SystemHugePagesRequired SystemFlags = C.KVMEM_SYSTEM_HUGE_PAGES_REQUIRED
	// Bind the memory to NUMANode.
	SystemNUMABind SystemFlags = C.KVMEM_SYSTEM_NUMA_BIND
	// Allocate from a memory file, so that the region can be shared with other processes.
	SystemShareable SystemFlags = C.KVMEM_SYSTEM_SHAREABLE
	// Use ordinary pages only. For memory of which small parts far from each other are accessed: with huge
	// pages the first access to a byte allocates 2 MiB.
	SystemNoHugePages SystemFlags = C.KVMEM_SYSTEM_NO_HUGE_PAGES
	// With SystemShareable: no other process can ever map the memory for writing, whatever it opens. It
	// can be shared with ShareReadOnly only.
	SystemWriteSealed SystemFlags = C.KVMEM_SYSTEM_WRITE_SEALED
)

// PinnedFlags are flags of PinnedOptions.
type PinnedFlags uint64

const (
	// Use ordinary pages only.
	PinnedNoHugePages PinnedFlags = C.KVMEM_PINNED_NO_HUGE_PAGES
	// Bind the memory to NUMANode.
	PinnedNUMABind PinnedFlags = C.KVMEM_PINNED_NUMA_BIND
	// Allocate from a memory file, so that the region can be shared with other processes.
	PinnedShareable PinnedFlags = C.KVMEM_PINNED_SHAREABLE
	// With PinnedShareable: as SystemWriteSealed.
	PinnedWriteSealed PinnedFlags = C.KVMEM_PINNED_WRITE_SEALED
)

// ElasticFlags are flags of ElasticOptions.
type ElasticFlags uint64

const (
	// Extents can be shared by fabric handle (ShareFabric) as well as by file descriptor. This cannot
	// be enabled later.
	ElasticFabric ElasticFlags = C.KVMEM_ELASTIC_FABRIC
)

// DiskFlags are flags of DiskOptions.
type DiskFlags uint64

const (
	// Use the page cache. Without this flag I/O bypasses it (O_DIRECT) if the file system supports
	// that.
	DiskBuffered DiskFlags = C.KVMEM_DISK_BUFFERED
	// Fail if the file system does not support O_DIRECT. Without this flag the page cache is used
	// instead, and the info of the region lacks RegionDirectIO.
	DiskDirectRequired DiskFlags = C.KVMEM_DISK_DIRECT_REQUIRED
	// Open the file at Path, which must exist and not be empty. Without this flag the file is
	// created.
	DiskOpenExisting DiskFlags = C.KVMEM_DISK_OPEN_EXISTING
	// Open the file at Path if it exists, otherwise create it. An empty file is treated as a new
	// one.
	DiskOpenOrCreate DiskFlags = C.KVMEM_DISK_OPEN_OR_CREATE
	// With DiskOpenExisting: open the file for reading. The region can only be the source of
	// transfers. It can be open while a writer has the file open.
	DiskReadOnly DiskFlags = C.KVMEM_DISK_READ_ONLY
	// Do not lock the file against other writers: the caller excludes them.
	DiskNoLock DiskFlags = C.KVMEM_DISK_NO_LOCK
)

// AdoptFlags are flags of adopted memory.
type AdoptFlags uint64

const (
	// Adopt host memory for reading. It may be mapped without PROT_WRITE. The region can only be the
	// source of transfers, and cannot be registered with an agent.
	AdoptReadOnly AdoptFlags = C.KVMEM_ADOPT_READ_ONLY
	// Do not add F_SEAL_SHRINK to the seals of the file. For AdoptFile only.
	AdoptKeepSeals AdoptFlags = C.KVMEM_ADOPT_KEEP_SEALS
)

// Origin is the source of the memory of a region.
type Origin uint32

const (
	// kvmem allocated it.
	OriginAllocated Origin = C.KVMEM_ORIGIN_ALLOCATED
	// It is memory of the caller.
	OriginAdopted Origin = C.KVMEM_ORIGIN_ADOPTED
	// It is a part of another region.
	OriginView Origin = C.KVMEM_ORIGIN_VIEW
	// It is memory of another process.
	OriginImported Origin = C.KVMEM_ORIGIN_IMPORTED
)

// RegionFlags are properties of a region.
type RegionFlags uint64

const (
	// Disk: I/O bypasses the page cache.
	RegionDirectIO RegionFlags = C.KVMEM_REGION_DIRECT_IO
	// Disk: the space was reserved when this region was created. Not set for a file that existed, or
	// was opened from a share.
	RegionPreallocated RegionFlags = C.KVMEM_REGION_PREALLOCATED
	// Disk: the file has no name, and is deleted with the region.
	RegionTemporary RegionFlags = C.KVMEM_REGION_TEMPORARY
	// System and pinned: pages are smaller than requested.
	RegionHugePageFallback RegionFlags = C.KVMEM_REGION_HUGE_PAGE_FALLBACK
	// System and pinned: the memory is a memory file, which can be shared with other processes.
	RegionShareable RegionFlags = C.KVMEM_REGION_SHAREABLE
	// The region can only be read: it was shared, adopted or opened for reading.
	RegionReadOnly RegionFlags = C.KVMEM_REGION_READ_ONLY
)

// MemoryType is NIXL's type of memory.
type MemoryType uint32

const (
	// Host memory.
	MemoryDRAM MemoryType = C.KVMEM_MEMORY_DRAM
	// GPU memory.
	MemoryVRAM MemoryType = C.KVMEM_MEMORY_VRAM
	// A file.
	MemoryFile MemoryType = C.KVMEM_MEMORY_FILE
	// A block device, or a store of blocks.
	MemoryBlock MemoryType = C.KVMEM_MEMORY_BLOCK
	// An object store.
	MemoryObject MemoryType = C.KVMEM_MEMORY_OBJECT
)

// LayoutKind selects the shape of a layout.
type LayoutKind uint32

const (
	// One region. A block contains all its layers, a layer its outer slots: base + block·⌈L·O·R⌉ +
	// layer·O·R + outer·R
	LayoutFullyContiguous LayoutKind = C.KVMEM_LAYOUT_FULLY_CONTIGUOUS
	// One region per layer. block_dim selects the order within it.
	LayoutLayerSeparate LayoutKind = C.KVMEM_LAYOUT_LAYER_SEPARATE
	// Any other order of axes, or strides that are not tight. Order and the strides of LayoutConfig
	// select it.
	LayoutOrdered LayoutKind = C.KVMEM_LAYOUT_ORDERED
)

// BlockDim selects the order within a region of a layer.
type BlockDim uint32

const (
	// base[layer] + block·⌈O·R⌉ + outer·R
	BlockDimFirst BlockDim = C.KVMEM_BLOCK_DIM_FIRST
	// base[layer] + outer·B·⌈R⌉ + block·⌈R⌉
	BlockDimSecond BlockDim = C.KVMEM_BLOCK_DIM_SECOND
)
