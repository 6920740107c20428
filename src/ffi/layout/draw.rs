// SPDX-License-Identifier: Apache-2.0
//! Pictures of layouts.

use crate::ffi::common::blob::{self, kvmem_blob};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Out, borrow};
use crate::ffi::common::status::kvmem_status;
use crate::ffi::layout::kvmem_layout;

/// Draws a layout as an SVG picture: its axes as nested boxes in the order of addresses, strides, padding,
/// and one block highlighted. Reads no memory of the layout.
///
/// @param layout a layout
/// @param block block id to highlight, less than num_blocks
/// @param svg receives the picture as UTF-8 text; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such block
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_draw(
    layout: *const kvmem_layout,
    block: u32,
    svg: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let svg = Out::new(svg)?;
            svg.set(blob::value(borrow(scope, layout)?.draw(block.into())?.into_bytes()));
            Ok(())
        })
    }
}
