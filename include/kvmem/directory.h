/* SPDX-License-Identifier: Apache-2.0 */
/* kvmem: directories: agents and layouts are found by name, in a folder or in etcd.
 * Generated from src/ffi; do not edit.
 *
 * A process publishes its agent and named layouts, and a peer finds them and opens one, mapped on the same
 * machine and by NIXL on another:
 *
 *     kvmem_directory_publish(directory, agent, &named, 1, timeout_ns, &error);
 *
 *     kvmem_directory_connect(directory, agent, "owner", timeout_ns, &entry, &error);
 *     kvmem_directory_entry_open_layout(entry, "cache", &options, timeout_ns, &layout, &error);
 */

#ifndef KVMEM_DIRECTORY_H
#define KVMEM_DIRECTORY_H

#include "nixl.h"
#include "share.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Directories ---- */

/// A directory, in which agents publish metadata and layouts, and peers find them by name: a folder of one
/// machine, or in etcd. An entry exists while its process lives, in etcd until its lease ends.
///
/// No call waits longer than 100 ms after its timeout; with a timeout of 0 it asks once, and waits up to
/// 100 ms for the response. With etcd none waits longer than 10 seconds, also with KVMEM_TIMEOUT_FOREVER,
/// except kvmem_directory_connect and kvmem_directory_take_events.
///
/// Calls fail with KVMEM_STATUS_TIMED_OUT if the directory does not respond, and with KVMEM_STATUS_IO or
/// KVMEM_STATUS_PERMISSION_DENIED if the folder or the servers cannot be accessed.
///
/// Any process that can write to the directory can write anything. An invalid entry is reported as
/// KVMEM_STATUS_CORRUPT with its name, and is not used. A directory does not prove which process published an
/// entry: its permissions determine which processes can write to it.
typedef struct kvmem_directory kvmem_directory;

/// Options of kvmem_directory_create.
typedef struct kvmem_directory_options {
    size_t struct_size;
    /// Path of a folder of this machine, which all processes use. A relative path begins in the present
    /// working directory, also after that has changed. If it does not exist, the first publication creates it
    /// with mode 0700, but not its parents. NULL for etcd.
    const char *folder;
    /// URLs of the servers of etcd, such as "https://10.0.0.1:2379", with http or https. One is used at
    /// a time, and another one if it stops or does not respond. NULL for a folder.
    const char *const *endpoints;
    size_t endpoint_count;  ///< Number of endpoints, at most 64; 0 for a folder.
    /// Prefix of all keys: directories with different ones are independent. NULL for "kvmem", or a folder.
    const char *prefix;
    /// Seconds after the end of a process until etcd removes its entries, 2 to 3600; 0 for 10. For a folder
    /// 0, because the kernel reports the end of a process.
    uint32_t lease_seconds;
    uint32_t reserved;
    const char *user;  ///< Name of the user in etcd; NULL for none.
    const char *password;  ///< Password, required with user. It is never in a message or the log.
    /// Path of a file with certificates of the servers' authorities, in PEM: for https, otherwise NULL.
    const char *ca_file;
    /// Path of a file with this client's certificate, in PEM; NULL for none. It needs https and key_file.
    const char *certificate_file;
    const char *key_file;  ///< Path of a file with the key of that certificate, in PEM; NULL for none.
} kvmem_directory_options;

/// Creates a directory handle. Does not need NIXL. Opens the folder, or connects to etcd.
/// @return KVMEM_STATUS_NOT_FOUND: a parent of the folder, or a file of the options, does not exist
///         KVMEM_STATUS_PERMISSION_DENIED: access to the folder or a file, or etcd rejects the user, the
///           password or the prefix
///         KVMEM_STATUS_IO: the folder cannot be opened, or etcd not reached; the message has the reason
///         KVMEM_STATUS_TIMED_OUT: the file system has not responded for 5 seconds, or etcd for 20
///         KVMEM_STATUS_UNSUPPORTED: libkvmem_etcd.so is not installed beside libkvmem.so
///
/// Notes: the client of etcd is a separate library, which is loaded here. It runs one thread per directory.
kvmem_status kvmem_directory_create(const kvmem_directory_options *options, kvmem_directory **directory,
    kvmem_error **error);

/// Destroys a directory handle. Withdraws the entries that were published with it, and waits at most two
/// seconds for that. Entries and events that were returned remain valid.
void kvmem_directory_destroy(kvmem_directory *directory);

/* ---- Publishing ---- */

/// A layout to publish.
typedef struct kvmem_named_layout {
    const char *name;  ///< Name, unique among the layouts of the agent.
    const kvmem_layout *layout;  ///< A layout that was built with the agent, as for kvmem_layout_export.
    /// Broker of this process that offers the memory to processes of this machine while the layout is
    /// published; kvmem_directory_entry_open_layout maps it there. NULL for none: peers use NIXL only.
    const kvmem_broker *broker;
    /// Access and transport of the broker's share; NULL for reading only, and without a broker.
    const kvmem_share_options *share;
} kvmem_named_layout;

/// Publishes the metadata and layouts of an agent under its name. Replaces the entry of that name, also that
/// of another process: a restarted agent replaces its predecessor.
///
/// Call it again after further memory was registered. Peers find the old entry until the new one is complete.
/// The entry exists until it is withdrawn, the directory is destroyed, or the process ends. If it is removed
/// or damaged by another process, it is published again.
///
/// With a broker, each publication offers a share of its own, until the next publication, the withdrawal, or
/// the end of the directory or of the broker. The share keeps the memory of the layout; extents of an elastic
/// layout that are committed at the call cannot be decommitted meanwhile. The entry contains the token of the
/// share, so each process that can read the entry, and that the broker serves, can fetch it.
/// @param agent an agent with a backend that reaches peers
/// @param layouts layouts of the agent; NULL with count 0 for none
/// @param count number of layouts, at most 1024
/// @return KVMEM_STATUS_INVALID_ARGUMENT: a name is empty, too long or not unique, or a layout is of another
///           agent
///         KVMEM_STATUS_INVALID_STATE, KVMEM_STATUS_UNSUPPORTED: as for kvmem_layout_export
///         KVMEM_STATUS_OUT_OF_RANGE: the entry would have more than 1 MiB
///         KVMEM_STATUS_TIMED_OUT: the directory does not respond, and the entry may still be published; or a
///           call of NIXL has not returned 100 ms after the timeout
///         KVMEM_STATUS_PERMISSION_DENIED, KVMEM_STATUS_OUT_OF_MEMORY, KVMEM_STATUS_IO: the entry cannot be
///           stored, or etcd is not reached; the message has the reason
///         KVMEM_STATUS_NIXL: the agent has no metadata
///         with a broker, any status of kvmem_share_create_layout
///
/// Notes: a name has at most 200 bytes. Every byte other than A-Z a-z 0-9 - _ and . counts as three.
kvmem_status kvmem_directory_publish(const kvmem_directory *directory, kvmem_agent *agent,
    const kvmem_named_layout *layouts, size_t count, uint64_t timeout_ns, kvmem_error **error);

/// Removes an entry that was published with this directory handle.
/// @return KVMEM_STATUS_NOT_FOUND: the agent was not published with this handle
///         KVMEM_STATUS_STALE: another process has published an agent of that name since; its entry remains
///         KVMEM_STATUS_TIMED_OUT, KVMEM_STATUS_IO: the directory does not respond. In etcd the entry is not
///           published again, and is removed when a server is reached, or when its lease ends
///         KVMEM_STATUS_PERMISSION_DENIED: the folder may not be changed; the entry remains
kvmem_status kvmem_directory_withdraw(const kvmem_directory *directory, const char *agent,
    uint64_t timeout_ns, kvmem_error **error);

/* ---- Finding ---- */

/// The entry of an agent when it was looked up.
typedef struct kvmem_directory_entry kvmem_directory_entry;

/// Waits until a peer is published, loads its metadata (kvmem_directory_entry_load) with the same deadline,
/// and returns its entry. Waits for nothing if it is published, also with a timeout of 0.
/// @param agent the agent that will access the memory of the peer; NULL loads no metadata
/// @param peer name of the agent that the peer publishes
/// @return KVMEM_STATUS_TIMED_OUT: the peer was not published in time, the directory does not respond, or
///           NIXL has not returned 100 ms after the timeout; it may load the metadata later
///         KVMEM_STATUS_PEER_LOST: the peer has ended, and the directory still has its entry
///         other statuses: as for kvmem_directory_look_up and kvmem_directory_entry_load
///
/// Notes: no events are reported for the peer, unless it is watched.
kvmem_status kvmem_directory_connect(const kvmem_directory *directory, kvmem_agent *agent, const char *peer,
    uint64_t timeout_ns, kvmem_directory_entry **entry, kvmem_error **error);

/// Opens a layout of an entry: maps its memory if possible, or accesses it through NIXL.
///
/// The memory is mapped if the layout was published with a broker, on this machine and since its last start,
/// the socket of the broker is reachable, and the broker runs as the user of this process, and serves it.
/// The rights are those that the publisher has granted, by default for reading only. Neither an agent nor
/// NIXL is needed then. Otherwise `agent` of the options accesses the layout, and the metadata of the entry
/// is loaded if it is not. `locality` of kvmem_layout_info returns which of the two was chosen, and the log
/// why the memory was not mapped (KVMEM_LOG_INFO).
/// @param name name under which the layout was published
/// @param options as for kvmem_share_open_layout; NULL for the defaults
/// @return KVMEM_STATUS_NOT_FOUND: the entry has no layout of that name
///         KVMEM_STATUS_PEER_LOST: the process that published the layout has ended
///         KVMEM_STATUS_STALE: another process listens at the path of the broker, or has created the share
///         KVMEM_STATUS_TIMED_OUT: the broker or NIXL has not responded in time
///         with KVMEM_OPEN_MAPPED_ONLY or without an agent, if the memory cannot be mapped:
///         KVMEM_STATUS_UNSUPPORTED: the layout is on another machine, or was published without a broker; or
///           as for kvmem_share_open_layout
///         KVMEM_STATUS_NOT_FOUND: the socket of the broker is not reachable from here, as in another
///           container, or the broker has ended
///         KVMEM_STATUS_PERMISSION_DENIED: the publisher runs as another user, does not serve this one, has
///           granted less access than KVMEM_OPEN_READ_WRITE, or has published again since
///         KVMEM_STATUS_BUSY: the broker serves too many clients
///         other statuses: as for kvmem_share_open_layout, kvmem_directory_entry_load and kvmem_layout_import
kvmem_status kvmem_directory_entry_open_layout(const kvmem_directory_entry *entry, const char *name,
    const kvmem_open_options *options, uint64_t timeout_ns, kvmem_layout **layout, kvmem_error **error);

/// Finds the entry of an agent. The entry is a copy, which later changes of the directory do not affect.
///
/// Does not wait for an agent that is not published: kvmem_directory_connect does.
/// @return KVMEM_STATUS_NOT_FOUND: the agent was not published, was withdrawn, or its process has ended
kvmem_status kvmem_directory_look_up(const kvmem_directory *directory, const char *agent, uint64_t timeout_ns,
    kvmem_directory_entry **entry, kvmem_error **error);

/// Checks that an entry is still the current one of its agent.
/// @param entry an entry that was found in it
/// @return KVMEM_STATUS_STALE: the agent has published again since, or was restarted; the message says which
///         KVMEM_STATUS_NOT_FOUND: the agent was withdrawn, or its process has ended
kvmem_status kvmem_directory_check(const kvmem_directory *directory, const kvmem_directory_entry *entry,
    uint64_t timeout_ns, kvmem_error **error);

/// A layout in an entry. The pointers are valid as long as the kvmem_directory_entry.
typedef struct kvmem_published_layout {
    const char *name;  ///< Name under which it was published.
    const void *descriptor;  ///< Bytes of kvmem_layout_export.
    size_t size;  ///< Number of bytes.
} kvmem_published_layout;

/// The content of an entry. The pointers are valid as long as the kvmem_directory_entry.
typedef struct kvmem_directory_entry_info {
    const char *agent;  ///< Name of the agent.
    uint64_t incarnation;  ///< Random number of the agent, not 0. A restarted agent has another one.
    uint64_t version;  ///< Counts the publications of the agent, from 1.
    const void *metadata;  ///< NIXL's metadata of the agent.
    size_t metadata_size;  ///< Number of bytes of the metadata.
    const kvmem_published_layout *layouts;  ///< Its layouts; NULL if it has none.
    size_t layout_count;  ///< Number of layouts.
} kvmem_directory_entry_info;

/// Returns the content of an entry.
kvmem_status kvmem_directory_entry_get_info(const kvmem_directory_entry *entry,
    kvmem_directory_entry_info *info, kvmem_error **error);

/// Loads the metadata of an entry, so that an agent can access the memory of the agent that published it.
///
/// If the peer was restarted since its metadata was loaded, the old metadata is removed first: layouts
/// that were imported before then fail with KVMEM_STATUS_STALE.
/// @param agent the agent that will access the memory
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the entry is that of the agent itself
///         KVMEM_STATUS_STALE: an entry of the restarted peer, which was looked up later than this one, is
///           loaded; nothing has changed. Look the peer up again
///         KVMEM_STATUS_PEER_LOST: the process that published the entry has ended. That is found for a
///           process of this machine and PID namespace that has published a layout
///         KVMEM_STATUS_CORRUPT: the metadata is that of another agent
///         KVMEM_STATUS_NIXL, KVMEM_STATUS_NOT_FOUND: the bytes are not metadata, or no backend reaches the
///           peer
kvmem_status kvmem_directory_entry_load(const kvmem_directory_entry *entry, kvmem_agent *agent,
    kvmem_error **error);

/// Destroys an entry.
void kvmem_directory_entry_destroy(kvmem_directory_entry *entry);

/* ---- Events ---- */

/// An event. The pointers are valid as long as the kvmem_directory_events.
typedef struct kvmem_directory_event {
    uint32_t kind;  ///< KVMEM_DIRECTORY_* value.
    /// KVMEM_STATUS_CORRUPT for KVMEM_DIRECTORY_INVALID, KVMEM_STATUS_STALE for KVMEM_DIRECTORY_SUPERSEDED,
    /// the status of the failure for KVMEM_DIRECTORY_INTERRUPTED, KVMEM_STATUS_OUT_OF_MEMORY for
    /// KVMEM_DIRECTORY_FULL, KVMEM_STATUS_OK for other kinds.
    kvmem_status status;
    const char *agent;  ///< Name of the agent; empty for KVMEM_DIRECTORY_INTERRUPTED, _RESUMED and _FULL.
    uint64_t incarnation;  ///< Of the entry; of the last one for KVMEM_DIRECTORY_WITHDRAWN; otherwise 0.
    uint64_t version;  ///< Version of the entry; as incarnation.
    /// The cause, and what to do, for KVMEM_DIRECTORY_INVALID, KVMEM_DIRECTORY_SUPERSEDED,
    /// KVMEM_DIRECTORY_INTERRUPTED, KVMEM_DIRECTORY_RESTORED and KVMEM_DIRECTORY_FULL; empty for other kinds.
    const char *message;
} kvmem_directory_event;

/// Events that were taken from a directory. The caller destroys them.
typedef struct kvmem_directory_events {
    const kvmem_directory_event *items;  ///< Events; those of one agent are in order; NULL if there are none.
    size_t count;  ///< Their number.
} kvmem_directory_events;

/// Begins to watch an agent, or all. The first events report the current state, later events the changes.
/// @param agent name of the agent, which need not be published yet; NULL for all agents
/// @return KVMEM_STATUS_TIMED_OUT: the directory does not respond; nothing is watched
///         KVMEM_STATUS_OUT_OF_MEMORY, KVMEM_STATUS_IO, KVMEM_STATUS_PERMISSION_DENIED: nothing is watched
///
/// Notes: watch single agents if there are thousands. At most 65536 agents are kept, which bounds the memory.
/// Others are not reported, but KVMEM_DIRECTORY_FULL is. With etcd the call fails if all agents cannot be
/// listed within the timeout, or 10 seconds.
kvmem_status kvmem_directory_watch(const kvmem_directory *directory, const char *agent, uint64_t timeout_ns,
    kvmem_error **error);

/// Ends the watch of an agent, or of all. Events of agents that are no longer watched are discarded.
/// @param agent name of the agent; NULL ends the watch of all, and keeps those of single agents
/// @return KVMEM_STATUS_NOT_FOUND: it is not watched
///         KVMEM_STATUS_TIMED_OUT, KVMEM_STATUS_IO: no response; the watch has ended nevertheless
kvmem_status kvmem_directory_unwatch(const kvmem_directory *directory, const char *agent, uint64_t timeout_ns,
    kvmem_error **error);

/// Returns all events of a directory, and waits for one if there is none. Each event is returned once.
///
/// Changes of an agent that were not taken become one event: the difference between the last event that was
/// taken and the current state. So memory is bounded, however many changes there are.
/// @param events receives the events, at least one
/// @return KVMEM_STATUS_PANIC: a bug has ended the thread of the directory, and all events were taken
kvmem_status kvmem_directory_take_events(const kvmem_directory *directory, uint64_t timeout_ns,
    kvmem_directory_events **events, kvmem_error **error);

/// Has a queue report that a directory has events, so that no thread needs to wait for them.
///
/// When events arrive and none waited before, the queue gets a KVMEM_COMPLETION_EVENTS. Take them then
/// (kvmem_directory_take_events, timeout 0). The next one follows when events arrive after that.
/// @param queue the queue, which replaces the one before; NULL ends the reports
/// @param user_data user_data of the completions
kvmem_status kvmem_directory_report_events(const kvmem_directory *directory, kvmem_queue *queue,
    uint64_t user_data, kvmem_error **error);

#define KVMEM_DIRECTORY_PUBLISHED 1  ///< An agent has an entry, and had none.
#define KVMEM_DIRECTORY_RESTARTED 2  ///< An agent was restarted: its entry is that of another incarnation.
#define KVMEM_DIRECTORY_UPDATED 3  ///< An agent has published again.
#define KVMEM_DIRECTORY_WITHDRAWN 4  ///< An agent was withdrawn, or its process has ended: it has no entry.
#define KVMEM_DIRECTORY_INVALID 5  ///< The entry of an agent is invalid.
/// Another process has published an agent that this handle had published. The entry of the other process
/// remains. It is reported also if nothing is watched.
#define KVMEM_DIRECTORY_SUPERSEDED 6
/// The directory cannot be reached. kvmem tries again; changes are reported later. With KVMEM_STATUS_PANIC a
/// bug has ended its thread: no event follows, and calls fail. Create the directory again.
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

/// Destroys events.
void kvmem_directory_events_destroy(kvmem_directory_events *events);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_DIRECTORY_H */
