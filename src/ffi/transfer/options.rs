// SPDX-License-Identifier: Apache-2.0
//! What is the same in all runs of a transfer: options of new transfers, and their conversion to core types.

use std::ffi::c_char;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Result, ensure, fail};
use crate::ffi::common::{
    Scope, borrow_nullable, check_flags, check_reserved, items, not_one_of, options, text,
};
use crate::ffi::queue::kvmem_queue;
use crate::ffi::transfer::method::METHODS;
use crate::transfer::{PairedRange, Preferences, Queue, Reports, TransferRequest, Wanted};

/// Exclude methods that store bytes anywhere between source and destination: in staging memory, in memory of
/// the driver (which it uses if host memory is not page-locked), or in the page cache of a buffered file.
/// Excludes all methods to a peer, because NIXL does not report what its backends do.
pub const KVMEM_TRANSFER_ZERO_COPY: u64 = 1;
/// Exclude methods through host memory that is neither source nor destination: all methods between a file and
/// a GPU except GPUDirect Storage, and all methods to a peer.
pub const KVMEM_TRANSFER_NO_HOST_BOUNCE: u64 = 2;
/// Move the layers in order, and report how many have moved: see kvmem_transfer_get_info,
/// kvmem_transfer_wait_layers and kvmem_transfer_wait_on_stream. Bytes that are contiguous across layers are
/// then moved layer by layer, which makes transfers of small fully contiguous blocks slower;
/// kvmem_transfer_explain reports by how much.
pub const KVMEM_TRANSFER_BY_LAYER: u64 = 4;
/// The queue gets a KVMEM_COMPLETION_MEMORY_RELEASED for each run that ends before its memory is released, as
/// at its `run_timeout_ns`. Requires a queue.
pub const KVMEM_TRANSFER_REPORT_RELEASE: u64 = 8;

/// Kernels of the caller may run meanwhile. Methods that slow them down are not used, or use few CTAs.
pub const KVMEM_COMPUTE_MAY_RUN: u32 = 0;
/// The GPU is idle during the transfer. Copies may use all of it.
pub const KVMEM_COMPUTE_IDLE: u32 = 1;

/// Options of kvmem_transfer_create and kvmem_transfer_start: what does not change from run to run.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_transfer_options {
    /// sizeof(kvmem_transfer_options)
    pub struct_size: usize,
    /// KVMEM_TRANSFER_* flags.
    pub flags: u64,
    /// Queue that receives a completion per run; NULL for none.
    pub queue: *mut kvmem_queue,
    /// n: the queue also gets a KVMEM_COMPLETION_LAYERS_MOVED whenever n more layers have moved, and when all
    /// have. 0 for none. Requires a queue and KVMEM_TRANSFER_BY_LAYER. Runs of graphs report none.
    pub layers_per_completion: u64,
    /// First layer in the source.
    pub source_layer: u64,
    /// First layer in the destination.
    pub destination_layer: u64,
    /// Number of layers; 0 for all: then both first layers must be 0, and both layouts have the same number.
    pub num_layers: u64,
    /// First outer slot in the source: 0 for keys, 1 for values.
    pub source_outer: u64,
    /// First outer slot in the destination.
    pub destination_outer: u64,
    /// Number of outer slots; 0 for all: then both first slots must be 0, and both layouts have the same
    /// number.
    pub num_outers: u64,
    /// First head in the source.
    pub source_head: u64,
    /// First head in the destination.
    pub destination_head: u64,
    /// Number of heads; 0 for all: then both first heads must be 0, and both layouts have the same number.
    /// With tensor parallelism each layout has some of the heads of the model, counted from 0 in each layout.
    /// A range requires num_heads in both layouts.
    pub num_heads: u64,
    /// Names of the parts to move, for layouts that were combined; copied. NULL for all: then both layouts
    /// have parts of the same names. A part is moved to the part of the same name. Ranges of layers, outer
    /// slots and heads apply to each part. A part without heads, such as a latent cache, needs a transfer of
    /// its own, without a range of heads.
    pub parts: *const *const c_char,
    /// Number of names; 0 for all parts.
    pub num_parts: usize,
    /// KVMEM_METHOD_* value: use this method, or fail. 0: the one with the highest estimated throughput.
    pub method: u32,
    /// KVMEM_COMPUTE_* value.
    pub compute: u32,
    /// Maximum number of CTAs of a copy kernel; 0 for the highest throughput.
    pub max_ctas: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Bytes of the method's staging memory, which its transfers share; 0 for the default.
    /// On a GPU, for all its transfers in one direction: 128 MiB, or 64 MiB with KVMEM_COMPUTE_IDLE. It is as
    /// large as the largest request, and is allocated on first use. While long kernels run, it must hold the
    /// bytes that the link moves during one of them.
    /// Between files and GPU memory, for a GPU and a file system: 64 MiB of page-locked host memory, in four
    /// slots, each of which holds at least one piece.
    /// For a peer, for transfers of an agent with the same size: 16 MiB of registered memory, or 64 MiB in
    /// GPU memory, in eight slots. Slots that peers which do not respond keep are replaced, up to eight times
    /// this size in all.
    /// For objects: registered memory in eight slots, each of which holds an object; as large as eight.
    pub staging_size: u64,
    /// For transfers with a peer: nanoseconds without progress after which a run ends with
    /// KVMEM_STATUS_TIMED_OUT; 0 for 30 seconds with staging memory, and for no limit without. The memory of
    /// such a run stays in use until NIXL has released it; until then kvmem_transfer_submit fails with
    /// KVMEM_STATUS_BUSY. KVMEM_TRANSFER_REPORT_RELEASE reports when that is over.
    pub stall_timeout_ns: u64,
}
options!(kvmem_transfer_options);

/// The request as core types.
///
/// # Safety
/// Every pointer in the options must be NULL or valid.
pub(in crate::ffi) unsafe fn request<'a>(
    scope: &Scope<'_>,
    options: &kvmem_transfer_options,
) -> Result<TransferRequest<'a>> {
    let known = KVMEM_TRANSFER_ZERO_COPY
        | KVMEM_TRANSFER_NO_HOST_BOUNCE
        | KVMEM_TRANSFER_BY_LAYER
        | KVMEM_TRANSFER_REPORT_RELEASE;
    check_flags("kvmem_transfer_options", options.flags, known)?;
    // SAFETY: the caller's promise, for all below.
    unsafe {
        let queue = borrow_nullable(scope, options.queue).map_err(|error| error.context("queue"))?;
        Ok(TransferRequest {
            wanted: wanted(options)?,
            parts: parts(options)?,
            reports: reports(options, queue.map(|queue| queue.0.clone()))?,
            preferences: preferences(options)?,
        })
    }
}

fn reports(options: &kvmem_transfer_options, queue: Option<Arc<Queue>>) -> Result<Reports> {
    let layers = NonZeroU64::new(options.layers_per_completion);
    let release = options.flags & KVMEM_TRANSFER_REPORT_RELEASE != 0;
    let asked = [(layers.is_some(), "layers_per_completion"), (release, "KVMEM_TRANSFER_REPORT_RELEASE")];
    if let (None, Some((_, name))) = (&queue, asked.into_iter().find(|(is_set, _)| *is_set)) {
        fail!(InvalidArgument, "{name} is set, and queue is NULL; set the queue that gets the completions");
    }
    ensure!(
        layers.is_none() || options.flags & KVMEM_TRANSFER_BY_LAYER != 0,
        InvalidArgument,
        "layers_per_completion is set, and layers are not moved one by one; set KVMEM_TRANSFER_BY_LAYER"
    );
    Ok(Reports { queue, layers, release, tallies: None })
}

/// # Safety
/// The names must be NULL or readable, each NUL-terminated.
unsafe fn parts<'a>(options: &kvmem_transfer_options) -> Result<Vec<&'a str>> {
    ensure!(
        options.parts.is_null() || options.num_parts > 0,
        InvalidArgument,
        "parts is given and num_parts is 0; set the number of names, or leave parts NULL to move all"
    );
    let names = items(options.parts, options.num_parts, ("parts", "num_parts"))?;
    let name = |(index, name): (usize, &*const c_char)| text::required(*name, &format!("parts[{index}]"));
    names.iter().enumerate().map(name).collect()
}

fn preferences(options: &kvmem_transfer_options) -> Result<Preferences> {
    check_reserved("kvmem_transfer_options", options.reserved)?;
    let compute_is_idle = match options.compute {
        KVMEM_COMPUTE_MAY_RUN => false,
        KVMEM_COMPUTE_IDLE => true,
        other => return Err(not_one_of("compute", other, "KVMEM_COMPUTE_*")),
    };
    let asked = METHODS.iter().find(|(value, _)| *value == options.method).map(|(_, method)| *method);
    if asked.is_none() && options.method != 0 {
        return Err(not_one_of("method", options.method, "KVMEM_METHOD_*"));
    }
    Ok(Preferences {
        compute_is_idle,
        max_ctas: options.max_ctas,
        staging_size: options.staging_size,
        zero_copy: options.flags & KVMEM_TRANSFER_ZERO_COPY != 0,
        no_host_bounce: options.flags & KVMEM_TRANSFER_NO_HOST_BOUNCE != 0,
        by_layer: options.flags & KVMEM_TRANSFER_BY_LAYER != 0,
        method: asked,
        stall_timeout: (options.stall_timeout_ns > 0).then(|| Duration::from_nanos(options.stall_timeout_ns)),
        prepared_by: None,
        poisons_slots: false,
    })
}

fn wanted(options: &kvmem_transfer_options) -> Result<Wanted> {
    let kvmem_transfer_options { source_layer, destination_layer, num_layers, .. } = *options;
    let kvmem_transfer_options { source_outer, destination_outer, num_outers, .. } = *options;
    Ok(Wanted {
        layers: range("layer", source_layer, destination_layer, num_layers)?,
        outers: range("outer", source_outer, destination_outer, num_outers)?,
        heads: range("head", options.source_head, options.destination_head, options.num_heads)?,
    })
}

fn range(name: &str, source: u64, destination: u64, count: u64) -> Result<Option<PairedRange>> {
    ensure!(
        count > 0 || (source == 0 && destination == 0),
        InvalidArgument,
        "num_{name}s is 0, which means all, with source_{name} {source} and destination_{name} {destination}; set num_{name}s, \
         or both of these to 0"
    );
    Ok((count > 0).then_some(PairedRange { source, destination, count }))
}
