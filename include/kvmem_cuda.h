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

/// CUDA driver of the machine.
typedef struct kvmem_cuda_info {
    /// CUDA version of the driver: 1000 × major + 10 × minor.
    int32_t driver_version;
    /// GPUs that this process can use; at least 1.
    int32_t device_count;
} kvmem_cuda_info;

/// Finds and initializes the CUDA driver. Creates no context.
///
/// @param info receives the properties
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_UNAVAILABLE_CUDA: there is no driver, it is too old, or it has no device; the message
///           says which
kvmem_status kvmem_cuda_get_info(kvmem_cuda_info *info, kvmem_error **error);

/// Memory can be reserved, created and mapped separately (virtual memory management).
#define KVMEM_CUDA_VMM 1
/// Such memory can be exported as a file descriptor. Determined by exporting some.
#define KVMEM_CUDA_POSIX_FD 2
/// Such memory can be exported as a fabric handle. Determined by exporting some, whatever the attribute of
/// the driver says.
#define KVMEM_CUDA_FABRIC 4
/// Such memory can be registered for RDMA.
#define KVMEM_CUDA_RDMA_WITH_VMM 8
/// Memory can be exported as a DMA-BUF.
#define KVMEM_CUDA_DMA_BUF 16
/// The GPU has stream-ordered memory pools.
#define KVMEM_CUDA_MEMORY_POOLS 32
/// Host memory of a NUMA node can be created and mapped separately.
#define KVMEM_CUDA_HOST_NUMA_VMM 64
/// The driver can copy many ranges in one call.
#define KVMEM_CUDA_BATCH_COPIES 128

/// Properties of a GPU.
typedef struct kvmem_cuda_device_info {
    /// Name, NUL-terminated.
    char name[64];
    /// UUID, the same in every process.
    uint8_t uuid[16];
    /// Bytes of memory.
    uint64_t total_memory;
    /// KVMEM_CUDA_* flags.
    uint64_t capabilities;
    /// Sizes and offsets of VMM memory must be multiples of this many bytes; 0 without KVMEM_CUDA_VMM. For
    /// memory that is not exported; see kvmem_vmm_get_granularity for other memory.
    uint64_t minimum_granularity;
    /// Sizes and offsets should be multiples of this many bytes; 0 without KVMEM_CUDA_VMM.
    uint64_t recommended_granularity;
    /// Bit i: this GPU can map memory of GPU i; its own bit is set. For GPUs from 64 on, see
    /// kvmem_cuda_can_access.
    uint64_t can_access;
    /// Major number of the compute capability: 9 of 9.0.
    uint32_t compute_capability_major;
    /// Minor number of the compute capability.
    uint32_t compute_capability_minor;
    /// Multiprocessors.
    uint32_t multiprocessors;
    /// NUMA node that the GPU is attached to; -1 if the driver does not know.
    int32_t numa_node;
} kvmem_cuda_device_info;

/// Returns the properties of a GPU. Creates and exports a small amount of memory to find out which handle
/// types work.
///
/// @param device the GPU, in the order of CUDA_VISIBLE_DEVICES
/// @param info receives the properties
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such device
///         KVMEM_STATUS_UNAVAILABLE_CUDA
kvmem_status kvmem_cuda_get_device_info(int32_t device, kvmem_cuda_device_info *info, kvmem_error **error);

/// Finds a GPU by its UUID. Ordinals differ between processes, because CUDA_VISIBLE_DEVICES selects and
/// orders them.
///
/// @param uuid 16 bytes, as in kvmem_cuda_device_info
/// @param device receives the ordinal in this process
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: this process cannot use the GPU
///         KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
kvmem_status kvmem_cuda_find_device(const uint8_t *uuid, int32_t *device, kvmem_error **error);

/// Checks whether a GPU can map memory of another GPU.
///
/// @param device the GPU that maps the memory
/// @param owner the GPU that the memory is located on
/// @param can_access receives the result; true if both are the same GPU
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such device
///         KVMEM_STATUS_UNAVAILABLE_CUDA
kvmem_status kvmem_cuda_can_access(int32_t device, int32_t owner, bool *can_access, kvmem_error **error);

/* ---- Transfers on streams ---- */

/// A stream of the CUDA driver: a CUstream, and a cudaStream_t of the runtime, is a pointer to it.
struct CUstream_st;

/// Starts a run of a transfer on a stream. It begins after the work that is already on the stream, and work
/// that is put on the stream later begins after it. Poll, wait and the queue report its end.
///
/// The call does not wait for the stream, with one exception: if host memory on the path is not page-locked,
/// the driver copies it during the call.
///
/// If the stream is captured into a graph, the transfer becomes a part of the graph and does not run. Poll,
/// wait and the queue do not report runs of the graph. The transfer, both layouts and their memory must
/// outlive the graph.
///
/// @param transfer a transfer from or to GPU memory
/// @param stream a stream of the primary context of the destination's GPU, or of the source's if only that is
///         GPU memory; it must exist until the call returns, because the driver cannot recognize a destroyed
///         stream. NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are streams of the current context of the
///         calling thread
/// @return KVMEM_STATUS_OK: the run is on the stream
///         KVMEM_STATUS_INVALID_ARGUMENT: the stream belongs to another context or GPU, or it is a default
///           stream and no context is current
///         KVMEM_STATUS_UNSUPPORTED: no GPU takes part in the transfer; or the stream is captured and the
///           transfer is verified
///         KVMEM_STATUS_INVALID_STATE: the stream is captured, and the path cannot be captured, blocks are
///           elastic, or the capture was invalidated; an elastic block has no memory; or the GPU was reset
///           after the transfer was created
///         KVMEM_STATUS_BUSY: a run is in flight, or its staging memory is in use
///         KVMEM_STATUS_OUT_OF_MEMORY: the thread that watches copies on GPUs could not be started
///         KVMEM_STATUS_STALE: the peer was invalidated
///         KVMEM_STATUS_CUDA: the driver reported another error for the stream
///
/// Notes: work that is put on the stream later does not wait for a verification. It must not write to the
/// blocks until the run has ended.
/// If the completion event cannot be recorded, the run fails at once, its message says so, and kvmem
/// intentionally leaks the buffers that the GPU may still use. Memory of the caller must then stay allocated
/// until the stream has passed the transfer.
kvmem_status kvmem_transfer_submit_on_stream(kvmem_transfer *transfer,
                                             struct CUstream_st *stream,
                                             kvmem_error **error);

/// Makes a stream wait for the last run of a transfer: work that is put on the stream after this call begins
/// when the layers have moved.
///
/// The host waits only until the driver has the run. If the run has not begun because other transfers use its
/// staging memory, this call makes it begin, before others that wait.
///
/// The stream continues even if the run fails: call kvmem_transfer_poll before using results of the work
/// behind the wait.
///
/// @param transfer a transfer on a KVMEM_PATH_CUDA_* path, on its own stream or on one of the caller, whose
///         submission has returned
/// @param num_layers number of layers, counted from the first that is moved; 0 for the whole run. Without
///         KVMEM_TRANSFER_BY_LAYER any number is the whole run
/// @param stream a stream as for kvmem_transfer_submit_on_stream, not captured
/// @return KVMEM_STATUS_OK: the stream waits, or there is nothing to wait for
///         KVMEM_STATUS_OUT_OF_RANGE: the transfer moves fewer layers
///         KVMEM_STATUS_INVALID_ARGUMENT: the stream belongs to another context or GPU, or it is a default
///           stream and no context is current
///         KVMEM_STATUS_INVALID_STATE: the transfer was never submitted, or the stream is captured
///         KVMEM_STATUS_UNSUPPORTED: a run that no stream carries is in flight (between host memory, files
///           and peers); use kvmem_transfer_wait_layers
///         KVMEM_STATUS_BUSY: the run has not begun because others use the staging memory. The stream does
///           not wait
///         KVMEM_STATUS_CUDA: the driver reported another error for the stream
///         any status of kvmem_transfer_poll: how the run failed
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

/// What another process needs to open GPU memory of this process.
typedef struct kvmem_ipc_handle {
    /// The driver's handle. It gives access to the whole allocation.
    uint8_t handle[64];
    /// UUID of the GPU; kvmem_cuda_find_device returns its ordinal in the other process.
    uint8_t uuid[16];
    /// Address of the allocation in this process.
    uint64_t base;
    /// Bytes of the allocation.
    uint64_t base_size;
    /// Bytes from the start of the allocation to the exported address.
    uint64_t offset;
    /// The driver's id of the allocation in this process, which is never reused.
    uint64_t buffer_id;
} kvmem_ipc_handle;

/// Exports GPU memory by the driver's IPC handle. The handle does not keep the memory allocated, and does not
/// order accesses: the memory must stay allocated while it is open elsewhere, and writes must have completed
/// before another process reads.
///
/// @param address any byte of memory that cuMemAlloc allocated, such as the address of a device region or of
///         a tensor
/// @param handle receives the handle
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: it is not GPU memory of this process
///         KVMEM_STATUS_UNSUPPORTED: the memory is mapped by VMM, from a memory pool, or of another process
///         KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
kvmem_status kvmem_ipc_export(uint64_t address, kvmem_ipc_handle *handle, kvmem_error **error);

/// Open the memory for the GPU `for_device`, whose kernels then access it over NVLink or PCIe.
#define KVMEM_IPC_FOR_DEVICE 1

/// Options of kvmem_region_open_ipc.
typedef struct kvmem_ipc_options {
    /// sizeof(kvmem_ipc_options)
    size_t struct_size;
    /// KVMEM_IPC_FOR_DEVICE; 0: open the memory for the GPU that it is located on.
    uint64_t flags;
    /// The driver's handle.
    uint8_t handle[64];
    /// Bytes from the start of the allocation to the region.
    uint64_t offset;
    /// Bytes of the region, at least 1.
    uint64_t size;
    /// Bytes of the allocation in its process, to recognize a handle that now names another allocation; 0:
    /// not compared.
    uint64_t base_size;
    /// Id of the allocation in its process, to recognize a handle that is open here and named another
    /// allocation then; 0: not compared.
    uint64_t buffer_id;
    /// GPU that the memory is located on, in the order of CUDA_VISIBLE_DEVICES of this process.
    int32_t device;
    /// GPU of KVMEM_IPC_FOR_DEVICE; 0 without that flag.
    int32_t for_device;
} kvmem_ipc_options;

/// Sets options to their defaults.
void kvmem_ipc_options_init(kvmem_ipc_options *options, size_t struct_size);

/// Opens GPU memory of another process as a region. It stays readable when that process ends.
///
/// A handle that is already open is not opened again: its regions share one mapping, which is closed with the
/// last of them. A handle that is opened for several GPUs is mapped once for each.
///
/// The driver reuses the bytes of a handle after the memory is freed: a stale handle opens whatever was
/// allocated after it. Sizes are compared with those of the driver; set base_size and buffer_id to recognize
/// more.
///
/// @param options what to open
/// @param region receives the region; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the handle names nothing that can be opened, memory of this
///           process, or memory of another GPU
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such device, or the range ends after the allocation
///         KVMEM_STATUS_NOT_FOUND: this process cannot use the GPU
///         KVMEM_STATUS_STALE: base_size or buffer_id differs
///         KVMEM_STATUS_UNSUPPORTED: the GPU cannot access the other one, or the driver maps the memory for
///           one GPU of a process only
///         KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
kvmem_status kvmem_region_open_ipc(const kvmem_ipc_options *options,
                                   kvmem_region **region,
                                   kvmem_error **error);

/* ---- Virtual memory management: memory ---- */

/// Memory without an address.
///
/// Threads: all functions may use one memory at the same time, except kvmem_vmm_memory_destroy.
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

/// Options of kvmem_vmm_memory_create. The flags cannot be changed later.
typedef struct kvmem_vmm_options {
    /// sizeof(kvmem_vmm_options)
    size_t struct_size;
    /// KVMEM_VMM_POSIX_FD, KVMEM_VMM_FABRIC, KVMEM_VMM_RDMA.
    uint64_t flags;
    /// Bytes, a multiple of the minimum granularity. Ignored by kvmem_vmm_get_granularity.
    uint64_t size;
    /// KVMEM_VMM_DEVICE or KVMEM_VMM_HOST_NUMA; 0 for KVMEM_VMM_DEVICE.
    uint32_t location;
    /// GPU, in the order of CUDA_VISIBLE_DEVICES, or NUMA node.
    int32_t id;
} kvmem_vmm_options;

/// Sets options to their defaults.
void kvmem_vmm_options_init(kvmem_vmm_options *options, size_t struct_size);

/// Sizes and offsets must be multiples of it.
#define KVMEM_GRANULARITY_MINIMUM 0
/// Sizes and offsets should be multiples of it.
#define KVMEM_GRANULARITY_RECOMMENDED 1

/// Returns a granularity of memory.
///
/// @param options the memory
/// @param which a KVMEM_GRANULARITY_* value
/// @param granularity receives the bytes
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such device or node
///         KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_get_granularity(const kvmem_vmm_options *options,
                                       uint32_t which,
                                       uint64_t *granularity,
                                       kvmem_error **error);

/// Creates memory.
///
/// @param options what to create
/// @param memory receives the memory; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the size is not a multiple of the granularity
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such device or node
///         KVMEM_STATUS_OUT_OF_MEMORY: for a GPU, the message has the bytes requested and in total, and the
///           free bytes if the process has its primary context
///         KVMEM_STATUS_CUDA: also if this machine does not support the handle type
///         KVMEM_STATUS_UNAVAILABLE_CUDA
kvmem_status kvmem_vmm_memory_create(const kvmem_vmm_options *options,
                                     kvmem_vmm_memory **memory,
                                     kvmem_error **error);

/// Destroys a memory handle. The memory is freed when it is not mapped and no descriptor of it is open.
///
/// @param memory memory that no other call uses; NULL does nothing
void kvmem_vmm_memory_destroy(kvmem_vmm_memory *memory);

/* ---- Virtual memory management: memory of other processes ---- */

/// What another process on the same fabric needs to import memory.
typedef struct kvmem_fabric_handle {
    /// The driver's handle.
    uint8_t bytes[64];
} kvmem_fabric_handle;

/// Exports memory as a file descriptor, which is close-on-exec. The memory stays allocated while the
/// descriptor is open in any process.
///
/// @param memory memory created with KVMEM_VMM_POSIX_FD
/// @param fd receives a descriptor, which the caller closes
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_STATE: the memory was created without the flag
///         KVMEM_STATUS_UNSUPPORTED: the memory was imported
///         KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_memory_export_fd(const kvmem_vmm_memory *memory, int32_t *fd, kvmem_error **error);

/// Exports memory as a fabric handle, which processes on other machines of the fabric can import as well.
///
/// @param memory memory created with KVMEM_VMM_FABRIC
/// @param handle receives the handle
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_STATE: the memory was created without the flag
///         KVMEM_STATUS_UNSUPPORTED: the memory was imported
///         KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_memory_export_fabric(const kvmem_vmm_memory *memory,
                                            kvmem_fabric_handle *handle,
                                            kvmem_error **error);

/// Do not compare the device of imported memory.
#define KVMEM_VMM_ANY_DEVICE (-1)

/// Imports memory from a file descriptor. It is mapped like memory that was created here, but cannot be
/// exported again.
///
/// @param fd the descriptor; the caller may close it after the call
/// @param size bytes of all of the memory, as its exporter states. The driver does not report it:
///         kvmem_vmm_mapping_create fails for a wrong size
/// @param device GPU that the memory is located on, in the order of CUDA_VISIBLE_DEVICES of this process;
///         compared with what the driver reports. KVMEM_VMM_ANY_DEVICE for any GPU, and for host memory
/// @param memory receives the memory; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the descriptor is not open or not memory of the driver; it is
///           memory of another GPU; or the size is not a multiple of the granularity
///         KVMEM_STATUS_NOT_FOUND: this process cannot use the GPU
///         KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_memory_import_fd(int32_t fd,
                                        uint64_t size,
                                        int32_t device,
                                        kvmem_vmm_memory **memory,
                                        kvmem_error **error);

/// Imports memory from a fabric handle. It is mapped like memory that was created here, but cannot be
/// exported again.
///
/// @param handle the handle
/// @param size bytes of all of the memory, as for kvmem_vmm_memory_import_fd
/// @param device GPU that the memory is located on, as for kvmem_vmm_memory_import_fd
/// @param memory receives the memory; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_UNSUPPORTED: fabric handles do not work here
///         any other status of kvmem_vmm_memory_import_fd
kvmem_status kvmem_vmm_memory_import_fabric(const kvmem_fabric_handle *handle,
                                            uint64_t size,
                                            int32_t device,
                                            kvmem_vmm_memory **memory,
                                            kvmem_error **error);

/// Returns memory that is mapped in this process, for example by an engine. It stays allocated if its owner
/// releases it, and can be exported as it was created.
///
/// @param address any byte of the mapping
/// @param memory receives the memory; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: no memory that was created and mapped by VMM is at the address
///         KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_memory_retain(uint64_t address, kvmem_vmm_memory **memory, kvmem_error **error);

/* ---- Virtual memory management: ranges of addresses ---- */

/// A range of device addresses without memory.
///
/// Threads: all functions may use one range at the same time, except kvmem_vmm_range_destroy.
typedef struct kvmem_vmm_range kvmem_vmm_range;

/// Reserves device addresses. Allocates no memory.
///
/// @param size bytes, a multiple of the page size, and of the granularity if all of it is to be mapped
/// @param alignment alignment of the first address in bytes, a power of two; 0 for the driver's choice
/// @param range receives the range; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_MEMORY: too few free addresses
///         KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_range_create(uint64_t size,
                                    uint64_t alignment,
                                    kvmem_vmm_range **range,
                                    kvmem_error **error);

/// Returns the addresses of a range.
///
/// @param range a range
/// @param address receives the first address
/// @param size receives the bytes
kvmem_status kvmem_vmm_range_get_span(const kvmem_vmm_range *range,
                                      uint64_t *address,
                                      uint64_t *size,
                                      kvmem_error **error);

/// Destroys a range handle. The addresses are freed when nothing is mapped there.
///
/// @param range a range that no other call uses; NULL does nothing
void kvmem_vmm_range_destroy(kvmem_vmm_range *range);

/* ---- Virtual memory management: mappings ---- */

/// Memory at an address. It keeps its range and its memory alive, so the three may be destroyed in any order.
///
/// Threads: all functions may use one mapping at the same time, except kvmem_vmm_mapping_destroy.
typedef struct kvmem_vmm_mapping kvmem_vmm_mapping;

/// No access.
#define KVMEM_ACCESS_NONE 0
/// Read.
#define KVMEM_ACCESS_READ 1
/// Read and write.
#define KVMEM_ACCESS_READ_WRITE 3

/// Maps all of a memory into a range. No GPU has access until kvmem_vmm_mapping_set_access.
///
/// @param range the addresses
/// @param offset bytes from the start of the range, a multiple of the granularity
/// @param memory the memory
/// @param mapping receives the mapping; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the offset is not a multiple of the granularity, or the memory was
///           imported with a wrong size
///         KVMEM_STATUS_OUT_OF_RANGE: the memory does not fit
///         KVMEM_STATUS_ALREADY_EXISTS: memory is already mapped there
///         KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_mapping_create(kvmem_vmm_range *range,
                                      uint64_t offset,
                                      kvmem_vmm_memory *memory,
                                      kvmem_vmm_mapping **mapping,
                                      kvmem_error **error);

/// Sets the access of a GPU to a mapping.
///
/// @param mapping a mapping
/// @param device the GPU, in the order of CUDA_VISIBLE_DEVICES
/// @param access a KVMEM_ACCESS_* value
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: access is not a KVMEM_ACCESS_* value
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such device
///         KVMEM_STATUS_UNSUPPORTED: the GPU cannot access the memory
///         KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_mapping_set_access(kvmem_vmm_mapping *mapping,
                                          int32_t device,
                                          uint32_t access,
                                          kvmem_error **error);

/// Returns the access of a GPU to a mapping.
///
/// @param mapping a mapping
/// @param device the GPU, in the order of CUDA_VISIBLE_DEVICES
/// @param access receives a KVMEM_ACCESS_* value
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such device
///         KVMEM_STATUS_CUDA
kvmem_status kvmem_vmm_mapping_get_access(const kvmem_vmm_mapping *mapping,
                                          int32_t device,
                                          uint32_t *access,
                                          kvmem_error **error);

/// Returns the addresses of a mapping.
///
/// @param mapping a mapping
/// @param address receives the first address
/// @param size receives the bytes
kvmem_status kvmem_vmm_mapping_get_span(const kvmem_vmm_mapping *mapping,
                                        uint64_t *address,
                                        uint64_t *size,
                                        kvmem_error **error);

/// Unmaps memory. No GPU may access the addresses any more.
///
/// @param mapping a mapping that no other call uses; NULL does nothing
void kvmem_vmm_mapping_destroy(kvmem_vmm_mapping *mapping);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_CUDA_H */
