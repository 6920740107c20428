// SPDX-License-Identifier: Apache-2.0
//! Canonical loops: what two strided descriptions of the same elements have in common.
//!
//! Axes that are contiguous on both sides become one unit of bytes. The other axes become loops, in the order of the
//! destination; neighbours that continue each other on both sides become one loop. So it does not matter in which terms a
//! layout was described.

use crate::base::sorting::sort_few_by_key;
use crate::layout::{Axis, Unit};

pub const BLOCK_AXES: usize = 5;

/// An axis of a block as both sides have it.
#[derive(Clone, Copy, Debug)]
pub struct PairedAxis {
    pub axis: Axis,
    /// Number of indices that are moved.
    pub count: u64,
    /// Bytes from an index to the next, in source and destination.
    pub strides: [u64; 2],
    /// Regions from an index to the next.
    pub regions: [u32; 2],
    /// Both layouts have no other indices.
    pub is_whole: bool,
}

/// A loop with constant strides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loop {
    pub count: u64,
    /// Bytes from an iteration to the next, in source and destination.
    pub strides: [u64; 2],
    /// Regions from an iteration to the next.
    pub regions: [u32; 2],
}

impl Loop {
    /// Whether all iterations are in one region on each side.
    pub fn is_within_regions(&self) -> bool {
        self.regions == [0; 2]
    }

    /// The loop over both, if one step of this one continues where `inner` ends, on both sides.
    fn joined(&self, inner: &Self) -> Option<Self> {
        let continues = (0..2).all(|side| {
            inner.count.checked_mul(inner.strides[side]) == Some(self.strides[side])
                && inner.count.checked_mul(u64::from(inner.regions[side]))
                    == Some(u64::from(self.regions[side]))
        });
        continues.then(|| Self { count: self.count * inner.count, ..*inner })
    }
}

/// The side whose order the loops follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopOrder {
    /// The destination's, except that short rows may be lengthened by what is close to them.
    Destination,
    /// The destination's: what is contiguous there is contiguous in the loops.
    StrictDestination,
    /// The source's, with the exception of the first.
    Source,
}

impl LoopOrder {
    /// Index of the side.
    pub fn leader(self) -> usize {
        usize::from(self != Self::Source)
    }
}

/// The loops of a block: outermost first, in the order of one of the sides, which is the destination unless stated.
#[derive(Clone, Debug)]
pub struct Nest {
    loops: [Loop; BLOCK_AXES],
    length: usize,
    /// Loops before the loop over blocks.
    outside: usize,
    /// Bytes of the innermost span, which is contiguous on both sides.
    pub unit_size: u64,
    /// The largest unit of a prepared list that is contiguous on both sides, and of which all is moved.
    pub unit: Option<Unit>,
}

impl Nest {
    /// The loops over some axes of a block, in the order of one of the sides. `block_stride` is that of the same side.
    pub fn in_order(
        order: LoopOrder,
        axes: &[PairedAxis; BLOCK_AXES],
        element_size: u64,
        block_stride: u64,
    ) -> Self {
        let leader = order.leader();
        let mut unit = ContiguousUnit::new(axes, element_size);
        unit.extend(axes);
        let mut all = [Loop::default(); BLOCK_AXES];
        let mut length = 0;
        for axis in axes.iter().filter(|axis| axis.count > 1 && !unit.contains(axis.axis)) {
            all[length] = Loop { count: axis.count, strides: axis.strides, regions: axis.regions };
            length += 1;
        }
        let loops = &mut all[..length];
        let other = 1 - leader;
        // Regions first, then the largest strides: the leader is accessed in order.
        sort_few_by_key(loops, |each| {
            std::cmp::Reverse((
                each.regions[leader],
                each.strides[leader],
                each.regions[other],
                each.strides[other],
            ))
        });
        let length = join(loops);
        let inside = |each: &Loop| each.regions[leader] == 0 && each.strides[leader] < block_stride;
        if order != LoopOrder::StrictDestination {
            lengthen_rows(&mut loops[..length], unit.size, inside);
        }
        let outside = loops[..length].iter().take_while(|each| !inside(each)).count();
        Self { loops: all, length, outside, unit_size: unit.size, unit: unit.listed }
    }

    /// Ranges of a block that are contiguous on one side, whatever the other one has between them.
    pub fn ranges_on(&self, side: usize) -> u64 {
        let mut loops = self.loops;
        let loops = &mut loops[..self.length];
        sort_few_by_key(loops, |each| (each.regions[side], each.strides[side]));
        let (_, ranges) = loops.iter().fold((self.unit_size, 1), |(size, ranges), each| {
            match each.regions[side] == 0 && each.strides[side] == size {
                true => (size * each.count, ranges),
                false => (size, ranges * each.count),
            }
        });
        ranges
    }

    /// All loops, without that over blocks.
    pub fn loops(&self) -> &[Loop] {
        &self.loops[..self.length]
    }

    /// The loops that go through all blocks in each iteration: those over what the destination stores apart from the rest
    /// of a block.
    pub fn outside(&self) -> &[Loop] {
        &self.loops[..self.outside]
    }

    /// The loops within each block. What is written is written in order, as far as the layout allows: of two batches of the
    /// same copies to the host, the one out of order took a tenth longer.
    pub fn inside(&self) -> &[Loop] {
        &self.loops[self.outside..self.length]
    }
}

pub fn iterations(loops: &[Loop]) -> u64 {
    loops.iter().map(|each| each.count).product()
}

/// Swaps the two innermost loops if the inner one has few iterations, such as keys and values of a row: a row of spans costs
/// more than a short span. If both are `inside` of a block, their spans are close together, so their order does not matter.
fn lengthen_rows(loops: &mut [Loop], unit_size: u64, inside: impl Fn(&Loop) -> bool) {
    const FEW: u64 = 4;
    const SHORT: u64 = 1024;
    let [.., outer, inner] = loops else { return };
    let is_inside = outer.is_within_regions() && inside(outer);
    if unit_size <= SHORT && inner.count <= FEW && outer.count > 2 * inner.count && is_inside {
        std::mem::swap(outer, inner);
    }
}

/// Joins neighbours in place, and returns how many loops are left.
fn join(loops: &mut [Loop]) -> usize {
    let mut length = 0;
    for index in 0..loops.len() {
        let each = loops[index];
        if length > 0
            && let Some(joined) = loops[length - 1].joined(&each)
        {
            loops[length - 1] = joined;
            continue;
        }
        loops[length] = each;
        length += 1;
    }
    length
}

/// Bytes that are contiguous on both sides, and the axes that they consist of.
struct ContiguousUnit {
    size: u64,
    axes: AxisSet,
    /// Axes with one index in both layouts belong to any unit.
    single: AxisSet,
    /// All indices of its axes are moved.
    is_whole: bool,
    listed: Option<Unit>,
}

impl ContiguousUnit {
    fn new(axes: &[PairedAxis; BLOCK_AXES], element_size: u64) -> Self {
        let single = axes.iter().filter(|each| each.count == 1 && each.is_whole).map(|each| each.axis);
        let mut unit = Self {
            size: element_size,
            axes: AxisSet::default(),
            single: AxisSet::from_axes(single),
            is_whole: true,
            listed: None,
        };
        unit.recognize();
        unit
    }

    fn contains(&self, axis: Axis) -> bool {
        self.axes.contains(axis)
    }

    /// Adds axes as long as one continues what is there, on both sides.
    fn extend(&mut self, axes: &[PairedAxis; BLOCK_AXES]) {
        let next = |unit: &Self| {
            let continues = |each: &&PairedAxis| {
                each.count > 1
                    && !unit.contains(each.axis)
                    && each.strides == [unit.size; 2]
                    && each.regions == [0; 2]
            };
            axes.iter().find(continues).copied()
        };
        while let Some(axis) = next(self) {
            self.size *= axis.count;
            self.axes.add(axis.axis);
            self.is_whole &= axis.is_whole;
            self.recognize();
        }
    }

    /// Whether it is now one of the units of prepared lists, which are contiguous by themselves.
    fn recognize(&mut self) {
        const PIECE: [Axis; 3] = [Axis::Token, Axis::Head, Axis::Element];
        const LAYER: [Axis; 4] = [Axis::Outer, Axis::Token, Axis::Head, Axis::Element];
        let is_exactly = |axes: &[Axis]| {
            let wanted = AxisSet::from_axes(axes.iter().copied());
            self.axes.union(self.single).includes(wanted) && wanted.union(self.single).includes(self.axes)
        };
        if !self.is_whole {
            return;
        }
        if self.axes.union(self.single).includes(AxisSet::from_axes(Axis::ALL[1..].iter().copied())) {
            self.listed = Some(Unit::Block);
        } else if is_exactly(&LAYER) {
            self.listed = Some(Unit::Layer);
        } else if is_exactly(&PIECE) {
            self.listed = Some(Unit::Piece);
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AxisSet(u8);

impl AxisSet {
    fn from_axes(axes: impl IntoIterator<Item = Axis>) -> Self {
        let mut set = Self::default();
        axes.into_iter().for_each(|axis| set.add(axis));
        set
    }

    fn add(&mut self, axis: Axis) {
        self.0 |= 1 << axis as u8;
    }

    fn contains(self, axis: Axis) -> bool {
        self.0 & 1 << axis as u8 != 0
    }

    fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it has all of another one.
    fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
