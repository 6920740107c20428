// SPDX-License-Identifier: Apache-2.0
//! The shape of a KV cache, and the memory that it needs.

use std::ffi::{c_char, c_void};

use crate::base::Result;
use crate::ffi::common::{call_out, ensure_given, kvmem_error, kvmem_status, options, read, text};
use crate::layout::{Arrangement, Axis, ContentIdentity, Dimensions, Geometry, Order, Strides};
use crate::region::OwnedDevice;

/// Shape of a KV cache. order, num_blocks, num_layers, outer_dim, page_size, inner_dim and dtype_width are
/// required, the other fields have defaults. docs/layouts.md has the order of each engine. All sizes are
/// those of this memory: with tensor parallelism, num_heads and inner_dim count the heads of this rank. In
/// the formulas of KVMEM_ORDER_* B is num_blocks, L is num_layers, O is outer_dim, R is page_size × inner_dim
/// × dtype_width bytes, and ⌈x⌉ is x rounded up to alignment.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_layout_config {
    /// sizeof(kvmem_layout_config)
    pub struct_size: usize,
    /// Blocks, 1 to 4294967295.
    pub num_blocks: u64,
    /// Layers of the model, at least 1.
    pub num_layers: u64,
    /// Outer slots per layer: 2 if keys and values are separate, 1 if combined (MLA).
    pub outer_dim: u64,
    /// Tokens per block, at least 1.
    pub page_size: u64,
    /// Elements per token, layer and outer slot: KV heads × head size; at least 1.
    pub inner_dim: u64,
    /// Bytes per element: 1, 2, 4 or 8.
    pub dtype_width: u64,
    /// KVMEM_ORDER_*, or any other order of axes from the outermost to the innermost, such as "L/BHNOC". B
    /// block, L layer, O outer slot, N token, H head, C elements of one head of one token. Each axis occurs
    /// at most once, and one that is missing must have one index. Axes before '/' have separate regions, and
    /// the last of them varies fastest in the list of regions; B and C cannot have any. Without H, C is all
    /// elements of a token, and num_heads must be 0 or 1.
    pub order: *const c_char,
    /// KV heads, not query heads; inner_dim must be a multiple of it. 0 if unknown; an order in which C does
    /// not follow H, and a head stride, require it.
    pub num_heads: u64,
    /// Alignment of blocks in bytes, a power of two; 0 for 1. A tight block stride is rounded up to it, and a
    /// given one must be a multiple of it.
    pub alignment: u64,
    /// Bytes from one block to the next; 0 if tight: the stride of the next inner axis times its number of
    /// indices, rounded up to the alignment. A larger one describes padded blocks.
    pub block_stride: u64,
    /// Bytes from one layer to the next; 0 if tight, or in separate regions.
    pub layer_stride: u64,
    /// Bytes from one outer slot to the next; 0 if tight, or in separate regions.
    pub outer_stride: u64,
    /// Bytes from one token to the next; 0 if tight, or in separate regions.
    pub token_stride: u64,
    /// Bytes from one head to the next; 0 if tight, or in separate regions.
    pub head_stride: u64,
    /// Bytes from one element of a head to the next; 0 if tight: dtype_width if C is the innermost axis.
    pub element_stride: u64,
    /// What the blocks contain, such as the model, its revision and the data type, in any bytes; copied. NULL
    /// for none. It is the same on all ranks. A transfer between two layouts fails unless both have the same
    /// identity or none, and a file can be opened only with the identity that it was created with.
    pub identity: *const c_void,
    /// Bytes of identity, at most 2048; 0 for none. Give a hash of longer ones.
    pub identity_size: usize,
}
options!(kvmem_layout_config);

/// Memory that a shape needs.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_layout_requirements {
    /// Regions: the product of the sizes of the axes before '/', such as num_layers for
    /// KVMEM_ORDER_LAYER_SEPARATE; 1 if there are none.
    pub num_regions: u64,
    /// Bytes of each region, to the end of its last element, rounded up to alignment.
    pub region_size: u64,
    /// Bytes of all regions.
    pub total_size: u64,
    /// Bytes of one allocation that contains all regions. Each region starts at a multiple of the alignment;
    /// from the second one on, also at a multiple of 512 bytes. The allocation itself must start at a
    /// multiple of 256 bytes, as those of cuMemAlloc do.
    pub allocation_size: u64,
}

/// Returns the memory that a shape needs. Allocates nothing.
///
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the shape is invalid; the message has the field
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_requirements(
    config: *const kvmem_layout_config,
    requirements: *mut kvmem_layout_requirements,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (requirements, "requirements"), |_| {
        let config = read(config)?;
        let (dimensions, arrangement) = shape(&config)?;
        let geometry = Geometry::new(dimensions, arrangement)?;
        Ok(kvmem_layout_requirements {
            num_regions: geometry.num_regions() as u64,
            region_size: geometry.region_size(),
            total_size: geometry.total_size()?,
            allocation_size: geometry.allocation_size(OwnedDevice::START_ALIGNMENT)?,
        })
    })
}

/// The shape as core types.
///
/// # Safety
/// The order must be NULL or NUL-terminated, the identity NULL or readable, and both live through the call.
pub(in crate::ffi) unsafe fn shape(config: &kvmem_layout_config) -> Result<(Dimensions, Arrangement)> {
    ensure_given(
        "kvmem_layout_config",
        &[
            ("order", !config.order.is_null()),
            ("num_blocks", config.num_blocks != 0),
            ("num_layers", config.num_layers != 0),
            ("outer_dim", config.outer_dim != 0),
            ("page_size", config.page_size != 0),
            ("inner_dim", config.inner_dim != 0),
            ("dtype_width", config.dtype_width != 0),
        ],
    )?;
    let dimensions = Dimensions {
        num_blocks: config.num_blocks,
        num_layers: config.num_layers,
        outer_dim: config.outer_dim,
        page_size: config.page_size,
        inner_dim: config.inner_dim,
        dtype_width: config.dtype_width,
        alignment: if config.alignment == 0 { 1 } else { config.alignment },
        num_heads: (config.num_heads != 0).then_some(config.num_heads),
        // SAFETY: the caller's promise.
        identity: ContentIdentity::new(unsafe {
            text::bytes(config.identity, config.identity_size, "identity")?
        })?,
    };
    let order = Order::parse(text::required(config.order, "order")?)?;
    Ok((dimensions, Arrangement { order, strides: strides(config) }))
}

fn strides(config: &kvmem_layout_config) -> Strides {
    Strides::default()
        .with(Axis::Block, config.block_stride)
        .with(Axis::Layer, config.layer_stride)
        .with(Axis::Outer, config.outer_stride)
        .with(Axis::Token, config.token_stride)
        .with(Axis::Head, config.head_stride)
        .with(Axis::Element, config.element_stride)
}
