// SPDX-License-Identifier: Apache-2.0
//! Each extent of a layout's elastic memory contains whole blocks.

use std::sync::Arc;

use super::geometry::Geometry;
use crate::error::{Result, ensure};
use crate::region::Region;

/// Whether no block crosses the end of an extent of this size, in a region that starts with an extent.
pub fn holds_whole_blocks(geometry: &Geometry, extent: u64) -> bool {
    extent.is_multiple_of(geometry.block_stride())
}

/// Fails for elastic memory in which a block would cross the end of an extent.
pub fn ensure_whole_blocks(geometry: &Geometry, region: &Arc<Region>) -> Result<()> {
    let Some(memory) = region.elastic_memory() else { return Ok(()) };
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
