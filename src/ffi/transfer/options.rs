// SPDX-License-Identifier: Apache-2.0
//! Options of new transfers, checked and as the core has them.

use std::ffi::c_void;

use crate::error::{Result, ensure};
use crate::ffi::common::handle::borrow_nullable;
use crate::ffi::common::options::{check_flags, init, not_one_of, options};
use crate::ffi::common::pointer::items;
use crate::ffi::common::scope::Scope;
use crate::ffi::common::text;
use crate::ffi::queue::kvmem_queue;
use crate::ffi::transfer::path::PATHS;
use crate::transfer::{BlockPair, Expected, PairedRange, Preferences, Request, Wanted};

/// A block and where it goes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_block_pair {
    /// Block id in the source layout.
    pub source: u32,
    /// Block id in the destination layout.
    pub destination: u32,
}
const _: () = assert!(size_of::<kvmem_block_pair>() == size_of::<BlockPair>());

/// Refuse paths that put bytes anywhere between source and destination: staging memory, the driver's own
/// where host memory is not page-locked, or the page cache of a buffered file, whether kvmem or NIXL reads
/// and writes it. No path to a peer is left: what NIXL's backends do with the bytes on their way is not
/// known.
pub const KVMEM_TRANSFER_ZERO_COPY: u64 = 1;
/// Refuse paths through host memory that is neither source nor destination, as all between a file and a GPU
/// are but GPUDirect Storage. No path to a peer is left either: see KVMEM_TRANSFER_ZERO_COPY.
pub const KVMEM_TRANSFER_NO_HOST_BOUNCE: u64 = 2;
/// Move the layers in order, and tell how many have moved: kvmem_transfer_get_layers,
/// kvmem_transfer_wait_layers and kvmem_transfer_wait_on_stream. Bytes that lie together in several layers
/// are then moved a layer at a time, which costs a transfer of small fully contiguous blocks some of its
/// speed; kvmem_transfer_explain tells.
pub const KVMEM_TRANSFER_BY_LAYER: u64 = 4;
/// When all has moved, compare the CRC32C of each destination block with that of its source block, both of
/// which must stay as they are until the run is over; the source must not be remote. The run ends when they
/// are compared, and with KVMEM_STATUS_CORRUPT where they differ. See `checksums` for a comparison with what
/// was known before.
pub const KVMEM_TRANSFER_VERIFY: u64 = 8;

/// Compute may run on the GPU meanwhile: what would slow it is not taken, or takes few CTAs.
pub const KVMEM_COMPUTE_MAY_RUN: u32 = 0;
/// Nothing computes on the GPU meanwhile: copies may take all of it.
pub const KVMEM_COMPUTE_IDLE: u32 = 1;

/// What to move.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_transfer_options {
    /// sizeof(kvmem_transfer_options)
    pub struct_size: usize,
    /// KVMEM_TRANSFER_* flags.
    pub flags: u64,
    /// The blocks, in any order; copied. No destination may be named twice.
    pub pairs: *const kvmem_block_pair,
    /// How many, at least 1.
    pub num_pairs: usize,
    /// First layer in the source.
    pub source_layer: u64,
    /// First layer in the destination.
    pub destination_layer: u64,
    /// How many layers. 0 for all: then both first layers are 0, and both layouts have as many layers.
    pub num_layers: u64,
    /// First outer slot in the source: 0 for keys, 1 for values.
    pub source_outer: u64,
    /// First outer slot in the destination.
    pub destination_outer: u64,
    /// How many outer slots. 0 for all: then both first slots are 0, and both layouts have as many.
    pub num_outers: u64,
    /// Sent to the remote agent after the last byte has moved; copied. NULL with size 0 for none, not NULL
    /// with size 0 for an empty one. Needs a remote layout.
    pub notification: *const c_void,
    /// Its bytes.
    pub notification_size: usize,
    /// Where completions go; NULL for none.
    pub queue: *mut kvmem_queue,
    /// Comes back in completions.
    pub user_data: u64,
    /// A KVMEM_COMPUTE_* value: whether the GPU computes while blocks move.
    pub compute: u32,
    /// The most CTAs of a copy kernel, for engines that share the GPU closely; 0 for as many as are worth
    /// having.
    pub max_ctas: u32,
    /// Bytes of device memory for staged copies, whose parts fill and drain in turn; 0 for 128 MiB, or 64 MiB
    /// where nothing computes. Beside long kernels it must hold what the link moves during one of them.
    /// Transfers on a device share two, each as large as the largest asked for and made when it is first
    /// needed: one for blocks on their way to the GPU, and one for blocks on their way to the host, so that
    /// both ways are under way at a time. Between a file and GPU memory: bytes of page-locked memory in four
    /// slots, each of which holds at least a piece, and which transfers of a device share as well; 0 for 64
    /// MiB.
    pub staging_size: u64,
    /// A KVMEM_PATH_* value to take and no other; 0 for the one that is expected to be fastest.
    pub path: u32,
    /// Must be 0.
    pub reserved: u32,
    /// What the CRC32C of the moved layers and outer slots of each block must be when they have moved, one a
    /// pair, as kvmem_layout_checksum computes it; copied. NULL for none. The destination's blocks are read
    /// again as that function reads them, and must stay as they are until the run is over. It ends with
    /// KVMEM_STATUS_CORRUPT where they differ, and names the first pair that does. Not with a remote
    /// destination, whose owner can compare, with KVMEM_TRANSFER_BY_LAYER, with KVMEM_TRANSFER_VERIFY, or in
    /// a graph.
    pub checksums: *const u32,
}
options!(kvmem_transfer_options);

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_options_init(
    options: *mut kvmem_transfer_options,
    struct_size: usize,
) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// What is asked for.
///
/// # Safety
/// Every pointer in the options must be NULL or valid.
pub(in crate::ffi) unsafe fn request<'a>(
    scope: &Scope<'_>,
    options: &kvmem_transfer_options,
) -> Result<Request<'a>> {
    let known = KVMEM_TRANSFER_ZERO_COPY
        | KVMEM_TRANSFER_NO_HOST_BOUNCE
        | KVMEM_TRANSFER_BY_LAYER
        | KVMEM_TRANSFER_VERIFY;
    check_flags("kvmem_transfer_options", options.flags, known)?;
    // SAFETY: the caller's promise, for all below.
    unsafe {
        // The core's pair is laid out as C's is, field by field.
        let pairs = items(options.pairs.cast::<BlockPair>(), options.num_pairs, "pairs")?;
        let message = text::bytes(options.notification, options.notification_size, "notification")?;
        let queue = borrow_nullable(scope, options.queue)?;
        Ok(Request {
            pairs,
            wanted: wanted(options)?,
            notification: (!options.notification.is_null()).then(|| message.to_vec()),
            queue: queue.map(|queue| (queue.0.clone(), options.user_data)),
            preferences: preferences(options)?,
            expected: expected(options)?,
        })
    }
}

/// # Safety
/// The checksums must be NULL or readable, one a pair.
unsafe fn expected<'a>(options: &kvmem_transfer_options) -> Result<Option<Expected<'a>>> {
    let by_source = options.flags & KVMEM_TRANSFER_VERIFY != 0;
    if options.checksums.is_null() {
        return Ok(by_source.then_some(Expected::Source));
    }
    ensure!(
        !by_source,
        InvalidArgument,
        "checksums are given, and KVMEM_TRANSFER_VERIFY asks for the source's; one of the two says what is expected"
    );
    // SAFETY: the caller's promise.
    let checksums = unsafe { items(options.checksums, options.num_pairs, "checksums") }?;
    Ok(Some(Expected::Checksums(checksums)))
}

fn preferences(options: &kvmem_transfer_options) -> Result<Preferences> {
    ensure!(options.reserved == 0, InvalidArgument, "reserved is {}, it must be 0", options.reserved);
    let compute_is_idle = match options.compute {
        KVMEM_COMPUTE_MAY_RUN => false,
        KVMEM_COMPUTE_IDLE => true,
        other => return Err(not_one_of("compute", other, "KVMEM_COMPUTE_*")),
    };
    let asked = PATHS.iter().find(|(value, _)| *value == options.path).map(|(_, path)| *path);
    if asked.is_none() && options.path != 0 {
        return Err(not_one_of("path", options.path, "KVMEM_PATH_*"));
    }
    Ok(Preferences {
        compute_is_idle,
        max_ctas: options.max_ctas,
        staging_size: options.staging_size,
        zero_copy: options.flags & KVMEM_TRANSFER_ZERO_COPY != 0,
        no_host_bounce: options.flags & KVMEM_TRANSFER_NO_HOST_BOUNCE != 0,
        by_layer: options.flags & KVMEM_TRANSFER_BY_LAYER != 0,
        path: asked,
    })
}

fn wanted(options: &kvmem_transfer_options) -> Result<Wanted> {
    let kvmem_transfer_options { source_layer, destination_layer, num_layers, .. } = *options;
    let kvmem_transfer_options { source_outer, destination_outer, num_outers, .. } = *options;
    Ok(Wanted {
        layers: range("layer", "num_layers", source_layer, destination_layer, num_layers)?,
        outers: range("outer slot", "num_outers", source_outer, destination_outer, num_outers)?,
    })
}

fn range(name: &str, field: &str, source: u64, destination: u64, count: u64) -> Result<Option<PairedRange>> {
    ensure!(
        count > 0 || (source == 0 && destination == 0),
        InvalidArgument,
        "{field} is missing: a first {name} is given, and 0 {name}s mean all"
    );
    Ok((count > 0).then_some(PairedRange { source, destination, count }))
}
