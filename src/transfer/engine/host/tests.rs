// SPDX-License-Identifier: Apache-2.0
//! A copy in chunks, and how it ends.
#![forbid(unsafe_code)]

use super::*;
use crate::error::Status;
use crate::layout::{AllocationConfig, BlockDim, Dimensions, LayoutKind};
use crate::region::SystemConfig;
use crate::transfer::plan::Outline;
use crate::transfer::request::{BlockPair, Wanted};
use crate::transfer::run::completion::Completion;

/// Blocks of two layers of 96 KiB, so that chunks end within pieces.
fn layout(kind: LayoutKind) -> Arc<Layout> {
    let dimensions = Dimensions {
        num_blocks: 16,
        num_layers: 2,
        outer_dim: 1,
        page_size: 16,
        inner_dim: 3 << 10,
        dtype_width: 2,
        alignment: 1,
        num_heads: None,
    };
    let memory = AllocationConfig::System(SystemConfig::default());
    Layout::builder(dimensions).kind(kind).unwrap().allocate(memory).build().unwrap()
}

fn plan(source: &Layout, destination: &Layout, by_layer: bool) -> Plan {
    let outline = Arc::new(Outline::new(source, destination, Wanted::default(), by_layer).unwrap());
    let pairs: Vec<_> =
        (0..13).map(|block| BlockPair { source: block, destination: (5 * block) % 16 }).collect();
    Plan::new(&outline, &pairs, None).unwrap()
}

fn run(layers: u64) -> (Arc<Completion>, Run) {
    let completion = Arc::new(Completion::new(layers, None));
    let run = Run::start(completion.clone(), Arc::default(), Default::default(), Default::default());
    (completion, run)
}

#[test]
fn chunks_are_all_bytes_of_the_plan_once_whether_layers_are_apart_or_not() {
    for (from, to) in [
        (LayoutKind::FullyContiguous, LayoutKind::LayerSeparate(BlockDim::First)),
        (LayoutKind::LayerSeparate(BlockDim::Second), LayoutKind::FullyContiguous),
    ] {
        let (source, destination) = (layout(from), layout(to));
        for by_layer in [false, true] {
            let whole = plan(&source, &destination, by_layer);
            let chunks = Chunks::of(whole.clone(), by_layer);
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
    let (source, destination) = (layout(LayoutKind::FullyContiguous), layout(LayoutKind::FullyContiguous));
    let mut chunks = Chunks::of(plan(&source, &destination, false), false);
    // One more than there is: it starts behind the last byte.
    chunks.each += 1;
    let (completion, run) = run(1);
    HostRun::new(chunks, run).work(|| true);
    assert_eq!(completion.poll().unwrap_err().status(), Status::Panic);
}
