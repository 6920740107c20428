// SPDX-License-Identifier: Apache-2.0
//! A queue between threads without a bound, which uses its memory again: a channel without a bound allocates memory again and
//! again.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use crate::sync::Mutex;

/// The sides that send and receive.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    let queue = Arc::new(Mutex::new(Queue { waiting: VecDeque::new(), is_closed: false }));
    (Sender(queue.clone()), Receiver(queue))
}

/// The side that sends.
pub struct Sender<T>(Arc<Mutex<Queue<T>>>);

/// The side that receives. Values that wait when it is dropped are dropped with it.
pub struct Receiver<T>(Arc<Mutex<Queue<T>>>);

struct Queue<T> {
    waiting: VecDeque<T>,
    is_closed: bool,
}

impl<T> Sender<T> {
    /// Sends a value. Returns it if the receiver was dropped.
    pub fn send(&self, value: T) -> Result<(), T> {
        let mut queue = self.0.lock();
        if queue.is_closed {
            return Err(value);
        }
        queue.waiting.push_back(value);
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// The next value, if one waits.
    pub fn take(&self) -> Option<T> {
        self.0.lock().waiting.pop_front()
    }

    /// The number of values that wait.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.lock().waiting.len()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
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
