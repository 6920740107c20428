// SPDX-License-Identifier: Apache-2.0
//! Generated from the headers by scripts/bindings.py; do not edit.
//! Constants of the headers: flags are packed structs, other constants are enumerations that may get more values.

/// Importance of a log message.
pub const LogLevel = enum(u32) {
    /// No messages.
    off = 0,
    /// Failures that no return value can report.
    @"error" = 1,
    /// Something works, but not as well as requested.
    warn = 2,
    /// Milestones, such as a loaded library, and methods that the setup makes slow.
    info = 3,
    /// Creation and destruction of regions, layouts and transfers; start and end of runs; opened files,
    /// registrations, shares; failed calls. Objects have numbers, as in "transfer #7".
    debug = 4,
    /// All calls, timeouts, and the steps of operations.
    trace = 5,
    _,
};

/// Library or system that the native cause of an error is from.
pub const Domain = enum(u32) {
    /// There is no native cause.
    none = 0,
    /// The code is an errno value.
    errno = 1,
    /// The code is a status of NIXL's C API.
    nixl = 2,
    /// The code is a CUresult.
    cuda = 3,
    _,
};

/// Kind of memory of a region.
pub const Tier = enum(u32) {
    /// The default of the library.
    default = 0,
    /// Host memory.
    system = 1,
    /// A file.
    disk = 2,
    /// Page-locked host memory, which GPUs access by DMA.
    pinned = 3,
    /// GPU memory.
    device = 4,
    /// GPU memory that grows and shrinks at fixed addresses.
    elastic = 5,
    /// Objects of an object store, which NIXL reads and writes.
    object = 6,
    /// Block storage, which NIXL reads and writes.
    block = 7,
    _,
};

/// Flags of SystemOptions.
pub const SystemFlags = packed struct(u64) {
    /// Ask the kernel for transparent huge pages for a region of any size, and report their absence:
    /// `RegionFlags.huge_page_fallback`. Without this flag kvmem asks for them for regions of at least one
    /// huge page (2 MiB on x86-64).
    transparent_huge_pages: bool = false,
    /// Fail if the requested page size is not available. Without this flag smaller pages are used, and the
    /// info of the region has `RegionFlags.huge_page_fallback`.
    huge_pages_required: bool = false,
    /// Bind the memory to `numa_node`.
    numa_bind: bool = false,
    /// Allocate a memory file, so that other processes can share the region.
    shareable: bool = false,
    /// Use ordinary pages only. For memory of which small parts far from each other are accessed: with huge
    /// pages the first access to a byte allocates 2 MiB.
    no_huge_pages: bool = false,
    /// With `shareable`: no other process can ever map the memory for writing, whatever it opens. It can be
    /// shared with `ShareFlags.read_only` only.
    write_sealed: bool = false,
    _: u58 = 0,
};

/// Flags of PinnedOptions.
pub const PinnedFlags = packed struct(u64) {
    /// Use ordinary pages only.
    no_huge_pages: bool = false,
    /// Bind the memory to `numa_node`.
    numa_bind: bool = false,
    /// Allocate a memory file, so that other processes can share the region.
    shareable: bool = false,
    /// With `shareable`: as `SystemFlags.write_sealed`.
    write_sealed: bool = false,
    _: u60 = 0,
};

/// Flags of ElasticOptions.
pub const ElasticFlags = packed struct(u64) {
    /// Extents can be shared by fabric handle (`Transport.fabric`), too. This cannot be enabled later.
    fabric: bool = false,
    _: u63 = 0,
};

/// Flags of DiskOptions.
pub const DiskFlags = packed struct(u64) {
    /// Use the page cache, which I/O bypasses by default if possible (O_DIRECT).
    buffered: bool = false,
    /// Fail if the file system does not support O_DIRECT. Without this flag the page cache is used instead,
    /// and the info of the region lacks `RegionFlags.direct_io`.
    direct_required: bool = false,
    /// Open the file at `path`, which must exist and not be empty.
    open_existing: bool = false,
    /// Open the file at `path`, or create it if it is absent or empty.
    open_or_create: bool = false,
    /// With `open_existing`: open the file for reading. The region can only be the source of transfers. It
    /// can be open while a writer has the file open.
    read_only: bool = false,
    /// Do not lock the file against other writers: the caller excludes them.
    no_lock: bool = false,
    _: u58 = 0,
};

/// Flags of adopted memory.
pub const AdoptFlags = packed struct(u64) {
    /// Adopt host memory for reading. It may be mapped without PROT_WRITE. The region can only be the
    /// source of transfers, and cannot be registered with an agent.
    read_only: bool = false,
    /// kvmem_region_adopt_memfd: do not seal the file with F_SEAL_SHRINK.
    keep_seals: bool = false,
    _: u62 = 0,
};

/// Source of the memory of a region.
pub const Origin = enum(u32) {
    /// The default of the library.
    default = 0,
    /// kvmem allocated it.
    allocated = 1,
    /// It is memory of the caller.
    adopted = 2,
    /// It is a part of another region.
    view = 3,
    /// It is memory of another process.
    imported = 4,
    _,
};

/// Properties of a region.
pub const RegionFlags = packed struct(u64) {
    /// Disk: I/O bypasses the page cache.
    direct_io: bool = false,
    /// Disk: space was reserved when this region was created. Not set for an existing or shared file.
    preallocated: bool = false,
    /// Disk: the file has no name, and is deleted with the region.
    temporary: bool = false,
    /// System and pinned: pages are smaller than requested.
    huge_page_fallback: bool = false,
    /// System and pinned: the memory is a memory file, which can be shared.
    shareable: bool = false,
    /// It can only be read: it was shared, adopted or opened for reading.
    read_only: bool = false,
    _: u58 = 0,
};

/// Type of memory of NIXL.
pub const MemoryType = enum(u32) {
    /// The default of the library.
    default = 0,
    /// Host memory.
    dram = 1,
    /// GPU memory.
    vram = 2,
    /// A file.
    file = 3,
    /// A block device, or a store of blocks.
    block = 4,
    /// An object store.
    object = 5,
    _,
};

/// Who accesses a block.
pub const Accessor = enum(u32) {
    /// The default of the library.
    default = 0,
    /// A run in flight of a transfer or request of this process.
    run = 1,
    /// A run of this process that has ended, as at its deadline, while its memory is still in use. A
    /// `CompletionKind.memory_released` reports when it no longer is.
    ended_run = 2,
    /// The same if nothing will detect when the memory is no longer in use.
    lost_run = 3,
    /// A peer, in a session that this process serves (kvmem_layout_serve).
    peer = 4,
    /// The holder of a lease (kvmem_lease_create), in any process.
    lease = 5,
    _,
};

/// Flags of LeaseOptions.
pub const LeaseFlags = packed struct(u64) {
    /// The holder may also write the blocks.
    writes: bool = false,
    _: u63 = 0,
};

/// Processes that can access a layout.
pub const Locality = enum(u32) {
    /// The default of the library.
    default = 0,
    /// Only this process can access it: it has no agent.
    local = 1,
    /// This process can access it, and peers of its agent.
    registered = 2,
    /// It belongs to a peer. Only transfers can access it.
    remote = 3,
    /// It belongs to another process and is mapped here: this process can access it like its own memory.
    mapped = 4,
    _,
};

/// Flags of SubmitOptions.
pub const SubmitFlags = packed struct(u64) {
    /// After all blocks have moved, compare the CRC32C of each destination block with that of its source
    /// block. The run ends after the comparison, with KVMEM_STATUS_CORRUPT if they differ;
    /// kvmem_transfer_get_mismatches returns which do. Until the end nothing may write to the blocks. With
    /// a range of heads or block tables, only what has moved is compared, token by token; then files with
    /// direct I/O are not supported.  Both sides are read: host memory in place by several threads, GPU
    /// memory by a kernel on its GPU, and files, objects and blocks of peers once more, to memory that has
    /// random bytes before: a read that reports success and moves nothing is found, too. If a peer serves
    /// its layout (kvmem_layout_serve), the transfer is served: the owner of the source sends checksums,
    /// the other side compares what has arrived and what its blocks then have, and nothing is read twice
    /// over the network. Such a run ends at the first chunk that differs; only then the blocks are read
    /// once more, to find those that differ.
    verify: bool = false,
    /// Compute the CRC32C of the moved layers and outer slots of each block, as kvmem_layout_checksum does;
    /// kvmem_transfer_get_checksums returns them after the run. Until the end nothing may write to the
    /// blocks.  If the run compares whole blocks, these are the checksums of the destination that it has
    /// compared, and nothing is read for them. Otherwise one side is read in place after all blocks have
    /// moved, by threads or by a kernel on its GPU: the destination, if it is host or GPU memory of this
    /// process, or else the source. No file or peer is read for them. Not supported in a graph, and with a
    /// range of heads or block tables.
    checksum: bool = false,
    _: u62 = 0,
};

/// Flags of TransferOptions.
pub const TransferFlags = packed struct(u64) {
    /// Exclude methods that store bytes anywhere between source and destination: in staging memory, in
    /// memory of the driver (which it uses if host memory is not page-locked), or in the page cache of a
    /// buffered file. Excludes all methods to a peer, because NIXL does not report what its backends do.
    zero_copy: bool = false,
    /// Exclude methods through host memory that is neither source nor destination: all methods between a
    /// file and a GPU except GPUDirect Storage, and all methods to a peer.
    no_host_bounce: bool = false,
    /// Move the layers in order, and report how many have moved: see kvmem_transfer_get_info,
    /// kvmem_transfer_wait_layers and kvmem_transfer_wait_on_stream. Bytes that are contiguous across
    /// layers are then moved layer by layer, which makes transfers of small fully contiguous blocks slower;
    /// kvmem_transfer_explain reports by how much.
    by_layer: bool = false,
    /// The queue gets a `CompletionKind.memory_released` for each run that ends before its memory is
    /// released, as at its `run_timeout_ns`. Requires a queue.
    report_release: bool = false,
    _: u60 = 0,
};

/// What a completion reports.
pub const CompletionKind = enum(u32) {
    /// The default of the library.
    default = 0,
    /// A run of a transfer or request has ended.
    run_ended = 1,
    /// Layers of a run have moved; only with `layers_per_completion` of TransferOptions. The numbers of
    /// layers of a run ascend, and its end follows. If the run succeeds, the last number is that of all
    /// layers. While one waits in the queue, further ones only increase its number.
    layers_moved = 2,
    /// The memory of a run that had ended is released; only with `TransferFlags.report_release` or
    /// `NixlFlags.report_release`. It follows each `run_ended` with `released` 0, once, also if the
    /// transfer is destroyed meanwhile. Then the transfer can be submitted again; the completions of the
    /// next run are behind this one.
    memory_released = 3,
    /// An agent has messages: see kvmem_agent_report_notifications.
    notifications = 4,
    /// A directory has events: see kvmem_directory_report_events.
    events = 5,
    _,
};

/// Whether kernels of the caller run during a transfer.
pub const Compute = enum(u32) {
    /// Kernels of the caller may run meanwhile. Methods that slow them down are not used, or use few CTAs.
    may_run = 0,
    /// The GPU is idle during the transfer. Copies may use all of it.
    idle = 1,
    _,
};

/// How a transfer moves bytes.
pub const Method = enum(u32) {
    /// The default of the library.
    default = 0,
    /// Host memory: host threads copy by memcpy.
    memcpy = 1,
    /// GPU memory: the CUDA driver copies, one call of cuMemcpyAsync per contiguous range.
    cuda_copy = 2,
    /// GPU memory: the CUDA driver copies all contiguous ranges by one call of cuMemcpyBatchAsync.
    cuda_batch = 3,
    /// GPU memory: the CUDA driver copies rows of blocks at regular distances, by cuMemcpy2DAsync.
    cuda_2d = 4,
    /// GPU memory: a kernel on the SMs reads and writes both sides directly.
    cuda_kernel = 5,
    /// Between host and GPU memory: a kernel gathers or scatters in staging memory on the GPU, and a copy
    /// engine moves contiguous ranges.
    cuda_staged = 6,
    /// Files: io_uring. GPU memory is copied through page-locked host memory.
    uring = 7,
    /// Files: as `uring`, with threads that call preadv and pwritev.
    pread = 8,
    /// Peers, files, objects, block storage: NIXL reads or writes, one descriptor per contiguous range; a
    /// request writes a whole object. Between a file and GPU memory, NIXL uses GPUDirect Storage.
    nixl = 9,
    /// Peers, objects: NIXL reads large ranges or whole objects to staging memory of this process, or
    /// writes them from there. Host threads or a GPU scatter or gather rows.
    nixl_staged = 10,
    /// Peers that serve their layout: NIXL reads large ranges from staging memory of the owner, which
    /// gathers rows, or writes them there, and the owner scatters them.
    nixl_served = 11,
    _,
};

/// What was decided about a method that was compared.
pub const Choice = enum(u32) {
    /// The default of the library.
    default = 0,
    /// The transfer takes the method. The reason is a remark, or empty.
    used = 1,
    /// The method is possible, its estimate is no better. The reason is empty.
    slower = 2,
    /// The method is not used for the given reason, and is possible as far as is known. If another method
    /// was requested, agents of NIXL are not asked what they have.
    not_used = 3,
    /// The method is not possible, and the reason says why.
    impossible = 4,
    _,
};

/// Flags of ServeOptions.
pub const ServeFlags = packed struct(u64) {
    /// Peers may write to the layout, too.
    write: bool = false,
    /// Stage in page-locked host memory, also for GPU memory. Peers with layouts in host memory need it.
    from_host: bool = false,
    _: u62 = 0,
};

/// How a share carries memory.
pub const Transport = enum(u32) {
    /// Selects the transport by tier: file descriptors for system, pinned, elastic and disk memory, and for
    /// device memory that an engine mapped with cuMemMap; the driver's IPC handle for other device memory.
    /// Memory that can be exported only as fabric handles is carried by these.
    auto = 0,
    /// Carries memory by file descriptors.
    fd = 1,
    /// Carries memory by the driver's IPC handle.
    ipc = 2,
    /// Carries no memory: other processes access the layout through NIXL.
    remote = 3,
    /// Carries memory by the driver's fabric handles: elastic memory created with `ElasticFlags.fabric`, or
    /// memory that an engine mapped and created with fabric handles.
    fabric = 4,
    _,
};

/// Flags of ShareOptions.
pub const ShareFlags = packed struct(u64) {
    /// Grants read access only. File descriptors of host memory and files are then read-only, and GPUs get
    /// no write access to extents and mappings. That prevents mistakes, and no intent: a process of the
    /// same user, or root, can open such a file descriptor again for writing, unless the memory is sealed
    /// (`write_sealed`). For device memory by IPC handle, only the importer's kvmem prevents writing.
    read_only: bool = false,
    /// Seals host memory against writing by other processes for ever (F_SEAL_FUTURE_WRITE), before it is
    /// shared. Requires `read_only`. Mappings that exist remain writable, such as those of this process.
    /// For memory of `SystemFlags.shareable` and `PinnedFlags.shareable` it must be set in the first share;
    /// for an adopted memory file before a share that grants write access.
    write_sealed: bool = false,
    _: u62 = 0,
};

/// Flags of OpenOptions.
pub const OpenFlags = packed struct(u64) {
    /// Open for reading only, even if write access is granted.
    read_only: bool = false,
    /// Page-lock host memory for the GPU `device`. The region is then pinned memory. Read-only memory can
    /// be locked only for a GPU that has CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED; for others,
    /// opening fails with KVMEM_STATUS_UNSUPPORTED. No effect on files and GPU memory.
    pin: bool = false,
    /// Layouts: map the memory or fail, rather than use NIXL.
    mapped_only: bool = false,
    /// Layouts: use NIXL, even if the memory can be mapped. Needs `agent`.
    remote: bool = false,
    /// Layouts: register the mapped memory with `agent`.
    register: bool = false,
    /// Open GPU memory for kernels of the GPU `device`, which access it over NVLink or PCIe. Without this
    /// flag, the memory is opened for the GPU that it is located on, and kernels of other GPUs fail to
    /// access it. Plain device memory is opened for one GPU at a time. Elastic memory, and memory that an
    /// engine mapped, stays open for its own GPU too. kvmem opens it for another GPU when a transfer there
    /// gets its first blocks, which delays that call: on an H200, by 0.3 ms per extent of 64 MiB and 20 ms
    /// per extent of 1 GiB. No effect on host memory, files, and memory of this process.
    for_device: bool = false,
    /// Open for reading and writing, and fail with KVMEM_STATUS_PERMISSION_DENIED unless write access is
    /// granted. Without this flag and `read_only`, the region has all granted rights (see
    /// `RegionFlags.read_only`).
    read_write: bool = false,
    /// Map host memory that other processes can take away: reserved huge pages (`huge_page_size` of
    /// SystemOptions), and adopted memory files that can be truncated (see kvmem_region_adopt_memfd). The
    /// owner, and every importer with write access, can remove such pages. If this process then touches
    /// them, it ends with SIGBUS. Without this flag, such memory fails with KVMEM_STATUS_UNSUPPORTED.
    trust_owner: bool = false,
    /// Open elastic memory, and memory that an engine mapped, for every GPU of this process that can access
    /// the GPU it is located on: for an engine whose own kernels use it on several GPUs. Each GPU takes as
    /// long as with `for_device`. No effect on other memory. Excludes `for_device`.
    for_all_devices: bool = false,
    _: u55 = 0,
};

/// Kind of object that is shared.
pub const SharedObject = enum(u32) {
    /// The default of the library.
    default = 0,
    /// The share is of a region.
    region = 1,
    /// The share is of a layout.
    layout = 2,
    _,
};

/// Flags of PublishOptions.
pub const PublishFlags = packed struct(u64) {
    /// The token grants read access only, whatever the share grants.
    read_only: bool = false,
    _: u63 = 0,
};

/// Flags of FetchOptions.
pub const FetchFlags = packed struct(u64) {
    /// Fetch read access only, even if write access is granted.
    read_only: bool = false,
    /// The broker must run as `broker_user`, instead of the caller's user.
    broker_user: bool = false,
    /// Fetch read and write access, and fail if less is granted.
    read_write: bool = false,
    _: u61 = 0,
};

/// When the blocks of a store survive a loss of power.
pub const Durability = enum(u32) {
    /// What has ended is durable: a put ends after its blocks and the index are on the disk. Puts that end
    /// at the same time share the writes of the index.
    strict = 0,
    /// Blocks become durable every `interval_ns`, and by kvmem_store_flush. Those that were put since are
    /// lost if the process or the machine ends.
    relaxed = 1,
    /// Blocks survive the process. After a loss of power any may be missing, or damaged, which a get
    /// detects.
    none = 2,
    _,
};

/// Who evicts blocks of a store.
pub const Eviction = enum(u32) {
    /// The store evicts blocks when it needs slots: those without stored children first, the least recently
    /// used of them first.
    store = 0,
    /// The store evicts no block that a handle of it finds. A put fails with KVMEM_STATUS_OUT_OF_MEMORY if
    /// there are not enough free slots.
    caller = 1,
    _,
};

/// Flags of StoreBlocks.
pub const StoreFlags = packed struct(u64) {
    /// The keys of a put are not of one sequence: none is the parent of the next.
    unrelated: bool = false,
    _: u63 = 0,
};

/// Between which kinds of memory a run moves bytes.
pub const Direction = enum(u32) {
    /// From host memory to host memory. Mapped memory of another process is memory here.
    host_to_host = 0,
    /// From host memory to GPU memory.
    host_to_gpu = 1,
    /// From GPU memory to host memory.
    gpu_to_host = 2,
    /// From GPU memory to GPU memory.
    gpu_to_gpu = 3,
    /// From files, objects or block storage to memory.
    read = 4,
    /// From memory to files, objects or block storage.
    write = 5,
    /// From a peer, by an agent.
    pull = 6,
    /// To a peer, by an agent.
    push = 7,
    _,
};

/// Flags of AgentOptions.
pub const AgentFlags = packed struct(u64) {
    /// Without NIXL's progress thread: kvmem drives the idle agent.
    no_progress_thread: bool = false,
    /// Run NIXL's listen thread, which exchanges metadata with peers by address. It listens on all network
    /// interfaces, and loads what it receives: damaged metadata ends the process, with NIXL 1.5. So any
    /// program that reaches the port can end it. Use it only if all of them are trusted. Otherwise exchange
    /// metadata as bytes, or by a directory, whose entries have a checksum.
    listen_thread: bool = false,
    /// NIXL measures transfers.
    telemetry: bool = false,
    _: u61 = 0,
};

/// Flags of NixlOptions.
pub const NixlFlags = packed struct(u64) {
    /// Send the notification, also if it has no bytes.
    notify: bool = false,
    /// NIXL does not merge neighbouring descriptors.
    skip_merge: bool = false,
    /// As `TransferFlags.report_release`, for runs of a request.
    report_release: bool = false,
    _: u61 = 0,
};

/// What an event of a directory is about.
pub const DirectoryChange = enum(u32) {
    /// The default of the library.
    default = 0,
    /// An agent has an entry, and had none.
    published = 1,
    /// An agent was restarted: its entry is that of another incarnation.
    restarted = 2,
    /// An agent has published again.
    updated = 3,
    /// An agent was withdrawn, or its process has ended: it has no entry.
    withdrawn = 4,
    /// The entry of an agent is invalid.
    invalid = 5,
    /// Another process has published an agent that this handle had published. The entry of the other
    /// process remains. It is reported also if nothing is watched.
    superseded = 6,
    /// The directory cannot be reached. kvmem tries again; changes are reported later. With
    /// KVMEM_STATUS_PANIC a bug has ended its thread: no event follows, and calls fail. Create the
    /// directory again.
    interrupted = 7,
    /// The directory is reached again. All changes in the meantime are reported, before or after this
    /// event.
    resumed = 8,
    /// An entry that this handle has published was missing or damaged, and is published again: its lease
    /// had ended, because the process was stopped or no server was reached, or another program has removed
    /// it. Watchers may have received `withdrawn`. It is reported also if nothing is watched.
    restored = 9,
    /// There are more than 65536 entries, invalid ones included, and those beyond are not reported: the
    /// memory of a watch is bounded. It is reported once, and again only after the watch of all agents has
    /// ended. End that watch (kvmem_directory_unwatch with NULL), then watch single agents.
    full = 10,
    _,
};

/// Direction of a request.
pub const Operation = enum(u32) {
    /// The default of the library.
    default = 0,
    /// From the remote side to the local side.
    read = 1,
    /// From the local side to the remote side.
    write = 2,
    _,
};

/// Lock that NIXL uses for an agent.
pub const SyncMode = enum(u32) {
    /// The same as `none`.
    default = 0,
    /// NIXL does not lock the agent. Safe: only kvmem, one thread at a time, and NIXL's threads use it.
    none = 1,
    /// NIXL locks the agent with a mutex.
    strict = 2,
    /// NIXL locks the agent with a read-write lock.
    rw = 3,
    _,
};

/// Capabilities of a GPU and its driver.
pub const CudaCapabilities = packed struct(u64) {
    /// Virtual memory management: addresses are allocated apart from memory.
    vmm: bool = false,
    /// VMM memory can be exported as a file descriptor, verified by an export.
    posix_fd: bool = false,
    /// VMM memory can be exported as a fabric handle, verified by an export.
    fabric: bool = false,
    /// VMM memory can be registered for RDMA.
    rdma_with_vmm: bool = false,
    /// Memory can be exported as a DMA-BUF.
    dma_buf: bool = false,
    /// Supports stream-ordered memory pools.
    memory_pools: bool = false,
    /// VMM memory can be created on a NUMA node of the host.
    host_numa_vmm: bool = false,
    /// The driver accepts many copies in one call.
    batch_copies: bool = false,
    _: u56 = 0,
};

/// Source of copy rates.
pub const RatesSource = enum(u32) {
    /// Built-in rates: those of one H200 with PCIe 5 x16, and of two with NVLink.
    default = 0,
    /// Measured by the process that saved them.
    measured = 1,
    /// Set by the caller of the process that saved them.
    loaded = 2,
    _,
};

/// Flags of IpcOptions.
pub const IpcFlags = packed struct(u64) {
    /// Open the memory for kernels of `for_device`, over NVLink or PCIe.
    for_device: bool = false,
    _: u63 = 0,
};

/// Where VMM memory is located.
pub const VmmLocation = enum(u32) {
    /// The default of the library.
    default = 0,
    /// Memory of a GPU.
    device = 1,
    /// Memory of a NUMA node of the host.
    host_numa = 2,
    _,
};

/// Flags of VmmOptions.
pub const VmmFlags = packed struct(u64) {
    /// The memory can be exported as a file descriptor.
    posix_fd: bool = false,
    /// The memory can be exported as a fabric handle.
    fabric: bool = false,
    /// The memory can be registered for RDMA.
    rdma: bool = false,
    _: u61 = 0,
};

/// Granularity of VMM memory.
pub const Granularity = enum(u32) {
    /// The granularity that sizes and offsets must be multiples of.
    minimum = 0,
    /// The granularity that sizes and offsets should be multiples of.
    recommended = 1,
    _,
};

/// Access of a GPU to a mapping.
pub const Access = enum(u32) {
    /// No access.
    none = 0,
    /// Read access.
    read = 1,
    /// Read and write access.
    read_write = 3,
    _,
};

/// Orders of the layouts of NVIDIA Dynamo's KVBM.
pub const order = struct {
    /// Order of KVBM's fully contiguous layout: one region. A block contains all its layers, a layer its
    /// outer slots: base + block·⌈L·O·R⌉ + layer·O·R + outer·R
    pub const fully_contiguous = "BLONHC";
    /// Order of KVBM's layer separate layout with the block dimension first: one region per layer.
    /// base[layer] + block·⌈O·R⌉ + outer·R
    pub const layer_separate = "L/BONHC";
    /// Order of KVBM's layer separate layout with the block dimension second: one region per layer.
    /// base[layer] + outer·B·⌈R⌉ + block·⌈R⌉
    pub const layer_separate_outer_first = "L/OBNHC";
};
