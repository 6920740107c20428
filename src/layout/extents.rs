// SPDX-License-Identifier: Apache-2.0
//! Layouts on elastic memory: no block crosses the end of an extent, and memory is committed for the blocks in use.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::arrangement::Arrangement;
use super::axis::Axis;
use super::config::Dimensions;
use super::extent_set::ExtentSet;
use super::geometry::Geometry;
use super::placement::Placement;
use super::whole_blocks::ensure_whole_planes;
use super::{Layout, RemoteElastic};
use crate::base::{Error, Result, Status, ensure, error, fail, lists};
use crate::region::{Backing, ElasticMemory, ExtentHold, Region, RegionExtents};

const TARGET: u64 = 64 << 20;
/// A smaller region grows in about this many steps.
const STEPS: u64 = 8;

/// Computes extents that contain a whole number of blocks. Pads the block stride as little as possible, and returns the
/// shape and the size of an extent.
///
/// With a block stride of s and a granularity of g the smallest such extent is the least common multiple of the two.
/// Rounding s up to a multiple of a power of two p makes it smaller; the smallest p that reaches the target is used.
///
/// A block stride that was given is not padded: the extents are as large as it needs.
pub fn fit(dimensions: &Dimensions, arrangement: Arrangement, granularity: u64) -> Result<(Geometry, u64)> {
    let mut alignment = dimensions.alignment;
    let is_given = arrangement.strides.given(Axis::Block).is_some();
    loop {
        let geometry = Geometry::new(Dimensions { alignment, ..dimensions.clone() }, arrangement)?;
        let stride = geometry.block_stride();
        let smallest = granularity / common_divisor(stride, granularity);
        match stride.checked_mul(smallest) {
            Some(extent) if extent <= TARGET || alignment >= granularity || is_given => {
                ensure_whole_planes(&geometry)?;
                let wanted = TARGET.min(geometry.region_size() / STEPS);
                return Ok((geometry, extent * (wanted / extent).max(1)));
            }
            Some(_) => alignment *= 2,
            None => {
                fail!(InvalidArgument, "the size of a block exceeds the address space");
            }
        }
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Places each region of a shape at a multiple of the extent size.
pub fn place(geometry: Geometry, start: u64, extent: u64) -> Result<Placement> {
    let step = region_step(&geometry, extent)?;
    let bases = lists::collect((0..geometry.num_regions() as u64).map(|region| start + region * step))?;
    Placement::new(geometry, bases)
}

/// Bytes to reserve for a shape.
pub fn reserved_size(geometry: &Geometry, extent: u64) -> Result<u64> {
    let size = region_step(geometry, extent)?.checked_mul(geometry.num_regions() as u64);
    size.filter(|size| *size <= i64::MAX as u64).ok_or_else(too_large)
}

fn region_step(geometry: &Geometry, extent: u64) -> Result<u64> {
    geometry.region_size().checked_next_multiple_of(extent).ok_or_else(too_large)
}

fn too_large() -> Error {
    error!(InvalidArgument, "the layout's size is more than 2^63 - 1 bytes")
}

/// The ranges, within one region, that the first `blocks` blocks occupy.
pub fn spans(geometry: &Geometry, blocks: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut planes = vec![0];
    for axis in geometry.outside_blocks() {
        let (count, stride) = (geometry.count(axis), geometry.stride(axis));
        planes = (0..count).flat_map(|index| planes.iter().map(move |at| at + index * stride)).collect();
    }
    let size = blocks * geometry.block_stride();
    planes.into_iter().map(move |plane| (plane, size)).filter(|(_, size)| *size > 0)
}

impl Layout {
    /// Commits the memory of the first `blocks` blocks, and decommits the memory of all others.
    pub fn resize(&self, blocks: u64) -> Result<()> {
        let most = self.geometry().dimensions().num_blocks;
        ensure!(blocks <= most, OutOfRange, "num_blocks is {blocks}; the layout was built for {most}");
        if self.num_parts() > 0 {
            return self.resize_parts(blocks);
        }
        let base = self.elastic_region()?;
        let Some(memory) = base.elastic_memory() else { return Ok(()) };
        let wanted: BTreeSet<usize> = self
            .placement()
            .bases()
            .iter()
            .flat_map(|start| {
                let offset = start - memory.address();
                spans(self.geometry(), blocks).flat_map(move |(at, size)| memory.touched(offset + at, size))
            })
            .collect();
        base.set_committed(&wanted)
    }

    /// How often the memory behind its addresses has changed.
    pub fn generation(&self) -> u64 {
        match self.has_elastic_regions() {
            true => {
                self.roots().filter_map(|root| root.elastic_memory()).map(ElasticMemory::generation).sum()
            }
            false => 0,
        }
    }

    /// Whether its memory is elastic, here or in the peer's process.
    pub fn is_elastic(&self) -> bool {
        self.has_elastic_regions() || self.remote_elastic().next().is_some()
    }

    /// Bytes from an address that one copy of the driver or one NIXL descriptor may cover.
    pub fn bytes_in_piece(&self, region: u32, address: u64) -> u64 {
        if let Some((part, region)) = self.part_of_region(region) {
            return part.bytes_in_piece(region, address);
        }
        if let Some(elastic) = self.memory().remote_elastic() {
            return elastic.extents().left(address);
        }
        let region = self.memory().regions().get(region as usize);
        region.map_or(u64::MAX, |region| region.bytes_in_piece(address))
    }

    /// The elastic memory of the peer that it uses, by part; and the regions of the layout that are located in it.
    pub fn remote_elastic(&self) -> impl Iterator<Item = (Range<u32>, &RemoteElastic)> {
        let whole = self.memory().remote_elastic().map(|elastic| (0..u32::MAX, elastic));
        let parts = self.part_regions();
        let parts = parts.filter_map(|(regions, part)| Some((regions, part.memory().remote_elastic()?)));
        whole.into_iter().chain(parts)
    }

    pub fn touched_extents(&self, spans: impl Iterator<Item = (u32, u64, u64)>) -> TouchedExtents {
        if !self.has_elastic_regions() {
            return TouchedExtents(None);
        }
        let roots: Vec<_> = self.roots().collect();
        let memories: Vec<_> = roots.iter().map(|root| root.elastic_memory()).collect();
        let mut touched: Vec<_> = roots.iter().map(|_| ExtentSet::default()).collect();
        for (region, address, size) in spans {
            let root = self.root_of_region()[region as usize] as usize;
            if let Some(memory) = memories[root] {
                touched[root].add(memory.touched(address - memory.address(), size));
            }
        }
        let extents = roots.into_iter().zip(touched);
        let extents =
            extents.map(|(root, set)| RegionExtents { region: root.clone(), indices: set.to_vec() });
        TouchedExtents(Some(extents.collect()))
    }

    /// The elastic region that kvmem allocated for it.
    fn elastic_region(&self) -> Result<&Arc<Region>> {
        self.memory().elastic_base().ok_or_else(|| {
            let message = match self.is_elastic() {
                true => {
                    "kvmem did not allocate the layout's elastic memory; commit and decommit it by its region, or in the \
                     process that owns it"
                }
                false => {
                    "the layout is not elastic; to resize it, build it with KVMEM_LAYOUT_ALLOCATE and options for elastic \
                     memory"
                }
            };
            Error::new(Status::InvalidState, message)
        })
    }
}

/// The extents of a layout's regions that a transfer reads or writes; `None` if no memory is elastic.
pub struct TouchedExtents(Option<Arc<[RegionExtents]>>);

impl TouchedExtents {
    /// Keeps all of them committed. Fails if one is not committed.
    pub fn hold(&self) -> Result<Option<ExtentHold>> {
        self.0.as_ref().map(ExtentHold::new).transpose()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::{Arrangement, Order, Strides};

    const GRANULARITY: u64 = 2 << 20;

    #[test]
    fn blocks_of_any_order_stay_within_extents() {
        for order in ["LBNHC", "LHBNC", "BLHNC", "L/HCBN", "NBLHC"] {
            let order = Order::parse(order).unwrap();
            let dimensions =
                Dimensions { num_blocks: 10, outer_dim: 1, inner_dim: 800, ..Dimensions::small() };
            for strides in [Strides::default(), Strides::default().with(Axis::Block, 60000)] {
                let arrangement = Arrangement { order, strides };
                let Ok((geometry, extent)) = fit(&dimensions, arrangement, GRANULARITY) else {
                    assert!(strides != Strides::default(), "{order}: a tight order fits");
                    continue;
                };
                assert_eq!(extent % GRANULARITY, 0);
                for blocks in 0..=dimensions.num_blocks {
                    let spans: Vec<_> = spans(&geometry, blocks).collect();
                    let row = |block, token, head| {
                        let indices = [(Axis::Block, block), (Axis::Token, token), (Axis::Head, head)];
                        let start = geometry.locate(&indices).1;
                        start..start + geometry.row_size()
                    };
                    for row in
                        (0..blocks).flat_map(|b| (0..16).flat_map(move |n| (0..8).map(move |h| row(b, n, h))))
                    {
                        assert_eq!(row.start / extent, (row.end - 1) / extent);
                        assert!(
                            spans.iter().any(|(at, size)| *at <= row.start && row.end <= at + size),
                            "{order}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn planes_that_break_blocks_are_refused() {
        let strides = Strides::default().with(Axis::Block, 4096).with(Axis::Layer, 50000);
        let arrangement = Arrangement { order: Order::parse("LBNC").unwrap(), strides };
        let dimensions = Dimensions { num_heads: None, outer_dim: 1, ..Dimensions::small() };
        let error = fit(&dimensions, arrangement, GRANULARITY).unwrap_err();
        assert!(error.message().contains("axis L (layer) has a stride of 50000 bytes"), "{error}");
    }

    proptest! {
        #[test]
        fn no_block_straddles_an_extent(
            num_blocks in 1u64..200, num_layers in 1u64..40, outer_dim in 1u64..3, page_size in 1u64..65,
            inner_dim in 1u64..2000, width in prop::sample::select(vec![1, 2, 4]),
            arrangement in prop::sample::select(&Arrangement::KVBM[..]),
        ) {
            let dimensions = Dimensions {
                num_blocks, num_layers, outer_dim, page_size, inner_dim, dtype_width: width,
                ..Dimensions::ONE
            };
            let (geometry, extent) = fit(&dimensions, arrangement, GRANULARITY).unwrap();
            prop_assert_eq!(extent % GRANULARITY, 0);
            prop_assert_eq!(extent % geometry.block_stride(), 0);
            prop_assert!(extent <= TARGET || geometry.block_stride() > TARGET / 2);
            let plain = Geometry::new(dimensions, arrangement).unwrap();
            let padding = geometry.block_stride() - plain.block_stride();
            prop_assert!(padding < GRANULARITY, "a block is padded by less than the granularity");
            for block in [0, num_blocks / 2, num_blocks - 1] {
                for outer in 0..outer_dim {
                    let (_, offset) = geometry.offset(block, 0, outer);
                    prop_assert_eq!(offset / extent, (offset + geometry.piece_size() - 1) / extent);
                }
            }
        }

        #[test]
        fn the_first_blocks_are_in_their_spans(
            num_blocks in 1u64..50, outer_dim in 1u64..3, blocks in 0u64..50, second in any::<bool>(),
        ) {
            let blocks = blocks.min(num_blocks);
            let arrangement =
                if second { Arrangement::LAYER_SEPARATE_OUTER_FIRST } else { Arrangement::LAYER_SEPARATE };
            let dimensions = Dimensions {
                num_blocks, num_layers: 2, outer_dim, page_size: 16, inner_dim: 100, dtype_width: 2,
                ..Dimensions::ONE
            };
            let (geometry, _) = fit(&dimensions, arrangement, GRANULARITY).unwrap();
            let spans: Vec<_> = spans(&geometry, blocks).collect();
            for block in 0..blocks {
                for outer in 0..outer_dim {
                    let (_, offset) = geometry.offset(block, 0, outer);
                    let end = offset + geometry.piece_size();
                    prop_assert!(spans.iter().any(|(at, size)| *at <= offset && end <= at + size));
                }
            }
        }
    }
}
