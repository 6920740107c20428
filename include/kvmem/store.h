/* SPDX-License-Identifier: Apache-2.0 */
/* kvmem: stores: blocks under keys in a folder, which survive the process and a loss of power.
 * Generated from src/ffi; do not edit.
 *
 *     kvmem_store_open(&options, timeout_ns, &store, &error);
 *
 *     const kvmem_store_blocks blocks = {
 *         .struct_size = sizeof blocks, .keys = keys, .key_size = 32, .num_keys = n, .blocks = ids,
 *         .num_blocks = n,
 *     };
 *     kvmem_store_put(store, cache, NULL, &blocks, &transfer, &num_moved, &error);
 *     kvmem_store_get(store, cache, NULL, &blocks, &transfer, &num_moved, &error);
 *
 * Puts and gets are transfers between a layout of the caller and the file of the store: wait for them by
 * kvmem_transfer_wait or a queue, and destroy them by kvmem_transfer_destroy. kvmem_store_open_namespace
 * makes a part of the store for one tenant, with a quota, and encrypted if it has a key.
 */

#ifndef KVMEM_STORE_H
#define KVMEM_STORE_H

#include "transfer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Stores ---- */

/// Blocks under keys in a folder, open for writing or for reading. They survive the process and a loss of
/// power.
///
/// Runs of puts and gets, and handles of namespaces, keep the store open, also after its handle was
/// destroyed.
///
/// Threads: all functions may be called concurrently, except kvmem_store_destroy.
typedef struct kvmem_store kvmem_store;

/// What has ended is durable: a put ends after its blocks and the index are on the disk. Puts that end at the
/// same time share the writes of the index.
#define KVMEM_DURABILITY_STRICT 0
/// Blocks become durable every `interval_ns`, and by kvmem_store_flush. Those that were put since are lost if
/// the process or the machine ends.
#define KVMEM_DURABILITY_RELAXED 1
/// Blocks survive the process. After a loss of power any may be missing, or damaged, which a get detects.
#define KVMEM_DURABILITY_NONE 2

/// The store evicts blocks when it needs slots: those without stored children first, the least recently used
/// of them first.
#define KVMEM_EVICTION_STORE 0
/// The store evicts no block that a handle of it finds. A put fails with KVMEM_STATUS_OUT_OF_MEMORY if there
/// are not enough free slots.
#define KVMEM_EVICTION_CALLER 1

/// A part of the identity of a store.
typedef struct kvmem_store_value {
    const char *name;  ///< Such as "model", "revision" or "dtype"; copied.
    const void *value;  ///< Any bytes; copied.
    size_t value_size;  ///< Bytes of the value, at most 2048. Give a hash of longer ones.
} kvmem_store_value;

/// Options of kvmem_store_open.
typedef struct kvmem_store_options {
    size_t struct_size;
    const char *path;  ///< Folder of the store. It is created, but not its parents.
    /// Shape of the blocks, which belongs to the identity of the store. num_blocks is the number of slots; 0
    /// for that of an existing store, or for as many as `max_size` has space for. The order begins with B;
    /// NULL for KVMEM_ORDER_FULLY_CONTIGUOUS. All strides are 0, also if layouts in memory have others. An
    /// alignment of 0 is 4096 here, which direct I/O needs: slots of no multiple of that use the page cache.
    const kvmem_layout_config *config;
    /// What the blocks contain. A store with another identity is not opened: the message has each name that
    /// differs, with both values.
    const kvmem_store_value *identity;
    size_t num_values;  ///< Number of values. All names and values together have less than 1 MiB.
    /// Bytes of all slots of a new store, if num_blocks of the config is 0. An existing store keeps its size.
    uint64_t max_size;
    uint32_t durability;  ///< KVMEM_DURABILITY_* value; 0 for KVMEM_DURABILITY_STRICT.
    uint32_t eviction;  ///< KVMEM_EVICTION_* value; 0 for KVMEM_EVICTION_STORE.
    /// KVMEM_DISK_OPEN_EXISTING: fail if there is no store. KVMEM_DISK_READ_ONLY, with that: open it for
    /// reading, also while a process writes it; max_size, durability and eviction are then 0.
    /// KVMEM_DISK_BUFFERED, KVMEM_DISK_DIRECT_REQUIRED: how its file of blocks is accessed.
    uint64_t flags;
    /// With KVMEM_DURABILITY_RELAXED: nanoseconds after which blocks become durable. With
    /// KVMEM_DISK_READ_ONLY: after which kvmem_store_contains knows what was stored. 0 for one second.
    uint64_t interval_ns;
} kvmem_store_options;

/// Opens a store for writing, or creates it; with KVMEM_DISK_READ_ONLY opens one for reading.
///
/// One process writes a store, any number reads it. A process that ends, however it ends, can be followed by
/// another one that writes. A reader gets what is stored, and changes nothing: functions that change the
/// store fail with KVMEM_STATUS_PERMISSION_DENIED.
///
/// A store survives a crash at any point: each key that it has afterwards has exactly its bytes, and with
/// KVMEM_DURABILITY_STRICT no block is missing whose put had ended. docs/store.md has its files and promises.
/// @param timeout_ns if the file system has not responded by then, the store is closed when it is open. While
///        an earlier call for the folder still waits for it, nothing is done
/// @return KVMEM_STATUS_BUSY: the store is open for writing in a process, which the message names; or, for a
///           reader, a process opens it for writing at this moment
///         KVMEM_STATUS_INVALID_ARGUMENT: the store has another identity or shape (the message has the names
///           and both values); the order does not begin with B; a stride is given; or
///           KVMEM_DISK_DIRECT_REQUIRED is set and a slot has no multiple of 4096 bytes
///         KVMEM_STATUS_NOT_FOUND: the parent of the folder does not exist, or with KVMEM_DISK_OPEN_EXISTING
///           the store
///         KVMEM_STATUS_CORRUPT: a file of the store is missing, was truncated, or is of another store
///         KVMEM_STATUS_VERSION_MISMATCH: another version of kvmem has written it
///         KVMEM_STATUS_TIMED_OUT
///         any status of kvmem_region_create_disk
kvmem_status kvmem_store_open(const kvmem_store_options *options, uint64_t timeout_ns, kvmem_store **store,
    kvmem_error **error);

/* ---- Putting and getting blocks ---- */

/// The keys of a put are not of one sequence: none is the parent of the next.
#define KVMEM_STORE_UNRELATED 1

/// Blocks of a layout of the caller, and their keys in a store. Everything is copied.
typedef struct kvmem_store_blocks {
    size_t struct_size;
    /// Keys, one after the other, in the order of the sequence. A key is a hash of all that its block depends
    /// on, so that blocks with the same key have the same bytes.
    const void *keys;
    size_t key_size;  ///< Bytes of each key, 16 to 64.
    size_t num_keys;  ///< Number of keys, at least 1.
    /// Block ids in the layout, one for each key. If page_size of the layout is not that of the store: of all
    /// blocks that have tokens of the keys. Each key has the tokens of a slot.
    const uint32_t *blocks;
    /// Number of block ids: num_keys times page_size of the store, divided by that of the layout, rounded up.
    size_t num_blocks;
    /// For a put: key of the block before the first one, of key_size bytes; NULL if that begins a sequence.
    /// Each key is the parent of the next one. A block is not evicted before its children.
    const void *parent;
    uint64_t flags;  ///< KVMEM_STORE_UNRELATED, for a put.
    uint64_t user_data;  ///< Returned in the completion.
    uint64_t run_timeout_ns;  ///< As in kvmem_submit_options. It includes the eviction of other blocks.
} kvmem_store_blocks;

/// Stores blocks under their keys, asynchronously, by a transfer.
///
///     status = kvmem_store_put(store, cache, NULL, &blocks, &transfer, &num_moved, &error);
///     if (status == KVMEM_STATUS_OK && transfer) status = kvmem_transfer_wait(transfer, timeout_ns, &error);
///
/// Blocks whose keys are stored, or are being stored by another put, are not moved: what is stored under a
/// key stays. The others are visible when the run has ended with KVMEM_STATUS_OK, and are then as durable as
/// the store promises. If it ends otherwise, none of them is visible; after its timeout they may become so
/// later. Nothing may write to the blocks until the run has ended.
/// @param source layout with the element size of the store, in any order and memory. Blocks that are no whole
///         slots, or that direct I/O cannot access, pass through host memory of kvmem
/// @param options queue, ranges and the like; NULL for none. The ranges have all layers, outer slots and
///         heads of the store; 0 if the layout has the same. Blocks that pass through memory of kvmem need a
///         method and flags of 0, except KVMEM_TRANSFER_REPORT_RELEASE
/// @param transfer receives the transfer, whose only run is in flight; the caller destroys it. NULL if
///         nothing is to be moved: then there is no completion. kvmem_transfer_poll, _wait, _cancel and the
///         queue report the run
/// @param num_moved receives the number of blocks that are moved
/// @return KVMEM_STATUS_BUSY: too few blocks can be evicted: the others are written, read or pinned, or
///         precede such blocks. None is evicted
///         KVMEM_STATUS_OUT_OF_RANGE: there are more keys than slots of the quota, or, without a namespace,
///           than slots that are in no quota and not retired; or the layout has no such block
///         KVMEM_STATUS_OUT_OF_MEMORY: with KVMEM_EVICTION_CALLER, too few slots are free; or, in a
///           namespace, too few are left, because slots are retired
///         KVMEM_STATUS_INVALID_ARGUMENT: a key is too short or too long; or the layouts differ
///         KVMEM_STATUS_TIMED_OUT: blocks were not evicted within `run_timeout_ns`
///         KVMEM_STATUS_PERMISSION_DENIED: the store is open for reading
///         KVMEM_STATUS_INVALID_STATE, KVMEM_STATUS_IO: the index cannot be written. Open the store again
///         any status of kvmem_transfer_start
kvmem_status kvmem_store_put(kvmem_store *store, const kvmem_layout *source,
    const kvmem_transfer_options *options, const kvmem_store_blocks *blocks, kvmem_transfer **transfer,
    size_t *num_moved, kvmem_error **error);

/// Moves the blocks of the first keys to a layout, up to the first key that is not stored, asynchronously, by
/// a transfer.
///
///     status = kvmem_store_get(store, cache, NULL, &blocks, &transfer, &num_moved, &error);
///     if (status == KVMEM_STATUS_OK && transfer) status = kvmem_transfer_wait(transfer, timeout_ns, &error);
///
/// Each block is compared with its checksum before the run ends. If blocks are damaged or cannot be read, the
/// run ends with KVMEM_STATUS_CORRUPT, and kvmem_transfer_get_mismatches returns their indices; all others
/// have arrived. These blocks are no longer stored, the store counts and logs them, and does not use their
/// slots again. Blocks that something else overwrites in the destination before they are compared, which
/// may be as soon as they arrive, end the run so, too, and stay stored. For a reader of the store, blocks
/// that its writer replaces meanwhile end the run so, too.
///
/// If a read fails, and the run is cancelled before the blocks are compared, the run ends with
/// KVMEM_STATUS_IO, and kvmem_transfer_get_mismatches returns all indices.
/// @param destination as `source` of kvmem_store_put. Nothing else may use the blocks until the run has ended
/// @param options as for kvmem_store_put, without KVMEM_TRANSFER_BY_LAYER: layers would be reported before
///         they are compared. The ranges may have some of the layers, outer slots and heads of the store
/// @param blocks its `parent` and `flags` must be 0
/// @param transfer as for kvmem_store_put; NULL if the first key is not stored
/// @param num_moved receives the number of keys that were found: the key with this index is missing
/// @return KVMEM_STATUS_INVALID_ARGUMENT: a key is too short or too long; or the layouts differ
///         KVMEM_STATUS_BUSY: for a reader, a process opens the store for writing at this moment
///         any status of kvmem_transfer_start
kvmem_status kvmem_store_get(kvmem_store *store, const kvmem_layout *destination,
    const kvmem_transfer_options *options, const kvmem_store_blocks *blocks, kvmem_transfer **transfer,
    size_t *num_moved, kvmem_error **error);

/* ---- Keys ---- */

/// Returns for each of some keys whether it is stored. Waits for no file, and changes nothing, also not what
/// is evicted next.
/// @param keys keys, one after the other
/// @param key_size bytes of each key, 16 to 64
/// @param num_keys number of keys, at least 1
/// @param found receives 1 for each key that is stored, otherwise 0
kvmem_status kvmem_store_contains(const kvmem_store *store, const void *keys, size_t key_size,
    size_t num_keys, uint8_t *found, kvmem_error **error);

/// Removes blocks. Keys that are not stored are no error.
/// @param keys keys, one after the other
/// @param key_size bytes of each key, 16 to 64
/// @param num_keys number of keys, at least 1
/// @param timeout_ns if the file system has not responded by then, the blocks are removed later, unless an
///        earlier call still waits for it
/// @param num_removed receives the number of blocks that were stored
/// @return KVMEM_STATUS_BUSY: a get reads one of the blocks; none is removed
///         KVMEM_STATUS_PERMISSION_DENIED: the store is open for reading
///         KVMEM_STATUS_TIMED_OUT
///         KVMEM_STATUS_OUT_OF_MEMORY: the file system is full. The blocks are removed in this process, and
///           in the index with the next change that can be written
///         KVMEM_STATUS_INVALID_STATE, KVMEM_STATUS_IO: the index cannot be written. The blocks are removed
///           in this process only
kvmem_status kvmem_store_remove(kvmem_store *store, const void *keys, size_t key_size, size_t num_keys,
    uint64_t timeout_ns, uint64_t *num_removed, kvmem_error **error);

/// Protects blocks from eviction, until kvmem_store_unpin, or until the store is closed.
/// @param keys keys, one after the other
/// @param key_size bytes of each key, 16 to 64
/// @param num_keys number of keys, at least 1
/// @param num_found receives the number of keys that are stored; the others are no error
/// @return KVMEM_STATUS_PERMISSION_DENIED: the store is open for reading
kvmem_status kvmem_store_pin(kvmem_store *store, const void *keys, size_t key_size, size_t num_keys,
    uint64_t *num_found, kvmem_error **error);

/// Ends the protection of blocks from eviction, however often they were pinned.
/// @param keys keys, one after the other
/// @param key_size bytes of each key, 16 to 64
/// @param num_keys number of keys, at least 1
/// @param num_found receives the number of keys that are stored; the others are no error
/// @return KVMEM_STATUS_PERMISSION_DENIED: the store is open for reading
kvmem_status kvmem_store_unpin(kvmem_store *store, const void *keys, size_t key_size, size_t num_keys,
    uint64_t *num_found, kvmem_error **error);

/// A block in a store.
typedef struct kvmem_store_entry {
    uint8_t key[64];  ///< Key, followed by zeros.
    uint8_t parent[64];  ///< Key of the block before it, followed by zeros.
    uint32_t key_size;  ///< Bytes of the key.
    uint32_t parent_size;  ///< Bytes of the parent's key; 0 if it has none.
    /// CRC32C, as kvmem_layout_checksum computes it; in an encrypted namespace that of the encrypted bytes.
    uint32_t checksum;
    uint32_t is_pinned;  ///< 1 if it is pinned, otherwise 0.
    uint64_t slot;  ///< Its block id in the file of the store.
} kvmem_store_entry;

/// Returns stored blocks, in the order of their slots.
///
///     kvmem_store_entry entries[64];
///     size_t count = 0;
///     uint64_t slot = 0;
///     do {
///         status = kvmem_store_list(store, slot, entries, 64, &count, &error);
///         if (count > 0) slot = entries[count - 1].slot + 1;
///     } while (status == KVMEM_STATUS_OK && count == 64);
/// @param first_slot blocks in slots below that are left out
/// @param entries receives the blocks
/// @param capacity elements of entries, at least 1
/// @param count receives the number of blocks
kvmem_status kvmem_store_list(const kvmem_store *store, uint64_t first_slot, kvmem_store_entry *entries,
    size_t capacity, size_t *count, kvmem_error **error);

/* ---- Namespaces: tenants of one store ---- */

/// Options of kvmem_store_open_namespace.
typedef struct kvmem_store_namespace_options {
    size_t struct_size;
    /// Name of 1 to 128 bytes without control characters, such as the id of a tenant; copied. It is in the
    /// files of the store, in clear.
    const char *name;
    /// Bytes of slots that its blocks may have, rounded down to whole slots. 0 for that of an existing
    /// namespace. Another value than before changes the quota.
    uint64_t quota;
    /// 32 random bytes, by which its blocks and keys are encrypted; copied. NULL for a namespace that is not
    /// encrypted. A namespace keeps its key: without that, its blocks cannot be read.
    const void *key;
    size_t key_size;  ///< Bytes of the key: 32, or 0 without one.
} kvmem_store_namespace_options;

/// Opens a namespace of a store, or creates it: a handle of the same store, whose calls put, find, evict,
/// list and count the blocks of this namespace only.
///
///     const kvmem_store_namespace_options options = {
///         .struct_size = sizeof options, .name = "tenant-7", .quota = 64ull << 30, .key = key,
///         .key_size = 32,
///     };
///     kvmem_store_open_namespace(store, &options, timeout_ns, &tenant, &error);
///
/// A block of another namespace is not found, also under the same key. A namespace that has used its quota
/// evicts its own blocks. The handle of the store itself has the slots that no quota has, and blocks that are
/// in no namespace.
///
/// With a key, the bytes of blocks and the keys of the caller are encrypted and authenticated by
/// XChaCha20-Poly1305 before they are written. A block that was changed in the files ends its get with
/// KVMEM_STATUS_CORRUPT, as a damaged one. Such puts and gets pass through host memory of kvmem, and need a
/// method and flags of 0, except KVMEM_TRANSFER_REPORT_RELEASE. docs/store.md has what is protected.
/// @param store handle that kvmem_store_open has returned; it may be destroyed before the namespace
/// @param timeout_ns if the file system has not responded by then, the namespace is closed when it is open.
///        While an earlier call that writes the index still waits for it, nothing is done
/// @param opened receives the namespace; the caller destroys it by kvmem_store_destroy
/// @return KVMEM_STATUS_INVALID_ARGUMENT: a new namespace has no quota; the quota is less than a slot; the
///           key does not have 32 bytes, or is given for a namespace that is not encrypted; or `store` is a
///           namespace
///         KVMEM_STATUS_PERMISSION_DENIED: the key is not that of the namespace, or is missing
///         KVMEM_STATUS_OUT_OF_RANGE: the quotas of all namespaces have more slots than the store; or it has
///           4096 namespaces
///         KVMEM_STATUS_NOT_FOUND: the store is open for reading, and has no such namespace
///         KVMEM_STATUS_TIMED_OUT
///         KVMEM_STATUS_CORRUPT, KVMEM_STATUS_IO, KVMEM_STATUS_OUT_OF_MEMORY: the list of namespaces cannot
///           be read or written; it is that before or the new one
kvmem_status kvmem_store_open_namespace(kvmem_store *store, const kvmem_store_namespace_options *options,
    uint64_t timeout_ns, kvmem_store **opened, kvmem_error **error);

/// Removes a namespace, its blocks and its quota. It needs no key: use it also if that is lost.
///
/// The encrypted bytes of its blocks stay in their slots until other blocks are written there.
/// @param store handle that kvmem_store_open has returned
/// @param name name of the namespace
/// @param timeout_ns if the file system has not responded by then, it is removed later, unless an earlier
///        call still waits for it
/// @param num_removed receives the number of blocks that were stored
/// @return KVMEM_STATUS_NOT_FOUND: the store has no such namespace
///         KVMEM_STATUS_BUSY: it is open; or kvmem_store_verify reads one of its blocks, and the others are
///           removed
///         KVMEM_STATUS_INVALID_ARGUMENT: `store` is a namespace
///         KVMEM_STATUS_PERMISSION_DENIED: the store is open for reading
///         KVMEM_STATUS_TIMED_OUT
///         KVMEM_STATUS_INVALID_STATE, KVMEM_STATUS_IO, KVMEM_STATUS_OUT_OF_MEMORY: the files cannot be
///           written
kvmem_status kvmem_store_remove_namespace(kvmem_store *store, const char *name, uint64_t timeout_ns,
    uint64_t *num_removed, kvmem_error **error);

/* ---- Information, durability, checks ---- */

/// Properties of a store with all its namespaces, or of one namespace, and what happened since it was opened.
typedef struct kvmem_store_info {
    uint64_t num_slots;  ///< Slots, each for a block; of a namespace those of its quota.
    uint64_t num_stored;  ///< Blocks that are stored.
    /// Slots that are not used again, because their bytes were damaged; 0 for a namespace.
    uint64_t num_retired;
    uint64_t slot_size;  ///< Bytes of a slot.
    uint64_t num_hits;  ///< Keys that gets have found.
    /// Keys of gets that were not found: the first that is not stored, and all after it.
    uint64_t num_misses;
    uint64_t num_evicted;  ///< Blocks that the store has evicted.
    uint64_t num_damaged;  ///< Blocks that could not be read, or whose bytes were not those that were stored.
    uint32_t durability;  ///< KVMEM_DURABILITY_* value.
    uint32_t reserved;
} kvmem_store_info;

/// Returns the properties of a store. Waits for no file.
kvmem_status kvmem_store_get_info(const kvmem_store *store, kvmem_store_info *info, kvmem_error **error);

/// Makes all blocks durable whose puts have ended, whatever the durability of the store. For a store that is
/// open for reading: reads what was stored since.
/// @param timeout_ns if the file system has not responded by then, the work goes on, unless an earlier call
///        still waits for it
/// @return KVMEM_STATUS_TIMED_OUT
///         KVMEM_STATUS_BUSY: for a reader, a process opens the store for writing at this moment
///         KVMEM_STATUS_INVALID_STATE, KVMEM_STATUS_IO, KVMEM_STATUS_OUT_OF_MEMORY: blocks may not be
///           durable. Open the store again
kvmem_status kvmem_store_flush(kvmem_store *store, uint64_t timeout_ns, kvmem_error **error);

/// Reads all blocks and compares them with their checksums. Removes those that are damaged, and does not use
/// their slots again. The handle of a store reads those of all namespaces, that of a namespace its own, of
/// which it also compares the tags if they are encrypted.
/// @param timeout_ns a later call continues where this one has ended
/// @param num_damaged receives the number of blocks that this call has removed
/// @return KVMEM_STATUS_TIMED_OUT: not all blocks were read
///         KVMEM_STATUS_BUSY: another call verifies the store
///         KVMEM_STATUS_PERMISSION_DENIED: the store is open for reading
kvmem_status kvmem_store_verify(kvmem_store *store, uint64_t timeout_ns, uint64_t *num_damaged,
    kvmem_error **error);

/// Returns what a store is and contains, as text for people: its identity, shape, occupancy, age and damage,
/// a line for each. Reads its files, also while a process has it open, and changes nothing.
/// @param path folder of the store
/// @return KVMEM_STATUS_NOT_FOUND: there is no store
///         KVMEM_STATUS_CORRUPT, KVMEM_STATUS_VERSION_MISMATCH, KVMEM_STATUS_PERMISSION_DENIED,
///         KVMEM_STATUS_IO
kvmem_status kvmem_store_describe(const char *path, kvmem_blob **text, kvmem_error **error);

/// Destroys a store handle. The store is closed when no run of a put or get uses it; until then it cannot be
/// opened again. A handle of a namespace uses the store, too. With KVMEM_DURABILITY_RELAXED, call
/// kvmem_store_flush before: blocks that are not durable are lost.
void kvmem_store_destroy(kvmem_store *store);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_STORE_H */
