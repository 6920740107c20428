// SPDX-License-Identifier: Apache-2.0
//! Checksums of blocks in GPU memory, computed by a kernel.

use std::sync::Arc;

use crate::base::{Result, log};
use crate::copy::gpu::DeviceState;
use crate::copy::gpu::checker::{Checker, MAX_BLOCKS, MAX_IN_ALL, max_layers, spoil, tiles_of_layers};
use crate::copy::pieces::Pieces;
use crate::cuda::DevicePair;
use crate::engine::single_move::WaitLimits;
use crate::layout::{Axis, Layout, TouchedExtents};
use crate::plan::Slots;
use crate::region::ExtentHold;

/// Adds the checksum of some layers and outer slots of each block to a list. Returns whether the device has what it needs for that: a
/// kernel that can access the blocks, and not too many tiles. If the limits end the wait for the device, the layout is held until the
/// device has finished.
pub fn add(
    layout: &Arc<Layout>,
    blocks: &[u32],
    slots: &Slots,
    limits: &WaitLimits,
    checksums: &mut Vec<u32>,
) -> Result<bool> {
    let Some(ordinal) = own_device(layout) else { return Ok(false) };
    let pieces = Pieces::new(layout, slots)?;
    let layers = max_layers(&pieces);
    if layers == 0 {
        return Ok(false);
    }
    layout.contexts(false).ensure_alive()?;
    let device = DeviceState::kept_by(layout, ordinal)?;
    let checker = match Checker::take(&device) {
        Ok(checker) => checker,
        Err(error) => {
            log!(Warn, "checksums of device {ordinal} are computed by the host: {error}");
            return Ok(false);
        }
    };
    let held = touched(layout, blocks, slots).hold()?;
    let max_blocks = (MAX_IN_ALL / tiles_of_layers(&pieces, layers)).clamp(1, MAX_BLOCKS) as usize;
    let may_wait = || {
        limits.ensure_wanted()?;
        limits.ensure_in_time(|| {
            "the GPU has other work, and may still read the blocks, which are held until then".into()
        })
    };
    for part in blocks.chunks(max_blocks) {
        if let Err(error) = checker.compute(part, &pieces, checksums, &may_wait) {
            let error = spoil(checker, &device, (held, layout.clone()), error);
            return Err(error.context("compute checksums on the GPU"));
        }
    }
    held.iter().try_for_each(ExtentHold::ensure_unchanged)?;
    Ok(true)
}

/// The device that owns the layout's memory, if its own kernels can access all of it.
fn own_device(layout: &Layout) -> Option<i32> {
    let owner = layout.memory().regions().first()?.ordinal()?;
    let is_own = |place: Option<DevicePair>| place == Some(DevicePair::on(owner));
    layout.memory().regions().iter().all(|region| is_own(region.devices())).then_some(owner)
}

/// The extents that must stay mapped while the kernel reads the blocks.
fn touched(layout: &Layout, blocks: &[u32], slots: &Slots) -> TouchedExtents {
    if !layout.is_elastic() {
        return layout.touched_extents(std::iter::empty());
    }
    let (placement, geometry) = (layout.placement(), layout.geometry());
    // Where a block has parts: in one region and between two of its neighbours, each is within one extent.
    let mut parts = vec![(0, 0)];
    let is_outside = |axis: Axis| geometry.outside_blocks().any(|outside| outside == axis);
    for axis in Axis::ALL.into_iter().filter(|axis| geometry.region_step(*axis) > 0 || is_outside(*axis)) {
        let indices = match axis {
            Axis::Layer => slots.layers.clone(),
            Axis::Outer => slots.outers.clone(),
            _ => 0..geometry.count(axis),
        };
        let of_part = |(region, offset): (usize, u64)| {
            let further = move |index| {
                let (regions, bytes) = geometry.locate(&[(axis, index)]);
                (region + regions, offset + bytes)
            };
            indices.clone().map(further)
        };
        parts = parts.into_iter().flat_map(of_part).collect();
    }
    let spans = blocks.iter().flat_map(|block| {
        let first = u64::from(*block) * geometry.block_stride();
        let address = move |region: usize| placement.bases()[region] + first;
        parts.iter().map(move |(region, offset)| (*region as u32, address(*region) + offset, 1))
    });
    layout.touched_extents(spans)
}
