/* SPDX-License-Identifier: Apache-2.0 */
/* kvmem: NIXL as it is: requests on raw descriptors, prepared lists, memory views, queries, plugins,
 * telemetry, metadata by address. Generated from src/ffi; do not edit.
 *
 * For an engine that computes addresses itself, or that uses a backend without layouts:
 *
 *     kvmem_request_create(agent, KVMEM_REQUEST_READ, local, "peer", remote, count, NULL, &request, &error);
 *     kvmem_request_post(request, NULL, 0, &error);
 *     kvmem_request_wait(request, timeout_ns, &error);
 *
 * Statuses of all functions with kvmem_nixl_options:
 * KVMEM_STATUS_NOT_FOUND: memory is not registered; the metadata of a peer is not loaded, or does not cover
 *   its memory; or the agent has no backend of a given name.
 * KVMEM_STATUS_STALE: the metadata of a peer was invalidated.
 * KVMEM_STATUS_PEER_LOST: the process of a peer has ended; known only if a layout of the peer was imported.
 * KVMEM_STATUS_BUSY, KVMEM_STATUS_INVALID_STATE: the registration of a region is being deregistered, or was.
 * KVMEM_STATUS_UNSUPPORTED: a custom parameter is given, and the loaded NIXL has none.
 */

#ifndef KVMEM_NIXL_RAW_H
#define KVMEM_NIXL_RAW_H

#include "nixl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Options of calls ---- */

#define KVMEM_NIXL_NOTIFY 1  ///< Send the notification, also if it has no bytes.
#define KVMEM_NIXL_SKIP_MERGE 2  ///< NIXL does not merge neighbouring descriptors.
#define KVMEM_NIXL_REPORT_RELEASE 4  ///< As KVMEM_TRANSFER_REPORT_RELEASE, for runs of a request.

/// Options of functions that take raw descriptors. A function fails with KVMEM_STATUS_INVALID_ARGUMENT for a
/// field that it does not use; its comment lists the fields that it uses.
typedef struct kvmem_nixl_options {
    size_t struct_size;
    uint64_t flags;  ///< KVMEM_NIXL_* flags.
    /// Plugins of the backends to use, each once, in order of preference; NULL with count 0 for all.
    const char *const *backends;
    size_t backend_count;  ///< Number of backends.
    const void *custom_parameter;  ///< Bytes that the backend understands; NULL with size 0 for none.
    size_t custom_parameter_size;  ///< Number of those bytes.
    kvmem_queue *queue;  ///< Receives a completion for each run of a request; may be NULL.
    uint64_t user_data;  ///< user_data of the completions.
    /// Nanoseconds that a run of a request may take; 0 or KVMEM_TIMEOUT_FOREVER for no limit. A
    /// run that takes longer ends with KVMEM_STATUS_TIMED_OUT, also if a call of NIXL does not return, and
    /// NIXL may use its memory until the request can be posted again. Runs with a limit are posted by the
    /// thread of the agent, which has to wake up first.
    uint64_t run_timeout_ns;
    const void *notification;  ///< Bytes that the peer gets at the end; NULL with size 0 for none.
    size_t notification_size;  ///< Number of those bytes.
} kvmem_nixl_options;

/* ---- Descriptors ---- */

/// Memory, a file, an object or a block as NIXL addresses it. The memory need not belong to kvmem. Calls copy
/// the descriptors that they take, with metadata and names. An array has at least one, all of one memory
/// type.
typedef struct kvmem_nixl_descriptor {
    uint64_t address;  ///< Address, or offset in a file or object.
    uint64_t size;  ///< Size in bytes.
    /// 0 for host memory, the ordinal of a GPU, the fd of a file, the number of an object or block device.
    uint64_t device_id;
    uint32_t memory_type;  ///< KVMEM_MEMORY_* value.
    uint32_t reserved;
    /// For registrations and queries: an object's key, a file's path and so on; NULL with size 0 for none.
    const void *metadata;
    size_t metadata_size;  ///< Number of bytes of metadata.
    const char *agent;  ///< For memory views of peers: name of the agent that owns it; otherwise NULL.
    /// Region of the memory; NULL for none. Objects that are created from the descriptor keep the region
    /// alive. Requests and prepared lists also keep its registration with the agent.
    const kvmem_region *region;
} kvmem_nixl_descriptor;

/// Returns the memory of a region as descriptors: one per span that is registered. Those of objects and block
/// storage have the keys or the metadata, and are of the whole region, also if it is a view.
/// @param descriptors receives the descriptors, which refer to the region; their metadata is valid as long as
///        it. NULL with capacity 0 to get only their number
/// @param capacity elements of descriptors
/// @param count receives the number of descriptors of the region
/// @return KVMEM_STATUS_OUT_OF_RANGE: capacity is less than the number, which the message has
kvmem_status kvmem_region_get_descriptors(const kvmem_region *region, kvmem_nixl_descriptor *descriptors,
    size_t capacity, size_t *count, kvmem_error **error);

/* ---- Requests ---- */

/// A request: one NIXL transfer between raw descriptors. It can be posted repeatedly, and keeps its agent,
/// prepared lists and the regions of its descriptors alive. Other memory must stay valid until its end.
typedef struct kvmem_request kvmem_request;

#define KVMEM_REQUEST_READ 1  ///< From the remote side to the local side.
#define KVMEM_REQUEST_WRITE 2  ///< From the local side to the remote side.

/// Creates a request on two arrays of descriptors, which correspond by index.
/// @param local memory of the agent
/// @param owner name of the remote side's agent: a peer that is loaded, or this agent for files and objects
/// @param remote memory of the owner, in descriptors of the same sizes
/// @param options all fields; NULL for the defaults
/// @return KVMEM_STATUS_INVALID_ARGUMENT: count is 0, or sizes differ
kvmem_status kvmem_request_create(kvmem_agent *agent, uint32_t operation, const kvmem_nixl_descriptor *local,
    const char *owner, const kvmem_nixl_descriptor *remote, size_t count, const kvmem_nixl_options *options,
    kvmem_request **request, kvmem_error **error);

/// Starts a run of a request. After the run has ended, the request can be posted again.
/// @param notification bytes for the peer, for this run; NULL with size 0 for those of the request's options
/// @return KVMEM_STATUS_OK: the run has started. Poll, wait and the queue report its end
///         KVMEM_STATUS_INVALID_ARGUMENT: the notification begins with KVMEMSRV, as requests of kvmem do
///         KVMEM_STATUS_BUSY: the request is in flight, or NIXL still executes a run that has timed out; or a
///           run of another request or transfer that has ended may still write to the same memory
///         KVMEM_STATUS_INVALID_STATE: a run has failed; NIXL cannot run the request again
///         KVMEM_STATUS_STALE: the metadata of the peer was invalidated
///
/// Notes: NIXL copies host memory of a peer within its call. A request to a peer, of at most 1 MiB in at most
/// 128 descriptors, is posted by the calling thread, if no other thread uses the agent; others by its thread.
kvmem_status kvmem_request_post(kvmem_request *request, const void *notification, size_t size,
    kvmem_error **error);

/// Returns the state of the last run of a request. Never waits.
/// @return KVMEM_STATUS_OK: the run has succeeded
///         KVMEM_STATUS_IN_PROGRESS: the run is in flight
///         KVMEM_STATUS_INVALID_STATE: the request was not posted
///         KVMEM_STATUS_TIMED_OUT: the run has ended, because it took longer than run_timeout_ns
///         KVMEM_STATUS_PEER_LOST, KVMEM_STATUS_STALE, KVMEM_STATUS_UNSUPPORTED, KVMEM_STATUS_NOT_FOUND,
///         KVMEM_STATUS_NIXL, KVMEM_STATUS_PANIC: the run has failed
kvmem_status kvmem_request_poll(const kvmem_request *request, kvmem_error **error);

/// Waits for the end of the last run of a request.
/// @return KVMEM_STATUS_OK: the run has succeeded
///         KVMEM_STATUS_TIMED_OUT: the run is still in flight, or has ended because it took longer than
///           run_timeout_ns; kvmem_request_poll distinguishes them
///         KVMEM_STATUS_INVALID_STATE: the request was not posted
///         KVMEM_STATUS_PEER_LOST, KVMEM_STATUS_STALE, KVMEM_STATUS_UNSUPPORTED, KVMEM_STATUS_NOT_FOUND,
///         KVMEM_STATUS_NIXL, KVMEM_STATUS_PANIC: the run has failed
kvmem_status kvmem_request_wait(const kvmem_request *request, uint64_t timeout_ns, kvmem_error **error);

/// Destroys a request. A run in flight continues, and its end is reported to the queue: NIXL cannot cancel a
/// run. The memory must stay valid until then.
///
/// A completion can be in the queue before kvmem_request_post has returned in another thread. That call still
/// uses the request: destroy it after both.
void kvmem_request_destroy(kvmem_request *request);

/* ---- Registered descriptors ---- */

/// Descriptors that an agent has registered: memory that is in no region, objects and blocks. It keeps the
/// agent alive, and the regions of its descriptors.
typedef struct kvmem_segments kvmem_segments;

/// Registers descriptors with an agent. The memory must stay valid until they are deregistered.
/// @param options backends, custom_parameter; NULL for all backends that accept the memory type
/// @return KVMEM_STATUS_OK: all given backends have accepted the descriptors; without backends at least one
///         KVMEM_STATUS_ALREADY_EXISTS: a descriptor is registered with the agent, or is listed twice
///         KVMEM_STATUS_UNSUPPORTED: a given backend does not accept the memory type
///         KVMEM_STATUS_NIXL: no backend has accepted the descriptors, or a given backend has not; no backend
///           has them now
kvmem_status kvmem_segments_register(kvmem_agent *agent, const kvmem_nixl_descriptor *descriptors,
    size_t count, const kvmem_nixl_options *options, kvmem_segments **segments, kvmem_error **error);

/// Deregisters descriptors, and reports whether that failed. kvmem_segments_destroy deregisters them too, but
/// does not report. Requests and prepared lists of the agent that use the memory become stale: the next run
/// of such a request ends with KVMEM_STATUS_STALE, and kvmem_request_make fails with it.
/// @param segments registered descriptors; the handle stays valid and must be destroyed
/// @return KVMEM_STATUS_BUSY: a request on the descriptors is in flight
///         KVMEM_STATUS_INVALID_STATE: the descriptors were already deregistered
///         KVMEM_STATUS_TIMED_OUT, KVMEM_STATUS_NIXL: NIXL has not returned within call_timeout_ns of the
///           agent, or has failed; the memory may still be in use and must not be freed
///         KVMEM_STATUS_NIXL: NIXL failed
///         After the last two the memory may still be in use and must not be freed.
kvmem_status kvmem_segments_deregister(kvmem_segments *segments, kvmem_error **error);

/// Destroys registered descriptors, and deregisters them. If a request on them is in flight, the agent
/// deregisters them when it has ended. Wait for requests before this call. If NIXL does not return within
/// call_timeout_ns of the agent, they stay registered: kvmem_segments_deregister reports that.
void kvmem_segments_destroy(kvmem_segments *segments);

/* ---- Prepared lists of descriptors ---- */

/// A list of descriptors that NIXL has resolved, for one side of requests. It keeps agent and regions alive.
typedef struct kvmem_prepared kvmem_prepared;

/// Prepares descriptors, for requests that choose from them by index.
/// @param agent the agent that will post the requests
/// @param owner name of the agent that owns the memory, for the remote side of requests: a peer whose
///        metadata is loaded, or the agent itself for files and objects; NULL for the local side
/// @param options backends, custom_parameter; NULL for NIXL's choice
kvmem_status kvmem_prepared_create(kvmem_agent *agent, const char *owner,
    const kvmem_nixl_descriptor *descriptors, size_t count, const kvmem_nixl_options *options,
    kvmem_prepared **prepared, kvmem_error **error);

/// Destroys a prepared list. Requests that were made from it keep it until they are destroyed.
void kvmem_prepared_destroy(kvmem_prepared *prepared);

/// Creates a request on descriptors of two prepared lists. NIXL merges descriptors that are neighbours on
/// both sides, unless KVMEM_NIXL_SKIP_MERGE is set.
/// @param local a list that was prepared for the local side
/// @param local_indices indices in that list
/// @param remote a list that was prepared for the remote side, by the same agent
/// @param remote_indices indices in that list, which correspond to those of the local side by position
/// @param count number of indices of each side, at least 1
/// @param options all fields; NULL for the defaults
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the lists are of different agents or wrong sides, or sizes differ
///         KVMEM_STATUS_NOT_FOUND: no backend has both sides
kvmem_status kvmem_request_make(uint32_t operation, const kvmem_prepared *local,
    const uint32_t *local_indices, const kvmem_prepared *remote, const uint32_t *remote_indices, size_t count,
    const kvmem_nixl_options *options, kvmem_request **request, kvmem_error **error);

/* ---- Backend, estimate and measurements of a request ---- */

/// Returns the plugin of the backend that NIXL chose for a request.
/// @return KVMEM_STATUS_STALE: the request was released, because it failed or its peer was invalidated
///         KVMEM_STATUS_NOT_FOUND
kvmem_status kvmem_request_get_backend(const kvmem_request *request, kvmem_blob **plugin,
    kvmem_error **error);

/// NIXL's estimate of the duration of a request.
typedef struct kvmem_request_cost {
    uint64_t duration_ns;  ///< Estimated duration in nanoseconds.
    uint64_t margin_ns;  ///< Margin of error of duration_ns, in nanoseconds.
    uint32_t method;  ///< 0 if the backend has calculated it; other values are NIXL's.
    uint32_t reserved;
} kvmem_request_cost;

/// Estimates how long a request takes.
/// @return KVMEM_STATUS_STALE: the request was released, because it failed or its peer was invalidated
///         KVMEM_STATUS_NIXL, KVMEM_STATUS_NOT_FOUND: the backend has no estimate
///
/// Notes: NIXL estimates in whole microseconds. UCX returns 0 for host memory of a peer on this machine.
kvmem_status kvmem_request_estimate(const kvmem_request *request, kvmem_request_cost *cost,
    kvmem_error **error);

/// NIXL's measurements of the last run of a request.
typedef struct kvmem_request_telemetry {
    uint64_t start_ns;  ///< When the run was posted: nanoseconds of CLOCK_MONOTONIC.
    uint64_t post_ns;  ///< Duration of the call that posted it, in nanoseconds.
    uint64_t duration_ns;  ///< Duration of the transfer, in nanoseconds.
    uint64_t bytes;  ///< Bytes moved.
    uint64_t descriptors;  ///< Number of descriptors, after NIXL has merged neighbours.
} kvmem_request_telemetry;

/// Returns NIXL's measurements of the last run of a request.
/// @return KVMEM_STATUS_INVALID_STATE: the request was not posted, or KVMEM_AGENT_TELEMETRY is not set
///         KVMEM_STATUS_BUSY: the run is in flight
///         KVMEM_STATUS_STALE: the request was released, because it failed or its peer was invalidated
///         KVMEM_STATUS_NOT_FOUND
kvmem_status kvmem_request_get_telemetry(const kvmem_request *request, kvmem_request_telemetry *telemetry,
    kvmem_error **error);

/* ---- Memory views ---- */

/// A memory view of NIXL: registered memory that kernels on a GPU can access through NIXL's device API. It is
/// not a region; kvmem_region_create_view creates a region that is a part of another one. It keeps the agent
/// alive.
typedef struct kvmem_memory_view kvmem_memory_view;

/// Creates a memory view: of memory of the agent, or of memory of peers if the descriptors name agents.
/// @param options backends, custom_parameter; NULL for NIXL's choice
/// @param handle receives the handle of the view for NIXL's device API, which is valid as long as the view
/// @return KVMEM_STATUS_UNSUPPORTED: the loaded NIXL has no memory views
///         KVMEM_STATUS_NIXL: no backend has views of this memory; UCX has none on a host without a GPU
///
/// Notes: UCX creates a view only if it was built with its device API, as in NIXL's wheels, and if it can
/// allocate GPU memory, which it does for views of any memory. NIXL's other plugins have no views.
kvmem_status kvmem_memory_view_create(kvmem_agent *agent, const kvmem_nixl_descriptor *descriptors,
    size_t count, const kvmem_nixl_options *options, void **handle, kvmem_memory_view **view,
    kvmem_error **error);

/// Destroys a memory view. No kernel may use it any more.
void kvmem_memory_view_destroy(kvmem_memory_view *view);

/* ---- Queries ---- */

/// The result for one descriptor.
typedef struct kvmem_query_result {
    const kvmem_parameter *parameters;  ///< Properties of the file, object or memory, named by the backend.
    size_t parameter_count;  ///< Number of properties.
    uint32_t exists;  ///< 1 if it exists, otherwise 0.
    uint32_t reserved;
} kvmem_query_result;

/// Results of a backend. The caller destroys them.
typedef struct kvmem_query {
    const kvmem_query_result *items;  ///< One per descriptor, in their order; NULL if there are none.
    size_t count;  ///< Their number.
} kvmem_query;

/// Queries a backend for the existence and the properties of files, objects or memory.
/// @param descriptors for "POSIX" with the path of each file in metadata, for "OBJ" with the key of the
///         object
/// @param options backends: one; NULL if only one backend accepts the memory type
/// @param query receives a result per descriptor, in their order
/// @return KVMEM_STATUS_INVALID_ARGUMENT: several backends accept the memory type, and none is given; or
///           count is 0, or a file has no metadata
///         KVMEM_STATUS_UNSUPPORTED: the given backend does not accept the memory type
///         KVMEM_STATUS_TIMED_OUT: NIXL has not returned 100 ms after timeout_ns
///         KVMEM_STATUS_NIXL: no backend accepts the memory type, or the backend cannot be queried
kvmem_status kvmem_agent_query(kvmem_agent *agent, const kvmem_nixl_descriptor *descriptors, size_t count,
    const kvmem_nixl_options *options, uint64_t timeout_ns, kvmem_query **query, kvmem_error **error);

/// Destroys results.
void kvmem_query_destroy(kvmem_query *query);

/* ---- Plugins, backends, connections ---- */

/// A plugin of NIXL, or a backend that an agent has created from one.
typedef struct kvmem_plugin {
    const char *name;  ///< Name of the plugin.
    const char *failure;  ///< Why the plugin does not load, such as a missing library; NULL if it loads.
    const kvmem_parameter *parameters;  ///< Parameters: defaults of a plugin, the actual ones of a backend.
    size_t parameter_count;  ///< Number of parameters.
    uint32_t memory_types;  ///< The memory types that it accepts: bit 1 << KVMEM_MEMORY_* for each.
    uint32_t reserved;
} kvmem_plugin;

/// A list of plugins or backends. The caller destroys it.
typedef struct kvmem_plugins {
    const kvmem_plugin *items;  ///< Plugins or backends, sorted by name; NULL if there are none.
    size_t count;  ///< Their number.
} kvmem_plugins;

/// Lists the plugins that NIXL finds. Loads each of them, to get its parameters and memory types. A plugin
/// that does not load is in the list with the reason.
kvmem_status kvmem_agent_get_plugins(kvmem_agent *agent, kvmem_plugins **plugins, kvmem_error **error);

/// Lists the backends of an agent.
kvmem_status kvmem_agent_get_backends(kvmem_agent *agent, kvmem_plugins **backends, kvmem_error **error);

/// Destroys a list of plugins or backends.
void kvmem_plugins_destroy(kvmem_plugins *plugins);

/// Connects an agent to a peer now. Otherwise the first transfer or notification does, and takes longer.
/// @param options backends, custom_parameter; NULL for all backends
/// @return KVMEM_STATUS_TIMED_OUT: NIXL has not returned 100 ms after timeout_ns; it may connect later
///         KVMEM_STATUS_INVALID_ARGUMENT: the name is the agent's own
///         KVMEM_STATUS_STALE: the metadata of the peer was invalidated
kvmem_status kvmem_agent_connect(kvmem_agent *agent, const char *remote, const kvmem_nixl_options *options,
    uint64_t timeout_ns, kvmem_error **error);

/* ---- Metadata by address, and of some regions ---- */
/* The listen thread of an agent exchanges metadata with that of a peer; both need one. `address` is an IPv4
 * address or host name of the peer, such as "127.0.0.1" or "node7.example.com", and `port` its listen port, 1
 * to 65535. A function with an address looks up the host, and connects to the address, because NIXL does not
 * report a failed connection: without a timeout for at most 5 s and 1 s. It resets that connection, which the
 * NIXL of the peer reports on its stderr. Statuses of all functions with an address:
 * KVMEM_STATUS_INVALID_STATE: the agent has no listen thread.
 * KVMEM_STATUS_NOT_FOUND: nothing listens at the address, or the host is not known.
 * KVMEM_STATUS_TIMED_OUT: the name servers have not found the host.
 * KVMEM_STATUS_IO, KVMEM_STATUS_PERMISSION_DENIED: the address cannot be reached. */

/// Requests the metadata of a peer from its listen thread.
///
/// If no metadata of the peer is loaded, the call waits until it is. If older metadata is loaded, the call
/// returns as soon as the request is queued, because NIXL does not report the arrival of newer metadata.
/// Until it arrives, kvmem_layout_import fails with KVMEM_STATUS_NOT_FOUND for newer layouts.
///
/// NIXL rejects the metadata of a restarted peer while older metadata is loaded. To wait for the arrival in
/// all cases, call kvmem_agent_invalidate_remote_metadata first. While requests to the earlier process are in
/// flight, only kvmem_agent_load_remote_metadata and directories can load its successor.
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the name is the agent's own
///         KVMEM_STATUS_BUSY: requests to an earlier process of that name are in flight
///         KVMEM_STATUS_TIMED_OUT: the metadata did not arrive in time, or the host was not found in time
///
/// Notes: if nothing listens at the address, the call fails after about half a second. With a shorter
/// timeout, it fails with KVMEM_STATUS_TIMED_OUT if no metadata of the peer is loaded.
kvmem_status kvmem_agent_fetch_remote_metadata(kvmem_agent *agent, const char *name, const char *address,
    uint32_t port, uint64_t timeout_ns, kvmem_error **error);

/// Sends the metadata of an agent to the listen thread of a peer, which loads it.
/// @param agent an agent with a backend that reaches peers
/// @return KVMEM_STATUS_OK: the metadata is queued. Its arrival is not certain
kvmem_status kvmem_agent_send_local_metadata(kvmem_agent *agent, const char *address, uint32_t port,
    kvmem_error **error);

/// Returns metadata of some of an agent's memory. A peer adds it to the metadata that it has loaded.
///
/// The metadata of an empty list is the connection information; that of other lists does not have it. So a
/// peer first loads the metadata of an empty list, or all metadata. Before it imports a layout, it also loads
/// that of some host memory, or all metadata: these identify the agent.
/// @param descriptors registered memory, of one memory type; NULL with count 0 for none
/// @param options backends; NULL for all
/// @return KVMEM_STATUS_NIXL: the agent has no backend that reaches peers
kvmem_status kvmem_agent_get_partial_metadata(kvmem_agent *agent, const kvmem_nixl_descriptor *descriptors,
    size_t count, const kvmem_nixl_options *options, kvmem_blob **metadata, kvmem_error **error);

/// Sends metadata of some of an agent's memory to the listen thread of a peer, which adds it.
/// @param agent an agent with a backend that reaches peers
/// @param descriptors registered memory; NULL with count 0 sends the connection information only
/// @return KVMEM_STATUS_OK: the metadata is queued. Its arrival is not certain
///         KVMEM_STATUS_NOT_FOUND: memory is not registered
kvmem_status kvmem_agent_send_partial_metadata(kvmem_agent *agent, const kvmem_nixl_descriptor *descriptors,
    size_t count, const char *address, uint32_t port, kvmem_error **error);

/// Requests that the listen thread of a peer removes the metadata of an agent. Call it before the agent ends.
///
/// If the peer uses kvmem, its layouts of this agent then fail with KVMEM_STATUS_STALE, also after it has
/// loaded the metadata again. Later exports can be imported with later metadata only, also by other peers.
/// @return KVMEM_STATUS_OK: the message is queued. Its arrival is not certain
///
/// Notes: NIXL removes the metadata at the peer at once: transfers of the peer with this agent then fail.
kvmem_status kvmem_agent_invalidate_local_metadata(kvmem_agent *agent, const char *address, uint32_t port,
    kvmem_error **error);

/* ---- Layouts over descriptors of a peer ---- */

/// Creates a remote layout over raw memory of a peer, which need not use kvmem.
/// @param agent the agent that will access the layout
/// @param owner name of the peer that owns the memory; its metadata must be loaded
/// @param config shape of the blocks, as they are in the memory of the peer
/// @param descriptors one descriptor per region of the layout, in their order, each at least as large
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the shape is invalid, the number of descriptors is wrong, one is
///           not aligned, or two of them overlap in the bytes that the layout needs
///         KVMEM_STATUS_OUT_OF_RANGE: a descriptor is too small, or exceeds the address space
///         KVMEM_STATUS_NOT_FOUND: the metadata of the owner is not loaded, or does not cover the descriptors
///         KVMEM_STATUS_UNSUPPORTED: the descriptors are neither host memory nor GPU memory
///
/// Notes: kvmem does not know the process of the owner. If the owner has ended, a transfer fails with
/// KVMEM_STATUS_NIXL when NIXL detects it, and is in flight until then.
kvmem_status kvmem_layout_create_remote(kvmem_agent *agent, const char *owner,
    const kvmem_layout_config *config, const kvmem_nixl_descriptor *descriptors, size_t count,
    kvmem_layout **layout, kvmem_error **error);

/* ---- Telemetry of agents ---- */

/// NIXL's measurements of an agent since it was created: sums over all runs, those of transfers included.
typedef struct kvmem_agent_telemetry {
    uint64_t succeeded;  ///< Runs that have succeeded.
    uint64_t failed;  ///< Runs that have failed.
    uint64_t in_flight;  ///< Runs that are in flight now.
    uint64_t bytes_read;  ///< Bytes that were read from peers, files and objects.
    uint64_t bytes_written;  ///< Bytes that were written to peers, files and objects.
    uint64_t descriptors;  ///< Descriptors of those runs, after NIXL has merged neighbours.
    uint64_t post_ns;  ///< Sum of the durations of the calls that posted the runs, in nanoseconds.
    uint64_t duration_ns;  ///< Sum of the durations of succeeded runs, in nanoseconds. Runs may overlap.
    uint64_t longest_ns;  ///< The longest of these durations, in nanoseconds.
    uint64_t notifications_sent;  ///< Notifications that were sent without a request.
    uint64_t notifications_received;  ///< Notifications that have arrived, including those that were lost.
} kvmem_agent_telemetry;

/// Returns NIXL's measurements of an agent since it was created.
/// @return KVMEM_STATUS_INVALID_STATE: the agent was created without KVMEM_AGENT_TELEMETRY
///
/// Notes: kvmem_transfer_get_info has the number of requests of a transfer. NIXL measures in microseconds.
kvmem_status kvmem_agent_get_telemetry(kvmem_agent *agent, kvmem_agent_telemetry *telemetry,
    kvmem_error **error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_NIXL_RAW_H */
