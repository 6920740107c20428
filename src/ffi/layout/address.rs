// SPDX-License-Identifier: Apache-2.0
//! Addresses of blocks. An engine asks for many of them, each takes nanoseconds, and none needs a second handle: hence `call_on`.

use crate::ffi::common::{call_on, kvmem_error, kvmem_status};
use crate::ffi::layout::kvmem_layout;

/// Range of contiguous bytes: of one block in one layer and outer slot, or of one head of one token in it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_block {
    /// First byte: an address in the process of the memory, or an offset in the file.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// Returns the range of one block in one layer and outer slot.
///
/// @return KVMEM_STATUS_OUT_OF_RANGE: there is no such block, layer or outer slot
///         KVMEM_STATUS_UNSUPPORTED: the bytes are not contiguous; call kvmem_layout_get_row, or
///           compute addresses by kvmem_layout_info. Or the layout has parts; call kvmem_layout_get_part
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_block(
    layout: *const kvmem_layout,
    block: u32,
    layer: u64,
    outer: u64,
    out: *mut kvmem_block,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_on(layout, error, |layout| {
        let span = crate::ffi::common::pointer::out(out, "out")?;
        let (address, size) = layout.block(block.into(), layer, outer)?;
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
    call_on(layout, error, |layout| {
        let span = crate::ffi::common::pointer::out(out, "out")?;
        let (address, size) = layout.row([block.into(), layer, outer, token, head])?;
        span.write(kvmem_block { address, size });
        Ok(())
    })
}
