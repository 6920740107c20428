// SPDX-License-Identifier: Apache-2.0
//! Layouts.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use super::agent::kvmem_agent;
use super::blob::{self, kvmem_blob};
use super::error::kvmem_error;
use super::guard::{Scope, call};
use super::handle::{Handle, Out, borrow, borrow_nullable, destroy, opaque, out};
use super::options::{check_flags, init, options, read};
use super::region::{
    disk_config, kvmem_disk_options, kvmem_region, kvmem_system_options, system_config, tier,
};
use super::registration::{kvmem_registration, memory_type};
use super::status::kvmem_status;
use super::text;
use crate::error::{Error, Result, Status, ensure};
use crate::layout::{Allocation, BlockDim, Dimensions, Geometry, Layout, LayoutKind, Locality};

/// Where each block of a KV cache lies. It holds its regions and their registrations.
///
/// Threads: all functions on one layout may run at once, except kvmem_layout_destroy.
pub struct kvmem_layout {
    handle: Handle<Arc<Layout>>,
}
opaque!(kvmem_layout, Arc<Layout>, "layout");

/// One region; a block holds all its layers, a layer its outer slots:
/// base + block·L·O·R + layer·O·R + outer·R
pub const KVMEM_LAYOUT_FULLY_CONTIGUOUS: u32 = 1;
/// One region a layer; where the block stands in it, block_dim says.
pub const KVMEM_LAYOUT_LAYER_SEPARATE: u32 = 2;

/// base[layer] + block·O·R + outer·R
pub const KVMEM_BLOCK_DIM_FIRST: u32 = 1;
/// base[layer] + outer·N·R + block·R
pub const KVMEM_BLOCK_DIM_SECOND: u32 = 2;

/// The shape of a KV cache. In the formulas N is num_blocks, L num_layers, O outer_dim, and
/// R = page_size × inner_dim × dtype_width bytes; the shapes are those of NVIDIA Dynamo's KVBM.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_layout_config {
    /// sizeof(kvmem_layout_config)
    pub struct_size: usize,
    /// Blocks (pages), 1 to 4294967295.
    pub num_blocks: u64,
    /// Layers of the model, at least 1.
    pub num_layers: u64,
    /// 2 where K and V are apart, 1 where they are one (MLA).
    pub outer_dim: u64,
    /// Tokens in a block, at least 1.
    pub page_size: u64,
    /// Elements one token has in one layer and outer slot, at least 1.
    pub inner_dim: u64,
    /// Bytes of one element: 1, 2, 4 or 8.
    pub dtype_width: u64,
    /// Each block starts at a multiple of this many bytes, a power of two; the block stride is rounded up to it. 0
    /// for 1.
    pub alignment: u64,
    /// Attention heads inner_dim is made of; 0 where that is not known.
    pub num_heads: u64,
    /// A KVMEM_LAYOUT_* kind.
    pub kind: u32,
    /// A KVMEM_BLOCK_DIM_* value; 0 for KVMEM_BLOCK_DIM_FIRST. KVMEM_BLOCK_DIM_SECOND needs a layer separate layout.
    pub block_dim: u32,
}
options!(kvmem_layout_config);

/// One new allocation holds all regions, each at a multiple of 512 bytes.
pub const KVMEM_LAYOUT_ALLOCATE: u32 = 1;
/// The caller's regions; with an agent each is registered.
pub const KVMEM_LAYOUT_REGIONS: u32 = 2;
/// Regions that are registered, all with one agent.
pub const KVMEM_LAYOUT_REGISTRATIONS: u32 = 3;

/// How to build a layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_layout_options {
    /// sizeof(kvmem_layout_options)
    pub struct_size: usize,
    /// Must be 0.
    pub flags: u64,
    /// The shape.
    pub config: *const kvmem_layout_config,
    /// Who shall reach it; NULL for a layout that only this process reaches.
    pub agent: *mut kvmem_agent,
    /// KVMEM_LAYOUT_ALLOCATE: host memory to allocate, with size 0. Exactly one of system and disk is given.
    pub system: *const kvmem_system_options,
    /// KVMEM_LAYOUT_ALLOCATE: a file to make, with size 0.
    pub disk: *const kvmem_disk_options,
    /// KVMEM_LAYOUT_REGIONS: the regions, in order of layers.
    pub regions: *const *mut kvmem_region,
    /// KVMEM_LAYOUT_REGISTRATIONS: the registrations, in order of layers.
    pub registrations: *const *mut kvmem_registration,
    /// How many regions or registrations.
    pub count: usize,
    /// KVMEM_LAYOUT_ALLOCATE, _REGIONS or _REGISTRATIONS.
    pub source: u32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_layout_options);

/// Fills a shape with zeroes; every field but alignment, num_heads and block_dim must be set.
///
/// @param config the caller's struct; NULL does nothing
/// @param struct_size sizeof(*config); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_config_init(config: *mut kvmem_layout_config, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(config, struct_size) };
}

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_options_init(options: *mut kvmem_layout_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// The memory a shape needs.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_layout_requirements {
    /// 1, or num_layers for a layer separate layout.
    pub num_regions: u64,
    /// Bytes of each.
    pub region_size: u64,
    /// Bytes of all.
    pub total_size: u64,
    /// Bytes of one allocation that holds all, each at a multiple of 512 bytes or of the alignment.
    pub allocation_size: u64,
}

/// Tells the memory a shape needs. Nothing is allocated.
///
/// @param config the shape
/// @param requirements gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a shape that can't be, with the field that is wrong
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_requirements(
    config: *const kvmem_layout_config,
    requirements: *mut kvmem_layout_requirements,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (requirements, config) = unsafe { (out(requirements, "requirements")?, read(config)?) };
        let (dimensions, kind) = shape(&config)?;
        let geometry = Geometry::new(dimensions, kind)?;
        requirements.write(kvmem_layout_requirements {
            num_regions: geometry.num_regions() as u64,
            region_size: geometry.region_size(),
            total_size: geometry.total_size()?,
            allocation_size: geometry.allocation_size()?,
        });
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Builds a layout. Everything is checked before anything is allocated or registered, and a failure changes nothing.
///
/// @param options how
/// @param layout gets the layout; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a shape that can't be, a source that is missing or not
///         asked for, too few or too many regions, regions of mixed kinds, that overlap, are not aligned or belong to
///         another agent; KVMEM_STATUS_OUT_OF_RANGE for a region that is too small; KVMEM_STATUS_INVALID_STATE for a
///         registration that was taken back; what kvmem_region_create_system, kvmem_region_create_disk and
///         kvmem_region_register answer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_build(
    options: *const kvmem_layout_options,
    layout: *mut *mut kvmem_layout,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let (layout, options) = (Out::new(layout)?, read(options)?);
            layout.set(build(scope, &options)?);
            Ok(())
        })
    }
}

/// A span of a layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_block {
    /// The first byte: an address in the process the layout lies in, or an offset in the file.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// Where one block's share of a layer and outer slot lies.
///
/// @param layout a layout
/// @param block block id, below num_blocks
/// @param layer below num_layers
/// @param outer below outer_dim
/// @param out gets the span
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_block(
    layout: *const kvmem_layout,
    block: u64,
    layer: u64,
    outer: u64,
    out: *mut kvmem_block,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let span = super::handle::out(out, "out")?;
            let (address, size) = borrow(scope, layout)?.block(block, layer, outer)?;
            span.write(kvmem_block { address, size });
            Ok(())
        })
    }
}

/// The numbers to compute addresses with:
/// bases[num_bases > 1 ? layer : 0] + block·block_stride + layer·layer_stride + outer·outer_stride
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_layout_strides {
    /// Where each region starts. Valid as long as the layout.
    pub bases: *const u64,
    /// 1, or num_layers.
    pub num_bases: u64,
    /// Bytes from a block to the next.
    pub block_stride: u64,
    /// Bytes from a layer to the next; 0 for a layer separate layout.
    pub layer_stride: u64,
    /// Bytes from an outer slot to the next.
    pub outer_stride: u64,
    /// Bytes of one (block, layer, outer): R.
    pub size: u64,
}

/// Tells the numbers to compute addresses with.
///
/// @param layout a layout
/// @param strides gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_strides(
    layout: *const kvmem_layout,
    strides: *mut kvmem_layout_strides,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let strides = out(strides, "strides")?;
            let placement = borrow(scope, layout)?.placement();
            let geometry = placement.geometry();
            strides.write(kvmem_layout_strides {
                bases: placement.bases().as_ptr(),
                num_bases: placement.bases().len() as u64,
                block_stride: geometry.block_stride(),
                layer_stride: geometry.layer_stride(),
                outer_stride: geometry.outer_stride(),
                size: geometry.piece_size(),
            });
            Ok(())
        })
    }
}

/// This process alone reaches it: no agent knows it.
pub const KVMEM_LOCALITY_LOCAL: u32 = 1;
/// This process reaches it, and peers of its agent.
pub const KVMEM_LOCALITY_REGISTERED: u32 = 2;
/// It is a peer's, reached by transfers.
pub const KVMEM_LOCALITY_REMOTE: u32 = 3;

/// What a layout is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_layout_info {
    /// As configured.
    pub num_blocks: u64,
    /// As configured.
    pub num_layers: u64,
    /// As configured.
    pub outer_dim: u64,
    /// As configured.
    pub page_size: u64,
    /// As configured.
    pub inner_dim: u64,
    /// As configured.
    pub dtype_width: u64,
    /// As configured; 1 where that was 0.
    pub alignment: u64,
    /// As configured.
    pub num_heads: u64,
    /// NIXL's device id of its first region: 0 for host memory, the fd of a file.
    pub device_id: u64,
    /// Regions it lies in.
    pub num_regions: u64,
    /// A KVMEM_LAYOUT_* kind.
    pub kind: u32,
    /// A KVMEM_BLOCK_DIM_* value.
    pub block_dim: u32,
    /// A KVMEM_TIER_* value.
    pub tier: u32,
    /// A KVMEM_LOCALITY_* value.
    pub locality: u32,
    /// A KVMEM_MEMORY_* value.
    pub memory_type: u32,
    /// 0.
    pub reserved: u32,
}

/// Tells what a layout is.
///
/// @param layout a layout
/// @param info gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_info(
    layout: *const kvmem_layout,
    info: *mut kvmem_layout_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let info = out(info, "info")?;
            info.write(describe(borrow(scope, layout)?));
            Ok(())
        })
    }
}

/// The name of the agent that owns a layout: the one it was built with, or the peer.
///
/// @param layout a layout
/// @param buffer gets the name and its NUL; may be NULL with capacity 0, to ask the size alone
/// @param capacity bytes of the buffer
/// @param size gets the bytes the name needs with its NUL, also when the buffer is too small
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NOT_FOUND when it is local only; KVMEM_STATUS_OUT_OF_RANGE when the buffer
///         is too small
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_agent(
    layout: *const kvmem_layout,
    buffer: *mut c_char,
    capacity: usize,
    size: *mut usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let answer = text::Answer::new(buffer, capacity, size)?;
            let local = || Error::new(Status::NotFound, "the layout is local only, no agent knows it");
            let name = borrow(scope, layout)?.memory().owner().ok_or_else(local)?;
            answer.set(name.as_bytes())
        })
    }
}

/// One of the regions a layout lies in.
///
/// @param layout a layout
/// @param index which one, below num_regions
/// @param region gets a handle of its own, which the caller destroys
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE past the last; KVMEM_STATUS_UNSUPPORTED for a remote layout
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_region(
    layout: *const kvmem_layout,
    index: usize,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let region = Out::new(region)?;
            let regions = borrow(scope, layout)?.regions()?;
            let past = || {
                let message = format!("there is no region {index}, the layout has {}", regions.len());
                Error::new(Status::OutOfRange, message)
            };
            region.set(regions.get(index).ok_or_else(past)?.clone());
            Ok(())
        })
    }
}

/// Serialises a layout for a peer: shape, regions and agent, with a version and a checksum. The peer also needs the
/// agent's metadata.
///
/// @param layout a layout built with an agent, in memory
/// @param descriptor gets the bytes; the caller destroys the blob
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_STATE when it is local only; KVMEM_STATUS_UNSUPPORTED for a remote
///         layout or one on disk
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_export(
    layout: *const kvmem_layout,
    descriptor: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let descriptor = Out::new(descriptor)?;
            descriptor.set(blob::value(borrow(scope, layout)?.export()?));
            Ok(())
        })
    }
}

/// Makes a remote layout from a peer's descriptor: all of it, or nothing. Any bytes may be given; what they claim is
/// held against itself and against the peer's metadata.
///
/// @param agent who shall reach it; the owner's metadata must be loaded
/// @param data what kvmem_layout_export gave
/// @param size its bytes
/// @param layout gets the layout; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_CORRUPT for bytes that are damaged, hostile or none;
///         KVMEM_STATUS_VERSION_MISMATCH; KVMEM_STATUS_NOT_FOUND when the owner's metadata is not loaded or does not
///         cover the layout's memory; KVMEM_STATUS_PEER_LOST when the process that exported it has ended
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_import(
    agent: *mut kvmem_agent,
    data: *const c_void,
    size: usize,
    layout: *mut *mut kvmem_layout,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let layout = Out::new(layout)?;
            let agent = borrow(scope, agent)?;
            layout.set(Layout::import(&agent.agent, text::bytes(data, size, "data")?)?);
            Ok(())
        })
    }
}

/// Gives up a layout. It goes when no transfer holds it any more.
///
/// @param layout a layout, used by nobody through this handle any more; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_destroy(layout: *mut kvmem_layout) {
    // SAFETY: by contract.
    unsafe { destroy(layout) };
}

fn shape(config: &kvmem_layout_config) -> Result<(Dimensions, LayoutKind)> {
    let block_dim = match config.block_dim {
        0 | KVMEM_BLOCK_DIM_FIRST => BlockDim::First,
        KVMEM_BLOCK_DIM_SECOND => BlockDim::Second,
        other => return Err(not_one_of("block_dim", other, "KVMEM_BLOCK_DIM_*")),
    };
    let kind = match config.kind {
        KVMEM_LAYOUT_FULLY_CONTIGUOUS => {
            ensure!(
                block_dim == BlockDim::First,
                InvalidArgument,
                "block_dim is KVMEM_BLOCK_DIM_SECOND, which only a layer separate layout has"
            );
            LayoutKind::FullyContiguous
        }
        KVMEM_LAYOUT_LAYER_SEPARATE => LayoutKind::LayerSeparate(block_dim),
        0 => return Err(Error::new(Status::InvalidArgument, "kind is missing from the layout's config")),
        other => return Err(not_one_of("kind", other, "KVMEM_LAYOUT_*")),
    };
    let dimensions = Dimensions {
        num_blocks: config.num_blocks,
        num_layers: config.num_layers,
        outer_dim: config.outer_dim,
        page_size: config.page_size,
        inner_dim: config.inner_dim,
        dtype_width: config.dtype_width,
        alignment: if config.alignment == 0 { 1 } else { config.alignment },
        num_heads: (config.num_heads != 0).then_some(config.num_heads),
    };
    Ok((dimensions, kind))
}

/// # Safety
/// Every pointer in the options must be NULL or valid.
unsafe fn build(scope: &Scope<'_>, options: &kvmem_layout_options) -> Result<Arc<Layout>> {
    check_flags("kvmem_layout_options", options.flags, 0)?;
    ensure!(options.reserved == 0, InvalidArgument, "reserved is {}, it must be 0", options.reserved);
    ensure!(!options.config.is_null(), InvalidArgument, "config is missing from the layout's options");
    // SAFETY: the caller's promise, for all below.
    unsafe {
        let (dimensions, kind) = shape(&read(options.config)?)?;
        let agent = borrow_nullable(scope, options.agent)?.map(|named| named.agent.clone());
        only_what_the_source_takes(options)?;
        let builder = Layout::builder(dimensions).kind(kind)?;
        let builder = match options.source {
            KVMEM_LAYOUT_ALLOCATE => builder.allocate(allocation(options)?),
            KVMEM_LAYOUT_REGIONS => builder.regions(each(options.regions, options.count, "regions")?),
            _ => builder.registrations(each(options.registrations, options.count, "registrations")?),
        };
        builder.agent(agent).build()
    }
}

/// A field that the source does not read is a mistake of the caller's: say so rather than ignore it.
fn only_what_the_source_takes(options: &kvmem_layout_options) -> Result<()> {
    let source = match options.source {
        KVMEM_LAYOUT_ALLOCATE => "KVMEM_LAYOUT_ALLOCATE",
        KVMEM_LAYOUT_REGIONS => "KVMEM_LAYOUT_REGIONS",
        KVMEM_LAYOUT_REGISTRATIONS => "KVMEM_LAYOUT_REGISTRATIONS",
        0 => return Err(Error::new(Status::InvalidArgument, "source is missing from the layout's options")),
        other => {
            return Err(not_one_of("source", other, "KVMEM_LAYOUT_ALLOCATE, _REGIONS or _REGISTRATIONS"));
        }
    };
    let given = [
        ("system", !options.system.is_null(), KVMEM_LAYOUT_ALLOCATE),
        ("disk", !options.disk.is_null(), KVMEM_LAYOUT_ALLOCATE),
        ("regions", !options.regions.is_null(), KVMEM_LAYOUT_REGIONS),
        ("registrations", !options.registrations.is_null(), KVMEM_LAYOUT_REGISTRATIONS),
    ];
    for (name, is_given, taken_by) in given {
        ensure!(!is_given || options.source == taken_by, InvalidArgument, "{source} does not take {name}");
    }
    ensure!(
        options.count == 0 || options.source != KVMEM_LAYOUT_ALLOCATE,
        InvalidArgument,
        "{source} does not take a count"
    );
    Ok(())
}

/// # Safety
/// As for [`build`].
unsafe fn allocation(options: &kvmem_layout_options) -> Result<Allocation> {
    let sized =
        |size| Error::new(Status::InvalidArgument, format!("size is {size}; the layout says it, leave it 0"));
    // SAFETY: the caller's promise.
    unsafe {
        match (options.system.is_null(), options.disk.is_null()) {
            (false, true) => {
                let options = read(options.system)?;
                if options.size != 0 {
                    Err(sized(options.size))
                } else {
                    system_config(&options).map(Allocation::System)
                }
            }
            (true, false) => {
                let options = read(options.disk)?;
                if options.size != 0 {
                    Err(sized(options.size))
                } else {
                    disk_config(&options).map(Allocation::Disk)
                }
            }
            (true, true) => Err(Error::new(
                Status::InvalidArgument,
                "KVMEM_LAYOUT_ALLOCATE needs system or disk options, both are missing",
            )),
            (false, false) => {
                Err(Error::new(Status::InvalidArgument, "system and disk options exclude each other"))
            }
        }
    }
}

/// # Safety
/// `items` must be NULL or readable for `count` handles, each NULL or live.
unsafe fn each<T, V>(items: *const *mut T, count: usize, name: &str) -> Result<Vec<V>>
where
    T: super::handle::Opaque<Value = V>,
    V: Clone + 'static,
{
    // SAFETY: the caller's promise.
    let items = unsafe { text::items(items, count, name) }?;
    let scope = Scope::default();
    let value = |(index, item): (usize, &*mut T)| {
        // SAFETY: the caller's promise.
        let value = unsafe { borrow(&scope, item.cast_const()) };
        value.cloned().map_err(|error| error.context(format!("{name}[{index}] of {count}")))
    };
    items.iter().enumerate().map(value).collect()
}

fn not_one_of(name: &str, value: u32, values: &str) -> Error {
    Error::new(Status::InvalidArgument, format!("{name} is {value}, which is no {values} value"))
}

fn describe(layout: &Layout) -> kvmem_layout_info {
    let (geometry, memory) = (layout.geometry(), layout.memory());
    let dimensions = geometry.dimensions();
    let (kind, block_dim) = match geometry.kind() {
        LayoutKind::FullyContiguous => (KVMEM_LAYOUT_FULLY_CONTIGUOUS, KVMEM_BLOCK_DIM_FIRST),
        LayoutKind::LayerSeparate(BlockDim::First) => (KVMEM_LAYOUT_LAYER_SEPARATE, KVMEM_BLOCK_DIM_FIRST),
        LayoutKind::LayerSeparate(BlockDim::Second) => (KVMEM_LAYOUT_LAYER_SEPARATE, KVMEM_BLOCK_DIM_SECOND),
    };
    kvmem_layout_info {
        num_blocks: dimensions.num_blocks,
        num_layers: dimensions.num_layers,
        outer_dim: dimensions.outer_dim,
        page_size: dimensions.page_size,
        inner_dim: dimensions.inner_dim,
        dtype_width: dimensions.dtype_width,
        alignment: dimensions.alignment,
        num_heads: dimensions.num_heads.unwrap_or(0),
        device_id: layout.descriptors().first().map_or(0, |descriptor| descriptor.device_id),
        num_regions: geometry.num_regions() as u64,
        kind,
        block_dim,
        tier: tier(memory.tier()),
        locality: match memory.locality() {
            Locality::Local => KVMEM_LOCALITY_LOCAL,
            Locality::Registered => KVMEM_LOCALITY_REGISTERED,
            Locality::Remote => KVMEM_LOCALITY_REMOTE,
        },
        memory_type: memory_type(layout.memory_type()),
        reserved: 0,
    }
}
