// SPDX-License-Identifier: Apache-2.0
//! Properties of a layout.

use std::ffi::{c_char, c_void};
use std::ptr;

use crate::ffi::agent::memory_type;
use crate::ffi::common::{Out, borrow, call, destroy, kvmem_error, kvmem_status, out, text};
use crate::ffi::layout::{NamedLayout, kvmem_layout};
use crate::ffi::region::{kvmem_region, tier};
use crate::layout::{Axis, Locality, Placement};

/// Only this process can access it: it has no agent.
pub const KVMEM_LOCALITY_LOCAL: u32 = 1;
/// This process can access it, and peers of its agent.
pub const KVMEM_LOCALITY_REGISTERED: u32 = 2;
/// It belongs to a peer. Only transfers can access it.
pub const KVMEM_LOCALITY_REMOTE: u32 = 3;
/// It belongs to another process and is mapped here: this process can access it like its own memory.
pub const KVMEM_LOCALITY_MAPPED: u32 = 4;

/// Properties of a layout, and the numbers to compute addresses with: bases[layer·layer_step +
/// outer·outer_step + token·token_step + head·head_step] + block·block_stride + layer·layer_stride +
/// outer·outer_stride + token·token_stride + head·head_stride + element·element_stride. In the orders
/// KVMEM_ORDER_*, a block in one layer and outer slot starts at bases[num_regions > 1 ? layer : 0] +
/// block·block_stride + layer·layer_stride + outer·outer_stride. Fields without a comment are as
/// configured.
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
    /// As configured; 1 if that was 0.
    pub alignment: u64,
    /// As configured.
    pub num_heads: u64,
    /// As configured, NUL-terminated, such as "L/OBNHC".
    pub order: [c_char; 8],
    /// As configured; NULL for none.
    pub identity: *const c_void,
    /// Bytes of identity.
    pub identity_size: usize,
    /// KVMEM_TIER_* value.
    pub tier: u32,
    /// KVMEM_LOCALITY_* value, the same for all regions: all are on one tier and device, and a shared layout
    /// is either mapped as a whole or remote as a whole.
    pub locality: u32,
    /// KVMEM_MEMORY_* value.
    pub memory_type: u32,
    /// Number of parts that it was combined from; 0 if it was not combined. If it was, each part has its own
    /// shape: only num_blocks and the fields from tier to num_regions are set, and the others are 0.
    pub num_parts: u32,
    /// Names of its parts, in their order; NULL if it was not combined.
    pub part_names: *const *const c_char,
    /// Name of the agent that it was built with, or of the peer; NULL for none.
    pub agent: *const c_char,
    /// NIXL's id of the first region: 0 for the host, a GPU's ordinal, a file's fd.
    pub device_id: u64,
    /// Number of regions.
    pub num_regions: u64,
    /// Start of each region.
    pub bases: *const u64,
    /// Bytes from one block to the next.
    pub block_stride: u64,
    /// Bytes from one layer to the next; 0 if layers have separate regions.
    pub layer_stride: u64,
    /// Bytes from one outer slot to the next; 0 if they have separate regions.
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
    /// Bytes of one block in one layer and outer slot, R, if contiguous; otherwise 0.
    pub piece_size: u64,
    /// Contiguous bytes of one head of one token: all elements, or dtype_width if others are in between.
    pub row_size: u64,
}

/// Returns the properties of a layout. Its pointers are valid as long as this handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_info(
    layout: *const kvmem_layout,
    info: *mut kvmem_layout_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let info = out(info, "info")?;
        info.write(describe(borrow(scope, layout)?));
        Ok(())
    })
}

/// Returns one of the regions of a layout.
///
/// @param index less than num_regions
/// @return KVMEM_STATUS_UNSUPPORTED: the layout is remote
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_region(
    layout: *const kvmem_layout,
    index: usize,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let region = Out::new(region, "region")?;
        region.set(borrow(scope, layout)?.region(index)?.clone().into());
        Ok(())
    })
}

/// Destroys a layout handle. The layout is destroyed when nothing refers to it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_destroy(layout: *mut kvmem_layout) {
    destroy(layout);
}

fn describe(layout: &NamedLayout) -> kvmem_layout_info {
    let names = layout.names();
    let memory = layout.memory();
    let common = kvmem_layout_info {
        num_blocks: layout.geometry().dimensions().num_blocks,
        device_id: layout.descriptors().first().map_or(0, |descriptor| descriptor.device_id),
        num_regions: layout.descriptors().len() as u64,
        tier: tier(memory.tier()),
        locality: match memory.locality() {
            Locality::Local => KVMEM_LOCALITY_LOCAL,
            Locality::Registered => KVMEM_LOCALITY_REGISTERED,
            Locality::Remote => KVMEM_LOCALITY_REMOTE,
            Locality::Mapped => KVMEM_LOCALITY_MAPPED,
        },
        memory_type: memory_type(layout.memory_type()),
        num_parts: layout.num_parts() as u32,
        part_names: names.parts.raw().0,
        agent: names.agent.as_ref().map_or(ptr::null(), |name| name.as_ptr()),
        // SAFETY: the fields are numbers and pointers, which may be zero.
        ..unsafe { std::mem::zeroed() }
    };
    match layout.single() {
        Ok(placement) => with_shape(common, placement),
        Err(_) => common,
    }
}

fn with_shape(common: kvmem_layout_info, placement: &Placement) -> kvmem_layout_info {
    let geometry = placement.geometry();
    let step = |axis| geometry.region_step(axis) as u64;
    let dimensions = geometry.dimensions();
    let identity = dimensions.identity.bytes();
    kvmem_layout_info {
        num_layers: dimensions.num_layers,
        outer_dim: dimensions.outer_dim,
        page_size: dimensions.page_size,
        inner_dim: dimensions.inner_dim,
        dtype_width: dimensions.dtype_width,
        alignment: dimensions.alignment,
        num_heads: dimensions.num_heads.unwrap_or(0),
        order: text::fixed(&geometry.order().to_string()),
        block_stride: geometry.stride(Axis::Block),
        layer_stride: geometry.stride(Axis::Layer),
        outer_stride: geometry.stride(Axis::Outer),
        token_stride: geometry.stride(Axis::Token),
        head_stride: geometry.stride(Axis::Head),
        element_stride: geometry.stride(Axis::Element),
        bases: placement.bases().as_ptr(),
        layer_step: step(Axis::Layer),
        outer_step: step(Axis::Outer),
        token_step: step(Axis::Token),
        head_step: step(Axis::Head),
        piece_size: if geometry.has_contiguous_pieces() { geometry.piece_size() } else { 0 },
        row_size: geometry.row_size(),
        identity: if identity.is_empty() { ptr::null() } else { identity.as_ptr().cast() },
        identity_size: identity.len(),
        ..common
    }
}
