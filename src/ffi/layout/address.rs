// SPDX-License-Identifier: Apache-2.0
//! Addresses of blocks.

use crate::ffi::common::{borrow, call, kvmem_error, kvmem_status, out};
use crate::ffi::layout::kvmem_layout;
use crate::layout::Axis;

/// Numbers to compute addresses with: bases[layer·layer_step + outer·outer_step + token·token_step +
/// head·head_step] + block·block_stride + layer·layer_stride + outer·outer_stride + token·token_stride +
/// head·head_stride + element·element_stride. In the orders KVMEM_ORDER_*, a block in one layer
/// and outer slot starts at bases[num_bases > 1 ? layer : 0] + block·block_stride + layer·layer_stride +
/// outer·outer_stride.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_layout_strides {
    /// Start of each region. Valid as long as the layout.
    pub bases: *const u64,
    /// Number of bases: the number of regions.
    pub num_bases: u64,
    /// Bytes from one block to the next.
    pub block_stride: u64,
    /// Bytes from one layer to the next; 0 if layers have separate regions, as in
    /// KVMEM_ORDER_LAYER_SEPARATE.
    pub layer_stride: u64,
    /// Bytes from one outer slot to the next; 0 if outer slots have separate regions.
    pub outer_stride: u64,
    /// Bytes from one token to the next; 0 if tokens have separate regions.
    pub token_stride: u64,
    /// Bytes from one head to the next; 0 if heads have separate regions.
    pub head_stride: u64,
    /// Bytes from one element of a head to the next.
    pub element_stride: u64,
    /// Bases from one layer to the next; 0 if layers share regions.
    pub layer_step: u64,
    /// Bases from one outer slot to the next; 0 if outer slots share regions.
    pub outer_step: u64,
    /// Bases from one token to the next; 0 if tokens share regions.
    pub token_step: u64,
    /// Bases from one head to the next; 0 if heads share regions.
    pub head_step: u64,
    /// Bytes of one block in one layer and outer slot, R, if they are contiguous; otherwise 0.
    pub size: u64,
    /// Contiguous bytes of one head of one token: all of its elements, or dtype_width if other elements are
    /// in between.
    pub row_size: u64,
}

/// Returns the numbers to compute addresses with.
///
/// @return KVMEM_STATUS_UNSUPPORTED: the layout has parts, each with its own numbers
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_strides(
    layout: *const kvmem_layout,
    strides: *mut kvmem_layout_strides,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let strides = out(strides, "strides")?;
        let placement = borrow(scope, layout)?.single()?;
        let geometry = placement.geometry();
        strides.write(kvmem_layout_strides {
            bases: placement.bases().as_ptr(),
            num_bases: placement.bases().len() as u64,
            block_stride: geometry.block_stride(),
            layer_stride: geometry.layer_stride(),
            outer_stride: geometry.outer_stride(),
            token_stride: geometry.stride(Axis::Token),
            head_stride: geometry.stride(Axis::Head),
            element_stride: geometry.stride(Axis::Element),
            layer_step: geometry.region_step(Axis::Layer) as u64,
            outer_step: geometry.region_step(Axis::Outer) as u64,
            token_step: geometry.region_step(Axis::Token) as u64,
            head_step: geometry.region_step(Axis::Head) as u64,
            size: if geometry.has_contiguous_pieces() { geometry.piece_size() } else { 0 },
            row_size: geometry.row_size(),
        });
        Ok(())
    })
}

/// Range of contiguous bytes: of one block in one layer and outer slot, or of one head of one token in it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_block {
    /// First byte: an address in the process that the memory belongs to, or an offset in the file.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// Returns the range of one block in one layer and outer slot.
///
/// @return KVMEM_STATUS_OUT_OF_RANGE: there is no such block, layer or outer slot
///         KVMEM_STATUS_UNSUPPORTED: the bytes are not contiguous; call kvmem_layout_get_row or
///           kvmem_layout_get_strides. Or the layout has parts; call kvmem_layout_get_part
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_block(
    layout: *const kvmem_layout,
    block: u32,
    layer: u64,
    outer: u64,
    out: *mut kvmem_block,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let span = crate::ffi::common::pointer::out(out, "out")?;
        let (address, size) = borrow(scope, layout)?.block(block.into(), layer, outer)?;
        span.write(kvmem_block { address, size });
        Ok(())
    })
}

/// Returns the range of one head of one token of a block. Every layout has it, whatever its order.
///
/// @param head less than num_heads; 0 if that is 0
/// @param out receives the range. If the elements are not contiguous, it is that of the first: dtype_width
///        bytes, and the next one is element_stride bytes further
/// @return KVMEM_STATUS_OUT_OF_RANGE: there is no such block, layer, outer slot, token or head
///         KVMEM_STATUS_UNSUPPORTED: the layout has parts; call kvmem_layout_get_part
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_row(
    layout: *const kvmem_layout,
    block: u32,
    layer: u64,
    outer: u64,
    token: u64,
    head: u64,
    out: *mut kvmem_block,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let span = crate::ffi::common::pointer::out(out, "out")?;
        let (address, size) = borrow(scope, layout)?.row([block.into(), layer, outer, token, head])?;
        span.write(kvmem_block { address, size });
        Ok(())
    })
}
