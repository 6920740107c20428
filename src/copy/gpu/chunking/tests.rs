// SPDX-License-Identifier: Apache-2.0
//! Properties of chunks for any layouts: together they are the planned transfer, each fits its part of the staging memory,
//! and no copy crosses the end of a page lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::layout::{Arrangement, Dimensions, Geometry, Order, Placement};
use crate::plan::tests::{any_pairs_of, fitting_range};
use crate::plan::{BlockPair, BlockTable, Outline, PairedRange, TokenTables, Wanted};
use crate::region::EqualPieces;

const KINDS: [Arrangement; 3] = Arrangement::KVBM;
const PIECE: u64 = 6;
const HOST: u64 = 1 << 20;

fn placement(kind: usize, shift: u32, start: u64) -> Placement {
    let dimensions = Dimensions {
        num_blocks: 10,
        num_layers: 3,
        outer_dim: 2,
        inner_dim: PIECE,
        alignment: 1 << shift,
        ..Dimensions::ONE
    };
    Placement::within(Geometry::new(dimensions, KINDS[kind]).unwrap(), start).unwrap()
}

/// The destination and source address of each byte that the launches of a chunk copy.
fn launched(launches: &[Blocks], runs: &[KernelRun]) -> BTreeMap<u64, u64> {
    let mut bytes = BTreeMap::new();
    launches.iter().for_each(|blocks| add_launched(blocks, runs, &mut bytes));
    bytes
}

fn add_launched(blocks: &Blocks, runs: &[KernelRun], bytes: &mut BTreeMap<u64, u64>) {
    let first = blocks.runs as usize / size_of::<KernelRun>();
    for run in &runs[first..first + blocks.num_runs as usize] {
        assert!(run.length <= blocks.max_blocks);
        for layer in &blocks.layers[..blocks.num_layers as usize] {
            // Units have one loop within blocks, rows have two, and matrices three, of which blocks may continue one.
            let inners = if blocks.word_size > 0 { u64::from(blocks.num_inners) } else { 1 };
            let columns = u64::from(blocks.num_columns.max(1));
            let units = u64::from(blocks.num_outers) * inners * columns;
            for (block, unit) in (0..run.length).flat_map(|block| (0..units).map(move |unit| (block, unit))) {
                let indices = [unit / columns / inners, unit / columns % inners, unit % columns];
                let at = |start: u64, id: u32, block_stride, strides: [u64; 3]| {
                    let offset: u64 = indices.iter().zip(strides).map(|(index, stride)| index * stride).sum();
                    start.wrapping_add(u64::from(id + block) * block_stride + offset)
                };
                let source = at(
                    layer.source,
                    run.source,
                    blocks.source_block_stride,
                    [
                        blocks.source_outer_stride,
                        blocks.source_inner_stride.into(),
                        blocks.source_column_stride.into(),
                    ],
                );
                let destination = at(
                    layer.destination,
                    run.destination,
                    blocks.destination_block_stride,
                    [
                        blocks.destination_outer_stride,
                        blocks.destination_inner_stride.into(),
                        blocks.destination_column_stride.into(),
                    ],
                );
                for byte in 0..blocks.unit_size {
                    assert_eq!(bytes.insert(destination + byte, source + byte), None, "written twice");
                }
            }
        }
    }
}

fn copied(copies: &[Copy]) -> BTreeMap<u64, u64> {
    let bytes = |copy: &Copy| {
        let Copy { source, destination, size } = *copy;
        (0..size).map(move |byte| (destination + byte, source + byte))
    };
    copies.iter().flat_map(bytes).collect()
}

/// Staging memory and the page locks of the host.
#[derive(Clone, Copy, Debug)]
struct Limits {
    part_size: u64,
    locks: u64,
}

/// Checks that the chunks of a plan are the planned transfer, and fit their parts.
fn check(plan: &Plan, to_host: bool, limits: Limits) -> std::result::Result<(), TestCaseError> {
    let Limits { part_size, locks } = limits;
    let division = Division::new(plan, to_host, 2 * part_size, 2).unwrap();
    prop_assert_eq!(division.part_size, part_size);
    let locks = EqualPieces { start: HOST, size: locks };
    let (chunks, mut runs) = chunks(plan, &division, to_host, &|_, address| locks.left(address)).unwrap();
    prop_assert_eq!(chunks.len() as u64, division.chunks);
    let launches: usize = chunks.iter().map(|chunk| chunk.launches.len()).sum();
    prop_assert!(launches as u64 <= division.launches);
    if !to_host {
        runs.iter_mut().for_each(|run| std::mem::swap(&mut run.source, &mut run.destination));
    }
    let mut moved = BTreeMap::new();
    for Chunk { launches, copies } in &chunks {
        // A host block may be a source twice; then the chunk contains it twice.
        let (launched, copied) = (launched(launches, &runs), copied(copies));
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
    let bytes =
        |each: Move| (0..each.size).map(move |byte| (each.destination + byte, Some(each.source + byte)));
    let expected: BTreeMap<_, _> = plan.moves().flat_map(bytes).collect();
    prop_assert_eq!(moved, expected);
    Ok(())
}

fn any_limits() -> impl Strategy<Value = Limits> {
    let part_size = prop_oneof![1u64..200, Just(1u64 << 16)];
    (part_size, 1u64..300).prop_map(|(part_size, locks)| Limits { part_size, locks })
}

/// Orders of engines, and a transposed one.
const ORDERS: [&str; 8] =
    ["BLOHNC", "L/BHNOC", "L/BNHOC", "LO/BNHC", "LO/BHNC", "OBNLHC", "OBHNLC", "L/OHCBN"];

fn ordered(order: usize, page_size: u64, heads: u64, start: u64) -> Placement {
    let dimensions = Dimensions {
        num_blocks: 10,
        num_layers: 3,
        outer_dim: 2,
        page_size,
        inner_dim: heads * 3,
        dtype_width: 2,
        num_heads: Some(heads),
        ..Dimensions::ONE
    };
    let order = Order::parse(ORDERS[order]).unwrap();
    let kind = Arrangement::tight(order);
    Placement::within(Geometry::new(dimensions, kind).unwrap(), start).unwrap()
}

proptest! {
    #[test]
    fn chunks_are_the_planned_transfer_and_fit_their_parts(
        pairs in any_pairs_of(10), host_kind in 0usize..3, device_kind in 0usize..3, shifts in [0u32..7, 0u32..7],
        layers in fitting_range(3), outers in fitting_range(2), to_host in any::<bool>(), limits in any_limits(),
    ) {
        let (host, device) = (placement(host_kind, shifts[0], HOST), placement(device_kind, shifts[1], 4096));
        let (source, destination) = if to_host { (&device, &host) } else { (&host, &device) };
        let wanted = Wanted { layers: Some(layers), outers: Some(outers), heads: None };
        check(&Plan::between(source, destination, &pairs, wanted).unwrap(), to_host, limits)?;
    }

    #[test]
    fn chunks_are_the_planned_transfer_between_any_orders(
        orders in [0usize..8, 0usize..8], pages in [1u64..6, 1u64..6], heads in [2u64..5, 2u64..5],
        tables in [any_pairs_of(10), any_pairs_of(10)], first in 0u64..4, step in 1u64..3, tokens in 1u64..20,
        to_host in any::<bool>(), limits in any_limits(),
    ) {
        let host = ordered(orders[0], pages[0], heads[0], HOST);
        let device = ordered(orders[1], pages[1], heads[1], 1 << 24);
        let (source, destination) = if to_host { (&device, &host) } else { (&host, &device) };
        let heads = PairedRange { source: 1, destination: 0, count: 1 };
        let wanted = Wanted { heads: Some(heads), ..Wanted::default() };
        let outline = Arc::new(Outline::between(source, destination, wanted, false).unwrap());
        let sources: Vec<_> = tables[0].iter().map(|pair| pair.source).collect();
        let destinations: Vec<_> = tables[1].iter().map(|pair| pair.destination).collect();
        let table = |blocks, first_token, token_step| BlockTable { blocks, first_token, token_step };
        let sides = [table(&sources[..], first, step), table(&destinations[..], 0, 1)];
        let Ok(plan) = Plan::from_tokens(&outline, &TokenTables { sides, tokens }, None) else { return Ok(()) };
        check(&plan, to_host, limits)?;
    }
}

/// One long run and scattered blocks: each scattered block counts as many tiles as a run of typical length.
#[test]
fn a_chunk_with_more_tiles_than_a_launch_supports_fails() {
    const SCATTERED: u32 = 2300;
    const LONG: u32 = 2000 * SCATTERED;
    let of_kind = |kind: usize| {
        // Elements of three bytes are not transposed.
        let dimensions = Dimensions {
            num_blocks: u64::from(LONG + 2 * SCATTERED),
            num_layers: 240,
            outer_dim: 2,
            inner_dim: 3,
            ..Dimensions::ONE
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
        let division = Division::new(&plan, true, 1 << 40, 2).unwrap();
        chunks(&plan, &division, true, &left).map(|(chunks, _)| chunks.len())
    };
    let both: Vec<_> = long.clone().chain(scattered.clone()).collect();
    let reason = chunks_of(&both).unwrap_err();
    assert!(reason.message().contains("tiles are more than one launch takes"), "{reason}");
    assert_eq!(chunks_of(&scattered.collect::<Vec<_>>()).unwrap(), 1);
    assert_eq!(chunks_of(&long.collect::<Vec<_>>()).unwrap(), 1);
}

/// Each chunk takes memory, so too many must not be listed.
#[test]
fn a_transfer_with_too_many_chunks_is_not_divided() {
    let pairs: Vec<_> = (0..1 << 17).map(|block| BlockPair { source: block, destination: block }).collect();
    let of_kind = |kind: usize| {
        let dimensions = Dimensions { num_blocks: 1 << 17, inner_dim: 3, ..Dimensions::ONE };
        Placement::within(Geometry::new(dimensions, KINDS[kind]).unwrap(), 1 << 40).unwrap()
    };
    let plan = Plan::between(&of_kind(0), &of_kind(0), &pairs, Wanted::default()).unwrap();
    let reason = Division::new(&plan, true, 2, 2).unwrap_err();
    assert!(reason.message().contains("393216 chunks; 262144 are the most"), "{reason}");
    assert_eq!(Division::new(&plan, true, 4, 2).unwrap().chunks, 1 << 18);
}
