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
    /// Each block starts at a multiple of this many bytes, a power of two; the block stride is rounded up to
    /// it. 0 for 1.
    pub alignment: u64,
    /// Attention heads inner_dim is made of; 0 where that is not known.
    pub num_heads: u64,
    /// A KVMEM_LAYOUT_* kind.
    pub kind: u32,
    /// A KVMEM_BLOCK_DIM_* value; 0 for KVMEM_BLOCK_DIM_FIRST. KVMEM_BLOCK_DIM_SECOND needs a layer separate
    /// layout.
    pub block_dim: u32,
}
options!(kvmem_layout_config);

/// Fills a shape with zeroes; every field but alignment, num_heads and block_dim must be set.
///
/// @param config the caller's struct; NULL does nothing
/// @param struct_size sizeof(*config); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_config_init(config: *mut kvmem_layout_config, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(config, struct_size) };
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
    /// Bytes of one allocation that holds all regions, each at a multiple of the alignment, and all but the
    /// first at a multiple of 512 bytes too. The allocation must start at a multiple of 256 bytes, as every
    /// allocation of cuMemAlloc does.
    pub allocation_size: u64,
}

/// Tells the memory a shape needs. Nothing is allocated.
///
/// @param config the shape
/// @param requirements gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a shape that can't be, with the field that is
///         wrong
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
