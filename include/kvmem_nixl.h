/* SPDX-License-Identifier: Apache-2.0 */
/* kvmem: NIXL. Generated from src/ffi; do not edit.
 *
 * Agents and their backends, registrations, metadata, layouts of peers, directories, notifications, and
 * requests on raw descriptors.
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
///        KVMEM_NIXL_LIBRARY, or, if that is not set, for the library in the loader's search path
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
/// interfaces, and loads what it receives: damaged metadata ends the process, with NIXL 1.5. So any program
/// that reaches the port can end it. Use it only if all of them are trusted. Otherwise exchange metadata as
/// bytes, or by a directory, whose entries have a checksum.
#define KVMEM_AGENT_LISTEN_THREAD 2
/// NIXL measures transfers.
#define KVMEM_AGENT_TELEMETRY 4

/// The same as KVMEM_SYNC_NONE.
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
    /// TCP port of the listen thread; 0 for 8888. Must be 0 without KVMEM_AGENT_LISTEN_THREAD. Programs that
    /// are not trusted must not reach this port; see that flag.
    uint32_t listen_port;
    /// KVMEM_SYNC_* value.
    uint32_t sync_mode;
    /// Nanoseconds that a call without a timeout of its own waits for NIXL: one that creates a backend,
    /// builds or imports a layout, registers memory, loads metadata and so on. Then it fails with
    /// KVMEM_STATUS_TIMED_OUT. 0 for 10 minutes; KVMEM_TIMEOUT_FOREVER for no limit.
    /// If NIXL finishes later, kvmem undoes the call: it deregisters memory, and releases requests, lists and
    /// views. It does not undo a backend or a loaded peer. Until the agent is destroyed, do not free your
    /// memory that the call was to register or deregister; for adopted memory kvmem then never calls release,
    /// and it never frees its own.
    /// A call that destroys several registrations waits so long for the first, and not for the others.
    uint64_t call_timeout_ns;
} kvmem_agent_options;

/// Creates an agent. Loads NIXL if it is not loaded.
///
/// @param name the name by which peers know the agent; unique among agents that communicate, not empty
/// @param options options of the agent; NULL for the defaults
/// @param agent receives the agent; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_STATE: NIXL was loaded before this process was forked, or the process exits,
///           and NIXL's objects are destroyed
///         KVMEM_STATUS_OUT_OF_MEMORY: the thread of the agent could not be started
///         KVMEM_STATUS_TIMED_OUT: NIXL has not created it within call_timeout_ns
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
/// @param parameters parameters that replace those of the plugin; NULL with count 0 for none. NIXL ignores
///        keys that the plugin does not have
/// @param count number of parameters
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: NIXL has no such plugin
///         KVMEM_STATUS_ALREADY_EXISTS: the agent has a backend of this plugin
///         KVMEM_STATUS_INVALID_ARGUMENT: with a parameter the plugin GUSLI would end the process, or the
///           plugin OBJ would never end a request; the message has the parameter
///         KVMEM_STATUS_INVALID_STATE: the process exits, and NIXL's objects are destroyed
///         KVMEM_STATUS_OUT_OF_MEMORY: the threads of UCX or OBJ cannot be started
///         KVMEM_STATUS_TIMED_OUT: NIXL has not created it within call_timeout_ns; it may exist later
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
/// If a transfer in flight, or a session of a peer with a served layout, uses the agent longer, its thread
/// ends after that. If NIXL takes more than 10 s to destroy the agent, the thread ends later, too, and the
/// log has a warning. Calls that wait in vain share these 10 s: each further one waits for 0.1 s, until NIXL
/// destroys an agent again. A process that calls exit waits for agents that are being destroyed, for 10 s
/// after the last of them began. Other agents are not destroyed.
///
/// @param agent an agent that no other call uses; NULL does nothing
void kvmem_agent_destroy(kvmem_agent *agent);

/* ---- Options of calls on raw descriptors ---- */

/// Send the notification, also if it has no bytes.
#define KVMEM_NIXL_NOTIFY 1
/// NIXL does not merge neighbouring descriptors.
#define KVMEM_NIXL_SKIP_MERGE 2

/// Options of functions that take raw descriptors. A function fails with KVMEM_STATUS_INVALID_ARGUMENT for a
/// field that it does not use; its comment lists the fields that it uses.
typedef struct kvmem_nixl_options {
    /// sizeof(kvmem_nixl_options)
    size_t struct_size;
    /// KVMEM_NIXL_* flags.
    uint64_t flags;
    /// Plugins of the backends to use, each once, in order of preference; NULL with count 0 for all backends
    /// of the agent.
    const char *const *backends;
    /// Number of backends.
    size_t backend_count;
    /// Bytes for the peer, which gets them when the request is complete; NULL with size 0 for none.
    const void *notification;
    /// Number of those bytes.
    size_t notification_size;
    /// Bytes that the backend understands; NULL with size 0 for none.
    const void *custom_parameter;
    /// Number of those bytes.
    size_t custom_parameter_size;
    /// Receives a completion for each run of a request; may be NULL.
    kvmem_queue *queue;
    /// user_data of the completions.
    uint64_t user_data;
    /// Nanoseconds that a run of a request may take, or that the call waits; 0 or KVMEM_TIMEOUT_FOREVER for
    /// no limit. A run that takes longer ends with KVMEM_STATUS_TIMED_OUT, also if a call of NIXL does not
    /// return, and NIXL may use its memory until the request can be posted again. Runs with a limit are
    /// posted by the thread of the agent, which has to wake up first.
    uint64_t timeout_ns;
} kvmem_nixl_options;

/* ---- Plugins, backends, connections ---- */

/// A list of plugins or backends. It never changes, so any threads may read it at the same time.
typedef struct kvmem_plugins kvmem_plugins;

/// A plugin of NIXL, or a backend that an agent has created from one. The pointers are valid as long as the
/// kvmem_plugins.
typedef struct kvmem_plugin {
    /// Name of the plugin.
    const char *name;
    /// Why the plugin does not load, such as the name of a missing library; NULL if it loads.
    const char *failure;
    /// Parameters: defaults of a plugin, the actual ones of a backend.
    const kvmem_parameter *parameters;
    /// Number of parameters.
    size_t parameter_count;
    /// The memory types that it accepts: bit 1 << KVMEM_MEMORY_* for each.
    uint32_t memory_types;
    /// 0.
    uint32_t reserved;
} kvmem_plugin;

/// Lists the plugins that NIXL finds. Loads each of them, to get its parameters and memory types. A plugin
/// that does not load is in the list with the reason.
///
/// @param agent an agent
/// @param plugins receives the list, sorted by name; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NIXL
kvmem_status kvmem_agent_get_plugins(kvmem_agent *agent, kvmem_plugins **plugins, kvmem_error **error);

/// Lists the backends of an agent.
///
/// @param agent an agent
/// @param backends receives the list, sorted by name; the caller destroys it
/// @return KVMEM_STATUS_OK: the list may be empty
///         KVMEM_STATUS_NIXL
kvmem_status kvmem_agent_get_backends(kvmem_agent *agent, kvmem_plugins **backends, kvmem_error **error);

/// Returns the number of plugins or backends of a list.
///
/// @param plugins a list; NULL returns 0
size_t kvmem_plugins_count(const kvmem_plugins *plugins);

/// Returns a plugin or backend of a list.
///
/// @param plugins a list
/// @param index less than the count
/// @param plugin receives the plugin
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: the index is too large
kvmem_status kvmem_plugins_get(const kvmem_plugins *plugins,
                               size_t index,
                               kvmem_plugin *plugin,
                               kvmem_error **error);

/// Destroys a list of plugins or backends.
///
/// @param plugins a list that no other call uses; NULL does nothing
void kvmem_plugins_destroy(kvmem_plugins *plugins);

/// Connects an agent to a peer now. Without this call, the first transfer or notification connects, and takes
/// longer.
///
/// @param agent an agent
/// @param remote name of a peer whose metadata is loaded
/// @param options backends, custom_parameter, timeout_ns; NULL for all backends
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: the metadata of the peer is not loaded, or the agent has no backend of a
///           given name
///         KVMEM_STATUS_TIMED_OUT: NIXL has not returned 100 ms after timeout_ns; it may connect later
///         KVMEM_STATUS_INVALID_ARGUMENT: the name is the agent's own, or options has another field set
///         KVMEM_STATUS_STALE: the metadata of the peer was invalidated
///         KVMEM_STATUS_PEER_LOST: the process of the peer has ended; known only if a layout of the peer was
///           imported
///         KVMEM_STATUS_UNSUPPORTED: a custom parameter is given, and the loaded NIXL has none
///         KVMEM_STATUS_NIXL
kvmem_status kvmem_agent_connect(kvmem_agent *agent,
                                 const char *remote,
                                 const kvmem_nixl_options *options,
                                 kvmem_error **error);

/* ---- Raw descriptors ---- */

/// A list of descriptors of one memory type: memory, files, objects or blocks, as NIXL addresses them. It is
/// the input of registrations, requests, queries, partial metadata and memory views, which copy it. The
/// memory need not belong to kvmem.
///
/// Threads: all functions may use one list at the same time, except kvmem_descriptors_destroy. What
/// kvmem_descriptors_get returns is valid until the list is changed.
typedef struct kvmem_descriptors kvmem_descriptors;

/// One descriptor.
typedef struct kvmem_descriptor {
    /// Address, or offset in a file or object.
    uint64_t address;
    /// Size in bytes.
    uint64_t size;
    /// 0 for host memory, the ordinal of a GPU, the file descriptor of a file, the number of an object or
    /// block device.
    uint64_t device_id;
    /// For registrations and queries: what the backend needs, such as the key of an object or the path of a
    /// file; NULL with size 0 for none.
    const void *metadata;
    /// Number of bytes of metadata.
    size_t metadata_size;
    /// For memory views of peers: name of the agent that owns the memory; otherwise NULL.
    const char *agent;
} kvmem_descriptor;

/// Creates an empty list.
///
/// @param memory_type KVMEM_MEMORY_* value
/// @param descriptors receives the list; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: memory_type is not a KVMEM_MEMORY_* value
kvmem_status kvmem_descriptors_create(uint32_t memory_type,
                                      kvmem_descriptors **descriptors,
                                      kvmem_error **error);

/// Adds descriptors to the end of a list: all of them, or none if the call fails.
///
/// @param descriptors a list
/// @param added the descriptors, which are copied with their metadata and names
/// @param count number of descriptors
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: a descriptor exceeds the address space, or the list would have more
///           than 2147483647 descriptors
kvmem_status kvmem_descriptors_add(kvmem_descriptors *descriptors,
                                   const kvmem_descriptor *added,
                                   size_t count,
                                   kvmem_error **error);

/// Adds the memory of a region to a list, as one descriptor per span that is registered.
///
/// Descriptors of objects and block storage have the keys or the metadata. Of these, the whole region is
/// added, also if a view of it is given. The list and each request on it keep the region alive. A request
/// also keeps the region's registration with the agent.
///
/// @param descriptors a list of the memory type of the region
/// @param region a region
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the list has another memory type
kvmem_status kvmem_descriptors_add_region(kvmem_descriptors *descriptors,
                                          const kvmem_region *region,
                                          kvmem_error **error);

/// Replaces a descriptor of a list.
///
/// @param descriptors a list
/// @param index less than the count
/// @param descriptor the new descriptor, which is copied
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: the index is too large, or the descriptor exceeds the address space
kvmem_status kvmem_descriptors_set(kvmem_descriptors *descriptors,
                                   size_t index,
                                   const kvmem_descriptor *descriptor,
                                   kvmem_error **error);

/// Returns a descriptor of a list.
///
/// @param descriptors a list
/// @param index less than the count
/// @param descriptor receives the descriptor; its pointers are valid until the list is changed or destroyed
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: the index is too large
kvmem_status kvmem_descriptors_get(const kvmem_descriptors *descriptors,
                                   size_t index,
                                   kvmem_descriptor *descriptor,
                                   kvmem_error **error);

/// Removes a descriptor from a list. The indices of later ones decrease by one.
///
/// @param descriptors a list
/// @param index less than the count
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: the index is too large
kvmem_status kvmem_descriptors_remove(kvmem_descriptors *descriptors, size_t index, kvmem_error **error);

/// Changes the number of descriptors of a list. Removes the last ones, or adds descriptors of zeroes, which
/// kvmem_descriptors_set replaces.
///
/// @param descriptors a list
/// @param count the new number
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: count is more than 2147483647
///         KVMEM_STATUS_OUT_OF_MEMORY
kvmem_status kvmem_descriptors_resize(kvmem_descriptors *descriptors, size_t count, kvmem_error **error);

/// Removes all descriptors of a list.
///
/// @param descriptors a list
kvmem_status kvmem_descriptors_clear(kvmem_descriptors *descriptors, kvmem_error **error);

/// Frees the memory that a list does not need for its descriptors.
///
/// @param descriptors a list
kvmem_status kvmem_descriptors_trim(kvmem_descriptors *descriptors, kvmem_error **error);

/// Returns the number of descriptors of a list.
///
/// @param descriptors a list; NULL returns 0
size_t kvmem_descriptors_count(const kvmem_descriptors *descriptors);

/// Returns the memory type of a list, a KVMEM_MEMORY_* value.
///
/// @param descriptors a list; NULL returns 0
uint32_t kvmem_descriptors_memory_type(const kvmem_descriptors *descriptors);

/// Returns a list as text: a line for the list, and one for each descriptor.
///
/// @param descriptors a list
/// @param text receives the text; the caller destroys the blob
kvmem_status kvmem_descriptors_print(const kvmem_descriptors *descriptors,
                                     kvmem_blob **text,
                                     kvmem_error **error);

/// Serializes a list for another process, with a version and a checksum.
///
/// @param descriptors a list
/// @param data receives the bytes; the caller destroys the blob
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: the bytes would be more than 4 GiB
kvmem_status kvmem_descriptors_export(const kvmem_descriptors *descriptors,
                                      kvmem_blob **data,
                                      kvmem_error **error);

/// Creates a list from the bytes of kvmem_descriptors_export. The bytes are not trusted; NIXL checks
/// addresses in them when the list is used.
///
/// @param data the bytes
/// @param size number of bytes
/// @param descriptors receives the list; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_CORRUPT: the bytes are damaged, or not a list
///         KVMEM_STATUS_VERSION_MISMATCH: the bytes have a version that this library cannot read
kvmem_status kvmem_descriptors_import(const void *data,
                                      size_t size,
                                      kvmem_descriptors **descriptors,
                                      kvmem_error **error);

/// Destroys a list. Objects that were created from it are unchanged.
///
/// @param descriptors a list that no other call uses; NULL does nothing
void kvmem_descriptors_destroy(kvmem_descriptors *descriptors);

/* ---- Registered descriptors ---- */

/// Descriptors that an agent has registered: memory that is in no region, objects and blocks. It keeps the
/// agent alive, and those regions whose memory was added by kvmem_descriptors_add_region.
///
/// Threads: all functions may use it at the same time, except kvmem_segments_destroy.
typedef struct kvmem_segments kvmem_segments;

/// Registers descriptors with an agent. The memory must stay valid until they are deregistered.
///
/// @param agent an agent
/// @param descriptors a list with at least one descriptor, which is copied
/// @param options backends, custom_parameter; NULL for all backends that accept the memory type
/// @param segments receives the registered descriptors; the caller destroys them
/// @return KVMEM_STATUS_OK: all given backends have accepted the descriptors; without backends at least one
///         KVMEM_STATUS_ALREADY_EXISTS: a descriptor is registered with the agent, or is in the list twice
///         KVMEM_STATUS_NOT_FOUND: the agent has no backend of a given name
///         KVMEM_STATUS_UNSUPPORTED: a given backend does not accept the memory type, or a custom parameter
///           is given, and the loaded NIXL has none
///         KVMEM_STATUS_TIMED_OUT: see call_timeout_ns of kvmem_agent_options
///         KVMEM_STATUS_NIXL: no backend has accepted the descriptors, or a given backend has not; no backend
///           has them now
kvmem_status kvmem_segments_register(kvmem_agent *agent,
                                     const kvmem_descriptors *descriptors,
                                     const kvmem_nixl_options *options,
                                     kvmem_segments **segments,
                                     kvmem_error **error);

/// Deregisters descriptors, and reports whether that failed. kvmem_segments_destroy deregisters them too, but
/// reports no failure. Requests and prepared lists of the agent that use the memory become stale: the next
/// run of such a request ends with KVMEM_STATUS_STALE, and kvmem_request_make fails with it.
///
/// @param segments registered descriptors; the handle stays valid and must be destroyed
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_BUSY: a request on the descriptors is in flight
///         KVMEM_STATUS_INVALID_STATE: the descriptors were already deregistered
///         KVMEM_STATUS_TIMED_OUT: NIXL has not returned within call_timeout_ns of the agent
///         KVMEM_STATUS_NIXL: NIXL failed
///         After the last two the memory may still be in use and must not be freed.
kvmem_status kvmem_segments_deregister(kvmem_segments *segments, kvmem_error **error);

/// Destroys registered descriptors, and deregisters them. If a request on them is in flight, the agent
/// deregisters them when it has ended. Wait for requests before this call. If NIXL does not return within
/// call_timeout_ns of the agent, they stay registered: kvmem_segments_deregister reports that.
///
/// @param segments registered descriptors that no other call uses; NULL does nothing
void kvmem_segments_destroy(kvmem_segments *segments);

/* ---- Queries ---- */

/// Results of a backend. They never change, so any threads may read them at the same time.
typedef struct kvmem_query kvmem_query;

/// The result for one descriptor. The pointer is valid as long as the kvmem_query.
typedef struct kvmem_query_result {
    /// Properties of the file, object or memory. The backend defines their names.
    const kvmem_parameter *parameters;
    /// Number of properties.
    size_t parameter_count;
    /// 1 if it exists, otherwise 0.
    uint32_t exists;
    /// 0.
    uint32_t reserved;
} kvmem_query_result;

/// Queries a backend for the existence and the properties of files, objects or memory.
///
/// @param agent an agent
/// @param descriptors a list; "POSIX" needs the path of each file in metadata, "OBJ" the key of each object
/// @param options backends: one, timeout_ns; NULL if only one backend accepts the memory type
/// @param query receives a result per descriptor, in their order; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: several backends accept the memory type, and none is given; or the
///           list is empty, or a file has no metadata
///         KVMEM_STATUS_NOT_FOUND: the agent has no backend of the given name
///         KVMEM_STATUS_UNSUPPORTED: the given backend does not accept the memory type
///         KVMEM_STATUS_TIMED_OUT: NIXL has not returned 100 ms after timeout_ns
///         KVMEM_STATUS_NIXL: no backend accepts the memory type; or the backend cannot be queried, or failed
kvmem_status kvmem_agent_query(kvmem_agent *agent,
                               const kvmem_descriptors *descriptors,
                               const kvmem_nixl_options *options,
                               kvmem_query **query,
                               kvmem_error **error);

/// Returns the number of results.
///
/// @param query results; NULL returns 0
size_t kvmem_query_count(const kvmem_query *query);

/// Returns a result.
///
/// @param query results
/// @param index less than the count
/// @param result receives the result
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: the index is too large
kvmem_status kvmem_query_get(const kvmem_query *query,
                             size_t index,
                             kvmem_query_result *result,
                             kvmem_error **error);

/// Destroys results.
///
/// @param query results that no other call uses; NULL does nothing
void kvmem_query_destroy(kvmem_query *query);

/* ---- Memory views ---- */

/// A memory view of NIXL: registered memory that kernels on a GPU can access through NIXL's device API. It is
/// not a region; kvmem_region_create_view creates a region that is a part of another one. It keeps the agent
/// alive.
typedef struct kvmem_view kvmem_view;

/// Creates a memory view: of memory of the agent, or of memory of peers if the descriptors name agents.
///
/// @param agent an agent
/// @param descriptors a list with at least one descriptor, which is copied
/// @param options backends, custom_parameter; NULL for NIXL's choice
/// @param view receives the view; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: the metadata of an agent is not loaded, or memory is not registered
///         KVMEM_STATUS_STALE: the metadata of an agent was invalidated
///         KVMEM_STATUS_UNSUPPORTED: the loaded NIXL has no memory views
///         KVMEM_STATUS_NIXL: no backend has views of this memory; UCX has none on a host without a GPU
///
/// Notes: UCX creates a view only if it was built with its device API, as in NIXL's wheels, and if it can
/// allocate GPU memory, which it does for views of any memory. NIXL's other plugins have no views.
kvmem_status kvmem_view_create(kvmem_agent *agent,
                               const kvmem_descriptors *descriptors,
                               const kvmem_nixl_options *options,
                               kvmem_view **view,
                               kvmem_error **error);

/// Returns the handle of a memory view for NIXL's device API. It is valid as long as the view.
///
/// @param view a view; NULL returns NULL
void *kvmem_view_handle(const kvmem_view *view);

/// Destroys a memory view. No kernel may use it any more.
///
/// @param view a view that no other call uses; NULL does nothing
void kvmem_view_destroy(kvmem_view *view);

/* ---- Registrations ---- */

/// Registers a region with an agent: with all its backends that accept the type of the memory. Backends that
/// are created later do not get the region.
///
/// @param region the region
/// @param agent the agent
/// @param registration receives the registration; the caller destroys it
/// @return KVMEM_STATUS_OK: at least one backend accepts the region
///         KVMEM_STATUS_ALREADY_EXISTS: the region is registered with this agent
///         KVMEM_STATUS_UNSUPPORTED: the region is a view of elastic memory, objects or block storage,
///           or consists of several mappings
///         KVMEM_STATUS_INVALID_STATE: the context of the GPU memory was reset or destroyed
///         KVMEM_STATUS_PERMISSION_DENIED: the memory is read-only, and NIXL would permit peers to write it
///         KVMEM_STATUS_TIMED_OUT: see call_timeout_ns of kvmem_agent_options
///         KVMEM_STATUS_NIXL: no backend accepts the region
kvmem_status kvmem_region_register(kvmem_region *region,
                                   kvmem_agent *agent,
                                   kvmem_registration **registration,
                                   kvmem_error **error);

/// Properties of a registration, as NIXL knows them.
typedef struct kvmem_registration_info {
    /// Address of the first byte, or its offset in the file or block device.
    uint64_t address;
    /// Size in bytes.
    uint64_t size;
    /// 0 for host memory, the ordinal of a GPU, the file descriptor of a file, the number of a block device,
    /// the device id of the first object; the others have the following ones.
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
/// Get it after all memory that peers will access is registered. The caller chooses how to send it.
///
/// @param agent an agent with a backend that reaches peers
/// @param metadata receives NIXL's bytes; the caller destroys the blob
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NIXL: the agent has no such backend
kvmem_status kvmem_agent_get_local_metadata(kvmem_agent *agent, kvmem_blob **metadata, kvmem_error **error);

/// Loads the metadata of a peer. If the peer has registered more memory, its new metadata can be loaded in
/// addition.
///
/// NIXL and UCX do not check all of the bytes. Damaged ones can end the process, so load metadata only from
/// peers and channels that you trust.
///
/// @param agent an agent
/// @param data bytes of kvmem_agent_get_local_metadata of the peer, or of any NIXL agent
/// @param size number of bytes
/// @param name receives the name of the peer as text; the caller destroys the blob; may be NULL
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: size is 0, or the metadata is the agent's own
///         KVMEM_STATUS_ALREADY_EXISTS: another peer of that name is loaded, such as the same one before it
///           restarted; call kvmem_agent_invalidate_remote_metadata first. Or the agent itself has that name
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
///         KVMEM_STATUS_INVALID_ARGUMENT: the name is the agent's own
///
/// A run in flight completes, or fails with KVMEM_STATUS_STALE if it has to create further requests. If the
/// peer hangs, the run ends at its deadline, and kvmem keeps its memory until NIXL has released the requests.
/// Another process of the same name can be loaded meanwhile.
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
/// all cases, call kvmem_agent_invalidate_remote_metadata first. While requests to the earlier process are in
/// flight, only kvmem_agent_load_remote_metadata and directories can load its successor.
///
/// @param agent an agent that has a listen thread itself
/// @param name name of the peer
/// @param address IPv4 address or host name of the peer, such as "127.0.0.1" or "node7.example.com"
/// @param port listen port of the peer, 1 to 65535
/// @param timeout_ns nanoseconds to wait; KVMEM_TIMEOUT_FOREVER for no limit
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the address is neither an IPv4 address nor a host name, the port is
///           not in 1 to 65535, or the name is the agent's own
///         KVMEM_STATUS_INVALID_STATE: the agent has no listen thread
///         KVMEM_STATUS_BUSY: requests to an earlier process of that name are in flight
///         KVMEM_STATUS_NOT_FOUND: nothing listens at the address, or the host is not known
///         KVMEM_STATUS_IO, KVMEM_STATUS_PERMISSION_DENIED: the address cannot be reached
///         KVMEM_STATUS_TIMED_OUT: the metadata did not arrive in time, or the host was not found in time
///         KVMEM_STATUS_OUT_OF_MEMORY: no thread could be started to look up the host
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
/// @param address IPv4 address or host name of the peer, such as "127.0.0.1" or "node7.example.com"
/// @param port listen port of the peer, 1 to 65535
/// @return KVMEM_STATUS_OK: the metadata is queued. Its arrival is not certain
///         KVMEM_STATUS_INVALID_ARGUMENT: the address is neither an IPv4 address nor a host name, or the port
///           is not in 1 to 65535
///         KVMEM_STATUS_INVALID_STATE: the agent has no listen thread
///         KVMEM_STATUS_NOT_FOUND: nothing listens at the address, or the host is not known
///         KVMEM_STATUS_IO, KVMEM_STATUS_PERMISSION_DENIED: the address cannot be reached
///         KVMEM_STATUS_TIMED_OUT: the name servers have not found the host in 5 seconds
///         KVMEM_STATUS_OUT_OF_MEMORY: no thread could be started to look up the host
///         KVMEM_STATUS_NIXL
///
/// Notes: kvmem first connects to the address, for at most a second, and resets the connection, because NIXL
/// does not report a failed connection. The NIXL of the peer reports the reset on its stderr.
kvmem_status kvmem_agent_send_local_metadata(kvmem_agent *agent,
                                             const char *address,
                                             uint32_t port,
                                             kvmem_error **error);

/// Returns metadata of some of an agent's memory. A peer adds it to the metadata that it has loaded.
///
/// The metadata of an empty list is the connection information; that of other lists does not have it. So a
/// peer first loads the metadata of an empty list, or all metadata. Before it imports a layout, it also loads
/// that of some host memory, or all metadata: these identify the agent.
///
/// @param agent an agent
/// @param descriptors registered memory
/// @param options backends; NULL for all
/// @param metadata receives NIXL's bytes; the caller destroys the blob
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: memory is not registered, or the agent has no backend of a given name
///         KVMEM_STATUS_NIXL: the agent has no backend that reaches peers
kvmem_status kvmem_agent_get_partial_metadata(kvmem_agent *agent,
                                              const kvmem_descriptors *descriptors,
                                              const kvmem_nixl_options *options,
                                              kvmem_blob **metadata,
                                              kvmem_error **error);

/// Sends metadata of some of an agent's memory to the listen thread of a peer, which adds it to the loaded
/// metadata.
///
/// @param agent an agent that has a listen thread itself, and a backend that reaches peers
/// @param descriptors registered memory; an empty list sends the connection information only
/// @param address IPv4 address or host name of the peer, such as "127.0.0.1" or "node7.example.com"
/// @param port listen port of the peer, 1 to 65535
/// @return KVMEM_STATUS_OK: the metadata is queued. Its arrival is not certain
///         KVMEM_STATUS_INVALID_ARGUMENT: the address is neither an IPv4 address nor a host name, or the port
///           is not in 1 to 65535
///         KVMEM_STATUS_INVALID_STATE: the agent has no listen thread
///         KVMEM_STATUS_NOT_FOUND: nothing listens at the address, or the host is not known, or memory is not
///           registered
///         KVMEM_STATUS_IO, KVMEM_STATUS_PERMISSION_DENIED: the address cannot be reached
///         KVMEM_STATUS_TIMED_OUT: the name servers have not found the host in 5 seconds
///         KVMEM_STATUS_OUT_OF_MEMORY: no thread could be started to look up the host
///         KVMEM_STATUS_NIXL
kvmem_status kvmem_agent_send_partial_metadata(kvmem_agent *agent,
                                               const kvmem_descriptors *descriptors,
                                               const char *address,
                                               uint32_t port,
                                               kvmem_error **error);

/// Requests that the listen thread of a peer removes the metadata of an agent. Call it before the agent ends.
///
/// @param agent an agent that has a listen thread itself
/// @param address IPv4 address or host name of the peer, such as "127.0.0.1" or "node7.example.com"
/// @param port listen port of the peer, 1 to 65535
/// @return KVMEM_STATUS_OK: the message is queued. Its arrival is not certain
///         KVMEM_STATUS_INVALID_ARGUMENT: the address is neither an IPv4 address nor a host name, or the port
///           is not in 1 to 65535
///         KVMEM_STATUS_INVALID_STATE: the agent has no listen thread
///         KVMEM_STATUS_NOT_FOUND: nothing listens at the address, or the host is not known
///         KVMEM_STATUS_IO, KVMEM_STATUS_PERMISSION_DENIED: the address cannot be reached
///         KVMEM_STATUS_TIMED_OUT: the name servers have not found the host in 5 seconds
///         KVMEM_STATUS_OUT_OF_MEMORY: no thread could be started to look up the host
///         KVMEM_STATUS_NIXL
///
/// If the peer uses kvmem, its layouts of this agent then fail with KVMEM_STATUS_STALE, also after it has
/// loaded the metadata again. Layouts that are exported from here on can be imported with metadata from here
/// on only, also by other peers.
///
/// Notes: NIXL removes the metadata at the peer at once, also during transfers of the peer with this agent,
/// which fail.
kvmem_status kvmem_agent_invalidate_local_metadata(kvmem_agent *agent,
                                                   const char *address,
                                                   uint32_t port,
                                                   kvmem_error **error);

/// Removes the metadata of all peers, as kvmem_agent_invalidate_remote_metadata does for one.
///
/// NIXL does not list its peers. So one whose metadata the listen thread of the agent has loaded is removed
/// only if a function was called with its name before, such as kvmem_agent_check_remote_metadata.
///
/// @param agent an agent
/// @param count receives the number of peers; may be NULL
/// @return KVMEM_STATUS_OK: also if there was none
///         KVMEM_STATUS_NIXL
kvmem_status kvmem_agent_invalidate_all_remote_metadata(kvmem_agent *agent,
                                                        size_t *count,
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
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote, in memory of another process, in several elastic
///           regions, or in a file, in objects or in block storage
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
///         KVMEM_STATUS_NOT_FOUND: the metadata of the owner is not loaded, is that of another agent of the
///           same name, or does not cover the memory of the layout
///         KVMEM_STATUS_STALE: the metadata of another process is loaded under the name of the owner
///         KVMEM_STATUS_PEER_LOST: the process that exported the layout has ended
kvmem_status kvmem_layout_import(kvmem_agent *agent,
                                 const void *data,
                                 size_t size,
                                 kvmem_layout **layout,
                                 kvmem_error **error);

/// Creates a remote layout over raw memory of a peer. The peer need not use kvmem, and may send the addresses
/// by any connection.
///
/// @param agent the agent that will access the layout
/// @param owner name of the peer that owns the memory; its metadata must be loaded
/// @param config shape of the blocks, as they are in the memory of the peer
/// @param descriptors one descriptor per region of the layout, in their order, each at least as large
/// @param layout receives the layout; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the shape is invalid, the number of descriptors is wrong, one is
///           not aligned, or two of them overlap in the bytes that the layout needs
///         KVMEM_STATUS_OUT_OF_RANGE: a descriptor is too small, or exceeds the address space
///         KVMEM_STATUS_NOT_FOUND: the metadata of the owner is not loaded, or does not cover the descriptors
///         KVMEM_STATUS_UNSUPPORTED: the descriptors are neither host memory nor GPU memory
///
/// Notes: kvmem does not know the process of the owner. If the owner has ended, a transfer fails with
/// KVMEM_STATUS_NIXL when NIXL detects it, and is in flight until then.
kvmem_status kvmem_layout_create_remote(kvmem_agent *agent,
                                        const char *owner,
                                        const kvmem_layout_config *config,
                                        const kvmem_descriptors *descriptors,
                                        kvmem_layout **layout,
                                        kvmem_error **error);

/* ---- Owners that serve transfers ---- */

/// Peers may write to the layout, too.
#define KVMEM_SERVE_WRITE 1
/// The staging memory is in page-locked host memory, also for a layout in GPU memory. Peers with layouts in
/// host memory need it.
#define KVMEM_SERVE_FROM_HOST 2

/// Options of kvmem_layout_serve.
typedef struct kvmem_serve_options {
    /// sizeof(kvmem_serve_options)
    size_t struct_size;
    /// KVMEM_SERVE_* flags.
    uint64_t flags;
    /// Size of the staging memory in bytes, at least 32 KiB; 0 for 16 MiB, or 64 MiB in GPU memory.
    uint64_t arena_size;
    /// Nanoseconds that the owner waits for a peer that neither reads nor writes, before it ends the
    /// peer's session; 0 for 30 s. If other peers wait, it ends a session that has sent nothing for 5 s.
    uint64_t stall_timeout_ns;
} kvmem_serve_options;

/// Serves transfers of a layout to peers, as long as the layout exists.
///
/// A transfer between layouts that store the same tokens differently has a contiguous range per row, and
/// NIXL takes microseconds for each. For peers of a layout that is served, this process gathers rows in
/// staging memory, which they read in large ranges, or scatters what they have written there. Their transfers
/// use this if it takes less time. For a layout in GPU memory the staging memory is plain memory of the same
/// GPU, and a kernel gathers and scatters. Get the metadata of the agent, and export the layout, after this
/// call.
///
/// @param layout a layout in host or GPU memory of this process that was built with an agent
/// @param options options; NULL for the defaults
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: an option is invalid
///         KVMEM_STATUS_INVALID_STATE: the layout has no agent, or its agent has no backend that reaches
///           peers
///         KVMEM_STATUS_ALREADY_EXISTS: the layout is served
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote, in memory of another process, or in a file, in
///           objects or in block storage
///         KVMEM_STATUS_CUDA: the driver cannot create the streams, events or memory for copies on the GPU
///         KVMEM_STATUS_OUT_OF_MEMORY: the staging memory cannot be allocated
///         KVMEM_STATUS_NIXL: NIXL cannot register the staging memory
///
/// Notes: Peers can read what they request, and with KVMEM_SERVE_WRITE write it. They cannot make this
/// process access other memory. NIXL itself does not restrict peers that have the metadata of the agent.
kvmem_status kvmem_layout_serve(kvmem_layout *layout,
                                const kvmem_serve_options *options,
                                kvmem_error **error);

/* ---- Entries of directories ---- */

/// The entry of an agent when it was looked up. It never changes, so any threads may read it at the same
/// time.
typedef struct kvmem_directory_entry kvmem_directory_entry;

/// The content of an entry. The pointers are valid as long as the kvmem_directory_entry.
typedef struct kvmem_directory_entry_info {
    /// Name of the agent.
    const char *agent;
    /// A random number of the agent that published the entry, not 0. A restarted agent has another one.
    uint64_t incarnation;
    /// Counts the publications of the agent, from 1.
    uint64_t version;
    /// NIXL's metadata of the agent.
    const void *metadata;
    /// Number of bytes of the metadata.
    size_t metadata_size;
    /// Number of layouts.
    size_t layout_count;
} kvmem_directory_entry_info;

/// A layout in an entry. The pointers are valid as long as the kvmem_directory_entry.
typedef struct kvmem_published_layout {
    /// Name under which it was published.
    const char *name;
    /// Bytes of kvmem_layout_export.
    const void *descriptor;
    /// Number of bytes.
    size_t size;
} kvmem_published_layout;

/// Returns the content of an entry.
///
/// @param entry an entry
/// @param info receives the content
/// @return KVMEM_STATUS_OK
kvmem_status kvmem_directory_entry_get_info(const kvmem_directory_entry *entry,
                                            kvmem_directory_entry_info *info,
                                            kvmem_error **error);

/// Returns one of the layouts of an entry.
///
/// @param entry an entry
/// @param index less than layout_count
/// @param layout receives the layout
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: the index is too large
kvmem_status kvmem_directory_entry_get_layout(const kvmem_directory_entry *entry,
                                              size_t index,
                                              kvmem_published_layout *layout,
                                              kvmem_error **error);

/// Loads the metadata of an entry, so that an agent can access the memory of the agent that published it.
///
/// If the peer was restarted since its metadata was loaded, the old metadata is removed first: layouts
/// that were imported before then fail with KVMEM_STATUS_STALE.
///
/// @param entry an entry
/// @param agent the agent that will access the memory
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the entry is that of the agent itself
///         KVMEM_STATUS_STALE: an entry of the restarted peer, which was looked up later than this one, is
///           loaded; nothing has changed. Look the peer up again
///         KVMEM_STATUS_CORRUPT: the metadata is that of another agent
///         KVMEM_STATUS_NIXL, KVMEM_STATUS_NOT_FOUND: the bytes are not metadata, or no backend reaches the
///           peer
kvmem_status kvmem_directory_entry_load(const kvmem_directory_entry *entry,
                                        kvmem_agent *agent,
                                        kvmem_error **error);

/// Creates a remote layout from a layout of an entry, as kvmem_layout_import does.
///
/// @param entry an entry, which kvmem_directory_entry_load has loaded
/// @param agent the agent that will access the layout
/// @param name name under which the layout was published
/// @param layout receives the layout; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: the entry has no layout of that name, its metadata is not loaded, or does
///           not cover the memory of the layout
///         KVMEM_STATUS_CORRUPT: the descriptor is damaged, malicious, or of another agent
///         KVMEM_STATUS_VERSION_MISMATCH: the descriptor has a version that this library cannot read
///         KVMEM_STATUS_PEER_LOST: the process that published the layout has ended
kvmem_status kvmem_directory_entry_import_layout(const kvmem_directory_entry *entry,
                                                 kvmem_agent *agent,
                                                 const char *name,
                                                 kvmem_layout **layout,
                                                 kvmem_error **error);

/// Destroys an entry.
///
/// @param entry an entry that no other call uses; NULL does nothing
void kvmem_directory_entry_destroy(kvmem_directory_entry *entry);

/* ---- Events of directories ---- */

/// Events that were taken from a directory. They never change, so any threads may read them at the same time.
typedef struct kvmem_directory_events kvmem_directory_events;

/// An agent has an entry, and had none.
#define KVMEM_DIRECTORY_PUBLISHED 1
/// An agent was restarted: its entry is that of another incarnation.
#define KVMEM_DIRECTORY_RESTARTED 2
/// An agent has published again.
#define KVMEM_DIRECTORY_UPDATED 3
/// An agent has no entry any more: it was withdrawn, or its process has ended.
#define KVMEM_DIRECTORY_WITHDRAWN 4
/// The entry of an agent is invalid.
#define KVMEM_DIRECTORY_INVALID 5
/// Another process has published an agent that this handle had published. The entry of the other process
/// remains. It is reported also if nothing is watched.
#define KVMEM_DIRECTORY_SUPERSEDED 6
/// The directory cannot be reached. kvmem tries again; changes are reported later.
#define KVMEM_DIRECTORY_INTERRUPTED 7
/// The directory is reached again. All changes in the meantime are reported, before or after this event.
#define KVMEM_DIRECTORY_RESUMED 8
/// An entry that this handle has published was missing or damaged, and is published again: its lease had
/// ended, because the process was stopped or no server was reached, or another program has removed it.
/// Watchers may have received KVMEM_DIRECTORY_WITHDRAWN. It is reported also if nothing is watched.
#define KVMEM_DIRECTORY_RESTORED 9

/// There are more than 65536 entries, invalid ones included, and those beyond are not reported: the memory
/// of a watch is bounded. It is reported once, and again only after the watch of all agents has ended. End
/// that watch (kvmem_directory_unwatch with NULL), then watch single agents.
#define KVMEM_DIRECTORY_FULL 10

/// An event. The pointers are valid as long as the kvmem_directory_events.
typedef struct kvmem_directory_event {
    /// Name of the agent; empty for KVMEM_DIRECTORY_INTERRUPTED, KVMEM_DIRECTORY_RESUMED and
    /// KVMEM_DIRECTORY_FULL.
    const char *agent;
    /// Incarnation of the entry; of the last entry for KVMEM_DIRECTORY_WITHDRAWN; 0 for other kinds.
    uint64_t incarnation;
    /// Version of the entry; as incarnation.
    uint64_t version;
    /// Why the entry is not valid, why the directory cannot be reached, or that it has more agents than are
    /// reported; empty for other kinds.
    const char *message;
    /// KVMEM_DIRECTORY_* value.
    uint32_t kind;
    /// KVMEM_STATUS_CORRUPT for KVMEM_DIRECTORY_INVALID, KVMEM_STATUS_STALE for KVMEM_DIRECTORY_SUPERSEDED,
    /// the status of the failure for KVMEM_DIRECTORY_INTERRUPTED, KVMEM_STATUS_OUT_OF_MEMORY for
    /// KVMEM_DIRECTORY_FULL, KVMEM_STATUS_OK for other kinds.
    kvmem_status status;
} kvmem_directory_event;

/// Returns the number of events.
///
/// @param events events; NULL returns 0
size_t kvmem_directory_events_count(const kvmem_directory_events *events);

/// Returns one of the events. Those of one agent are in order.
///
/// @param events events
/// @param index less than the count
/// @param event receives the event
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: the index is too large
kvmem_status kvmem_directory_events_get(const kvmem_directory_events *events,
                                        size_t index,
                                        kvmem_directory_event *event,
                                        kvmem_error **error);

/// Destroys events.
///
/// @param events events that no other call uses; NULL does nothing
void kvmem_directory_events_destroy(kvmem_directory_events *events);

/* ---- Directories ---- */

/// A directory, in which agents publish their metadata and layouts, and peers find them by name. It is a
/// folder of one machine, or in etcd. An entry exists while the process that published it lives: in etcd
/// until its lease ends.
///
/// No call waits longer than 100 ms after its timeout; a timeout of 0 asks once, and waits so long for the
/// response. With etcd none waits longer than 10 seconds, also with
/// KVMEM_TIMEOUT_FOREVER, except kvmem_directory_take_events.
///
/// Any process that can write to the directory can write anything. An invalid entry is reported as
/// KVMEM_STATUS_CORRUPT with its name, and is not used. A directory does not prove which process published an
/// entry: its permissions determine which processes can write to it.
///
/// Threads: all functions may use one directory at the same time, except kvmem_directory_destroy.
typedef struct kvmem_directory kvmem_directory;

/// Options of kvmem_directory_create.
typedef struct kvmem_directory_options {
    /// sizeof(kvmem_directory_options)
    size_t struct_size;
    /// Path of a folder of this machine, which all processes use. A relative path begins in the present
    /// working directory, also after that has changed. It is created with mode 0700 if it does not
    /// exist, but not its parents. Its permissions determine which processes can publish. NULL for etcd.
    const char *folder;
    /// URLs of the servers of etcd, such as "https://10.0.0.1:2379", with http or https. NULL for a folder.
    const char *const *endpoints;
    /// Number of endpoints, at most 64; 0 for a folder.
    size_t endpoint_count;
    /// Prefix of all keys; directories with different prefixes are independent. NULL for "kvmem", and for a
    /// folder.
    const char *prefix;
    /// Path of a file with the certificates of the authorities that sign those of the servers, in PEM.
    /// Required for https, otherwise NULL.
    const char *ca_file;
    /// Path of a file with the certificate of this client, in PEM; NULL for none. It needs https and
    /// key_file.
    const char *certificate_file;
    /// Path of a file with the key of that certificate, in PEM; NULL for none.
    const char *key_file;
    /// Name of the user in etcd; NULL for none.
    const char *user;
    /// Password of the user, which is never part of a message or of the log. Required with user.
    const char *password;
    /// Seconds after the end of a process until etcd removes its entries, 2 to 3600; 0 for 10. For a folder
    /// 0, because the kernel reports the end of a process.
    uint32_t lease_seconds;
    /// Must be 0.
    uint32_t reserved;
} kvmem_directory_options;

/// A layout to publish.
typedef struct kvmem_named_layout {
    /// Name, unique among the layouts of the agent.
    const char *name;
    /// A layout that was built with the agent, as for kvmem_layout_export.
    const kvmem_layout *layout;
} kvmem_named_layout;

/// Creates a directory handle. Does not need NIXL. Opens the folder, or connects to etcd.
///
/// @param options location and options of the directory
/// @param directory receives the directory; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: a parent of the folder, or a file of the options, does not exist
///         KVMEM_STATUS_PERMISSION_DENIED: access to the folder or a file, or etcd rejects the user, the
///           password or the prefix
///         KVMEM_STATUS_IO: the folder cannot be opened, or no server of etcd is reached; the message has the
///           reason
///         KVMEM_STATUS_TIMED_OUT: etcd or the file system of the folder has not responded for 5 seconds
///         KVMEM_STATUS_UNSUPPORTED: libkvmem_etcd.so is not installed beside libkvmem.so
///         KVMEM_STATUS_OUT_OF_MEMORY: a thread or a file descriptor could not be created
///
/// Notes: the client of etcd is a separate library, which is loaded here. It runs one thread per directory.
kvmem_status kvmem_directory_create(const kvmem_directory_options *options,
                                    kvmem_directory **directory,
                                    kvmem_error **error);

/// Publishes the metadata and layouts of an agent under its name. Replaces the entry of that name, also that
/// of another process: a restarted agent replaces its predecessor.
///
/// Call it again after further memory was registered. Peers find the old entry until the new one is complete.
/// The entry exists until it is withdrawn, the directory is destroyed, or the process ends. If it is removed
/// or damaged by another process, it is published again.
///
/// @param directory a directory
/// @param agent an agent with a backend that reaches peers
/// @param layouts layouts of the agent; NULL with count 0 for none
/// @param count number of layouts, at most 1024
/// @param timeout_ns nanoseconds to wait; KVMEM_TIMEOUT_FOREVER for no limit
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: a name is empty, too long or not unique, or a layout is of another
///           agent
///         KVMEM_STATUS_INVALID_STATE, KVMEM_STATUS_UNSUPPORTED: as for kvmem_layout_export
///         KVMEM_STATUS_OUT_OF_RANGE: the entry would have more than 1 MiB
///         KVMEM_STATUS_TIMED_OUT: the directory does not respond, and the entry may still be published; or a
///           call of NIXL has not returned 100 ms after the timeout
///         KVMEM_STATUS_PERMISSION_DENIED, KVMEM_STATUS_OUT_OF_MEMORY, KVMEM_STATUS_IO: the entry cannot be
///           stored, or etcd is not reached; the message has the reason
///         KVMEM_STATUS_NIXL: the agent has no metadata
///
/// Notes: a name has at most 200 bytes. Every byte other than A-Z a-z 0-9 - _ and . counts as three.
kvmem_status kvmem_directory_publish(const kvmem_directory *directory,
                                     kvmem_agent *agent,
                                     const kvmem_named_layout *layouts,
                                     size_t count,
                                     uint64_t timeout_ns,
                                     kvmem_error **error);

/// Removes an entry that was published with this directory handle.
///
/// @param directory a directory
/// @param agent name of the agent
/// @param timeout_ns nanoseconds to wait; KVMEM_TIMEOUT_FOREVER for no limit
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: the agent was not published with this handle
///         KVMEM_STATUS_STALE: another process has published an agent of that name since; its entry remains
///         KVMEM_STATUS_TIMED_OUT: the directory does not respond; the entry ends at the latest when its
///           lease does
///         KVMEM_STATUS_IO, KVMEM_STATUS_PERMISSION_DENIED
kvmem_status kvmem_directory_withdraw(const kvmem_directory *directory,
                                      const char *agent,
                                      uint64_t timeout_ns,
                                      kvmem_error **error);

/// Finds the entry of an agent. The entry is a copy, which later changes of the directory do not affect.
///
/// Does not wait for an agent that is not published: kvmem_directory_wait_for does.
///
/// @param directory a directory
/// @param agent name of the agent
/// @param timeout_ns nanoseconds to wait for the response of the directory; KVMEM_TIMEOUT_FOREVER for no
///        limit
/// @param entry receives the entry; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: the agent was not published, was withdrawn, or its process has ended
///         KVMEM_STATUS_CORRUPT: another process has stored an invalid entry under that name
///         KVMEM_STATUS_TIMED_OUT: the directory does not respond
///         KVMEM_STATUS_OUT_OF_MEMORY: this process lacks the file descriptors or the memory to read entries
///         KVMEM_STATUS_IO, KVMEM_STATUS_PERMISSION_DENIED
kvmem_status kvmem_directory_look_up(const kvmem_directory *directory,
                                     const char *agent,
                                     uint64_t timeout_ns,
                                     kvmem_directory_entry **entry,
                                     kvmem_error **error);

/// Waits until an agent is published, and returns its entry. Returns at once if it is published, also with
/// a timeout of 0.
///
/// @param directory a directory
/// @param agent name of the agent
/// @param timeout_ns nanoseconds to wait; KVMEM_TIMEOUT_FOREVER for no limit
/// @param entry receives the entry; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_TIMED_OUT: the agent was not published in time, or the directory does not respond
///         KVMEM_STATUS_CORRUPT: another process has stored an invalid entry under that name
///         KVMEM_STATUS_OUT_OF_MEMORY: this process lacks the file descriptors or the memory to read entries
///         KVMEM_STATUS_IO, KVMEM_STATUS_PERMISSION_DENIED
///
/// Notes: no events are reported for it, unless the agent is watched.
kvmem_status kvmem_directory_wait_for(const kvmem_directory *directory,
                                      const char *agent,
                                      uint64_t timeout_ns,
                                      kvmem_directory_entry **entry,
                                      kvmem_error **error);

/// Checks that an entry is still the current one of its agent.
///
/// @param directory a directory
/// @param entry an entry that was found in it
/// @param timeout_ns nanoseconds to wait; KVMEM_TIMEOUT_FOREVER for no limit
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_STALE: the agent has published again since, or was restarted; the message says which
///         KVMEM_STATUS_NOT_FOUND: the agent was withdrawn, or its process has ended
///         KVMEM_STATUS_CORRUPT: another process has stored an invalid entry under that name
///         KVMEM_STATUS_TIMED_OUT: the directory does not respond
///         KVMEM_STATUS_OUT_OF_MEMORY: this process lacks the file descriptors or the memory to read entries
///         KVMEM_STATUS_IO, KVMEM_STATUS_PERMISSION_DENIED
kvmem_status kvmem_directory_check(const kvmem_directory *directory,
                                   const kvmem_directory_entry *entry,
                                   uint64_t timeout_ns,
                                   kvmem_error **error);

/// Begins to watch an agent, or all agents. The first events report the current state, later events the
/// changes.
///
/// @param directory a directory
/// @param agent name of the agent, which need not be published yet; NULL for all agents
/// @param timeout_ns nanoseconds to wait; KVMEM_TIMEOUT_FOREVER for no limit
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_TIMED_OUT: the directory does not respond; nothing is watched
///         KVMEM_STATUS_OUT_OF_MEMORY, KVMEM_STATUS_IO, KVMEM_STATUS_PERMISSION_DENIED: nothing is watched
///
/// Notes: watch single agents if there are thousands. At most 65536 agents are kept, which bounds the memory.
/// Others are not reported, but KVMEM_DIRECTORY_FULL is. With etcd the call fails if all agents cannot be
/// listed within the timeout, or 10 seconds.
kvmem_status kvmem_directory_watch(const kvmem_directory *directory,
                                   const char *agent,
                                   uint64_t timeout_ns,
                                   kvmem_error **error);

/// Ends the watch of an agent, or of all agents. Events of agents that are not watched any more are
/// discarded.
///
/// @param directory a directory
/// @param agent name of the agent; NULL ends the watch of all, and keeps those of single agents
/// @param timeout_ns nanoseconds to wait; KVMEM_TIMEOUT_FOREVER for no limit
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: it is not watched
///         KVMEM_STATUS_TIMED_OUT: the directory does not respond; the watch has ended nevertheless
///         KVMEM_STATUS_IO: as for KVMEM_STATUS_TIMED_OUT
kvmem_status kvmem_directory_unwatch(const kvmem_directory *directory,
                                     const char *agent,
                                     uint64_t timeout_ns,
                                     kvmem_error **error);

/// Returns all events of a directory, and waits for one if there is none. Each event is returned once.
///
/// Changes of an agent that were not taken become one event: the difference between the last event that was
/// taken and the current state. So memory is bounded, however many changes there are.
///
/// @param directory a directory
/// @param timeout_ns nanoseconds to wait; 0 does not wait; KVMEM_TIMEOUT_FOREVER for no limit
/// @param events receives the events, at least one; the caller destroys them
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_TIMED_OUT: no event has arrived in time
kvmem_status kvmem_directory_take_events(const kvmem_directory *directory,
                                         uint64_t timeout_ns,
                                         kvmem_directory_events **events,
                                         kvmem_error **error);

/// Has a queue report that a directory has events, so that no thread needs to wait for them.
///
/// When events arrive and none waited before, the queue gets a completion with status KVMEM_STATUS_OK and 0
/// bytes. Take the events with kvmem_directory_take_events then, with timeout 0. The next completion follows
/// when events arrive after that.
///
/// @param directory a directory
/// @param queue the queue, which replaces the one before; NULL ends the reports
/// @param user_data user_data of the completions
/// @return KVMEM_STATUS_OK
kvmem_status kvmem_directory_report_events(const kvmem_directory *directory,
                                           kvmem_queue *queue,
                                           uint64_t user_data,
                                           kvmem_error **error);

/// Destroys a directory handle. Withdraws the entries that were published with it, and waits at most two
/// seconds for that. Entries and events that were returned remain valid.
///
/// @param directory a directory that no other call uses; NULL does nothing
void kvmem_directory_destroy(kvmem_directory *directory);

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
///         KVMEM_STATUS_INVALID_ARGUMENT: the name is the agent's own; the bytes begin with KVMEMSRV, as
///           requests of kvmem itself do
///         KVMEM_STATUS_OUT_OF_RANGE: the message has more than 64 MiB less 4 KiB, which no peer keeps
///         KVMEM_STATUS_NOT_FOUND: the metadata of the peer is not loaded
///         KVMEM_STATUS_STALE: the metadata of the peer was invalidated
///         KVMEM_STATUS_PEER_LOST: the process of the peer has ended, or the connection to a peer on another
///           machine or in another PID namespace has failed; known only if a layout of the peer was imported
///         KVMEM_STATUS_NIXL
kvmem_status kvmem_agent_notify(kvmem_agent *agent,
                                const char *remote,
                                const void *data,
                                size_t size,
                                kvmem_error **error);

/// Returns all messages that an agent has received, and waits for one if there is none. Each message is
/// returned once.
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
/// those that wait. The next call fails and reports how many were lost, and the call after it returns
/// those that arrived later.
///
/// @param agent an agent
/// @param timeout_ns nanoseconds to wait; 0 does not wait; KVMEM_TIMEOUT_FOREVER for no limit
/// @param notifications receives the messages, at least one; the caller destroys them
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_TIMED_OUT: no message has arrived in time; if a call of NIXL does not return, the
///           wait ends 100 ms after the timeout
///         KVMEM_STATUS_OUT_OF_MEMORY: messages were lost at this point, because too many waited; call again
///           for later ones, and have the peers repeat what the caller needs
///         KVMEM_STATUS_NIXL
///
/// Notes: NIXL itself keeps any number of messages until kvmem looks for them. It does so while a call waits,
/// a queue is set, or the agent serves a layout, and if the agent has no progress thread.
kvmem_status kvmem_agent_take_notifications(kvmem_agent *agent,
                                            uint64_t timeout_ns,
                                            kvmem_notifications **notifications,
                                            kvmem_error **error);

/// Has a queue report that messages have arrived at an agent, so that no thread needs to wait for them.
///
/// When messages arrive and none waited before, the queue gets a completion with status KVMEM_STATUS_OK and 0
/// bytes. Take the messages with kvmem_agent_take_notifications then, with timeout 0. The next completion
/// follows when messages arrive after that. If messages were lost, another completion follows when those
/// before the loss have been taken.
///
/// @param agent an agent
/// @param queue the queue, which replaces the one before; NULL ends the reports
/// @param user_data user_data of the completions
/// @return KVMEM_STATUS_OK
///
/// Notes: NIXL has no event for messages. While a queue is set, the thread of the agent looks for them, at
/// most every 50 us, and every 500 us if none arrive. If another thread uses the agent then, that one looks.
kvmem_status kvmem_agent_report_notifications(kvmem_agent *agent,
                                              kvmem_queue *queue,
                                              uint64_t user_data,
                                              kvmem_error **error);

/// Returns the number of messages.
///
/// @param notifications messages; NULL returns 0
size_t kvmem_notifications_count(const kvmem_notifications *notifications);

/// Returns one of the messages. They are in the order in which they have arrived.
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

/* ---- Prepared lists of raw descriptors ---- */

/// A list of descriptors that NIXL has resolved once, for one side of requests. It keeps the agent alive.
///
/// Threads: all functions may use one list at the same time, except kvmem_prepared_destroy.
typedef struct kvmem_prepared kvmem_prepared;

/// Prepares a list of descriptors, for requests that choose from it by index.
///
/// @param agent the agent that will post the requests
/// @param owner name of the agent that owns the memory, for the remote side of requests: a peer whose
///        metadata is loaded, or the agent itself for files and objects; NULL for the local side
/// @param descriptors a list with at least one descriptor, which is copied
/// @param options backends, custom_parameter; NULL for NIXL's choice
/// @param prepared receives the prepared list; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: the memory is not registered, its owner is not loaded or its loaded
///           metadata does not cover the memory, or the agent has no backend of a given name
///         KVMEM_STATUS_STALE: the metadata of the owner was invalidated
///         KVMEM_STATUS_UNSUPPORTED: a custom parameter is given, and the loaded NIXL has none
///         KVMEM_STATUS_BUSY, KVMEM_STATUS_INVALID_STATE: the registration of a region in the list is being
///           deregistered, or was
///         KVMEM_STATUS_PEER_LOST: the process of the peer has ended; known only if a layout of the peer was
///           imported
///         KVMEM_STATUS_NIXL
kvmem_status kvmem_prepared_create(kvmem_agent *agent,
                                   const char *owner,
                                   const kvmem_descriptors *descriptors,
                                   const kvmem_nixl_options *options,
                                   kvmem_prepared **prepared,
                                   kvmem_error **error);

/// Destroys a prepared list. Requests that were made from it keep it until they are destroyed.
///
/// @param prepared a prepared list that no other call uses; NULL does nothing
void kvmem_prepared_destroy(kvmem_prepared *prepared);

/* ---- Requests on raw descriptors ---- */

/// A request: one NIXL transfer between raw descriptors. It can be posted repeatedly, and keeps its
/// agent, prepared lists and the regions of its lists alive. Other memory must stay valid until the request
/// is complete.
///
/// Threads: all functions may use one request at the same time, except kvmem_request_destroy.
typedef struct kvmem_request kvmem_request;

/// From the remote side to the local side.
#define KVMEM_REQUEST_READ 1
/// From the local side to the remote side.
#define KVMEM_REQUEST_WRITE 2

/// Creates a request on two lists of descriptors, which correspond by index.
///
/// @param agent an agent
/// @param operation KVMEM_REQUEST_* value
/// @param local memory of the agent
/// @param owner name of the agent that owns the remote side: a peer whose metadata is loaded, or the agent
///        itself for files and objects
/// @param remote memory of the owner, with as many descriptors of the same sizes
/// @param options all fields; NULL for the defaults
/// @param request receives the request; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: a list is empty, or the lists differ in number or sizes
///         KVMEM_STATUS_NOT_FOUND: memory is not registered, the owner is not loaded, its loaded metadata
///           does not cover the memory, no backend reaches it, or the agent has no backend of a given name
///         KVMEM_STATUS_STALE: the metadata of the owner was invalidated
///         KVMEM_STATUS_UNSUPPORTED: a custom parameter is given, and the loaded NIXL has none
///         KVMEM_STATUS_BUSY, KVMEM_STATUS_INVALID_STATE: the registration of a region in local is being
///           deregistered, or was
///         KVMEM_STATUS_PEER_LOST: the process of the peer has ended; known only if a layout of the peer was
///           imported
///         KVMEM_STATUS_NIXL
kvmem_status kvmem_request_create(kvmem_agent *agent,
                                  uint32_t operation,
                                  const kvmem_descriptors *local,
                                  const char *owner,
                                  const kvmem_descriptors *remote,
                                  const kvmem_nixl_options *options,
                                  kvmem_request **request,
                                  kvmem_error **error);

/// Creates a request on descriptors of two prepared lists. NIXL merges descriptors that are neighbours on
/// both sides, unless KVMEM_NIXL_SKIP_MERGE is set.
///
/// @param operation KVMEM_REQUEST_* value
/// @param local a list that was prepared for the local side
/// @param local_indices indices in that list
/// @param remote a list that was prepared for the remote side, by the same agent
/// @param remote_indices indices in that list, which correspond to those of the local side by position
/// @param count number of indices of each side, at least 1
/// @param options all fields; NULL for the defaults
/// @param request receives the request; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the lists were prepared by different agents or for the wrong sides,
///           or sizes differ
///         KVMEM_STATUS_OUT_OF_RANGE: an index is too large
///         KVMEM_STATUS_NOT_FOUND: no backend has both sides, or the agent has no backend of a given name
///         KVMEM_STATUS_STALE: the metadata of the owner was invalidated
///         KVMEM_STATUS_UNSUPPORTED: a custom parameter is given, and the loaded NIXL has none
///         KVMEM_STATUS_PEER_LOST: the process of the peer has ended; known only if a layout of the peer was
///           imported
///         KVMEM_STATUS_NIXL
kvmem_status kvmem_request_make(uint32_t operation,
                                const kvmem_prepared *local,
                                const uint32_t *local_indices,
                                const kvmem_prepared *remote,
                                const uint32_t *remote_indices,
                                size_t count,
                                const kvmem_nixl_options *options,
                                kvmem_request **request,
                                kvmem_error **error);

/// Starts a run of a request. After the run has ended, the request can be posted again.
///
/// The bytes of the notification are those of the options that the request was created with, unless this call
/// has others.
///
/// @param request a request
/// @param notification bytes for the peer, for this run; NULL with size 0 for those of the request
/// @param size number of bytes
/// @return KVMEM_STATUS_OK: the run has started. Poll, wait and the queue report its end
///         KVMEM_STATUS_INVALID_ARGUMENT: the notification begins with KVMEMSRV, as requests of kvmem do
///         KVMEM_STATUS_BUSY: the request is in flight, or NIXL still executes a run that has timed out
///         KVMEM_STATUS_INVALID_STATE: a run has failed; NIXL cannot run the request again
///         KVMEM_STATUS_STALE: the metadata of the peer was invalidated
///         KVMEM_STATUS_OUT_OF_MEMORY: the thread that watches limits could not be started
///
/// The completion of the run can be in the queue before this call has returned. Destroy the request only
/// after both.
///
/// Notes: NIXL copies host memory of a peer within its call. A request to a peer, of at most 1 MiB in at most
/// 128 descriptors, is therefore posted by the calling thread, if no other thread uses the agent; a larger
/// one by the thread of the agent.
kvmem_status kvmem_request_post(kvmem_request *request,
                                const void *notification,
                                size_t size,
                                kvmem_error **error);

/// Returns the state of the last run of a request. Never waits.
///
/// @param request a request
/// @return KVMEM_STATUS_OK: the run has succeeded
///         KVMEM_STATUS_IN_PROGRESS: the run is in flight
///         KVMEM_STATUS_INVALID_STATE: the request was not posted
///         KVMEM_STATUS_TIMED_OUT: the run has ended, because it took longer than timeout_ns of its options
///         KVMEM_STATUS_PEER_LOST, KVMEM_STATUS_STALE, KVMEM_STATUS_UNSUPPORTED, KVMEM_STATUS_NOT_FOUND,
///         KVMEM_STATUS_NIXL, KVMEM_STATUS_PANIC: the run has failed
kvmem_status kvmem_request_poll(const kvmem_request *request, kvmem_error **error);

/// Waits for the end of the last run of a request.
///
/// @param request a request
/// @param timeout_ns nanoseconds to wait; 0 does not wait; KVMEM_TIMEOUT_FOREVER for no limit
/// @return KVMEM_STATUS_OK: the run has succeeded
///         KVMEM_STATUS_TIMED_OUT: the run is still in flight, or has ended because it took longer than
///           timeout_ns of its options; kvmem_request_poll distinguishes them
///         KVMEM_STATUS_INVALID_STATE: the request was not posted
///         KVMEM_STATUS_PEER_LOST, KVMEM_STATUS_STALE, KVMEM_STATUS_UNSUPPORTED, KVMEM_STATUS_NOT_FOUND,
///         KVMEM_STATUS_NIXL, KVMEM_STATUS_PANIC: the run has failed
kvmem_status kvmem_request_wait(const kvmem_request *request, uint64_t timeout_ns, kvmem_error **error);

/// Returns the plugin of the backend that NIXL chose for a request.
///
/// @param request a request
/// @param plugin receives the name as text; the caller destroys the blob
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_STALE: the request was released, because it failed or its peer was invalidated
///         KVMEM_STATUS_NIXL, KVMEM_STATUS_NOT_FOUND
kvmem_status kvmem_request_get_backend(const kvmem_request *request,
                                       kvmem_blob **plugin,
                                       kvmem_error **error);

/// NIXL's estimate of the duration of a request.
typedef struct kvmem_request_cost {
    /// Estimated duration in nanoseconds.
    uint64_t duration_ns;
    /// Margin of error of duration_ns, in nanoseconds.
    uint64_t margin_ns;
    /// 0 if the backend has calculated it; other values are NIXL's.
    uint32_t method;
    /// 0.
    uint32_t reserved;
} kvmem_request_cost;

/// Estimates how long a request takes.
///
/// @param request a request
/// @param cost receives the estimate
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_STALE: the request was released, because it failed or its peer was invalidated
///         KVMEM_STATUS_NIXL, KVMEM_STATUS_NOT_FOUND: the backend has no estimate
///
/// Notes: NIXL estimates in whole microseconds. UCX returns 0 for host memory of a peer on the same machine,
/// also for 1 MiB (NIXL 1.5).
kvmem_status kvmem_request_estimate(const kvmem_request *request,
                                    kvmem_request_cost *cost,
                                    kvmem_error **error);

/// NIXL's measurements of the last run of a request.
typedef struct kvmem_request_telemetry {
    /// When the run was posted: nanoseconds of CLOCK_MONOTONIC.
    uint64_t start_ns;
    /// Duration of the call that posted it, in nanoseconds.
    uint64_t post_ns;
    /// Duration of the transfer, in nanoseconds.
    uint64_t duration_ns;
    /// Bytes moved.
    uint64_t bytes;
    /// Number of descriptors, after NIXL has merged neighbours.
    uint64_t descriptors;
} kvmem_request_telemetry;

/// Returns NIXL's measurements of the last run of a request.
///
/// @param request a request of an agent that was created with KVMEM_AGENT_TELEMETRY
/// @param telemetry receives the measurements
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_STATE: the request was not posted, or the agent has no telemetry
///         KVMEM_STATUS_BUSY: the run is in flight
///         KVMEM_STATUS_STALE: the request was released, because it failed or its peer was invalidated
///         KVMEM_STATUS_NIXL, KVMEM_STATUS_NOT_FOUND
kvmem_status kvmem_request_get_telemetry(const kvmem_request *request,
                                         kvmem_request_telemetry *telemetry,
                                         kvmem_error **error);

/// Destroys a request. A run in flight continues, and its end is reported to the queue: NIXL cannot cancel a
/// run. The memory must stay valid until then.
///
/// A completion can be in the queue before kvmem_request_post has returned in another thread. That call still
/// uses the request: destroy it after both.
///
/// @param request a request that no other call uses; NULL does nothing
void kvmem_request_destroy(kvmem_request *request);

/* ---- Telemetry of agents ---- */

/// NIXL's measurements of an agent since it was created: sums over all runs of its requests, those of
/// transfers included.
typedef struct kvmem_agent_telemetry {
    /// Runs that have succeeded.
    uint64_t succeeded;
    /// Runs that have failed.
    uint64_t failed;
    /// Runs that are in flight now.
    uint64_t in_flight;
    /// Bytes that were read from peers, files and objects.
    uint64_t bytes_read;
    /// Bytes that were written to peers, files and objects.
    uint64_t bytes_written;
    /// Descriptors of those runs, after NIXL has merged neighbours.
    uint64_t descriptors;
    /// Sum of the durations of the calls that posted the runs, in nanoseconds.
    uint64_t post_ns;
    /// Sum of the durations of the runs that have succeeded, in nanoseconds. Runs may overlap.
    uint64_t duration_ns;
    /// The longest of these durations, in nanoseconds.
    uint64_t longest_ns;
    /// Notifications that were sent without a request.
    uint64_t notifications_sent;
    /// Notifications that have arrived, also those that were lost because too many waited.
    uint64_t notifications_received;
} kvmem_agent_telemetry;

/// Returns NIXL's measurements of an agent since it was created.
///
/// @param agent an agent that was created with KVMEM_AGENT_TELEMETRY
/// @param telemetry receives the sums
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_STATE: the agent has no telemetry
///
/// Notes: a transfer consists of one or several requests; kvmem_transfer_get_info has their number. NIXL
/// measures in microseconds.
kvmem_status kvmem_agent_get_telemetry(kvmem_agent *agent,
                                       kvmem_agent_telemetry *telemetry,
                                       kvmem_error **error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_NIXL_H */
