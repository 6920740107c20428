// SPDX-License-Identifier: Apache-2.0
//! The number of memory allocations of a transfer: for new pairs it does not depend on their number, and submitting
//! again allocates nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout as MemoryLayout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kvmem::layout::{AllocationConfig, Arrangement, Dimensions, Geometry, Layout, LayoutSource};
use kvmem::region::SystemConfig;
use kvmem::transfer::{BlockPair, BlockTable, Preferences, Step, TokenTables, Transfer, TransferRequest};

const BLOCKS: u32 = 4096;
const PATIENCE: Duration = Duration::from_secs(60);
/// Allocations for new pairs: the transfer's copy of the step, the engine, what the run uses, and the run that threads share.
const MAX: usize = 4;

/// Counts the allocations of each thread and of all threads.
struct Counting;

static OF_ALL: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does all the work, and counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: MemoryLayout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: MemoryLayout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: MemoryLayout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}

fn count() {
    COUNT.with(|count| count.set(count.get() + 1));
    OF_ALL.fetch_add(1, Ordering::Relaxed);
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns the number of allocations of the calling thread in `work`.
fn allocations(work: impl FnOnce()) -> usize {
    let before = COUNT.with(Cell::get);
    work();
    COUNT.with(Cell::get) - before
}

/// Returns the number of allocations of all threads in a run of `transfer`.
fn allocations_of_run(transfer: &Transfer) -> usize {
    let before = OF_ALL.load(Ordering::Relaxed);
    transfer.submit(None).unwrap();
    transfer.wait(Some(PATIENCE)).unwrap();
    OF_ALL.load(Ordering::Relaxed) - before
}

/// Checks that most of the next runs allocate nothing on any thread. Sometimes a thread still uses the memory of the
/// previous run.
fn assert_repeats_allocate_nothing(transfer: &Transfer, what: &str) {
    let counts: Vec<_> = (0..60).map(|_| allocations_of_run(transfer)).collect();
    let without = counts.iter().filter(|count| **count == 0).count();
    assert!(without > counts.len() / 2, "{what}: {counts:?}");
}

/// Runs one test at a time, because allocations of all threads are counted.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn built(dimensions: Dimensions, kind: Arrangement) -> Arc<Layout> {
    let memory = LayoutSource::Allocate(AllocationConfig::System(SystemConfig::default()));
    Layout::build(Geometry::new(dimensions, kind).unwrap(), memory, None).unwrap()
}

/// Blocks of eight pieces of `piece` bytes.
fn layout(kind: Arrangement, piece: u64) -> Arc<Layout> {
    let dimensions = Dimensions {
        num_blocks: BLOCKS.into(),
        num_layers: 8,
        outer_dim: 1,
        page_size: 1,
        inner_dim: piece,
        dtype_width: 1,
        ..Dimensions::ONE
    };
    built(dimensions, kind)
}

/// Returns scattered blocks, different ones in each round.
fn pairs(count: u32, round: u32) -> Vec<BlockPair> {
    let pair = |index: u32| BlockPair {
        source: (7 * index + 13 * round) % BLOCKS,
        destination: (11 * index + round) % BLOCKS,
    };
    (0..count).map(pair).collect()
}

fn transfer(piece: u64, first: &[BlockPair]) -> Transfer {
    let source = layout(Arrangement::LAYER_SEPARATE, piece);
    let destination = layout(Arrangement::FULLY_CONTIGUOUS, piece);
    let transfer = Transfer::create(&source, &destination, TransferRequest::default()).unwrap();
    transfer.prepare(Step { pairs: first, ..Step::default() }).unwrap();
    transfer
}

#[test]
fn plans_of_new_pairs_reuse_the_memory_of_earlier_ones() {
    let _turn = turn();
    // Small copies run within the call, large ones on threads of the library.
    for piece in [4, 2048] {
        let transfer = transfer(piece, &pairs(1000, 0));
        // Two lists alternate, so that the list that is filled is not the one of a run.
        for (count, round) in [(1000, 1), (1000, 2), (1000, 3)] {
            let list = pairs(count, round);
            transfer.submit(Some(Step { pairs: &list, ..Step::default() })).unwrap();
            transfer.wait(Some(PATIENCE)).unwrap();
        }
        for (round, count) in [1000, 1, 600, 1000, 64, 999, 300].into_iter().enumerate() {
            let list = pairs(count, round as u32);
            // A thread that was woken late may still use the second-last run. Then a new list is allocated.
            let least = (0..20)
                .map(|_| {
                    let submit = || transfer.submit(Some(Step { pairs: &list, ..Step::default() })).unwrap();
                    let found = allocations(submit);
                    transfer.wait(Some(PATIENCE)).unwrap();
                    found
                })
                .min();
            assert!(least <= Some(MAX), "{count} pairs of {piece} bytes: {least:?} allocations");
        }
    }
}

#[test]
fn submitting_a_small_copy_again_allocates_nothing() {
    let _turn = turn();
    let transfer = transfer(4, &pairs(1000, 0));
    transfer.submit(None).unwrap();
    for _ in 0..3 {
        assert_eq!(allocations(|| transfer.submit(None).unwrap()), 0);
    }
}

/// Several threads copy. Sometimes one of them still uses the memory of the previous run.
#[test]
fn submitting_a_large_copy_again_allocates_nothing() {
    let _turn = turn();
    let transfer = transfer(2048, &pairs(1000, 0));
    let run = || {
        let found = allocations(|| transfer.submit(None).unwrap());
        transfer.wait(Some(PATIENCE)).unwrap();
        found
    };
    run();
    assert_eq!((0..100).map(|_| run()).min(), Some(0));
}

/// By layer: small copies within the call, and large ones on several threads.
#[test]
fn submitting_a_copy_by_layer_again_allocates_nothing() {
    let _turn = turn();
    for piece in [4, 2048] {
        let source = layout(Arrangement::LAYER_SEPARATE, piece);
        let destination = layout(Arrangement::FULLY_CONTIGUOUS, piece);
        let list = pairs(1000, 0);
        let request = TransferRequest {
            preferences: Preferences { by_layer: true, ..Preferences::default() },
            ..TransferRequest::default()
        };
        let transfer = Transfer::create(&source, &destination, request).unwrap();
        transfer.prepare(Step { pairs: &list, ..Step::default() }).unwrap();
        assert_repeats_allocate_nothing(&transfer, &format!("pieces of {piece} bytes"));
    }
}

/// Blocks of `page_size` tokens of 8 heads.
fn blocks_of(page_size: u64) -> Arc<Layout> {
    let dimensions = Dimensions {
        num_blocks: BLOCKS.into(),
        num_layers: 2,
        outer_dim: 2,
        page_size,
        inner_dim: 64,
        dtype_width: 1,
        num_heads: Some(8),
        ..Dimensions::ONE
    };
    built(dimensions, Arrangement::FULLY_CONTIGUOUS)
}

/// Cases: whole blocks; blocks of different sizes, starting and ending inside a block; every second token.
#[test]
fn plans_of_new_block_tables_reuse_the_memory_of_earlier_ones() {
    const CASES: [([u64; 2], [u64; 2], u64); 3] =
        [([4, 4], [0, 0], 1), ([4, 16], [3, 7], 1), ([8, 4], [1, 0], 2)];
    let _turn = turn();
    for (pages, firsts, step) in CASES {
        let tables = |round: u32| {
            [7, 11].map(|factor: u32| {
                (0..600).map(|index: u32| (factor * index + round) % BLOCKS).collect::<Vec<u32>>()
            })
        };
        let submit = |transfer: Option<&Transfer>, lists: &[Vec<u32>; 2], tokens| {
            let side = |side: usize| BlockTable {
                blocks: &lists[side],
                first_token: firsts[side],
                token_step: if side == 0 { step } else { 1 },
            };
            let tables = Some(TokenTables { sides: [side(0), side(1)], tokens });
            let step = Step { tables, ..Step::default() };
            match transfer {
                Some(transfer) => transfer.submit(Some(step)).map(|()| None).unwrap(),
                None => {
                    let [source, destination] = pages.map(blocks_of);
                    let made = Transfer::create(&source, &destination, TransferRequest::default()).unwrap();
                    made.prepare(step).unwrap();
                    Some(made)
                }
            }
        };
        let transfer = submit(None, &tables(0), 2000).unwrap();
        for round in 1..4 {
            submit(Some(&transfer), &tables(round), 2000);
            transfer.wait(Some(PATIENCE)).unwrap();
        }
        for (round, tokens) in [2000, 4, 1200, 1999, 64].into_iter().enumerate() {
            let lists = tables(round as u32);
            let least = (0..20)
                .map(|_| {
                    let found = allocations(|| drop(submit(Some(&transfer), &lists, tokens)));
                    transfer.wait(Some(PATIENCE)).unwrap();
                    found
                })
                .min();
            assert!(least <= Some(MAX), "{tokens} tokens of blocks of {pages:?}: {least:?} allocations");
        }
    }
}
