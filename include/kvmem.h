/* SPDX-License-Identifier: Apache-2.0 */
/* kvmem: KV-cache memory for LLM inference engines. Generated from src/ffi; do not edit.
 *
 * A region is bytes on a tier; a layout says where each block lies in regions; a registration makes a region
 * known to a NIXL agent; a transfer moves blocks between two layouts.
 *
 * kvmem_cuda.h has the functions of the CUDA driver, kvmem_nixl.h those of NIXL.
 *
 * Errors.  A fallible function returns a kvmem_status. Its last parameter is a kvmem_error **, which may be
 *          NULL. On failure output handles are set to NULL and no other output is touched, except the size a
 *          string needs.
 * Handles. The caller owns every handle that a function returns through a kvmem_x **, and passes it to
 *          kvmem_x_destroy once. Handles may be destroyed in any order: what they need stays alive
 *          underneath. Destroying NULL does nothing, and destroying never fails.
 *          A handle of another type and a destroyed handle fail with KVMEM_STATUS_INVALID_ARGUMENT, and
 *          destroying one is logged and frees nothing. A destroyed handle is recognized only until its memory
 *          is used again; after that the use of it is undefined.
 *          A handle made before a fork fails with KVMEM_STATUS_INVALID_STATE in the child.
 * Options. struct_size is sizeof the struct, not of a pointer to it; all other fields may be zero unless
 *          their comment says otherwise. A size smaller than the first published version of the struct fails
 *          with KVMEM_STATUS_INVALID_ARGUMENT, and so do bits and values that this library does not know.
 *          A larger size, up to 4096, is accepted if all bytes past the fields that this library knows are 0.
 *          Structs that kvmem writes have the same limits of struct_size; kvmem sets the bytes past the
 *          fields that it knows to 0.
 * Strings. In: NUL-terminated, UTF-8 except for paths. Out: owned by kvmem, for as long as is said.
 * Threads. Each type's comment says what may run at once.
 */

#ifndef KVMEM_H
#define KVMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Versions ---- */

/// Major version of the header.
#define KVMEM_VERSION_MAJOR 0
/// Minor version of the header. Before 1.0 a new minor version may break programs.
#define KVMEM_VERSION_MINOR 1
/// Patch version of the header.
#define KVMEM_VERSION_PATCH 0
/// Version of the binary interface: 100 × major version, plus the minor version before 1.0. It changes with
/// the SONAME, which is libkvmem.so.0.MINOR before 1.0 and libkvmem.so.MAJOR from then on.
#define KVMEM_ABI_VERSION 1

/// Returns the library's version, such as "0.1.0".
///
/// @return a static string
const char *kvmem_version_string(void);

/// Returns the library's version as a number: 10000 × major + 100 × minor + patch.
uint32_t kvmem_version_number(void);

/// Returns the version of the library's binary interface. A program built with another KVMEM_ABI_VERSION must
/// not call the library.
uint32_t kvmem_abi_version(void);

/* ---- Statuses ---- */

/// What a call came to: `KVMEM_STATUS_OK`, a positive state such as `KVMEM_STATUS_IN_PROGRESS`, or a negative
/// error. Values are never renumbered or used again.
typedef int32_t kvmem_status;

/// It worked.
#define KVMEM_STATUS_OK 0
/// The work is under way.
#define KVMEM_STATUS_IN_PROGRESS 1
/// An argument is wrong by itself, whatever the state of the library.
#define KVMEM_STATUS_INVALID_ARGUMENT (-1)
/// Memory, disk space or another resource is exhausted.
#define KVMEM_STATUS_OUT_OF_MEMORY (-2)
/// An index or a size lies outside what the object has.
#define KVMEM_STATUS_OUT_OF_RANGE (-3)
/// The thing named does not exist.
#define KVMEM_STATUS_NOT_FOUND (-4)
/// The thing to be made is there already.
#define KVMEM_STATUS_ALREADY_EXISTS (-5)
/// The call does not fit the state of the object.
#define KVMEM_STATUS_INVALID_STATE (-6)
/// Something still uses the object.
#define KVMEM_STATUS_BUSY (-7)
/// The time given ran out.
#define KVMEM_STATUS_TIMED_OUT (-8)
/// The work was cancelled.
#define KVMEM_STATUS_CANCELLED (-9)
/// This can't be done, here or at all.
#define KVMEM_STATUS_UNSUPPORTED (-10)
/// The system or a peer refused access.
#define KVMEM_STATUS_PERMISSION_DENIED (-11)
/// No usable CUDA driver; the message says whether it is missing, too old or without a device.
#define KVMEM_STATUS_UNAVAILABLE_CUDA (-12)
/// No usable NIXL library; the message says whether it is missing, too old or broken.
#define KVMEM_STATUS_UNAVAILABLE_NIXL (-13)
/// The CUDA driver reported an error.
#define KVMEM_STATUS_CUDA (-14)
/// NIXL reported an error.
#define KVMEM_STATUS_NIXL (-15)
/// The system reported an error.
#define KVMEM_STATUS_IO (-16)
/// The peer process is gone.
#define KVMEM_STATUS_PEER_LOST (-17)
/// What the handle describes has changed since.
#define KVMEM_STATUS_STALE (-18)
/// Bytes from outside are damaged or hostile.
#define KVMEM_STATUS_CORRUPT (-19)
/// Bytes from outside are of a version this library does not read.
#define KVMEM_STATUS_VERSION_MISMATCH (-20)
/// A bug in this library. The objects the call used answer KVMEM_STATUS_INVALID_STATE from now on.
#define KVMEM_STATUS_PANIC (-21)

/// The name of a status, such as "KVMEM_STATUS_BUSY".
///
/// @param status any value
/// @return a static string; "KVMEM_STATUS_UNKNOWN" for a value that is none
const char *kvmem_status_name(kvmem_status status);

/// One sentence on what a status means.
///
/// @param status any value
/// @return a static string
const char *kvmem_status_message(kvmem_status status);

/* ---- Errors ---- */

/// A failure: status, message and native cause.
///
/// Every fallible function has a `kvmem_error **error` as its last parameter. It may be NULL. On failure
/// `*error` gets a new error, which the caller destroys; on success it is not touched. Nothing is kept in
/// thread-local storage. An error is never changed after it was made, so any threads may read it at once.
typedef struct kvmem_error kvmem_error;

/// There is no native cause.
#define KVMEM_DOMAIN_NONE 0
/// The code is an errno.
#define KVMEM_DOMAIN_ERRNO 1
/// The code is a status of NIXL's C API.
#define KVMEM_DOMAIN_NIXL 2
/// The code is a CUresult.
#define KVMEM_DOMAIN_CUDA 3

/// What the system under kvmem said.
typedef struct kvmem_error_cause {
    /// Which system, a KVMEM_DOMAIN_* value.
    uint32_t domain;
    /// Its code; 0 without a cause.
    int32_t code;
    /// The code's name, such as "ENOSPC"; "" without a cause. Lives as long as the error.
    const char *name;
} kvmem_error_cause;

/// The status of an error.
///
/// @param error an error; NULL answers KVMEM_STATUS_OK
kvmem_status kvmem_error_status(const kvmem_error *error);

/// What was asked, what was found and what to do, as one UTF-8 sentence.
///
/// @param error an error; NULL answers ""
/// @param length gets the bytes without the NUL; may be NULL
/// @return a NUL-terminated string that lives as long as the error
const char *kvmem_error_message(const kvmem_error *error, size_t *length);

/// What the system under kvmem said.
///
/// @param error an error
/// @param cause gets the cause; its domain is KVMEM_DOMAIN_NONE where kvmem itself found the error
/// @return KVMEM_STATUS_OK, or KVMEM_STATUS_INVALID_ARGUMENT when either pointer is NULL
kvmem_status kvmem_error_get_cause(const kvmem_error *error, kvmem_error_cause *cause);

/// Frees an error.
///
/// @param error an error that no other call uses; NULL does nothing
void kvmem_error_destroy(kvmem_error *error);

/* ---- Log ---- */

/// No messages.
#define KVMEM_LOG_OFF 0
/// Failures that no return value could report.
#define KVMEM_LOG_ERROR 1
/// Something works, but not as well as asked.
#define KVMEM_LOG_WARN 2
/// Milestones, such as a library that was loaded, and paths that are slower than others because of the setup.
#define KVMEM_LOG_INFO 3
/// Creation and destruction of regions, layouts and transfers, start and end of transfers, opened files,
/// registrations, shares, failed calls. Regions, layouts and transfers have a number, as in "transfer #7".
#define KVMEM_LOG_DEBUG 4
/// All calls, calls that timed out, and the steps of operations.
#define KVMEM_LOG_TRACE 5

/// Receives one message. Target and message are UTF-8 and valid during the call. Target is the module that
/// logged, such as "kvmem::transfer"; targets may change between versions. Must not unwind.
///
/// kvmem calls it on a thread that does nothing else, one message at a time, in the order in which they
/// were logged. It may call every function of kvmem and may block: other threads never wait for it, except
/// in kvmem_log_set_callback. Messages that kvmem logs on the callback's own thread are not delivered.
/// Work that the callback starts on other threads is logged. A callback that starts a transfer per transfer
/// message therefore loops forever.
///
/// Up to 4 MiB of messages are queued. Beyond that, messages are dropped, and a message at KVMEM_LOG_ERROR
/// reports how many.
typedef void (*kvmem_log_callback)(uint32_t level, const char *target, const char *message, void *user_data);

/// Sets the log callback of the process, or removes it.
///
/// Messages logged before the change are delivered to the previous callback, then the change takes effect
/// and the function returns. After it returns, the previous callback is not running and is not called
/// again, so its user data can be freed. Do not hold a lock that the previous callback takes.
///
/// Called from within the log callback, the function cannot wait. It discards the messages still queued,
/// and the previous callback is not called again after its running call returns.
///
/// Notes: messages still queued when the process ends are lost; remove the callback before. A callback in a
/// shared object must be removed before dlclose; kvmem itself is never unloaded. A forked child starts
/// without a callback.
///
/// @param level the least important level to deliver, a KVMEM_LOG_* value; KVMEM_LOG_OFF removes the callback
/// @param callback the function to call; NULL removes the callback
/// @param user_data passed to every call
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK;
///         KVMEM_STATUS_INVALID_ARGUMENT: the level is not a KVMEM_LOG_* value;
///         KVMEM_STATUS_OUT_OF_MEMORY: the callback's thread could not be started; nothing has changed
kvmem_status kvmem_log_set_callback(uint32_t level,
                                    kvmem_log_callback callback,
                                    void *user_data,
                                    kvmem_error **error);

/* ---- Timeouts ---- */

/// A timeout that never ends, for every `timeout_ns`.
#define KVMEM_TIMEOUT_FOREVER UINT64_MAX

/* ---- Blobs ---- */

/// Bytes that kvmem made and the caller frees. They never change, so any threads may read them at once. A NUL
/// follows the last byte, for blobs that hold text.
typedef struct kvmem_blob kvmem_blob;

/// The bytes of a blob.
///
/// @param blob a blob; NULL answers NULL
/// @return the first byte; valid as long as the blob
const void *kvmem_blob_data(const kvmem_blob *blob);

/// The size of a blob in bytes, without the NUL that follows.
///
/// @param blob a blob; NULL answers 0
size_t kvmem_blob_size(const kvmem_blob *blob);

/// Frees a blob.
///
/// @param blob a blob that no other call uses; NULL does nothing
void kvmem_blob_destroy(kvmem_blob *blob);

/* ---- Regions ---- */

/// A span of memory on one tier. Views, registrations, layouts and transfers hold the region they lie in,
/// so handles may be destroyed in any order: the memory goes with the last holder.
///
/// Threads: all functions on one region may run at once, except kvmem_region_destroy.
typedef struct kvmem_region kvmem_region;

/// Host memory.
#define KVMEM_TIER_SYSTEM 1
/// A file.
#define KVMEM_TIER_DISK 2
/// Host memory that GPUs reach by DMA.
#define KVMEM_TIER_PINNED 3
/// Memory of a GPU.
#define KVMEM_TIER_DEVICE 4
/// Memory of a GPU that grows and shrinks behind fixed addresses.
#define KVMEM_TIER_ELASTIC 5

/* ---- Regions: host memory ---- */

/// Ask the kernel for transparent huge pages.
#define KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES 1
/// Fail rather than take smaller pages than asked for. Without it the region is made of what there is, and
/// its info says so.
#define KVMEM_SYSTEM_HUGE_PAGES_REQUIRED 2
/// Bind the memory to `numa_node`.
#define KVMEM_SYSTEM_NUMA_BIND 4
/// Make it of a memory file, so that it can be shared with other processes.
#define KVMEM_SYSTEM_SHAREABLE 8

/// How to allocate host memory. All zeroes but struct_size and size is a good start.
typedef struct kvmem_system_options {
    /// sizeof(kvmem_system_options)
    size_t struct_size;
    /// KVMEM_SYSTEM_* flags.
    uint64_t flags;
    /// Bytes, at least 1. In a layout's options 0: the layout says.
    uint64_t size;
    /// 2097152 or 1073741824 for pages of that size from the system's reserved pool (hugetlbfs); 0 for none.
    /// With KVMEM_SYSTEM_NUMA_BIND all of them are touched before the call returns: the kernel reserves none
    /// of a particular node.
    uint64_t huge_page_size;
    /// The node KVMEM_SYSTEM_NUMA_BIND means; 0 without that flag.
    uint32_t numa_node;
    /// Threads that touch every page before the call returns; 0: each page comes with its first use.
    uint32_t prefault_threads;
} kvmem_system_options;

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
void kvmem_system_options_init(kvmem_system_options *options, size_t struct_size);

/// Allocates host memory: page-aligned and zeroed.
///
/// @param options what to allocate
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK;
///         KVMEM_STATUS_INVALID_ARGUMENT: the options contradict each other, or the NUMA node does not exist;
///         KVMEM_STATUS_OUT_OF_MEMORY: more than the machine, the node or the control group can hold, unless
///         vm.overcommit_memory is 1; too few huge pages; RLIMIT_FSIZE with KVMEM_SYSTEM_SHAREABLE;
///         KVMEM_STATUS_UNSUPPORTED: huge pages are required, and the system does not offer them
kvmem_status kvmem_region_create_system(const kvmem_system_options *options,
                                        kvmem_region **region,
                                        kvmem_error **error);

/* ---- Regions: page-locked host memory ---- */

/// Ordinary pages only.
#define KVMEM_PINNED_NO_HUGE_PAGES 1
/// Bind the memory to `numa_node`.
#define KVMEM_PINNED_NUMA_BIND 2
/// Make it of a memory file, so that it can be shared with other processes.
#define KVMEM_PINNED_SHAREABLE 4

/// Asked after each chunk of a long allocation, within large chunks after each 512 MiB, on the calling
/// thread, with the bytes done and the bytes in all. Answers 0 to go on; any other value cancels. Must not
/// unwind.
typedef int32_t (*kvmem_progress_callback)(uint64_t done, uint64_t total, void *user_data);

/// How to allocate page-locked host memory. All zeroes but struct_size and size is a good start.
typedef struct kvmem_pinned_options {
    /// sizeof(kvmem_pinned_options)
    size_t struct_size;
    /// KVMEM_PINNED_* flags.
    uint64_t flags;
    /// Bytes, at least 1. In a layout's options 0: the layout says.
    uint64_t size;
    /// Bytes of one page lock, a multiple of the page size; 0 for 64 GiB. A copy of the driver's that
    /// reaches over the end of one fails; kvmem's own are cut there.
    uint64_t chunk_size;
    /// Who is asked between chunks; may be NULL. Not called for a layout.
    kvmem_progress_callback progress;
    /// Handed to progress.
    void *user_data;
    /// The GPU it serves: without KVMEM_PINNED_NUMA_BIND its pages come from that GPU's NUMA node while
    /// there are any.
    int32_t device;
    /// The node KVMEM_PINNED_NUMA_BIND means; 0 without that flag.
    uint32_t numa_node;
    /// Threads that touch the pages; 0 for one a core, up to 8.
    uint32_t threads;
    /// Must be 0.
    uint32_t reserved;
} kvmem_pinned_options;

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
void kvmem_pinned_options_init(kvmem_pinned_options *options, size_t struct_size);

/// Allocates host memory that GPUs reach by DMA: placed near the GPU, touched by several threads,
/// page-locked for all contexts and mapped.
///
/// @param options what to allocate
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is
///         not there; KVMEM_STATUS_INVALID_ARGUMENT for options that can't be; KVMEM_STATUS_OUT_OF_MEMORY,
///         also where the machine, the NUMA node it is bound to or the process's control group can't have
///         as much, which is asked before a page is touched, and then with the bytes asked and had;
///         KVMEM_STATUS_CANCELLED when progress said so; KVMEM_STATUS_CUDA. A failure leaves nothing
///         allocated
kvmem_status kvmem_region_create_pinned(const kvmem_pinned_options *options,
                                        kvmem_region **region,
                                        kvmem_error **error);

/* ---- Regions: GPU memory ---- */

/// How to allocate memory of a GPU.
typedef struct kvmem_device_options {
    /// sizeof(kvmem_device_options)
    size_t struct_size;
    /// Must be 0.
    uint64_t flags;
    /// Bytes, at least 1. In a layout's options 0: the layout says.
    uint64_t size;
    /// The GPU, as CUDA_VISIBLE_DEVICES orders them.
    int32_t device;
    /// Must be 0.
    uint32_t reserved;
} kvmem_device_options;

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
void kvmem_device_options_init(kvmem_device_options *options, size_t struct_size);

/// Allocates memory of a GPU. Its content is undefined.
///
/// @param options what to allocate
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is
///         not there; KVMEM_STATUS_OUT_OF_MEMORY with the bytes asked, free and of the GPU;
///         KVMEM_STATUS_INVALID_ARGUMENT; KVMEM_STATUS_CUDA
kvmem_status kvmem_region_create_device(const kvmem_device_options *options,
                                        kvmem_region **region,
                                        kvmem_error **error);

/* ---- Regions: GPU memory that grows and shrinks ---- */

/// Extents can be shared by fabric handle (KVMEM_SHARE_FABRIC), beside file descriptors. It can't be added
/// later.
#define KVMEM_ELASTIC_FABRIC 1

/// How to reserve memory of a GPU that grows and shrinks.
typedef struct kvmem_elastic_options {
    /// sizeof(kvmem_elastic_options)
    size_t struct_size;
    /// KVMEM_ELASTIC_FABRIC, or 0: extents can be shared by file descriptor where the GPU has them.
    uint64_t flags;
    /// The most bytes there may be; rounded up to whole extents. In a layout's options 0: the layout says.
    uint64_t size;
    /// Bytes of an extent, a multiple of the recommended granularity; 0 for 64 MiB. Growth costs by the
    /// extent. In a layout's options 0: the layout says.
    uint64_t extent_size;
    /// The GPU, as CUDA_VISIBLE_DEVICES orders them.
    int32_t device;
    /// Must be 0.
    uint32_t reserved;
} kvmem_elastic_options;

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
void kvmem_elastic_options_init(kvmem_elastic_options *options, size_t struct_size);

/// Reserves addresses of a GPU for memory that grows and shrinks. Nothing has memory yet:
/// kvmem_region_commit gives it.
///
/// @param options what to reserve
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is
///         not there, and for more than 16,777,216 extents; KVMEM_STATUS_INVALID_ARGUMENT, also for an
///         extent that is no multiple of the granularity, and a size that no address space has;
///         KVMEM_STATUS_OUT_OF_MEMORY where as many addresses are not free, or the host has no memory or
///         file descriptor for the control block, of 64 bytes and 4 an extent; KVMEM_STATUS_UNSUPPORTED for
///         a GPU without virtual memory management, and for KVMEM_ELASTIC_FABRIC where the driver, asked to
///         create and export some memory so, does not; KVMEM_STATUS_CUDA
kvmem_status kvmem_region_create_elastic(const kvmem_elastic_options *options,
                                         kvmem_region **region,
                                         kvmem_error **error);

/// Gives a part of an elastic region memory, in whole extents; what has some keeps it. Agents that know the
/// region learn of the new extents. Addresses stay what they are.
///
/// @param region an elastic region, not a view
/// @param offset bytes from its start
/// @param size bytes, at least 1; every extent that is touched gets memory
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE past what was reserved; KVMEM_STATUS_OUT_OF_MEMORY with
///         the bytes asked, those of the GPU, and where the process has its primary context those free;
///         KVMEM_STATUS_INVALID_ARGUMENT for a region that is not elastic; KVMEM_STATUS_UNSUPPORTED for one
///         that was imported: it grows in its owner's process, and is shared again; KVMEM_STATUS_CUDA;
///         KVMEM_STATUS_NIXL. A failure changes nothing
kvmem_status kvmem_region_commit(kvmem_region *region, uint64_t offset, uint64_t size, kvmem_error **error);

/// Takes the memory of whole extents away, from agents that know them first. Nothing may use them any more;
/// transfers of kvmem's are seen to. Where NIXL fails to let go of an extent, the extent is gone from the
/// region all the same, but its memory stays mapped, and is that of the extent again when it is committed
/// again.
///
/// @param region an elastic region, not a view
/// @param offset bytes from its start, a multiple of the extent
/// @param size bytes, a multiple of the extent
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_BUSY while a transfer or a share uses one, or while an agent lets go
///         of a registration that was given up: nothing waits for their end; KVMEM_STATUS_INVALID_STATE where
///         one has no memory; KVMEM_STATUS_INVALID_ARGUMENT; KVMEM_STATUS_OUT_OF_RANGE;
///         KVMEM_STATUS_UNSUPPORTED for a region that was imported: it shrinks in its owner's process;
///         KVMEM_STATUS_NIXL when an agent did not let go: then that memory is not given back to the GPU, and
///         serves the extent when that is committed again
kvmem_status kvmem_region_decommit(kvmem_region *region, uint64_t offset, uint64_t size, kvmem_error **error);

/// What an elastic region has of its memory now.
typedef struct kvmem_elastic_info {
    /// Bytes of an extent.
    uint64_t extent_size;
    /// Extents there may be.
    uint64_t num_extents;
    /// Extents that have memory.
    uint64_t num_committed;
    /// How often what lies behind an address has changed.
    uint64_t generation;
} kvmem_elastic_info;

/// Tells what an elastic region has of its memory now.
///
/// @param region an elastic region, or a view of one
/// @param info gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a region that is not elastic
kvmem_status kvmem_region_get_elastic_info(const kvmem_region *region,
                                           kvmem_elastic_info *info,
                                           kvmem_error **error);

/* ---- Regions: files ---- */

/// Do not bypass the page cache.
#define KVMEM_DISK_BUFFERED 1
/// Fail if the file system does not support O_DIRECT. Without this flag I/O then goes through the page
/// cache, and the region's info has no KVMEM_REGION_DIRECT_IO.
#define KVMEM_DISK_DIRECT_REQUIRED 2
/// Open the file at `path`, which must exist and not be empty, instead of creating it.
#define KVMEM_DISK_OPEN_EXISTING 4
/// Open the file at `path` if it exists, and create it if not. An empty file is treated as a new one.
#define KVMEM_DISK_OPEN_OR_CREATE 8
/// With KVMEM_DISK_OPEN_EXISTING: open the file for reading. The region can only be a source of transfers,
/// and it can be open beside a writer.
#define KVMEM_DISK_READ_ONLY 16
/// Do not lock the file against other writers: the caller keeps them apart.
#define KVMEM_DISK_NO_LOCK 32

/// How to create or open a file.
typedef struct kvmem_disk_options {
    /// sizeof(kvmem_disk_options)
    size_t struct_size;
    /// KVMEM_DISK_* flags.
    uint64_t flags;
    /// Bytes, at least 1; 0 with KVMEM_DISK_OPEN_EXISTING for the whole file. In a layout's options 0.
    uint64_t size;
    /// The caller's file. kvmem creates it and never deletes it, unless the call that created it fails.
    /// NULL for a temporary file, which has no name and is deleted with the region, or with the process.
    const char *path;
    /// Directory of a temporary file; NULL for $TMPDIR, or /tmp if that is not set.
    const char *directory;
} kvmem_disk_options;

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
void kvmem_disk_options_init(kvmem_disk_options *options, size_t struct_size);

/// Creates or opens a file of fixed size. Its space is reserved and the page cache bypassed if the file
/// system supports it.
///
/// While the region exists, the file at a path is locked against other writers: opening it again fails with
/// KVMEM_STATUS_BUSY, in this process and in others. KVMEM_DISK_READ_ONLY needs no lock; KVMEM_DISK_NO_LOCK
/// takes none.
///
/// @param options what to create or open
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK;
///         KVMEM_STATUS_ALREADY_EXISTS: the file exists, and no flag says to open it;
///         KVMEM_STATUS_NOT_FOUND: its directory, or with KVMEM_DISK_OPEN_EXISTING the file, does not exist;
///         KVMEM_STATUS_BUSY: the file is open for writing already;
///         KVMEM_STATUS_INVALID_ARGUMENT: the options contradict each other, the path is not of a
///         regular file, or the existing file is empty and KVMEM_DISK_OPEN_EXISTING is given;
///         KVMEM_STATUS_OUT_OF_RANGE: the existing file is too small;
///         KVMEM_STATUS_OUT_OF_MEMORY: no space, a quota, RLIMIT_FSIZE, or no file descriptor;
///         KVMEM_STATUS_UNSUPPORTED: O_DIRECT is required, or the file is to be locked, and the file system
///         does not support it;
///         KVMEM_STATUS_PERMISSION_DENIED; KVMEM_STATUS_IO.
///         A call that fails removes the file that it created
kvmem_status kvmem_region_create_disk(const kvmem_disk_options *options,
                                      kvmem_region **region,
                                      kvmem_error **error);

/// Returns the absolute path of a disk region's file.
///
/// @param region a region
/// @param buffer gets the path and its NUL; may be NULL with capacity 0, to ask the size alone
/// @param capacity bytes of the buffer
/// @param size gets the bytes the path needs with its NUL, also when the buffer is too small
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK;
///         KVMEM_STATUS_NOT_FOUND: the region is not on disk; the file is temporary or was opened from a
///         share; or the file was renamed or unlinked;
///         KVMEM_STATUS_OUT_OF_RANGE: the buffer is too small
kvmem_status kvmem_region_get_path(const kvmem_region *region,
                                   char *buffer,
                                   size_t capacity,
                                   size_t *size,
                                   kvmem_error **error);

/// Waits until what was written to a disk region is on the medium. Other regions have nothing to do.
///
/// @param region a region
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_IO or KVMEM_STATUS_OUT_OF_MEMORY when the data is not safe
kvmem_status kvmem_region_sync(const kvmem_region *region, kvmem_error **error);

/* ---- Regions: memory of the caller ---- */

/// Reports that kvmem no longer uses adopted memory, so that it can be freed. Called once. Must not unwind.
///
/// kvmem calls it on a thread that does nothing else but call release callbacks, one at a time. It may call
/// every function of kvmem and may block: only further release callbacks wait for it. It is called after
/// the last handle, layout, registration, share and transfer that uses the memory was destroyed or has
/// ended, often after the destroying function returned. Callbacks still due when the process ends may not
/// be called. A forked child calls none of its parent's release callbacks.
typedef void (*kvmem_release_callback)(void *user_data);

/// Host memory: adopt it to be read only. It may be mapped without PROT_WRITE; the region can only be a
/// source of transfers, and cannot be registered with an agent.
#define KVMEM_ADOPT_READ_ONLY 1

/// Memory of the caller's to use.
typedef struct kvmem_adopt_options {
    /// sizeof(kvmem_adopt_options)
    size_t struct_size;
    /// KVMEM_ADOPT_* flags; 0 for memory of a GPU.
    uint64_t flags;
    /// The first byte. Host memory: all of it must be mapped with PROT_READ. Without KVMEM_ADOPT_READ_ONLY it
    /// must also be mapped with PROT_WRITE. It must stay mapped until release is called.
    void *address;
    /// Bytes, at least 1.
    uint64_t size;
    /// Called when kvmem no longer uses the memory; may be NULL.
    kvmem_release_callback release;
    /// Passed to release.
    void *user_data;
} kvmem_adopt_options;

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
void kvmem_adopt_options_init(kvmem_adopt_options *options, size_t struct_size);

/// Adopts host memory of the caller. kvmem never frees it.
///
/// The kernel's list of mappings (/proc/self/maps) is read to check how the memory is mapped, which takes
/// about a microsecond for each mapping of the process.
///
/// If all of it is page-locked when a transfer is created (cuMemHostRegister, cuMemHostAlloc), GPUs use the
/// page locks. The memory may have several page locks, and a block may span two of them. If only a part is
/// page-locked, the memory is used as memory that is not. Page locks must stay as they are while a transfer
/// of the memory exists.
///
/// @param options the memory
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK;
///         KVMEM_STATUS_INVALID_ARGUMENT: some of the memory is not mapped, or lacks PROT_READ or PROT_WRITE;
///         KVMEM_STATUS_IO or KVMEM_STATUS_NOT_FOUND: the list cannot be read;
///         KVMEM_STATUS_OUT_OF_MEMORY: no file descriptor for the list, or no thread for the release
///         callback. After a failure, release is not called
kvmem_status kvmem_region_adopt_host(const kvmem_adopt_options *options,
                                     kvmem_region **region,
                                     kvmem_error **error);

/// Takes memory of a GPU that is the caller's into use, such as a tensor. It is never freed by kvmem. The
/// driver is asked whether all of it is memory of that GPU; it may span several allocations and VMM mappings.
///
/// Memory goes with the context that it was allocated in: destroy the region before that context is destroyed
/// or reset. After that, transfers, checksums, shares and registrations of it fail with
/// KVMEM_STATUS_INVALID_STATE before anything is touched. A transfer in flight fails, and may destroy the
/// GPU's primary context. Handles are destroyed as always, and release is called.
///
/// @param options the memory; its address is a device pointer
/// @param device the GPU it lies on, as CUDA_VISIBLE_DEVICES orders them
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_INVALID_ARGUMENT for host memory,
///         managed memory, memory that was freed, or memory of another GPU;
///         KVMEM_STATUS_OUT_OF_RANGE: the memory ends before the range;
///         KVMEM_STATUS_OUT_OF_MEMORY: the thread for the release callback could not be started.
///         Release is not called after a failure
kvmem_status kvmem_region_adopt_device(const kvmem_adopt_options *options,
                                       int32_t device,
                                       kvmem_region **region,
                                       kvmem_error **error);

/// Memory files: do not add F_SEAL_SHRINK to the seals of the file.
#define KVMEM_ADOPT_KEEP_SEALS 2

/// A part of a memory file to adopt.
typedef struct kvmem_adopt_file_options {
    /// sizeof(kvmem_adopt_file_options)
    size_t struct_size;
    /// KVMEM_ADOPT_* flags.
    uint64_t flags;
    /// Where in the file the memory starts, in bytes: a multiple of the page size of the file.
    uint64_t offset;
    /// Bytes, at least 1. The part must be within the file.
    uint64_t size;
    /// Where the caller has mapped this part of the file with MAP_SHARED. It must stay mapped until release
    /// is called. NULL: kvmem maps it, and unmaps it before it calls release.
    void *address;
    /// Called when kvmem no longer uses the memory; may be NULL.
    kvmem_release_callback release;
    /// Passed to release.
    void *user_data;
    /// The file: from memfd_create, or on tmpfs or hugetlbfs. Open with O_RDWR, or with O_RDONLY for
    /// KVMEM_ADOPT_READ_ONLY. kvmem opens it again, so the caller may close it after the call.
    int32_t fd;
    /// 0.
    uint32_t reserved;
} kvmem_adopt_file_options;

/// Fills options with defaults. The caller sets fd and size.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
void kvmem_adopt_file_options_init(kvmem_adopt_file_options *options, size_t struct_size);

/// Adopts a part of a memory file of the caller, so that it can be shared with other processes.
///
/// The region is host memory like that of kvmem_region_adopt_host. kvmem_share_create_region and
/// kvmem_share_create_layout share it: importers map the same pages.
///
/// kvmem adds F_SEAL_SHRINK to the file, which then cannot be truncated any more: a process that accesses
/// memory past the end of a file gets SIGBUS. With KVMEM_ADOPT_KEEP_SEALS, and for a file that cannot be
/// sealed (created without MFD_ALLOW_SEALING, on tmpfs or hugetlbfs, or open with O_RDONLY), importers must
/// trust all processes that may write the file, by KVMEM_OPEN_TRUST_OWNER. Do not truncate such a file while
/// the region or an importer uses it.
///
/// Any process that may open the file for writing can change the bytes, whatever a share grants.
/// memfd_create creates files of mode 0777; fchmod them to 0600 before the memory is shared to be read only
/// with processes of another user.
///
/// @param options the memory
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK.
///         KVMEM_STATUS_INVALID_ARGUMENT: the file descriptor is not open, not open as flags need it, or not
///         of a memory file; the file is sealed against writing; the offset is no multiple of the page size;
///         or the memory at the address is not this part of the file, or lacks PROT_READ or PROT_WRITE.
///         KVMEM_STATUS_OUT_OF_RANGE: the part is not within the file.
///         KVMEM_STATUS_OUT_OF_MEMORY: no address space, huge pages or file descriptor, or no thread for the
///         release callback.
///         KVMEM_STATUS_BUSY: a process holds a lease on the file (F_SETLEASE).
///         KVMEM_STATUS_IO or KVMEM_STATUS_NOT_FOUND: the list of mappings (/proc/self/maps) cannot be read.
///         After a failure, release is not called.
kvmem_status kvmem_region_adopt_file(const kvmem_adopt_file_options *options,
                                     kvmem_region **region,
                                     kvmem_error **error);

/* ---- Regions: views, information, holders ---- */

/// Makes a part of a region a region of its own. It keeps its parent.
///
/// @param region the parent
/// @param offset where in the parent it begins, in bytes
/// @param size its bytes, at least 1
/// @param view gets the part; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE when it does not fit; KVMEM_STATUS_INVALID_ARGUMENT
///         when empty
kvmem_status kvmem_region_create_view(const kvmem_region *region,
                                      uint64_t offset,
                                      uint64_t size,
                                      kvmem_region **view,
                                      kvmem_error **error);

/// kvmem allocated it.
#define KVMEM_ORIGIN_ALLOCATED 1
/// It is the caller's.
#define KVMEM_ORIGIN_ADOPTED 2
/// It is a part of another region.
#define KVMEM_ORIGIN_VIEW 3
/// It is another process's.
#define KVMEM_ORIGIN_IMPORTED 4

/// Disk: I/O bypasses the page cache.
#define KVMEM_REGION_DIRECT_IO 1
/// Disk: the space was reserved when this region was created. Not set for a file that existed, or an opened
/// share.
#define KVMEM_REGION_PREALLOCATED 2
/// Disk: the file has no name and goes with the region.
#define KVMEM_REGION_TEMPORARY 4
/// System and pinned: pages are smaller than asked for.
#define KVMEM_REGION_HUGE_PAGE_FALLBACK 8
/// System and pinned: it lies in a memory file, so that it can be shared with other processes.
#define KVMEM_REGION_SHAREABLE 16
/// It may only be read: it was shared, adopted or opened so.
#define KVMEM_REGION_READ_ONLY 32

/// What a region is.
typedef struct kvmem_region_info {
    /// The first byte: a host address, a device address, or an offset in the file.
    uint64_t address;
    /// Bytes.
    uint64_t size;
    /// System and pinned: the size of the pages it is mapped with. Elastic: the size of an extent. Others:
    /// the system's page size.
    uint64_t page_size;
    /// Disk: what offsets, sizes and memory addresses of I/O must be multiples of. Others: 1.
    uint64_t alignment;
    /// KVMEM_REGION_* flags.
    uint64_t flags;
    /// A KVMEM_TIER_* value.
    uint32_t tier;
    /// A KVMEM_ORIGIN_* value.
    uint32_t origin;
    /// The GPU it lies on, or serves; -1 for none.
    int32_t device_id;
    /// The NUMA node its pages come from; -1 for any.
    int32_t numa_node;
    /// Disk: the open file, valid as long as the region and not to be closed. Others: -1.
    int32_t fd;
    /// Agents it is registered with; kvmem_region_get_agent names them.
    uint32_t registration_count;
} kvmem_region_info;

/// Returns what a region is.
///
/// @param region a region
/// @param info gets the result
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
kvmem_status kvmem_region_get_info(const kvmem_region *region, kvmem_region_info *info, kvmem_error **error);

/// How much of a region's memory is resident, in bytes.
typedef struct kvmem_region_residency {
    /// In memory, on pages of any size.
    uint64_t resident_bytes;
    /// In memory, on transparent huge pages.
    uint64_t transparent_huge_bytes;
    /// Swapped out.
    uint64_t swapped_bytes;
} kvmem_region_residency;

/// Returns how much of a region's memory is resident now. For a view, or a view of a view, returns
/// the figures of the whole underlying region.
///
/// The kernel walks the pages of all mappings of the process for it (/proc/self/smaps), which takes
/// milliseconds, and more with much memory: for diagnosis, not for each block. Pages of an adjacent mapping
/// that the kernel has joined with the region's may count too; no figure exceeds the region's size.
///
/// @param region a system or pinned region
/// @param residency gets the result
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK;
///         KVMEM_STATUS_UNSUPPORTED: the region is adopted, or is not in host memory; KVMEM_STATUS_IO,
///         KVMEM_STATUS_NOT_FOUND or KVMEM_STATUS_OUT_OF_MEMORY: the kernel's figures cannot be read
kvmem_status kvmem_region_get_residency(const kvmem_region *region,
                                        kvmem_region_residency *residency,
                                        kvmem_error **error);

/// The holders of a region's memory at one moment. Holders of a view count for the view only; the view counts
/// here once.
typedef struct kvmem_region_holders {
    /// References in this process: one per handle, view, registration and share; one or more per layout. A
    /// transfer in flight may add some. 1 is this handle alone.
    uint64_t references;
    /// Views of it, those among them that a layout has made for its parts.
    uint64_t views;
    /// Agents it is registered with.
    uint64_t registrations;
    /// Shares of it that were not destroyed; a share of a layout counts for each of its regions.
    uint64_t shares;
    /// Number of times that other processes have it open, each a mapping of its own; at most 1,024 are
    /// counted. A process that has ended does not count.
    uint64_t importers;
    /// Handles that kvmem has given for it and that were not destroyed, this one included.
    uint64_t handles;
} kvmem_region_holders;

/// Returns the holders of a region, in this process and in others.
///
/// @param region a region
/// @param holders gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer; for a region that was shared
///         KVMEM_STATUS_PERMISSION_DENIED or KVMEM_STATUS_IO where the kernel does not tell who has it
///         open, as where a filter of system calls refuses F_OFD_GETLK
kvmem_status kvmem_region_get_holders(const kvmem_region *region,
                                      kvmem_region_holders *holders,
                                      kvmem_error **error);

/// Tells whether the owner of an imported region still has it. What is mapped here stays readable also when
/// it has not. A region of this process is its own owner.
///
/// @param region a region
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_PEER_LOST when its owner has freed it or has ended
kvmem_status kvmem_region_check_owner(const kvmem_region *region, kvmem_error **error);

/// Destroys a region handle. The memory is freed when nothing holds it.
///
/// @param region a region that no other call uses; NULL does nothing
void kvmem_region_destroy(kvmem_region *region);

/* ---- Agents and registrations: see kvmem_nixl.h ---- */

/// A NIXL agent, driven by a thread of its own, or by threads that wait for its transfers. Registrations,
/// layouts and transfers hold it.
///
/// Threads: all functions on one agent may run at once, except kvmem_agent_destroy. Calls of NIXL are made
/// one at a time.
typedef struct kvmem_agent kvmem_agent;

/// A region that an agent knows. It holds both, and the region is deregistered before its memory goes.
///
/// Threads: all functions on one registration may run at once, except kvmem_registration_destroy.
typedef struct kvmem_registration kvmem_registration;

/// Host memory.
#define KVMEM_MEMORY_DRAM 1
/// GPU memory.
#define KVMEM_MEMORY_VRAM 2
/// A file.
#define KVMEM_MEMORY_FILE 3

/* ---- Layouts ---- */

/// Where each block of a KV cache lies. It holds its regions and their registrations.
///
/// Threads: all functions on one layout may run at once, except kvmem_layout_destroy.
typedef struct kvmem_layout kvmem_layout;

/* ---- Layouts: shape ---- */

/// One region; a block holds all its layers, a layer its outer slots:
/// base + block·L·O·R + layer·O·R + outer·R
#define KVMEM_LAYOUT_FULLY_CONTIGUOUS 1
/// One region a layer; where the block stands in it, block_dim says.
#define KVMEM_LAYOUT_LAYER_SEPARATE 2

/// base[layer] + block·O·R + outer·R
#define KVMEM_BLOCK_DIM_FIRST 1
/// base[layer] + outer·N·R + block·R
#define KVMEM_BLOCK_DIM_SECOND 2

/// The shape of a KV cache. In the formulas N is num_blocks, L num_layers, O outer_dim, and
/// R = page_size × inner_dim × dtype_width bytes; the shapes are those of NVIDIA Dynamo's KVBM.
typedef struct kvmem_layout_config {
    /// sizeof(kvmem_layout_config)
    size_t struct_size;
    /// Blocks (pages), 1 to 4294967295.
    uint64_t num_blocks;
    /// Layers of the model, at least 1.
    uint64_t num_layers;
    /// 2 where K and V are apart, 1 where they are one (MLA).
    uint64_t outer_dim;
    /// Tokens in a block, at least 1.
    uint64_t page_size;
    /// Elements one token has in one layer and outer slot, at least 1.
    uint64_t inner_dim;
    /// Bytes of one element: 1, 2, 4 or 8.
    uint64_t dtype_width;
    /// Each block starts at a multiple of this many bytes, a power of two; the block stride is rounded up to
    /// it. 0 for 1.
    uint64_t alignment;
    /// Attention heads inner_dim is made of; 0 where that is not known.
    uint64_t num_heads;
    /// A KVMEM_LAYOUT_* kind.
    uint32_t kind;
    /// A KVMEM_BLOCK_DIM_* value; 0 for KVMEM_BLOCK_DIM_FIRST. KVMEM_BLOCK_DIM_SECOND needs a layer separate
    /// layout.
    uint32_t block_dim;
} kvmem_layout_config;

/// Fills a shape with zeroes; every field but alignment, num_heads and block_dim must be set.
///
/// @param config the caller's struct; NULL does nothing
/// @param struct_size sizeof(*config); no more is written
void kvmem_layout_config_init(kvmem_layout_config *config, size_t struct_size);

/// The memory a shape needs.
typedef struct kvmem_layout_requirements {
    /// 1, or num_layers for a layer separate layout.
    uint64_t num_regions;
    /// Bytes of each.
    uint64_t region_size;
    /// Bytes of all.
    uint64_t total_size;
    /// Bytes of one allocation that holds all regions, each at a multiple of the alignment, and all but the
    /// first at a multiple of 512 bytes too. The allocation must start at a multiple of 256 bytes, as every
    /// allocation of cuMemAlloc does.
    uint64_t allocation_size;
} kvmem_layout_requirements;

/// Tells the memory a shape needs. Nothing is allocated.
///
/// @param config the shape
/// @param requirements gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a shape that can't be, with the field that is
///         wrong
kvmem_status kvmem_layout_get_requirements(const kvmem_layout_config *config,
                                           kvmem_layout_requirements *requirements,
                                           kvmem_error **error);

/* ---- Layouts: building ---- */

/// One new allocation holds all regions, each at a multiple of the alignment, and all but the first at a
/// multiple of 512 bytes too.
#define KVMEM_LAYOUT_ALLOCATE 1
/// The caller's regions; with an agent each is registered, or of an elastic one the region that it is a view
/// of. Elastic regions, which the caller commits and decommits, must begin with an extent, and their extents
/// be multiples of the block stride: else a block would lie in two.
#define KVMEM_LAYOUT_REGIONS 2
/// Regions that are registered, all with one agent.
#define KVMEM_LAYOUT_REGISTRATIONS 3

/// How to build a layout.
typedef struct kvmem_layout_options {
    /// sizeof(kvmem_layout_options)
    size_t struct_size;
    /// Must be 0.
    uint64_t flags;
    /// The shape.
    const kvmem_layout_config *config;
    /// Who shall reach it; NULL for a layout that only this process reaches.
    kvmem_agent *agent;
    /// KVMEM_LAYOUT_ALLOCATE: host memory to allocate, with size 0. Exactly one of system, disk, pinned,
    /// device and elastic is given.
    const kvmem_system_options *system;
    /// KVMEM_LAYOUT_ALLOCATE: a file to create or open, with size 0. A named file ends with a fingerprint of
    /// the layout, which is checked when it is opened again; docs/files.md describes it.
    const kvmem_disk_options *disk;
    /// KVMEM_LAYOUT_ALLOCATE: page-locked memory to allocate, with size 0.
    const kvmem_pinned_options *pinned;
    /// KVMEM_LAYOUT_ALLOCATE: memory of a GPU to allocate, with size 0.
    const kvmem_device_options *device;
    /// KVMEM_LAYOUT_ALLOCATE: memory of a GPU that grows and shrinks, with size and extent_size 0. At first
    /// no block has memory: kvmem_layout_resize gives it. The block stride is padded so that no block
    /// straddles two extents.
    const kvmem_elastic_options *elastic;
    /// KVMEM_LAYOUT_REGIONS: the regions, in order of layers.
    kvmem_region *const *regions;
    /// KVMEM_LAYOUT_REGISTRATIONS: the registrations, in order of layers.
    kvmem_registration *const *registrations;
    /// How many regions or registrations.
    size_t count;
    /// KVMEM_LAYOUT_ALLOCATE, _REGIONS or _REGISTRATIONS.
    uint32_t source;
    /// Must be 0.
    uint32_t reserved;
} kvmem_layout_options;

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
void kvmem_layout_options_init(kvmem_layout_options *options, size_t struct_size);

/// Builds a layout. Everything is checked before anything is allocated or registered, and a failure changes
/// nothing.
///
/// @param options how
/// @param layout gets the layout; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a shape that can't be, no source, or options of
///         another source, too few or too many regions, regions of mixed kinds, that overlap, are not aligned
///         or belong to another agent; KVMEM_STATUS_OUT_OF_RANGE for a region that is too small;
///         KVMEM_STATUS_INVALID_STATE for a deregistered registration; what kvmem_region_register returns,
///         and the kvmem_region_create_* of the memory that is asked for. For an existing file
///         KVMEM_STATUS_INVALID_ARGUMENT if it holds another layout, or if it is empty and
///         KVMEM_DISK_OPEN_EXISTING is given, KVMEM_STATUS_CORRUPT if it has no fingerprint of one,
///         KVMEM_STATUS_VERSION_MISMATCH if that is of a later version
kvmem_status kvmem_layout_build(const kvmem_layout_options *options,
                                kvmem_layout **layout,
                                kvmem_error **error);

/// Gives the first blocks of a layout memory and takes it from the others, in whole extents. Addresses,
/// strides and block ids stay what they are.
///
/// @param layout a layout that was built with elastic options
/// @param num_blocks how many blocks are in use: 0 to the layout's num_blocks
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE for more blocks than the layout was built for;
///         KVMEM_STATUS_INVALID_STATE for a layout on other memory; KVMEM_STATUS_BUSY while a transfer or a
///         share uses what is to go, or an agent lets go of a registration of the memory;
///         KVMEM_STATUS_OUT_OF_MEMORY; KVMEM_STATUS_CUDA; KVMEM_STATUS_NIXL
kvmem_status kvmem_layout_resize(kvmem_layout *layout, uint64_t num_blocks, kvmem_error **error);

/* ---- Layouts: addresses, checksums, information ---- */

/// The numbers to compute addresses with:
/// bases[num_bases > 1 ? layer : 0] + block·block_stride + layer·layer_stride + outer·outer_stride
typedef struct kvmem_layout_strides {
    /// Where each region starts. Valid as long as the layout.
    const uint64_t *bases;
    /// 1, or num_layers.
    uint64_t num_bases;
    /// Bytes from a block to the next.
    uint64_t block_stride;
    /// Bytes from a layer to the next; 0 for a layer separate layout.
    uint64_t layer_stride;
    /// Bytes from an outer slot to the next.
    uint64_t outer_stride;
    /// Bytes of one (block, layer, outer): R.
    uint64_t size;
} kvmem_layout_strides;

/// Tells the numbers to compute addresses with.
///
/// @param layout a layout
/// @param strides gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
kvmem_status kvmem_layout_get_strides(const kvmem_layout *layout,
                                      kvmem_layout_strides *strides,
                                      kvmem_error **error);

/// A span of a layout.
typedef struct kvmem_block {
    /// The first byte: an address in the process the layout lies in, or an offset in the file.
    uint64_t address;
    /// Bytes.
    uint64_t size;
} kvmem_block;

/// Where one block's share of a layer and outer slot lies.
///
/// @param layout a layout
/// @param block block id, below num_blocks
/// @param layer below num_layers
/// @param outer below outer_dim
/// @param out gets the span
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE
kvmem_status kvmem_layout_get_block(const kvmem_layout *layout,
                                    uint64_t block,
                                    uint64_t layer,
                                    uint64_t outer,
                                    kvmem_block *out,
                                    kvmem_error **error);

/// Computes the CRC32C (Castagnoli, as of iSCSI) of blocks: of each block's bytes, layer after layer, and in
/// a layer one outer slot after the other; padding has no part in it. Blocks of the same content have the
/// same checksum whatever kind, alignment or tier their layouts are of. Nobody may write to the blocks
/// meanwhile.
///
/// Host memory is read by threads where it lies, several of them where that is worth it, and GPU memory by a
/// kernel on its GPU. Blocks of files, and those of GPU memory that was opened for another GPU, are brought
/// to host memory before, 16 MiB or one block at a time. Returns when all is done; what is on streams of the
/// caller's must be over before.
///
/// @param layout a layout that is not remote
/// @param blocks block ids, in any order
/// @param num_blocks how many, at least 1
/// @param checksums gets one for each, in the order of the ids; untouched on failure
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer or no blocks;
///         KVMEM_STATUS_OUT_OF_RANGE for a block that is not there; KVMEM_STATUS_UNSUPPORTED for a remote
///         layout: its owner can compute them; KVMEM_STATUS_INVALID_STATE for elastic blocks without memory,
///         and for adopted memory of a GPU that went with its context; or how reading a file or GPU memory
///         failed
kvmem_status kvmem_layout_checksum(const kvmem_layout *layout,
                                   const uint32_t *blocks,
                                   size_t num_blocks,
                                   uint32_t *checksums,
                                   kvmem_error **error);

/// This process alone reaches it: no agent knows it.
#define KVMEM_LOCALITY_LOCAL 1
/// This process reaches it, and peers of its agent.
#define KVMEM_LOCALITY_REGISTERED 2
/// It is a peer's, reached by transfers.
#define KVMEM_LOCALITY_REMOTE 3
/// It is another process's, and mapped here: reached like memory of this process.
#define KVMEM_LOCALITY_MAPPED 4

/// What a layout is.
typedef struct kvmem_layout_info {
    /// As configured.
    uint64_t num_blocks;
    /// As configured.
    uint64_t num_layers;
    /// As configured.
    uint64_t outer_dim;
    /// As configured.
    uint64_t page_size;
    /// As configured.
    uint64_t inner_dim;
    /// As configured.
    uint64_t dtype_width;
    /// As configured; 1 where that was 0.
    uint64_t alignment;
    /// As configured.
    uint64_t num_heads;
    /// NIXL's device id of its first region: 0 for host memory, the fd of a file.
    uint64_t device_id;
    /// Regions it lies in.
    uint64_t num_regions;
    /// A KVMEM_LAYOUT_* kind.
    uint32_t kind;
    /// A KVMEM_BLOCK_DIM_* value.
    uint32_t block_dim;
    /// A KVMEM_TIER_* value.
    uint32_t tier;
    /// A KVMEM_LOCALITY_* value, which holds for every region: all are of one tier and device, and a transfer
    /// goes one way. A shared layout is mapped whole (MAPPED) or reached by NIXL whole (REMOTE).
    uint32_t locality;
    /// A KVMEM_MEMORY_* value.
    uint32_t memory_type;
    /// 0.
    uint32_t reserved;
} kvmem_layout_info;

/// Tells what a layout is.
///
/// @param layout a layout
/// @param info gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
kvmem_status kvmem_layout_get_info(const kvmem_layout *layout, kvmem_layout_info *info, kvmem_error **error);

/// One of the regions a layout lies in.
///
/// @param layout a layout
/// @param index which one, below num_regions
/// @param region gets a handle of its own, which the caller destroys
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE past the last; KVMEM_STATUS_UNSUPPORTED for a remote
///         layout
kvmem_status kvmem_layout_get_region(const kvmem_layout *layout,
                                     size_t index,
                                     kvmem_region **region,
                                     kvmem_error **error);

/// Destroys a layout handle. The layout is destroyed when nothing holds it.
///
/// @param layout a layout that no other call uses; NULL does nothing
void kvmem_layout_destroy(kvmem_layout *layout);

/* ---- Queues ---- */

/// A queue of completions with an event fd. Transfers hold the queue they report to; none of their
/// completions is lost, whatever their number. A completion may come a moment after kvmem_transfer_wait has
/// returned.
///
/// Threads: all functions on one queue may run at once, except kvmem_queue_destroy.
typedef struct kvmem_queue kvmem_queue;

/// A run of a transfer that is over.
typedef struct kvmem_completion {
    /// The word given with the transfer.
    uint64_t user_data;
    /// Bytes moved; 0 after a failure.
    uint64_t bytes;
    /// KVMEM_STATUS_OK or what failed; kvmem_transfer_poll has the message.
    kvmem_status status;
    /// 0.
    uint32_t reserved;
} kvmem_completion;

/// Creates an empty queue.
///
/// @param queue gets the queue; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_MEMORY without a free fd
kvmem_status kvmem_queue_create(kvmem_queue **queue, kvmem_error **error);

/// The queue's event fd: readable while completions wait, for poll(2) and epoll. Do not read it.
///
/// @param queue a queue
/// @param fd gets the fd, valid as long as the queue and not to be closed
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
kvmem_status kvmem_queue_get_fd(const kvmem_queue *queue, int32_t *fd, kvmem_error **error);

/// Takes the completions that are there.
///
/// @param queue a queue
/// @param completions gets them, oldest first
/// @param capacity how many fit, at least 1
/// @param count gets how many were taken; may be 0
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK, also for none; KVMEM_STATUS_INVALID_ARGUMENT
kvmem_status kvmem_queue_poll(kvmem_queue *queue,
                              kvmem_completion *completions,
                              size_t capacity,
                              size_t *count,
                              kvmem_error **error);

/// Takes the completions that are there, and waits for one if there is none.
///
/// @param queue a queue
/// @param timeout_ns nanoseconds to wait, 0 not to wait, or KVMEM_TIMEOUT_FOREVER
/// @param completions gets them, oldest first
/// @param capacity how many fit, at least 1
/// @param count gets how many were taken, at least 1
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_TIMED_OUT when none has come; KVMEM_STATUS_INVALID_ARGUMENT
kvmem_status kvmem_queue_wait(kvmem_queue *queue,
                              uint64_t timeout_ns,
                              kvmem_completion *completions,
                              size_t capacity,
                              size_t *count,
                              kvmem_error **error);

/// Destroys a queue and closes its event fd. Transfers that report to it continue; their completions are
/// discarded.
///
/// @param queue a queue that no other call uses; NULL does nothing
void kvmem_queue_destroy(kvmem_queue *queue);

/* ---- Transfers ---- */

/// A move of blocks from one layout to another: checked, planned and prepared once, submitted as often as
/// wanted. It holds both layouts.
///
/// Threads: all functions on one transfer may run at once, except kvmem_transfer_destroy.
typedef struct kvmem_transfer kvmem_transfer;

/// A block and where it goes.
typedef struct kvmem_block_pair {
    /// Block id in the source layout.
    uint32_t source;
    /// Block id in the destination layout.
    uint32_t destination;
} kvmem_block_pair;

/// Refuse paths that put bytes anywhere between source and destination: staging memory, the driver's own
/// where host memory is not page-locked, or the page cache of a buffered file, whether kvmem or NIXL reads
/// and writes it. No path to a peer is left: what NIXL's backends do with the bytes on their way is not
/// known.
#define KVMEM_TRANSFER_ZERO_COPY 1
/// Refuse paths through host memory that is neither source nor destination, as all between a file and a GPU
/// are but GPUDirect Storage. No path to a peer is left either: see KVMEM_TRANSFER_ZERO_COPY.
#define KVMEM_TRANSFER_NO_HOST_BOUNCE 2
/// Move the layers in order, and tell how many have moved: kvmem_transfer_get_layers,
/// kvmem_transfer_wait_layers and kvmem_transfer_wait_on_stream. Bytes that lie together in several layers
/// are then moved a layer at a time, which costs a transfer of small fully contiguous blocks some of its
/// speed; kvmem_transfer_explain tells.
#define KVMEM_TRANSFER_BY_LAYER 4
/// When all has moved, compare the CRC32C of each destination block with that of its source block, both of
/// which must stay as they are until the run is over; the source must not be remote. The run ends when they
/// are compared, and with KVMEM_STATUS_CORRUPT where they differ. See `checksums` for a comparison with what
/// was known before.
#define KVMEM_TRANSFER_VERIFY 8

/// Compute may run on the GPU meanwhile: what would slow it is not taken, or takes few CTAs.
#define KVMEM_COMPUTE_MAY_RUN 0
/// Nothing computes on the GPU meanwhile: copies may take all of it.
#define KVMEM_COMPUTE_IDLE 1

/// What to move.
typedef struct kvmem_transfer_options {
    /// sizeof(kvmem_transfer_options)
    size_t struct_size;
    /// KVMEM_TRANSFER_* flags.
    uint64_t flags;
    /// The blocks, in any order; copied. No destination may be named twice.
    const kvmem_block_pair *pairs;
    /// How many, at least 1.
    size_t num_pairs;
    /// First layer in the source.
    uint64_t source_layer;
    /// First layer in the destination.
    uint64_t destination_layer;
    /// How many layers. 0 for all: then both first layers are 0, and both layouts have as many layers.
    uint64_t num_layers;
    /// First outer slot in the source: 0 for keys, 1 for values.
    uint64_t source_outer;
    /// First outer slot in the destination.
    uint64_t destination_outer;
    /// How many outer slots. 0 for all: then both first slots are 0, and both layouts have as many.
    uint64_t num_outers;
    /// Sent to the remote agent after the last byte has moved; copied. NULL with size 0 for none, not NULL
    /// with size 0 for an empty one. Needs a remote layout.
    const void *notification;
    /// Its bytes.
    size_t notification_size;
    /// Where completions go; NULL for none.
    kvmem_queue *queue;
    /// Comes back in completions.
    uint64_t user_data;
    /// A KVMEM_COMPUTE_* value: whether the GPU computes while blocks move.
    uint32_t compute;
    /// The most CTAs of a copy kernel, for engines that share the GPU closely; 0 for as many as are worth
    /// having.
    uint32_t max_ctas;
    /// Bytes of device memory for staged copies, whose parts fill and drain in turn; 0 for 128 MiB, or 64 MiB
    /// where nothing computes. Beside long kernels it must hold what the link moves during one of them.
    /// Transfers on a device share two, each as large as the largest asked for and made when it is first
    /// needed: one for blocks on their way to the GPU, and one for blocks on their way to the host, so that
    /// both ways are under way at a time. Between a file and GPU memory: bytes of page-locked memory in four
    /// slots, each of which holds at least a piece, and which transfers of a device share as well; 0 for 64
    /// MiB.
    uint64_t staging_size;
    /// A KVMEM_PATH_* value to take and no other; 0 for the one that is expected to be fastest.
    uint32_t path;
    /// Must be 0.
    uint32_t reserved;
    /// What the CRC32C of the moved layers and outer slots of each block must be when they have moved, one a
    /// pair, as kvmem_layout_checksum computes it; copied. NULL for none. The destination's blocks are read
    /// again as that function reads them, and must stay as they are until the run is over. It ends with
    /// KVMEM_STATUS_CORRUPT where they differ, and names the first pair that does. Not with a remote
    /// destination, whose owner can compare, with KVMEM_TRANSFER_BY_LAYER, with KVMEM_TRANSFER_VERIFY, or in
    /// a graph.
    const uint32_t *checksums;
} kvmem_transfer_options;

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
void kvmem_transfer_options_init(kvmem_transfer_options *options, size_t struct_size);

/* ---- Transfers: creating and running ---- */

/// Checks, plans and prepares a transfer; moves nothing.
///
/// Blocks keep their content and may change their ids, layers and outer slots their numbers, and the two
/// layouts may be of different kinds and alignments. Blocks must be alike in page_size, inner_dim,
/// dtype_width, and in num_heads where both say it; in num_layers and outer_dim where no range is given.
/// Paths: host to host by memcpy; GPU memory and host or GPU memory by the CUDA driver, a kernel, or both,
/// whichever is expected to be fastest: kvmem_transfer_explain tells. Host and disk by io_uring where the
/// file is open for direct I/O and the kernel lets us, else by threads; NIXL's POSIX backend where `path`
/// asks for it, and an agent knows both layouts. GPU memory and disk through page-locked host memory; by NIXL
/// where an agent with a GDS backend knows both layouts, cuFile may not pass bytes through host memory, a
/// small transfer of its own was seen to work, and moves are large or flags leave no other way. Where `path`
/// asks for NIXL there cuFile may do as it likes, unless a flag says otherwise. Any memory and remote by
/// NIXL.
///
/// A transfer to disk is over when all bytes are written: with direct I/O to the device, else to the page
/// cache. kvmem_region_sync then makes them durable. A file that was cut short since its region was made ends
/// a transfer from it with KVMEM_STATUS_IO, and one there is no room for a transfer to it with
/// KVMEM_STATUS_OUT_OF_MEMORY.
///
/// What copies on a GPU need is made for the first of them, which takes longer, and kept as long as one of
/// the GPU's layouts.
///
/// @param source where the blocks come from
/// @param destination where they go
/// @param options which blocks
/// @param transfer gets the transfer; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for blocks that differ (with the field), a
///         destination named twice, memory that is read and written, also where a share of it is open more
///         than once (but not where the caller has mapped it a second time, and adopted that, nor where one
///         side is memory of a peer, which does not say what of it is mapped here), two agents, spans that
///         direct I/O does not take, or a staging_size too small for a piece;
///         KVMEM_STATUS_PERMISSION_DENIED for a destination that can only be read;
///         KVMEM_STATUS_OUT_OF_RANGE for a block, layer or outer slot that is not there;
///         KVMEM_STATUS_UNSUPPORTED for a pair of layouts without a path (with the way round it), or whose
///         path was refused by a flag, or can't be the one asked for, or that can't be verified;
///         KVMEM_STATUS_INVALID_STATE for a layout that no agent knows where NIXL is needed, and for memory
///         or page locks whose context was reset or destroyed; KVMEM_STATUS_STALE for a peer that was
///         invalidated
kvmem_status kvmem_transfer_create(const kvmem_layout *source,
                                   const kvmem_layout *destination,
                                   const kvmem_transfer_options *options,
                                   kvmem_transfer **transfer,
                                   kvmem_error **error);

/// Starts a transfer; after it is over, starts it again. A host copy of up to 64 KiB is done when this
/// returns, unless it is verified.
///
/// If this fails, no run has started: the queue gets no completion, and poll and wait report the run before.
///
/// @param transfer a transfer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK once it is started: poll, wait and the queue report its end; KVMEM_STATUS_BUSY
///         while it is in flight; KVMEM_STATUS_INVALID_STATE for elastic blocks without memory, and if the
///         GPU was reset since the transfer was created; KVMEM_STATUS_STALE when its peer was invalidated;
///         KVMEM_STATUS_OUT_OF_MEMORY: the thread that watches copies on GPUs could not be started
kvmem_status kvmem_transfer_submit(kvmem_transfer *transfer, kvmem_error **error);

/// Returns the state of the last run.
///
/// @param transfer a transfer
/// @param error gets the failure of the run; may be NULL
/// @return KVMEM_STATUS_OK when all bytes have moved; KVMEM_STATUS_IN_PROGRESS; KVMEM_STATUS_INVALID_STATE
///         before the first submit; or how it failed: then any part of the destination blocks may have been
///         written. KVMEM_STATUS_CORRUPT when all has moved, and blocks are not what `checksums` or
///         KVMEM_TRANSFER_VERIFY asks for; KVMEM_STATUS_CANCELLED when it was cancelled before all of it had
///         begun;
///         KVMEM_STATUS_OUT_OF_MEMORY: a thread for its I/O or verification could not be started;
///         KVMEM_STATUS_PEER_LOST when the peer's process has ended. Requests that NIXL cannot cancel keep
///         their memory until NIXL releases it. Until then submit fails with KVMEM_STATUS_BUSY
kvmem_status kvmem_transfer_poll(const kvmem_transfer *transfer, kvmem_error **error);

/// Waits for the last run. For a host copy, the waiting thread copies too, and checks the timeout after each
/// MiB. With more than 50 ms left it also makes the NIXL calls of a transfer over NIXL, in steps of up to 16
/// MiB, if no other thread makes them.
///
/// @param transfer a transfer
/// @param timeout_ns nanoseconds to wait, or KVMEM_TIMEOUT_FOREVER
/// @param error gets the failure of the run or of the wait; may be NULL
/// @return as kvmem_transfer_poll, but KVMEM_STATUS_TIMED_OUT while it is still in flight
kvmem_status kvmem_transfer_wait(const kvmem_transfer *transfer, uint64_t timeout_ns, kvmem_error **error);

/// Cancels the parts of the last run that have not started. Never waits.
///
/// Started parts complete and keep their memory until then: copies on a stream, a chunk of a host copy, reads
/// and writes that the kernel has, requests that NIXL has. The run ends with KVMEM_STATUS_CANCELLED, or with
/// its normal status if all parts had started. Poll, wait and the queue report the end. Any part of the
/// destination blocks may have been written. May be called any number of times; does nothing after the end.
///
/// @param transfer a transfer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK: the run's own status reports the outcome; KVMEM_STATUS_INVALID_STATE before the
///         first submit
kvmem_status kvmem_transfer_cancel(kvmem_transfer *transfer, kvmem_error **error);

/* ---- Transfers: layers ---- */

/// Tells how many layers of the last run have moved, from the first on: their blocks may be used. Never
/// waits.
///
/// Without KVMEM_TRANSFER_BY_LAYER it is none until the run is over, and then all. After a run that failed it
/// is what had moved before.
///
/// @param transfer a transfer
/// @param num_layers gets how many
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK, also after a run that failed; KVMEM_STATUS_INVALID_STATE before the first submit
kvmem_status kvmem_transfer_get_layers(const kvmem_transfer *transfer,
                                       uint64_t *num_layers,
                                       kvmem_error **error);

/// Waits until the first layers of the last run have moved: their blocks may be used while the others are
/// under way.
///
/// @param transfer a transfer, best one with KVMEM_TRANSFER_BY_LAYER; without, all layers have moved when the
///                 run is over
/// @param num_layers how many, counted from the first that is moved; 0 for all
/// @param timeout_ns nanoseconds to wait, or KVMEM_TIMEOUT_FOREVER
/// @param error gets the failure of the run or of the wait; may be NULL
/// @return KVMEM_STATUS_OK once they have moved, however the others fare; KVMEM_STATUS_OUT_OF_RANGE for more
///         than are moved; KVMEM_STATUS_TIMED_OUT; KVMEM_STATUS_INVALID_STATE before the first submit; or how
///         the run failed before they had moved, as kvmem_transfer_poll tells it
kvmem_status kvmem_transfer_wait_layers(const kvmem_transfer *transfer,
                                        uint64_t num_layers,
                                        uint64_t timeout_ns,
                                        kvmem_error **error);

/* ---- Transfers: paths and information ---- */

/// memcpy.
#define KVMEM_PATH_MEMCPY 1
/// NIXL reads from a peer.
#define KVMEM_PATH_NIXL_READ 2
/// NIXL writes to a peer.
#define KVMEM_PATH_NIXL_WRITE 3
/// NIXL reads from a file.
#define KVMEM_PATH_NIXL_FILE_READ 4
/// NIXL writes to a file.
#define KVMEM_PATH_NIXL_FILE_WRITE 5
/// The CUDA driver copies, one copy a move, on a stream of the transfer's own.
#define KVMEM_PATH_CUDA_COPY 6

/// The CUDA driver copies, all moves in one call, on a stream of the library's own.
#define KVMEM_PATH_CUDA_BATCH 7
/// The CUDA driver copies rows of blocks at regular distances.
#define KVMEM_PATH_CUDA_2D 8
/// A kernel reads and writes both sides itself.
#define KVMEM_PATH_CUDA_KERNEL 9
/// A kernel gathers or scatters inside GPU memory, and the CUDA driver copies what then lies together.
#define KVMEM_PATH_CUDA_STAGED 10
/// io_uring reads or writes a file.
#define KVMEM_PATH_URING 11
/// Threads read or write a file by preadv and pwritev.
#define KVMEM_PATH_PREAD 12
/// Between a file and GPU memory through page-locked memory: io_uring has the file's side, the CUDA driver
/// the GPU's.
#define KVMEM_PATH_URING_STAGED 13
/// The same with threads for the file's side.
#define KVMEM_PATH_PREAD_STAGED 14

/// The name of a path, such as "NIXL read".
///
/// @param path any value
/// @return a static string; "unknown" for a value that is none
const char *kvmem_path_name(uint32_t path);

/// What a transfer does.
typedef struct kvmem_transfer_info {
    /// Bytes it moves.
    uint64_t bytes;
    /// (block, layer, outer) units these are.
    uint64_t num_pieces;
    /// Stretches of memory these are after neighbours were joined.
    uint64_t num_moves;
    /// NIXL requests, or reads or writes of a file; 0 for others.
    uint64_t num_requests;
    /// Nanoseconds its last finished run took, from submit to the end; 0 before.
    uint64_t duration_ns;
    /// A KVMEM_PATH_* value.
    uint32_t path;
    /// 0.
    uint32_t reserved;
} kvmem_transfer_info;

/// Tells what a transfer does.
///
/// @param transfer a transfer
/// @param info gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
kvmem_status kvmem_transfer_get_info(const kvmem_transfer *transfer,
                                     kvmem_transfer_info *info,
                                     kvmem_error **error);

/// What is expected of a transfer.
typedef struct kvmem_transfer_explanation {
    /// Stretches of memory it moves.
    uint64_t num_moves;
    /// Bytes a second that it is expected to move. Of GPU copies by the figures of the GPU
    /// (kvmem_cuda_get_copy_rates); of host copies by how fast this machine copies, which the first question
    /// measures within some milliseconds; of files and peers by what this process has moved on the same path
    /// from or to the same file or peer, lately and above all in large runs. Before the first, what is usual
    /// is assumed: 2 GB/s by direct I/O, 5 GB/s by the page cache, 5 GB/s between host memory and a peer's,
    /// 0.5 GB/s where one of them is a GPU's.
    uint64_t bytes_per_second;
    /// A KVMEM_PATH_* value.
    uint32_t path;
    /// 1 where bytes_per_second is assumed, not measured; else 0.
    uint32_t assumed;
} kvmem_transfer_explanation;

/// Tells which path a transfer takes, what is expected of it, and why it takes no other. Moves nothing.
///
/// @param transfer a transfer
/// @param explanation gets the figures; may be NULL
/// @param text gets a blob of text for people, a line for each path that was weighed; the caller destroys it;
///             may be NULL
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK
kvmem_status kvmem_transfer_explain(const kvmem_transfer *transfer,
                                    kvmem_transfer_explanation *explanation,
                                    kvmem_blob **text,
                                    kvmem_error **error);

/// Destroys a transfer handle. A run in flight continues, holds what it needs, and still reports to its
/// queue.
///
/// @param transfer a transfer that no other call uses; NULL does nothing
void kvmem_transfer_destroy(kvmem_transfer *transfer);

/* ---- Shares ---- */

/// A region or a layout on its way to another process: bytes, and file descriptors that belong to them. The
/// owner of the memory creates it; another process receives and opens it. The owner's share keeps the memory
/// allocated, and extents of an elastic region that it carries can't be decommitted.
///
/// Threads: all functions on one share may run at once, except kvmem_share_destroy.
typedef struct kvmem_share kvmem_share;

/// As the tier allows: file descriptors for system, pinned, elastic and disk, and for device memory that an
/// engine has mapped itself; the driver's IPC handle for all other device memory.
#define KVMEM_SHARE_AUTO 0
/// By file descriptors.
#define KVMEM_SHARE_FD 1
/// By the driver's IPC handle.
#define KVMEM_SHARE_IPC 2
/// No memory is carried: other processes reach a layout by NIXL.
#define KVMEM_SHARE_REMOTE 3
/// By the driver's fabric handles: elastic memory made with KVMEM_ELASTIC_FABRIC, or what an engine has
/// mapped so.
#define KVMEM_SHARE_FABRIC 4

/// Importers may only read. A file descriptor then can't be mapped to be written; a GPU is given no right to
/// write extents; device memory by IPC handle is the importer's to respect, whose kvmem refuses to write.
#define KVMEM_SHARE_READ_ONLY 1

/// What to share, and how. All zeroes but struct_size grants everything.
typedef struct kvmem_share_options {
    /// sizeof(kvmem_share_options)
    size_t struct_size;
    /// KVMEM_SHARE_READ_ONLY, or 0.
    uint64_t flags;
    /// KVMEM_SHARE_AUTO, KVMEM_SHARE_FD, KVMEM_SHARE_IPC, KVMEM_SHARE_REMOTE or KVMEM_SHARE_FABRIC.
    uint32_t way;
    /// Must be 0.
    uint32_t reserved;
} kvmem_share_options;

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
void kvmem_share_options_init(kvmem_share_options *options, size_t struct_size);

/// Shares a region, or the part of one that a view is. Of a view all of its parent is carried.
///
/// @param region the region: system or pinned memory made shareable, device memory allocated by kvmem or
///        adopted (also what an engine has mapped itself, if it created it exportable), elastic memory (the
///        extents that are committed now), or a file
/// @param options what to grant, and how; NULL for everything
/// @param share gets the share; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNSUPPORTED for memory that can't be carried, or not in the way
///         asked for, with the reason; KVMEM_STATUS_CUDA; KVMEM_STATUS_OUT_OF_MEMORY also without file
///         descriptors; KVMEM_STATUS_PERMISSION_DENIED to grant writing to a file that was opened to be read
///         only
kvmem_status kvmem_share_create_region(const kvmem_region *region,
                                       const kvmem_share_options *options,
                                       kvmem_share **share,
                                       kvmem_error **error);

/// Shares a layout: its shape and its regions, and, where it was built with an agent, what peers need to
/// reach it by NIXL. A layout shared to be read only is not reached by NIXL, which knows no such right.
///
/// @param layout a layout of this process
/// @param options what to grant, and how; NULL for everything
/// @param share gets the share; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return as kvmem_share_create_region.
///         KVMEM_STATUS_INVALID_STATE: no memory is carried and no agent knows the layout.
///         KVMEM_STATUS_NIXL: the agent of the layout has no backend that reaches peers
kvmem_status kvmem_share_create_layout(const kvmem_layout *layout,
                                       const kvmem_share_options *options,
                                       kvmem_share **share,
                                       kvmem_error **error);

/* ---- Shares: sending and receiving ---- */

/// Sends a share over a connected Unix socket of the caller's: SOCK_STREAM or SOCK_SEQPACKET, blocking or
/// not. The share stays the caller's, and can be sent to others. docs/share-transport.md has what goes over
/// the socket.
///
/// @param share a share
/// @param fd the socket; nothing else may be sent on it meanwhile
/// @param timeout_ns how long to wait for the peer to read, in nanoseconds; KVMEM_TIMEOUT_FOREVER for ever
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK when all of it is in the socket; KVMEM_STATUS_TIMED_OUT; KVMEM_STATUS_PEER_LOST
///         when the other end is closed; KVMEM_STATUS_INVALID_ARGUMENT for what is no connected Unix socket;
///         KVMEM_STATUS_IO. After a failure the message says whether the socket can still be used.
kvmem_status kvmem_share_send(const kvmem_share *share, int32_t fd, uint64_t timeout_ns, kvmem_error **error);

/// Receives a share that kvmem_share_send sent. The bytes are not trusted.
///
/// After a failure, close the socket, unless the message says that the call may be tried again.
///
/// @param fd a connected Unix socket; nothing else may be received on it meanwhile
/// @param timeout_ns how long to wait, in nanoseconds; KVMEM_TIMEOUT_FOREVER for ever
/// @param share gets the share; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_TIMED_OUT; KVMEM_STATUS_PEER_LOST when the other end is closed;
///         KVMEM_STATUS_CORRUPT for what is no share; KVMEM_STATUS_VERSION_MISMATCH;
///         KVMEM_STATUS_OUT_OF_MEMORY also without file descriptors; KVMEM_STATUS_INVALID_ARGUMENT for what
///         is no connected Unix socket
kvmem_status kvmem_share_receive(int32_t fd, uint64_t timeout_ns, kvmem_share **share, kvmem_error **error);

/// The bytes of a share, for a way of the caller's own to the other process. They hold no secret but
/// addresses.
///
/// @param share a share; NULL answers NULL
/// @param size gets how many; may be NULL
/// @return the first byte; valid as long as the share
const void *kvmem_share_data(const kvmem_share *share, size_t *size);

/// One of the file descriptors of a share. They go to the other process in this order.
///
/// @param share a share
/// @param index which one, below num_fds
/// @param fd gets it: valid as long as the share, and not to be closed
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE past the last
kvmem_status kvmem_share_get_fd(const kvmem_share *share, size_t index, int32_t *fd, kvmem_error **error);

/// Makes a share of what came from another process by a way of the caller's own. Any bytes may be given.
///
/// @param data the bytes of kvmem_share_data; copied
/// @param size how many
/// @param fds the file descriptors, in the order of kvmem_share_get_fd; duplicated, so that the caller closes
///        its own; may be NULL with num_fds 0
/// @param num_fds how many
/// @param share gets the share; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_CORRUPT for bytes that are damaged, hostile or none, and for file
///         descriptors that are not as many as the bytes say; KVMEM_STATUS_VERSION_MISMATCH;
///         KVMEM_STATUS_INVALID_ARGUMENT for a file descriptor that is not open; KVMEM_STATUS_OUT_OF_MEMORY
kvmem_status kvmem_share_create_received(const void *data,
                                         size_t size,
                                         const int32_t *fds,
                                         size_t num_fds,
                                         kvmem_share **share,
                                         kvmem_error **error);

/* ---- Shares: opening ---- */

/// Open for reading only, even if writing is granted.
#define KVMEM_OPEN_READ_ONLY 1
/// Page-lock host memory, for `device`: it is pinned memory then. What may only be read can be locked for a
/// GPU that has CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED: KVMEM_STATUS_UNSUPPORTED for another.
/// No effect on files.
#define KVMEM_OPEN_PIN 2
/// Map the memory of a layout or fail: do not turn to NIXL.
#define KVMEM_OPEN_MAPPED_ONLY 4
/// Reach a layout by NIXL, also where its memory could be mapped.
#define KVMEM_OPEN_REMOTE 8
/// Register a mapped layout with `agent`.
#define KVMEM_OPEN_REGISTER 16
/// Open memory of a GPU for the GPU `device` to use: its kernels then read and write it, over NVLink or PCIe.
/// Without it, the memory is opened for the GPU that it is located on, and kernels of another GPU fail to
/// access it. Elastic memory, and memory that an engine has mapped, stays open for its own GPU too. kvmem
/// opens it for another GPU when a transfer first runs there, which delays the creation of that transfer: 0.3
/// ms per extent of 64 MiB, 20 ms per extent of 1 GiB on an H200. Plain device memory is opened for one GPU
/// at a time. No effect on host memory, on files, and on memory of this process.
#define KVMEM_OPEN_FOR_DEVICE 32
/// Open to read and write: KVMEM_STATUS_PERMISSION_DENIED where less is granted. Without it, and without
/// KVMEM_OPEN_READ_ONLY, the region gets all granted rights; KVMEM_REGION_READ_ONLY is set in its flags if
/// it may only be read.
#define KVMEM_OPEN_READ_WRITE 64
/// Map reserved huge pages (`huge_page_size` of kvmem_system_options). The owner, and every importer that may
/// write, can take them away again, and this process then ends with SIGBUS when it touches the memory.
/// Without the flag such memory fails with KVMEM_STATUS_UNSUPPORTED.
#define KVMEM_OPEN_TRUST_OWNER 128
/// Open elastic memory, and memory that an engine has mapped, for every GPU of this process that can access
/// the GPU it is located on: for an engine whose own kernels use it on several GPUs. Takes as long for each
/// GPU as KVMEM_OPEN_FOR_DEVICE does. No effect on other memory. Not together with KVMEM_OPEN_FOR_DEVICE.
#define KVMEM_OPEN_FOR_ALL_DEVICES 256

/// How to open a share. All zeroes but struct_size maps the memory with all that is granted.
typedef struct kvmem_open_options {
    /// sizeof(kvmem_open_options)
    size_t struct_size;
    /// KVMEM_OPEN_* flags.
    uint64_t flags;
    /// Who reaches a layout by NIXL where it can't be mapped, or registers it; may be NULL.
    kvmem_agent *agent;
    /// The GPU that KVMEM_OPEN_PIN and KVMEM_OPEN_FOR_DEVICE mean, as CUDA_VISIBLE_DEVICES orders them here;
    /// 0 without those flags.
    int32_t device;
    /// Must be 0.
    uint32_t reserved;
} kvmem_open_options;

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
void kvmem_open_options_init(kvmem_open_options *options, size_t struct_size);

/// Opens the region that a share is of. In the process that shares it this is the region itself; opened twice
/// in another process it is mapped once.
///
/// kvmem does not trust the bytes: it queries sizes, device and kind of memory from the kernel and the
/// driver. A device is found by its UUID, whatever its ordinal is here. Extents of elastic memory that their
/// owner decommits later answer KVMEM_STATUS_STALE to new transfers; memory whose owner has ended stays
/// readable, and kvmem_region_check_owner tells.
///
/// @param share a share of a region
/// @param options how to open it; NULL for all that is granted
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK, or
///         - KVMEM_STATUS_CORRUPT: the memory is not what the bytes say, or opening its control block would
///           wait.
///         - KVMEM_STATUS_PERMISSION_DENIED: KVMEM_OPEN_READ_WRITE, and less is granted.
///         - KVMEM_STATUS_NOT_FOUND: this process does not see the GPU.
///         - KVMEM_STATUS_PEER_LOST: the owner has freed the device memory, or has ended.
///         - KVMEM_STATUS_UNSUPPORTED: the memory is of another machine; it has reserved huge pages
///           (KVMEM_OPEN_TRUST_OWNER); the GPU can't page-lock what may only be read, or does not reach the
///           memory; fabric handles do not work here; or the driver does not open an IPC handle from another
///           PID namespace.
///         - KVMEM_STATUS_STALE: extents by fabric handle, or plain device memory, were freed and given anew
///           since.
///         - KVMEM_STATUS_OUT_OF_MEMORY: also with KVMEM_OPEN_PIN, if there is no room for pages that the
///           owner has not touched.
///         - KVMEM_STATUS_INVALID_ARGUMENT: the share is of a layout.
///         - KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
kvmem_status kvmem_share_open_region(const kvmem_share *share,
                                     const kvmem_open_options *options,
                                     kvmem_region **region,
                                     kvmem_error **error);

/// Opens the layout that a share is of: mapped where that is possible, else reached by NIXL if there is an
/// agent, in either case whole. Its regions are of one tier and device and a transfer of it goes one way, so
/// no part is mapped where another can't be. Its info says which it is (locality), the log why it is not
/// mapped (KVMEM_LOG_INFO).
///
/// @param share a share of a layout
/// @param options how to open it; NULL for all that is granted
/// @param layout gets the layout; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return as kvmem_share_open_region; for a layout reached by NIXL as kvmem_agent_load_remote_metadata and
///         kvmem_layout_import
kvmem_status kvmem_share_open_layout(const kvmem_share *share,
                                     const kvmem_open_options *options,
                                     kvmem_layout **layout,
                                     kvmem_error **error);

/* ---- Shares: information ---- */

/// A share of a region.
#define KVMEM_SHARED_REGION 1
/// A share of a layout.
#define KVMEM_SHARED_LAYOUT 2

/// What a share is.
typedef struct kvmem_share_info {
    /// Its bytes.
    uint64_t size;
    /// File descriptors that belong to them.
    uint64_t num_fds;
    /// Bytes of memory it carries; 0 where it is reached by NIXL only.
    uint64_t memory_size;
    /// The process that shares, as that process counts.
    uint32_t pid;
    /// KVMEM_SHARED_REGION or KVMEM_SHARED_LAYOUT.
    uint32_t object;
    /// The KVMEM_TIER_* value of what it carries; 0 where it is reached by NIXL only.
    uint32_t tier;
    /// 1 where importers may only read.
    uint32_t read_only;
    /// How its memory goes, whether that was asked for or found: KVMEM_SHARE_FD, KVMEM_SHARE_IPC,
    /// KVMEM_SHARE_FABRIC, or KVMEM_SHARE_REMOTE where none goes. KVMEM_SHARE_AUTO where regions of a layout
    /// go in different ways.
    uint32_t way;
    /// 0.
    uint32_t reserved;
} kvmem_share_info;

/// Tells what a share is.
///
/// @param share a share
/// @param info gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
kvmem_status kvmem_share_get_info(const kvmem_share *share, kvmem_share_info *info, kvmem_error **error);

/// Destroys a share handle. The share's file descriptors are closed, unless a broker publishes the share.
/// What was opened from it stays open.
///
/// @param share a share that no other call uses; NULL does nothing
void kvmem_share_destroy(kvmem_share *share);

/* ---- Brokers ---- */

/// Shares published by name at a socket path. One thread serves all clients and never waits for one of them;
/// a client is heard if its user is allowed, asks in time, and shows a token.
///
/// Threads: all functions on one broker may run at once, except kvmem_broker_destroy.
typedef struct kvmem_broker kvmem_broker;

/// How a broker runs. All zeroes but struct_size and path serves the broker's own user.
typedef struct kvmem_broker_options {
    /// sizeof(kvmem_broker_options)
    size_t struct_size;
    /// Must be 0.
    uint64_t flags;
    /// Where its socket lies; at most 107 bytes. A socket there that nobody listens at is replaced.
    const char *path;
    /// User ids that may fetch; copied. NULL with num_users 0 for the broker's own user alone. Nobody else
    /// may, root included.
    const uint32_t *users;
    /// How many.
    size_t num_users;
    /// How long a client may take to ask, and again to read the answer, in nanoseconds; 0 for 10 seconds.
    uint64_t client_timeout_ns;
    /// The most bytes of shares on their way to one user at once; 0 for 256 MiB.
    uint64_t max_bytes_per_user;
    /// Permission bits of the socket; 0 for 0600. Other users than the broker's own need 0660 or 0666 to
    /// connect.
    uint32_t mode;
    /// The most clients at once; 0 for 256. Those that come meanwhile wait to be let in.
    uint32_t max_clients;
    /// The most clients at once of one user; 0 for an equal part of max_clients. One that was sent file
    /// descriptors is there until it has read them.
    uint32_t max_clients_per_user;
    /// Must be 0.
    uint32_t reserved;
} kvmem_broker_options;

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
void kvmem_broker_options_init(kvmem_broker_options *options, size_t struct_size);

/// Starts a broker.
///
/// @param options where, and for whom
/// @param broker gets the broker; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_ALREADY_EXISTS when somebody listens at the path, or something that
///         is no socket is there; KVMEM_STATUS_NOT_FOUND without its folder; KVMEM_STATUS_PERMISSION_DENIED;
///         KVMEM_STATUS_INVALID_ARGUMENT, also for users that the mode keeps out; KVMEM_STATUS_OUT_OF_MEMORY
kvmem_status kvmem_broker_create(const kvmem_broker_options *options,
                                 kvmem_broker **broker,
                                 kvmem_error **error);

/// 256 bits that nobody can guess: whoever has them may fetch. A secret, to be handed over as one.
typedef struct kvmem_token {
    /// The bits.
    uint8_t bytes[32];
} kvmem_token;

/// What a token is good for. All zeroes but struct_size: all that the share grants, for as long as it is
/// published.
typedef struct kvmem_publish_options {
    /// sizeof(kvmem_publish_options)
    size_t struct_size;
    /// KVMEM_SHARE_READ_ONLY: its bearer may only read, whatever the share grants. Or 0.
    uint64_t flags;
    /// How often it can be used; 0 for any number. A token that is used up is refused like a wrong one.
    uint64_t max_uses;
    /// For how long, in nanoseconds; 0 for as long as the name is published.
    uint64_t lifetime_ns;
} kvmem_publish_options;

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
void kvmem_publish_options_init(kvmem_publish_options *options, size_t struct_size);

/// Offers a share under a name. While it is published the share is held, also when its handle is destroyed.
///
/// @param broker a broker
/// @param name a name that is free: 1 to 255 bytes of UTF-8
/// @param share what is offered
/// @param options what the token is good for; NULL for all that the share grants
/// @param token gets the token by which it is fetched
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_ALREADY_EXISTS for a name in use; KVMEM_STATUS_INVALID_ARGUMENT
kvmem_status kvmem_broker_publish(kvmem_broker *broker,
                                  const char *name,
                                  const kvmem_share *share,
                                  const kvmem_publish_options *options,
                                  kvmem_token *token,
                                  kvmem_error **error);

/// Makes another token for what is published.
///
/// @param broker a broker
/// @param name what it is published as
/// @param options what the token is good for; NULL for everything
/// @param token gets the token
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NOT_FOUND when the name is not published;
///         KVMEM_STATUS_INVALID_ARGUMENT
kvmem_status kvmem_broker_grant(kvmem_broker *broker,
                                const char *name,
                                const kvmem_publish_options *options,
                                kvmem_token *token,
                                kvmem_error **error);

/// Takes an offer back, and all its tokens with it. Who is being sent it just now still gets it, and what was
/// opened stays open.
///
/// @param broker a broker
/// @param name what it is published as
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NOT_FOUND when the name is not published
kvmem_status kvmem_broker_unpublish(kvmem_broker *broker, const char *name, kvmem_error **error);

/// The broker is a process of `broker_user`.
#define KVMEM_FETCH_BROKER_USER 2
/// Ask for reading and writing: KVMEM_STATUS_PERMISSION_DENIED where less is granted.
#define KVMEM_FETCH_READ_WRITE 4

/// What to fetch, and from whom.
typedef struct kvmem_fetch_options {
    /// sizeof(kvmem_fetch_options)
    size_t struct_size;
    /// Without a flag all that is granted is fetched. KVMEM_SHARE_READ_ONLY to ask for no more than reading,
    /// KVMEM_FETCH_READ_WRITE to be refused less than all; KVMEM_FETCH_BROKER_USER.
    uint64_t flags;
    /// Where the broker listens.
    const char *path;
    /// What the share was published as.
    const char *name;
    /// The token that goes with it; read during the call.
    const kvmem_token *token;
    /// How long to wait, in nanoseconds; 0 for 10 seconds, KVMEM_TIMEOUT_FOREVER for ever.
    uint64_t timeout_ns;
    /// Whose process the broker must be, with KVMEM_FETCH_BROKER_USER; else 0, and it must be of the caller's
    /// own user.
    uint32_t broker_user;
    /// Must be 0.
    uint32_t reserved;
} kvmem_fetch_options;

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
void kvmem_fetch_options_init(kvmem_fetch_options *options, size_t struct_size);

/// Fetches a share from a broker.
///
/// @param options what to fetch, and from whom
/// @param share gets the share; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_PERMISSION_DENIED for a wrong user, name or token, which are not
///         told apart, a token that is used up, KVMEM_FETCH_READ_WRITE where less is granted, or a broker of
///         another user; KVMEM_STATUS_NOT_FOUND when nothing is at the path; KVMEM_STATUS_INVALID_ARGUMENT
///         when a file is there that is no socket; KVMEM_STATUS_PEER_LOST when the broker there has ended, or
///         ends meanwhile; KVMEM_STATUS_BUSY when this user has too many clients, bytes or file descriptors
///         under way; KVMEM_STATUS_TIMED_OUT; KVMEM_STATUS_CORRUPT; KVMEM_STATUS_OUT_OF_MEMORY also without
///         file descriptors; what kvmem_share_create_region returns where the broker cannot share what was
///         published, such as KVMEM_STATUS_UNSUPPORTED for read access to a share that the broker's process
///         has received itself
kvmem_status kvmem_share_fetch(const kvmem_fetch_options *options, kvmem_share **share, kvmem_error **error);

/// What a broker has done.
typedef struct kvmem_broker_info {
    /// Names published now.
    uint64_t publications;
    /// Clients connected now.
    uint64_t clients;
    /// Shares handed out.
    uint64_t granted;
    /// Clients that were told no.
    uint64_t refused;
} kvmem_broker_info;

/// Tells what a broker has done.
///
/// @param broker a broker
/// @param info gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
kvmem_status kvmem_broker_get_info(const kvmem_broker *broker, kvmem_broker_info *info, kvmem_error **error);

/// Destroys a broker: ends its thread, closes and removes its socket, and releases its shares.
///
/// @param broker a broker that no other call uses; NULL does nothing
void kvmem_broker_destroy(kvmem_broker *broker);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_H */
