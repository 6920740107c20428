// SPDX-License-Identifier: Apache-2.0
// Code generated from the headers by scripts/bindings.py. DO NOT EDIT.

package kvmem

// #include "shim.h"
import "C"

// LogLevel: importance of a log message.
type LogLevel uint32

const (
	// No messages.
	LogOff LogLevel = C.KVMEM_LOG_OFF
	// Failures that no return value can report.
	LogError LogLevel = C.KVMEM_LOG_ERROR
	// Something works, but not as well as requested.
	LogWarn LogLevel = C.KVMEM_LOG_WARN
	// Milestones, such as a loaded library, and methods that the setup makes slow.
	LogInfo LogLevel = C.KVMEM_LOG_INFO
	// Creation and destruction of regions, layouts and transfers; start and end of runs; opened files,
	// registrations, shares; failed calls. Objects have numbers, as in "transfer #7".
	LogDebug LogLevel = C.KVMEM_LOG_DEBUG
	// All calls, timeouts, and the steps of operations.
	LogTrace LogLevel = C.KVMEM_LOG_TRACE
)

// Domain: library or system that the native cause of an error is from.
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

// Tier: kind of memory of a region.
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

// SystemFlags: flags of SystemOptions.
type SystemFlags uint64

const (
	// Ask the kernel for transparent huge pages for a region of any size, and report their absence:
	// RegionHugePageFallback. Without this flag kvmem asks for them for regions of at least one huge page
	// (2 MiB on x86-64).
	SystemTransparentHugePages SystemFlags = C.KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES
	// Fail if the requested page size is not available. Without this flag smaller pages are used, and the
	// info of the region has RegionHugePageFallback.
	SystemHugePagesRequired SystemFlags = C.KVMEM_SYSTEM_HUGE_PAGES_REQUIRED
	// Bind the memory to `numa_node`.
	SystemNUMABind SystemFlags = C.KVMEM_SYSTEM_NUMA_BIND
	// Allocate a memory file, so that other processes can share the region.
	SystemShareable SystemFlags = C.KVMEM_SYSTEM_SHAREABLE
	// Use ordinary pages only. For memory of which small parts far from each other are accessed: with huge
	// pages the first access to a byte allocates 2 MiB.
	SystemNoHugePages SystemFlags = C.KVMEM_SYSTEM_NO_HUGE_PAGES
	// With SystemShareable: no other process can ever map the memory for writing, whatever it opens. It
	// can be shared with ShareReadOnly only.
	SystemWriteSealed SystemFlags = C.KVMEM_SYSTEM_WRITE_SEALED
)

// PinnedFlags: flags of PinnedOptions.
type PinnedFlags uint64

const (
	// Use ordinary pages only.
	PinnedNoHugePages PinnedFlags = C.KVMEM_PINNED_NO_HUGE_PAGES
	// Bind the memory to `numa_node`.
	PinnedNUMABind PinnedFlags = C.KVMEM_PINNED_NUMA_BIND
	// Allocate a memory file, so that other processes can share the region.
	PinnedShareable PinnedFlags = C.KVMEM_PINNED_SHAREABLE
	// With PinnedShareable: as SystemWriteSealed.
	PinnedWriteSealed PinnedFlags = C.KVMEM_PINNED_WRITE_SEALED
)

// ElasticFlags: flags of ElasticOptions.
type ElasticFlags uint64

const (
	// Extents can be shared by fabric handle (ShareFabric), too. This cannot be enabled later.
	ElasticFabric ElasticFlags = C.KVMEM_ELASTIC_FABRIC
)

// DiskFlags: flags of DiskOptions.
type DiskFlags uint64

const (
	// Use the page cache, which I/O bypasses by default if possible (O_DIRECT).
	DiskBuffered DiskFlags = C.KVMEM_DISK_BUFFERED
	// Fail if the file system does not support O_DIRECT. Without this flag the page cache is used instead,
	// and the info of the region lacks RegionDirectIO.
	DiskDirectRequired DiskFlags = C.KVMEM_DISK_DIRECT_REQUIRED
	// Open the file at `path`, which must exist and not be empty.
	DiskOpenExisting DiskFlags = C.KVMEM_DISK_OPEN_EXISTING
	// Open the file at `path`, or create it if it is absent or empty.
	DiskOpenOrCreate DiskFlags = C.KVMEM_DISK_OPEN_OR_CREATE
	// With DiskOpenExisting: open the file for reading. The region can only be the source of transfers. It
	// can be open while a writer has the file open.
	DiskReadOnly DiskFlags = C.KVMEM_DISK_READ_ONLY
	// Do not lock the file against other writers: the caller excludes them.
	DiskNoLock DiskFlags = C.KVMEM_DISK_NO_LOCK
)

// AdoptFlags: flags of adopted memory.
type AdoptFlags uint64

const (
	// Adopt host memory for reading. It may be mapped without PROT_WRITE. The region can only be the
	// source of transfers, and cannot be registered with an agent.
	AdoptReadOnly AdoptFlags = C.KVMEM_ADOPT_READ_ONLY
	// kvmem_region_adopt_memfd: do not seal the file with F_SEAL_SHRINK.
	AdoptKeepSeals AdoptFlags = C.KVMEM_ADOPT_KEEP_SEALS
)

// Origin: source of the memory of a region.
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

// RegionFlags: properties of a region.
type RegionFlags uint64

const (
	// Disk: I/O bypasses the page cache.
	RegionDirectIO RegionFlags = C.KVMEM_REGION_DIRECT_IO
	// Disk: space was reserved when this region was created. Not set for an existing or shared file.
	RegionPreallocated RegionFlags = C.KVMEM_REGION_PREALLOCATED
	// Disk: the file has no name, and is deleted with the region.
	RegionTemporary RegionFlags = C.KVMEM_REGION_TEMPORARY
	// System and pinned: pages are smaller than requested.
	RegionHugePageFallback RegionFlags = C.KVMEM_REGION_HUGE_PAGE_FALLBACK
	// System and pinned: the memory is a memory file, which can be shared.
	RegionShareable RegionFlags = C.KVMEM_REGION_SHAREABLE
	// It can only be read: it was shared, adopted or opened for reading.
	RegionReadOnly RegionFlags = C.KVMEM_REGION_READ_ONLY
)

// MemoryType: type of memory of NIXL.
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

// Accessor: who accesses a block.
type Accessor uint32

const (
	// A run in flight of a transfer or request of this process.
	AccessorRun Accessor = C.KVMEM_ACCESSOR_RUN
	// A run of this process that has ended, as at its deadline, while its memory is still in use. A
	// CompletionMemoryReleased reports when it no longer is.
	AccessorEndedRun Accessor = C.KVMEM_ACCESSOR_ENDED_RUN
	// The same if nothing will detect when the memory is no longer in use.
	AccessorLostRun Accessor = C.KVMEM_ACCESSOR_LOST_RUN
	// A peer, in a session that this process serves (kvmem_layout_serve).
	AccessorPeer Accessor = C.KVMEM_ACCESSOR_PEER
	// The holder of a lease (kvmem_lease_create), in any process.
	AccessorLease Accessor = C.KVMEM_ACCESSOR_LEASE
)

// LeaseFlags: flags of LeaseOptions.
type LeaseFlags uint64

const (
	// The holder may also write the blocks.
	LeaseWrites LeaseFlags = C.KVMEM_LEASE_WRITES
)

// Locality: processes that can access a layout.
type Locality uint32

const (
	// Only this process can access it: it has no agent.
	LocalityLocal Locality = C.KVMEM_LOCALITY_LOCAL
	// This process can access it, and peers of its agent.
	LocalityRegistered Locality = C.KVMEM_LOCALITY_REGISTERED
	// It belongs to a peer. Only transfers can access it.
	LocalityRemote Locality = C.KVMEM_LOCALITY_REMOTE
	// It belongs to another process and is mapped here: this process can access it like its own memory.
	LocalityMapped Locality = C.KVMEM_LOCALITY_MAPPED
)

// SubmitFlags: flags of SubmitOptions.
type SubmitFlags uint64

const (
	// After all blocks have moved, compare the CRC32C of each destination block with that of its source
	// block. The run ends after the comparison, with KVMEM_STATUS_CORRUPT if they differ;
	// kvmem_transfer_get_mismatches returns which do. Until the end nothing may write to the blocks. With
	// a range of heads or block tables, only what has moved is compared, token by token; then files with
	// direct I/O are not supported.  Both sides are read: host memory in place by several threads, GPU
	// memory by a kernel on its GPU, and files, objects and blocks of peers once more, to memory that has
	// random bytes before: a read that reports success and moves nothing is found, too. If a peer serves
	// its layout (kvmem_layout_serve), the transfer is served: the owner of the source sends checksums,
	// the other side compares what has arrived and what its blocks then have, and nothing is read twice
	// over the network. Such a run ends at the first chunk that differs; only then the blocks are read
	// once more, to find those that differ.
	SubmitVerify SubmitFlags = C.KVMEM_SUBMIT_VERIFY
	// Compute the CRC32C of the moved layers and outer slots of each block, as kvmem_layout_checksum does;
	// kvmem_transfer_get_checksums returns them after the run. Until the end nothing may write to the
	// blocks.  If the run compares whole blocks, these are the checksums of the destination that it has
	// compared, and nothing is read for them. Otherwise one side is read in place after all blocks have
	// moved, by threads or by a kernel on its GPU: the destination, if it is host or GPU memory of this
	// process, or else the source. No file or peer is read for them. Not supported in a graph, and with a
	// range of heads or block tables.
	SubmitChecksum SubmitFlags = C.KVMEM_SUBMIT_CHECKSUM
)

// TransferFlags: flags of TransferOptions.
type TransferFlags uint64

const (
	// Exclude methods that store bytes anywhere between source and destination: in staging memory, in
	// memory of the driver (which it uses if host memory is not page-locked), or in the page cache of a
	// buffered file. Excludes all methods to a peer, because NIXL does not report what its backends do.
	TransferZeroCopy TransferFlags = C.KVMEM_TRANSFER_ZERO_COPY
	// Exclude methods through host memory that is neither source nor destination: all methods between a
	// file and a GPU except GPUDirect Storage, and all methods to a peer.
	TransferNoHostBounce TransferFlags = C.KVMEM_TRANSFER_NO_HOST_BOUNCE
	// Move the layers in order, and report how many have moved: see kvmem_transfer_get_info,
	// kvmem_transfer_wait_layers and kvmem_transfer_wait_on_stream. Bytes that are contiguous across
	// layers are then moved layer by layer, which makes transfers of small fully contiguous blocks slower;
	// kvmem_transfer_explain reports by how much.
	TransferByLayer TransferFlags = C.KVMEM_TRANSFER_BY_LAYER
	// The queue gets a CompletionMemoryReleased for each run that ends before its memory is released, as
	// at its `run_timeout_ns`. Requires a queue.
	TransferReportRelease TransferFlags = C.KVMEM_TRANSFER_REPORT_RELEASE
)

// CompletionKind: what a completion reports.
type CompletionKind uint32

const (
	// A run of a transfer or request has ended.
	CompletionRunEnded CompletionKind = C.KVMEM_COMPLETION_RUN_ENDED
	// Layers of a run have moved; only with `layers_per_completion` of TransferOptions. The numbers of
	// layers of a run ascend, and its end follows. If the run succeeds, the last number is that of all
	// layers. While one waits in the queue, further ones only increase its number.
	CompletionLayersMoved CompletionKind = C.KVMEM_COMPLETION_LAYERS_MOVED
	// The memory of a run that had ended is released; only with TransferReportRelease or
	// NIXLReportRelease. It follows each CompletionRunEnded with `released` 0, once, also if the transfer
	// is destroyed meanwhile. Then the transfer can be submitted again; the completions of the next run
	// are behind this one.
	CompletionMemoryReleased CompletionKind = C.KVMEM_COMPLETION_MEMORY_RELEASED
	// An agent has messages: see kvmem_agent_report_notifications.
	CompletionNotifications CompletionKind = C.KVMEM_COMPLETION_NOTIFICATIONS
	// A directory has events: see kvmem_directory_report_events.
	CompletionEvents CompletionKind = C.KVMEM_COMPLETION_EVENTS
)

// Compute: whether kernels of the caller run during a transfer.
type Compute uint32

const (
	// Kernels of the caller may run meanwhile. Methods that slow them down are not used, or use few CTAs.
	ComputeMayRun Compute = C.KVMEM_COMPUTE_MAY_RUN
	// The GPU is idle during the transfer. Copies may use all of it.
	ComputeIdle Compute = C.KVMEM_COMPUTE_IDLE
)

// Method: how a transfer moves bytes.
type Method uint32

const (
	// Host memory: host threads copy by memcpy.
	MethodMemcpy Method = C.KVMEM_METHOD_MEMCPY
	// GPU memory: the CUDA driver copies, one call of cuMemcpyAsync per contiguous range.
	MethodCUDACopy Method = C.KVMEM_METHOD_CUDA_COPY
	// GPU memory: the CUDA driver copies all contiguous ranges by one call of cuMemcpyBatchAsync.
	MethodCUDABatch Method = C.KVMEM_METHOD_CUDA_BATCH
	// GPU memory: the CUDA driver copies rows of blocks at regular distances, by cuMemcpy2DAsync.
	MethodCUDA2d Method = C.KVMEM_METHOD_CUDA_2D
	// GPU memory: a kernel on the SMs reads and writes both sides directly.
	MethodCUDAKernel Method = C.KVMEM_METHOD_CUDA_KERNEL
	// Between host and GPU memory: a kernel gathers or scatters in staging memory on the GPU, and a copy
	// engine moves contiguous ranges.
	MethodCUDAStaged Method = C.KVMEM_METHOD_CUDA_STAGED
	// Files: io_uring. GPU memory is copied through page-locked host memory.
	MethodURING Method = C.KVMEM_METHOD_URING
	// Files: as MethodURING, with threads that call preadv and pwritev.
	MethodPread Method = C.KVMEM_METHOD_PREAD
	// Peers, files, objects, block storage: NIXL reads or writes, one descriptor per contiguous range; a
	// request writes a whole object. Between a file and GPU memory, NIXL uses GPUDirect Storage.
	MethodNIXL Method = C.KVMEM_METHOD_NIXL
	// Peers, objects: NIXL reads large ranges or whole objects to staging memory of this process, or
	// writes them from there. Host threads or a GPU scatter or gather rows.
	MethodNIXLStaged Method = C.KVMEM_METHOD_NIXL_STAGED
	// Peers that serve their layout: NIXL reads large ranges from staging memory of the owner, which
	// gathers rows, or writes them there, and the owner scatters them.
	MethodNIXLServed Method = C.KVMEM_METHOD_NIXL_SERVED
)

// Choice: what was decided about a method that was compared.
type Choice uint32

const (
	// The transfer takes the method. The reason is a remark, or empty.
	ChoiceUsed Choice = C.KVMEM_CHOICE_USED
	// The method is possible, its estimate is no better. The reason is empty.
	ChoiceSlower Choice = C.KVMEM_CHOICE_SLOWER
	// The method is not used for the given reason, and is possible as far as is known. If another method
	// was requested, agents of NIXL are not asked what they have.
	ChoiceNotUsed Choice = C.KVMEM_CHOICE_NOT_USED
	// The method is not possible, and the reason says why.
	ChoiceImpossible Choice = C.KVMEM_CHOICE_IMPOSSIBLE
)

// ServeFlags: flags of ServeOptions.
type ServeFlags uint64

const (
	// Peers may write to the layout, too.
	ServeWrite ServeFlags = C.KVMEM_SERVE_WRITE
	// Stage in page-locked host memory, also for GPU memory. Peers with layouts in host memory need it.
	ServeFromHost ServeFlags = C.KVMEM_SERVE_FROM_HOST
)

// Transport: how a share carries memory.
type Transport uint32

const (
	// Selects the transport by tier: file descriptors for system, pinned, elastic and disk memory, and for
	// device memory that an engine mapped with cuMemMap; the driver's IPC handle for other device memory.
	// Memory that can be exported only as fabric handles is carried by these.
	ShareAuto Transport = C.KVMEM_SHARE_AUTO
	// Carries memory by file descriptors.
	ShareFD Transport = C.KVMEM_SHARE_FD
	// Carries memory by the driver's IPC handle.
	ShareIPC Transport = C.KVMEM_SHARE_IPC
	// Carries no memory: other processes access the layout through NIXL.
	ShareRemote Transport = C.KVMEM_SHARE_REMOTE
	// Carries memory by the driver's fabric handles: elastic memory created with ElasticFabric, or memory
	// that an engine mapped and created with fabric handles.
	ShareFabric Transport = C.KVMEM_SHARE_FABRIC
)

// ShareFlags: flags of ShareOptions.
type ShareFlags uint64

const (
	// Grants read access only. File descriptors of host memory and files are then read-only, and GPUs get
	// no write access to extents and mappings. That prevents mistakes, and no intent: a process of the
	// same user, or root, can open such a file descriptor again for writing, unless the memory is sealed
	// (ShareWriteSealed). For device memory by IPC handle, only the importer's kvmem prevents writing.
	ShareReadOnly ShareFlags = C.KVMEM_SHARE_READ_ONLY
	// Seals host memory against writing by other processes for ever (F_SEAL_FUTURE_WRITE), before it is
	// shared. Requires ShareReadOnly. Mappings that exist remain writable, such as those of this process.
	// For memory of SystemShareable and PinnedShareable it must be set in the first share; for an adopted
	// memory file before a share that grants write access.
	ShareWriteSealed ShareFlags = C.KVMEM_SHARE_WRITE_SEALED
)

// OpenFlags: flags of OpenOptions.
type OpenFlags uint64

const (
	// Open for reading only, even if write access is granted.
	OpenReadOnly OpenFlags = C.KVMEM_OPEN_READ_ONLY
	// Page-lock host memory for the GPU `device`. The region is then pinned memory. Read-only memory can
	// be locked only for a GPU that has CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED; for others,
	// opening fails with KVMEM_STATUS_UNSUPPORTED. No effect on files and GPU memory.
	OpenPin OpenFlags = C.KVMEM_OPEN_PIN
	// Layouts: map the memory or fail, rather than use NIXL.
	OpenMappedOnly OpenFlags = C.KVMEM_OPEN_MAPPED_ONLY
	// Layouts: use NIXL, even if the memory can be mapped. Needs `agent`.
	OpenRemote OpenFlags = C.KVMEM_OPEN_REMOTE
	// Layouts: register the mapped memory with `agent`.
	OpenRegister OpenFlags = C.KVMEM_OPEN_REGISTER
	// Open GPU memory for kernels of the GPU `device`, which access it over NVLink or PCIe. Without this
	// flag, the memory is opened for the GPU that it is located on, and kernels of other GPUs fail to
	// access it. Plain device memory is opened for one GPU at a time. Elastic memory, and memory that an
	// engine mapped, stays open for its own GPU too. kvmem opens it for another GPU when a transfer there
	// gets its first blocks, which delays that call: on an H200, by 0.3 ms per extent of 64 MiB and 20 ms
	// per extent of 1 GiB. No effect on host memory, files, and memory of this process.
	OpenForDevice OpenFlags = C.KVMEM_OPEN_FOR_DEVICE
	// Open for reading and writing, and fail with KVMEM_STATUS_PERMISSION_DENIED unless write access is
	// granted. Without this flag and OpenReadOnly, the region has all granted rights (see RegionReadOnly).
	OpenReadWrite OpenFlags = C.KVMEM_OPEN_READ_WRITE
	// Map host memory that other processes can take away: reserved huge pages (`huge_page_size` of
	// SystemOptions), and adopted memory files that can be truncated (see kvmem_region_adopt_memfd). The
	// owner, and every importer with write access, can remove such pages. If this process then touches
	// them, it ends with SIGBUS. Without this flag, such memory fails with KVMEM_STATUS_UNSUPPORTED.
	OpenTrustOwner OpenFlags = C.KVMEM_OPEN_TRUST_OWNER
	// Open elastic memory, and memory that an engine mapped, for every GPU of this process that can access
	// the GPU it is located on: for an engine whose own kernels use it on several GPUs. Each GPU takes as
	// long as with OpenForDevice. No effect on other memory. Excludes OpenForDevice.
	OpenForAllDevices OpenFlags = C.KVMEM_OPEN_FOR_ALL_DEVICES
)

// SharedObject: kind of object that is shared.
type SharedObject uint32

const (
	// The share is of a region.
	SharedRegion SharedObject = C.KVMEM_SHARED_REGION
	// The share is of a layout.
	SharedLayout SharedObject = C.KVMEM_SHARED_LAYOUT
)

// PublishFlags: flags of PublishOptions.
type PublishFlags uint64

const (
	// The token grants read access only, whatever the share grants.
	PublishReadOnly PublishFlags = C.KVMEM_PUBLISH_READ_ONLY
)

// FetchFlags: flags of FetchOptions.
type FetchFlags uint64

const (
	// Fetch read access only, even if write access is granted.
	FetchReadOnly FetchFlags = C.KVMEM_FETCH_READ_ONLY
	// The broker must run as `broker_user`, instead of the caller's user.
	FetchBrokerUser FetchFlags = C.KVMEM_FETCH_BROKER_USER
	// Fetch read and write access, and fail if less is granted.
	FetchReadWrite FetchFlags = C.KVMEM_FETCH_READ_WRITE
)

// Durability: when the blocks of a store survive a loss of power.
type Durability uint32

const (
	// What has ended is durable: a put ends after its blocks and the index are on the disk. Puts that end
	// at the same time share the writes of the index.
	DurabilityStrict Durability = C.KVMEM_DURABILITY_STRICT
	// Blocks become durable every `interval_ns`, and by kvmem_store_flush. Those that were put since are
	// lost if the process or the machine ends.
	DurabilityRelaxed Durability = C.KVMEM_DURABILITY_RELAXED
	// Blocks survive the process. After a loss of power any may be missing, or damaged, which a get
	// detects.
	DurabilityNone Durability = C.KVMEM_DURABILITY_NONE
)

// Eviction: who evicts blocks of a store.
type Eviction uint32

const (
	// The store evicts blocks when it needs slots: those without stored children first, the least recently
	// used of them first.
	EvictionStore Eviction = C.KVMEM_EVICTION_STORE
	// The store evicts no block that a handle of it finds. A put fails with KVMEM_STATUS_OUT_OF_MEMORY if
	// there are not enough free slots.
	EvictionCaller Eviction = C.KVMEM_EVICTION_CALLER
)

// StoreFlags: flags of StoreBlocks.
type StoreFlags uint64

const (
	// The keys of a put are not of one sequence: none is the parent of the next.
	StoreUnrelated StoreFlags = C.KVMEM_STORE_UNRELATED
)

// Direction: between which kinds of memory a run moves bytes.
type Direction uint32

const (
	// From host memory to host memory. Mapped memory of another process is memory here.
	DirectionHostToHost Direction = C.KVMEM_DIRECTION_HOST_TO_HOST
	// From host memory to GPU memory.
	DirectionHostToGpu Direction = C.KVMEM_DIRECTION_HOST_TO_GPU
	// From GPU memory to host memory.
	DirectionGpuToHost Direction = C.KVMEM_DIRECTION_GPU_TO_HOST
	// From GPU memory to GPU memory.
	DirectionGpuToGpu Direction = C.KVMEM_DIRECTION_GPU_TO_GPU
	// From files, objects or block storage to memory.
	DirectionRead Direction = C.KVMEM_DIRECTION_READ
	// From memory to files, objects or block storage.
	DirectionWrite Direction = C.KVMEM_DIRECTION_WRITE
	// From a peer, by an agent.
	DirectionPull Direction = C.KVMEM_DIRECTION_PULL
	// To a peer, by an agent.
	DirectionPush Direction = C.KVMEM_DIRECTION_PUSH
)

// AgentFlags: flags of AgentOptions.
type AgentFlags uint64

const (
	// Without NIXL's progress thread: kvmem drives the idle agent.
	AgentNoProgressThread AgentFlags = C.KVMEM_AGENT_NO_PROGRESS_THREAD
	// Run NIXL's listen thread, which exchanges metadata with peers by address. It listens on all network
	// interfaces, and loads what it receives: damaged metadata ends the process, with NIXL 1.5. So any
	// program that reaches the port can end it. Use it only if all of them are trusted. Otherwise exchange
	// metadata as bytes, or by a directory, whose entries have a checksum.
	AgentListenThread AgentFlags = C.KVMEM_AGENT_LISTEN_THREAD
	// NIXL measures transfers.
	AgentTelemetry AgentFlags = C.KVMEM_AGENT_TELEMETRY
)

// NIXLFlags: flags of NixlOptions.
type NIXLFlags uint64

const (
	// Send the notification, also if it has no bytes.
	NIXLNotify NIXLFlags = C.KVMEM_NIXL_NOTIFY
	// NIXL does not merge neighbouring descriptors.
	NIXLSkipMerge NIXLFlags = C.KVMEM_NIXL_SKIP_MERGE
	// As TransferReportRelease, for runs of a request.
	NIXLReportRelease NIXLFlags = C.KVMEM_NIXL_REPORT_RELEASE
)

// DirectoryChange: what an event of a directory is about.
type DirectoryChange uint32

const (
	// An agent has an entry, and had none.
	DirectoryPublished DirectoryChange = C.KVMEM_DIRECTORY_PUBLISHED
	// An agent was restarted: its entry is that of another incarnation.
	DirectoryRestarted DirectoryChange = C.KVMEM_DIRECTORY_RESTARTED
	// An agent has published again.
	DirectoryUpdated DirectoryChange = C.KVMEM_DIRECTORY_UPDATED
	// An agent was withdrawn, or its process has ended: it has no entry.
	DirectoryWithdrawn DirectoryChange = C.KVMEM_DIRECTORY_WITHDRAWN
	// The entry of an agent is invalid.
	DirectoryInvalid DirectoryChange = C.KVMEM_DIRECTORY_INVALID
	// Another process has published an agent that this handle had published. The entry of the other
	// process remains. It is reported also if nothing is watched.
	DirectorySuperseded DirectoryChange = C.KVMEM_DIRECTORY_SUPERSEDED
	// The directory cannot be reached. kvmem tries again; changes are reported later. With
	// KVMEM_STATUS_PANIC a bug has ended its thread: no event follows, and calls fail. Create the
	// directory again.
	DirectoryInterrupted DirectoryChange = C.KVMEM_DIRECTORY_INTERRUPTED
	// The directory is reached again. All changes in the meantime are reported, before or after this
	// event.
	DirectoryResumed DirectoryChange = C.KVMEM_DIRECTORY_RESUMED
	// An entry that this handle has published was missing or damaged, and is published again: its lease
	// had ended, because the process was stopped or no server was reached, or another program has removed
	// it. Watchers may have received DirectoryWithdrawn. It is reported also if nothing is watched.
	DirectoryRestored DirectoryChange = C.KVMEM_DIRECTORY_RESTORED
	// There are more than 65536 entries, invalid ones included, and those beyond are not reported: the
	// memory of a watch is bounded. It is reported once, and again only after the watch of all agents has
	// ended. End that watch (kvmem_directory_unwatch with NULL), then watch single agents.
	DirectoryFull DirectoryChange = C.KVMEM_DIRECTORY_FULL
)

// Operation: direction of a request.
type Operation uint32

const (
	// From the remote side to the local side.
	OperationRead Operation = C.KVMEM_REQUEST_READ
	// From the local side to the remote side.
	OperationWrite Operation = C.KVMEM_REQUEST_WRITE
)

// SyncMode: lock that NIXL uses for an agent.
type SyncMode uint32

const (
	// The same as SyncNone.
	SyncDefault SyncMode = C.KVMEM_SYNC_DEFAULT
	// NIXL does not lock the agent. Safe: only kvmem, one thread at a time, and NIXL's threads use it.
	SyncNone SyncMode = C.KVMEM_SYNC_NONE
	// NIXL locks the agent with a mutex.
	SyncStrict SyncMode = C.KVMEM_SYNC_STRICT
	// NIXL locks the agent with a read-write lock.
	SyncRw SyncMode = C.KVMEM_SYNC_RW
)

// CUDACapabilities: capabilities of a GPU and its driver.
type CUDACapabilities uint64

const (
	// Virtual memory management: addresses are allocated apart from memory.
	CUDAVMM CUDACapabilities = C.KVMEM_CUDA_VMM
	// VMM memory can be exported as a file descriptor, verified by an export.
	CUDAPOSIXFD CUDACapabilities = C.KVMEM_CUDA_POSIX_FD
	// VMM memory can be exported as a fabric handle, verified by an export.
	CUDAFabric CUDACapabilities = C.KVMEM_CUDA_FABRIC
	// VMM memory can be registered for RDMA.
	CUDARDMAWithVMM CUDACapabilities = C.KVMEM_CUDA_RDMA_WITH_VMM
	// Memory can be exported as a DMA-BUF.
	CUDADMABuf CUDACapabilities = C.KVMEM_CUDA_DMA_BUF
	// Supports stream-ordered memory pools.
	CUDAMemoryPools CUDACapabilities = C.KVMEM_CUDA_MEMORY_POOLS
	// VMM memory can be created on a NUMA node of the host.
	CUDAHostNUMAVMM CUDACapabilities = C.KVMEM_CUDA_HOST_NUMA_VMM
	// The driver accepts many copies in one call.
	CUDABatchCopies CUDACapabilities = C.KVMEM_CUDA_BATCH_COPIES
)

// RatesSource: source of copy rates.
type RatesSource uint32

const (
	// Built-in rates: those of one H200 with PCIe 5 x16, and of two with NVLink.
	RatesDefault RatesSource = C.KVMEM_RATES_DEFAULT
	// Measured by the process that saved them.
	RatesMeasured RatesSource = C.KVMEM_RATES_MEASURED
	// Set by the caller of the process that saved them.
	RatesLoaded RatesSource = C.KVMEM_RATES_LOADED
)

// IPCFlags: flags of IpcOptions.
type IPCFlags uint64

const (
	// Open the memory for kernels of `for_device`, over NVLink or PCIe.
	IPCForDevice IPCFlags = C.KVMEM_IPC_FOR_DEVICE
)

// VMMLocation: where VMM memory is located.
type VMMLocation uint32

const (
	// Memory of a GPU.
	VMMDevice VMMLocation = C.KVMEM_VMM_DEVICE
	// Memory of a NUMA node of the host.
	VMMHostNUMA VMMLocation = C.KVMEM_VMM_HOST_NUMA
)

// VMMFlags: flags of VmmOptions.
type VMMFlags uint64

const (
	// The memory can be exported as a file descriptor.
	VMMPOSIXFD VMMFlags = C.KVMEM_VMM_POSIX_FD
	// The memory can be exported as a fabric handle.
	VMMFabric VMMFlags = C.KVMEM_VMM_FABRIC
	// The memory can be registered for RDMA.
	VMMRDMA VMMFlags = C.KVMEM_VMM_RDMA
)

// Granularity: granularity of VMM memory.
type Granularity uint32

const (
	// The granularity that sizes and offsets must be multiples of.
	GranularityMinimum Granularity = C.KVMEM_GRANULARITY_MINIMUM
	// The granularity that sizes and offsets should be multiples of.
	GranularityRecommended Granularity = C.KVMEM_GRANULARITY_RECOMMENDED
)

// Access: access of a GPU to a mapping.
type Access uint32

const (
	// No access.
	AccessNone Access = C.KVMEM_ACCESS_NONE
	// Read access.
	AccessRead Access = C.KVMEM_ACCESS_READ
	// Read and write access.
	AccessReadWrite Access = C.KVMEM_ACCESS_READ_WRITE
)

// Orders of the layouts of NVIDIA Dynamo's KVBM, for LayoutConfig.
const (
	// Order of KVBM's fully contiguous layout: one region. A block contains all its layers, a layer its
	// outer slots: base + block·⌈L·O·R⌉ + layer·O·R + outer·R
	OrderFullyContiguous = C.KVMEM_ORDER_FULLY_CONTIGUOUS
	// Order of KVBM's layer separate layout with the block dimension first: one region per layer.
	// base[layer] + block·⌈O·R⌉ + outer·R
	OrderLayerSeparate = C.KVMEM_ORDER_LAYER_SEPARATE
	// Order of KVBM's layer separate layout with the block dimension second: one region per layer.
	// base[layer] + outer·B·⌈R⌉ + block·⌈R⌉
	OrderLayerSeparateOuterFirst = C.KVMEM_ORDER_LAYER_SEPARATE_OUTER_FIRST
)
