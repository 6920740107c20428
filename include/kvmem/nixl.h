/* SPDX-License-Identifier: Apache-2.0 */
/* kvmem: NIXL: agents, layouts of peers, registrations, notifications. Generated from src/ffi; do not edit.
 *
 * To move blocks from a peer, both processes create an agent with a backend, and build their layouts with it.
 * The owner sends its metadata and its layout to the peer, by any connection or by a directory (directory.h).
 * The peer imports the layout, which is then the source or destination of its transfers:
 *
 *     kvmem_agent_create("owner", NULL, &agent, &error);
 *     kvmem_agent_create_backend(agent, "UCX", NULL, 0, &error);
 *     kvmem_agent_get_local_metadata(agent, &metadata, &error);
 *     kvmem_layout_export(layout, &descriptor, &error);
 *
 *     kvmem_agent_load_remote_metadata(agent, metadata, metadata_size, NULL, &error);
 *     kvmem_layout_import(agent, descriptor, descriptor_size, &layout, &error);
 *
 * nixl_raw.h has requests on raw descriptors, memory views, queries, plugins, telemetry, metadata by address.
 */

#ifndef KVMEM_NIXL_H
#define KVMEM_NIXL_H

#include "transfer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Agents ---- */

#define KVMEM_AGENT_NO_PROGRESS_THREAD 1  ///< Without NIXL's progress thread: kvmem drives the idle agent.
/// Run NIXL's listen thread, which exchanges metadata with peers by address. It listens on all network
/// interfaces, and loads what it receives: damaged metadata ends the process, with NIXL 1.5. So any program
/// that reaches the port can end it. Use it only if all of them are trusted. Otherwise exchange metadata as
/// bytes, or by a directory, whose entries have a checksum.
#define KVMEM_AGENT_LISTEN_THREAD 2
#define KVMEM_AGENT_TELEMETRY 4  ///< NIXL measures transfers.

#define KVMEM_SYNC_DEFAULT 0  ///< The same as KVMEM_SYNC_NONE.
/// NIXL does not lock the agent. Safe: only kvmem, one thread at a time, and NIXL's threads use it.
#define KVMEM_SYNC_NONE 1
#define KVMEM_SYNC_STRICT 2  ///< NIXL locks the agent with a mutex.
#define KVMEM_SYNC_RW 3  ///< NIXL locks the agent with a read-write lock.

/// Options of kvmem_agent_create.
typedef struct kvmem_agent_options {
    size_t struct_size;
    uint64_t flags;  ///< KVMEM_AGENT_* flags.
    /// Nanoseconds that a call without a timeout of its own waits for NIXL: one that creates a backend,
    /// builds or imports a layout, registers memory, loads metadata and so on. Then it fails with
    /// KVMEM_STATUS_TIMED_OUT. 0 for 10 minutes; KVMEM_TIMEOUT_FOREVER for no limit.
    /// If NIXL finishes later, kvmem undoes the call: it deregisters memory, and releases requests, lists and
    /// views. It does not undo a backend or a loaded peer. NIXL may use memory that the call was to register
    /// or deregister until then: kvmem frees its own memory, and calls release of adopted memory, after that.
    /// Do not free other memory before the agent is destroyed.
    /// A call that destroys several registrations waits that long for the first, and not for the others.
    uint64_t call_timeout_ns;
    /// Nanoseconds between rounds of the progress thread, rounded up to microseconds; 0 for 1 ms.
    uint64_t progress_delay_ns;
    /// Nanoseconds between rounds of the listen thread, rounded up to microseconds; 0 for 100 ms. Must be 0
    /// without that thread.
    uint64_t listen_delay_ns;
    /// TCP port of the listen thread, for trusted programs only; 0 for 8888, and without that thread.
    uint32_t listen_port;
    uint32_t sync_mode;  ///< KVMEM_SYNC_* value.
} kvmem_agent_options;

/// Creates an agent. Loads NIXL if it is not loaded.
/// @param name the name by which peers know the agent; unique among agents that communicate, not empty
/// @return KVMEM_STATUS_INVALID_STATE: NIXL was loaded before this process was forked, or the process exits
kvmem_status kvmem_agent_create(const char *name, const kvmem_agent_options *options, kvmem_agent **agent,
    kvmem_error **error);

/// Returns the name of an agent, which is valid as long as this handle; NULL if the agent is NULL.
const char *kvmem_agent_name(const kvmem_agent *agent);

/// A parameter of a backend.
typedef struct kvmem_parameter {
    const char *key;  ///< Name.
    const char *value;  ///< Value.
} kvmem_parameter;

/// Creates a backend of an agent.
///
/// A backend is a NIXL plugin that moves bytes, such as "UCX" (peers), "POSIX" (files), "GDS" or "GDS_MT"
/// (files and GPU memory; requires libcufile and libcudart). Regions that are already registered are not
/// registered with the new backend.
/// @param parameters parameters that replace those of the plugin; NULL with count 0 for none. NIXL ignores
///        keys that the plugin does not have
/// @return KVMEM_STATUS_NOT_FOUND: NIXL has no such plugin
///         KVMEM_STATUS_ALREADY_EXISTS: the agent has a backend of this plugin
///         KVMEM_STATUS_INVALID_ARGUMENT: with a parameter the plugin GUSLI would end the process, or the
///           plugin OBJ would never end a request; the message has the parameter
///         KVMEM_STATUS_INVALID_STATE: the process exits, and NIXL's objects are destroyed
///         KVMEM_STATUS_TIMED_OUT: NIXL has not created it within call_timeout_ns; it may exist later
///         KVMEM_STATUS_NIXL: the plugin does not load, or the backend cannot be created; the message has
///           what UCX logged, and the UCX_* variables of the environment
kvmem_status kvmem_agent_create_backend(kvmem_agent *agent, const char *plugin,
    const kvmem_parameter *parameters, size_t count, kvmem_error **error);

/// Destroys an agent handle. The agent ends when no registration, layout or transfer uses it.
///
/// The destroy call of the last handle that uses the agent ends the thread of the agent before it returns.
/// If a transfer in flight, or a session of a peer with a served layout, uses the agent longer, its thread
/// ends after that. If NIXL takes more than 10 s to destroy the agent, the thread ends later, too, and the
/// log has a warning. Calls that wait in vain share these 10 s: each further one waits for 0.1 s, until NIXL
/// destroys an agent again. A process that calls exit waits for agents that are being destroyed, for 10 s
/// after the last of them began. Other agents are not destroyed.
void kvmem_agent_destroy(kvmem_agent *agent);

/* ---- Metadata of agents ---- */

/// Returns the metadata of an agent. A peer loads it to access the registered memory of the agent.
///
/// Get it after all memory that peers will access is registered. The caller chooses how to send it.
/// @param agent an agent with a backend that reaches peers
/// @return KVMEM_STATUS_NIXL: the agent has no such backend
kvmem_status kvmem_agent_get_local_metadata(kvmem_agent *agent, kvmem_blob **metadata, kvmem_error **error);

/// Loads the metadata of a peer. If it has registered more memory, its new metadata can be loaded, too.
///
/// NIXL and UCX do not check all bytes, and damaged ones can end the process: trust the peer and channel.
/// @param data bytes of kvmem_agent_get_local_metadata of the peer, or of any NIXL agent
/// @param name receives the name of the peer as text; may be NULL
/// @return KVMEM_STATUS_INVALID_ARGUMENT: size is 0, or the metadata is the agent's own
///         KVMEM_STATUS_ALREADY_EXISTS: another peer of that name is loaded, such as the same one before it
///           restarted; call kvmem_agent_invalidate_remote_metadata first. Or the agent itself has that name
///         KVMEM_STATUS_NIXL, KVMEM_STATUS_NOT_FOUND: the bytes are not metadata, or no backend reaches the
///           peer
kvmem_status kvmem_agent_load_remote_metadata(kvmem_agent *agent, const void *data, size_t size,
    kvmem_blob **name, kvmem_error **error);

/// Checks whether the metadata of a peer is loaded. Does not check whether the peer is alive.
/// @return KVMEM_STATUS_NOT_FOUND: it is not loaded
kvmem_status kvmem_agent_check_remote_metadata(kvmem_agent *agent, const char *name, kvmem_error **error);

/// Removes the metadata of a peer. Layouts that were imported from the peer fail with KVMEM_STATUS_STALE from
/// now on, even after a peer of the same name is loaded.
/// @param name name of the peer; NULL for all peers. NIXL does not list its peers: one whose metadata the
///        listen thread of the agent has loaded is removed by NULL only if it has sent a notification, or a
///        function was called with its name before
/// @param count receives the number of peers that were removed; may be NULL
/// @return KVMEM_STATUS_NOT_FOUND: the peer is not loaded
///         KVMEM_STATUS_INVALID_ARGUMENT: the name is the agent's own
///
/// Notes: a run in flight completes, or fails with KVMEM_STATUS_STALE if it has to create further requests.
/// If the peer hangs, the run ends at its deadline, and kvmem keeps its memory until NIXL has released the
/// requests. Another process of the same name can be loaded meanwhile.
kvmem_status kvmem_agent_invalidate_remote_metadata(kvmem_agent *agent, const char *name, size_t *count,
    kvmem_error **error);

/* ---- Layouts of peers ---- */

/// Serializes a layout for a peer: shape, regions and agent, with a version and a checksum. The peer also
/// needs the metadata of the agent.
/// @return KVMEM_STATUS_INVALID_STATE: the layout has no agent, or none with a backend that reaches peers
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote, in memory of another process, in several elastic
///           regions, or in a file, in objects or in block storage
kvmem_status kvmem_layout_export(const kvmem_layout *layout, kvmem_blob **descriptor, kvmem_error **error);

/// Creates a remote layout from the descriptor of a peer. The bytes are not trusted: they are checked for
/// consistency, and against the metadata of the peer.
/// @param agent the agent that will access the layout; the metadata of the layout's owner must be loaded
/// @param data bytes of kvmem_layout_export
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the layout is that of the agent itself, or of another agent of its
///           name
///         KVMEM_STATUS_NOT_FOUND: the metadata of the owner is not loaded, is that of another agent of the
///           same name, or does not cover the memory of the layout
///         KVMEM_STATUS_STALE: the metadata of another process is loaded under the name of the owner
///         KVMEM_STATUS_PEER_LOST: the process that exported the layout has ended
kvmem_status kvmem_layout_import(kvmem_agent *agent, const void *data, size_t size, kvmem_layout **layout,
    kvmem_error **error);

/* ---- Owners that serve transfers ---- */

#define KVMEM_SERVE_WRITE 1  ///< Peers may write to the layout, too.
/// Stage in page-locked host memory, also for GPU memory. Peers with layouts in host memory need it.
#define KVMEM_SERVE_FROM_HOST 2

/// Options of kvmem_layout_serve.
typedef struct kvmem_serve_options {
    size_t struct_size;
    uint64_t flags;  ///< KVMEM_SERVE_* flags.
    uint64_t staging_size;  ///< Bytes of staging memory, at least 32 KiB; 0 for 16 MiB, 64 MiB on a GPU.
    /// Nanoseconds that the owner waits for a peer that neither reads nor writes, before it ends the
    /// peer's session; 0 for 30 s. If other peers wait, it ends a session that has sent nothing for 5 s.
    /// A session for which the owner's GPU finishes no copy for so long ends, too.
    uint64_t stall_timeout_ns;
    /// Nanoseconds after which a lease of a peer ends at the latest (kvmem_lease_create), unless the peer
    /// renews it, rounded down to milliseconds, but at least one; 0 for 60 s. KVMEM_TIMEOUT_FOREVER: 49 days.
    uint64_t max_lease_ns;
} kvmem_serve_options;

/// Serves transfers of a layout to peers, as long as the layout exists.
///
/// A transfer between layouts that store the same tokens differently has a contiguous range per row, and NIXL
/// takes microseconds for each. For peers of a layout that is served, this process gathers rows in staging
/// memory, which they read in large ranges, or scatters what they have written there. Their transfers use
/// this if it is faster. For a layout in GPU memory the staging memory is plain memory of the same GPU, and a
/// kernel gathers and scatters. Get the metadata of the agent, and export the layout, after this call.
///
/// It also keeps leases of the layout for peers (kvmem_lease_create, kvmem_layout_get_accesses).
/// @param layout a layout that kvmem_layout_export exports: in host or GPU memory that this process owns, and
///        built with an agent. If its tokens have separate regions, transfers do not use the service
/// @return KVMEM_STATUS_INVALID_STATE: the layout has no agent, or none with a backend that reaches peers
///         KVMEM_STATUS_ALREADY_EXISTS: the layout is served
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote, in memory of another process, or in a file, in
///           objects or in block storage
///
/// Notes: Peers can read what they request, and with KVMEM_SERVE_WRITE write it. They cannot make this
/// process access other memory. NIXL itself does not restrict peers that have the metadata of the agent.
kvmem_status kvmem_layout_serve(kvmem_layout *layout, const kvmem_serve_options *options,
    kvmem_error **error);

/* ---- Registrations ---- */

/// Registers a region with an agent: with all its backends that accept the type of the memory. Backends that
/// are created later do not get the region.
/// @return KVMEM_STATUS_OK: at least one backend accepts the region
///         KVMEM_STATUS_ALREADY_EXISTS: the region is registered with this agent
///         KVMEM_STATUS_UNSUPPORTED: a view of elastic memory, objects or block storage; or several mappings
///         KVMEM_STATUS_INVALID_STATE: the context of the GPU memory was reset or destroyed
///         KVMEM_STATUS_PERMISSION_DENIED: the memory is read-only, and NIXL would permit peers to write it
///         KVMEM_STATUS_NIXL: no backend accepts the region
kvmem_status kvmem_region_register(kvmem_region *region, kvmem_agent *agent,
    kvmem_registration **registration, kvmem_error **error);

/// Properties of a registration, as NIXL knows them.
typedef struct kvmem_registration_info {
    uint64_t address;  ///< Address of the first byte, or its offset in the file or block device.
    uint64_t size;  ///< Size in bytes.
    /// 0 for host memory, the ordinal of a GPU, the file descriptor of a file, the number of a block device,
    /// the device id of the first object; the others have the following ones.
    uint64_t device_id;
    uint32_t memory_type;  ///< KVMEM_MEMORY_* value.
    uint32_t registered;  ///< 1; 0 after kvmem_registration_deregister.
} kvmem_registration_info;

/// Returns the properties of a registration.
kvmem_status kvmem_registration_get_info(const kvmem_registration *registration,
    kvmem_registration_info *info, kvmem_error **error);

/// Returns the name of an agent that a region is registered with.
/// @param index less than registration_count of kvmem_region_info
/// @return KVMEM_STATUS_NOT_FOUND: the index is too large
kvmem_status kvmem_region_get_agent(const kvmem_region *region, size_t index, kvmem_blob **name,
    kvmem_error **error);

/// Deregisters a region, and reports whether that failed. kvmem_registration_destroy reports nothing.
/// @param registration a registration; the handle stays valid and must be destroyed
/// @return KVMEM_STATUS_BUSY: layouts, transfers or requests use the registration
///         KVMEM_STATUS_INVALID_STATE: the region was already deregistered
///         KVMEM_STATUS_NIXL: NIXL failed; kvmem never frees the memory, because it may still be in use
kvmem_status kvmem_registration_deregister(kvmem_registration *registration, kvmem_error **error);

/// Destroys a registration handle. The region is deregistered when no layout or transfer uses it.
void kvmem_registration_destroy(kvmem_registration *registration);

/* ---- Notifications ---- */

/// A message. Both pointers are valid as long as the kvmem_notifications.
typedef struct kvmem_notification {
    const char *agent;  ///< Name of the agent that sent it.
    const void *data;  ///< Its bytes, not NUL-terminated.
    size_t size;  ///< Number of bytes.
} kvmem_notification;

/// Messages that were taken from an agent. The caller destroys them.
typedef struct kvmem_notifications {
    const kvmem_notification *items;  ///< Messages in the order of their arrival; NULL if there are none.
    size_t count;  ///< Their number.
} kvmem_notifications;

/// Sends a message to a peer.
/// @param data any bytes; NULL with size 0 for an empty message
/// @return KVMEM_STATUS_OK: NIXL has accepted the message
///         KVMEM_STATUS_INVALID_ARGUMENT: the name is the agent's own; or the bytes begin with KVMEMSRV
///         KVMEM_STATUS_OUT_OF_RANGE: the message has more than 64 MiB less 4 KiB, which no peer keeps
///         KVMEM_STATUS_NOT_FOUND: the metadata of the peer is not loaded
///         KVMEM_STATUS_STALE: the metadata of the peer was invalidated
///         KVMEM_STATUS_PEER_LOST: the process of the peer has ended, or the connection to a peer on another
///           machine or in another PID namespace has failed; known only if a layout of the peer was imported
kvmem_status kvmem_agent_notify(kvmem_agent *agent, const char *remote, const void *data, size_t size,
    kvmem_error **error);

/// Returns all messages that an agent has received, each once, and waits for one if there is none.
///
/// Messages of one sender arrive in the order in which it has sent them, if a transfer with a message has
/// ended before the sender's next message. Otherwise the message of a transfer arrives after its bytes, and
/// before or after later messages. Messages of different senders have no order.
///
/// An agent receives messages through a backend that reaches peers, such as UCX. Without one no message
/// arrives, and the call waits, because a backend may be created during the wait.
///
/// At most 65536 messages of one sender with 64 MiB, its name included, wait to be taken, and twice that of
/// all. Messages of that sender, or of all, that arrive after that are lost, until the call has returned
/// those that wait. The next call fails and reports their number; the call after it returns later messages.
/// @param notifications receives the messages, at least one
/// @return KVMEM_STATUS_TIMED_OUT: no message has arrived; a call of NIXL can delay the end by 100 ms
///         KVMEM_STATUS_OUT_OF_MEMORY: messages were lost at this point, because too many waited; call again
///           for later ones, and have the peers repeat what the caller needs
///
/// Notes: NIXL itself keeps any number of messages until kvmem looks for them. It does so while a call waits,
/// a queue is set, or the agent serves a layout, and if the agent has no progress thread.
kvmem_status kvmem_agent_take_notifications(kvmem_agent *agent, uint64_t timeout_ns,
    kvmem_notifications **notifications, kvmem_error **error);

/// Has a queue report that messages have arrived at an agent, so that no thread needs to wait for them.
///
/// When messages arrive and none waited before, the queue gets a KVMEM_COMPLETION_NOTIFICATIONS. Take them
/// then (kvmem_agent_take_notifications, timeout 0). The next completion follows when messages arrive after
/// that. If messages were lost, another completion follows when those before the loss have been taken.
/// @param queue the queue, which replaces the one before; NULL ends the reports
/// @param user_data user_data of the completions
///
/// Notes: NIXL has no event for messages. While a queue is set, the thread of the agent looks for them, at
/// most every 50 us, and every 500 us if none arrive. If another thread uses the agent then, that one looks.
kvmem_status kvmem_agent_report_notifications(kvmem_agent *agent, kvmem_queue *queue, uint64_t user_data,
    kvmem_error **error);

/// Destroys messages.
void kvmem_notifications_destroy(kvmem_notifications *notifications);

/* ---- The NIXL library ---- */

/// Loads NIXL (libnixl_capi.so, version 1.5 or later). kvmem_agent_create does this, with path NULL, if it is
/// not loaded. The library stays loaded until the process ends. After a failure, another path can be tried.
/// @param path path of the file, or of its directory; NULL for the path in the environment variable
///        KVMEM_NIXL_LIBRARY, or, if that is not set, for the library in the loader's search path
/// @return KVMEM_STATUS_OK: NIXL is loaded from there, by this call or before
///         KVMEM_STATUS_UNAVAILABLE_NIXL: the library is missing, too old or broken; the message says which
///         KVMEM_STATUS_ALREADY_EXISTS: NIXL is loaded from another path
///         KVMEM_STATUS_INVALID_STATE: NIXL was loaded, or being loaded, before this process was forked
kvmem_status kvmem_nixl_load(const char *path, kvmem_error **error);

/// Returns the path of the file that NIXL was loaded from.
/// @return KVMEM_STATUS_INVALID_STATE: NIXL is not loaded
kvmem_status kvmem_nixl_get_path(kvmem_blob **path, kvmem_error **error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_NIXL_H */
