// SPDX-License-Identifier: Apache-2.0
//! Layouts of several parts.

use std::ffi::c_char;
use std::sync::Arc;

use crate::base::Result;
use crate::ffi::common::{Out, borrow, call, items, kvmem_error, kvmem_status, text};
use crate::ffi::layout::kvmem_layout;
use crate::layout::Layout;

/// A layout that becomes a part of another one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_layout_part {
    /// Name, 1 to 64 bytes of UTF-8 without control characters, such as "keys"; copied.
    pub name: *const c_char,
    /// Layout that was built, imported or opened, and was not combined itself.
    pub layout: *const kvmem_layout,
}

/// Combines layouts that share block ids to one layout: keys and values of different width, data and scales,
/// an indexer, a recurrent state, groups of layers with other sizes. Exporting, sharing, importing, resizing,
/// checksums and transfers then work on all parts at once. Nothing is copied or allocated.
///
///     const kvmem_layout_part parts[] = {{"data", data}, {"scales", scales}};
///     status = kvmem_layout_combine(parts, 2, &cache, &error);
///
/// The parts must have the same number of blocks, and be on one tier and device, with the same agent. They
/// may be in the same regions, and may alternate in them, as long as no byte belongs to two parts. The order
/// of the parts does not matter: they are sorted by name. The new layout keeps the parts alive.
///
/// A part has its own shape, so kvmem_layout_get_block and kvmem_layout_get_row fail for the new layout with
/// KVMEM_STATUS_UNSUPPORTED: use kvmem_layout_get_part. Transfers move parts to those of the same names.
///
/// @param num_parts number of parts, 1 to 1024
/// @return KVMEM_STATUS_INVALID_ARGUMENT: a name is invalid or occurs twice; the parts overlap in memory; or
///           they differ in the number of blocks, tier, device or agent
///         KVMEM_STATUS_IO, KVMEM_STATUS_OUT_OF_MEMORY: the list of this process's mappings cannot be read
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_combine(
    parts: *const kvmem_layout_part,
    num_parts: usize,
    layout: *mut *mut kvmem_layout,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let layout = Out::new(layout, "layout")?;
        let part = |(index, part): (usize, &kvmem_layout_part)| {
            let name = text::required(part.name, "name");
            let named = name.and_then(|name| Ok((name.to_string(), Arc::clone(borrow(scope, part.layout)?))));
            named.map_err(|error| error.context(format!("parts[{index}] of {num_parts}")))
        };
        let parts = items(parts, num_parts, ("parts", "num_parts"))?;
        let parts = parts.iter().enumerate().map(part).collect::<Result<Vec<_>>>()?;
        layout.set(Layout::combine(parts)?.into());
        Ok(())
    })
}

/// Returns one part of a layout that was combined, as a separate layout. It has the addresses, shape and
/// memory of the part, and can be used like any other layout, also alone in a transfer.
///
/// @return KVMEM_STATUS_NOT_FOUND: there is no such part
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_part(
    layout: *const kvmem_layout,
    name: *const c_char,
    part: *mut *mut kvmem_layout,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let part = Out::new(part, "part")?;
        part.set(borrow(scope, layout)?.part(text::required(name, "name")?)?.clone().into());
        Ok(())
    })
}
