# SPDX-License-Identifier: Apache-2.0
"""Constants of the headers. Generated from the headers by scripts/bindings.py; do not edit."""

from __future__ import annotations

import enum


class _Open(enum.IntEnum):
    """An enumeration that may get more values in later versions of the library."""

    @classmethod
    def _missing_(cls, value: object) -> _Open | None:
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_, member._value_ = f"UNKNOWN_{value}", value
        return member


class Status(_Open):
    """Result of a call or a run."""

    OK = 0
    """The call succeeded."""
    IN_PROGRESS = 1
    """The run is in flight."""
    INVALID_ARGUMENT = -1
    """An argument is invalid, whatever the library's state."""
    OUT_OF_MEMORY = -2
    """Memory, disk space or another resource is exhausted."""
    OUT_OF_RANGE = -3
    """An index or a size is outside the object."""
    NOT_FOUND = -4
    """The named object does not exist."""
    ALREADY_EXISTS = -5
    """The object to create already exists."""
    INVALID_STATE = -6
    """The state of the object does not allow the call."""
    BUSY = -7
    """The object is in use."""
    TIMED_OUT = -8
    """The timeout expired."""
    CANCELLED = -9
    """The work was cancelled."""
    UNSUPPORTED = -10
    """The operation is not supported, here or in general."""
    PERMISSION_DENIED = -11
    """The system or a peer denied access."""
    UNAVAILABLE_CUDA = -12
    """There is no usable CUDA driver; the message says why."""
    UNAVAILABLE_NIXL = -13
    """There is no usable NIXL library; the message says why."""
    CUDA = -14
    """The CUDA driver reported an error."""
    NIXL = -15
    """NIXL reported an error."""
    IO = -16
    """The operating system reported an error."""
    PEER_LOST = -17
    """The peer process has ended."""
    STALE = -18
    """What the handle refers to has changed since."""
    CORRUPT = -19
    """Received or stored bytes are damaged or malicious."""
    VERSION_MISMATCH = -20
    """Received or stored bytes have an unsupported version."""
    PANIC = -21
    """A bug in kvmem. Later calls with the same objects fail with Status.INVALID_STATE."""


class LogLevel(_Open):
    """Importance of a log message."""

    OFF = 0
    """No messages."""
    ERROR = 1
    """Failures that no return value can report."""
    WARN = 2
    """Something works, but not as well as requested."""
    INFO = 3
    """Milestones, such as a loaded library, and methods that the setup makes slow."""
    DEBUG = 4
    """Creation and destruction of regions, layouts and transfers; start and end of runs; opened files, registrations,
    shares; failed calls. Objects have numbers, as in "transfer #7"."""
    TRACE = 5
    """All calls, timeouts, and the steps of operations."""


class Domain(_Open):
    """Library or system that the native cause of an error is from."""

    NONE = 0
    """There is no native cause."""
    ERRNO = 1
    """The code is an errno value."""
    NIXL = 2
    """The code is a status of NIXL's C API."""
    CUDA = 3
    """The code is a CUresult."""


class Tier(_Open):
    """Kind of memory of a region."""

    SYSTEM = 1
    """Host memory."""
    DISK = 2
    """A file."""
    PINNED = 3
    """Page-locked host memory, which GPUs access by DMA."""
    DEVICE = 4
    """GPU memory."""
    ELASTIC = 5
    """GPU memory that grows and shrinks at fixed addresses."""
    OBJECT = 6
    """Objects of an object store, which NIXL reads and writes."""
    BLOCK = 7
    """Block storage, which NIXL reads and writes."""


class SystemFlags(enum.IntFlag):
    """Flags of SystemOptions."""

    TRANSPARENT_HUGE_PAGES = 1
    """Ask the kernel for transparent huge pages for a region of any size, and report their absence:
    RegionFlags.HUGE_PAGE_FALLBACK. Without this flag kvmem asks for them for regions of at least one huge page (2 MiB
    on x86-64)."""
    HUGE_PAGES_REQUIRED = 2
    """Fail if the requested page size is not available. Without this flag smaller pages are used, and the info of the
    region has RegionFlags.HUGE_PAGE_FALLBACK."""
    NUMA_BIND = 4
    """Bind the memory to `numa_node`."""
    SHAREABLE = 8
    """Allocate a memory file, so that other processes can share the region."""
    NO_HUGE_PAGES = 16
    """Use ordinary pages only. For memory of which small parts far from each other are accessed: with huge pages the
    first access to a byte allocates 2 MiB."""
    WRITE_SEALED = 32
    """With SystemFlags.SHAREABLE: no other process can ever map the memory for writing, whatever it opens. It can be
    shared with ShareFlags.READ_ONLY only."""


class PinnedFlags(enum.IntFlag):
    """Flags of PinnedOptions."""

    NO_HUGE_PAGES = 1
    """Use ordinary pages only."""
    NUMA_BIND = 2
    """Bind the memory to `numa_node`."""
    SHAREABLE = 4
    """Allocate a memory file, so that other processes can share the region."""
    WRITE_SEALED = 8
    """With PinnedFlags.SHAREABLE: as SystemFlags.WRITE_SEALED."""


class ElasticFlags(enum.IntFlag):
    """Flags of ElasticOptions."""

    FABRIC = 1
    """Extents can be shared by fabric handle (Transport.FABRIC), too. This cannot be enabled later."""


class DiskFlags(enum.IntFlag):
    """Flags of DiskOptions."""

    BUFFERED = 1
    """Use the page cache, which I/O bypasses by default if possible (O_DIRECT)."""
    DIRECT_REQUIRED = 2
    """Fail if the file system does not support O_DIRECT. Without this flag the page cache is used instead, and the
    info of the region lacks RegionFlags.DIRECT_IO."""
    OPEN_EXISTING = 4
    """Open the file at `path`, which must exist and not be empty."""
    OPEN_OR_CREATE = 8
    """Open the file at `path`, or create it if it is absent or empty."""
    READ_ONLY = 16
    """With DiskFlags.OPEN_EXISTING: open the file for reading. The region can only be the source of transfers. It can
    be open while a writer has the file open."""
    NO_LOCK = 32
    """Do not lock the file against other writers: the caller excludes them."""


class AdoptFlags(enum.IntFlag):
    """Flags of adopted memory."""

    READ_ONLY = 1
    """Adopt host memory for reading. It may be mapped without PROT_WRITE. The region can only be the source of
    transfers, and cannot be registered with an agent."""
    KEEP_SEALS = 2
    """kvmem_region_adopt_memfd: do not seal the file with F_SEAL_SHRINK."""


class Origin(_Open):
    """Source of the memory of a region."""

    ALLOCATED = 1
    """kvmem allocated it."""
    ADOPTED = 2
    """It is memory of the caller."""
    VIEW = 3
    """It is a part of another region."""
    IMPORTED = 4
    """It is memory of another process."""


class RegionFlags(enum.IntFlag):
    """Properties of a region."""

    DIRECT_IO = 1
    """Disk: I/O bypasses the page cache."""
    PREALLOCATED = 2
    """Disk: space was reserved when this region was created. Not set for an existing or shared file."""
    TEMPORARY = 4
    """Disk: the file has no name, and is deleted with the region."""
    HUGE_PAGE_FALLBACK = 8
    """System and pinned: pages are smaller than requested."""
    SHAREABLE = 16
    """System and pinned: the memory is a memory file, which can be shared."""
    READ_ONLY = 32
    """It can only be read: it was shared, adopted or opened for reading."""


class MemoryType(_Open):
    """Type of memory of NIXL."""

    DRAM = 1
    """Host memory."""
    VRAM = 2
    """GPU memory."""
    FILE = 3
    """A file."""
    BLOCK = 4
    """A block device, or a store of blocks."""
    OBJECT = 5
    """An object store."""


class Accessor(_Open):
    """Who accesses a block."""

    RUN = 1
    """A run in flight of a transfer or request of this process."""
    ENDED_RUN = 2
    """A run of this process that has ended, as at its deadline, while its memory is still in use. A
    CompletionKind.MEMORY_RELEASED reports when it no longer is."""
    LOST_RUN = 3
    """The same if nothing will detect when the memory is no longer in use."""
    PEER = 4
    """A peer, in a session that this process serves (kvmem_layout_serve)."""
    LEASE = 5
    """The holder of a lease (kvmem_lease_create), in any process."""


class LeaseFlags(enum.IntFlag):
    """Flags of LeaseOptions."""

    WRITES = 1
    """The holder may also write the blocks."""


class Locality(_Open):
    """Processes that can access a layout."""

    LOCAL = 1
    """Only this process can access it: it has no agent."""
    REGISTERED = 2
    """This process can access it, and peers of its agent."""
    REMOTE = 3
    """It belongs to a peer. Only transfers can access it."""
    MAPPED = 4
    """It belongs to another process and is mapped here: this process can access it like its own memory."""


class SubmitFlags(enum.IntFlag):
    """Flags of SubmitOptions."""

    VERIFY = 1
    """After all blocks have moved, compare the CRC32C of each destination block with that of its source block. The run
    ends after the comparison, with Status.CORRUPT if they differ; kvmem_transfer_get_mismatches returns which do.
    Until the end nothing may write to the blocks. With a range of heads or block tables, only what has moved is
    compared, token by token; then files with direct I/O are not supported.  Both sides are read: host memory in place
    by several threads, GPU memory by a kernel on its GPU, and files, objects and blocks of peers once more, to memory
    that has random bytes before: a read that reports success and moves nothing is found, too. If a peer serves its
    layout (kvmem_layout_serve), the transfer is served: the owner of the source sends checksums, the other side
    compares what has arrived and what its blocks then have, and nothing is read twice over the network. Such a run
    ends at the first chunk that differs; only then the blocks are read once more, to find those that differ."""
    CHECKSUM = 2
    """Compute the CRC32C of the moved layers and outer slots of each block, as kvmem_layout_checksum does;
    kvmem_transfer_get_checksums returns them after the run. Until the end nothing may write to the blocks.  If the run
    compares whole blocks, these are the checksums of the destination that it has compared, and nothing is read for
    them. Otherwise one side is read in place after all blocks have moved, by threads or by a kernel on its GPU: the
    destination, if it is host or GPU memory of this process, or else the source. No file or peer is read for them. Not
    supported in a graph, and with a range of heads or block tables."""


class TransferFlags(enum.IntFlag):
    """Flags of TransferOptions."""

    ZERO_COPY = 1
    """Exclude methods that store bytes anywhere between source and destination: in staging memory, in memory of the
    driver (which it uses if host memory is not page-locked), or in the page cache of a buffered file. Excludes all
    methods to a peer, because NIXL does not report what its backends do."""
    NO_HOST_BOUNCE = 2
    """Exclude methods through host memory that is neither source nor destination: all methods between a file and a GPU
    except GPUDirect Storage, and all methods to a peer."""
    BY_LAYER = 4
    """Move the layers in order, and report how many have moved: see kvmem_transfer_get_info,
    kvmem_transfer_wait_layers and kvmem_transfer_wait_on_stream. Bytes that are contiguous across layers are then
    moved layer by layer, which makes transfers of small fully contiguous blocks slower; kvmem_transfer_explain reports
    by how much."""
    REPORT_RELEASE = 8
    """The queue gets a CompletionKind.MEMORY_RELEASED for each run that ends before its memory is released, as at its
    `run_timeout_ns`. Requires a queue."""


class CompletionKind(_Open):
    """What a completion reports."""

    RUN_ENDED = 1
    """A run of a transfer or request has ended."""
    LAYERS_MOVED = 2
    """Layers of a run have moved; only with `layers_per_completion` of TransferOptions. The numbers of layers of a run
    ascend, and its end follows. If the run succeeds, the last number is that of all layers. While one waits in the
    queue, further ones only increase its number."""
    MEMORY_RELEASED = 3
    """The memory of a run that had ended is released; only with TransferFlags.REPORT_RELEASE or
    NixlFlags.REPORT_RELEASE. It follows each CompletionKind.RUN_ENDED with `released` 0, once, also if the transfer is
    destroyed meanwhile. Then the transfer can be submitted again; the completions of the next run are behind this
    one."""
    NOTIFICATIONS = 4
    """An agent has messages: see kvmem_agent_report_notifications."""
    EVENTS = 5
    """A directory has events: see kvmem_directory_report_events."""


class Compute(_Open):
    """Whether kernels of the caller run during a transfer."""

    MAY_RUN = 0
    """Kernels of the caller may run meanwhile. Methods that slow them down are not used, or use few CTAs."""
    IDLE = 1
    """The GPU is idle during the transfer. Copies may use all of it."""


class Method(_Open):
    """How a transfer moves bytes."""

    MEMCPY = 1
    """Host memory: host threads copy by memcpy."""
    CUDA_COPY = 2
    """GPU memory: the CUDA driver copies, one call of cuMemcpyAsync per contiguous range."""
    CUDA_BATCH = 3
    """GPU memory: the CUDA driver copies all contiguous ranges by one call of cuMemcpyBatchAsync."""
    CUDA_2D = 4
    """GPU memory: the CUDA driver copies rows of blocks at regular distances, by cuMemcpy2DAsync."""
    CUDA_KERNEL = 5
    """GPU memory: a kernel on the SMs reads and writes both sides directly."""
    CUDA_STAGED = 6
    """Between host and GPU memory: a kernel gathers or scatters in staging memory on the GPU, and a copy engine moves
    contiguous ranges."""
    URING = 7
    """Files: io_uring. GPU memory is copied through page-locked host memory."""
    PREAD = 8
    """Files: as Method.URING, with threads that call preadv and pwritev."""
    NIXL = 9
    """Peers, files, objects, block storage: NIXL reads or writes, one descriptor per contiguous range; a request
    writes a whole object. Between a file and GPU memory, NIXL uses GPUDirect Storage."""
    NIXL_STAGED = 10
    """Peers, objects: NIXL reads large ranges or whole objects to staging memory of this process, or writes them from
    there. Host threads or a GPU scatter or gather rows."""
    NIXL_SERVED = 11
    """Peers that serve their layout: NIXL reads large ranges from staging memory of the owner, which gathers rows, or
    writes them there, and the owner scatters them."""


class Choice(_Open):
    """What was decided about a method that was compared."""

    USED = 1
    """The transfer takes the method. The reason is a remark, or empty."""
    SLOWER = 2
    """The method is possible, its estimate is no better. The reason is empty."""
    NOT_USED = 3
    """The method is not used for the given reason, and is possible as far as is known. If another method was
    requested, agents of NIXL are not asked what they have."""
    IMPOSSIBLE = 4
    """The method is not possible, and the reason says why."""


class ServeFlags(enum.IntFlag):
    """Flags of ServeOptions."""

    WRITE = 1
    """Peers may write to the layout, too."""
    FROM_HOST = 2
    """Stage in page-locked host memory, also for GPU memory. Peers with layouts in host memory need it."""


class Transport(_Open):
    """How a share carries memory."""

    AUTO = 0
    """Selects the transport by tier: file descriptors for system, pinned, elastic and disk memory, and for device
    memory that an engine mapped with cuMemMap; the driver's IPC handle for other device memory. Memory that can be
    exported only as fabric handles is carried by these."""
    FD = 1
    """Carries memory by file descriptors."""
    IPC = 2
    """Carries memory by the driver's IPC handle."""
    REMOTE = 3
    """Carries no memory: other processes access the layout through NIXL."""
    FABRIC = 4
    """Carries memory by the driver's fabric handles: elastic memory created with ElasticFlags.FABRIC, or memory that
    an engine mapped and created with fabric handles."""


class ShareFlags(enum.IntFlag):
    """Flags of ShareOptions."""

    READ_ONLY = 1
    """Grants read access only. File descriptors of host memory and files are then read-only, and GPUs get no write
    access to extents and mappings. That prevents mistakes, and no intent: a process of the same user, or root, can
    open such a file descriptor again for writing, unless the memory is sealed (ShareFlags.WRITE_SEALED). For device
    memory by IPC handle, only the importer's kvmem prevents writing."""
    WRITE_SEALED = 2
    """Seals host memory against writing by other processes for ever (F_SEAL_FUTURE_WRITE), before it is shared.
    Requires ShareFlags.READ_ONLY. Mappings that exist remain writable, such as those of this process. For memory of
    SystemFlags.SHAREABLE and PinnedFlags.SHAREABLE it must be set in the first share; for an adopted memory file
    before a share that grants write access."""


class OpenFlags(enum.IntFlag):
    """Flags of OpenOptions."""

    READ_ONLY = 1
    """Open for reading only, even if write access is granted."""
    PIN = 2
    """Page-lock host memory for the GPU `device`. The region is then pinned memory. Read-only memory can be locked
    only for a GPU that has CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED; for others, opening fails with
    Status.UNSUPPORTED. No effect on files and GPU memory."""
    MAPPED_ONLY = 4
    """Layouts: map the memory or fail, rather than use NIXL."""
    REMOTE = 8
    """Layouts: use NIXL, even if the memory can be mapped. Needs `agent`."""
    REGISTER = 16
    """Layouts: register the mapped memory with `agent`."""
    FOR_DEVICE = 32
    """Open GPU memory for kernels of the GPU `device`, which access it over NVLink or PCIe. Without this flag, the
    memory is opened for the GPU that it is located on, and kernels of other GPUs fail to access it. Plain device
    memory is opened for one GPU at a time. Elastic memory, and memory that an engine mapped, stays open for its own
    GPU too. kvmem opens it for another GPU when a transfer there gets its first blocks, which delays that call: on an
    H200, by 0.3 ms per extent of 64 MiB and 20 ms per extent of 1 GiB. No effect on host memory, files, and memory of
    this process."""
    READ_WRITE = 64
    """Open for reading and writing, and fail with Status.PERMISSION_DENIED unless write access is granted. Without
    this flag and OpenFlags.READ_ONLY, the region has all granted rights (see RegionFlags.READ_ONLY)."""
    TRUST_OWNER = 128
    """Map host memory that other processes can take away: reserved huge pages (`huge_page_size` of SystemOptions), and
    adopted memory files that can be truncated (see kvmem_region_adopt_memfd). The owner, and every importer with write
    access, can remove such pages. If this process then touches them, it ends with SIGBUS. Without this flag, such
    memory fails with Status.UNSUPPORTED."""
    FOR_ALL_DEVICES = 256
    """Open elastic memory, and memory that an engine mapped, for every GPU of this process that can access the GPU it
    is located on: for an engine whose own kernels use it on several GPUs. Each GPU takes as long as with
    OpenFlags.FOR_DEVICE. No effect on other memory. Excludes OpenFlags.FOR_DEVICE."""


class SharedObject(_Open):
    """Kind of object that is shared."""

    REGION = 1
    """The share is of a region."""
    LAYOUT = 2
    """The share is of a layout."""


class PublishFlags(enum.IntFlag):
    """Flags of PublishOptions."""

    READ_ONLY = 1
    """The token grants read access only, whatever the share grants."""


class FetchFlags(enum.IntFlag):
    """Flags of FetchOptions."""

    READ_ONLY = 1
    """Fetch read access only, even if write access is granted."""
    BROKER_USER = 2
    """The broker must run as `broker_user`, instead of the caller's user."""
    READ_WRITE = 4
    """Fetch read and write access, and fail if less is granted."""


class Durability(_Open):
    """When the blocks of a store survive a loss of power."""

    STRICT = 0
    """What has ended is durable: a put ends after its blocks and the index are on the disk. Puts that end at the same
    time share the writes of the index."""
    RELAXED = 1
    """Blocks become durable every `interval_ns`, and by kvmem_store_flush. Those that were put since are lost if the
    process or the machine ends."""
    NONE = 2
    """Blocks survive the process. After a loss of power any may be missing, or damaged, which a get detects."""


class Eviction(_Open):
    """Who evicts blocks of a store."""

    STORE = 0
    """The store evicts blocks when it needs slots: those without stored children first, the least recently used of
    them first."""
    CALLER = 1
    """The store evicts no block that a handle of it finds. A put fails with Status.OUT_OF_MEMORY if there are not
    enough free slots."""


class StoreFlags(enum.IntFlag):
    """Flags of StoreBlocks."""

    UNRELATED = 1
    """The keys of a put are not of one sequence: none is the parent of the next."""


class Direction(_Open):
    """Between which kinds of memory a run moves bytes."""

    HOST_TO_HOST = 0
    """From host memory to host memory. Mapped memory of another process is memory here."""
    HOST_TO_GPU = 1
    """From host memory to GPU memory."""
    GPU_TO_HOST = 2
    """From GPU memory to host memory."""
    GPU_TO_GPU = 3
    """From GPU memory to GPU memory."""
    READ = 4
    """From files, objects or block storage to memory."""
    WRITE = 5
    """From memory to files, objects or block storage."""
    PULL = 6
    """From a peer, by an agent."""
    PUSH = 7
    """To a peer, by an agent."""


class AgentFlags(enum.IntFlag):
    """Flags of AgentOptions."""

    NO_PROGRESS_THREAD = 1
    """Without NIXL's progress thread: kvmem drives the idle agent."""
    LISTEN_THREAD = 2
    """Run NIXL's listen thread, which exchanges metadata with peers by address. It listens on all network interfaces,
    and loads what it receives: damaged metadata ends the process, with NIXL 1.5. So any program that reaches the port
    can end it. Use it only if all of them are trusted. Otherwise exchange metadata as bytes, or by a directory, whose
    entries have a checksum."""
    TELEMETRY = 4
    """NIXL measures transfers."""


class NixlFlags(enum.IntFlag):
    """Flags of NixlOptions."""

    NOTIFY = 1
    """Send the notification, also if it has no bytes."""
    SKIP_MERGE = 2
    """NIXL does not merge neighbouring descriptors."""
    REPORT_RELEASE = 4
    """As TransferFlags.REPORT_RELEASE, for runs of a request."""


class DirectoryChange(_Open):
    """What an event of a directory is about."""

    PUBLISHED = 1
    """An agent has an entry, and had none."""
    RESTARTED = 2
    """An agent was restarted: its entry is that of another incarnation."""
    UPDATED = 3
    """An agent has published again."""
    WITHDRAWN = 4
    """An agent was withdrawn, or its process has ended: it has no entry."""
    INVALID = 5
    """The entry of an agent is invalid."""
    SUPERSEDED = 6
    """Another process has published an agent that this handle had published. The entry of the other process remains.
    It is reported also if nothing is watched."""
    INTERRUPTED = 7
    """The directory cannot be reached. kvmem tries again; changes are reported later. With Status.PANIC a bug has
    ended its thread: no event follows, and calls fail. Create the directory again."""
    RESUMED = 8
    """The directory is reached again. All changes in the meantime are reported, before or after this event."""
    RESTORED = 9
    """An entry that this handle has published was missing or damaged, and is published again: its lease had ended,
    because the process was stopped or no server was reached, or another program has removed it. Watchers may have
    received DirectoryChange.WITHDRAWN. It is reported also if nothing is watched."""
    FULL = 10
    """There are more than 65536 entries, invalid ones included, and those beyond are not reported: the memory of a
    watch is bounded. It is reported once, and again only after the watch of all agents has ended. End that watch
    (kvmem_directory_unwatch with NULL), then watch single agents."""


class Operation(_Open):
    """Direction of a request."""

    READ = 1
    """From the remote side to the local side."""
    WRITE = 2
    """From the local side to the remote side."""


class SyncMode(_Open):
    """Lock that NIXL uses for an agent."""

    DEFAULT = 0
    """The same as SyncMode.NONE."""
    NONE = 1
    """NIXL does not lock the agent. Safe: only kvmem, one thread at a time, and NIXL's threads use it."""
    STRICT = 2
    """NIXL locks the agent with a mutex."""
    RW = 3
    """NIXL locks the agent with a read-write lock."""


class CudaCapabilities(enum.IntFlag):
    """Capabilities of a GPU and its driver."""

    VMM = 1
    """Virtual memory management: addresses are allocated apart from memory."""
    POSIX_FD = 2
    """VMM memory can be exported as a file descriptor, verified by an export."""
    FABRIC = 4
    """VMM memory can be exported as a fabric handle, verified by an export."""
    RDMA_WITH_VMM = 8
    """VMM memory can be registered for RDMA."""
    DMA_BUF = 16
    """Memory can be exported as a DMA-BUF."""
    MEMORY_POOLS = 32
    """Supports stream-ordered memory pools."""
    HOST_NUMA_VMM = 64
    """VMM memory can be created on a NUMA node of the host."""
    BATCH_COPIES = 128
    """The driver accepts many copies in one call."""


class RatesSource(_Open):
    """Source of copy rates."""

    DEFAULT = 0
    """Built-in rates: those of one H200 with PCIe 5 x16, and of two with NVLink."""
    MEASURED = 1
    """Measured by the process that saved them."""
    LOADED = 2
    """Set by the caller of the process that saved them."""


class IpcFlags(enum.IntFlag):
    """Flags of IpcOptions."""

    FOR_DEVICE = 1
    """Open the memory for kernels of `for_device`, over NVLink or PCIe."""


class VmmLocation(_Open):
    """Where VMM memory is located."""

    DEVICE = 1
    """Memory of a GPU."""
    HOST_NUMA = 2
    """Memory of a NUMA node of the host."""


class VmmFlags(enum.IntFlag):
    """Flags of VmmOptions."""

    POSIX_FD = 1
    """The memory can be exported as a file descriptor."""
    FABRIC = 2
    """The memory can be exported as a fabric handle."""
    RDMA = 4
    """The memory can be registered for RDMA."""


class Granularity(_Open):
    """Granularity of VMM memory."""

    MINIMUM = 0
    """The granularity that sizes and offsets must be multiples of."""
    RECOMMENDED = 1
    """The granularity that sizes and offsets should be multiples of."""


class Access(_Open):
    """Access of a GPU to a mapping."""

    NONE = 0
    """No access."""
    READ = 1
    """Read access."""
    READ_WRITE = 3
    """Read and write access."""


class Order:
    """Orders of the layouts of NVIDIA Dynamo's KVBM."""

    FULLY_CONTIGUOUS = "BLONHC"
    """Order of KVBM's fully contiguous layout: one region. A block contains all its layers, a layer its outer slots:
    base + block·⌈L·O·R⌉ + layer·O·R + outer·R"""
    LAYER_SEPARATE = "L/BONHC"
    """Order of KVBM's layer separate layout with the block dimension first: one region per layer. base[layer] +
    block·⌈O·R⌉ + outer·R"""
    LAYER_SEPARATE_OUTER_FIRST = "L/OBNHC"
    """Order of KVBM's layer separate layout with the block dimension second: one region per layer. base[layer] +
    outer·B·⌈R⌉ + block·⌈R⌉"""


POOL_BLOCKS = 1
POOL_NOTHING = 2
LAYOUT_ALLOCATE = 1
LAYOUT_REGIONS = 2
LAYOUT_REGISTRATIONS = 3
