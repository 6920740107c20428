/* SPDX-License-Identifier: Apache-2.0 */
/* kvmem: the CUDA driver. Generated from src/ffi; do not edit.
 *
 * Devices, transfers on streams, copy rates, IPC handles, virtual memory management.
 * kvmem.h says what holds for all functions: errors, handles, options, strings, threads.
 */

#ifndef KVMEM_CUDA_H
#define KVMEM_CUDA_H

#include "kvmem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Driver and devices ---- */

/// The CUDA driver of this machine.
typedef struct kvmem_cuda_info {
    /// The CUDA version it implements: 1000 × major + 10 × minor.
    int32_t driver_version;
    /// Devices this process may use; at least 1.
    int32_t device_count;
} kvmem_cuda_info;

/// Finds and initialises the CUDA driver. No context is created.
///
/// @param info gets what was found
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA without a driver, with one too old, or without a
///         device (the message says which)
kvmem_status kvmem_cuda_get_info(kvmem_cuda_info *info, kvmem_error **error);

/// Memory can be reserved, created and mapped apart (the driver's virtual memory management).
#define KVMEM_CUDA_VMM 1
/// Such memory can be exported as a file descriptor: shown by doing so.
#define KVMEM_CUDA_POSIX_FD 2
/// Such memory can be exported as a fabric handle: shown by doing so, whatever the driver's attribute
/// promises.
#define KVMEM_CUDA_FABRIC 4
/// Such memory can be registered for RDMA.
#define KVMEM_CUDA_RDMA_WITH_VMM 8
/// Memory can be exported as a DMA-BUF.
#define KVMEM_CUDA_DMA_BUF 16
/// Stream-ordered memory pools.
#define KVMEM_CUDA_MEMORY_POOLS 32
/// Host memory of a NUMA node can be created and mapped apart.
#define KVMEM_CUDA_HOST_NUMA_VMM 64
/// The driver takes many copies in one call.
#define KVMEM_CUDA_BATCH_COPIES 128

/// What a GPU is and can do, as its driver says.
typedef struct kvmem_cuda_device_info {
    /// Its name, NUL-terminated.
    char name[64];
    /// The same in every process, whatever the ordinals are there.
    uint8_t uuid[16];
    /// Bytes of memory.
    uint64_t total_memory;
    /// KVMEM_CUDA_* flags.
    uint64_t capabilities;
    /// Bytes that sizes and offsets of VMM memory must be multiples of; 0 without KVMEM_CUDA_VMM. For memory
    /// that stays in the process; kvmem_vmm_get_granularity answers for any other.
    uint64_t minimum_granularity;
    /// Bytes that they should be multiples of; 0 without KVMEM_CUDA_VMM.
    uint64_t recommended_granularity;
    /// GPUs whose memory this one can map, a bit for each: bit i is GPU i, its own is set. GPUs from 64 on
    /// have none; kvmem_cuda_can_access answers for them.
    uint64_t can_access;
    /// Its compute capability, the major number: 9 of 9.0.
    uint32_t compute_capability_major;
    /// The minor number.
    uint32_t compute_capability_minor;
    /// Multiprocessors it has.
    uint32_t multiprocessors;
    /// The NUMA node it hangs on; -1 where the driver does not know.
    int32_t numa_node;
} kvmem_cuda_device_info;

/// Tells what a GPU is and can do. Small memory is created and exported for a moment to see which handles
/// work.
///
/// @param device the GPU, as CUDA_VISIBLE_DEVICES orders them
/// @param info gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not
///         there
kvmem_status kvmem_cuda_get_device_info(int32_t device, kvmem_cuda_device_info *info, kvmem_error **error);

/// Finds a GPU by its UUID: ordinals differ between processes, as CUDA_VISIBLE_DEVICES orders them in each.
///
/// @param uuid 16 bytes, as kvmem_cuda_get_device_info gives them
/// @param device gets its ordinal here
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_NOT_FOUND for a GPU that this process
///         may not use; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer; KVMEM_STATUS_CUDA
kvmem_status kvmem_cuda_find_device(const uint8_t *uuid, int32_t *device, kvmem_error **error);

/// Tells whether one GPU can map memory of another.
///
/// @param device the GPU that would map it
/// @param owner the GPU it lies on
/// @param can_access gets the answer; a GPU reaches its own memory
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not
///         there
kvmem_status kvmem_cuda_can_access(int32_t device, int32_t owner, bool *can_access, kvmem_error **error);

/* ---- Transfers on streams ---- */

/// A stream of the CUDA driver's: what it calls CUstream, and the runtime cudaStream_t.
struct CUstream_st;

/// Starts a transfer on a stream: it begins when what is on the stream now is over, and what is put there
/// later finds the blocks moved. Its end is told as always, by poll, wait and queue. The call does not wait
/// for the stream, but for a path whose host memory is not page-locked: the driver copies from and to that
/// within the call.
///
/// While the stream is captured into a graph, the transfer becomes a part of the graph and does not run:
/// poll, wait and queue hear nothing of the graph's runs, and the transfer, both layouts and their memory
/// must outlive the graph.
///
/// Where the driver takes no mark behind the transfer, the run ends with that failure at once, its message
/// says so, and the library's own memory that it uses is never let go: memory of the caller's must stay until
/// the stream is past it.
///
/// What is put on the stream later does not wait for a verification, and must leave the blocks as they are
/// until the end is told.
///
/// @param transfer a transfer from or to GPU memory
/// @param stream a stream of the primary context of the destination's GPU, or of the source's where only that
///               is GPU memory. NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are those of the calling
///               thread's context, which must have one. The stream must be alive until this returns: the
///               driver can't tell one that was destroyed, and what it does with it is undefined
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK once it is on the stream: poll, wait and the queue report its end;
///         KVMEM_STATUS_INVALID_ARGUMENT for a stream of another context or GPU, or a default stream where no
///         context is current; KVMEM_STATUS_UNSUPPORTED for a transfer that
///         no GPU takes part in, or for a captured stream where it is verified; KVMEM_STATUS_INVALID_STATE
///         for a captured stream where the path can't be captured, blocks are elastic, or the capture was
///         invalidated, for elastic blocks without memory, and if the GPU was reset since the transfer was
///         created; KVMEM_STATUS_BUSY while it is in flight, or its staging memory is in use;
///         KVMEM_STATUS_OUT_OF_MEMORY: the thread that watches copies on GPUs could not be started;
///         KVMEM_STATUS_CUDA where the driver answers otherwise for the stream
kvmem_status kvmem_transfer_submit_on_stream(kvmem_transfer *transfer,
                                             struct CUstream_st *stream,
                                             kvmem_error **error);

/// Has a stream wait for the last run: work that is put on the stream after this call begins when the layers
/// have moved. The host does not wait for that, only until the driver has the run. Where the run has not
/// begun, for want of what other transfers use, it begins with this call, before those that wait as well.
///
/// The stream goes on also when the run fails: whoever put work behind it asks kvmem_transfer_poll before
/// trusting the result.
///
/// @param transfer a transfer that the CUDA engine carries (KVMEM_PATH_CUDA_*), on a stream of its own or of
///                 a caller's, whose submission has returned
/// @param num_layers how many layers, counted from the first that is moved; 0 for the whole run. Without
///                   KVMEM_TRANSFER_BY_LAYER any number is the whole run
/// @param stream a stream as kvmem_transfer_submit_on_stream takes it, alive until this returns, and not
///         captured
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK once the stream waits, or nothing is left to wait for; KVMEM_STATUS_OUT_OF_RANGE
///         for more layers than are moved; KVMEM_STATUS_INVALID_ARGUMENT for a stream of another context or
///         GPU, or a default stream where no context is current; KVMEM_STATUS_INVALID_STATE before the first
///         submit, and for a captured stream; KVMEM_STATUS_CUDA where the driver answers otherwise for the
///         stream; KVMEM_STATUS_UNSUPPORTED while a run that no stream carries is under way (between host
///         memory, files and peers): wait for its layers by kvmem_transfer_wait_layers; KVMEM_STATUS_BUSY
///         while it has not begun because others use the staging memory: nothing waits then; or how the run
///         failed
kvmem_status kvmem_transfer_wait_on_stream(const kvmem_transfer *transfer,
                                           uint64_t num_layers,
                                           struct CUstream_st *stream,
                                           kvmem_error **error);

/* ---- Copy rates ---- */

/// Figures the library brings: of one H200 with PCIe 5 x16.
#define KVMEM_RATES_DEFAULT 0
/// Measured by this process.
#define KVMEM_RATES_MEASURED 1
/// Given by the caller: kvmem_cuda_set_copy_rates, kvmem_cuda_set_peer_rates.
#define KVMEM_RATES_LOADED 2

/// What copies in one direction cost.
typedef struct kvmem_direction_rates {
    /// Bytes a second of one large copy of the driver's.
    double bytes_per_second;
    /// Nanoseconds of the CPU for each copy of a batch, however small. Between GPUs, and within one: of the
    /// copy engine.
    double batch_copy_ns;
    /// Bytes a second of a copy kernel with as many CTAs as are worth having.
    double kernel_bytes_per_second;
    /// Bytes a second of each CTA while there are few.
    double cta_bytes_per_second;
} kvmem_direction_rates;

/// What copies of a GPU cost: the figures by which transfers choose their path. Plain numbers, to be kept in
/// a file or a configuration and given back to a later process on the same machine.
typedef struct kvmem_copy_rates {
    /// sizeof(kvmem_copy_rates)
    size_t struct_size;
    /// A KVMEM_RATES_* value: where the figures come from. Not read by kvmem_cuda_set_copy_rates.
    uint32_t source;
    /// How many figures that are to be measured could not be, or were beyond belief, and are defaults, in
    /// proportion to the others; the log says why. Not read by kvmem_cuda_set_copy_rates.
    uint32_t num_defaults;
    /// From page-locked host memory to the GPU.
    kvmem_direction_rates to_device;
    /// From the GPU to page-locked host memory.
    kvmem_direction_rates to_host;
    /// Within the GPU.
    kvmem_direction_rates on_device;
    /// Bytes a second between the GPU and host memory that is not page-locked.
    double pageable_bytes_per_second;
    /// Nanoseconds of one copy of the driver's beside its bytes.
    double copy_ns;
    /// Nanoseconds until a copy kernel has begun to move bytes.
    double kernel_start_ns;
} kvmem_copy_rates;

/// Fills rates with zeroes, which stand for the defaults.
///
/// @param rates the caller's struct; NULL does nothing
/// @param struct_size sizeof(*rates); no more is written
void kvmem_copy_rates_init(kvmem_copy_rates *rates, size_t struct_size);

/// Returns what copies of a GPU cost. If that is not known yet, it is measured, as the first transfer on the
/// GPU does: by a few copies on a stream of the library's own, with 64 MiB of the GPU's memory and 10 MiB of
/// the host's for 15 to 30 ms. If that fails, the rates are defaults, and the log and num_defaults say so.
///
/// These are the measured rates. What transfers show while they run, and path selection uses too, is not in
/// them.
///
/// Threads: any; others that need the figures of the GPU wait for them.
///
/// @param device the GPU, as CUDA_VISIBLE_DEVICES orders them
/// @param rates gets the answer; its struct_size must be set, and no more is written
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for NULL or a struct_size that can't be;
///         KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not there;
///         KVMEM_STATUS_CUDA without a context
kvmem_status kvmem_cuda_get_copy_rates(int32_t device, kvmem_copy_rates *rates, kvmem_error **error);

/// Sets the rates of a GPU, such as those that an earlier run has measured: then none are measured here.
/// Transfers that exist already keep their path.
///
/// The rates are used as given: batches that turn out to be slower or faster do not change them. How busy
/// compute keeps the GPU is still observed.
///
/// Threads: any.
///
/// @param device the GPU, as CUDA_VISIBLE_DEVICES orders them
/// @param rates the figures, where 0 stands for the default; copied. NULL forgets what is known: it is
///              measured when it is next needed, as after a first measurement beside other work
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a figure that is negative or no number;
///         KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not there
kvmem_status kvmem_cuda_set_copy_rates(int32_t device, const kvmem_copy_rates *rates, kvmem_error **error);

/* ---- Copy rates between GPUs ---- */

/// What copies between a GPU and another one cost, the first doing the work: that is the GPU of the
/// destination, or the one for which memory of another process was opened. Plain numbers, to be kept as those
/// of kvmem_copy_rates are.
typedef struct kvmem_peer_rates {
    /// sizeof(kvmem_peer_rates)
    size_t struct_size;
    /// A KVMEM_RATES_* value: where the figures come from. Not read by kvmem_cuda_set_peer_rates.
    uint32_t source;
    /// How many figures could not be measured, or were beyond belief, and are defaults, in proportion to the
    /// others; those of the kernel are where the GPU can't access the other one. Not read by
    /// kvmem_cuda_set_peer_rates.
    uint32_t num_defaults;
    /// From the other GPU to this one. Where this one can't access the other, the driver's copies are those
    /// that it passes through the host.
    kvmem_direction_rates read;
    /// From this GPU to the other one.
    kvmem_direction_rates write;
} kvmem_peer_rates;

/// Fills rates with zeroes, which stand for the defaults: of two H200 and NVLink.
///
/// @param rates the caller's struct; NULL does nothing
/// @param struct_size sizeof(*rates); no more is written
void kvmem_peer_rates_init(kvmem_peer_rates *rates, size_t struct_size);

/// Tells what copies between two GPUs cost. Where that is not known yet it is measured, as the first transfer
/// between the two would: by a few copies on a stream of the library's own, with 16 MiB of the memory of
/// each. Where that fails there are defaults, and the log and num_defaults say so. No context is made on the
/// other GPU, unless it is out of this one's reach.
///
/// Threads: any; others that need the figures of the two wait for them.
///
/// @param device the GPU that does the work, as CUDA_VISIBLE_DEVICES orders them
/// @param peer the other one
/// @param rates gets the answer; its struct_size must be set, and no more is written
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for NULL, a struct_size that can't be, or one GPU
///         twice; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not there;
///         KVMEM_STATUS_CUDA without a context
kvmem_status kvmem_cuda_get_peer_rates(int32_t device,
                                       int32_t peer,
                                       kvmem_peer_rates *rates,
                                       kvmem_error **error);

/// Gives the figures for two GPUs, such as those that an earlier run has measured: then none are measured
/// here. Transfers that are there already keep their path.
///
/// Threads: any.
///
/// @param device the GPU that does the work, as CUDA_VISIBLE_DEVICES orders them
/// @param peer the other one
/// @param rates the figures, where 0 stands for the default; copied. NULL forgets what is known: it is
///              measured when it is next needed
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for one GPU twice, or a figure that is negative or
///         no number; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not there
kvmem_status kvmem_cuda_set_peer_rates(int32_t device,
                                       int32_t peer,
                                       const kvmem_peer_rates *rates,
                                       kvmem_error **error);

/* ---- IPC handles ---- */

/// What another process must be told to open memory of this one's.
typedef struct kvmem_ipc_handle {
    /// The driver's handle. It names the whole allocation, and whoever has it reaches all of that.
    uint8_t handle[64];
    /// The GPU's UUID: kvmem_cuda_find_device tells its ordinal in the other process.
    uint8_t uuid[16];
    /// Where the allocation begins in this process.
    uint64_t base;
    /// Bytes of the allocation.
    uint64_t base_size;
    /// Where in the allocation the address lies that was exported.
    uint64_t offset;
    /// The driver's number for the allocation in this process, which it never uses again.
    uint64_t buffer_id;
} kvmem_ipc_handle;

/// Gets the handle by which another process opens memory of a GPU. The memory must stay allocated as long as
/// it is open there, and what is written must be done before it is read there: a handle carries neither.
///
/// @param address any byte of memory that cuMemAlloc gave, such as the address of a device region or of a
///         tensor
/// @param handle gets the handle
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_INVALID_ARGUMENT for what is no GPU
///         memory of this process; KVMEM_STATUS_UNSUPPORTED for memory that was mapped apart, of a pool, or
///         of another process; KVMEM_STATUS_CUDA
kvmem_status kvmem_ipc_export(uint64_t address, kvmem_ipc_handle *handle, kvmem_error **error);

/// Open the memory for the GPU `for_device`, whose kernels then reach it, over NVLink or PCIe.
#define KVMEM_IPC_FOR_DEVICE 1

/// Memory of another process's to open.
typedef struct kvmem_ipc_options {
    /// sizeof(kvmem_ipc_options)
    size_t struct_size;
    /// KVMEM_IPC_FOR_DEVICE, or 0: it is opened for the GPU it lies on.
    uint64_t flags;
    /// The driver's handle.
    uint8_t handle[64];
    /// Where in the allocation the region begins.
    uint64_t offset;
    /// Bytes of the region, at least 1.
    uint64_t size;
    /// Bytes of the allocation as its process has them, to notice a handle that names another one by now; 0:
    /// not compared.
    uint64_t base_size;
    /// The number of the allocation in its process, to notice a handle that is open here and named another
    /// one then; 0: not compared.
    uint64_t buffer_id;
    /// The GPU the memory lies on, as CUDA_VISIBLE_DEVICES orders them here.
    int32_t device;
    /// The GPU that will use it, counted likewise; 0 without KVMEM_IPC_FOR_DEVICE.
    int32_t for_device;
} kvmem_ipc_options;

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
void kvmem_ipc_options_init(kvmem_ipc_options *options, size_t struct_size);

/// Opens GPU memory of another process's as a region. A handle that is open already is not opened again: the
/// regions share one mapping, which is closed with the last of them; opened for several GPUs, it is mapped
/// for each. The memory stays readable here when its process ends.
///
/// The driver uses a handle's bytes again once the memory is freed: a stale handle opens whatever came after
/// it. Sizes are checked against what the driver has mapped; base_size and buffer_id notice more.
///
/// @param options what to open
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not
///         there, and for a part that ends past the allocation; KVMEM_STATUS_INVALID_ARGUMENT for a handle
///         that names nothing that can be opened, that is of this very process, or of memory of another GPU;
///         KVMEM_STATUS_NOT_FOUND for memory of a GPU that this process may not use; KVMEM_STATUS_STALE when
///         base_size or buffer_id says so; KVMEM_STATUS_UNSUPPORTED for a GPU that does not reach the one it
///         lies on, or where the driver maps it for one GPU of a process only; KVMEM_STATUS_CUDA
kvmem_status kvmem_region_open_ipc(const kvmem_ipc_options *options,
                                   kvmem_region **region,
                                   kvmem_error **error);

/* ---- Virtual memory management: memory ---- */

/// Memory without an address.
///
/// Threads: all functions on one memory may run at once, except kvmem_vmm_memory_destroy.
typedef struct kvmem_vmm_memory kvmem_vmm_memory;

/// On a GPU.
#define KVMEM_VMM_DEVICE 1
/// On a NUMA node of the host.
#define KVMEM_VMM_HOST_NUMA 2

/// It can be exported as a file descriptor.
#define KVMEM_VMM_POSIX_FD 1
/// It can be exported as a fabric handle.
#define KVMEM_VMM_FABRIC 2
/// It can be registered for RDMA.
#define KVMEM_VMM_RDMA 4

/// What memory to create. The flags are fixed for the life of the memory.
typedef struct kvmem_vmm_options {
    /// sizeof(kvmem_vmm_options)
    size_t struct_size;
    /// KVMEM_VMM_* flags.
    uint64_t flags;
    /// Bytes, a multiple of the minimum granularity. Not read by kvmem_vmm_get_granularity.
    uint64_t size;
    /// KVMEM_VMM_DEVICE or KVMEM_VMM_HOST_NUMA; 0 for KVMEM_VMM_DEVICE.
    uint32_t location;
    /// The GPU, as CUDA_VISIBLE_DEVICES orders them, or the node.
    int32_t id;
} kvmem_vmm_options;

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
void kvmem_vmm_options_init(kvmem_vmm_options *options, size_t struct_size);

/// What sizes and offsets must be multiples of.
#define KVMEM_GRANULARITY_MINIMUM 0
/// What they should be multiples of.
#define KVMEM_GRANULARITY_RECOMMENDED 1

/// Tells what sizes and offsets of such memory must or should be multiples of.
///
/// @param options the memory
/// @param which a KVMEM_GRANULARITY_* value
/// @param granularity gets the bytes
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not
///         there; KVMEM_STATUS_INVALID_ARGUMENT; KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_get_granularity(const kvmem_vmm_options *options,
                                       uint32_t which,
                                       uint64_t *granularity,
                                       kvmem_error **error);

/// Creates memory.
///
/// @param options what to create
/// @param memory gets the memory; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not
///         there; KVMEM_STATUS_INVALID_ARGUMENT, also for a size that is no multiple of the granularity;
///         KVMEM_STATUS_OUT_OF_MEMORY, of a GPU with the bytes asked, those it has, and where the process has
///         its primary context those free; KVMEM_STATUS_CUDA, also for a handle type this machine does not
///         give
kvmem_status kvmem_vmm_memory_create(const kvmem_vmm_options *options,
                                     kvmem_vmm_memory **memory,
                                     kvmem_error **error);

/// Destroys a memory handle. The memory is freed when it is mapped nowhere and no descriptor of it is open.
///
/// @param memory memory that no other call uses; NULL does nothing
void kvmem_vmm_memory_destroy(kvmem_vmm_memory *memory);

/* ---- Virtual memory management: memory of other processes ---- */

/// What another process on the same fabric imports.
typedef struct kvmem_fabric_handle {
    /// The driver's handle.
    uint8_t bytes[64];
} kvmem_fabric_handle;

/// Exports memory as a file descriptor, close-on-exec. While one is open anywhere the memory stays.
///
/// @param memory memory created with KVMEM_VMM_POSIX_FD
/// @param fd gets a descriptor the caller closes
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_STATE for memory created without the flag;
///         KVMEM_STATUS_UNSUPPORTED for memory that was imported; KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_memory_export_fd(const kvmem_vmm_memory *memory, int32_t *fd, kvmem_error **error);

/// Exports memory as a fabric handle, which processes on other machines of the fabric can import too.
///
/// @param memory memory created with KVMEM_VMM_FABRIC
/// @param handle gets the handle
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_STATE for memory created without the flag;
///         KVMEM_STATUS_UNSUPPORTED for memory that was imported; KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_memory_export_fabric(const kvmem_vmm_memory *memory,
                                            kvmem_fabric_handle *handle,
                                            kvmem_error **error);

/// A device of imported memory that is not compared.
#define KVMEM_VMM_ANY_DEVICE (-1)

/// Imports memory from a file descriptor that somebody exported. It is mapped like memory created here, but
/// can't be exported again.
///
/// @param fd the descriptor; it stays the caller's, who may close it once this returns
/// @param size bytes of all of the memory, as its exporter says. The driver does not tell: a wrong size is
///             refused by kvmem_vmm_mapping_create
/// @param device the GPU the memory lies on, as CUDA_VISIBLE_DEVICES orders them here: compared with what the
///               driver says; KVMEM_VMM_ANY_DEVICE for any, and for memory of the host
/// @param memory gets the memory; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_INVALID_ARGUMENT for a descriptor
///         that is not open or no memory of the driver's, for memory of another GPU, and for a size that is
///         no multiple of the granularity; KVMEM_STATUS_NOT_FOUND for memory of a GPU that this process may
///         not use; KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_memory_import_fd(int32_t fd,
                                        uint64_t size,
                                        int32_t device,
                                        kvmem_vmm_memory **memory,
                                        kvmem_error **error);

/// Imports memory from a fabric handle that somebody exported. It is mapped like memory created here, but
/// can't be exported again.
///
/// @param handle the handle
/// @param size bytes of all of the memory, as for kvmem_vmm_memory_import_fd
/// @param device the GPU the memory lies on, as for kvmem_vmm_memory_import_fd
/// @param memory gets the memory; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_UNSUPPORTED where fabric handles
///         don't work; KVMEM_STATUS_INVALID_ARGUMENT as for kvmem_vmm_memory_import_fd; KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_memory_import_fabric(const kvmem_fabric_handle *handle,
                                            uint64_t size,
                                            int32_t device,
                                            kvmem_vmm_memory **memory,
                                            kvmem_error **error);

/// Takes hold of memory that somebody else in this process has mapped, such as an engine: it stays when they
/// let go, and is exported as it was created.
///
/// @param address any byte of the mapping
/// @param memory gets the memory; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_INVALID_ARGUMENT where no memory that
///         was created and mapped apart lies; KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_memory_retain(uint64_t address, kvmem_vmm_memory **memory, kvmem_error **error);

/* ---- Virtual memory management: ranges of addresses ---- */

/// A range of device addresses with nothing behind them until something is mapped.
///
/// Threads: all functions on one range may run at once, except kvmem_vmm_range_destroy.
typedef struct kvmem_vmm_range kvmem_vmm_range;

/// Reserves device addresses. Takes no memory.
///
/// @param size bytes, a multiple of the page size; of the granularity to be mapped fully
/// @param alignment a power of two the first address is a multiple of; 0 for the driver's choice
/// @param range gets the range; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_INVALID_ARGUMENT;
///         KVMEM_STATUS_OUT_OF_MEMORY without addresses; KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_range_create(uint64_t size,
                                    uint64_t alignment,
                                    kvmem_vmm_range **range,
                                    kvmem_error **error);

/// Where a range lies.
///
/// @param range a range
/// @param address gets its first address
/// @param size gets its bytes
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
kvmem_status kvmem_vmm_range_get_span(const kvmem_vmm_range *range,
                                      uint64_t *address,
                                      uint64_t *size,
                                      kvmem_error **error);

/// Destroys a range handle. The addresses are freed when nothing is mapped there.
///
/// @param range a range that no other call uses; NULL does nothing
void kvmem_vmm_range_destroy(kvmem_vmm_range *range);

/* ---- Virtual memory management: mappings ---- */

/// Memory at an address. It holds its range and its memory, so the three may be destroyed in any order.
///
/// Threads: all functions on one mapping may run at once, except kvmem_vmm_mapping_destroy.
typedef struct kvmem_vmm_mapping kvmem_vmm_mapping;

/// Nothing.
#define KVMEM_ACCESS_NONE 0
/// Read.
#define KVMEM_ACCESS_READ 1
/// Read and write.
#define KVMEM_ACCESS_READ_WRITE 3

/// Maps all of a memory into a range. No GPU may touch it until kvmem_vmm_mapping_set_access says so.
///
/// @param range where
/// @param offset bytes from the start of the range, a multiple of the granularity
/// @param memory what
/// @param mapping gets the mapping; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for an offset that is no multiple, and for memory
///         that was imported with another size than it has;
///         KVMEM_STATUS_OUT_OF_RANGE when it does not fit; KVMEM_STATUS_ALREADY_EXISTS where something is
///         mapped; KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_mapping_create(kvmem_vmm_range *range,
                                      uint64_t offset,
                                      kvmem_vmm_memory *memory,
                                      kvmem_vmm_mapping **mapping,
                                      kvmem_error **error);

/// Says what a GPU may do with a mapping.
///
/// @param mapping a mapping
/// @param device the GPU, as CUDA_VISIBLE_DEVICES orders them
/// @param access a KVMEM_ACCESS_* value
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE for a device that is not there;
///         KVMEM_STATUS_INVALID_ARGUMENT for an access that is none; KVMEM_STATUS_UNSUPPORTED for a GPU that
///         does not reach the memory; KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_mapping_set_access(kvmem_vmm_mapping *mapping,
                                          int32_t device,
                                          uint32_t access,
                                          kvmem_error **error);

/// Tells what a GPU may do with a mapping.
///
/// @param mapping a mapping
/// @param device the GPU, as CUDA_VISIBLE_DEVICES orders them
/// @param access gets a KVMEM_ACCESS_* value
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE for a device that is not there; KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_mapping_get_access(const kvmem_vmm_mapping *mapping,
                                          int32_t device,
                                          uint32_t *access,
                                          kvmem_error **error);

/// Where a mapping lies.
///
/// @param mapping a mapping
/// @param address gets its first address
/// @param size gets its bytes
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
kvmem_status kvmem_vmm_mapping_get_span(const kvmem_vmm_mapping *mapping,
                                        uint64_t *address,
                                        uint64_t *size,
                                        kvmem_error **error);

/// Unmaps: its addresses must not be used any more, by any GPU.
///
/// @param mapping a mapping that no other call uses; NULL does nothing
void kvmem_vmm_mapping_destroy(kvmem_vmm_mapping *mapping);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_CUDA_H */
