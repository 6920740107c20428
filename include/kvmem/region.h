/* SPDX-License-Identifier: Apache-2.0 */
/* kvmem: regions: memory on one tier. Generated from src/ffi; do not edit.
 *
 *     kvmem_system_options options = {.struct_size = sizeof options, .size = 1 << 30};
 *     kvmem_region *region = NULL;
 *     kvmem_status status = kvmem_region_create_system(&options, &region, &error);
 *
 * kvmem_region_create_pinned, _device, _elastic and _disk create memory of the other tiers.
 * kvmem_region_adopt_host, _device and _memfd make a region of memory that the engine has allocated.
 */

#ifndef KVMEM_REGION_H
#define KVMEM_REGION_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Regions ---- */

/// A range of memory on one tier: host memory, GPU memory, a file, objects or block storage. Views,
/// registrations, layouts, shares and transfers keep the memory of their regions allocated.
typedef struct kvmem_region kvmem_region;

#define KVMEM_TIER_SYSTEM 1  ///< Host memory.
#define KVMEM_TIER_DISK 2  ///< A file.
#define KVMEM_TIER_PINNED 3  ///< Page-locked host memory, which GPUs access by DMA.
#define KVMEM_TIER_DEVICE 4  ///< GPU memory.
#define KVMEM_TIER_ELASTIC 5  ///< GPU memory that grows and shrinks at fixed addresses.
#define KVMEM_TIER_OBJECT 6  ///< Objects of an object store, which NIXL reads and writes.
#define KVMEM_TIER_BLOCK 7  ///< Block storage, which NIXL reads and writes.

/* ---- Host memory ---- */

/// Ask the kernel for transparent huge pages for a region of any size, and report their absence:
/// KVMEM_REGION_HUGE_PAGE_FALLBACK. Without this flag kvmem asks for them for regions of at least one huge
/// page (2 MiB on x86-64).
#define KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES 1
/// Fail if the requested page size is not available. Without this flag smaller pages are used, and the info
/// of the region has KVMEM_REGION_HUGE_PAGE_FALLBACK.
#define KVMEM_SYSTEM_HUGE_PAGES_REQUIRED 2
#define KVMEM_SYSTEM_NUMA_BIND 4  ///< Bind the memory to `numa_node`.
#define KVMEM_SYSTEM_SHAREABLE 8  ///< Allocate a memory file, so that other processes can share the region.
/// Use ordinary pages only. For memory of which small parts far from each other are accessed: with huge pages
/// the first access to a byte allocates 2 MiB.
#define KVMEM_SYSTEM_NO_HUGE_PAGES 16
/// With KVMEM_SYSTEM_SHAREABLE: no other process can ever map the memory for writing, whatever it opens. It
/// can be shared with KVMEM_SHARE_READ_ONLY only.
#define KVMEM_SYSTEM_WRITE_SEALED 32

/// Options of kvmem_region_create_system.
typedef struct kvmem_system_options {
    size_t struct_size;
    uint64_t size;  ///< Bytes, at least 1.
    uint64_t flags;  ///< KVMEM_SYSTEM_* flags.
    /// Page size in bytes, from a reserved pool of the system (hugetlbfs), for example 2097152 or 1073741824;
    /// 0 for other pages. /sys/kernel/mm/hugepages lists them. With KVMEM_SYSTEM_NUMA_BIND all pages are
    /// touched before the call returns, because the kernel cannot reserve pages of a node.
    uint64_t huge_page_size;
    uint32_t numa_node;  ///< NUMA node of KVMEM_SYSTEM_NUMA_BIND; 0 without that flag.
    uint32_t prefault_threads;  ///< Threads that touch all pages before the call returns; 0: on first access.
} kvmem_system_options;

/// Allocates host memory. It is page-aligned and zeroed.
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the options contradict each other, or the NUMA node does not exist
///         KVMEM_STATUS_OUT_OF_MEMORY: too little memory of the machine, node or control group (not checked
///           if vm.overcommit_memory is 1), too few huge pages, or RLIMIT_FSIZE forbids a shareable region
///         KVMEM_STATUS_UNSUPPORTED: huge pages are required, and the system does not offer them
kvmem_status kvmem_region_create_system(const kvmem_system_options *options, kvmem_region **region,
    kvmem_error **error);

/* ---- Page-locked host memory ---- */

#define KVMEM_PINNED_NO_HUGE_PAGES 1  ///< Use ordinary pages only.
#define KVMEM_PINNED_NUMA_BIND 2  ///< Bind the memory to `numa_node`.
#define KVMEM_PINNED_SHAREABLE 4  ///< Allocate a memory file, so that other processes can share the region.
#define KVMEM_PINNED_WRITE_SEALED 8  ///< With KVMEM_PINNED_SHAREABLE: as KVMEM_SYSTEM_WRITE_SEALED.

/// Reports the progress of a long allocation, in bytes. Called on the calling thread after each chunk, and
/// within large chunks after each 512 MiB. Returns 0 to continue; any other value cancels the allocation.
typedef int32_t (*kvmem_progress_callback)(uint64_t done, uint64_t total, void *user_data);

/// Options of kvmem_region_create_pinned.
typedef struct kvmem_pinned_options {
    size_t struct_size;
    uint64_t size;  ///< Bytes, at least 1.
    /// GPU that accesses the memory. Without KVMEM_PINNED_NUMA_BIND, its NUMA node is used while it has free
    /// pages.
    int32_t device;
    uint32_t threads;  ///< Threads that touch the pages; 0 for one per core, at most 8.
    uint64_t flags;  ///< KVMEM_PINNED_* flags.
    uint32_t numa_node;  ///< NUMA node of KVMEM_PINNED_NUMA_BIND; 0 without that flag.
    uint32_t reserved;
    /// Bytes per page lock, a multiple of the page size; 0 for 64 GiB. A copy by the driver that crosses two
    /// page locks fails; kvmem splits its own copies there.
    uint64_t chunk_size;
    kvmem_progress_callback progress;  ///< Called between chunks; may be NULL. Not called for a layout.
    void *user_data;  ///< Passed to progress.
} kvmem_pinned_options;

/// Allocates page-locked host memory: near the GPU, touched by several threads, page-locked and mapped for
/// all contexts. A failure leaves nothing allocated.
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the options contradict each other
///         KVMEM_STATUS_OUT_OF_MEMORY: the machine, the NUMA node or the control group has less memory. This
///           is checked before a page is touched; the message has the bytes requested and available
///         KVMEM_STATUS_CANCELLED: progress returned another value than 0
kvmem_status kvmem_region_create_pinned(const kvmem_pinned_options *options, kvmem_region **region,
    kvmem_error **error);

/* ---- GPU memory ---- */

/// Options of kvmem_region_create_device.
typedef struct kvmem_device_options {
    size_t struct_size;
    uint64_t size;  ///< Bytes, at least 1.
    int32_t device;  ///< GPU.
    uint32_t reserved;
    uint64_t flags;  ///< Must be 0.
} kvmem_device_options;

/// Allocates GPU memory. Its content is undefined.
/// @return KVMEM_STATUS_OUT_OF_MEMORY: the GPU has less free memory. The message has the bytes requested,
///           free and in total
kvmem_status kvmem_region_create_device(const kvmem_device_options *options, kvmem_region **region,
    kvmem_error **error);

/* ---- Memory of the caller ---- */

/// Reports that kvmem no longer uses adopted memory, so that it can be freed. Called once, unless the call
/// that adopts it fails.
///
/// kvmem calls it on a dedicated thread, one release callback at a time. It may call any function of kvmem
/// and may block. It is called after the last handle, layout, registration, share and transfer that uses the
/// memory was destroyed or has ended, often after that function has returned.
///
/// Notes: callbacks pending at process exit may not be called. A forked child calls none of its parent's.
typedef void (*kvmem_release_callback)(void *user_data);

/// Adopt host memory for reading. It may be mapped without PROT_WRITE. The region can only be the source of
/// transfers, and cannot be registered with an agent.
#define KVMEM_ADOPT_READ_ONLY 1
#define KVMEM_ADOPT_KEEP_SEALS 2  ///< kvmem_region_adopt_memfd: do not seal the file with F_SEAL_SHRINK.

/// Memory of the caller to adopt.
typedef struct kvmem_adopt_options {
    size_t struct_size;
    /// First byte. Host memory must be mapped with PROT_READ, and with PROT_WRITE unless
    /// KVMEM_ADOPT_READ_ONLY is set. It must stay mapped until release is called.
    void *address;
    uint64_t size;  ///< Bytes, at least 1.
    uint64_t flags;  ///< KVMEM_ADOPT_READ_ONLY or 0.
    kvmem_release_callback release;  ///< Called when kvmem no longer uses the memory; may be NULL.
    void *user_data;  ///< Passed to release.
} kvmem_adopt_options;

/// Adopts host memory of the caller. kvmem never frees it.
///
/// If all of the memory is page-locked when a transfer gets its first blocks (cuMemHostRegister,
/// cuMemHostAlloc), GPUs use the page locks. There may be several, and a block may span two. If only a part
/// is page-locked, none is used. Page locks must not change while a transfer of the memory exists.
/// @return KVMEM_STATUS_INVALID_ARGUMENT: a part is not mapped, or lacks PROT_READ or PROT_WRITE
///         KVMEM_STATUS_IO, KVMEM_STATUS_NOT_FOUND: the kernel's list of mappings cannot be read
///
/// Notes: the check reads /proc/self/maps, which takes about a microsecond per mapping of the process.
kvmem_status kvmem_region_adopt_host(const kvmem_adopt_options *options, kvmem_region **region,
    kvmem_error **error);

/// Adopts GPU memory of the caller, such as a tensor. kvmem never frees it.
///
/// The driver confirms that all of it is memory of that GPU, and that the GPU may read and write it, or only
/// read it with KVMEM_ADOPT_READ_ONLY. It may span several allocations and VMM mappings. Adopt it again after
/// the access of a mapping has been reduced.
/// @param options the memory; its address is a device pointer
/// @return KVMEM_STATUS_INVALID_ARGUMENT: it is host, managed or freed memory, or of another GPU
///         KVMEM_STATUS_PERMISSION_DENIED: the GPU may not access it, or only read it
///         KVMEM_STATUS_OUT_OF_RANGE: the memory ends before the range
///
/// Notes: the memory is gone when its context is destroyed or reset; destroy the region before that.
/// Otherwise, transfers, checksums, shares and registrations of the region fail with
/// KVMEM_STATUS_INVALID_STATE before anything is accessed. A transfer in flight fails, and may destroy the
/// primary context of the GPU. Handles can be destroyed as usual, and release is called.
kvmem_status kvmem_region_adopt_device(const kvmem_adopt_options *options, int32_t device,
    kvmem_region **region, kvmem_error **error);

/* ---- Information and destruction ---- */

#define KVMEM_ORIGIN_ALLOCATED 1  ///< kvmem allocated it.
#define KVMEM_ORIGIN_ADOPTED 2  ///< It is memory of the caller.
#define KVMEM_ORIGIN_VIEW 3  ///< It is a part of another region.
#define KVMEM_ORIGIN_IMPORTED 4  ///< It is memory of another process.

#define KVMEM_REGION_DIRECT_IO 1  ///< Disk: I/O bypasses the page cache.
/// Disk: space was reserved when this region was created. Not set for an existing or shared file.
#define KVMEM_REGION_PREALLOCATED 2
#define KVMEM_REGION_TEMPORARY 4  ///< Disk: the file has no name, and is deleted with the region.
#define KVMEM_REGION_HUGE_PAGE_FALLBACK 8  ///< System and pinned: pages are smaller than requested.
#define KVMEM_REGION_SHAREABLE 16  ///< System and pinned: the memory is a memory file, which can be shared.
#define KVMEM_REGION_READ_ONLY 32  ///< It can only be read: it was shared, adopted or opened for reading.

/// Properties of a region.
typedef struct kvmem_region_info {
    /// First byte: a host or device address, or an offset in the file, the block device or all objects.
    uint64_t address;
    uint64_t size;  ///< Bytes.
    uint32_t tier;  ///< KVMEM_TIER_* value.
    uint32_t origin;  ///< KVMEM_ORIGIN_* value.
    /// GPU that the memory is located on, or was page-locked for; -1 for none. The id in NIXL, which
    /// kvmem_layout_info has, is another number.
    int32_t device;
    int32_t numa_node;  ///< NUMA node of the pages; -1 for any.
    uint64_t flags;  ///< KVMEM_REGION_* flags.
    /// Bytes per page of the mapping for system and pinned; bytes per extent for elastic; bytes per object
    /// for object; the system's page size for others.
    uint64_t memory_page_size;
    /// Disk and block: offsets, sizes and memory addresses of I/O must be multiples of this. Others: 1.
    uint64_t alignment;
    int32_t fd;  ///< Disk: the open file, valid as long as the region; do not close it. Others: -1.
    uint32_t registration_count;  ///< Number of agents it is registered with (kvmem_region_get_agent).
    /// Elastic: extents that it can hold. Others: 0. A view has this and the next two fields of its region.
    uint64_t num_extents;
    uint64_t num_committed;  ///< Elastic: extents that have memory. Others: 0.
    uint64_t generation;  ///< Elastic: number of times that the memory at any address has changed. Others: 0.
} kvmem_region_info;

/// Returns the properties of a region.
kvmem_status kvmem_region_get_info(const kvmem_region *region, kvmem_region_info *info, kvmem_error **error);

/// Destroys a region handle. The memory is freed when nothing refers to it any more.
///
/// The driver frees page-locked memory, and memory of kvmem_region_create_device, only when the GPU has
/// finished its work. If that takes longer than 20 ms, a thread frees the memory, which stays allocated
/// meanwhile; an allocation that finds no memory waits for what can be freed. To learn whether the GPU has
/// finished invalidates captures in its primary context, as cudaFree does: see docs/streams.md.
void kvmem_region_destroy(kvmem_region *region);

/* ---- Files ---- */

#define KVMEM_DISK_BUFFERED 1  ///< Use the page cache, which I/O bypasses by default if possible (O_DIRECT).
/// Fail if the file system does not support O_DIRECT. Without this flag the page cache is used instead, and
/// the info of the region lacks KVMEM_REGION_DIRECT_IO.
#define KVMEM_DISK_DIRECT_REQUIRED 2
#define KVMEM_DISK_OPEN_EXISTING 4  ///< Open the file at `path`, which must exist and not be empty.
#define KVMEM_DISK_OPEN_OR_CREATE 8  ///< Open the file at `path`, or create it if it is absent or empty.
/// With KVMEM_DISK_OPEN_EXISTING: open the file for reading. The region can only be the source of transfers.
/// It can be open while a writer has the file open.
#define KVMEM_DISK_READ_ONLY 16
#define KVMEM_DISK_NO_LOCK 32  ///< Do not lock the file against other writers: the caller excludes them.

/// Options of kvmem_region_create_disk.
typedef struct kvmem_disk_options {
    size_t struct_size;
    /// Path of the file, which is the caller's: kvmem creates it, and deletes it only if the call that
    /// created it fails. NULL for a temporary file, which has no name, and is deleted with the region or the
    /// process.
    const char *path;
    uint64_t size;  ///< Bytes, at least 1; 0 with KVMEM_DISK_OPEN_EXISTING for the whole file.
    uint64_t flags;  ///< KVMEM_DISK_* flags.
    const char *directory;  ///< Directory of a temporary file; NULL for $TMPDIR, or /tmp if that is not set.
} kvmem_disk_options;

/// Creates or opens a file of fixed size. Space is reserved and the page cache is bypassed if the file system
/// supports that. A call that fails leaves the file as it was before: absent or empty.
///
/// While the region exists, a named file is locked against other writers: opening it again fails with
/// KVMEM_STATUS_BUSY, in all processes. KVMEM_DISK_READ_ONLY and KVMEM_DISK_NO_LOCK lock nothing.
/// @return KVMEM_STATUS_ALREADY_EXISTS: the file exists, and no flag says to open it
///         KVMEM_STATUS_NOT_FOUND: the directory does not exist, or with KVMEM_DISK_OPEN_EXISTING the file
///         KVMEM_STATUS_BUSY: the file is already open for writing
///         KVMEM_STATUS_INVALID_ARGUMENT: the options contradict each other; the path is not a regular file;
///           or the file is empty and KVMEM_DISK_OPEN_EXISTING is set
///         KVMEM_STATUS_OUT_OF_RANGE: the existing file is too small
///         KVMEM_STATUS_OUT_OF_MEMORY: no space, a quota, or RLIMIT_FSIZE; or the file is on tmpfs, and
///           exceeds the memory of the machine or of the control group
///         KVMEM_STATUS_UNSUPPORTED: the file system does not support O_DIRECT, which is required, or locks
///         KVMEM_STATUS_PERMISSION_DENIED, KVMEM_STATUS_IO
kvmem_status kvmem_region_create_disk(const kvmem_disk_options *options, kvmem_region **region,
    kvmem_error **error);

/// Returns the absolute path of the file of a disk region.
/// @return KVMEM_STATUS_NOT_FOUND: it is not on disk; or is temporary, from a share, renamed or unlinked
kvmem_status kvmem_region_get_path(const kvmem_region *region, kvmem_blob **path, kvmem_error **error);

/// Waits until the written data of a disk region is durable. Does nothing for other regions.
/// @return KVMEM_STATUS_IO, KVMEM_STATUS_OUT_OF_MEMORY: the data is not durable
kvmem_status kvmem_region_sync(const kvmem_region *region, kvmem_error **error);

/* ---- GPU memory that grows and shrinks ---- */

/// Extents can be shared by fabric handle (KVMEM_SHARE_FABRIC), too. This cannot be enabled later.
#define KVMEM_ELASTIC_FABRIC 1

/// Options of kvmem_region_create_elastic.
typedef struct kvmem_elastic_options {
    size_t struct_size;
    uint64_t size;  ///< Maximum size in bytes, rounded up to whole extents.
    int32_t device;  ///< GPU.
    uint32_t reserved;
    /// Bytes per extent, a multiple of the recommended granularity; 0 for 64 MiB. Each extent delays growth.
    uint64_t extent_size;
    uint64_t flags;  ///< KVMEM_ELASTIC_* flags; 0: extents are shared by file descriptor if the GPU can.
} kvmem_elastic_options;

/// Reserves GPU addresses for memory that grows and shrinks. kvmem_region_commit allocates the memory.
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the extent is no multiple of the granularity, or the size too large
///         KVMEM_STATUS_OUT_OF_RANGE: there are more than 16,777,216 extents
///         KVMEM_STATUS_OUT_OF_MEMORY: too few free addresses, or no host memory or file descriptor for the
///           control block, in which other processes see changes (64 bytes, and 4 per extent)
///         KVMEM_STATUS_UNSUPPORTED: the GPU has no virtual memory management, or cannot export memory by
///           fabric handle, which is tried for KVMEM_ELASTIC_FABRIC
kvmem_status kvmem_region_create_elastic(const kvmem_elastic_options *options, kvmem_region **region,
    kvmem_error **error);

/// Allocates memory for a part of an elastic region, in whole extents. Extents that have memory keep it.
/// Addresses do not change. Agents that it is registered with can use them. A failure changes nothing.
/// @param region an elastic region, not a view
/// @param offset bytes from the start of the region
/// @param size bytes, at least 1; every extent that overlaps the range gets memory
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the region is not elastic
///         KVMEM_STATUS_OUT_OF_RANGE: the range ends after the reserved addresses
///         KVMEM_STATUS_OUT_OF_MEMORY: the message has the bytes requested and in total, and the free bytes
///           if the process has the primary context of the GPU
///         KVMEM_STATUS_UNSUPPORTED: the region was imported: its owner can commit and share it again
kvmem_status kvmem_region_commit(kvmem_region *region, uint64_t offset, uint64_t size, kvmem_error **error);

/// Frees the memory of whole extents, after it was deregistered from agents. The caller ensures that no
/// kernel or copy of its own uses the extents any more. Transfers of kvmem are checked.
/// @param region an elastic region, not a view
/// @param offset bytes from the start of the region, a multiple of the extent size
/// @param size bytes, a multiple of the extent size
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the region is not elastic, or the range not of whole extents
///         KVMEM_STATUS_OUT_OF_RANGE: the range ends after the reserved addresses
///         KVMEM_STATUS_INVALID_STATE: an extent has no memory
///         KVMEM_STATUS_BUSY: a transfer, request or share uses an extent, or an agent is still deregistering
///           memory of a destroyed registration. The call does not wait for either
///         KVMEM_STATUS_UNSUPPORTED: the region was imported; decommit in the process of its owner
///         KVMEM_STATUS_NIXL: an agent could not deregister an extent. The extent is decommitted, but its
///           memory stays mapped, and is used again if the extent is committed again
kvmem_status kvmem_region_decommit(kvmem_region *region, uint64_t offset, uint64_t size, kvmem_error **error);

/* ---- Views ---- */

/// Creates a region that is a part of another one. It keeps that memory. A view of a view is a view of it.
/// @param offset bytes from the start of the parent
/// @param size bytes, at least 1
/// @return KVMEM_STATUS_OUT_OF_RANGE: the range ends after the parent
kvmem_status kvmem_region_create_view(const kvmem_region *region, uint64_t offset, uint64_t size,
    kvmem_region **view, kvmem_error **error);

/* ---- Memory files of the caller ---- */

/// Part of a memory file to adopt.
typedef struct kvmem_adopt_memfd_options {
    size_t struct_size;
    /// File from memfd_create, or on tmpfs or hugetlbfs, open with O_RDWR, or with O_RDONLY for
    /// KVMEM_ADOPT_READ_ONLY. kvmem opens it again, so the caller may close it after the call. Not 0, which
    /// is a field that was not set: duplicate a file that is open as fd 0 (dup).
    int32_t fd;
    uint32_t reserved;
    uint64_t offset;  ///< Offset in the file in bytes, a multiple of its page size.
    uint64_t size;  ///< Bytes, at least 1. The part must be within the file.
    uint64_t flags;  ///< KVMEM_ADOPT_* flags.
    /// Address at which the caller has mapped this part of the file with MAP_SHARED. It must stay mapped
    /// until release is called. NULL: kvmem maps it, and unmaps it before it calls release.
    void *address;
    kvmem_release_callback release;  ///< Called when kvmem no longer uses the memory; may be NULL.
    void *user_data;  ///< Passed to release.
} kvmem_adopt_memfd_options;

/// Adopts a part of a memory file of the caller, so that it can be shared with other processes.
///
/// The region is host memory like that of kvmem_region_adopt_host. kvmem_share_create_region and
/// kvmem_share_create_layout share it: importers map the same pages.
///
/// kvmem adds F_SEAL_SHRINK to the file, which then cannot be truncated: a process that accesses memory past
/// the end of a file gets SIGBUS. With KVMEM_ADOPT_KEEP_SEALS, and for a file that cannot be sealed (created
/// without MFD_ALLOW_SEALING, on tmpfs or hugetlbfs, or open with O_RDONLY), importers must trust all its
/// writers (KVMEM_OPEN_TRUST_OWNER). Do not truncate such a file while the region or an importer uses it.
/// @return KVMEM_STATUS_INVALID_ARGUMENT: fd is 0, not open, not open as the flags require, or not a memory
///           file; the file is sealed against writing; the offset is not a multiple of the page size; or the
///           memory at the address is not this part of the file, or lacks PROT_READ or PROT_WRITE
///         KVMEM_STATUS_OUT_OF_RANGE: the part is not within the file
///         KVMEM_STATUS_OUT_OF_MEMORY: no address space or huge pages
///         KVMEM_STATUS_BUSY: a process has a lease on the file (F_SETLEASE)
///         KVMEM_STATUS_IO, KVMEM_STATUS_NOT_FOUND: the kernel's list of mappings cannot be read
///
/// Notes: importers receive the file, and can access all of it, whatever part was adopted and shared. Any
/// process that can open the file for writing can change the bytes, whatever a share grants.
/// memfd_create creates files of mode 0777: change it to 0600 by fchmod before the memory is shared for
/// reading with processes of another user.
kvmem_status kvmem_region_adopt_memfd(const kvmem_adopt_memfd_options *options, kvmem_region **region,
    kvmem_error **error);

/* ---- Objects and block storage ---- */

/// Options of kvmem_region_create_object.
typedef struct kvmem_object_options {
    size_t struct_size;
    /// Prefix of all keys, UTF-8, 1 to 1014 bytes: "model/" for the keys "model/0000000000",
    /// "model/0000000001" and so on. It has no control characters. No segment before a slash is empty, "." or
    /// "..": NIXL's plugin would remove it from the key.
    const char *key_prefix;
    uint64_t object_size;  ///< Maximum size of an object in bytes, usually the block stride of the layout.
    uint64_t count;  ///< Number of objects, 1 to 2147483647; usually the number of blocks of the layout.
    uint64_t flags;  ///< Must be 0.
} kvmem_object_options;

/// Creates a region of objects of an object store, such as an S3 bucket. The call only names them: nothing is
/// read or written, and destroying the region deletes no object.
///
/// The key of object i, from 0, is key_prefix and i as 10 decimal digits. Object i starts at offset
/// i * object_size of the region. Each object contains the bytes of one block, or of a part of one block:
/// kvmem_layout_build fails for other layouts, and names the axis that prevents it. If object_size is larger
/// than the block, the object contains only the block.
///
/// Transfers need a layout over the region that was built with an agent. The agent has a backend of NIXL's
/// plugin OBJ, which names the bucket. The other layout is in host or GPU memory, and was built with the same
/// agent. Transfers write whole objects, and may read parts. Regions with the same prefix, in this process or
/// in others, name the same objects of a bucket.
///
/// This process has no addresses of objects: they cannot be shared, exported, or mapped.
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the prefix is missing, too long, not UTF-8, or has a segment or
///           character that keys cannot have; object_size or count is 0 or too large (2^63 - 1 bytes in all)
///
/// Notes: requests address objects by device ids, which the process numbers from 2^48: do not register raw
/// descriptors of objects with such ids. Registering a region registers all of its objects, also for a layout
/// over a view: an agent keeps about 600 bytes per object, and deregisters them when nothing uses them.
kvmem_status kvmem_region_create_object(const kvmem_object_options *options, kvmem_region **region,
    kvmem_error **error);

/// Options of kvmem_region_create_block.
typedef struct kvmem_block_options {
    size_t struct_size;
    uint64_t device_id;  ///< Number of the device in the backend's configuration. The plugin GUSLI needs 0.
    uint64_t offset;  ///< Bytes from the start of the device.
    uint64_t size;  ///< Bytes, at least 1.
    /// Alignment of I/O (offsets, sizes, host addresses): a power of two, usually a device block; 0 for 1.
    uint64_t alignment;
    const void *metadata;  ///< Bytes that the backend needs to register it; NULL for none; copied.
    size_t metadata_size;  ///< Number of bytes of metadata.
    uint64_t flags;  ///< Must be 0.
} kvmem_block_options;

/// Creates a region of block storage: a part of a device that a backend of NIXL accesses, such as one of the
/// plugin GUSLI. The call only names it: nothing is opened, and kvmem does not lock it against other users.
///
/// Transfers need a layout over the region that was built with an agent. The agent has a backend that accepts
/// KVMEM_MEMORY_BLOCK. The method is KVMEM_METHOD_NIXL. The other layout is in memory that the backend
/// accepts (GUSLI: host memory), and was built with the same agent.
///
/// This process has no addresses of it: it cannot be shared, exported, or mapped.
/// @return KVMEM_STATUS_INVALID_ARGUMENT: size is 0; the part ends after 2^63 - 1 bytes; alignment is not a
///           power of two, or offset and size are not multiples of it
kvmem_status kvmem_region_create_block(const kvmem_block_options *options, kvmem_region **region,
    kvmem_error **error);

/* ---- Holders, owners, pages in memory ---- */

/// References to the memory of a region at one moment. Those to a view of it count for the view only.
typedef struct kvmem_region_holders {
    /// References in this process: one per handle, view, registration and share; one or more per layout. A
    /// transfer in flight may add some. 1: only this handle.
    uint64_t references;
    /// Views of it, including views of views and those that a layout created for its parts. 0 for a view.
    uint64_t views;
    uint64_t registrations;  ///< Agents that it is registered with.
    /// Shares of it that are not destroyed. A share of a layout counts for each of its regions. Those of a
    /// view are those of its region, of which a share gives access to all.
    uint64_t shares;
    /// Number of times that other processes have it open, each with a separate mapping; at most 1,024 are
    /// counted. A process that has ended does not count. Those of a view are those of its region.
    uint64_t importers;
    uint64_t handles;  ///< Handles to it that are not destroyed, including this one.
} kvmem_region_holders;

/// Returns the number of references to a region, in this process and in others.
/// @return KVMEM_STATUS_PERMISSION_DENIED, KVMEM_STATUS_IO: the region was shared, and the kernel does not
///           report its importers, for example because a system call filter rejects F_OFD_GETLK
kvmem_status kvmem_region_get_holders(const kvmem_region *region, kvmem_region_holders *holders,
    kvmem_error **error);

/// Checks that the owner of an imported region still has it. If not, existing mappings stay readable. A
/// region of this process is its own owner.
/// @return KVMEM_STATUS_PEER_LOST: the owner has freed the region or has ended
kvmem_status kvmem_region_check_owner(const kvmem_region *region, kvmem_error **error);

/// Resident memory of a region, in bytes.
typedef struct kvmem_region_residency {
    uint64_t resident_bytes;  ///< In memory, on pages of any size.
    uint64_t transparent_huge_bytes;  ///< In memory, on transparent huge pages.
    uint64_t swapped_bytes;  ///< Swapped out.
} kvmem_region_residency;

/// Returns how many bytes of a region are resident in memory. A view has the figures of its region.
/// @param region a system or pinned region
/// @return KVMEM_STATUS_UNSUPPORTED: the region is adopted, or is not in host memory
///         KVMEM_STATUS_IO, KVMEM_STATUS_NOT_FOUND, KVMEM_STATUS_OUT_OF_MEMORY: the kernel gives no figures
///
/// Notes: for diagnosis. The kernel walks the pages of all mappings of the process (/proc/self/smaps), which
/// takes milliseconds, and more with much memory. Pages of an adjacent mapping that the kernel merged with
/// the region's may be included; no figure exceeds the size of the region.
kvmem_status kvmem_region_get_residency(const kvmem_region *region, kvmem_region_residency *residency,
    kvmem_error **error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_REGION_H */
