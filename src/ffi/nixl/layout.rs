// SPDX-License-Identifier: Apache-2.0
//! Layouts of peers.

use std::ffi::{c_char, c_void};

use crate::error::{Error, Status};
use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::blob::{self, kvmem_blob};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Out, borrow};
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::text;
use crate::ffi::layout::kvmem_layout;
use crate::layout::Layout;

/// The name of the agent that owns a layout: the one it was built with, or the peer.
///
/// @param layout a layout
/// @param buffer gets the name and its NUL; may be NULL with capacity 0, to ask the size alone
/// @param capacity bytes of the buffer
/// @param size gets the bytes the name needs with its NUL, also when the buffer is too small
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NOT_FOUND when it is local only; KVMEM_STATUS_OUT_OF_RANGE when the
///         buffer is too small
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

/// Serialises a layout for a peer: shape, regions and agent, with a version and a checksum. The peer also
/// needs the agent's metadata.
///
/// @param layout a layout built with an agent, in memory
/// @param descriptor gets the bytes; the caller destroys the blob
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK.
///         KVMEM_STATUS_INVALID_STATE: the layout was built without an agent, or its agent has no backend
///         that reaches peers.
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote, or on disk.
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

/// Makes a remote layout from a peer's descriptor: all of it, or nothing. Any bytes may be given; what they
/// claim is checked for consistency and against the peer's metadata.
///
/// @param agent who shall reach it; the owner's metadata must be loaded
/// @param data what kvmem_layout_export gave
/// @param size its bytes
/// @param layout gets the layout; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_CORRUPT for bytes that are damaged, hostile or none;
///         KVMEM_STATUS_VERSION_MISMATCH; KVMEM_STATUS_NOT_FOUND when the owner's metadata is not loaded or
///         does not cover the layout's memory; KVMEM_STATUS_PEER_LOST when the process that exported it has
///         ended
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
