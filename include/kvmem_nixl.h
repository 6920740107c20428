/* SPDX-License-Identifier: Apache-2.0 */
/* kvmem: NIXL. Generated from src/ffi; do not edit.
 *
 * Agents, registrations, metadata, layouts of peers, notifications.
 * kvmem.h describes what all functions have in common: errors, handles, options, strings, threads.
 */

#ifndef KVMEM_NIXL_H
#define KVMEM_NIXL_H

#include "kvmem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The NIXL library ---- */

/// Loads NIXL (libnixl_capi.so, version 1.5 or later). kvmem_agent_create does this, with path NULL, if NIXL
/// is not loaded.
///
/// The library stays loaded until the process ends. After a failure, another path can be tried.
///
/// @param path path of the file, or of its directory; NULL for the path in the environment variable
///        KVMEM_NIXL_LIBRARY, or for what the loader finds if that is not set
/// @return KVMEM_STATUS_OK: NIXL is loaded from there, by this call or before
///         KVMEM_STATUS_UNAVAILABLE_NIXL: the library is missing, too old or broken; the message says which
///         KVMEM_STATUS_ALREADY_EXISTS: NIXL is loaded from another path
///         KVMEM_STATUS_INVALID_STATE: NIXL was loaded, or being loaded, before this process was forked
kvmem_status kvmem_nixl_load(const char *path, kvmem_error **error);

/// Returns the path of the file that NIXL was loaded from.
///
/// @param path receives the path as text; the caller destroys the blob
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_STATE: NIXL is not loaded
kvmem_status kvmem_nixl_get_path(kvmem_blob **path, kvmem_error **error);

/* ---- Agents ---- */

/// Run without NIXL's progress thread. kvmem then drives the idle agent every progress_delay_us.
#define KVMEM_AGENT_NO_PROGRESS_THREAD 1
/// Run NIXL's listen thread, which exchanges metadata with peers by address. It listens on all network
/// interfaces.
#define KVMEM_AGENT_LISTEN_THREAD 2
/// NIXL measures transfers.
#define KVMEM_AGENT_TELEMETRY 4

/// The same as KVMEM_SYNC_RW.
#define KVMEM_SYNC_DEFAULT 0
/// NIXL does not lock the agent. This is safe, because only kvmem, one thread at a time, and NIXL's own
/// threads use it.
#define KVMEM_SYNC_NONE 1
/// NIXL locks the agent with a mutex.
#define KVMEM_SYNC_STRICT 2
/// NIXL locks the agent with a read-write lock.
#define KVMEM_SYNC_RW 3

/// Options of kvmem_agent_create.
typedef struct kvmem_agent_options {
    /// sizeof(kvmem_agent_options)
    size_t struct_size;
    /// KVMEM_AGENT_* flags.
    uint64_t flags;
    /// Microseconds between rounds of the progress thread; 0 for 1000.
    uint64_t progress_delay_us;
    /// Microseconds between rounds of the listen thread; 0 for 100000. Must be 0 without
    /// KVMEM_AGENT_LISTEN_THREAD.
    uint64_t listen_delay_us;
    /// TCP port of the listen thread; 0 for 8888. Must be 0 without KVMEM_AGENT_LISTEN_THREAD.
    uint32_t listen_port;
    /// KVMEM_SYNC_* value.
    uint32_t sync_mode;
} kvmem_agent_options;

/// Sets options to their defaults.
void kvmem_agent_options_init(kvmem_agent_options *options, size_t struct_size);

/// Creates an agent. Loads NIXL if it is not loaded.
///
/// @param name the name by which peers know the agent; unique among agents that communicate, not empty
/// @param options how it runs; NULL for the defaults
/// @param agent receives the agent; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_STATE: NIXL was loaded before this process was forked
///         KVMEM_STATUS_OUT_OF_MEMORY: the thread of the agent could not be started
///         KVMEM_STATUS_UNAVAILABLE_NIXL, KVMEM_STATUS_NIXL
kvmem_status kvmem_agent_create(const char *name,
                                const kvmem_agent_options *options,
                                kvmem_agent **agent,
                                kvmem_error **error);

/// Returns the name of an agent.
///
/// @param agent an agent; may be NULL
/// @return a string that is valid as long as this handle; NULL if the agent is NULL
const char *kvmem_agent_name(const kvmem_agent *agent);

/// A parameter of a backend.
typedef struct kvmem_parameter {
    /// Name.
    const char *key;
    /// Value.
    const char *value;
} kvmem_parameter;

/// Creates a backend of an agent.
///
/// A backend is a NIXL plugin that moves bytes, such as "UCX" (peers), "POSIX" (files), "GDS" or "GDS_MT"
/// (files and GPU memory; requires libcufile and libcudart). Regions that are already registered are not
/// registered with the new backend.
///
/// @param agent an agent
/// @param plugin name of the plugin
/// @param parameters parameters that replace those of the plugin; NULL with count 0 for none
/// @param count number of parameters
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: NIXL has no such plugin
///         KVMEM_STATUS_ALREADY_EXISTS: the agent has a backend of this plugin
///         KVMEM_STATUS_NIXL: the plugin does not load, or the backend cannot be created; the message has
///           what UCX logged, and the UCX_* variables of the environment
kvmem_status kvmem_agent_create_backend(kvmem_agent *agent,
                                        const char *plugin,
                                        const kvmem_parameter *parameters,
                                        size_t count,
                                        kvmem_error **error);

/// Destroys an agent handle. The agent ends when no registration, layout or transfer uses it.
///
/// The destroy call of the last handle that uses the agent ends the thread of the agent before it returns.
///
/// @param agent an agent that no other call uses; NULL does nothing
void kvmem_agent_destroy(kvmem_agent *agent);

/* ---- Registrations ---- */

/// Registers a region with an agent: with all its backends that accept the type of the memory. Backends that
/// are created later do not get the region.
///
/// @param region the region
/// @param agent the agent
/// @param registration receives the registration; the caller destroys it
/// @return KVMEM_STATUS_OK: at least one backend accepts the region
///         KVMEM_STATUS_ALREADY_EXISTS: the region is registered with this agent
///         KVMEM_STATUS_UNSUPPORTED: the region is a view of an elastic region, or consists of several
///           mappings
///         KVMEM_STATUS_INVALID_STATE: the context of the GPU memory was reset or destroyed
///         KVMEM_STATUS_PERMISSION_DENIED: the memory is read-only, and NIXL would let peers write it
///         KVMEM_STATUS_NIXL: no backend accepts the region
kvmem_status kvmem_region_register(kvmem_region *region,
                                   kvmem_agent *agent,
                                   kvmem_registration **registration,
                                   kvmem_error **error);

/// Properties of a registration, as NIXL knows them.
typedef struct kvmem_registration_info {
    /// Address of the first byte, or its offset in the file.
    uint64_t address;
    /// Size in bytes.
    uint64_t size;
    /// 0 for host memory, the ordinal of a GPU, the file descriptor of a file.
    uint64_t device_id;
    /// KVMEM_MEMORY_* value.
    uint32_t memory_type;
    /// 1; 0 after kvmem_registration_deregister.
    uint32_t registered;
} kvmem_registration_info;

/// Returns the properties of a registration.
///
/// @param registration a registration
/// @param info receives the properties
kvmem_status kvmem_registration_get_info(const kvmem_registration *registration,
                                         kvmem_registration_info *info,
                                         kvmem_error **error);

/// Returns the name of an agent that a region is registered with.
///
/// @param region a region
/// @param index less than registration_count of kvmem_region_info
/// @param name receives the name as text; the caller destroys the blob
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: the index is too large
kvmem_status kvmem_region_get_agent(const kvmem_region *region,
                                    size_t index,
                                    kvmem_blob **name,
                                    kvmem_error **error);

/// Deregisters a region, and reports whether that failed. kvmem_registration_destroy deregisters it too, but
/// reports no failure.
///
/// @param registration a registration; the handle stays valid and must be destroyed
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_BUSY: layouts or transfers use the registration
///         KVMEM_STATUS_INVALID_STATE: the region was already deregistered
///         KVMEM_STATUS_NIXL: NIXL failed; kvmem never frees the memory, because it may still be in use
kvmem_status kvmem_registration_deregister(kvmem_registration *registration, kvmem_error **error);

/// Destroys a registration handle. The region is deregistered when no layout or transfer uses the
/// registration.
///
/// @param registration a registration that no other call uses; NULL does nothing
void kvmem_registration_destroy(kvmem_registration *registration);

/* ---- Metadata of agents ---- */

/// Returns the metadata of an agent. A peer loads it to access the registered memory of the agent.
///
/// Get it after the last registration that peers are to access. The caller chooses how to send it.
///
/// @param agent an agent with a backend that reaches peers
/// @param metadata receives NIXL's bytes; the caller destroys the blob
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NIXL: the agent has no such backend
kvmem_status kvmem_agent_get_local_metadata(kvmem_agent *agent, kvmem_blob **metadata, kvmem_error **error);

/// Loads the metadata of a peer. Loading it again after the peer registered more memory adds to it.
///
/// @param agent an agent
/// @param data bytes of kvmem_agent_get_local_metadata of the peer, or of any NIXL agent
/// @param size number of bytes
/// @param name receives the name of the peer as text; the caller destroys the blob; may be NULL
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: size is 0, or the metadata is the agent's own
///         KVMEM_STATUS_ALREADY_EXISTS: another peer of that name is loaded, such as the same one before it
///           restarted; call kvmem_agent_invalidate_remote_metadata first
///         KVMEM_STATUS_NIXL, KVMEM_STATUS_NOT_FOUND: the bytes are not metadata, or no backend reaches the
///           peer
kvmem_status kvmem_agent_load_remote_metadata(kvmem_agent *agent,
                                              const void *data,
                                              size_t size,
                                              kvmem_blob **name,
                                              kvmem_error **error);

/// Checks whether the metadata of a peer is loaded. Does not check whether the peer is alive.
///
/// @param agent an agent
/// @param name name of the peer
/// @return KVMEM_STATUS_OK: it is loaded
///         KVMEM_STATUS_NOT_FOUND: it is not loaded
kvmem_status kvmem_agent_check_remote_metadata(kvmem_agent *agent, const char *name, kvmem_error **error);

/// Removes the metadata of a peer. Layouts that were imported from the peer fail with KVMEM_STATUS_STALE from
/// now on, even after a peer of the same name is loaded.
///
/// @param agent an agent
/// @param name name of the peer
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: the peer is not loaded
///         KVMEM_STATUS_BUSY: a transfer with the peer is in flight
///         KVMEM_STATUS_INVALID_ARGUMENT: the name is the agent's own
///
/// Notes: a transfer is in flight from submit until its end is reported. If NIXL still has requests of the
/// transfer then, as after KVMEM_STATUS_PEER_LOST, it stays in flight until NIXL has released them.
kvmem_status kvmem_agent_invalidate_remote_metadata(kvmem_agent *agent,
                                                    const char *name,
                                                    kvmem_error **error);

/// Requests the metadata of a peer from its listen thread.
///
/// If no metadata of the peer is loaded, the call waits until it is. If older metadata is loaded, the call
/// returns as soon as the request is queued, because NIXL does not report the arrival of newer metadata.
/// Until it arrives, kvmem_layout_import fails with KVMEM_STATUS_NOT_FOUND for newer layouts.
///
/// NIXL rejects the metadata of a restarted peer while older metadata is loaded. To wait for the arrival in
/// all cases, call kvmem_agent_invalidate_remote_metadata first.
///
/// @param agent an agent that has a listen thread itself
/// @param name name of the peer
/// @param address IPv4 address of the peer, such as "127.0.0.1"
/// @param port listen port of the peer, 1 to 65535
/// @param timeout_ns nanoseconds to wait; KVMEM_TIMEOUT_FOREVER for no limit
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the address is not an IPv4 address, the port is not in 1 to 65535,
///           or the name is the agent's own
///         KVMEM_STATUS_INVALID_STATE: the agent has no listen thread
///         KVMEM_STATUS_NOT_FOUND: nothing listens at the address
///         KVMEM_STATUS_IO, KVMEM_STATUS_PERMISSION_DENIED: the address cannot be reached
///         KVMEM_STATUS_TIMED_OUT: the metadata did not arrive in time
///         KVMEM_STATUS_NIXL
///
/// Notes: if nothing listens at the address, the call fails after about half a second. With a shorter
/// timeout, it fails with KVMEM_STATUS_TIMED_OUT if no metadata of the peer is loaded. To check the address,
/// kvmem may connect to it and reset the connection. The NIXL of the peer reports that on its stderr.
kvmem_status kvmem_agent_fetch_remote_metadata(kvmem_agent *agent,
                                               const char *name,
                                               const char *address,
                                               uint32_t port,
                                               uint64_t timeout_ns,
                                               kvmem_error **error);

/// Sends the metadata of an agent to the listen thread of a peer, which loads it.
///
/// @param agent an agent that has a listen thread itself, and a backend that reaches peers
/// @param address IPv4 address of the peer, such as "127.0.0.1"
/// @param port listen port of the peer, 1 to 65535
/// @return KVMEM_STATUS_OK: the metadata is queued. Its arrival is not certain
///         KVMEM_STATUS_INVALID_ARGUMENT: the address is not an IPv4 address, or the port is not in 1 to
///           65535
///         KVMEM_STATUS_INVALID_STATE: the agent has no listen thread
///         KVMEM_STATUS_NOT_FOUND: nothing listens at the address
///         KVMEM_STATUS_IO, KVMEM_STATUS_PERMISSION_DENIED: the address cannot be reached
///         KVMEM_STATUS_NIXL
///
/// Notes: kvmem first connects to the address, for at most a second, and resets the connection, because NIXL
/// does not report a failed connection. The NIXL of the peer reports the reset on its stderr.
kvmem_status kvmem_agent_send_local_metadata(kvmem_agent *agent,
                                             const char *address,
                                             uint32_t port,
                                             kvmem_error **error);

/* ---- Layouts of peers ---- */

/// Returns the name of the agent of a layout: the one that it was built with, or the peer.
///
/// @param layout a layout
/// @param name receives the name as text; the caller destroys the blob
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: the layout has no agent
kvmem_status kvmem_layout_get_agent(const kvmem_layout *layout, kvmem_blob **name, kvmem_error **error);

/// Serializes a layout for a peer: shape, regions and agent, with a version and a checksum. The peer also
/// needs the metadata of the agent.
///
/// @param layout a layout in memory of this process that was built with an agent
/// @param descriptor receives the bytes; the caller destroys the blob
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_STATE: the layout has no agent, or its agent has no backend that reaches
///           peers
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote, on disk, in memory of another process, or in
///           several elastic regions
kvmem_status kvmem_layout_export(const kvmem_layout *layout, kvmem_blob **descriptor, kvmem_error **error);

/// Creates a remote layout from the descriptor of a peer. The bytes are not trusted: they are checked for
/// consistency, and against the metadata of the peer.
///
/// @param agent the agent that will access the layout; the metadata of the layout's owner must be loaded
/// @param data bytes of kvmem_layout_export
/// @param size number of bytes
/// @param layout receives the layout; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_CORRUPT: the bytes are damaged, malicious or not a descriptor
///         KVMEM_STATUS_VERSION_MISMATCH: the bytes have a version that this library cannot read
///         KVMEM_STATUS_NOT_FOUND: the metadata of the owner is not loaded, or does not cover the memory of
///           the layout
///         KVMEM_STATUS_PEER_LOST: the process that exported the layout has ended
kvmem_status kvmem_layout_import(kvmem_agent *agent,
                                 const void *data,
                                 size_t size,
                                 kvmem_layout **layout,
                                 kvmem_error **error);

/* ---- Notifications ---- */

/// Messages that were taken from an agent. They never change, so any threads may read them at the same time.
typedef struct kvmem_notifications kvmem_notifications;

/// A message. Both pointers are valid as long as the kvmem_notifications.
typedef struct kvmem_notification {
    /// Name of the agent that sent it.
    const char *agent;
    /// Its bytes, not NUL-terminated.
    const void *data;
    /// Number of bytes.
    size_t size;
} kvmem_notification;

/// Sends a message to a peer.
///
/// @param agent an agent
/// @param remote name of a peer whose metadata is loaded
/// @param data any bytes; NULL with size 0 for an empty message
/// @param size number of bytes
/// @return KVMEM_STATUS_OK: NIXL has accepted the message
///         KVMEM_STATUS_INVALID_ARGUMENT: the name is the agent's own
///         KVMEM_STATUS_NOT_FOUND: the metadata of the peer is not loaded
///         KVMEM_STATUS_STALE: the metadata of the peer was invalidated
///         KVMEM_STATUS_PEER_LOST: the process of the peer has ended; known only if a layout of the peer was
///           imported
///         KVMEM_STATUS_NIXL
kvmem_status kvmem_agent_notify(kvmem_agent *agent,
                                const char *remote,
                                const void *data,
                                size_t size,
                                kvmem_error **error);

/// Returns all messages that an agent has received, and waits for one if there is none. Each message is
/// returned once.
///
/// An agent receives messages through a backend that reaches peers, such as UCX. Without one no message
/// arrives, and the call waits, because a backend may be created during the wait.
///
/// @param agent an agent
/// @param timeout_ns nanoseconds to wait; 0 does not wait; KVMEM_TIMEOUT_FOREVER for no limit
/// @param notifications receives the messages, at least one; the caller destroys them
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_TIMED_OUT: no message has arrived in time; if a call of NIXL does not return, the
///           wait ends 100 ms after the timeout
///         KVMEM_STATUS_NIXL
kvmem_status kvmem_agent_take_notifications(kvmem_agent *agent,
                                            uint64_t timeout_ns,
                                            kvmem_notifications **notifications,
                                            kvmem_error **error);

/// Returns the number of messages.
///
/// @param notifications messages; NULL returns 0
size_t kvmem_notifications_count(const kvmem_notifications *notifications);

/// Returns one of the messages. Messages of one sender are in the order in which NIXL delivered them.
///
/// @param notifications messages
/// @param index less than the count
/// @param notification receives the message
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: the index is too large
kvmem_status kvmem_notifications_get(const kvmem_notifications *notifications,
                                     size_t index,
                                     kvmem_notification *notification,
                                     kvmem_error **error);

/// Destroys messages.
///
/// @param notifications messages that no other call uses; NULL does nothing
void kvmem_notifications_destroy(kvmem_notifications *notifications);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_NIXL_H */
