// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::base::Status;
use crate::base::file_systems::FileSystems;
use crate::base::thread_pool::tests::occupy;
use crate::layout::{Arrangement, Dimensions};
use crate::plan::{BlockPair, Slots};
use crate::transfer::{Step, Transfer, TransferRequest};

fn layout(dimensions: Dimensions) -> Arc<Layout> {
    Layout::in_host(dimensions, Arrangement::FULLY_CONTIGUOUS)
}

#[test]
fn threads_that_start_late_do_not_hold_the_layout() {
    let layout = large();
    let occupied = occupy(Pool::get());
    let all = Slots::all(layout.geometry());
    HostBlocks::new(&layout, (0..64).collect(), &all).unwrap().checksums().unwrap();
    assert_eq!(Arc::strong_count(&layout), 1);
    drop(occupied);
}

fn large() -> Arc<Layout> {
    let dimensions = Dimensions {
        num_blocks: 64,
        num_layers: 1,
        outer_dim: 1,
        page_size: 1,
        inner_dim: 256 << 10,
        dtype_width: 1,
        ..Dimensions::ONE
    };
    layout(dimensions)
}

fn begin(layout: &Layout) -> Begun {
    let blocks = HostBlocks::new(layout, (0..64).collect(), &Slots::all(layout.geometry())).unwrap();
    blocks.begin_on(1).unwrap()
}

#[test]
fn checksums_that_have_begun_are_those_of_the_blocks() {
    let layout = large();
    let expected = HostBlocks::new(&layout, (0..64).collect(), &Slots::all(layout.geometry())).unwrap();
    assert_eq!(begin(&layout).checksums().unwrap(), expected.checksums().unwrap());
}

/// A thread that began earlier could take the processor of the one that submits the requests.
#[test]
fn checksums_of_blocks_that_are_written_begin_with_the_first_request() {
    let layout = large();
    let occupied = occupy(Pool::get());
    let begun = begin(&layout);
    let queued = || Arc::strong_count(&begun.reading) - 2;
    assert_eq!(queued(), 0);
    begun.progress().begun();
    assert_eq!(queued(), 1);
    begun.progress().begun();
    assert_eq!(queued(), 1);
    drop(occupied);
    begun.checksums().unwrap();
}

/// No other thread is free to do it.
#[test]
fn a_few_blocks_are_read_by_the_thread_that_has_moved_them() {
    let layout = large();
    let occupied = occupy(Pool::get());
    let blocks =
        |blocks: &[u32]| HostBlocks::new(&layout, blocks.to_vec(), &Slots::all(layout.geometry())).unwrap();
    let begun = blocks(&[5]).begin_on_arrival(&[3], 256 << 10).unwrap().unwrap();
    begun.progress().moved(3 * (256 << 10), 128 << 10);
    assert!(!begun.is_over());
    begun.progress().moved(3 * (256 << 10) + (128 << 10), 128 << 10);
    assert!(begun.is_over());
    drop(occupied);
    assert_eq!(begun.checksums().unwrap(), blocks(&[5]).checksums().unwrap());
    assert!(blocks(&[5, 6]).begin_on_arrival(&[3, 4], 256 << 10).unwrap().is_none());
}

#[test]
fn three_quarters_of_what_has_not_arrived_are_requested_at_a_time() {
    let layout = large();
    let blocks = HostBlocks::new(&layout, (0..64).collect(), &Slots::all(layout.geometry())).unwrap();
    let progress = blocks.begin_on_arrival(&Vec::from_iter(0..64), 256 << 10).unwrap().unwrap().progress();
    let may_begin = |in_flight: u64, left: u64| progress.may_begin(in_flight << 20, left << 20);
    assert!(may_begin(11, 16) && !may_begin(12, 16));
    assert!(may_begin(3, 5) && !may_begin(4, 5));
    assert!(begin(&layout).progress().may_begin(16 << 20, 16 << 20));
}

/// From the slots of a file in another order: nothing is read before it has arrived, and all at the end.
#[test]
fn blocks_are_read_when_they_have_arrived() {
    let layout = large();
    let all = Slots::all(layout.geometry());
    let blocks = || HostBlocks::new(&layout, (0..64).collect(), &all).unwrap();
    let expected = blocks().checksums().unwrap();
    let slots: Vec<u32> = (0..64).map(|at| at * 37 % 64 + 3).collect();
    let begun = blocks().begin_on_arrival(&slots, 256 << 10).unwrap().unwrap();
    let arrivals = begun.progress();
    let taken = || begun.reading.next.load(Ordering::Relaxed);
    arrivals.moved(4 * (256 << 10), 60 * (256 << 10));
    begun.reading.run();
    assert_eq!(taken(), 0, "the first slot has not arrived");
    arrivals.moved(3 * (256 << 10), 256 << 10);
    begun.reading.run();
    assert_eq!(taken(), 61);
    assert_eq!(begun.checksums().unwrap(), expected);
    drop(begun);
    arrivals.moved(64 * (256 << 10), 3 * (256 << 10));
}

#[test]
fn no_more_threads_read_what_has_arrived_than_there_are_processors() {
    let layout = large();
    let occupied = occupy(Pool::get());
    let blocks = HostBlocks::new(&layout, (0..64).collect(), &Slots::all(layout.geometry())).unwrap();
    let begun = blocks.begin_on_arrival(&Vec::from_iter(0..64), 256 << 10).unwrap().unwrap();
    let arrivals = begun.progress();
    (0..64).for_each(|slot| arrivals.moved(slot * (256 << 10), 256 << 10));
    let woken = Arc::strong_count(&begun.reading) - 2;
    assert!((1..=Pool::parallelism()).contains(&woken), "{woken} threads");
    drop(occupied);
    begun.checksums().unwrap();
}

#[test]
fn blocks_of_a_slot_that_is_read_twice_are_read_at_the_end() {
    let layout = large();
    let blocks = HostBlocks::new(&layout, (0..64).collect(), &Slots::all(layout.geometry())).unwrap();
    let slots: Vec<u32> = (0..64).map(|at| at / 2).collect();
    assert!(blocks.begin_on_arrival(&slots, 256 << 10).unwrap().is_none());
}

/// Before a thread has taken blocks, and while one has some.
#[test]
fn no_thread_reads_blocks_after_the_end_of_what_has_begun() {
    let layout = large();
    let occupied = occupy(Pool::get());
    let begun = begin(&layout);
    let reading = begun.reading.clone();
    drop(begun);
    drop(occupied);
    assert_eq!(*reading.left(), 0);
    let begun = begin(&layout);
    let reading = begun.reading.clone();
    drop(begun);
    assert_eq!((*reading.left(), reading.next.load(Ordering::Relaxed) >= 64), (0, true));
    reading.run();
    assert_eq!(*reading.left(), 0);
}

/// Its blocks have moved, and no thread has compared them yet.
#[test]
fn a_run_that_is_cancelled_is_not_compared() {
    let [source, destination] = [0, 1].map(|_| layout(Dimensions::small()));
    let pairs = [BlockPair { source: 0, destination: 0 }];
    let transfer = Transfer::create(&source, &destination, TransferRequest::default()).unwrap();
    let occupied = occupy(&Pool::checks(&FileSystems::default()));
    transfer.submit(Some(Step { pairs: &pairs, verifies: true, ..Step::default() })).unwrap();
    transfer.cancel().unwrap();
    drop(occupied);
    assert_eq!(transfer.wait(None).unwrap_err().status(), Status::Cancelled);
    transfer.submit(None).unwrap();
    transfer.wait(None).unwrap();
}
