// SPDX-License-Identifier: Apache-2.0
//! Properties of chunks for any layouts: together they are the planned transfer, each fits its part of the staging memory,
//! and no copy crosses the end of a page lock.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::layout::{BlockDim, Dimensions, Geometry, LayoutKind};
use crate::region::EqualPieces;
use crate::transfer::engine::cuda::launch::{cut_runs, typical_length};
use crate::transfer::request::{BlockPair, PairedRange, Wanted};

const KINDS: [LayoutKind; 3] = [
    LayoutKind::FullyContiguous,
    LayoutKind::LayerSeparate(BlockDim::First),
    LayoutKind::LayerSeparate(BlockDim::Second),
];
const PIECE: u64 = 6;
const HOST: u64 = 1 << 20;

fn placement(kind: usize, shift: u32, start: u64) -> Placement {
    let dimensions = Dimensions {
        num_blocks: 10,
        num_layers: 3,
        outer_dim: 2,
        page_size: 1,
        inner_dim: PIECE,
        dtype_width: 1,
        alignment: 1 << shift,
        num_heads: None,
    };
    Placement::within(Geometry::new(dimensions, KINDS[kind]).unwrap(), start).unwrap()
}

fn any_pairs() -> impl Strategy<Value = Vec<BlockPair>> {
    let destinations = Just((0u32..10).collect::<Vec<_>>()).prop_shuffle();
    let sources = prop_oneof![
        prop::collection::vec(0u32..10, 10),
        Just((0u32..10).collect::<Vec<_>>()),
        Just((0u32..10).collect::<Vec<_>>()).prop_shuffle(),
    ];
    (destinations, sources, 1usize..11).prop_map(|(destinations, sources, count)| {
        let zipped = sources.into_iter().zip(destinations).take(count);
        zipped.map(|(source, destination)| BlockPair { source, destination }).collect()
    })
}

fn any_range(most: u64) -> impl Strategy<Value = PairedRange> {
    (1..=most).prop_flat_map(move |count| {
        (0..=most - count, 0..=most - count).prop_map(move |(source, destination)| PairedRange {
            source,
            destination,
            count,
        })
    })
}

/// The destination and source address of each byte that a launch copies.
fn launched(blocks: &Blocks, runs: &[KernelRun]) -> BTreeMap<u64, u64> {
    let first = blocks.runs as usize / size_of::<KernelRun>();
    let mut bytes = BTreeMap::new();
    for run in &runs[first..first + blocks.num_runs as usize] {
        assert!(run.length <= blocks.most_blocks);
        for layer in &blocks.layers[..blocks.num_layers as usize] {
            for (block, outer) in (0..run.length)
                .flat_map(|block| (0..u64::from(blocks.num_outers)).map(move |outer| (block, outer)))
            {
                let at = |start: u64, id: u32, block_stride, outer_stride| {
                    start.wrapping_add(u64::from(id + block) * block_stride + outer * outer_stride)
                };
                let source =
                    at(layer.source, run.source, blocks.source_block_stride, blocks.source_outer_stride);
                let destination = at(
                    layer.destination,
                    run.destination,
                    blocks.destination_block_stride,
                    blocks.destination_outer_stride,
                );
                for byte in 0..blocks.unit_size {
                    assert_eq!(bytes.insert(destination + byte, source + byte), None, "written twice");
                }
            }
        }
    }
    bytes
}

fn copied(copies: &[Copy]) -> BTreeMap<u64, u64> {
    let bytes = |copy: &Copy| {
        let Copy { source, destination, size } = *copy;
        (0..size).map(move |byte| (destination + byte, source + byte))
    };
    copies.iter().flat_map(bytes).collect()
}

proptest! {
    #[test]
    fn chunks_are_the_planned_transfer_and_fit_their_parts(
        pairs in any_pairs(), host_kind in 0usize..3, device_kind in 0usize..3, shifts in [0u32..7, 0u32..7],
        layers in any_range(3), outers in any_range(2), to_host in any::<bool>(),
        part_size in prop_oneof![12u64..200, Just(1u64 << 16)], locks in 1u64..300,
    ) {
        let (host, device) = (placement(host_kind, shifts[0], HOST), placement(device_kind, shifts[1], 4096));
        let (source, destination) = if to_host { (&device, &host) } else { (&host, &device) };
        let wanted = Wanted { layers: Some(layers), outers: Some(outers), heads: None };
        let plan = Plan::between(source, destination, &pairs, wanted).unwrap();
        let order = HostOrder::of(&plan, to_host);
        // A host block may be a source twice; then the chunk contains it twice.
        let division = Division::of(host.geometry(), &plan, &order, 2 * part_size, 2).unwrap();
        prop_assert_eq!(division.part_size, part_size);
        let packed = pack(&order);
        let most_blocks = typical_length(packed.len(), order.blocks);
        let mut runs = cut_runs(packed.into_iter(), most_blocks, division.blocks as u32);
        let locks = EqualPieces { start: HOST, size: locks };
        let left = |_, address| locks.left(address);
        let (order, division) = (&order, &division);
        let chunking =
            Chunking { host: &host, device: &device, left: &left, plan: &plan, order, division, to_host, most_blocks };
        let chunks = chunking.chunks(&runs).unwrap();
        if !to_host {
            runs.iter_mut().for_each(|run| std::mem::swap(&mut run.source, &mut run.destination));
        }
        let mut moved = BTreeMap::new();
        for Chunk { blocks, copies } in &chunks {
            let (launched, copied) = (launched(blocks, &runs), copied(copies));
            let (fills, drains) = if to_host { (launched, copied) } else { (copied, launched) };
            prop_assert!(fills.keys().all(|staged| *staged < part_size));
            for (destination, staged) in drains {
                let source = fills.get(&staged).copied();
                prop_assert_eq!(moved.insert(destination, source), None, "a byte is written twice");
            }
            for copy in copies {
                let at = if to_host { copy.destination } else { copy.source };
                prop_assert!(locks.touched(at, copy.size).count() == 1, "across the end of a page lock");
            }
            for pair in copies.windows(2) {
                let goes_on = pair[0].source + pair[0].size == pair[1].source
                    && pair[0].destination + pair[0].size == pair[1].destination;
                let at = if to_host { pair[1].destination } else { pair[1].source };
                prop_assert!(!goes_on || locks.left(at) == locks.size, "cut where no page lock ends");
            }
        }
        let expected: BTreeMap<_, _> = plan
            .moves()
            .flat_map(|each| (0..each.size).map(move |byte| (each.destination + byte, Some(each.source + byte))))
            .collect();
        prop_assert_eq!(moved, expected);
    }
}

/// One long run and scattered blocks: each scattered block counts as many tiles as a run of typical length.
#[test]
fn a_chunk_with_more_tiles_than_a_launch_supports_fails() {
    const SCATTERED: u32 = 2300;
    const LONG: u32 = 1000 * SCATTERED;
    let of_kind = |kind: usize| {
        let dimensions = Dimensions {
            num_blocks: u64::from(LONG + 2 * SCATTERED),
            num_layers: 240,
            outer_dim: 2,
            page_size: 1,
            inner_dim: 1,
            dtype_width: 1,
            alignment: 1,
            num_heads: None,
        };
        Placement::within(Geometry::new(dimensions, KINDS[kind]).unwrap(), 1 << 40).unwrap()
    };
    let (host, device) = (of_kind(0), of_kind(2));
    let long = (0..LONG).map(|block| BlockPair { source: block, destination: block });
    let scattered =
        (0..SCATTERED).map(|index| BlockPair { source: LONG + 2 * index, destination: LONG + index });
    let left = |_, _| u64::MAX;
    let chunks_of = |pairs: &[BlockPair]| {
        let plan = Plan::between(&device, &host, pairs, Wanted::default()).unwrap();
        let order = HostOrder::of(&plan, true);
        let division = Division::of(host.geometry(), &plan, &order, 1 << 40, 2).unwrap();
        let packed = pack(&order);
        let most_blocks = typical_length(packed.len(), order.blocks);
        let runs = cut_runs(packed.into_iter(), most_blocks, division.blocks as u32);
        let (host, device, plan, order, division) = (&host, &device, &plan, &order, &division);
        let chunking =
            Chunking { host, device, left: &left, plan, order, division, to_host: true, most_blocks };
        chunking.chunks(&runs).map(|chunks| chunks.len())
    };
    let both: Vec<_> = long.clone().chain(scattered.clone()).collect();
    let reason = chunks_of(&both).unwrap_err();
    assert!(reason.contains("tiles are more than one launch takes"), "{reason}");
    assert_eq!(chunks_of(&scattered.collect::<Vec<_>>()), Ok(1));
    assert_eq!(chunks_of(&long.collect::<Vec<_>>()), Ok(1));
}
