// SPDX-License-Identifier: Apache-2.0
//! Addresses of blocks.

use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::borrow;
use crate::ffi::common::pointer::out;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::layout::kvmem_layout;

/// Numbers to compute addresses with: bases[num_bases > 1 ? layer : 0] + block·block_stride +
/// layer·layer_stride + outer·outer_stride
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_layout_strides {
    /// Start of each region. Valid as long as the layout.
    pub bases: *const u64,
    /// Number of bases: 1 or num_layers.
    pub num_bases: u64,
    /// Bytes from one block to the next.
    pub block_stride: u64,
    /// Bytes from one layer to the next; 0 for KVMEM_LAYOUT_LAYER_SEPARATE.
    pub layer_stride: u64,
    /// Bytes from one outer slot to the next.
    pub outer_stride: u64,
    /// Bytes of one block in one layer and outer slot: R.
    pub size: u64,
}

/// Returns the numbers to compute addresses with.
///
/// @param layout a layout
/// @param strides receives the numbers
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

/// Range of one block in one layer and outer slot.
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
/// @param layout a layout
/// @param block block id, less than num_blocks
/// @param layer less than num_layers
/// @param outer less than outer_dim
/// @param out receives the range
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such block, layer or outer slot
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_block(
    layout: *const kvmem_layout,
    block: u32,
    layer: u64,
    outer: u64,
    out: *mut kvmem_block,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let span = crate::ffi::common::pointer::out(out, "out")?;
            let (address, size) = borrow(scope, layout)?.block(block.into(), layer, outer)?;
            span.write(kvmem_block { address, size });
            Ok(())
        })
    }
}
