// SPDX-License-Identifier: Apache-2.0
//! The count, stride and regions of each axis. Pure: every product and sum is checked.
//!
//! A tight stride is the stride of the next inner axis times its count. That of blocks is rounded up to the alignment.

use super::arrangement::{Arrangement, Strides};
use super::axis::Axis;
use super::config::Dimensions;
use super::order::{AXES, Order};
use crate::base::sorting::sort_few_by_key;
use crate::base::{Error, Result, Status, ensure, error};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes {
    counts: [u64; AXES],
    strides: [u64; AXES],
    region_steps: [u64; AXES],
    num_regions: u64,
    region_size: u64,
    given: Strides,
}

impl Axes {
    /// Computes the strides of an arrangement. Fails, with the name of the axis, if two elements had one address.
    pub fn new(dimensions: &Dimensions, arrangement: &Arrangement) -> Result<Self> {
        let Arrangement { order, strides: given } = arrangement;
        let counts = Axis::ALL.map(|axis| dimensions.count(axis));
        ensure_named(&counts, arrangement)?;
        let mut axes = Self {
            counts,
            strides: [0; AXES],
            region_steps: [0; AXES],
            num_regions: 1,
            region_size: 0,
            given: Strides::default(),
        };
        for axis in order.in_regions().iter().rev() {
            axes.region_steps[*axis as usize] = axes.num_regions;
            axes.num_regions = product(&[axes.num_regions, axes.count(*axis)])?;
        }
        let mut tight = [0; AXES];
        let mut next = dimensions.dtype_width;
        // A single block needs no axis, and still has a stride: the unit of elastic memory.
        let block = (!order.has(Axis::Block)).then_some(Axis::Block);
        for axis in order.within().iter().copied().rev().chain(block) {
            if axis == Axis::Block {
                next = aligned(next, dimensions.alignment)?;
            }
            tight[axis as usize] = next;
            let stride = given.given(axis).unwrap_or(next);
            axes.strides[axis as usize] = stride;
            if stride != next {
                axes.given = axes.given.with(axis, stride);
            }
            let covered = product(&[stride, axes.count(axis)]).map_err(|error| axes.named(error, axis))?;
            // The stride of a single index may be any, as in tensors. A larger one is padding.
            next = if axes.count(axis) == 1 { covered.max(next) } else { covered };
        }
        axes.ensure_disjoint(dimensions.dtype_width, order, &tight)?;
        axes.ensure_aligned(dimensions.alignment, arrangement)?;
        axes.region_size = aligned(axes.extent(dimensions.dtype_width)?, dimensions.alignment)?;
        Ok(axes)
    }

    pub fn count(&self, axis: Axis) -> u64 {
        self.counts[axis as usize]
    }

    /// Bytes within a region from an index to the next; 0 if each index has regions of its own.
    #[inline]
    pub fn stride(&self, axis: Axis) -> u64 {
        self.strides[axis as usize]
    }

    /// Regions from an index to the next; 0 if its indices share regions.
    #[inline]
    pub fn region_step(&self, axis: Axis) -> u64 {
        self.region_steps[axis as usize]
    }

    pub fn num_regions(&self) -> u64 {
        self.num_regions
    }

    /// The strides that are not tight.
    pub fn given(&self) -> Strides {
        self.given
    }

    /// Bytes of a region: to the end of the last element, rounded up to the alignment.
    pub fn region_size(&self) -> u64 {
        self.region_size
    }

    /// The axes that one region contains several indices of, from the smallest stride to the largest.
    pub fn by_stride(&self) -> Vec<Axis> {
        let mut axes: Vec<_> = Axis::ALL
            .into_iter()
            .filter(|axis| self.count(*axis) > 1 && self.region_step(*axis) == 0)
            .collect();
        sort_few_by_key(&mut axes, |axis| self.stride(*axis));
        axes
    }

    /// Whether both give every element the same address.
    pub fn same_addresses(&self, other: &Self) -> bool {
        let same = |axis: Axis| {
            self.count(axis) == 1
                || (self.stride(axis) == other.stride(axis)
                    && self.region_step(axis) == other.region_step(axis))
        };
        self.counts == other.counts
            && self.num_regions == other.num_regions
            && self.region_size == other.region_size
            && self.stride(Axis::Block) == other.stride(Axis::Block)
            && Axis::ALL.into_iter().all(same)
    }

    /// The size of the smallest range that contains all indices of some axes, if they are contiguous in it.
    pub fn contiguous(&self, of: &[Axis], element_size: u64) -> Option<u64> {
        if of.iter().any(|axis| self.count(*axis) > 1 && self.region_step(*axis) > 0) {
            return None;
        }
        self.by_stride().into_iter().filter(|axis| of.contains(axis)).try_fold(element_size, |size, axis| {
            (self.stride(axis) == size).then(|| size.checked_mul(self.count(axis))).flatten()
        })
    }

    fn extent(&self, element_size: u64) -> Result<u64> {
        self.by_stride().into_iter().try_fold(element_size, |extent, axis| self.extended(extent, axis))
    }

    /// The bytes that an axis covers, if one of its indices covers `extent`.
    fn extended(&self, extent: u64, axis: Axis) -> Result<u64> {
        let last = self.stride(axis).checked_mul(self.count(axis) - 1);
        let sum = last.and_then(|last| last.checked_add(extent)).filter(|sum| *sum <= MAX);
        sum.ok_or_else(|| self.named(overflow(), axis))
    }

    fn named(&self, error: Error, axis: Axis) -> Error {
        let (count, stride) = (self.count(axis), self.stride(axis));
        let (letter, name) = (axis.letter(), axis.name());
        error.context(format!("axis {letter} ({name}) has {count} indices and a stride of {stride} bytes"))
    }

    /// Each stride must be at least what the axes with smaller strides cover. So axes nest, which plans rely on: strides that
    /// only alternate, such as 4 for two indices and 6 for two others, are refused too. No known engine has such.
    fn ensure_disjoint(&self, element_size: u64, order: &Order, tight: &[u64; AXES]) -> Result<()> {
        let mut axes = self.by_stride();
        if !axes.contains(&Axis::Block) {
            let place = axes.partition_point(|axis| self.stride(*axis) < self.stride(Axis::Block));
            axes.insert(place, Axis::Block);
        }
        let mut covered = element_size;
        for axis in &axes {
            if self.stride(*axis) < covered {
                return Err(self.overlap(element_size, order, tight)?);
            }
            covered = self.extended(covered, *axis)?;
        }
        Ok(())
    }

    /// Names the innermost axis of the order whose stride is less than what the axes inside it cover. It was given: a tight
    /// stride is large enough. If there is none, it is that of a single block: an axis outside it has less.
    fn overlap(&self, element_size: u64, order: &Order, tight: &[u64; AXES]) -> Result<Error> {
        let mut covered = element_size;
        for axis in order.within().iter().rev().filter(|axis| self.count(**axis) > 1 || **axis == Axis::Block)
        {
            let stride = self.stride(*axis);
            if stride < covered {
                let name = axis.name();
                let message = format!(
                    "axis {} ({name}) has a stride of {stride} bytes, and one {name} spans {covered}, so that two of \
                     them overlap or alternate in memory; give it at least {covered} bytes, or 0 for the tight stride of {}",
                    axis.letter(),
                    tight[*axis as usize]
                );
                return Ok(Error::new(Status::InvalidArgument, message));
            }
            covered = self.extended(covered, *axis)?;
        }
        let message = format!(
            "axis {} ({}) has one index and a stride of {} bytes, less than the block covers; give it at least {} bytes",
            Axis::Block.letter(),
            Axis::Block.name(),
            self.stride(Axis::Block),
            self.extent(element_size)?
        );
        Ok(Error::new(Status::InvalidArgument, message))
    }

    /// Every block starts at a multiple of the alignment, if all strides of and outside blocks are multiples.
    fn ensure_aligned(&self, alignment: u64, arrangement: &Arrangement) -> Result<()> {
        let within = arrangement.order.within();
        let until = within.iter().position(|axis| *axis == Axis::Block).map_or(0, |index| index + 1);
        // Blocks first: the tight strides outside them follow from theirs.
        let is_relevant = |axis: &&Axis| self.count(**axis) > 1 || **axis == Axis::Block;
        for axis in within[..until].iter().rev().filter(is_relevant) {
            ensure!(
                self.stride(*axis).is_multiple_of(alignment),
                InvalidArgument,
                "axis {} ({}) has a stride of {} bytes, which is not a multiple of the alignment {alignment}; give it a \
                 multiple, or lower the alignment",
                axis.letter(),
                axis.name(),
                self.stride(*axis)
            );
        }
        Ok(())
    }
}

/// Fails if the order lacks an axis that has several indices, or a stride is given for one without.
fn ensure_named(counts: &[u64; AXES], Arrangement { order, strides }: &Arrangement) -> Result<()> {
    for (axis, count) in Axis::ALL.into_iter().zip(counts) {
        let (letter, name) = (axis.letter(), axis.name());
        ensure!(
            *count == 1 || order.has(axis),
            InvalidArgument,
            "the order '{order}' lacks axis {letter} ({name}), of which there are {count}; add {letter}, or set {}",
            match axis {
                Axis::Head => "num_heads to 0, so that C is all heads of a token".to_string(),
                Axis::Element => "inner_dim so that there is one".to_string(),
                _ => format!("{} to 1", axis.field()),
            }
        );
        let Some(stride) = strides.given(axis) else { continue };
        ensure!(
            order.has(axis),
            InvalidArgument,
            "axis {letter} ({name}) has a stride of {stride} bytes, and the order '{order}' lacks {letter}; add it, or give \
             no stride"
        );
        ensure!(
            order.within().contains(&axis),
            InvalidArgument,
            "axis {letter} ({name}) has a stride of {stride} bytes, and regions of its own in the order '{order}'; give no \
             stride, or name it after '/'"
        );
    }
    Ok(())
}

/// Sizes stay below 2⁶³ so that every address difference fits a signed word.
const MAX: u64 = i64::MAX as u64;

/// The product of some factors, if it is a size.
pub(super) fn product(factors: &[u64]) -> Result<u64> {
    let product = factors.iter().try_fold(1u64, |product, factor| product.checked_mul(*factor));
    product.filter(|size| *size <= MAX).ok_or_else(overflow)
}

fn aligned(size: u64, alignment: u64) -> Result<u64> {
    size.checked_next_multiple_of(alignment).ok_or_else(overflow)
}

/// The error for a size that exceeds the address space.
pub(super) fn overflow() -> Error {
    error!(
        InvalidArgument,
        "the layout's size is more than 2^63 - 1 bytes; lower num_blocks, another size, a stride or the alignment"
    )
}

#[cfg(test)]
mod tests;
