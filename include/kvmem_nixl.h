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

/// Loads NIXL (libnixl_capi.so, version 1.5 or later). Creating an agent does so by itself, with `path` NULL.
///
/// The library stays loaded as long as the process. After a failure another path may be tried. Threads: any.
///
/// @param path the file, or the folder that holds it; NULL for the path in the environment variable
///        KVMEM_NIXL_LIBRARY, else for what the loader finds
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK, also when it is loaded from there already;
///         KVMEM_STATUS_UNAVAILABLE_NIXL when it is missing, too old or broken (the message says which);
///         KVMEM_STATUS_ALREADY_EXISTS when it is loaded from elsewhere;
///         KVMEM_STATUS_INVALID_STATE when it was loaded, or being loaded, before this process was forked
kvmem_status kvmem_nixl_load(const char *path, kvmem_error **error);

/// The file NIXL was loaded from.
///
/// @param buffer gets the path and its NUL; may be NULL with capacity 0, to ask the size alone
/// @param capacity bytes of the buffer
/// @param size gets the bytes the path needs with its NUL, also when the buffer is too small
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_STATE before NIXL is loaded; KVMEM_STATUS_OUT_OF_RANGE when
///         the buffer is too small
kvmem_status kvmem_nixl_get_path(char *buffer, size_t capacity, size_t *size, kvmem_error **error);

/* ---- Agents ---- */

/// No progress thread of NIXL's. Then kvmem drives the idle agent, every progress_delay_us.
#define KVMEM_AGENT_NO_PROGRESS_THREAD 1
/// A thread that answers peers who fetch metadata by address. It listens on all interfaces.
#define KVMEM_AGENT_LISTEN_THREAD 2
/// NIXL measures transfers.
#define KVMEM_AGENT_TELEMETRY 4

/// KVMEM_SYNC_RW.
#define KVMEM_SYNC_DEFAULT 0
/// NIXL does not guard the agent: only kvmem, one thread at a time, and NIXL's own threads use it.
#define KVMEM_SYNC_NONE 1
/// One lock.
#define KVMEM_SYNC_STRICT 2
/// A read-write lock.
#define KVMEM_SYNC_RW 3

/// How an agent runs. All zeroes but struct_size is the default.
typedef struct kvmem_agent_options {
    /// sizeof(kvmem_agent_options)
    size_t struct_size;
    /// KVMEM_AGENT_* flags.
    uint64_t flags;
    /// Microseconds between rounds of the progress thread; 0 for 1000.
    uint64_t progress_delay_us;
    /// Microseconds between rounds of the listen thread; 0 for 100000, and without that thread.
    uint64_t listen_delay_us;
    /// TCP port of the listen thread; 0 for 8888, and without that thread.
    uint32_t listen_port;
    /// A KVMEM_SYNC_* value.
    uint32_t sync_mode;
} kvmem_agent_options;

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
void kvmem_agent_options_init(kvmem_agent_options *options, size_t struct_size);

/// Creates an agent. Loads NIXL if that was not done yet.
///
/// @param name by which peers know it; unique among the agents that meet
/// @param options how it runs; NULL for the defaults
/// @param agent gets the agent; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_NIXL; KVMEM_STATUS_INVALID_ARGUMENT; KVMEM_STATUS_NIXL
kvmem_status kvmem_agent_create(const char *name,
                                const kvmem_agent_options *options,
                                kvmem_agent **agent,
                                kvmem_error **error);

/// The name of an agent.
///
/// @param agent an agent; NULL answers NULL
/// @return a string that lives as long as this handle
const char *kvmem_agent_name(const kvmem_agent *agent);

/// One parameter of a backend.
typedef struct kvmem_parameter {
    /// Its name.
    const char *key;
    /// Its value.
    const char *value;
} kvmem_parameter;

/// Creates a backend of an agent: a NIXL plugin that moves bytes, such as "UCX" (peers), "POSIX" (files),
/// "GDS" or "GDS_MT" (files and GPU memory; needs libcufile and libcudart). Regions that are already
/// registered stay unknown to it.
///
/// If it can't be created, the error message holds what UCX logs, and the UCX_* variables of the environment.
///
/// @param agent an agent
/// @param plugin the plugin's name
/// @param parameters changes to the plugin's own parameters; NULL with count 0 for none
/// @param count number of parameters
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK.
///         KVMEM_STATUS_NOT_FOUND: NIXL has no such plugin.
///         KVMEM_STATUS_ALREADY_EXISTS: the agent has a backend of this plugin.
///         KVMEM_STATUS_NIXL: the plugin does not load, or the backend can't be created.
kvmem_status kvmem_agent_create_backend(kvmem_agent *agent,
                                        const char *plugin,
                                        const kvmem_parameter *parameters,
                                        size_t count,
                                        kvmem_error **error);

/// Destroys an agent handle. The agent is destroyed when nothing holds it. If the last holder is a handle,
/// the destroy call of that handle ends the agent's thread before it returns.
///
/// @param agent an agent that no other call uses; NULL does nothing
void kvmem_agent_destroy(kvmem_agent *agent);

/* ---- Registrations ---- */

/// Registers a region with the backends that the agent has now and that accept its type of memory. Backends
/// that are created later do not know the region.
///
/// @param region the region
/// @param agent the agent
/// @param registration gets the registration; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK: at least one backend accepts it.
///         KVMEM_STATUS_ALREADY_EXISTS: the region is registered with this agent.
///         KVMEM_STATUS_NIXL: no backend accepts it.
///         KVMEM_STATUS_UNSUPPORTED: a view of an elastic region, or memory of several mappings.
///         KVMEM_STATUS_INVALID_STATE: memory of a GPU whose context was destroyed.
///         KVMEM_STATUS_PERMISSION_DENIED: memory that may only be read, which NIXL would let peers write.
kvmem_status kvmem_region_register(kvmem_region *region,
                                   kvmem_agent *agent,
                                   kvmem_registration **registration,
                                   kvmem_error **error);

/// What NIXL knows a region as.
typedef struct kvmem_registration_info {
    /// The first byte: an address, or an offset in the file.
    uint64_t address;
    /// Bytes.
    uint64_t size;
    /// 0 for host memory, the ordinal of a GPU, the fd of a file.
    uint64_t device_id;
    /// A KVMEM_MEMORY_* value.
    uint32_t memory_type;
    /// 1 while it is registered, 0 after kvmem_registration_deregister.
    uint32_t registered;
} kvmem_registration_info;

/// Tells what NIXL knows the region as.
///
/// @param registration a registration
/// @param info gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
kvmem_status kvmem_registration_get_info(const kvmem_registration *registration,
                                         kvmem_registration_info *info,
                                         kvmem_error **error);

/// The name of an agent a region is registered with.
///
/// @param region a region
/// @param index which one, below the info's registration_count
/// @param buffer gets the name and its NUL; may be NULL with capacity 0, to ask the size alone
/// @param capacity bytes of the buffer
/// @param size gets the bytes the name needs with its NUL, also when the buffer is too small
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NOT_FOUND past the last; KVMEM_STATUS_OUT_OF_RANGE when the buffer
///         is too small
kvmem_status kvmem_region_get_agent(const kvmem_region *region,
                                    size_t index,
                                    char *buffer,
                                    size_t capacity,
                                    size_t *size,
                                    kvmem_error **error);

/// Deregisters a region from the backends that it was registered with. kvmem_registration_destroy does so
/// too, but reports no failure.
///
/// @param registration a registration; the handle stays valid and must be destroyed
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK.
///         KVMEM_STATUS_BUSY: layouts or transfers hold the registration.
///         KVMEM_STATUS_INVALID_STATE: it was deregistered before.
///         KVMEM_STATUS_NIXL: NIXL failed. The memory may still be in use, so kvmem never frees it.
kvmem_status kvmem_registration_deregister(kvmem_registration *registration, kvmem_error **error);

/// Destroys a registration handle. The region is deregistered when nothing holds the registration.
///
/// @param registration a registration that no other call uses; NULL does nothing
void kvmem_registration_destroy(kvmem_registration *registration);

/* ---- Metadata of agents ---- */

/// The agent's metadata: what a peer loads to reach its registered memory. Get it after the last registration
/// that peers shall see; how it travels is the caller's choice.
///
/// @param agent an agent with a backend that reaches peers
/// @param metadata gets NIXL's own bytes; the caller destroys the blob
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NIXL without such a backend
kvmem_status kvmem_agent_get_local_metadata(kvmem_agent *agent, kvmem_blob **metadata, kvmem_error **error);

/// Loads a peer's metadata. Loading it again after the peer registered more adds to it.
///
/// @param agent an agent
/// @param data what the peer's kvmem_agent_get_local_metadata, or any NIXL agent, gave
/// @param size its bytes
/// @param name gets the peer's name as text; the caller destroys the blob; may be NULL
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_ALREADY_EXISTS when another peer of that name is loaded, such as the
///         same one before it restarted: invalidate that first; KVMEM_STATUS_NIXL or KVMEM_STATUS_NOT_FOUND
///         for bytes that are no metadata, or of a peer no backend reaches
kvmem_status kvmem_agent_load_remote_metadata(kvmem_agent *agent,
                                              const void *data,
                                              size_t size,
                                              kvmem_blob **name,
                                              kvmem_error **error);

/// Whether the metadata of a peer is loaded. That says nothing of whether the peer lives.
///
/// @param agent an agent
/// @param name the peer's name
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NOT_FOUND
kvmem_status kvmem_agent_check_remote_metadata(kvmem_agent *agent, const char *name, kvmem_error **error);

/// Forgets a peer. Layouts imported from it fail with KVMEM_STATUS_STALE from now on, also after a peer of
/// the same name is loaded.
///
/// A transfer is in flight from submit until its end is reported. If NIXL still has requests of it then, as
/// after KVMEM_STATUS_PEER_LOST, it stays in flight until NIXL has released them.
///
/// @param agent an agent
/// @param name the peer's name
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK.
///         KVMEM_STATUS_NOT_FOUND: the peer is not loaded.
///         KVMEM_STATUS_BUSY: a transfer with the peer is in flight.
///         KVMEM_STATUS_INVALID_ARGUMENT: the name is the agent's own.
kvmem_status kvmem_agent_invalidate_remote_metadata(kvmem_agent *agent,
                                                    const char *name,
                                                    kvmem_error **error);

/// Requests a peer's metadata from its listen thread.
///
/// If no metadata of the peer is loaded, waits until it is. If older metadata is loaded, returns as soon as
/// the request is queued, because NIXL does not report the arrival of newer metadata: until then
/// kvmem_layout_import returns KVMEM_STATUS_NOT_FOUND for newer layouts. NIXL rejects the metadata of a
/// restarted peer while older metadata is loaded. To wait for the arrival in all cases, call
/// kvmem_agent_invalidate_remote_metadata first.
///
/// If nothing listens at the address, the call fails with KVMEM_STATUS_NOT_FOUND after about half a second.
/// With a shorter timeout it fails with KVMEM_STATUS_TIMED_OUT if no metadata of the peer is loaded. To check
/// the address, kvmem may connect to the address and reset the connection, which the peer's NIXL reports on
/// its stderr.
///
/// @param agent an agent that has a listen thread itself
/// @param name the peer's name
/// @param address the peer's IPv4 address, such as "127.0.0.1"
/// @param port the peer's listen port, 1 to 65535
/// @param timeout_ns nanoseconds, or KVMEM_TIMEOUT_FOREVER
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK.
///         KVMEM_STATUS_INVALID_ARGUMENT: the address is not an IPv4 address, the port is not in 1 to 65535,
///         or the name is the agent's own.
///         KVMEM_STATUS_INVALID_STATE: the agent has no listen thread.
///         KVMEM_STATUS_NOT_FOUND: nothing listens at the address.
///         KVMEM_STATUS_IO or KVMEM_STATUS_PERMISSION_DENIED: the address cannot be reached.
///         KVMEM_STATUS_TIMED_OUT: the metadata did not arrive in time.
///         KVMEM_STATUS_NIXL: NIXL failed.
kvmem_status kvmem_agent_fetch_remote_metadata(kvmem_agent *agent,
                                               const char *name,
                                               const char *address,
                                               uint32_t port,
                                               uint64_t timeout_ns,
                                               kvmem_error **error);

/// Sends the agent's metadata to the listen thread of a peer, which loads it.
///
/// kvmem first connects to the address, for at most a second, and resets the connection, because NIXL does
/// not report a failed connection. The reset makes the peer's NIXL print an error to its stderr.
///
/// @param agent an agent that has a listen thread itself, and a backend that reaches peers
/// @param address the peer's IPv4 address, such as "127.0.0.1"
/// @param port the peer's listen port, 1 to 65535
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK: it is on its way. That it arrives is not certain.
///         KVMEM_STATUS_INVALID_ARGUMENT: the address is not an IPv4 address, or the port is not in 1 to
///         65535.
///         KVMEM_STATUS_INVALID_STATE: the agent has no listen thread.
///         KVMEM_STATUS_NOT_FOUND: nothing listens at the address.
///         KVMEM_STATUS_IO or KVMEM_STATUS_PERMISSION_DENIED: the address cannot be reached.
///         KVMEM_STATUS_NIXL: NIXL failed.
kvmem_status kvmem_agent_send_local_metadata(kvmem_agent *agent,
                                             const char *address,
                                             uint32_t port,
                                             kvmem_error **error);

/* ---- Layouts of peers ---- */

/// The name of the agent that owns a layout: the one it was built with, or the peer.
///
/// @param layout a layout
/// @param buffer gets the name and its NUL; may be NULL with capacity 0, to ask the size alone
/// @param capacity bytes of the buffer
/// @param size gets the bytes the name needs with its NUL, also when the buffer is too small
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NOT_FOUND when it is local only; KVMEM_STATUS_OUT_OF_RANGE when the
///         buffer is too small
kvmem_status kvmem_layout_get_agent(const kvmem_layout *layout,
                                    char *buffer,
                                    size_t capacity,
                                    size_t *size,
                                    kvmem_error **error);

/// Serialises a layout for a peer: shape, regions and agent, with a version and a checksum. The peer also
/// needs the agent's metadata.
///
/// @param layout a layout built with an agent, in memory
/// @param descriptor gets the bytes; the caller destroys the blob
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK.
///         KVMEM_STATUS_INVALID_STATE: the layout was built without an agent, or its agent has no backend
///         that reaches peers.
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote, or on disk.
kvmem_status kvmem_layout_export(const kvmem_layout *layout, kvmem_blob **descriptor, kvmem_error **error);

/// Makes a remote layout from a peer's descriptor: all of it, or nothing. Any bytes may be given; what they
/// claim is checked for consistency and against the peer's metadata.
///
/// @param agent who shall reach it; the owner's metadata must be loaded
/// @param data what kvmem_layout_export gave
/// @param size its bytes
/// @param layout gets the layout; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_CORRUPT for bytes that are damaged, hostile or none;
///         KVMEM_STATUS_VERSION_MISMATCH; KVMEM_STATUS_NOT_FOUND when the owner's metadata is not loaded or
///         does not cover the layout's memory; KVMEM_STATUS_PEER_LOST when the process that exported it has
///         ended
kvmem_status kvmem_layout_import(kvmem_agent *agent,
                                 const void *data,
                                 size_t size,
                                 kvmem_layout **layout,
                                 kvmem_error **error);

/* ---- Notifications ---- */

/// Messages taken from an agent. They never change, so any threads may read them at once.
typedef struct kvmem_notifications kvmem_notifications;

/// One message. Both pointers live as long as the kvmem_notifications.
typedef struct kvmem_notification {
    /// The name of the agent that sent it.
    const char *agent;
    /// The bytes, as sent. Not NUL-terminated.
    const void *data;
    /// How many.
    size_t size;
} kvmem_notification;

/// Sends a message to a peer.
///
/// @param agent an agent
/// @param remote the name of a peer whose metadata is loaded
/// @param data the message; any bytes; may be NULL with size 0
/// @param size its bytes
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK once it is on its way; KVMEM_STATUS_NOT_FOUND for a peer that is not loaded;
///         KVMEM_STATUS_NIXL
kvmem_status kvmem_agent_notify(kvmem_agent *agent,
                                const char *remote,
                                const void *data,
                                size_t size,
                                kvmem_error **error);

/// Takes all messages that have arrived, and waits for one if there is none. Each message is taken once.
///
/// An agent receives messages through a backend that reaches peers, such as UCX. Without one nothing arrives,
/// and the call waits: a backend may be created meanwhile.
///
/// @param agent an agent
/// @param timeout_ns nanoseconds to wait, 0 not to wait, or KVMEM_TIMEOUT_FOREVER
/// @param notifications gets the messages, at least one; the caller destroys them
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK.
///         KVMEM_STATUS_TIMED_OUT: none has arrived in time.
///         KVMEM_STATUS_NIXL: NIXL failed.
kvmem_status kvmem_agent_take_notifications(kvmem_agent *agent,
                                            uint64_t timeout_ns,
                                            kvmem_notifications **notifications,
                                            kvmem_error **error);

/// How many messages there are.
///
/// @param notifications messages; NULL answers 0
size_t kvmem_notifications_count(const kvmem_notifications *notifications);

/// One of the messages. Those of one sender are in the order NIXL delivered them.
///
/// @param notifications messages
/// @param index which one, below the count
/// @param notification gets it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE past the last
kvmem_status kvmem_notifications_get(const kvmem_notifications *notifications,
                                     size_t index,
                                     kvmem_notification *notification,
                                     kvmem_error **error);

/// Frees messages.
///
/// @param notifications messages that no other call uses; NULL does nothing
void kvmem_notifications_destroy(kvmem_notifications *notifications);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_NIXL_H */
