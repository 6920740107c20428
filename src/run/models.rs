// SPDX-License-Identifier: Apache-2.0
//! Threads that add to completion queues and take from them, and an owner that reuses a block while a run reads it, in every order.

use std::sync::Arc;

use crate::base::atomic::{AtomicU64, Ordering};
use crate::base::modelled::{explore, spawn};
use crate::layout::{Arrangement, Dimensions, Layout};
use crate::plan::BlockPair;
use crate::run::queue::{EntryKind, OpenQueue, Queue, QueueEntry};
use crate::run::{Account, Completion, ExpectedEpochs, Ticket};

fn entry(user_data: u64) -> QueueEntry {
    QueueEntry::news(EntryKind::Events, user_data)
}

#[test]
fn every_waiter_of_a_queue_gets_a_completion() {
    explore("queue", 2, || {
        let queue = Queue::create().unwrap();
        let producers = [1, 2].map(|user_data| {
            let queue = queue.clone();
            spawn(move || queue.push(entry(user_data)))
        });
        let take = |queue: Arc<Queue>| {
            move || {
                let mut taken = 0;
                queue.wait(1, None, |entry| taken = entry.user_data).unwrap();
                taken
            }
        };
        let waiter = spawn(take(queue.clone()));
        let own = take(queue.clone())();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        let mut all = [own, waiter.join().unwrap()];
        all.sort_unstable();
        assert_eq!((all, queue.poll(1, drop)), ([1, 2], 0));
    });
}

#[test]
fn the_event_fd_is_readable_while_there_are_completions() {
    explore("event_fd", 3, || {
        let queue = Queue::create().unwrap();
        let producer = spawn({
            let queue = queue.clone();
            move || (1..=2).for_each(|user_data| queue.push(entry(user_data)))
        });
        let watcher = spawn({
            let queue = queue.clone();
            move || assert!(queue.fd() >= 0)
        });
        let taken = queue.poll(1, drop) + queue.poll(1, drop);
        producer.join().unwrap();
        watcher.join().unwrap();
        assert_eq!(queue.is_readable(), taken < 2);
        assert_eq!((queue.poll(2, drop), queue.is_readable()), (2 - taken, false));
    });
}

#[test]
fn a_queue_that_is_destroyed_wakes_nothing_and_keeps_nothing() {
    explore("closed", 3, || {
        let open = OpenQueue(Queue::create().unwrap());
        let pushers = [1, 2].map(|user_data| {
            let queue = open.0.clone();
            spawn(move || queue.push(entry(user_data)))
        });
        let queue = open.0.clone();
        drop(open);
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        assert_eq!((queue.poll(2, drop), queue.fd()), (0, -1));
    });
}

const BLOCK: u32 = 1;

/// What an owner shares with a reader: its layout, the epoch that it has published, and the words of the block.
struct Shared {
    layout: Arc<Layout>,
    published: AtomicU64,
    block: [AtomicU64; 2],
}

impl Shared {
    fn new() -> Self {
        let layout = Layout::in_host(Dimensions::small(), Arrangement::FULLY_CONTIGUOUS);
        layout.create_epochs(None).unwrap();
        Self { layout, published: AtomicU64::new(0), block: [AtomicU64::new(0), AtomicU64::new(0)] }
    }

    /// Raises the epoch, writes the block, and publishes it.
    fn reuse(&self) {
        let epoch = self.layout.raise_epochs(&[BLOCK]).unwrap()[0];
        self.block.iter().for_each(|word| word.store(epoch, Ordering::Relaxed));
        self.published.store(epoch, Ordering::Release);
    }

    /// Reads the block in a run that expects what was published. Returns whether it was stale.
    fn read(&self) -> bool {
        let expected = self.published.load(Ordering::Acquire);
        let pairs = [BlockPair { source: BLOCK, destination: BLOCK }];
        let epochs = ExpectedEpochs::of_pairs(&self.layout, &pairs, &[expected]).unwrap();
        let completion = Arc::new(Completion::new(1, None));
        let ticket = Ticket::unheld(&completion, Account::default()).expecting(Arc::new(epochs));
        let Some(ticket) = ticket.unless_stale() else { return true };
        let run = ticket.start();
        let bytes = self.block.each_ref().map(|word| word.load(Ordering::Relaxed));
        run.end(Ok(()));
        let is_stale = completion.poll().is_err();
        assert!(is_stale || bytes == [expected; 2], "epoch {expected} has the bytes of {bytes:?}");
        is_stale
    }
}

#[test]
fn a_run_that_is_not_stale_has_the_bytes_of_its_epoch() {
    explore("epochs", 3, || {
        let shared = Arc::new(Shared::new());
        let owner = spawn({
            let shared = shared.clone();
            move || shared.reuse()
        });
        let reader = spawn({
            let shared = shared.clone();
            move || {
                shared.read();
            }
        });
        owner.join().unwrap();
        reader.join().unwrap();
        assert!(!shared.read(), "nothing changes any more");
    });
}
