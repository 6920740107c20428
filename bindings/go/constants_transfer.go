// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

// Locality is the set of processes that can access a layout.
type Locality uint32

const (
	// Only this process can access it: it has no agent.
	LocalityLocal Locality = C.KVMEM_LOCALITY_LOCAL
	// This process can access it, and peers of its agent.
	LocalityRegistered Locality = C.KVMEM_LOCALITY_REGISTERED
	// It belongs to a peer. Only transfers can access it.
	LocalityRemote Locality = C.KVMEM_LOCALITY_REMOTE
	// It belongs to another process and is mapped here: this process can access it like its own
	// memory.
	LocalityMapped Locality = C.KVMEM_LOCALITY_MAPPED
)

// TransferFlags are flags of TransferOptions.
type TransferFlags uint64

const (
	// Exclude paths that store bytes anywhere between source and destination: in staging memory, in
	// memory of the driver (which it uses if host memory is not page-locked), or in the page cache of
	// a buffered file. Excludes all paths to a peer, because NIXL does not report what its backends
	// do.
	TransferZeroCopy TransferFlags = C.KVMEM_TRANSFER_ZERO_COPY
	// Exclude paths through host memory that is neither source nor destination: all paths between a
	// file and a GPU except GPUDirect Storage, and all paths to a peer.
	TransferNoHostBounce TransferFlags = C.KVMEM_TRANSFER_NO_HOST_BOUNCE
	// Move the layers in order, and report how many have moved: see Transfer.Layers,
	// Transfer.WaitLayers and Transfer.WaitOnStream. Bytes that are contiguous across layers are then
	// moved layer by layer, which makes transfers of small fully contiguous blocks slower;
	// Transfer.Explain reports by how much.
	TransferByLayer TransferFlags = C.KVMEM_TRANSFER_BY_LAYER
	// After all blocks have moved, compare the CRC32C of each destination block with that of its
	// source block. The run ends after the comparison, with ErrCorrupt if they differ. Until then
	// nothing may write to the blocks. With a range of heads or block tables, only what has moved is
	// compared, token by token; then files with direct I/O are not supported. Blocks of a peer are read
	// once more for the comparison, by the peer itself if it serves the layout (Layout.Serve). Set
	// Checksums instead to compare with checksums that were computed before.
	TransferVerify TransferFlags = C.KVMEM_TRANSFER_VERIFY
)

// Compute is whether kernels of the caller run during a transfer.
type Compute uint32

const (
	// Kernels of the caller may run on the GPU during the transfer. Paths that slow them down are not
	// used, or use few CTAs.
	ComputeMayRun Compute = C.KVMEM_COMPUTE_MAY_RUN
	// The GPU is idle during the transfer. Copies may use all of it.
	ComputeIdle Compute = C.KVMEM_COMPUTE_IDLE
)

// Path is how a transfer moves bytes.
type Path uint32

const (
	// Host threads copy by memcpy.
	PathMemcpy Path = C.KVMEM_PATH_MEMCPY
	// NIXL reads from a peer.
	PathNIXLRead Path = C.KVMEM_PATH_NIXL_READ
	// NIXL writes to a peer.
	PathNIXLWrite Path = C.KVMEM_PATH_NIXL_WRITE
	// NIXL reads from a file.
	PathNIXLFileRead Path = C.KVMEM_PATH_NIXL_FILE_READ
	// NIXL writes to a file.
	PathNIXLFileWrite Path = C.KVMEM_PATH_NIXL_FILE_WRITE
	// The CUDA driver copies, one call per contiguous range.
	PathCUDACopy Path = C.KVMEM_PATH_CUDA_COPY
	// The CUDA driver copies, one call for all ranges.
	PathCUDABatch Path = C.KVMEM_PATH_CUDA_BATCH
	// The CUDA driver copies rows of blocks at regular distances.
	PathCUDA2d Path = C.KVMEM_PATH_CUDA_2D
	// A kernel reads and writes both sides directly.
	PathCUDAKernel Path = C.KVMEM_PATH_CUDA_KERNEL
	// A kernel gathers or scatters in GPU memory, and the CUDA driver copies contiguous ranges.
	PathCUDAStaged Path = C.KVMEM_PATH_CUDA_STAGED
	// io_uring reads or writes a file.
	PathURING Path = C.KVMEM_PATH_URING
	// Threads read or write a file by preadv and pwritev.
	PathPread Path = C.KVMEM_PATH_PREAD
	// Between a file and GPU memory, through page-locked host memory: io_uring accesses the file, the
	// CUDA driver the GPU.
	PathURINGStaged Path = C.KVMEM_PATH_URING_STAGED
	// As PathURINGStaged, with threads that access the file by preadv and pwritev.
	PathPreadStaged Path = C.KVMEM_PATH_PREAD_STAGED
	// NIXL reads large ranges of a peer's memory into staging memory, and host threads copy rows from
	// there.
	PathNIXLReadStaged Path = C.KVMEM_PATH_NIXL_READ_STAGED
	// Host threads gather rows in staging memory, and NIXL writes large ranges to a peer from there.
	PathNIXLWriteStaged Path = C.KVMEM_PATH_NIXL_WRITE_STAGED
	// The owner of the blocks gathers rows in its staging memory, and NIXL reads large ranges from there.
	PathNIXLReadServed Path = C.KVMEM_PATH_NIXL_READ_SERVED
	// NIXL writes large ranges to staging memory of the owner of the blocks, which copies rows from there.
	PathNIXLWriteServed Path = C.KVMEM_PATH_NIXL_WRITE_SERVED
	// NIXL reads from objects to host memory, one request per range of an object that is contiguous there.
	PathNIXLObjectRead Path = C.KVMEM_PATH_NIXL_OBJECT_READ
	// NIXL writes whole objects from contiguous host memory.
	PathNIXLObjectWrite Path = C.KVMEM_PATH_NIXL_OBJECT_WRITE
	// NIXL reads objects into staging memory, and host threads or a GPU copy rows from there.
	PathNIXLObjectReadStaged Path = C.KVMEM_PATH_NIXL_OBJECT_READ_STAGED
	// Host threads or a GPU gather objects in staging memory, and NIXL writes them from there.
	PathNIXLObjectWriteStaged Path = C.KVMEM_PATH_NIXL_OBJECT_WRITE_STAGED
	// NIXL reads from block storage.
	PathNIXLBlockRead Path = C.KVMEM_PATH_NIXL_BLOCK_READ
	// NIXL writes to block storage.
	PathNIXLBlockWrite Path = C.KVMEM_PATH_NIXL_BLOCK_WRITE
)

// ServeFlags are flags of ServeOptions.
type ServeFlags uint64

const (
	// Peers may write to the layout, too.
	ServeWrite ServeFlags = C.KVMEM_SERVE_WRITE
	// The staging memory is in page-locked host memory, also for a layout in GPU memory.
	ServeFromHost ServeFlags = C.KVMEM_SERVE_FROM_HOST
)

// ShareFlags are flags of ShareOptions.
type ShareFlags uint64

const (
	// Grants read access only. File descriptors of host memory and files are then read-only, so the
	// memory cannot be mapped for writing. GPUs get no write access to extents and mappings. For
	// device memory by IPC handle, only the importer's kvmem prevents writing.
	ShareReadOnly ShareFlags = C.KVMEM_SHARE_READ_ONLY
	// Seals host memory against writing by other processes for ever (F_SEAL_FUTURE_WRITE), before it is
	// shared. Requires ShareReadOnly. Without it, a process of the same user, or root, can open the file
	// descriptor of a read-only share again and map it for writing. Mappings of this process remain
	// writable. For memory of SystemShareable and PinnedShareable it must be set in the first share.
	ShareWriteSealed ShareFlags = C.KVMEM_SHARE_WRITE_SEALED
)

// Transport is how a share carries memory.
type Transport uint32

const (
	// Selects the transport by tier: file descriptors for system, pinned, elastic and disk memory, and
	// for device memory that an engine mapped with cuMemMap; the driver's IPC handle for other device
	// memory. Memory that can be exported only as fabric handles is carried by these.
	ShareAuto Transport = C.KVMEM_SHARE_AUTO
	// Carries memory by file descriptors.
	ShareFD Transport = C.KVMEM_SHARE_FD
	// Carries memory by the driver's IPC handle.
	ShareIPC Transport = C.KVMEM_SHARE_IPC
	// Carries no memory: other processes access the layout through NIXL.
	ShareRemote Transport = C.KVMEM_SHARE_REMOTE
	// Carries memory by the driver's fabric handles: elastic memory created with ElasticFabric, or
	// memory that an engine mapped and created with fabric handles.
	ShareFabric Transport = C.KVMEM_SHARE_FABRIC
)

// OpenFlags are flags of OpenOptions.
type OpenFlags uint64

const (
	// Open for reading only, even if write access is granted.
	OpenReadOnly OpenFlags = C.KVMEM_OPEN_READ_ONLY
	// Page-lock host memory for the GPU Device. The region is then pinned memory. Read-only memory
	// can be locked only for a GPU that has CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED; for
	// others, opening fails with ErrUnsupported. No effect on files and GPU memory.
	OpenPin OpenFlags = C.KVMEM_OPEN_PIN
	// Layouts: map the memory, and fail if that is not possible. Do not use NIXL.
	OpenMappedOnly OpenFlags = C.KVMEM_OPEN_MAPPED_ONLY
	// Layouts: use NIXL, even if the memory can be mapped. Needs Agent.
	OpenRemote OpenFlags = C.KVMEM_OPEN_REMOTE
	// Layouts: register the mapped memory with Agent.
	OpenRegister OpenFlags = C.KVMEM_OPEN_REGISTER
	// Open GPU memory for kernels of the GPU Device, which access it over NVLink or PCIe. Without
	// this flag, the memory is opened for the GPU that it is located on, and kernels of other GPUs
	// fail to access it. Plain device memory is opened for one GPU at a time. Elastic memory, and
	// memory that an engine mapped, stays open for its own GPU too. kvmem opens it for another GPU
	// when a transfer first runs there, which delays the creation of that transfer: on an H200, by 0.3
	// ms per extent of 64 MiB and 20 ms per extent of 1 GiB. No effect on host memory, files, and
	// memory of this process.
	OpenForDevice OpenFlags = C.KVMEM_OPEN_FOR_DEVICE
	// Open for reading and writing, and fail with ErrPermissionDenied unless write access is granted.
	// Without this flag and OpenReadOnly, the region has all granted rights; if it is read-only, its
	// flags have RegionReadOnly.
	OpenReadWrite OpenFlags = C.KVMEM_OPEN_READ_WRITE
	// Map host memory that other processes can take away: reserved huge pages (HugePageSize of
	// SystemOptions), and adopted memory files that can be truncated (see AdoptFile. The owner, and
	// every importer with write access, can remove such pages. If this process then touches them, it
	// ends with SIGBUS. Without this flag, such memory fails with ErrUnsupported.
	OpenTrustOwner OpenFlags = C.KVMEM_OPEN_TRUST_OWNER
	// Open elastic memory, and memory that an engine mapped, for every GPU of this process that can
	// access the GPU it is located on: for an engine whose own kernels use it on several GPUs. Each
	// GPU takes as long as with OpenForDevice. No effect on other memory. Excludes OpenForDevice.
	OpenForAllDevices OpenFlags = C.KVMEM_OPEN_FOR_ALL_DEVICES
)

// SharedObject is the kind of object that is shared.
type SharedObject uint32

const (
	// The share is of a region.
	SharedRegion SharedObject = C.KVMEM_SHARED_REGION
	// The share is of a layout.
	SharedLayout SharedObject = C.KVMEM_SHARED_LAYOUT
)

// PublishFlags are flags of PublishOptions.
type PublishFlags uint64

const (
	// The token grants read access only, even if the share grants write access.
	PublishReadOnly PublishFlags = C.KVMEM_PUBLISH_READ_ONLY
)

// FetchFlags are flags of FetchOptions.
type FetchFlags uint64

const (
	// Fetch read access only, even if write access is granted.
	FetchReadOnly FetchFlags = C.KVMEM_FETCH_READ_ONLY
	// The broker must run as the user BrokerUser. Without this flag, it must run as the user of the
	// caller.
	FetchBrokerUser FetchFlags = C.KVMEM_FETCH_BROKER_USER
	// Fetch read and write access, and fail with ErrPermissionDenied if less is granted.
	FetchReadWrite FetchFlags = C.KVMEM_FETCH_READ_WRITE
)

// AgentFlags are flags of AgentOptions.
type AgentFlags uint64

const (
	// Run without NIXL's progress thread. kvmem then drives the idle agent every progress_delay_us.
	AgentNoProgressThread AgentFlags = C.KVMEM_AGENT_NO_PROGRESS_THREAD
	// Run NIXL's listen thread, which exchanges metadata with peers by address. It listens on all
	// network interfaces.
	AgentListenThread AgentFlags = C.KVMEM_AGENT_LISTEN_THREAD
	// NIXL measures transfers.
	AgentTelemetry AgentFlags = C.KVMEM_AGENT_TELEMETRY
)

// NIXLFlags are flags of NIXLOptions.
type NIXLFlags uint64

const (
	// Send the notification, also if it has no bytes.
	NIXLNotify NIXLFlags = C.KVMEM_NIXL_NOTIFY
	// NIXL does not merge neighbouring descriptors.
	NIXLSkipMerge NIXLFlags = C.KVMEM_NIXL_SKIP_MERGE
)

// DirectoryChange is what an event of a directory is about.
type DirectoryChange uint32

const (
	// The agent has an entry, and had none.
	DirectoryPublished DirectoryChange = C.KVMEM_DIRECTORY_PUBLISHED
	// The agent was restarted: its entry is of another incarnation. Look it up and load it again.
	DirectoryRestarted DirectoryChange = C.KVMEM_DIRECTORY_RESTARTED
	// The agent has published again: its entry has another version.
	DirectoryUpdated DirectoryChange = C.KVMEM_DIRECTORY_UPDATED
	// The agent has no entry any more: it was withdrawn, or its process has ended.
	DirectoryWithdrawn DirectoryChange = C.KVMEM_DIRECTORY_WITHDRAWN
	// The entry of the agent is not valid.
	DirectoryInvalid DirectoryChange = C.KVMEM_DIRECTORY_INVALID
	// Another process has published an agent that this directory had published. That entry remains.
	DirectorySuperseded DirectoryChange = C.KVMEM_DIRECTORY_SUPERSEDED
	// The directory cannot be reached. Changes are reported later.
	DirectoryInterrupted DirectoryChange = C.KVMEM_DIRECTORY_INTERRUPTED
	// The directory is reached again, and changes in between were reported.
	DirectoryResumed DirectoryChange = C.KVMEM_DIRECTORY_RESUMED
	// An entry that this directory has published was gone or damaged, and is published again: the lease had ended, because
	// the process was stopped or no server was reached, or another program removed it. Peers may have seen it withdrawn.
	DirectoryRestored DirectoryChange = C.KVMEM_DIRECTORY_RESTORED
	// More agents are published than a watch of all reports.
	DirectoryFull DirectoryChange = C.KVMEM_DIRECTORY_FULL
)

// Operation is the direction of a request.
type Operation uint32

const (
	// From the remote side to the local side.
	OperationRead Operation = C.KVMEM_REQUEST_READ
	// From the local side to the remote side.
	OperationWrite Operation = C.KVMEM_REQUEST_WRITE
)

// SyncMode is the lock that NIXL uses for an agent.
type SyncMode uint32

const (
	// The same as SyncNone.
	SyncDefault SyncMode = C.KVMEM_SYNC_DEFAULT
	// NIXL does not lock the agent. This is safe, because only kvmem, one thread at a time, and NIXL's
	// own threads use it.
	SyncNone SyncMode = C.KVMEM_SYNC_NONE
	// NIXL locks the agent with a mutex.
	SyncStrict SyncMode = C.KVMEM_SYNC_STRICT
	// NIXL locks the agent with a read-write lock.
	SyncRw SyncMode = C.KVMEM_SYNC_RW
)

// CUDACapabilities are capabilities of a GPU and its driver.
type CUDACapabilities uint64

const (
	// Supports virtual memory management: addresses and memory are allocated separately, then mapped.
	CUDAVMM CUDACapabilities = C.KVMEM_CUDA_VMM
	// VMM memory can be exported as a file descriptor: verified by a test export.
	CUDAPOSIXFD CUDACapabilities = C.KVMEM_CUDA_POSIX_FD
	// VMM memory can be exported as a fabric handle: verified by a test export, because the driver's
	// attribute is not reliable.
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

// RatesSource is the source of copy rates.
type RatesSource uint32

const (
	// Built-in rates: those of one H200 with PCIe 5 x16, and of two with NVLink.
	RatesDefault RatesSource = C.KVMEM_RATES_DEFAULT
	// Measured by the process that saved them.
	RatesMeasured RatesSource = C.KVMEM_RATES_MEASURED
	// Set by the caller of the process that saved them.
	RatesLoaded RatesSource = C.KVMEM_RATES_LOADED
)

// IPCFlags are flags of IPCOptions.
type IPCFlags uint64

const (
	// Open the memory for kernels of the GPU ForDevice, which access it over NVLink or PCIe.
	IPCForDevice IPCFlags = C.KVMEM_IPC_FOR_DEVICE
)

// VMMLocation is where VMM memory is located.
type VMMLocation uint32

const (
	// Memory of a GPU.
	VMMDevice VMMLocation = C.KVMEM_VMM_DEVICE
	// Memory of a NUMA node of the host.
	VMMHostNUMA VMMLocation = C.KVMEM_VMM_HOST_NUMA
)

const (
	// For the device of imported memory: accept any location.
	VMMAnyDevice = C.KVMEM_VMM_ANY_DEVICE
)

// VMMFlags are flags of VMMOptions.
type VMMFlags uint64

const (
	// The memory can be exported as a file descriptor.
	VMMPOSIXFD VMMFlags = C.KVMEM_VMM_POSIX_FD
	// The memory can be exported as a fabric handle.
	VMMFabric VMMFlags = C.KVMEM_VMM_FABRIC
	// The memory can be registered for RDMA.
	VMMRDMA VMMFlags = C.KVMEM_VMM_RDMA
)

// Choice is what was decided about a path that was compared.
type Choice uint32

const (
	// The transfer takes the path.
	ChoiceUsed Choice = C.KVMEM_CHOICE_USED
	// The path is possible, and its estimate is no better.
	ChoiceSlower Choice = C.KVMEM_CHOICE_SLOWER
	// The path is possible, and is not used for the given reason.
	ChoiceNotUsed Choice = C.KVMEM_CHOICE_NOT_USED
	// The path is not possible.
	ChoiceImpossible Choice = C.KVMEM_CHOICE_IMPOSSIBLE
)

// Granularity selects a granularity of VMM memory.
type Granularity uint32

const (
	// The granularity that sizes and offsets must be multiples of.
	GranularityMinimum Granularity = C.KVMEM_GRANULARITY_MINIMUM
	// The granularity that sizes and offsets should be multiples of.
	GranularityRecommended Granularity = C.KVMEM_GRANULARITY_RECOMMENDED
)

// Access is the access of a GPU to a mapping.
type Access uint32

const (
	// No access.
	AccessNone Access = C.KVMEM_ACCESS_NONE
	// Read access.
	AccessRead Access = C.KVMEM_ACCESS_READ
	// Read and write access.
	AccessReadWrite Access = C.KVMEM_ACCESS_READ_WRITE
)
