/* SPDX-License-Identifier: Apache-2.0 */
/* kvmem: the CUDA driver: transfers on streams, memory for PyTorch's allocator, devices, copy rates, IPC
 * handles, virtual memory management (VMM). Generated from src/ffi; do not edit.
 *
 *     kvmem_transfer_submit_on_stream(transfer, &blocks, stream, &error);
 *
 * Ordinals of GPUs differ between processes, UUIDs do not. VMM memory is memory of cuMemCreate, which is
 * mapped with cuMemMap. CUDA does not work in a child that was forked after CUDA was initialised: the
 * functions fail there with KVMEM_STATUS_INVALID_STATE.
 */

#ifndef KVMEM_CUDA_H
#define KVMEM_CUDA_H

#include "transfer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Transfers on streams ---- */

/// A stream of the CUDA driver. CUstream and cudaStream_t are pointers to it.
struct CUstream_st;

/// Starts a run of a transfer on a stream of the caller, with new blocks or those of kvmem_transfer_prepare.
///
/// The transfer runs after the work that is on the stream now, and before work that is put on the stream
/// later. Poll, wait and queue report its end, as after kvmem_transfer_submit. The call does not wait for the
/// stream, unless host memory of the method is not page-locked: the driver then copies within the call.
///
/// While the stream is captured into a graph, the transfer becomes part of the graph and does not run. Poll,
/// wait and queue do not report runs of the graph. The transfer, both layouts and their memory must outlive
/// the graph. The graph keeps its blocks, also if the transfer gets other ones later; the memory of the
/// transfer grows with each list of blocks that is captured. If another method is better in a graph, or that
/// of the transfer cannot be captured, the graph takes the best one (kvmem_transfer_explain).
///
/// Between two calls of this function kvmem does not know of a capture of a non-blocking stream. Memory of a
/// GPU or pinned memory that is destroyed then, and the first preparation of a kind of copies, can invalidate
/// it. Do both before the capture begins; docs/streams.md lists the calls.
///
/// Later work on the stream does not wait for a verification. It must not change the blocks until its end.
/// @param options the blocks of the run; NULL: everything as it was prepared, or in the last run
/// @param stream a stream of the primary context of the destination's GPU, or of the source's GPU if only
///        that is GPU memory. NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are streams of the context that
///        is current on the calling thread, which must have one. The stream must exist until the call
///        returns: the driver does not detect destroyed streams, and their use is undefined
/// @return KVMEM_STATUS_OK: the transfer is on the stream
///         KVMEM_STATUS_INVALID_ARGUMENT: the stream is of another context or GPU, or is a default stream,
///           and no context is current
///         KVMEM_STATUS_UNSUPPORTED: no GPU takes part; or the stream is captured and the transfer verified
///         KVMEM_STATUS_INVALID_STATE: options is NULL, and the transfer has no blocks yet; the stream is
///           captured, and the caller has requested KVMEM_METHOD_CUDA_STAGED, blocks are elastic, or the
///           capture was invalidated; elastic blocks have no memory; or the GPU was reset since
///         KVMEM_STATUS_BUSY: the transfer is in flight (while a stream is captured, only if options is not
///           NULL), other transfers use the staging memory, or memory is in use as for kvmem_transfer_submit
///         KVMEM_STATUS_STALE: the owner of shared elastic blocks has decommitted them
///         any status of kvmem_transfer_prepare, if options is not NULL
///
/// Notes: if the completion event cannot be recorded, the run fails at once, and its message says so. The GPU
/// may then still move blocks: keep the memory of both layouts until the stream has passed the transfer.
/// kvmem intentionally leaks its own memory that the transfer uses. Other runs that write to the same blocks
/// fail with KVMEM_STATUS_BUSY.
kvmem_status kvmem_transfer_submit_on_stream(kvmem_transfer *transfer, const kvmem_submit_options *options,
    struct CUstream_st *stream, kvmem_error **error);

/// Makes a stream wait for layers of the last run.
///
/// Work that is put on the stream after this call begins when the layers have moved. The call does not wait
/// for the layers. It returns when the driver has the run: if the run has not begun, because many others are
/// in flight, the call starts it before other runs that wait.
///
/// The stream continues even if the run fails: call kvmem_transfer_poll before you use the results.
/// @param transfer a transfer by a KVMEM_METHOD_CUDA_* method, on any stream, whose submission has returned
/// @param num_layers number of layers, counted from the first that moves; 0: the whole run. Without
///        KVMEM_TRANSFER_BY_LAYER, any number means the whole run
/// @param stream a stream as for kvmem_transfer_submit_on_stream, which is not captured
/// @return KVMEM_STATUS_OK: the stream waits, or the layers have moved already
///         KVMEM_STATUS_OUT_OF_RANGE: the transfer moves fewer layers
///         KVMEM_STATUS_INVALID_ARGUMENT: the stream is of another context or GPU, or is a default stream,
///           and no context is current
///         KVMEM_STATUS_INVALID_STATE: the transfer was never submitted, or the stream is captured
///         KVMEM_STATUS_UNSUPPORTED: the method has no stream (between host memory, files and peers), and the
///           layers have not moved yet. Wait for them with kvmem_transfer_wait_layers
///         KVMEM_STATUS_BUSY: the run waits for staging memory of others; the stream does not wait
///         the status of the run: it has failed
kvmem_status kvmem_transfer_wait_on_stream(const kvmem_transfer *transfer, uint64_t num_layers,
    struct CUstream_st *stream, kvmem_error **error);

/* ---- Memory for PyTorch's allocator ---- */

/// Makes a region the pool of a GPU: kvmem_pool_malloc returns blocks of it. There is one pool per GPU for
/// all threads; other pools keep the blocks that they have.
///
/// The region may be destroyed: its memory is freed when it is not the pool, has no blocks, and the GPU has
/// finished its work. While it is a pool, do not commit or decommit it by other functions.
/// @param device the GPU
/// @param region device or elastic memory of the GPU, allocated or adopted by this process, not a view; NULL:
///        the GPU has no pool
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the region is of another tier or GPU, or is a view; or another pool
///           has blocks in its memory
///         KVMEM_STATUS_UNSUPPORTED: the region was imported
kvmem_status kvmem_pool_set_current(int32_t device, kvmem_region *region, kvmem_error **error);

/// Allocates a block of the pool of a GPU. Elastic memory is committed for it. The signature is that of the
/// allocation function of torch.cuda.memory.CUDAPluggableAllocator.
///
/// A block that was freed is reused in the order of streams: work on the stream waits for the work that was
/// on the stream of the freed block then. The host waits only if there is no other memory: for up to 10 s for
/// work that uses free blocks, whose memory it then decommits.
/// @param size bytes
/// @param device the GPU
/// @param stream the stream that uses the block; NULL is the legacy default stream of the primary context. If
///        it is captured into a graph, the block has no memory that earlier work uses
/// @return the address, a multiple of 512; NULL after a failure, whose reason is logged, so that PyTorch
///         raises its error for too little memory
void *kvmem_pool_malloc(size_t size, int32_t device, struct CUstream_st *stream);

/// Frees a block of kvmem_pool_malloc of any pool. The signature is that of the free function of
/// torch.cuda.memory.CUDAPluggableAllocator.
///
/// Does not wait. The memory stays committed for other blocks, until kvmem_pool_commit. A failure is logged.
/// @param address the block; NULL does nothing
/// @param size ignored
/// @param device ignored
/// @param stream the stream whose work has used the block. If it is captured into a graph, the memory is not
///        reused before kvmem_pool_commit with KVMEM_POOL_NOTHING
void kvmem_pool_free(void *address, size_t size, int32_t device, struct CUstream_st *stream);

#define KVMEM_POOL_BLOCKS 1  ///< The extents that blocks use.
#define KVMEM_POOL_NOTHING 2  ///< No extents.

/// Sets which extents of an elastic pool have memory. Blocks keep their addresses. Their content is lost when
/// their extents are decommitted.
///
/// With KVMEM_POOL_NOTHING an engine sleeps, with KVMEM_POOL_BLOCKS it wakes. While all blocks have memory,
/// KVMEM_POOL_BLOCKS decommits what no block and no work uses. Device memory keeps its content with
/// KVMEM_POOL_NOTHING: only blocks that were freed during a capture can be reused then.
/// @param region a region that kvmem_pool_set_current was called with
/// @param extents KVMEM_POOL_BLOCKS; or KVMEM_POOL_NOTHING, after the end of all work that uses the region
/// @return KVMEM_STATUS_INVALID_ARGUMENT: extents is unknown, or the region not elastic (KVMEM_POOL_BLOCKS)
///         KVMEM_STATUS_INVALID_STATE: the region never was a pool
///         KVMEM_STATUS_BUSY: a transfer, request or share uses an extent that would be decommitted, or an
///           agent is still deregistering memory. No extent has lost its memory
///         any status of kvmem_region_commit or kvmem_region_decommit
kvmem_status kvmem_pool_commit(kvmem_region *region, uint32_t extents, kvmem_error **error);

/* ---- Driver and devices ---- */

/// The CUDA driver of this machine.
typedef struct kvmem_cuda_info {
    int32_t driver_version;  ///< The CUDA version that the driver implements: 1000 × major + 10 × minor.
    int32_t device_count;  ///< Number of GPUs that this process may use, at least 1.
} kvmem_cuda_info;

/// Finds and initialises the CUDA driver, and returns its version. Creates no context.
/// @return KVMEM_STATUS_UNAVAILABLE_CUDA: no driver, one that is too old, or no GPU; the message says which
///         KVMEM_STATUS_INVALID_STATE: CUDA was initialised before this process was forked
kvmem_status kvmem_cuda_get_info(kvmem_cuda_info *info, kvmem_error **error);

#define KVMEM_CUDA_VMM 1  ///< Virtual memory management: addresses are allocated apart from memory.
#define KVMEM_CUDA_POSIX_FD 2  ///< VMM memory can be exported as a file descriptor, verified by an export.
#define KVMEM_CUDA_FABRIC 4  ///< VMM memory can be exported as a fabric handle, verified by an export.
#define KVMEM_CUDA_RDMA_WITH_VMM 8  ///< VMM memory can be registered for RDMA.
#define KVMEM_CUDA_DMA_BUF 16  ///< Memory can be exported as a DMA-BUF.
#define KVMEM_CUDA_MEMORY_POOLS 32  ///< Supports stream-ordered memory pools.
#define KVMEM_CUDA_HOST_NUMA_VMM 64  ///< VMM memory can be created on a NUMA node of the host.
#define KVMEM_CUDA_BATCH_COPIES 128  ///< The driver accepts many copies in one call.

/// Properties of a GPU, as its driver reports them.
typedef struct kvmem_cuda_device_info {
    char name[64];  ///< Name, NUL-terminated.
    uint8_t uuid[16];  ///< UUID. Unlike the ordinal, it is the same in every process.
    uint64_t total_memory;  ///< Size of its memory in bytes.
    uint32_t compute_capability_major;  ///< Major number of the compute capability: 9 of 9.0.
    uint32_t compute_capability_minor;  ///< Minor number of the compute capability: 0 of 9.0.
    uint32_t multiprocessors;  ///< Number of multiprocessors.
    int32_t numa_node;  ///< NUMA node that the GPU is attached to; -1 if the driver does not report it.
    /// GPUs whose memory this one can map: bit i is GPU i. The bit of the GPU itself is set. GPUs from 64 on,
    /// more than a driver has, would have no bit.
    uint64_t can_access;
    uint64_t capabilities;  ///< KVMEM_CUDA_* flags.
    /// Sizes and offsets of VMM memory that stays in this process must be multiples of this, in bytes; 0
    /// without KVMEM_CUDA_VMM. For other memory, use kvmem_vmm_get_granularity.
    uint64_t minimum_granularity;
    uint64_t recommended_granularity;  ///< Recommended multiple, in bytes; 0 without KVMEM_CUDA_VMM.
    /// Objects that were destroyed, and are kept until the GPU has finished its work: freeing them would wait
    /// for it, and delay the engine's own calls. They are memory of kvmem_region_create_device, page locks,
    /// opened IPC handles, and kernels. A number that does not fall means work that does not end. Regions and
    /// staging memory of runs whose end can't be detected count, too, and are kept until the process ends.
    uint64_t kept_objects;
    uint64_t kept_bytes;  ///< Bytes of GPU memory and of page-locked host memory that they have.
} kvmem_cuda_device_info;

/// Returns the properties of a GPU.
///
/// kvmem creates and exports a small amount of memory on the GPU to find out which handles work. If the GPU
/// has no free memory, it takes the driver's attributes for the handles.
kvmem_status kvmem_cuda_get_device_info(int32_t device, kvmem_cuda_device_info *info, kvmem_error **error);

/// Returns the ordinal of the GPU with a UUID.
/// @param uuid 16 bytes, as kvmem_cuda_get_device_info returns them
/// @return KVMEM_STATUS_NOT_FOUND: this process may not use the GPU
kvmem_status kvmem_cuda_find_device(const uint8_t *uuid, int32_t *device, kvmem_error **error);

/* ---- Copy rates ---- */

#define KVMEM_RATES_DEFAULT 0  ///< Built-in rates: those of one H200 with PCIe 5 x16, and of two with NVLink.
#define KVMEM_RATES_MEASURED 1  ///< Measured by the process that saved them.
#define KVMEM_RATES_LOADED 2  ///< Set by the caller of the process that saved them.

/// Returns the copy rates of a GPU, or between two, by which transfers select their method. Store them: a
/// later process that sets them (kvmem_cuda_set_copy_rates) measures nothing and selects the same methods.
///
/// If the rates are not known yet, they are measured, as the first transfer on the GPU does: by copies
/// on a stream of kvmem, on a thread of kvmem, for 15 to 30 ms. A measurement uses 64 to 512 MiB of GPU
/// memory: eight times the level 2 cache, and at most an eighth of the free memory. It also uses some host
/// memory, most of which stays page-locked while kvmem has layouts on the GPU. Between two GPUs it uses 16
/// MiB of the memory of each. Rates that cannot be measured are defaults; the log has the reason, and
/// kvmem_cuda_describe_rates returns their number.
///
/// Waits up to 30 s for other work of the GPU and for the measurement. A transfer that gets blocks waits less
/// than 50 ms for rates and kernels, and uses default rates until they are measured. Call this when an engine
/// starts: it also loads the copy kernel, which the driver does not do while a kernel runs.
/// @param device the GPU; between two, the one that does the work: that of the destination, or the one that
///        memory of another process was opened for
/// @param peer the other GPU, or the same. No context is created on the other if the first can access it
/// @param rates receives the rates, as opaque bytes with a version and a checksum
/// @return KVMEM_STATUS_BUSY: other work occupies the GPU for 30 s, so nothing is measured yet
///
/// Notes: rates that kvmem observes while transfers run, to select methods, are not included.
kvmem_status kvmem_cuda_get_copy_rates(int32_t device, int32_t peer, kvmem_blob **rates, kvmem_error **error);

/// Sets the copy rates of a GPU, or between two. Nothing is measured. Transfers that exist keep their method.
/// @param device the GPU, as for kvmem_cuda_get_copy_rates
/// @param peer the other GPU, or the same one
/// @param data bytes of kvmem_cuda_get_copy_rates for these GPUs, from this process or an earlier one; NULL
///        with size 0 discards the rates, so that they are measured when they are needed next
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the rates are of other GPUs
kvmem_status kvmem_cuda_set_copy_rates(int32_t device, int32_t peer, const void *data, size_t size,
    kvmem_error **error);

/// Sets the copy rates of a GPU, and between it and each other GPU, for copies that either of them executes,
/// to the built-in ones. Nothing is measured.
kvmem_status kvmem_cuda_use_default_rates(int32_t device, kvmem_error **error);

/// Summary of copy rates.
typedef struct kvmem_rates_info {
    uint8_t uuid[16];  ///< UUID of the GPU; for rates between two, of the one that does the work.
    uint8_t peer_uuid[16];  ///< UUID of the other GPU; zeroes for rates of one GPU.
    /// Bytes per second of a large copy to the GPU: from page-locked host memory, or from the other GPU.
    double read_bytes_per_second;
    /// Bytes per second of a large copy from the GPU: to page-locked host memory, or to the other GPU.
    double write_bytes_per_second;
    double launch_ns;  ///< Nanoseconds from a copy kernel's launch until it moves bytes; 0 between two GPUs.
    uint32_t source;  ///< KVMEM_RATES_* value.
    /// Number of rates that could not be measured, or were implausible, and were replaced by scaled defaults.
    /// Between GPUs without peer access these are the rates of kernels.
    uint32_t num_defaults;
} kvmem_rates_info;

/// Describes copy rates. Needs neither a GPU nor a driver.
/// @param data bytes of kvmem_cuda_get_copy_rates
/// @param info receives the summary; may be NULL
/// @param text receives all rates as text for people; may be NULL
kvmem_status kvmem_cuda_describe_rates(const void *data, size_t size, kvmem_rates_info *info,
    kvmem_blob **text, kvmem_error **error);

/* ---- IPC handles ---- */

/// The data that another process needs to open GPU memory of this process.
typedef struct kvmem_ipc_handle {
    /// The driver's handle. It names the whole allocation: a process that has it can access all of it.
    uint8_t handle[64];
    uint8_t uuid[16];  ///< UUID of the GPU. kvmem_cuda_find_device returns its ordinal in the other process.
    uint64_t base;  ///< First address of the allocation in this process.
    uint64_t base_size;  ///< Size of the allocation in bytes.
    uint64_t offset;  ///< Offset of the exported address in the allocation, in bytes.
    uint64_t buffer_id;  ///< The driver's number of the allocation in this process, never reused.
} kvmem_ipc_handle;

/// Returns the handle with which another process opens GPU memory.
///
/// The handle does not keep the memory allocated: do not free it while another process has it open. The
/// handle does not synchronize: complete all writes before the other process reads.
/// @param address any address in memory of cuMemAlloc, such as a device region or a tensor
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the address is in managed memory, or no GPU memory of this process
///         KVMEM_STATUS_UNSUPPORTED: the memory is VMM memory, of a memory pool, or of another process
kvmem_status kvmem_ipc_export(uint64_t address, kvmem_ipc_handle *handle, kvmem_error **error);

#define KVMEM_IPC_FOR_DEVICE 1  ///< Open the memory for kernels of `for_device`, over NVLink or PCIe.

/// GPU memory of another process, to be opened with kvmem_region_open_ipc.
typedef struct kvmem_ipc_options {
    size_t struct_size;
    uint8_t handle[64];  ///< The driver's handle.
    uint64_t size;  ///< Size of the region in bytes, at least 1.
    uint64_t offset;  ///< Offset of the region in the allocation, in bytes; 0 by default.
    int32_t device;  ///< The GPU that the memory is located on.
    int32_t for_device;  ///< The GPU that will use the memory. Must be 0 without KVMEM_IPC_FOR_DEVICE.
    uint64_t flags;  ///< KVMEM_IPC_FOR_DEVICE, or 0 (default): open it for the GPU that it is located on.
    /// Size of the allocation in bytes, as exported: detects a stale handle that now names another
    /// allocation. 0 (default): not compared.
    uint64_t base_size;
    /// Number of the allocation, as exported: detects a handle that is already open here and then named
    /// another allocation. 0 (default): not compared.
    uint64_t buffer_id;
} kvmem_ipc_options;

/// Opens GPU memory of another process as a region.
///
/// A handle that is already open is not opened again. All its regions for one GPU share one mapping, which is
/// closed with the last of them. The memory stays readable here when its process ends.
///
/// The driver reuses the bytes of a handle after the memory is freed. A stale handle therefore opens a later
/// allocation. kvmem compares sizes with what the driver has mapped; base_size and buffer_id detect more.
/// @return KVMEM_STATUS_OUT_OF_RANGE: the region ends past the allocation
///         KVMEM_STATUS_INVALID_ARGUMENT: the size is 0; or the handle names no memory that can be opened,
///           memory of this process, or memory of another GPU
///         KVMEM_STATUS_NOT_FOUND: this process may not use the GPU of the memory
///         KVMEM_STATUS_STALE: base_size or buffer_id is that of another allocation
///         KVMEM_STATUS_UNSUPPORTED: for_device cannot access the GPU of the memory; or the driver has mapped
///           the memory for another GPU of this process, and maps it only once
kvmem_status kvmem_region_open_ipc(const kvmem_ipc_options *options, kvmem_region **region,
    kvmem_error **error);

/* ---- Virtual memory management: memory ---- */

/// Physical memory without an address.
typedef struct kvmem_vmm_memory kvmem_vmm_memory;

#define KVMEM_VMM_DEVICE 1  ///< Memory of a GPU.
#define KVMEM_VMM_HOST_NUMA 2  ///< Memory of a NUMA node of the host.

#define KVMEM_VMM_POSIX_FD 1  ///< The memory can be exported as a file descriptor.
#define KVMEM_VMM_FABRIC 2  ///< The memory can be exported as a fabric handle.
#define KVMEM_VMM_RDMA 4  ///< The memory can be registered for RDMA.

/// Properties of VMM memory. They are fixed for the life of the memory.
typedef struct kvmem_vmm_options {
    size_t struct_size;
    uint64_t size;  ///< Bytes, a multiple of the minimum granularity; kvmem_vmm_get_granularity ignores it.
    uint32_t location;  ///< KVMEM_VMM_DEVICE (0 selects it too) or KVMEM_VMM_HOST_NUMA.
    int32_t id;  ///< The GPU, or the number of the NUMA node; 0 by default.
    uint64_t flags;  ///< KVMEM_VMM_POSIX_FD, KVMEM_VMM_FABRIC and KVMEM_VMM_RDMA; 0 by default.
} kvmem_vmm_options;

#define KVMEM_GRANULARITY_MINIMUM 0  ///< The granularity that sizes and offsets must be multiples of.
#define KVMEM_GRANULARITY_RECOMMENDED 1  ///< The granularity that sizes and offsets should be multiples of.

/// Returns a granularity of VMM memory.
/// @param which KVMEM_GRANULARITY_MINIMUM or KVMEM_GRANULARITY_RECOMMENDED
/// @return KVMEM_STATUS_OUT_OF_RANGE: id is negative
kvmem_status kvmem_vmm_get_granularity(const kvmem_vmm_options *options, uint32_t which,
    uint64_t *granularity, kvmem_error **error);

/// Creates VMM memory.
/// @return KVMEM_STATUS_INVALID_ARGUMENT: size is 0 or no multiple of the granularity, or a value is unknown
///         KVMEM_STATUS_OUT_OF_RANGE: id is negative
///         KVMEM_STATUS_OUT_OF_MEMORY: for a GPU, the message has the bytes requested and in total, and the
///           free bytes if the process has the primary context of the GPU
///         KVMEM_STATUS_CUDA: the driver does not support a handle type on this machine
kvmem_status kvmem_vmm_memory_create(const kvmem_vmm_options *options, kvmem_vmm_memory **memory,
    kvmem_error **error);

/// Destroys a memory handle. The memory is freed when it has no mapping and no open file descriptor.
void kvmem_vmm_memory_destroy(kvmem_vmm_memory *memory);

/* ---- Virtual memory management: export and import ---- */

/// VMM memory that other processes of the same fabric can import.
typedef struct kvmem_fabric_handle {
    uint8_t bytes[64];  ///< The driver's handle.
} kvmem_fabric_handle;

/// Exports memory as a close-on-exec file descriptor, which keeps the memory while it is open in any process.
/// @param fd receives the file descriptor; the caller closes it
/// @return KVMEM_STATUS_INVALID_STATE: the memory was created without KVMEM_VMM_POSIX_FD
///         KVMEM_STATUS_UNSUPPORTED: the memory was imported
kvmem_status kvmem_vmm_memory_export_fd(const kvmem_vmm_memory *memory, int32_t *fd, kvmem_error **error);

/// Exports memory as a fabric handle, which processes on other machines of the fabric can import too. The
/// handle does not keep the memory allocated.
/// @return KVMEM_STATUS_INVALID_STATE: the memory was created without KVMEM_VMM_FABRIC
///         KVMEM_STATUS_UNSUPPORTED: the memory was imported
kvmem_status kvmem_vmm_memory_export_fabric(const kvmem_vmm_memory *memory, kvmem_fabric_handle *handle,
    kvmem_error **error);

#define KVMEM_VMM_ANY_DEVICE (-1)  ///< For the device of imported memory: accept any location.

/// Imports memory from a file descriptor of another process. It can be mapped, but not exported again.
/// @param fd the file descriptor; the caller may close it after the call
/// @param size size of the whole memory in bytes, as its exporter reports it. The driver does not report it,
///        so a wrong size fails only in kvmem_vmm_mapping_create
/// @param device the GPU that the memory must be located on; KVMEM_VMM_ANY_DEVICE for any, or host memory
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the file descriptor is not open, or not of VMM memory; the memory
///           is not located on `device`; or the size is 0 or not a multiple of the granularity
///         KVMEM_STATUS_NOT_FOUND: this process may not use the GPU of the memory
///         KVMEM_STATUS_UNSUPPORTED: the memory is located neither on a GPU nor on a NUMA node
kvmem_status kvmem_vmm_memory_import_fd(int32_t fd, uint64_t size, int32_t device, kvmem_vmm_memory **memory,
    kvmem_error **error);

/// Imports memory from a fabric handle of another process, otherwise as kvmem_vmm_memory_import_fd does.
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the bytes are not a fabric handle, or its memory was freed; the
///           memory is not located on `device`; or the size is 0 or not a multiple of the granularity
///         KVMEM_STATUS_UNSUPPORTED: fabric handles do not work here, or the memory is located neither on a
///           GPU nor on a NUMA node
kvmem_status kvmem_vmm_memory_import_fabric(const kvmem_fabric_handle *handle, uint64_t size, int32_t device,
    kvmem_vmm_memory **memory, kvmem_error **error);

/// Retains memory that is mapped in this process, such as by an engine. The memory stays allocated when the
/// engine unmaps and releases it. It can be exported by the handle types that it was created with.
/// @param address any address in the mapping
/// @return KVMEM_STATUS_INVALID_ARGUMENT: no VMM memory is mapped at the address
kvmem_status kvmem_vmm_memory_retain(uint64_t address, kvmem_vmm_memory **memory, kvmem_error **error);

/* ---- Virtual memory management: ranges of addresses ---- */

/// A reserved range of device addresses. It has no memory until memory is mapped into it.
typedef struct kvmem_vmm_range kvmem_vmm_range;

/// Device addresses of a range or of a mapping.
typedef struct kvmem_vmm_span {
    uint64_t address;  ///< First address.
    uint64_t size;  ///< Bytes.
} kvmem_vmm_span;

/// Reserves a range of device addresses. Allocates no memory.
/// @param size bytes, a multiple of the page size; only multiples of the granularity can be mapped fully
/// @param alignment alignment of the first address in bytes, a power of two; 0: the driver's default
/// @param span receives the addresses; may be NULL
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the size is 0 or not a multiple of the page size, or the alignment
///           is not a power of two
kvmem_status kvmem_vmm_range_create(uint64_t size, uint64_t alignment, kvmem_vmm_span *span,
    kvmem_vmm_range **range, kvmem_error **error);

/// Destroys a range handle. The addresses are freed when nothing is mapped there.
void kvmem_vmm_range_destroy(kvmem_vmm_range *range);

/* ---- Virtual memory management: mappings ---- */

/// VMM memory that is mapped into a range. The mapping holds its range and its memory.
typedef struct kvmem_vmm_mapping kvmem_vmm_mapping;

#define KVMEM_ACCESS_NONE 0  ///< No access.
#define KVMEM_ACCESS_READ 1  ///< Read access.
#define KVMEM_ACCESS_READ_WRITE 3  ///< Read and write access.

/// Maps memory into a range, as a whole. No GPU has access until kvmem_vmm_mapping_set_access grants it.
/// @param offset offset in the range in bytes; the address there must be a multiple of the granularity
/// @param span receives the addresses; its size is that of the memory. May be NULL
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the address is not such a multiple, or the memory was imported with
///           a wrong size
///         KVMEM_STATUS_OUT_OF_RANGE: the memory does not fit into the range at this offset
///         KVMEM_STATUS_ALREADY_EXISTS: other memory is mapped there
kvmem_status kvmem_vmm_mapping_create(kvmem_vmm_range *range, uint64_t offset, kvmem_vmm_memory *memory,
    kvmem_vmm_span *span, kvmem_vmm_mapping **mapping, kvmem_error **error);

/// Sets the access of a GPU to a mapping.
/// @return KVMEM_STATUS_UNSUPPORTED: the GPU cannot access the GPU of the memory
kvmem_status kvmem_vmm_mapping_set_access(kvmem_vmm_mapping *mapping, int32_t device, uint32_t access,
    kvmem_error **error);

/// Returns the access of a GPU to a mapping.
kvmem_status kvmem_vmm_mapping_get_access(const kvmem_vmm_mapping *mapping, int32_t device, uint32_t *access,
    kvmem_error **error);

/// Destroys a mapping: unmaps the memory. No GPU may use its addresses any more.
void kvmem_vmm_mapping_destroy(kvmem_vmm_mapping *mapping);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_CUDA_H */
