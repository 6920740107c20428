// SPDX-License-Identifier: Apache-2.0
//! Building layouts: the shape of a KV cache, and the memory it is put in.

use std::sync::Arc;

use super::agent::kvmem_agent;
use super::error::kvmem_error;
use super::guard::{Scope, call};
use super::handle::{Out, borrow_each, borrow_nullable, out};
use super::layout::kvmem_layout;
use super::options::{check_flags, ensure_given, init, not_one_of, options, read};
use super::region::kvmem_region;
use super::region_config::{device_config, disk_config, elastic_config, pinned_config, system_config};
use super::region_create::{
    kvmem_device_options, kvmem_disk_options, kvmem_elastic_options, kvmem_pinned_options,
    kvmem_system_options,
};
use super::registration::kvmem_registration;
use super::status::kvmem_status;
use crate::error::{Result, ensure};
use crate::layout::{AllocationConfig, BlockDim, Dimensions, Geometry, Layout, LayoutKind};
use crate::region::DeviceMemory;

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

/// One new allocation holds all regions, each at a multiple of the alignment, and all but the first at a multiple of 512
/// bytes too.
pub const KVMEM_LAYOUT_ALLOCATE: u32 = 1;
/// The caller's regions; with an agent each is registered, or of an elastic one the region that it is a view of. Elastic
/// regions, which the caller commits and decommits, must begin with an extent, and their extents be multiples of the block
/// stride: else a block would lie in two.
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
    /// KVMEM_LAYOUT_ALLOCATE: host memory to allocate, with size 0. Exactly one of system, disk, pinned, device
    /// and elastic is given.
    pub system: *const kvmem_system_options,
    /// KVMEM_LAYOUT_ALLOCATE: a file to create or open, with size 0. A named file ends with a fingerprint of the layout,
    /// which is checked when it is opened again; docs/files.md describes it.
    pub disk: *const kvmem_disk_options,
    /// KVMEM_LAYOUT_ALLOCATE: page-locked memory to allocate, with size 0.
    pub pinned: *const kvmem_pinned_options,
    /// KVMEM_LAYOUT_ALLOCATE: memory of a GPU to allocate, with size 0.
    pub device: *const kvmem_device_options,
    /// KVMEM_LAYOUT_ALLOCATE: memory of a GPU that grows and shrinks, with size and extent_size 0. At first no block has
    /// memory: kvmem_layout_resize gives it. The block stride is padded so that no block straddles two extents.
    pub elastic: *const kvmem_elastic_options,
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
    /// Bytes of one allocation that holds all regions, each at a multiple of the alignment, and all but the first
    /// at a multiple of 512 bytes too. The allocation must start at a multiple of 256 bytes, as every allocation
    /// of cuMemAlloc does.
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
            allocation_size: geometry.allocation_size(DeviceMemory::START_ALIGNMENT)?,
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
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a shape that can't be, no source, or options of
///         another source, too few or too many regions, regions of mixed kinds, that overlap, are not aligned
///         or belong to another agent; KVMEM_STATUS_OUT_OF_RANGE for a region that is too small;
///         KVMEM_STATUS_INVALID_STATE for a deregistered registration; what kvmem_region_register returns,
///         and the kvmem_region_create_* of the memory that is asked for. For an existing file
///         KVMEM_STATUS_INVALID_ARGUMENT if it holds another layout, or if it is empty and
///         KVMEM_DISK_OPEN_EXISTING is given, KVMEM_STATUS_CORRUPT if it has no fingerprint of one,
///         KVMEM_STATUS_VERSION_MISMATCH if that is of a later version
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

fn shape(config: &kvmem_layout_config) -> Result<(Dimensions, LayoutKind)> {
    ensure_given(
        "kvmem_layout_config",
        &[
            ("kind", config.kind != 0),
            ("num_blocks", config.num_blocks != 0),
            ("num_layers", config.num_layers != 0),
            ("outer_dim", config.outer_dim != 0),
            ("page_size", config.page_size != 0),
            ("inner_dim", config.inner_dim != 0),
            ("dtype_width", config.dtype_width != 0),
        ],
    )?;
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
    let (has_config, has_source) = (!options.config.is_null(), options.source != 0);
    ensure_given("kvmem_layout_options", &[("config", has_config), ("source", has_source)])?;
    // SAFETY: the caller's promise, for all below.
    unsafe {
        let (dimensions, kind) = shape(&read(options.config)?)?;
        let agent = borrow_nullable(scope, options.agent)?.map(|named| named.agent.clone());
        only_what_the_source_takes(options)?;
        let builder = Layout::builder(dimensions).kind(kind)?;
        let builder = match options.source {
            KVMEM_LAYOUT_ALLOCATE => builder.allocate(allocation(options)?),
            KVMEM_LAYOUT_REGIONS => {
                let regions = borrow_each(scope, options.regions, options.count, "regions")?;
                builder.regions(regions.into_iter().map(|region| Arc::clone(region)).collect())
            }
            _ => {
                let registrations =
                    borrow_each(scope, options.registrations, options.count, "registrations")?;
                builder.registrations(registrations.into_iter().cloned().collect())
            }
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
        other => {
            return Err(not_one_of("source", other, "KVMEM_LAYOUT_ALLOCATE, _REGIONS or _REGISTRATIONS"));
        }
    };
    let given = [
        ("system", !options.system.is_null(), KVMEM_LAYOUT_ALLOCATE),
        ("disk", !options.disk.is_null(), KVMEM_LAYOUT_ALLOCATE),
        ("pinned", !options.pinned.is_null(), KVMEM_LAYOUT_ALLOCATE),
        ("device", !options.device.is_null(), KVMEM_LAYOUT_ALLOCATE),
        ("elastic", !options.elastic.is_null(), KVMEM_LAYOUT_ALLOCATE),
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
unsafe fn allocation(options: &kvmem_layout_options) -> Result<AllocationConfig> {
    let given = [
        options.system.is_null(),
        options.disk.is_null(),
        options.pinned.is_null(),
        options.device.is_null(),
        options.elastic.is_null(),
    ];
    let given = given.iter().filter(|is_null| !**is_null).count();
    ensure!(
        given == 1,
        InvalidArgument,
        "KVMEM_LAYOUT_ALLOCATE needs one of system, disk, pinned, device and elastic options, {given} are given"
    );
    // SAFETY: the caller's promise.
    unsafe {
        if !options.system.is_null() {
            let options = read(options.system)?;
            return unsized_yet(options.size)
                .and_then(|()| system_config(&options))
                .map(AllocationConfig::System);
        }
        if !options.disk.is_null() {
            let options = read(options.disk)?;
            return unsized_yet(options.size)
                .and_then(|()| disk_config(&options))
                .map(AllocationConfig::Disk);
        }
        if !options.elastic.is_null() {
            let options = read(options.elastic)?;
            ensure!(
                options.extent_size == 0,
                InvalidArgument,
                "extent_size is {}; the layout says it",
                options.extent_size
            );
            return unsized_yet(options.size)
                .and_then(|()| elastic_config(&options))
                .map(AllocationConfig::Elastic);
        }
        if !options.pinned.is_null() {
            let options = read(options.pinned)?;
            return unsized_yet(options.size)
                .and_then(|()| pinned_config(&options))
                .map(AllocationConfig::Pinned);
        }
        let options = read(options.device)?;
        unsized_yet(options.size).and_then(|()| device_config(&options)).map(AllocationConfig::Device)
    }
}

fn unsized_yet(size: u64) -> Result<()> {
    ensure!(size == 0, InvalidArgument, "size is {size}; the layout says it, leave it 0");
    Ok(())
}
