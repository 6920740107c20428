/* SPDX-License-Identifier: Apache-2.0 */
/* kvmem: layouts: where each block of a KV cache is located in regions. Generated from src/ffi; do not edit.
 *
 *     kvmem_layout_config config = {
 *         .struct_size = sizeof config, .num_blocks = 1024, .num_layers = 32, .outer_dim = 2,
 *         .page_size = 16, .inner_dim = 1024, .dtype_width = 2, .order = KVMEM_ORDER_FULLY_CONTIGUOUS,
 *     };
 *     kvmem_layout_options options = {
 *         .struct_size = sizeof options, .config = &config, .source = KVMEM_LAYOUT_REGIONS,
 *         .regions = &region, .count = 1,
 *     };
 *     kvmem_layout *layout = NULL;
 *     kvmem_status status = kvmem_layout_build(&options, &layout, &error);
 */

#ifndef KVMEM_LAYOUT_H
#define KVMEM_LAYOUT_H

#include "region.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Layouts ---- */

/// Location of each block of a KV cache. A layout keeps its regions and registrations alive.
typedef struct kvmem_layout kvmem_layout;

/* ---- Agents and registrations: see nixl.h ---- */

/// A NIXL agent. A thread of kvmem makes its NIXL calls, or a thread that waits for one of its transfers.
/// Registrations, layouts and transfers keep the agent alive. nixl.h has its functions.
///
/// Threads: kvmem makes the NIXL calls of an agent one at a time: a function waits for those of other
/// threads, and for one step of each transfer in flight. None of these waits for a peer, but NIXL sets no
/// time limit for any of them. A function without a timeout fails with KVMEM_STATUS_TIMED_OUT after
/// call_timeout_ns of the agent, which is 10 minutes by default, also if its comment does not list that
/// status; docs/nixl.md has the limits.
typedef struct kvmem_agent kvmem_agent;

/// A region that is registered with an agent. It keeps both alive. The region is deregistered before its
/// memory is freed. nixl.h has its functions.
typedef struct kvmem_registration kvmem_registration;

#define KVMEM_MEMORY_DRAM 1  ///< Host memory.
#define KVMEM_MEMORY_VRAM 2  ///< GPU memory.
#define KVMEM_MEMORY_FILE 3  ///< A file.
#define KVMEM_MEMORY_BLOCK 4  ///< A block device, or a store of blocks.
#define KVMEM_MEMORY_OBJECT 5  ///< An object store.

/* ---- Shape ---- */

/// Order of KVBM's fully contiguous layout: one region. A block contains all its layers, a layer its outer
/// slots: base + block·⌈L·O·R⌉ + layer·O·R + outer·R
#define KVMEM_ORDER_FULLY_CONTIGUOUS "BLONHC"
/// Order of KVBM's layer separate layout with the block dimension first: one region per layer.
/// base[layer] + block·⌈O·R⌉ + outer·R
#define KVMEM_ORDER_LAYER_SEPARATE "L/BONHC"
/// Order of KVBM's layer separate layout with the block dimension second: one region per layer.
/// base[layer] + outer·B·⌈R⌉ + block·⌈R⌉
#define KVMEM_ORDER_LAYER_SEPARATE_OUTER_FIRST "L/OBNHC"

/// Shape of a KV cache. order, num_blocks, num_layers, outer_dim, page_size, inner_dim and dtype_width are
/// required, the other fields have defaults. docs/layouts.md has the order of each engine. All sizes are
/// those of this memory: with tensor parallelism, num_heads and inner_dim count the heads of this rank. In
/// the formulas of KVMEM_ORDER_* B is num_blocks, L is num_layers, O is outer_dim, R is page_size × inner_dim
/// × dtype_width bytes, and ⌈x⌉ is x rounded up to alignment.
typedef struct kvmem_layout_config {
    size_t struct_size;
    uint64_t num_blocks;  ///< Blocks, 1 to 4294967295.
    uint64_t num_layers;  ///< Layers of the model, at least 1.
    uint64_t outer_dim;  ///< Outer slots per layer: 2 if keys and values are separate, 1 if combined (MLA).
    uint64_t page_size;  ///< Tokens per block, at least 1.
    uint64_t inner_dim;  ///< Elements per token, layer and outer slot: KV heads × head size; at least 1.
    uint64_t dtype_width;  ///< Bytes per element: 1, 2, 4 or 8.
    /// KVMEM_ORDER_*, or any other order of axes from the outermost to the innermost, such as "L/BHNOC". B
    /// block, L layer, O outer slot, N token, H head, C elements of one head of one token. Each axis occurs
    /// at most once, and one that is missing must have one index. Axes before '/' have separate regions, and
    /// the last of them varies fastest in the list of regions; B and C cannot have any. Without H, C is all
    /// elements of a token, and num_heads must be 0 or 1.
    const char *order;
    /// KV heads, not query heads; inner_dim must be a multiple of it. 0 if unknown; an order in which C does
    /// not follow H, and a head stride, require it.
    uint64_t num_heads;
    /// Alignment of blocks in bytes, a power of two; 0 for 1. A tight block stride is rounded up to it, and a
    /// given one must be a multiple of it.
    uint64_t alignment;
    /// Bytes from one block to the next; 0 if tight: the stride of the next inner axis times its number of
    /// indices, rounded up to the alignment. A larger one describes padded blocks.
    uint64_t block_stride;
    uint64_t layer_stride;  ///< Bytes from one layer to the next; 0 if tight, or in separate regions.
    uint64_t outer_stride;  ///< Bytes from one outer slot to the next; 0 if tight, or in separate regions.
    uint64_t token_stride;  ///< Bytes from one token to the next; 0 if tight, or in separate regions.
    uint64_t head_stride;  ///< Bytes from one head to the next; 0 if tight, or in separate regions.
    /// Bytes from one element of a head to the next; 0 if tight: dtype_width if C is the innermost axis.
    uint64_t element_stride;
    /// What the blocks contain, such as the model, its revision and the data type, in any bytes; copied. NULL
    /// for none. It is the same on all ranks. A transfer between two layouts fails unless both have the same
    /// identity or none, and a file can be opened only with the identity that it was created with.
    const void *identity;
    size_t identity_size;  ///< Bytes of identity, at most 2048; 0 for none. Give a hash of longer ones.
} kvmem_layout_config;

/// Memory that a shape needs.
typedef struct kvmem_layout_requirements {
    /// Regions: the product of the sizes of the axes before '/', such as num_layers for
    /// KVMEM_ORDER_LAYER_SEPARATE; 1 if there are none.
    uint64_t num_regions;
    uint64_t region_size;  ///< Bytes of each region, to the end of its last element, rounded up to alignment.
    uint64_t total_size;  ///< Bytes of all regions.
    /// Bytes of one allocation that contains all regions. Each region starts at a multiple of the alignment;
    /// from the second one on, also at a multiple of 512 bytes. The allocation itself must start at a
    /// multiple of 256 bytes, as those of cuMemAlloc do.
    uint64_t allocation_size;
} kvmem_layout_requirements;

/// Returns the memory that a shape needs. Allocates nothing.
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the shape is invalid; the message has the field
kvmem_status kvmem_layout_get_requirements(const kvmem_layout_config *config,
    kvmem_layout_requirements *requirements, kvmem_error **error);

/* ---- Building and destruction ---- */

/// Allocate one range for all regions, as allocation_size of kvmem_layout_requirements describes.
#define KVMEM_LAYOUT_ALLOCATE 1
/// Use regions of the caller. With an agent, each is registered with it. If one is a view of an elastic
/// region, of objects or of block storage, the region that it is a part of is registered instead. The caller
/// commits and decommits an elastic region. It must start at an extent, and the size of an extent must be a
/// multiple of the block stride, so that no block spans two extents. An object has the bytes of at most one
/// block.
#define KVMEM_LAYOUT_REGIONS 2
#define KVMEM_LAYOUT_REGISTRATIONS 3  ///< Use regions that are registered, all with one agent.

/// Options of kvmem_layout_build.
typedef struct kvmem_layout_options {
    size_t struct_size;
    const kvmem_layout_config *config;  ///< Shape.
    uint32_t source;  ///< KVMEM_LAYOUT_ALLOCATE, KVMEM_LAYOUT_REGIONS or KVMEM_LAYOUT_REGISTRATIONS.
    uint32_t reserved;
    /// KVMEM_LAYOUT_REGIONS: the regions: one, or one per layer for KVMEM_ORDER_LAYER_SEPARATE, or one per
    /// index of the axes before '/' in the order, of which the last varies fastest.
    kvmem_region *const *regions;
    kvmem_registration *const *registrations;  ///< KVMEM_LAYOUT_REGISTRATIONS: in the order of the regions.
    size_t count;  ///< Number of regions or registrations.
    /// KVMEM_LAYOUT_ALLOCATE: host memory, with size 0. Set one of system, disk, pinned, device and elastic.
    const kvmem_system_options *system;
    const kvmem_pinned_options *pinned;  ///< KVMEM_LAYOUT_ALLOCATE: page-locked host memory, with size 0.
    const kvmem_device_options *device;  ///< KVMEM_LAYOUT_ALLOCATE: GPU memory to allocate, with size 0.
    /// KVMEM_LAYOUT_ALLOCATE: GPU memory that grows and shrinks, with size and extent_size 0. No block has
    /// memory until kvmem_layout_resize. The block stride is padded so that no block spans two extents.
    const kvmem_elastic_options *elastic;
    /// KVMEM_LAYOUT_ALLOCATE: a file to create or open, with size 0. A named file ends with a fingerprint of
    /// the layout, which is checked when the file is opened again; see docs/files.md.
    const kvmem_disk_options *disk;
    /// Agent that registers the regions: peers, objects and block storage need one; NULL for none.
    kvmem_agent *agent;
    uint64_t flags;  ///< Must be 0.
} kvmem_layout_options;

/// Builds a layout. All is checked before anything is allocated or registered. A failure changes nothing.
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the shape is invalid; the options do not fit the source; the number
///           of regions is wrong; or regions differ in kind, overlap, are not aligned, or of another agent
///         KVMEM_STATUS_OUT_OF_RANGE: a region is too small
///         KVMEM_STATUS_INVALID_STATE: a registration was deregistered
///         KVMEM_STATUS_CORRUPT: the file exists and has no fingerprint of a layout
///         KVMEM_STATUS_VERSION_MISMATCH: the fingerprint has a version that this library cannot read
///         any status of kvmem_region_register, and of the kvmem_region_create_* of the memory. For an
///           existing file, KVMEM_STATUS_INVALID_ARGUMENT: it contains another layout, or it is empty and
///           KVMEM_DISK_OPEN_EXISTING is set
kvmem_status kvmem_layout_build(const kvmem_layout_options *options, kvmem_layout **layout,
    kvmem_error **error);

/// Destroys a layout handle. The layout is destroyed when nothing refers to it any more.
void kvmem_layout_destroy(kvmem_layout *layout);

/* ---- Addresses ---- */

/// Range of contiguous bytes: of one block in one layer and outer slot, or of one head of one token in it.
typedef struct kvmem_block {
    uint64_t address;  ///< First byte: an address in the process of the memory, or an offset in the file.
    uint64_t size;  ///< Bytes.
} kvmem_block;

/// Returns the range of one block in one layer and outer slot.
/// @return KVMEM_STATUS_OUT_OF_RANGE: there is no such block, layer or outer slot
///         KVMEM_STATUS_UNSUPPORTED: the bytes are not contiguous; call kvmem_layout_get_row, or
///           compute addresses by kvmem_layout_info. Or the layout has parts; call kvmem_layout_get_part
kvmem_status kvmem_layout_get_block(const kvmem_layout *layout, uint32_t block, uint64_t layer,
    uint64_t outer, kvmem_block *out, kvmem_error **error);

/// Returns the range of one head of one token of a block. Every layout has it, whatever its order.
/// @param head less than num_heads; 0 if that is 0
/// @param out receives the range. If the elements are not contiguous, it is that of the first: dtype_width
///        bytes, and the next one is element_stride bytes further
/// @return KVMEM_STATUS_OUT_OF_RANGE: there is no such block, layer, outer slot, token or head
///         KVMEM_STATUS_UNSUPPORTED: the layout has parts; call kvmem_layout_get_part
kvmem_status kvmem_layout_get_row(const kvmem_layout *layout, uint32_t block, uint64_t layer, uint64_t outer,
    uint64_t token, uint64_t head, kvmem_block *out, kvmem_error **error);

/* ---- Information ---- */

#define KVMEM_LOCALITY_LOCAL 1  ///< Only this process can access it: it has no agent.
#define KVMEM_LOCALITY_REGISTERED 2  ///< This process can access it, and peers of its agent.
#define KVMEM_LOCALITY_REMOTE 3  ///< It belongs to a peer. Only transfers can access it.
/// It belongs to another process and is mapped here: this process can access it like its own memory.
#define KVMEM_LOCALITY_MAPPED 4

/// Properties of a layout, and the numbers to compute addresses with: bases[layer·layer_step +
/// outer·outer_step + token·token_step + head·head_step] + block·block_stride + layer·layer_stride +
/// outer·outer_stride + token·token_stride + head·head_stride + element·element_stride. In the orders
/// KVMEM_ORDER_*, a block in one layer and outer slot starts at bases[num_regions > 1 ? layer : 0] +
/// block·block_stride + layer·layer_stride + outer·outer_stride. Fields without a comment are as
/// configured.
typedef struct kvmem_layout_info {
    uint64_t num_blocks;
    uint64_t num_layers;
    uint64_t outer_dim;
    uint64_t page_size;
    uint64_t inner_dim;
    uint64_t dtype_width;
    uint64_t alignment;  ///< As configured; 1 if that was 0.
    uint64_t num_heads;
    char order[8];  ///< As configured, NUL-terminated, such as "L/OBNHC".
    const void *identity;  ///< As configured; NULL for none.
    size_t identity_size;  ///< Bytes of identity.
    uint32_t tier;  ///< KVMEM_TIER_* value.
    /// KVMEM_LOCALITY_* value, the same for all regions: all are on one tier and device, and a shared layout
    /// is either mapped as a whole or remote as a whole.
    uint32_t locality;
    uint32_t memory_type;  ///< KVMEM_MEMORY_* value.
    /// Number of parts that it was combined from; 0 if it was not combined. If it was, each part has its own
    /// shape: only num_blocks and the fields from tier to num_regions are set, and the others are 0.
    uint32_t num_parts;
    const char *const *part_names;  ///< Names of its parts, in their order; NULL if it was not combined.
    const char *agent;  ///< Name of the agent that it was built with, or of the peer; NULL for none.
    uint64_t device_id;  ///< NIXL's id of the first region: 0 for the host, a GPU's ordinal, a file's fd.
    uint64_t num_regions;  ///< Number of regions.
    const uint64_t *bases;  ///< Start of each region.
    uint64_t block_stride;  ///< Bytes from one block to the next.
    uint64_t layer_stride;  ///< Bytes from one layer to the next; 0 if layers have separate regions.
    uint64_t outer_stride;  ///< Bytes from one outer slot to the next; 0 if they have separate regions.
    uint64_t token_stride;  ///< Bytes from one token to the next; 0 if tokens have separate regions.
    uint64_t head_stride;  ///< Bytes from one head to the next; 0 if heads have separate regions.
    uint64_t element_stride;  ///< Bytes from one element of a head to the next.
    uint64_t layer_step;  ///< Bases from one layer to the next; 0 if layers share regions.
    uint64_t outer_step;  ///< Bases from one outer slot to the next; 0 if outer slots share regions.
    uint64_t token_step;  ///< Bases from one token to the next; 0 if tokens share regions.
    uint64_t head_step;  ///< Bases from one head to the next; 0 if heads share regions.
    uint64_t piece_size;  ///< Bytes of one block in one layer and outer slot, R, if contiguous; otherwise 0.
    /// Contiguous bytes of one head of one token: all elements, or dtype_width if others are in between.
    uint64_t row_size;
} kvmem_layout_info;

/// Returns the properties of a layout. Its pointers are valid as long as this handle.
kvmem_status kvmem_layout_get_info(const kvmem_layout *layout, kvmem_layout_info *info, kvmem_error **error);

/// Returns one of the regions of a layout.
/// @param index less than num_regions
/// @return KVMEM_STATUS_UNSUPPORTED: the layout is remote
kvmem_status kvmem_layout_get_region(const kvmem_layout *layout, size_t index, kvmem_region **region,
    kvmem_error **error);

/* ---- Parts ---- */

/// A layout that becomes a part of another one.
typedef struct kvmem_layout_part {
    const char *name;  ///< Name, 1 to 64 bytes of UTF-8 without control characters, such as "keys"; copied.
    const kvmem_layout *layout;  ///< Layout that was built, imported or opened, and was not combined itself.
} kvmem_layout_part;

/// Combines layouts that share block ids to one layout: keys and values of different width, data and scales,
/// an indexer, a recurrent state, groups of layers with other sizes. Exporting, sharing, importing, resizing,
/// checksums and transfers then work on all parts at once. Nothing is copied or allocated.
///
///     const kvmem_layout_part parts[] = {{"data", data}, {"scales", scales}};
///     status = kvmem_layout_combine(parts, 2, &cache, &error);
///
/// The parts must have the same number of blocks, and be on one tier and device, with the same agent. They
/// may be in the same regions, and may alternate in them, as long as no byte belongs to two parts. The order
/// of the parts does not matter: they are sorted by name. The new layout keeps the parts alive.
///
/// A part has its own shape, so kvmem_layout_get_block and kvmem_layout_get_row fail for the new layout with
/// KVMEM_STATUS_UNSUPPORTED: use kvmem_layout_get_part. Transfers move parts to those of the same names.
/// @param num_parts number of parts, 1 to 1024
/// @return KVMEM_STATUS_INVALID_ARGUMENT: a name is invalid or occurs twice; the parts overlap in memory; or
///           they differ in the number of blocks, tier, device or agent
///         KVMEM_STATUS_IO, KVMEM_STATUS_OUT_OF_MEMORY: the list of this process's mappings cannot be read
kvmem_status kvmem_layout_combine(const kvmem_layout_part *parts, size_t num_parts, kvmem_layout **layout,
    kvmem_error **error);

/// Returns one part of a layout that was combined, as a separate layout. It has the addresses, shape and
/// memory of the part, and can be used like any other layout, also alone in a transfer.
/// @return KVMEM_STATUS_NOT_FOUND: there is no such part
kvmem_status kvmem_layout_get_part(const kvmem_layout *layout, const char *name, kvmem_layout **part,
    kvmem_error **error);

/* ---- Growth, checksums ---- */

/// Allocates memory for the first blocks of an elastic layout and frees that of the others, in whole extents.
/// Addresses, strides and block ids do not change.
/// @param layout a layout that was built with elastic options
/// @param num_blocks blocks in use, 0 to num_blocks of the layout
/// @return KVMEM_STATUS_OUT_OF_RANGE: the layout has fewer blocks
///         KVMEM_STATUS_INVALID_STATE: the layout is not elastic
///         KVMEM_STATUS_BUSY: a transfer or share uses memory to be freed, or an agent deregisters it
kvmem_status kvmem_layout_resize(kvmem_layout *layout, uint64_t num_blocks, kvmem_error **error);

/// Computes the CRC32C (Castagnoli, as in iSCSI) of blocks.
///
/// A checksum is of the elements of a block in the order of layers, outer slots, tokens and heads, without
/// padding. Blocks with the same content have the same checksum, whatever the kind, order, alignment or tier
/// of their layouts. In a layout with parts it is of all parts, in the order of their names. Nothing may
/// write to the blocks during the call: work on streams of the caller must have completed before.
/// @param blocks block ids, in any order
/// @param num_blocks number of block ids, at least 1
/// @param timeout_ns the call waits at most 200 ms longer
/// @param checksums receives one checksum per block, in the order of the ids; unchanged after a failure
/// @return KVMEM_STATUS_OUT_OF_RANGE: there is no such block
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote, and its owner can compute them
///         KVMEM_STATUS_INVALID_STATE: an elastic block has no memory; the context of adopted GPU memory was
///           destroyed; or a layout of objects or block storage has no agent
///         KVMEM_STATUS_TIMED_OUT: not all checksums were computed after `timeout_ns`; for objects, the
///           message has the first object that was being read and its store
///         any other status: how reading a file or GPU memory failed
///
/// Notes: host memory is read in place, by several threads if that is faster, and GPU memory by a kernel on
/// its GPU. Blocks of files, and of GPU memory that was opened for another GPU, are first copied to host
/// memory, 16 MiB or one block at a time; so are those of objects and block storage, by NIXL. After a
/// timeout, the buffer and what it holds of the layout are released when the read ends, and the layout if a
/// kernel reads it: keep adopted memory until its release callback. Blocks of the host that are read in place
/// are checked against the limit every 64 MiB.
kvmem_status kvmem_layout_checksum(const kvmem_layout *layout, const uint32_t *blocks, size_t num_blocks,
    uint64_t timeout_ns, uint32_t *checksums, kvmem_error **error);

/* ---- Epochs: reads that detect reused blocks ---- */

/// Gives each block an epoch, so that transfers from the layout, also in other processes, detect blocks that
/// this process has reused meanwhile.
///
///     status = kvmem_layout_create_epochs(layout, NULL, &error);
///     // when block 7 is freed or before it is filled again, and before it is published
///     const uint32_t block = 7;
///     uint64_t epoch = 0;
///     status = kvmem_layout_raise_epochs(layout, &block, 1, &epoch, &error);
///
/// The owner publishes the epoch of a block with its id, after the block is filled, and raises it before the
/// next byte of another use is written. A reader sets the published epochs in kvmem_submit_options. Export or
/// share the layout after this call, and get the metadata of its agent after it. Epochs of a part are not
/// those of the layout that it was combined to.
/// @param table region of host memory whose first 8 bytes per block become the epochs, in the order of block
///        ids, with the contents that it has. The caller may raise them itself, by an atomic increment and a
///        fence behind it. NULL: kvmem allocates a table of zeros
/// @return KVMEM_STATUS_ALREADY_EXISTS: the layout has epochs
///         KVMEM_STATUS_UNSUPPORTED: the layout or the region belongs to another process, or the region is
///           not host memory
///         KVMEM_STATUS_OUT_OF_RANGE: the region is too small
///         KVMEM_STATUS_INVALID_ARGUMENT: the region is not aligned to 8 bytes, or overlaps the blocks
///         KVMEM_STATUS_PERMISSION_DENIED: the region is read-only
///         any status of kvmem_region_register, if the layout has an agent
kvmem_status kvmem_layout_create_epochs(kvmem_layout *layout, kvmem_region *table, kvmem_error **error);

/// Adds 1 to the epochs of some blocks. Each read that expects their epochs before ends with
/// KVMEM_STATUS_STALE, unless it has ended. Never waits.
///
/// After the call, this process may write to the blocks, also by a GPU or another device.
/// @param blocks block ids; one that occurs twice is raised twice: its first epoch in `epochs` is over
/// @param epochs receives the new epochs, in the order of the ids; may be NULL
/// @return KVMEM_STATUS_OUT_OF_RANGE: there is no such block; no epoch was raised
///         KVMEM_STATUS_INVALID_STATE: the layout has no epochs
///         KVMEM_STATUS_UNSUPPORTED, KVMEM_STATUS_PERMISSION_DENIED: the layout belongs to another process
kvmem_status kvmem_layout_raise_epochs(const kvmem_layout *layout, const uint32_t *blocks, size_t num_blocks,
    uint64_t *epochs, kvmem_error **error);

/// Returns the current epochs of some blocks. Never waits.
///
/// The owner publishes them. They prove nothing to a reader: another use of a block may have begun.
/// @param blocks block ids
/// @param epochs receives the epochs, in the order of the ids
/// @return KVMEM_STATUS_OUT_OF_RANGE: there is no such block
///         KVMEM_STATUS_INVALID_STATE: the layout has no epochs
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote
kvmem_status kvmem_layout_get_epochs(const kvmem_layout *layout, const uint32_t *blocks, size_t num_blocks,
    uint64_t *epochs, kvmem_error **error);

/* ---- Accesses: who may still read or write blocks ---- */

#define KVMEM_ACCESSOR_RUN 1  ///< A run in flight of a transfer or request of this process.
/// A run of this process that has ended, as at its deadline, while its memory is still in use. A
/// KVMEM_COMPLETION_MEMORY_RELEASED reports when it no longer is.
#define KVMEM_ACCESSOR_ENDED_RUN 2
#define KVMEM_ACCESSOR_LOST_RUN 3  ///< The same if nothing will detect when the memory is no longer in use.
#define KVMEM_ACCESSOR_PEER 4  ///< A peer, in a session that this process serves (kvmem_layout_serve).
#define KVMEM_ACCESSOR_LEASE 5  ///< The holder of a lease (kvmem_lease_create), in any process.

/// An access to a block that may be in progress.
typedef struct kvmem_block_access {
    uint32_t block;  ///< Block id.
    uint32_t accessor;  ///< KVMEM_ACCESSOR_* value.
    uint32_t reads;  ///< 1 if the block may be read, otherwise 0.
    uint32_t writes;  ///< 1 if the block may be written, otherwise 0.
    uint64_t user_data;  ///< For a run: the value of its options. Otherwise 0.
    /// For a lease: nanoseconds until it ends, rounded up to milliseconds; UINT64_MAX: no end. Otherwise 0.
    uint64_t remaining_ns;
    /// For a peer or a lease: the process id, as that process says and as its own namespace numbers it; 0 if
    /// the holder of a lease is unknown. 0 for a run.
    uint32_t pid;
    uint32_t reserved;
    /// For a peer, or a lease of one: the name of its agent, NUL-terminated; what does not fit is cut.
    /// Otherwise empty.
    char agent[64];
} kvmem_block_access;

/// Returns which of some blocks may still be read or written, and by whom, so that an owner need not wait
/// blindly after a timeout, an abort or the loss of a peer. Waits for no run and no other process.
///
///     kvmem_block_access accesses[64];
///     size_t count = 0;
///     status = kvmem_layout_get_accesses(layout, blocks, num_blocks, accesses, 64, &count, &error);
///     // count is 0: no access that has begun goes on, and no process has leased the blocks
///
/// Bytes are compared: runs between other layouts, views or mappings of the same memory in this process
/// count, and so do leases of them in any process. Each block has one access per run, session or lease, in
/// ascending order of the ids; accesses to one block are in no order. A run counts from its start, before the
/// call that submits it returns, until its memory is no longer in use. A session counts as a whole until it
/// has ended and its last copy, too. A lease that is over does not count.
///
/// This process does not know of, and the call does not return:
/// - what a peer accesses by NIXL without a session or a lease, and what another process accesses without a
///   lease in memory that it has mapped: epochs detect such reads (kvmem_layout_create_epochs);
/// - requests of peers that have not begun, because they wait for slots of the owner;
/// - replays of a graph that a transfer was captured into;
/// - calls that have not returned, such as kvmem_layout_checksum or kvmem_request_post in another thread.
///
/// Leases of mapped memory are locks that its importers have. An importer can lease every block, and prolong
/// leases of others. A block has the access of a lease with a pid of 0 and no end, beside those that were
/// found, if locks hide what else is leased of it, the call had taken 0.25 s of CPU time before it looked, or
/// there are more than 1,024 leases of it and 15 other blocks.
/// @param blocks block ids; one that occurs twice counts once
/// @return KVMEM_STATUS_OUT_OF_RANGE: there is no such block
///         KVMEM_STATUS_PERMISSION_DENIED, KVMEM_STATUS_IO: the memory was shared, and the kernel does not
///           report its locks, for example because a system call filter rejects F_OFD_GETLK
kvmem_status kvmem_layout_get_accesses(const kvmem_layout *layout, const uint32_t *blocks, size_t num_blocks,
    kvmem_block_access *accesses, size_t capacity, size_t *count, kvmem_error **error);

/* ---- Leases: a process says which blocks it uses ---- */

/// A lease of blocks: an announcement to the owner of memory that this process uses them. It keeps the layout
/// alive. It ends at the latest with this process, which the owner of a remote layout may find out later.
typedef struct kvmem_lease kvmem_lease;

#define KVMEM_LEASE_WRITES 1  ///< The holder may also write the blocks.

/// Options of kvmem_lease_create.
typedef struct kvmem_lease_options {
    size_t struct_size;
    uint64_t flags;  ///< KVMEM_LEASE_* flags; 0: the holder reads the blocks.
    /// Nanoseconds after which the lease ends, at most a millisecond later. 0 or KVMEM_TIMEOUT_FOREVER: it
    /// ends when it is destroyed, or of a remote layout after as long as its owner keeps leases.
    uint64_t duration_ns;
    /// Of a remote layout: nanoseconds that kvmem_lease_create, and each kvmem_lease_renew, wait for the
    /// owner's reply; 0 for 5 s. KVMEM_TIMEOUT_FOREVER: as long as calls of the agent wait for NIXL.
    uint64_t timeout_ns;
} kvmem_lease_options;

/// Leases blocks of a layout that is mapped here, such as one that was opened from a share, or of a remote
/// one that its owner serves (kvmem_layout_serve).
///
///     const kvmem_lease_options options = {.struct_size = sizeof options, .duration_ns = 2000000000};
///     status = kvmem_lease_create(layout, blocks, num_blocks, &options, &lease, &error);
///     // read the blocks, with the epochs that were published for them
///     kvmem_lease_destroy(lease);
///
/// The owner sees who has leased which blocks, and until when (kvmem_layout_get_accesses), and then keeps
/// them or raises their epochs. A lease forbids nothing: an owner that reuses a block meanwhile, or has
/// decided to before the lease began, is detected by epochs only. It ends when it is destroyed, when its
/// duration has passed, also while this process is stopped, and when this process ends in any way. Runs do
/// not end with it: renew it as long as they take.
///
/// **Mapped memory**: it waits for no other process, and others cannot end the lease. This process may have
/// 256 leases of a region, with 1,024 separate ranges of bytes in all.
///
/// **A remote layout**: it waits until the owner has replied, at most for `timeout_ns`. The owner keeps the
/// lease for `max_lease_ns` of its kvmem_serve_options at most, so one without an end must be renewed, too:
/// kvmem_lease_get_remaining says until when. This process counts a thousandth less of a duration than the
/// owner. Of each layout, an agent may have 256 leases, of 65,536 blocks in all. A holder whose end the owner
/// cannot prove, as on another machine, keeps its lease until it is over. KVMEM_LEASE_WRITES needs no
/// KVMEM_SERVE_WRITE, because a peer can write by NIXL itself. Create no lease after the owner has destroyed
/// the layout, as you begin no transfer then: over TCP a request for memory that is no longer mapped ends the
/// owner's process.
/// @param blocks block ids, at least 1; one that occurs twice counts once
/// @param options flags and duration; NULL for a lease to read, until it is destroyed
/// @return KVMEM_STATUS_OUT_OF_RANGE: there is no such block
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote, and its owner does not serve it; or it has more
///           separate ranges of blocks than a message has space for, about 32,000
///         KVMEM_STATUS_TIMED_OUT: the owner of a remote layout has not replied
///         KVMEM_STATUS_STALE: the owner of a remote layout has destroyed it, or was replaced
///         KVMEM_STATUS_PERMISSION_DENIED: KVMEM_LEASE_WRITES for read-only memory, or F_OFD_SETLK is denied
///         KVMEM_STATUS_IO: the kernel cannot open or lock the control block of the memory
///         KVMEM_STATUS_PEER_LOST: the owner has freed the mapped memory, or has ended
///         KVMEM_STATUS_OUT_OF_MEMORY: this process has as many leases, ranges or blocks as it may have, or
///           the owner of a remote layout keeps 262,144 blocks for peers; a lease counts as 256 at least
///         KVMEM_STATUS_BUSY: others have too many locks, or an exclusive one, on the control block
kvmem_status kvmem_lease_create(const kvmem_layout *layout, const uint32_t *blocks, size_t num_blocks,
    const kvmem_lease_options *options, kvmem_lease **lease, kvmem_error **error);

/// Has a lease end after a duration from now on. It waits for the owner of a remote layout, for at most
/// `timeout_ns` of the lease, and otherwise for nothing. If it fails, the lease ends as before, or, of a
/// remote layout, at the new end if that is earlier; the owner may see a later end.
/// @param duration_ns nanoseconds from now on, otherwise as in kvmem_lease_options
/// @return KVMEM_STATUS_STALE: the lease is over or about to be, so the owner may have reused its blocks.
///           That is so at once after a duration of at most a millisecond. Or the owner of a remote layout
///           has destroyed it, or its metadata was invalidated
///         KVMEM_STATUS_TIMED_OUT: the owner of a remote layout has not replied
///         KVMEM_STATUS_BUSY: a process that can open the control block of the memory for writing has locked
///           it exclusively; the lease is not prolonged while that process does so
///         KVMEM_STATUS_IO: the kernel cannot lock the control block of the memory
///         KVMEM_STATUS_PEER_LOST: the owner has freed the mapped memory, or has ended
kvmem_status kvmem_lease_renew(kvmem_lease *lease, uint64_t duration_ns, kvmem_error **error);

/// Returns the time until a lease ends. Never waits.
/// @param remaining_ns receives nanoseconds, rounded down to milliseconds: 0 if the lease is over or about to
///        be, UINT64_MAX if it ends when it is destroyed
kvmem_status kvmem_lease_get_remaining(const kvmem_lease *lease, uint64_t *remaining_ns, kvmem_error **error);

/// Ends a lease, and destroys the handle. Never waits. The owner of a remote layout sees the lease until a
/// message arrives, or, if none can be sent (its metadata was invalidated), until the duration has passed.
void kvmem_lease_destroy(kvmem_lease *lease);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_LAYOUT_H */
