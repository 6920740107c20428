// SPDX-License-Identifier: Apache-2.0
//! Layouts over memory that another process has shared.

use std::sync::Arc;

use super::Layout;
use super::arrangement::Arrangement;
use super::builder::{ensure_disjoint, finish_registered};
use super::config::Dimensions;
use super::geometry::Geometry;
use super::placement::Placement;
use super::whole_blocks::ensure_whole_blocks;
use crate::base::{Error, Result, Status, ensure, fail, lists};
use crate::nixl::Agent;
use crate::region::Region;

impl Layout {
    /// Builds a layout over regions that another process has shared, and that are mapped here. All claims that this process
    /// can check are checked.
    pub fn mapped(
        dimensions: Dimensions,
        arrangement: Arrangement,
        regions: Vec<Arc<Region>>,
        agent: Option<Arc<Agent>>,
    ) -> Result<Arc<Self>> {
        let corrupt = |error: Error| {
            error.context("the shared layout does not fit its memory").with_status(Status::Corrupt)
        };
        let geometry = Geometry::new(dimensions, arrangement)?;
        for region in &regions {
            ensure_whole_blocks(&geometry, region).map_err(corrupt)?;
        }
        let bases = lists::collect(regions.iter().map(|region| region.address()))?;
        let alignment = geometry.dimensions().alignment;
        if let Some(base) = bases.iter().find(|base| !base.is_multiple_of(alignment)) {
            fail!(
                Unsupported,
                "the layout's alignment is {alignment}, and the driver has placed memory of it at {base:#x} in this \
                 process; share elastic memory, which is placed as the layout needs it, or a layout of a smaller \
                 alignment"
            );
        }
        let placement = Placement::new(geometry, bases).map_err(corrupt)?;
        ensure_disjoint(&regions, placement.geometry().region_size()).map_err(corrupt)?;
        let one_tier = regions.iter().all(|region| region.tier() == regions[0].tier());
        let one_device = regions.iter().all(|region| region.devices() == regions[0].devices());
        ensure!(
            one_tier && one_device,
            Corrupt,
            "the regions of the shared layout are on several tiers or devices"
        );
        finish_registered(placement, regions, agent)
    }
}
