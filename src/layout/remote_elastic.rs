// SPDX-License-Identifier: Apache-2.0
//! Elastic memory of a peer: the committed extents, and the control block that counts their changes.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::placement::Placement;
use super::whole_blocks::holds_whole_blocks;
use crate::base::{Result, Status, ensure};
use crate::nixl::{Descriptor, MemoryType};
use crate::region::{Control, EqualPieces};

/// The elastic memory of a peer that a layout uses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoteElastic {
    /// Its first address in the peer's process.
    pub start: u64,
    pub extent_size: u64,
    /// The committed extents, in order, and how often each had changed when the layout was exported.
    pub committed: Vec<(u64, u32)>,
    pub control: Descriptor,
}

impl RemoteElastic {
    /// Fails for values that kvmem never exports.
    pub fn validate(&self, placement: &Placement, device_id: u64) -> Result<Vec<Descriptor>> {
        let Self { start, extent_size, committed, control } = self;
        let count = Control::extents_of_size(control.size);
        ensure!(
            control.memory_type == MemoryType::Dram && control.device_id == 0 && count.is_some(),
            Corrupt,
            "the layout descriptor's control block is not host memory of a valid size"
        );
        let count = count.unwrap_or(0) as u64;
        let end = extent_size.checked_mul(count).and_then(|size| start.checked_add(size));
        let ascending = committed.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let inside = committed.last().is_none_or(|(last, _)| *last < count);
        ensure!(
            *extent_size > 0 && end.is_some() && ascending && inside,
            Corrupt,
            "the layout descriptor's extents are not in order, or past the last of {count}"
        );
        let end = end.unwrap_or(0);
        let (geometry, size) = (placement.geometry(), placement.geometry().region_size());
        for base in placement.bases() {
            let fits = base.checked_sub(*start).is_some_and(|offset| offset.is_multiple_of(*extent_size))
                && base.checked_add(size).is_some_and(|last| last <= end);
            ensure!(
                fits && holds_whole_blocks(geometry, *extent_size),
                Corrupt,
                "blocks of the layout descriptor cross the ends of its extents of {extent_size} bytes"
            );
        }
        let extent = |(index, _): &(u64, u32)| Descriptor {
            address: start + index * extent_size,
            size: *extent_size,
            device_id,
            memory_type: MemoryType::Vram,
        };
        Ok(committed.iter().map(extent).collect())
    }

    pub fn extents(&self) -> EqualPieces {
        EqualPieces { start: self.start, size: self.extent_size }
    }

    /// The extents that some spans touch, each with its changes. Fails if one was not committed.
    pub fn used(&self, spans: impl Iterator<Item = (u64, u64)>) -> Result<Vec<(usize, u32)>> {
        let mut touched = BTreeSet::new();
        for (address, size) in spans {
            touched.extend(self.extents().touched(address, size));
        }
        let changes = |index: u64| {
            let found = self.committed.binary_search_by_key(&index, |(index, _)| *index);
            let (_, changes) = found.ok().map(|at| self.committed[at]).ok_or_else(|| {
                let message = format!(
                    "the blocks are in extent {index} of the peer, which was not committed when the layout was exported"
                );
                crate::base::error::Error::new(Status::InvalidState, message)
            })?;
            Ok((index as usize, changes))
        };
        touched.into_iter().map(changes).collect()
    }
}
