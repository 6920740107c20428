// SPDX-License-Identifier: Apache-2.0
//! Chunks of plans between layouts of any kind, simulated byte by byte.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::layout::{Arrangement, Dimensions, Layout, Order};
use crate::plan::{BlockPair, LoopOrder, PairedRange, Wanted};

const BLOCKS: u64 = 6;
/// Where the simulated slot is.
const BASE: u64 = 1 << 50;

fn layout(order: &str) -> Arc<Layout> {
    let dimensions = Dimensions {
        num_blocks: BLOCKS,
        num_layers: 3,
        outer_dim: 2,
        page_size: 4,
        inner_dim: 12,
        dtype_width: 2,
        num_heads: Some(3),
        ..Dimensions::ONE
    };
    let kind = Arrangement::tight(Order::parse(order).unwrap());
    Layout::in_host(dimensions, kind)
}

fn orders() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["BLONHC", "L/OBHNC", "L/BHNOC", "LO/BNHC", "OBHNLC", "BNLOHC"])
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let part = |count: u64| {
        prop_oneof![
            Just(None),
            (0..count).prop_map(|first| Some(PairedRange { source: first, destination: 0, count: 1 })),
        ]
    };
    (part(3), part(2), part(3)).prop_map(|(layers, outers, heads)| Wanted { layers, outers, heads })
}

/// All chunks of a plan; each makes progress and is within its limits.
fn chunks(limits: &ChunkLimits, plan: &Plan, piece: Option<&Piece<'_>>) -> Vec<Chunk> {
    let (mut chunks, mut first) = (Vec::new(), 0);
    while first < plan.bytes() {
        let chunk = limits.chunk(plan, first, BASE, piece).unwrap();
        assert!(chunk.moved > 0 && !chunk.ranges.is_empty() && chunk.ranges.len() <= MAX_RANGES);
        assert!(chunk.ranges.iter().all(|range| range.at + range.size <= limits.slot));
        first += chunk.moved;
        chunks.push(chunk);
    }
    assert_eq!(first, plan.bytes());
    chunks
}

/// Destination and source of each byte, by a slot whose bytes know where they are from.
fn moved(limits: &ChunkLimits, chunks: &[Chunk]) -> Vec<(u64, u64)> {
    let mut bytes = Vec::new();
    for chunk in chunks {
        let mut slot = BTreeMap::new();
        let ranges = chunk
            .ranges
            .iter()
            .flat_map(|range| (0..range.size).map(|i| (BASE + range.at + i, range.address + i)));
        let rows = chunk.rows.iter().flat_map(|rows| rows.moves());
        let rows = rows.flat_map(|row| (0..row.size).map(move |i| (row.source + i, row.destination + i)));
        if limits.reads {
            slot.extend(ranges);
            bytes.extend(rows.map(|(here, to)| (to, slot[&here])));
        } else {
            for (from, here) in rows {
                assert_eq!(slot.insert(here, from), None, "gathered twice");
            }
            bytes.extend(ranges.map(|(here, to)| (to, slot.remove(&here).unwrap())));
            assert!(slot.is_empty(), "gathered and not written");
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_byte_passes_through_a_slot_once(
        (from, to) in (orders(), orders()),
        wanted in wanted(),
        ids in Just((0..BLOCKS as u32).collect::<Vec<_>>()).prop_shuffle(),
        count in 1..=BLOCKS as usize,
        reads: bool,
        slot in prop_oneof![1u64..200, 1000u64..5000],
        gap in prop_oneof![Just(0u64), 0u64..300],
        extent in prop_oneof![Just(None), (1u64..300).prop_map(Some)],
    ) {
        let (source, destination) = (layout(from), layout(to));
        let pairs: Vec<_> = ids.iter().zip(0..).take(count)
            .map(|(source, destination)| BlockPair { source: *source, destination }).collect();
        let plan = Plan::once(&source, &destination, &pairs, wanted).unwrap();
        let order = if reads { LoopOrder::Source } else { LoopOrder::StrictDestination };
        let limits = ChunkLimits { reads, slot, max_gap: if reads { gap } else { 0 }, max_ranges: MAX_RANGES };
        let piece = |_: u32, address: u64| extent.map_or(u64::MAX, |size| size - address % size);
        let piece: Option<&Piece<'_>> = if extent.is_some() { Some(&piece) } else { None };
        let ordered = plan.in_order(order).unwrap();
        let chunks = chunks(&limits, &ordered, piece);
        let mut found = moved(&limits, &chunks);
        found.sort_unstable();
        let mut expected: Vec<_> = plan
            .moves()
            .flat_map(|each| (0..each.size).map(move |i| (each.destination + i, each.source + i)))
            .collect();
        expected.sort_unstable();
        prop_assert_eq!(found, expected);
        for range in chunks.iter().flat_map(|chunk| &chunk.ranges) {
            let within = piece.map_or(u64::MAX, |piece| piece(range.region, range.address));
            prop_assert!(range.size <= within, "beyond the end of an extent");
        }
    }
}

fn some_heads(heads: u64) -> Wanted {
    let range = |count| Some(PairedRange { source: 0, destination: 0, count });
    Wanted { heads: range(heads), ..Wanted::default() }
}

#[test]
fn rows_that_are_close_are_one_range_and_far_ones_are_packed() {
    let (source, destination) = (layout("L/OBNHC"), layout("L/OBNHC"));
    let pairs = [BlockPair { source: 1, destination: 4 }];
    let plan = Plan::once(&source, &destination, &pairs, some_heads(1))
        .unwrap()
        .in_order(LoopOrder::Source)
        .unwrap();
    let of_gap = |max_gap| {
        let limits = ChunkLimits { reads: true, slot: 4096, max_gap, max_ranges: MAX_RANGES };
        limits.chunk(&plan, 0, BASE, None).unwrap()
    };
    // One of three heads of 8 bytes: 4 tokens in each of 3 layers and 2 outer slots.
    let close = of_gap(16);
    assert_eq!((close.ranges.len(), close.transferred(), close.moved), (6, 6 * 80, 6 * 32));
    let far = of_gap(15);
    assert_eq!((far.ranges.len(), far.transferred(), far.moved), (24, 6 * 32, 6 * 32));
    assert!(far.rows.iter().all(|rows| rows.strides[0] == 8));
}

/// Keys and values of a row are gathered into one range.
#[test]
fn what_is_contiguous_at_the_peer_is_written_as_one_range() {
    let (source, destination) = (layout("L/OBNHC"), layout("BLHNOC"));
    let pairs = [BlockPair { source: 0, destination: 0 }, BlockPair { source: 5, destination: 1 }];
    let plan = Plan::once(&source, &destination, &pairs, Wanted::default()).unwrap();
    let plan = plan.in_order(LoopOrder::StrictDestination).unwrap();
    let limits = ChunkLimits { reads: false, slot: 1 << 20, max_gap: 0, max_ranges: MAX_RANGES };
    let chunk = limits.chunk(&plan, 0, BASE, None).unwrap();
    assert_eq!((chunk.ranges.len(), chunk.moved), (1, plan.bytes()));
}
