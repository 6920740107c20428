// SPDX-License-Identifier: Apache-2.0
//! The shape of a KV cache, and the memory that it needs.

use crate::error::{Result, ensure};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::options::{ensure_given, init, not_one_of, options, read};
use crate::ffi::common::pointer::out;
use crate::ffi::common::status::kvmem_status;
use crate::layout::{BlockDim, Dimensions, Geometry, LayoutKind};
use crate::region::DeviceMemory;

/// One region. A block contains all its layers, a layer its outer slots: base + block·⌈L·O·R⌉ + layer·O·R +
/// outer·R
pub const KVMEM_LAYOUT_FULLY_CONTIGUOUS: u32 = 1;
/// One region per layer. block_dim selects the order within it.
pub const KVMEM_LAYOUT_LAYER_SEPARATE: u32 = 2;

/// base[layer] + block·⌈O·R⌉ + outer·R
pub const KVMEM_BLOCK_DIM_FIRST: u32 = 1;
/// base[layer] + outer·N·⌈R⌉ + block·⌈R⌉
pub const KVMEM_BLOCK_DIM_SECOND: u32 = 2;

/// Shape of a KV cache, as in NVIDIA Dynamo's KVBM. In formulas N is num_blocks, L is num_layers, O is
/// outer_dim, R is page_size × inner_dim × dtype_width bytes, and ⌈x⌉ is x rounded up to alignment. All
/// fields are required, except alignment, num_heads and block_dim.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_layout_config {
    /// sizeof(kvmem_layout_config)
    pub struct_size: usize,
    /// Blocks, 1 to 4294967295.
    pub num_blocks: u64,
    /// Layers of the model, at least 1.
    pub num_layers: u64,
    /// Outer slots per layer: 2 if keys and values are separate, 1 if they are combined (MLA).
    pub outer_dim: u64,
    /// Tokens per block, at least 1.
    pub page_size: u64,
    /// Elements per token in one layer and outer slot, such as KV heads × head size; at least 1.
    pub inner_dim: u64,
    /// Bytes per element: 1, 2, 4 or 8.
    pub dtype_width: u64,
    /// Alignment of blocks in bytes, a power of two; 0 for 1. The block stride is rounded up to it.
    pub alignment: u64,
    /// KV heads, not query heads; inner_dim must be a multiple of it. 0 if unknown.
    pub num_heads: u64,
    /// KVMEM_LAYOUT_FULLY_CONTIGUOUS or KVMEM_LAYOUT_LAYER_SEPARATE.
    pub kind: u32,
    /// KVMEM_BLOCK_DIM_* value; 0 for KVMEM_BLOCK_DIM_FIRST. KVMEM_BLOCK_DIM_SECOND requires
    /// KVMEM_LAYOUT_LAYER_SEPARATE.
    pub block_dim: u32,
}
options!(kvmem_layout_config);

/// Sets a shape to zeroes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_config_init(config: *mut kvmem_layout_config, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(config, struct_size) };
}

/// Memory that a shape needs.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_layout_requirements {
    /// Regions: num_layers for KVMEM_LAYOUT_LAYER_SEPARATE, otherwise 1.
    pub num_regions: u64,
    /// Bytes of each region.
    pub region_size: u64,
    /// Bytes of all regions.
    pub total_size: u64,
    /// Bytes of one allocation that contains all regions, each at a multiple of the alignment, and all but
    /// the first also at a multiple of 512 bytes. The allocation must start at a multiple of 256 bytes, as
    /// allocations of cuMemAlloc do.
    pub allocation_size: u64,
}

/// Returns the memory that a shape needs. Allocates nothing.
///
/// @param config the shape
/// @param requirements receives the sizes
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the shape is invalid; the message has the field
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

/// The shape as the core has it.
pub(in crate::ffi) fn shape(config: &kvmem_layout_config) -> Result<(Dimensions, LayoutKind)> {
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
