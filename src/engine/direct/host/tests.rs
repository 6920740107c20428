// SPDX-License-Identifier: Apache-2.0
//! A copy in chunks, and how it ends.

use proptest::prelude::*;

use super::*;
use crate::base::Status;
use crate::copy::host::copy_rows;
use crate::layout::{Arrangement, Axis, Dimensions, Geometry, Layout, Order, Placement};
use crate::plan::{BlockPair, Outline, PairedRange, Wanted};
use crate::run::Completion;

/// Blocks of two layers of 96 KiB, so that chunks end within pieces.
fn layout(kind: Arrangement) -> Arc<Layout> {
    let dimensions = Dimensions {
        num_blocks: 16,
        num_layers: 2,
        page_size: 16,
        inner_dim: 3 << 10,
        dtype_width: 2,
        ..Dimensions::ONE
    };
    Layout::in_host(dimensions, kind)
}

fn plan(source: &Layout, destination: &Layout, by_layer: bool) -> Plan {
    let outline = Arc::new(Outline::new(source, destination, Wanted::default(), by_layer).unwrap());
    let pairs: Vec<_> =
        (0..13).map(|block| BlockPair { source: block, destination: (5 * block) % 16 }).collect();
    Plan::new(&outline, &pairs, None).unwrap()
}

fn run(layers: u64) -> (Arc<Completion>, Run) {
    let completion = Arc::new(Completion::new(layers, None));
    let run = Ticket::unheld(&completion, Default::default()).start();
    (completion, run)
}

#[test]
fn chunks_are_all_bytes_of_the_plan_once_whether_layers_are_apart_or_not() {
    for (from, to) in [
        (Arrangement::FULLY_CONTIGUOUS, Arrangement::LAYER_SEPARATE),
        (Arrangement::LAYER_SEPARATE_OUTER_FIRST, Arrangement::FULLY_CONTIGUOUS),
    ] {
        let (source, destination) = (layout(from), layout(to));
        for by_layer in [false, true] {
            let whole = plan(&source, &destination, by_layer);
            let chunks = Chunks::new(whole.clone(), by_layer);
            let parts = if by_layer { 2 } else { 1 };
            assert_eq!(chunks.count() as u64, parts * (whole.bytes() / parts).div_ceil(CHUNK));
            let mut moved = Vec::new();
            for chunk in 0..chunks.count() {
                chunks.for_each(chunk, |rows| {
                    moved.extend(rows.moves().map(|each| (each.destination, each.source, each.size)));
                });
            }
            moved.sort_unstable();
            let mut expected: Vec<_> =
                whole.moves().map(|each| (each.destination, each.source, each.size)).collect();
            expected.sort_unstable();
            assert_eq!(joined(&moved), joined(&expected));
        }
    }
}

/// Adjacent moves as one.
fn joined(moves: &[(u64, u64, u64)]) -> Vec<(u64, u64, u64)> {
    let mut joined: Vec<(u64, u64, u64)> = Vec::new();
    for (to, from, size) in moves {
        match joined.last_mut() {
            Some(last) if last.0 + last.2 == *to && last.1 + last.2 == *from => last.2 += size,
            _ => joined.push((*to, *from, *size)),
        }
    }
    joined
}

#[test]
fn a_chunk_that_panics_ends_the_run() {
    let (source, destination) =
        (layout(Arrangement::FULLY_CONTIGUOUS), layout(Arrangement::FULLY_CONTIGUOUS));
    let chunks = Chunks::new(plan(&source, &destination, false), false);
    let (completion, run) = run(1);
    HostRun::new(chunks, run, None).work_with(|| true, |chunk| panic!("deliberate: chunk {chunk}"));
    assert_eq!(completion.poll().unwrap_err().status(), Status::Panic);
}

/// `kvmem_transfer_cancel` marks the run, then calls the engine. Another thread may submit again in between.
#[test]
fn cancelling_a_run_ends_that_run_and_not_the_next_one() {
    let (source, destination) =
        (layout(Arrangement::FULLY_CONTIGUOUS), layout(Arrangement::FULLY_CONTIGUOUS));
    let copy = HostCopy::new(plan(&source, &destination, false), false);
    let completion = Arc::new(Completion::new(1, None));
    let begin = || {
        let run = Ticket::unheld(&completion, Default::default()).start();
        let stop = run.stop();
        copy.shared(run, Some(stop))
    };
    let first = begin();
    completion.cancel().unwrap();
    first.work(|| true);
    assert_eq!(completion.poll().unwrap_err().status(), Status::Cancelled);
    drop(first);
    let second = begin();
    copy.end_if_cancelled();
    second.work(|| true);
    assert!(matches!(completion.poll(), Ok(Some(()))));
    drop(second);
    // No thread needs to find that the third one was cancelled.
    let _third = begin();
    completion.cancel().unwrap();
    copy.end_if_cancelled();
    assert_eq!(completion.poll().unwrap_err().status(), Status::Cancelled);
}

/// A side of a transfer in memory of its own, with bytes before and after it that nothing may write.
struct Cache {
    placement: Placement,
    memory: Vec<u8>,
}

const GUARD: usize = 128;

impl Cache {
    fn new(order: &str, dimensions: Dimensions, shift: usize, seed: u32) -> Self {
        let kind = Arrangement::tight(Order::parse(order).unwrap());
        let geometry = Geometry::new(dimensions, kind).unwrap();
        let size = geometry.allocation_size(1).unwrap() as usize + 4 * GUARD;
        let mut random = seed;
        let memory: Vec<u8> = std::iter::repeat_with(|| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 24) as u8
        })
        .take(size)
        .collect();
        // Lines start at GUARD, shifted by some bytes.
        let start = GUARD + memory.as_ptr().wrapping_add(GUARD).align_offset(64) + shift;
        let placement = Placement::within(geometry, memory.as_ptr() as u64 + start as u64).unwrap();
        Self { placement, memory }
    }

    /// The index of an element's first byte in the memory.
    fn index(&self, at: [u64; 6]) -> usize {
        let (geometry, axes) = (self.placement.geometry(), Axis::ALL);
        let region: u64 = axes.iter().zip(at).map(|(axis, at)| at * geometry.region_step(*axis) as u64).sum();
        let offset: u64 = axes.iter().zip(at).map(|(axis, at)| at * geometry.stride(*axis)).sum();
        (self.placement.bases()[region as usize] + offset) as usize - self.memory.as_ptr() as usize
    }
}

fn any_order() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "L/OBNHC", "L/OBHNC", "L/BHNOC", "L/BNHOC", "BLOHNC", "LO/BNHC", "OBLNHC", "OBNLHC", "OBHNLC",
        "L/OBHCN", "LO/BHCN", "L/OBCHN", "BLONHC", "LBNHOC",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn chunks_write_the_bytes_of_a_copy_element_by_element(
        orders in (any_order(), any_order()), shifts in [prop_oneof![Just(0usize), 0usize..64], prop_oneof![Just(0), 0usize..64]],
        page_size in prop_oneof![Just(16u64), 1u64..70], heads in prop_oneof![Just(8u64), 1u64..9],
        elements in prop_oneof![Just(32u64), 1u64..70], dtype_width in prop::sample::select(vec![1u64, 2, 4, 8]),
        pick in any::<bool>(), by_layer: bool, is_streamed: bool,
    ) {
        let (inner_dim, num_heads) = (heads * elements, Some(heads));
        let dimensions =
            Dimensions { num_blocks: 3, num_layers: 2, outer_dim: 2, page_size, inner_dim, dtype_width, num_heads, ..Dimensions::ONE };
        let source = Cache::new(orders.0, dimensions.clone(), shifts[0], 1);
        let mut destination = Cache::new(orders.1, dimensions, shifts[1], 2);
        let range = PairedRange { source: heads / 2, destination: 0, count: heads - heads / 2 };
        let wanted = Wanted { heads: pick.then_some(range), ..Wanted::default() };
        let moved = if pick { range } else { PairedRange { source: 0, destination: 0, count: heads } };
        let pairs = [(2, 1), (0, 2)].map(|(source, destination)| BlockPair { source, destination });
        let before = destination.memory.clone();
        let mut expected = before.clone();
        for (pair, layer, outer) in pairs.iter().flat_map(|pair| (0..4).map(move |at| (pair, at / 2, at % 2))) {
            for (token, head) in (0..page_size).flat_map(|token| (0..moved.count).map(move |head| (token, head))) {
                for element in 0..elements {
                    let at = |cache: &Cache, block: u32, first| {
                        cache.index([block.into(), layer, outer, token, first + head, element])
                    };
                    let here = at(&source, pair.source, moved.source);
                    let there = at(&destination, pair.destination, moved.destination);
                    let width = dtype_width as usize;
                    expected[there..there + width].copy_from_slice(&source.memory[here..here + width]);
                }
            }
        }
        let outline = Outline::between(&source.placement, &destination.placement, wanted, by_layer).unwrap();
        let plan = Plan::new(&Arc::new(outline), &pairs, None).unwrap();
        let is_streamed = is_streamed && suits_streaming(u64::MAX);
        let chunks = Chunks { is_streamed, ..Chunks::new(plan, by_layer) };
        (0..chunks.count()).for_each(|chunk| chunks.copy(chunk));
        prop_assert!(destination.memory == expected);

        // The same as lists of rows, in the order of either side.
        for led in [0, 1].map(|side| chunks.plan.led_by(side).unwrap()) {
            destination.memory.copy_from_slice(&before);
            let rows: Vec<_> = led.rows_in(0..led.bytes()).collect();
            // SAFETY: the plan is of these layouts, whose memory is alive and has no byte in common.
            unsafe { copy_rows(&rows, is_streamed) };
            prop_assert!(destination.memory == expected, "as lists");
        }
    }
}
