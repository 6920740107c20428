// SPDX-License-Identifier: Apache-2.0
//! A queue between threads without a bound, which uses its memory again: a channel without a bound allocates memory again and
//! again.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::sync::Mutex;

/// The sides that send and receive.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    let queue = Mutex::new(Queue { waiting: VecDeque::new(), is_closed: false });
    let shared = Arc::new(Shared { queue, count: AtomicUsize::new(0) });
    (Sender(shared.clone()), Receiver(shared))
}

/// The side that sends.
pub struct Sender<T>(Arc<Shared<T>>);

/// The side that receives. Values that wait when it is dropped are dropped with it.
pub struct Receiver<T>(Arc<Shared<T>>);

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    /// The number of values that wait. It changes under the lock, and is read without it.
    count: AtomicUsize,
}

struct Queue<T> {
    waiting: VecDeque<T>,
    is_closed: bool,
}

impl<T> Sender<T> {
    /// Sends a value. Returns it if the receiver was dropped.
    pub fn send(&self, value: T) -> Result<(), T> {
        let mut queue = self.0.queue.lock();
        if queue.is_closed {
            return Err(value);
        }
        queue.waiting.push_back(value);
        self.0.count.store(queue.waiting.len(), Ordering::Release);
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// The next value, if one waits.
    pub fn take(&self) -> Option<T> {
        let mut queue = self.0.queue.lock();
        let next = queue.waiting.pop_front();
        self.0.count.store(queue.waiting.len(), Ordering::Release);
        next
    }

    /// The number of values that wait, without the lock. A value may be missing that another thread sends concurrently: a thread
    /// that sleeps once there is none must use [`Self::take`].
    pub fn len(&self) -> usize {
        self.0.count.load(Ordering::Acquire)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.is_closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        // Without the lock: what is dropped may send to this queue.
        drop(waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_received_in_order_until_the_receiver_is_dropped() {
        let (sender, receiver) = unbounded();
        (0..3).for_each(|value| sender.send(value).unwrap());
        assert_eq!([receiver.take(), receiver.take()], [Some(0), Some(1)]);
        assert_eq!(receiver.len(), 1);
        drop(receiver);
        assert_eq!(sender.send(7), Err(7));
    }

    /// A value that sends another one when it is dropped.
    struct Echo(Arc<Mutex<Option<Sender<Option<Echo>>>>>);

    impl Drop for Echo {
        fn drop(&mut self) {
            if let Some(sender) = &*self.0.lock() {
                assert!(sender.send(None).is_err());
            }
        }
    }

    #[test]
    fn what_waits_is_dropped_without_the_lock() {
        let (sender, receiver) = unbounded();
        let place = Arc::new(Mutex::new(None));
        assert!(sender.send(Some(Echo(place.clone()))).is_ok());
        *place.lock() = Some(sender);
        drop(receiver);
    }
}
