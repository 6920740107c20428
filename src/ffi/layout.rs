// SPDX-License-Identifier: Apache-2.0
//! Layouts.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use super::agent::kvmem_agent;
use super::blob::{self, kvmem_blob};
use super::error::kvmem_error;
use super::guard::call;
use super::handle::{Handle, Out, borrow, destroy, opaque, out};
use super::layout_build::{
    KVMEM_BLOCK_DIM_FIRST, KVMEM_BLOCK_DIM_SECOND, KVMEM_LAYOUT_FULLY_CONTIGUOUS, KVMEM_LAYOUT_LAYER_SEPARATE,
};
use super::region::{kvmem_region, tier};
use super::registration::memory_type;
use super::status::kvmem_status;
use super::text;
use crate::error::{Error, Status};
use crate::layout::{BlockDim, Layout, LayoutKind, Locality};

/// Where each block of a KV cache lies. It holds its regions and their registrations.
///
/// Threads: all functions on one layout may run at once, except kvmem_layout_destroy.
pub struct kvmem_layout {
    handle: Handle<Arc<Layout>>,
}
opaque!(kvmem_layout, Arc<Layout>, "layout");

/// A span of a layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_block {
    /// The first byte: an address in the process the layout lies in, or an offset in the file.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// Where one block's share of a layer and outer slot lies.
///
/// @param layout a layout
/// @param block block id, below num_blocks
/// @param layer below num_layers
/// @param outer below outer_dim
/// @param out gets the span
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_block(
    layout: *const kvmem_layout,
    block: u64,
    layer: u64,
    outer: u64,
    out: *mut kvmem_block,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let span = super::handle::out(out, "out")?;
            let (address, size) = borrow(scope, layout)?.block(block, layer, outer)?;
            span.write(kvmem_block { address, size });
            Ok(())
        })
    }
}

/// The numbers to compute addresses with:
/// bases[num_bases > 1 ? layer : 0] + block·block_stride + layer·layer_stride + outer·outer_stride
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_layout_strides {
    /// Where each region starts. Valid as long as the layout.
    pub bases: *const u64,
    /// 1, or num_layers.
    pub num_bases: u64,
    /// Bytes from a block to the next.
    pub block_stride: u64,
    /// Bytes from a layer to the next; 0 for a layer separate layout.
    pub layer_stride: u64,
    /// Bytes from an outer slot to the next.
    pub outer_stride: u64,
    /// Bytes of one (block, layer, outer): R.
    pub size: u64,
}

/// Tells the numbers to compute addresses with.
///
/// @param layout a layout
/// @param strides gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
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

/// This process alone reaches it: no agent knows it.
pub const KVMEM_LOCALITY_LOCAL: u32 = 1;
/// This process reaches it, and peers of its agent.
pub const KVMEM_LOCALITY_REGISTERED: u32 = 2;
/// It is a peer's, reached by transfers.
pub const KVMEM_LOCALITY_REMOTE: u32 = 3;
/// It is another process's, and mapped here: reached like memory of this process.
pub const KVMEM_LOCALITY_MAPPED: u32 = 4;

/// What a layout is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_layout_info {
    /// As configured.
    pub num_blocks: u64,
    /// As configured.
    pub num_layers: u64,
    /// As configured.
    pub outer_dim: u64,
    /// As configured.
    pub page_size: u64,
    /// As configured.
    pub inner_dim: u64,
    /// As configured.
    pub dtype_width: u64,
    /// As configured; 1 where that was 0.
    pub alignment: u64,
    /// As configured.
    pub num_heads: u64,
    /// NIXL's device id of its first region: 0 for host memory, the fd of a file.
    pub device_id: u64,
    /// Regions it lies in.
    pub num_regions: u64,
    /// A KVMEM_LAYOUT_* kind.
    pub kind: u32,
    /// A KVMEM_BLOCK_DIM_* value.
    pub block_dim: u32,
    /// A KVMEM_TIER_* value.
    pub tier: u32,
    /// A KVMEM_LOCALITY_* value, which holds for every region: all are of one tier and device, and a transfer goes one
    /// way. A shared layout is mapped whole (MAPPED) or reached by NIXL whole (REMOTE).
    pub locality: u32,
    /// A KVMEM_MEMORY_* value.
    pub memory_type: u32,
    /// 0.
    pub reserved: u32,
}

/// Tells what a layout is.
///
/// @param layout a layout
/// @param info gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_info(
    layout: *const kvmem_layout,
    info: *mut kvmem_layout_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let info = out(info, "info")?;
            info.write(describe(borrow(scope, layout)?));
            Ok(())
        })
    }
}

/// The name of the agent that owns a layout: the one it was built with, or the peer.
///
/// @param layout a layout
/// @param buffer gets the name and its NUL; may be NULL with capacity 0, to ask the size alone
/// @param capacity bytes of the buffer
/// @param size gets the bytes the name needs with its NUL, also when the buffer is too small
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NOT_FOUND when it is local only; KVMEM_STATUS_OUT_OF_RANGE when the buffer
///         is too small
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

/// One of the regions a layout lies in.
///
/// @param layout a layout
/// @param index which one, below num_regions
/// @param region gets a handle of its own, which the caller destroys
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE past the last; KVMEM_STATUS_UNSUPPORTED for a remote layout
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_region(
    layout: *const kvmem_layout,
    index: usize,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let region = Out::new(region)?;
            region.set(borrow(scope, layout)?.region(index)?.clone().into());
            Ok(())
        })
    }
}

/// Serialises a layout for a peer: shape, regions and agent, with a version and a checksum. The peer also needs the
/// agent's metadata.
///
/// @param layout a layout built with an agent, in memory
/// @param descriptor gets the bytes; the caller destroys the blob
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK.
///         KVMEM_STATUS_INVALID_STATE: the layout was built without an agent, or its agent has no backend that
///         reaches peers.
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
///         KVMEM_STATUS_VERSION_MISMATCH; KVMEM_STATUS_NOT_FOUND when the owner's metadata is not loaded or does not
///         cover the layout's memory; KVMEM_STATUS_PEER_LOST when the process that exported it has ended
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

/// Destroys a layout handle. The layout is destroyed when nothing holds it.
///
/// @param layout a layout that no other call uses; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_destroy(layout: *mut kvmem_layout) {
    // SAFETY: by contract.
    unsafe { destroy(layout) };
}

fn describe(layout: &Layout) -> kvmem_layout_info {
    let (geometry, memory) = (layout.geometry(), layout.memory());
    let dimensions = geometry.dimensions();
    let (kind, block_dim) = match geometry.kind() {
        LayoutKind::FullyContiguous => (KVMEM_LAYOUT_FULLY_CONTIGUOUS, KVMEM_BLOCK_DIM_FIRST),
        LayoutKind::LayerSeparate(BlockDim::First) => (KVMEM_LAYOUT_LAYER_SEPARATE, KVMEM_BLOCK_DIM_FIRST),
        LayoutKind::LayerSeparate(BlockDim::Second) => (KVMEM_LAYOUT_LAYER_SEPARATE, KVMEM_BLOCK_DIM_SECOND),
    };
    kvmem_layout_info {
        num_blocks: dimensions.num_blocks,
        num_layers: dimensions.num_layers,
        outer_dim: dimensions.outer_dim,
        page_size: dimensions.page_size,
        inner_dim: dimensions.inner_dim,
        dtype_width: dimensions.dtype_width,
        alignment: dimensions.alignment,
        num_heads: dimensions.num_heads.unwrap_or(0),
        device_id: layout.descriptors().first().map_or(0, |descriptor| descriptor.device_id),
        num_regions: geometry.num_regions() as u64,
        kind,
        block_dim,
        tier: tier(memory.tier()),
        locality: match memory.locality() {
            Locality::Local => KVMEM_LOCALITY_LOCAL,
            Locality::Registered => KVMEM_LOCALITY_REGISTERED,
            Locality::Remote => KVMEM_LOCALITY_REMOTE,
            Locality::Mapped => KVMEM_LOCALITY_MAPPED,
        },
        memory_type: memory_type(layout.memory_type()),
        reserved: 0,
    }
}
