// SPDX-License-Identifier: Apache-2.0
//! Where a plan reads and writes, in ranges of whole parts of blocks: far fewer than there are moves.

use super::nest::{Loop, iterations};
use super::odometer::Odometer;
use super::{Plan, PlanPart};

impl Plan {
    /// Ranges of one side that contain all of its moves: region, address and size. Each is of a run of blocks in one region,
    /// from the first byte that is moved of the first block until the last of the last block, without what is stored between
    /// other blocks.
    pub fn footprints(&self, side: usize) -> impl Iterator<Item = (u32, u64, u64)> {
        self.parts().flat_map(move |part| part.footprints(side))
    }
}

impl<'a> PlanPart<'a> {
    fn footprints(self, side: usize) -> impl Iterator<Item = (u32, u64, u64)> + 'a {
        let block_stride = self.block_strides()[side];
        let is_outside = |each: &&Loop| each.regions[side] > 0 || each.strides[side] >= block_stride;
        let outside: Vec<_> = self.loops().iter().filter(is_outside).copied().collect();
        let inside = self.loops().iter().filter(|each| !is_outside(each));
        let size: u64 =
            self.grid().unit_size + inside.map(|each| (each.count - 1) * each.strides[side]).sum::<u64>();
        let count = iterations(&outside);
        let mut odometer = Odometer::new(outside, 0);
        (0..count).flat_map(move |_| {
            let at = odometer.at;
            odometer.step();
            self.runs().iter().map(move |run| {
                let first = if side == 0 { run.source } else { run.destination };
                let bytes = at.bytes[side] + u64::from(first) * block_stride;
                let (region, address) = self.at(side, at.regions[side], bytes);
                (region, address, u64::from(run.length - 1) * block_stride + size)
            })
        })
    }
}
