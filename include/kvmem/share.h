/* SPDX-License-Identifier: Apache-2.0 */
/* kvmem: shares: a region or a layout on its way to another process, and brokers.
 * Generated from src/ffi; do not edit.
 *
 * The owner creates a share, and sends it through a socket or publishes it by name with a broker. The other
 * process receives or fetches the share, and opens it:
 *
 *     kvmem_share_create_layout(layout, NULL, &share, &error);
 *     kvmem_share_send(share, socket, timeout_ns, &error);
 *
 *     kvmem_share_receive(socket, timeout_ns, &share, &error);
 *     kvmem_share_open_layout(share, NULL, &layout, &error);
 */

#ifndef KVMEM_SHARE_H
#define KVMEM_SHARE_H

#include "layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Shares ---- */

/// A region or a layout in transit to another process: bytes, and the file descriptors that belong to them.
/// The owner's share keeps the memory allocated, and elastic extents that it carries cannot be decommitted.
typedef struct kvmem_share kvmem_share;

/// Selects the transport by tier: file descriptors for system, pinned, elastic and disk memory, and for
/// device memory that an engine mapped with cuMemMap; the driver's IPC handle for other device memory. Memory
/// that can be exported only as fabric handles is carried by these.
#define KVMEM_SHARE_AUTO 0
#define KVMEM_SHARE_FD 1  ///< Carries memory by file descriptors.
#define KVMEM_SHARE_IPC 2  ///< Carries memory by the driver's IPC handle.
#define KVMEM_SHARE_REMOTE 3  ///< Carries no memory: other processes access the layout through NIXL.
/// Carries memory by the driver's fabric handles: elastic memory created with KVMEM_ELASTIC_FABRIC, or memory
/// that an engine mapped and created with fabric handles.
#define KVMEM_SHARE_FABRIC 4

/// Grants read access only. File descriptors of host memory and files are then read-only, and GPUs get no
/// write access to extents and mappings. That prevents mistakes, and no intent: a process of the same user,
/// or root, can open such a file descriptor again for writing, unless the memory is sealed
/// (KVMEM_SHARE_WRITE_SEALED). For device memory by IPC handle, only the importer's kvmem prevents writing.
#define KVMEM_SHARE_READ_ONLY 1

/// Seals host memory against writing by other processes for ever (F_SEAL_FUTURE_WRITE), before it is shared.
/// Requires KVMEM_SHARE_READ_ONLY. Mappings that exist remain writable, such as those of this process. For
/// memory of KVMEM_SYSTEM_SHAREABLE and KVMEM_PINNED_SHAREABLE it must be set in the first share; for an
/// adopted memory file before a share that grants write access.
#define KVMEM_SHARE_WRITE_SEALED 2

/// Options of kvmem_share_create_region and kvmem_share_create_layout.
typedef struct kvmem_share_options {
    size_t struct_size;
    uint64_t flags;  ///< KVMEM_SHARE_* flags; 0 grants read and write access.
    /// How memory is carried: KVMEM_SHARE_AUTO (default), _FD, _IPC, _REMOTE or _FABRIC.
    uint32_t transport;
    uint32_t reserved;
} kvmem_share_options;

/// Creates a share of a region.
///
/// Importers open the region, and can access all memory that the share carries: for a view all of its parent,
/// for device memory the whole allocation or mapping that contains it.
/// @param region a region that this process owns: system or pinned memory that was allocated shareable; an
///         adopted memory file; device memory that was allocated or adopted; elastic memory, of which the
///         committed extents are shared; or a file. Device memory that an engine mapped must be exportable
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the transport is KVMEM_SHARE_REMOTE, which only layouts have
///         KVMEM_STATUS_UNSUPPORTED: the memory cannot be carried like this, or sealed; the message says why
///         KVMEM_STATUS_PERMISSION_DENIED: write access is granted for a file or memory that can only be read
///         KVMEM_STATUS_INVALID_STATE: the context of the device memory was reset or destroyed; or the memory
///           is to be sealed and was shared before: an adopted file to be written, other memory at all
///         KVMEM_STATUS_BUSY: a process holds a lease on the file (F_SETLEASE)
///         KVMEM_STATUS_IO
kvmem_status kvmem_share_create_region(const kvmem_region *region, const kvmem_share_options *options,
    kvmem_share **share, kvmem_error **error);

/// Creates a share of a layout: its shape, its regions, and the data for NIXL.
///
/// With any transport but KVMEM_SHARE_REMOTE, the share carries the memory of all regions of the layout. The
/// share also carries the data for NIXL: the metadata of the agent, and the layout descriptor. It does not if
/// the layout is on disk, is shared read-only, or has no agent with a backend that reaches peers. NIXL has no
/// read-only access, so a layout that is shared with KVMEM_SHARE_READ_ONLY cannot be accessed through NIXL.
/// @return any status of kvmem_share_create_region, and
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote; or importers could not align a region, because it
///           starts at an offset in its memory that is not a multiple of the layout's alignment
///         KVMEM_STATUS_INVALID_STATE: KVMEM_SHARE_REMOTE, and the share would not carry the data for NIXL
kvmem_status kvmem_share_create_layout(const kvmem_layout *layout, const kvmem_share_options *options,
    kvmem_share **share, kvmem_error **error);

/* ---- Sending and receiving ---- */

/// Sends a share over a connected Unix socket of the caller.
///
/// The socket is of type SOCK_STREAM or SOCK_SEQPACKET, blocking or non-blocking. The caller keeps the share,
/// and can send it again. docs/share-transport.md specifies the bytes on the socket.
///
/// After KVMEM_STATUS_OK the share and the memory may be destroyed if file descriptors carry the memory.
/// Memory that an IPC handle or a fabric handle carries must exist until the peer has opened it, and memory
/// that is reached by NIXL as long as the peer uses it.
///
/// After a failure, close the socket, unless the message says that the call may be tried again.
/// @param fd the socket; send nothing else on it during the call
/// @return KVMEM_STATUS_OK: the socket has accepted all of it
///         KVMEM_STATUS_TIMED_OUT: the peer has not read all of it in time
///         KVMEM_STATUS_PEER_LOST: the other end is closed
///         KVMEM_STATUS_INVALID_ARGUMENT: fd is no such socket, or its send buffer is too small
///         KVMEM_STATUS_IO
kvmem_status kvmem_share_send(const kvmem_share *share, int32_t fd, uint64_t timeout_ns, kvmem_error **error);

/// Receives a share that kvmem_share_send sent. kvmem does not trust the bytes. After a failure, close the
/// socket, unless the message says that the call may be tried again.
/// @param fd a connected Unix socket, as for kvmem_share_send; receive nothing else on it during the call
/// @return KVMEM_STATUS_PEER_LOST: the other end is closed
///         KVMEM_STATUS_PERMISSION_DENIED: the kernel withheld file descriptors, as by a security policy
///         KVMEM_STATUS_INVALID_ARGUMENT: fd is not a connected Unix socket of these types
///         KVMEM_STATUS_CORRUPT: the bytes on the socket are not a message of kvmem
///         KVMEM_STATUS_IO
kvmem_status kvmem_share_receive(int32_t fd, uint64_t timeout_ns, kvmem_share **share, kvmem_error **error);

/* ---- Opening and destruction ---- */

#define KVMEM_OPEN_READ_ONLY 1  ///< Open for reading only, even if write access is granted.
/// Page-lock host memory for the GPU `device`. The region is then pinned memory. Read-only memory can be
/// locked only for a GPU that has CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED; for others, opening
/// fails with KVMEM_STATUS_UNSUPPORTED. No effect on files and GPU memory.
#define KVMEM_OPEN_PIN 2
#define KVMEM_OPEN_MAPPED_ONLY 4  ///< Layouts: map the memory or fail, rather than use NIXL.
#define KVMEM_OPEN_REMOTE 8  ///< Layouts: use NIXL, even if the memory can be mapped. Needs `agent`.
#define KVMEM_OPEN_REGISTER 16  ///< Layouts: register the mapped memory with `agent`.
/// Open GPU memory for kernels of the GPU `device`, which access it over NVLink or PCIe. Without this flag,
/// the memory is opened for the GPU that it is located on, and kernels of other GPUs fail to access it. Plain
/// device memory is opened for one GPU at a time. Elastic memory, and memory that an engine mapped, stays
/// open for its own GPU too. kvmem opens it for another GPU when a transfer there gets its first blocks,
/// which delays that call: on an H200, by 0.3 ms per extent of 64 MiB and 20 ms per extent of 1 GiB.
/// No effect on host memory, files, and memory of this process.
#define KVMEM_OPEN_FOR_DEVICE 32
/// Open for reading and writing, and fail with KVMEM_STATUS_PERMISSION_DENIED unless write access is granted.
/// Without this flag and KVMEM_OPEN_READ_ONLY, the region has all granted rights (see
/// KVMEM_REGION_READ_ONLY).
#define KVMEM_OPEN_READ_WRITE 64
/// Map host memory that other processes can take away: reserved huge pages (`huge_page_size` of
/// kvmem_system_options), and adopted memory files that can be truncated (see kvmem_region_adopt_memfd). The
/// owner, and every importer with write access, can remove such pages. If this process then touches them, it
/// ends with SIGBUS. Without this flag, such memory fails with KVMEM_STATUS_UNSUPPORTED.
#define KVMEM_OPEN_TRUST_OWNER 128
/// Open elastic memory, and memory that an engine mapped, for every GPU of this process that can access the
/// GPU it is located on: for an engine whose own kernels use it on several GPUs. Each GPU takes as long as
/// with KVMEM_OPEN_FOR_DEVICE. No effect on other memory. Excludes KVMEM_OPEN_FOR_DEVICE.
#define KVMEM_OPEN_FOR_ALL_DEVICES 256

/// Options of kvmem_share_open_region and kvmem_share_open_layout.
typedef struct kvmem_open_options {
    size_t struct_size;
    uint64_t flags;  ///< KVMEM_OPEN_* flags; 0 maps the memory with all granted rights.
    kvmem_agent *agent;  ///< Agent that registers the layout, or accesses it through NIXL; NULL for none.
    int32_t device;  ///< The GPU of KVMEM_OPEN_PIN and KVMEM_OPEN_FOR_DEVICE. Must be 0 without these flags.
    uint32_t reserved;
} kvmem_open_options;

/// Opens the region of a share.
///
/// In the process that created the share, returns the original region. In other processes, the memory is
/// mapped once per access right and GPU, however often it is opened, and unmapped with the last region.
///
/// kvmem does not trust the bytes of the share: it queries sizes, GPU and kind of memory from the kernel and
/// the driver. The GPU is identified by its UUID, so its ordinal may differ from the owner's.
///
/// If the owner decommits elastic extents later, new transfers of them fail with KVMEM_STATUS_STALE. If the
/// owner ends, the memory stays readable, and kvmem_region_check_owner returns KVMEM_STATUS_PEER_LOST.
/// @return KVMEM_STATUS_CORRUPT: the memory is not as described, or opening its control block would block
///         KVMEM_STATUS_VERSION_MISMATCH: this library does not read this version of the control block
///         KVMEM_STATUS_PERMISSION_DENIED: KVMEM_OPEN_READ_WRITE is set, and write access is not granted
///         KVMEM_STATUS_NOT_FOUND: this process cannot use the GPU, or owned the region and has freed it
///         KVMEM_STATUS_PEER_LOST: the owner has freed the device memory, or has ended
///         KVMEM_STATUS_UNSUPPORTED: the memory is on another machine, or was shared before this one was
///           restarted; it has pages that other processes can remove (KVMEM_OPEN_TRUST_OWNER); the GPU cannot
///           page-lock read-only memory, or cannot access the memory; fabric handles do not work here; or the
///           driver does not open an IPC handle of another PID namespace
///         KVMEM_STATUS_STALE: device memory, or an extent by fabric handle, was reallocated since
///         KVMEM_STATUS_OUT_OF_MEMORY: with KVMEM_OPEN_PIN also for pages that the owner has not touched
///         KVMEM_STATUS_INVALID_ARGUMENT: the share is of a layout, flags exclude each other, or `agent` or
///           flags of layouts are set
kvmem_status kvmem_share_open_region(const kvmem_share *share, const kvmem_open_options *options,
    kvmem_region **region, kvmem_error **error);

/// Opens the layout of a share: maps its memory, or accesses it through NIXL.
///
/// By default the memory is mapped. If that is not possible, the layout is accessed through NIXL. This needs
/// an agent, a share that carries NIXL metadata, and no KVMEM_OPEN_READ_ONLY. `locality` of kvmem_layout_info
/// returns which of the two was chosen. The log says why the memory was not mapped (KVMEM_LOG_INFO).
///
/// A layout is mapped or accessed through NIXL as a whole. Its regions have one tier and device, and a
/// transfer uses one method, so no region is mapped unless all can be.
/// @return any status of kvmem_share_open_region; for access through NIXL, any status of
///         kvmem_agent_load_remote_metadata and kvmem_layout_import; and
///         KVMEM_STATUS_INVALID_ARGUMENT: the share is of a region, or KVMEM_OPEN_REMOTE has no agent
///         KVMEM_STATUS_UNSUPPORTED: the share carries no memory, and NIXL is not to be used; or
///           KVMEM_OPEN_REMOTE is set, and the share carries no NIXL metadata or KVMEM_OPEN_READ_ONLY is set
kvmem_status kvmem_share_open_layout(const kvmem_share *share, const kvmem_open_options *options,
    kvmem_layout **layout, kvmem_error **error);

/// Destroys a share handle. The file descriptors of the share are closed, unless a broker publishes the
/// share. Regions and layouts that were opened from it stay open.
void kvmem_share_destroy(kvmem_share *share);

/* ---- Brokers ---- */

/// A server that publishes shares by name at a socket path. One thread serves all clients, and never waits
/// for a single one. A client must run as an allowed user, send its request in time, and present a token.
typedef struct kvmem_broker kvmem_broker;

/// Options of kvmem_broker_create.
typedef struct kvmem_broker_options {
    size_t struct_size;
    /// Path of the socket, at most 107 bytes. A relative path begins in the present working directory, also
    /// after that has changed. A socket of the same user on which no process listens is replaced.
    const char *path;
    /// User ids that may fetch, others may not, even root; copied. NULL with num_users 0: the broker's user.
    const uint32_t *users;
    size_t num_users;  ///< Number of user ids.
    uint32_t mode;  ///< Permission bits of the socket; 0 for 0600. Other users need 0660 or 0666 to connect.
    uint32_t max_clients;  ///< Maximum number of clients at once; 0 for 256. Others wait in the kernel.
    /// Maximum number of clients of one user at once; 0 for max_clients divided by the number of users. A
    /// client that was sent file descriptors counts until it has read them, or until its time to do so ends.
    uint32_t max_clients_per_user;
    uint32_t reserved;
    /// Maximum bytes of shares in transit to one user, which a single share may exceed; 0 for 256 MiB.
    uint64_t max_bytes_per_user;
    uint64_t client_timeout_ns;  ///< Nanoseconds to send a request, and again to read the reply; 0 for 10 s.
    uint64_t flags;  ///< Must be 0.
} kvmem_broker_options;

/// Creates a broker. It listens at its path when the call returns.
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the path is NULL, empty or too long; mode has other bits than 0777;
///           or mode does not let all users connect
///         KVMEM_STATUS_UNSUPPORTED: the number of a user that may fetch also stands for all users that have
///           no number in this user namespace
///         KVMEM_STATUS_ALREADY_EXISTS: a process listens there, or it is a file or another user's socket
///         KVMEM_STATUS_NOT_FOUND: the directory of the path does not exist
///         KVMEM_STATUS_PERMISSION_DENIED: this process may not create a socket in the directory
kvmem_status kvmem_broker_create(const kvmem_broker_options *options, kvmem_broker **broker,
    kvmem_error **error);

/// 256 random bits, with which a client fetches a share. Transmit them as a secret.
typedef struct kvmem_token {
    uint8_t bytes[32];  ///< The bits.
} kvmem_token;

#define KVMEM_PUBLISH_READ_ONLY 1  ///< The token grants read access only, whatever the share grants.

/// What a token grants.
typedef struct kvmem_publish_options {
    size_t struct_size;
    uint64_t flags;  ///< KVMEM_PUBLISH_READ_ONLY; 0 grants all that the share grants.
    /// Number of fetches that the token permits; 0 for no limit. A used-up one is denied like a wrong one.
    uint64_t max_uses;
    uint64_t lifetime_ns;  ///< Nanoseconds that the token is valid; 0 for as long as the name is published.
} kvmem_publish_options;

/// Publishes a share under a name, and returns a token for fetching it. The broker keeps the share alive
/// while it is published, even if its handle is destroyed.
/// @param name a name that this broker does not publish yet, 1 to 255 bytes of UTF-8
/// @return KVMEM_STATUS_ALREADY_EXISTS: the name is in use
///         KVMEM_STATUS_INVALID_ARGUMENT: the name is empty, too long or not UTF-8
kvmem_status kvmem_broker_publish(kvmem_broker *broker, const char *name, const kvmem_share *share,
    const kvmem_publish_options *options, kvmem_token *token, kvmem_error **error);

/// Returns another token for a published share.
/// @return KVMEM_STATUS_NOT_FOUND: the name is not published
kvmem_status kvmem_broker_grant(kvmem_broker *broker, const char *name, const kvmem_publish_options *options,
    kvmem_token *token, kvmem_error **error);

/// Withdraws a published share and its tokens. Fetches in progress complete; what was opened stays open.
/// @return KVMEM_STATUS_NOT_FOUND: the name is not published
kvmem_status kvmem_broker_unpublish(kvmem_broker *broker, const char *name, kvmem_error **error);

#define KVMEM_FETCH_READ_ONLY 1  ///< Fetch read access only, even if write access is granted.
#define KVMEM_FETCH_BROKER_USER 2  ///< The broker must run as `broker_user`, instead of the caller's user.
#define KVMEM_FETCH_READ_WRITE 4  ///< Fetch read and write access, and fail if less is granted.

/// Options of kvmem_share_fetch.
typedef struct kvmem_fetch_options {
    size_t struct_size;
    const char *path;  ///< Path of the broker's socket, at most 107 bytes.
    const char *name;  ///< Name of the published share.
    const kvmem_token *token;  ///< Token for that share; read during the call.
    uint64_t flags;  ///< KVMEM_FETCH_* flags; 0 fetches all granted rights.
    uint32_t broker_user;  ///< User id of KVMEM_FETCH_BROKER_USER. Must be 0 without that flag.
    uint32_t reserved;
} kvmem_fetch_options;

/// Fetches a share from a broker.
/// @return KVMEM_STATUS_PERMISSION_DENIED: the broker does not serve this user; the name or the token is
///           wrong, or the token is used up or expired, which are not distinguished; KVMEM_FETCH_READ_WRITE
///           is set and less is granted; or the broker runs as another user
///         KVMEM_STATUS_NOT_FOUND: nothing is at the path
///         KVMEM_STATUS_INVALID_ARGUMENT: the path is no broker's socket; or name, path or flags are invalid
///         KVMEM_STATUS_PEER_LOST: the broker has ended
///         KVMEM_STATUS_BUSY: this user has too many clients, or bytes or file descriptors in transit
///         KVMEM_STATUS_TIMED_OUT: the share has not arrived in time, or the broker has not received the
///           request in time
///         any status of kvmem_share_create_region: the broker cannot share the published object, for example
///           read-only if it received the share from another process (KVMEM_STATUS_UNSUPPORTED)
kvmem_status kvmem_share_fetch(const kvmem_fetch_options *options, uint64_t timeout_ns, kvmem_share **share,
    kvmem_error **error);

/// Destroys a broker: ends its thread, closes and removes its socket, and releases its shares.
void kvmem_broker_destroy(kvmem_broker *broker);

/* ---- Information ---- */

#define KVMEM_SHARED_REGION 1  ///< The share is of a region.
#define KVMEM_SHARED_LAYOUT 2  ///< The share is of a layout.

/// Properties of a share.
typedef struct kvmem_share_info {
    uint32_t object;  ///< KVMEM_SHARED_REGION or KVMEM_SHARED_LAYOUT.
    /// The transport: KVMEM_SHARE_FD, KVMEM_SHARE_IPC, KVMEM_SHARE_FABRIC, or KVMEM_SHARE_REMOTE if it
    /// carries no memory; KVMEM_SHARE_AUTO if the regions of a layout have different ones.
    uint32_t transport;
    uint32_t tier;  ///< KVMEM_TIER_* value of the memory that it carries; 0 if it carries none.
    uint32_t read_only;  ///< 1 if importers may only read, otherwise 0.
    uint64_t memory_size;  ///< Bytes of memory that it carries; 0 if it carries none (KVMEM_SHARE_REMOTE).
    uint32_t pid;  ///< Process id of the owner, in the owner's PID namespace.
    uint32_t reserved;
    /// Its bytes, for a channel of the caller. They have addresses and, depending on the transport, IPC
    /// handles, fabric handles or NIXL metadata, which give access to the memory: send them only to
    /// processes that may access it. Valid as long as the share.
    const void *data;
    uint64_t size;  ///< Number of its bytes.
    /// Its file descriptors, which the share owns; send them in this order. NULL if there are none.
    const int32_t *fds;
    uint64_t num_fds;  ///< Number of its file descriptors.
} kvmem_share_info;

/// Returns the properties of a share.
kvmem_status kvmem_share_get_info(const kvmem_share *share, kvmem_share_info *info, kvmem_error **error);

/// Counts of a broker.
typedef struct kvmem_broker_info {
    uint64_t publications;  ///< Names published now.
    uint64_t clients;  ///< Clients connected now.
    uint64_t granted;  ///< Fetches granted since the broker was created.
    uint64_t refused;  ///< Clients and requests refused since the broker was created.
} kvmem_broker_info;

/// Returns the counts of a broker.
kvmem_status kvmem_broker_get_info(const kvmem_broker *broker, kvmem_broker_info *info, kvmem_error **error);

/* ---- Shares as bytes and file descriptors ---- */

/// Creates a share from untrusted bytes and file descriptors that came over a channel of the caller.
/// @param data the bytes, as in kvmem_share_info; copied
/// @param fds the file descriptors, in that order, which the call duplicates; NULL with num_fds 0
/// @return KVMEM_STATUS_CORRUPT: the bytes name another number of file descriptors
///         KVMEM_STATUS_INVALID_ARGUMENT: a file descriptor is not open
kvmem_status kvmem_share_create_received(const void *data, size_t size, const int32_t *fds, size_t num_fds,
    kvmem_share **share, kvmem_error **error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_SHARE_H */
