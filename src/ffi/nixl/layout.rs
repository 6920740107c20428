// SPDX-License-Identifier: Apache-2.0
//! Layouts of peers.

use std::ffi::{c_char, c_void};

use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::{Out, blob, borrow, call, kvmem_blob, kvmem_error, kvmem_status, read, text};
use crate::ffi::layout::config::{kvmem_layout_config, shape};
use crate::ffi::layout::kvmem_layout;
use crate::ffi::nixl::descriptors::{kvmem_nixl_descriptor, list};
use crate::layout::Layout;

/// Serializes a layout for a peer: shape, regions and agent, with a version and a checksum. The peer also
/// needs the metadata of the agent.
///
/// @return KVMEM_STATUS_INVALID_STATE: the layout has no agent, or none with a backend that reaches peers
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote, in memory of another process, in several elastic
///           regions, or in a file, in objects or in block storage
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_export(
    layout: *const kvmem_layout,
    descriptor: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let descriptor = Out::new(descriptor, "descriptor")?;
        descriptor.set(blob::value(borrow(scope, layout)?.export()?));
        Ok(())
    })
}

/// Creates a remote layout from the descriptor of a peer. The bytes are not trusted: they are checked for
/// consistency, and against the metadata of the peer.
///
/// @param agent the agent that will access the layout; the metadata of the layout's owner must be loaded
/// @param data bytes of kvmem_layout_export
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the layout is that of the agent itself, or of another agent of its
///           name
///         KVMEM_STATUS_NOT_FOUND: the metadata of the owner is not loaded, is that of another agent of the
///           same name, or does not cover the memory of the layout
///         KVMEM_STATUS_STALE: the metadata of another process is loaded under the name of the owner
///         KVMEM_STATUS_PEER_LOST: the process that exported the layout has ended
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_import(
    agent: *mut kvmem_agent,
    data: *const c_void,
    size: usize,
    layout: *mut *mut kvmem_layout,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let layout = Out::new(layout, "layout")?;
        let agent = borrow(scope, agent)?;
        layout.set(Layout::import(&agent.agent, text::bytes(data, size, "data")?)?.into());
        Ok(())
    })
}

/// Creates a remote layout over raw memory of a peer, which need not use kvmem.
///
/// @param agent the agent that will access the layout
/// @param owner name of the peer that owns the memory; its metadata must be loaded
/// @param config shape of the blocks, as they are in the memory of the peer
/// @param descriptors one descriptor per region of the layout, in their order, each at least as large
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the shape is invalid, the number of descriptors is wrong, one is
///           not aligned, or two of them overlap in the bytes that the layout needs
///         KVMEM_STATUS_OUT_OF_RANGE: a descriptor is too small, or exceeds the address space
///         KVMEM_STATUS_NOT_FOUND: the metadata of the owner is not loaded, or does not cover the descriptors
///         KVMEM_STATUS_UNSUPPORTED: the descriptors are neither host memory nor GPU memory
///
/// Notes: kvmem does not know the process of the owner. If the owner has ended, a transfer fails with
/// KVMEM_STATUS_NIXL when NIXL detects it, and is in flight until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_create_remote(
    agent: *mut kvmem_agent,
    owner: *const c_char,
    config: *const kvmem_layout_config,
    descriptors: *const kvmem_nixl_descriptor,
    count: usize,
    layout: *mut *mut kvmem_layout,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let layout = Out::new(layout, "layout")?;
        let agent = &borrow(scope, agent)?.agent;
        let owner = text::required(owner, "owner")?;
        let config = read(config)?;
        let list = list(scope, descriptors, count, "descriptors")?;
        layout.set(Layout::from_raw(agent, owner, shape(&config)?, &list)?.into());
        Ok(())
    })
}
