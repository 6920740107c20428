// SPDX-License-Identifier: Apache-2.0
//! Each extent of a layout's elastic memory contains whole blocks.

use std::sync::Arc;

use super::axis::Axis;
use super::geometry::Geometry;
use crate::base::{Result, ensure, fail};
use crate::region::Region;

/// Whether no block crosses the end of an extent of this size, in a region that starts with an extent.
pub fn holds_whole_blocks(geometry: &Geometry, extent: u64) -> bool {
    extent.is_multiple_of(geometry.block_stride()) && broken_plane(geometry).is_none()
}

/// Fails for elastic memory if the parts of blocks in some axis start at no multiple of the block stride.
pub fn ensure_whole_planes(geometry: &Geometry) -> Result<()> {
    let Some(axis) = broken_plane(geometry) else { return Ok(()) };
    fail!(
        InvalidArgument,
        "axis {} ({}) has a stride of {} bytes, which is not a multiple of the block stride {}, so that blocks would cross \
         the ends of extents of elastic memory; give it such a stride, or 0 for the tight one",
        axis.letter(),
        axis.name(),
        geometry.stride(axis),
        geometry.block_stride()
    )
}

fn broken_plane(geometry: &Geometry) -> Option<Axis> {
    geometry.outside_blocks().find(|axis| !geometry.stride(*axis).is_multiple_of(geometry.block_stride()))
}

/// Fails for elastic memory in which a block would cross the end of an extent.
pub fn ensure_whole_blocks(geometry: &Geometry, region: &Arc<Region>) -> Result<()> {
    let Some(memory) = region.elastic_memory() else { return Ok(()) };
    ensure_whole_planes(geometry)?;
    let (_, offset) = Region::root_of(region);
    let (stride, extent) = (geometry.block_stride(), memory.extent_size());
    ensure!(
        offset.is_multiple_of(extent) && holds_whole_blocks(geometry, extent),
        InvalidArgument,
        "blocks with a stride of {stride} bytes, from offset {offset} of the elastic region, cross the ends of its extents \
         of {extent} bytes: the extent size must be a multiple of the stride, and the offset a multiple of the extent size"
    );
    Ok(())
}
