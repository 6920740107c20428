// SPDX-License-Identifier: Apache-2.0
//! Elastic memory holds whole blocks in each extent, or no layout lies on it.

use std::sync::Arc;

use super::geometry::Geometry;
use crate::error::{Result, ensure};
use crate::region::Region;

/// Whether no block straddles extents of this size in a region that begins with one.
pub fn holds_whole_blocks(geometry: &Geometry, extent: u64) -> bool {
    extent.is_multiple_of(geometry.block_stride())
}

/// Refuses elastic memory in which a block would straddle two extents; other memory has none.
pub fn ensure_whole_blocks(geometry: &Geometry, region: &Arc<Region>) -> Result<()> {
    let Some(memory) = region.elastic_memory() else { return Ok(()) };
    let (_, offset) = Region::root_of(region);
    let (stride, extent) = (geometry.block_stride(), memory.extent_size());
    ensure!(
        offset.is_multiple_of(extent) && holds_whole_blocks(geometry, extent),
        InvalidArgument,
        "blocks {stride} bytes apart, from offset {offset} of the elastic region on, straddle its extents of {extent} \
         bytes: the extent must be a multiple of the stride, and the offset one of the extent"
    );
    Ok(())
}
