// SPDX-License-Identifier: Apache-2.0
//! The commands of an agent's thread, and all that wakes it. A wake-up represents all commands and tasks before it, and stays until
//! the thread takes it: a thread that drives the agent may take the commands themselves at any time.
//!
//! No wake-up is lost: a command or a task is added first, and the wake-up after it; the agent's thread looks for both, with the
//! agent locked, after it has taken a wake-up. A thread that drives the agent takes no wake-up.
//!
//! The queue uses its memory again, and the thread does not poll it before it sleeps. A channel allocates memory again and again,
//! and polls: on processors that other threads keep busy, each poll takes milliseconds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::base::thread::yields_soon;
use crate::base::{Condvar, Mutex, deadline_of};

/// A queue without a bound.
pub struct CommandQueue<T> {
    state: Mutex<State<T>>,
    /// The number of values that wait. It changes under the lock, and is read without it.
    count: AtomicUsize,
    /// The thread is to look for commands and tasks.
    is_woken: AtomicBool,
    woken: Condvar,
}

struct State<T> {
    waiting: VecDeque<T>,
    is_closed: bool,
}

/// The side that receives. Values that wait when it is dropped are dropped with it.
pub struct Receiver<T>(Arc<CommandQueue<T>>);

impl<T> CommandQueue<T> {
    /// A queue, and its receiver.
    pub fn new() -> (Arc<Self>, Receiver<T>) {
        let state = Mutex::new(State { waiting: VecDeque::new(), is_closed: false });
        let (count, is_woken) = (AtomicUsize::new(0), AtomicBool::new(false));
        let this = Arc::new(Self { state, count, is_woken, woken: Condvar::new() });
        (this.clone(), Receiver(this))
    }

    /// Sends a value, and wakes the thread. Returns the value if the receiver was dropped.
    pub fn send(&self, value: T) -> Result<(), T> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(value);
        }
        state.waiting.push_back(value);
        self.count.store(state.waiting.len(), Ordering::Release);
        let is_first = !self.is_woken.swap(true, Ordering::AcqRel);
        drop(state);
        if is_first {
            self.woken.notify_one();
        }
        Ok(())
    }

    /// Wakes the thread, or keeps it from falling asleep.
    pub fn wake(&self) {
        // Always written, so that the thread that takes the wake-up sees what was done before.
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            // A thread that has not found it is asleep once this has the lock.
            drop(self.state.lock());
            self.woken.notify_one();
        }
    }

    /// Takes the wake-up, if there is one.
    pub fn take_wake(&self) -> bool {
        self.is_woken.swap(false, Ordering::AcqRel)
    }

    /// Waits for a wake-up and takes it; without a limit for ever. False if the time is over.
    pub fn wait(&self, limit: Option<Duration>) -> bool {
        if self.take_wake() {
            return true;
        }
        let end = deadline_of(limit);
        self.woken.wait_while_until(self.state.lock(), end, |_| !self.take_wake()).is_ok()
    }

    /// The same without sleeping, if yielding takes little time. It takes no lock but this queue's.
    pub fn wait_awake(&self, end: Instant) {
        while Instant::now() < end && !self.take_wake() {
            if !yields_soon() {
                self.wait(Some(end.saturating_duration_since(Instant::now())));
                return;
            }
        }
    }

    /// The number of values that wait, without the lock. A value may be missing that another thread sends concurrently: a thread
    /// that sleeps once there is none must use [`Receiver::take`].
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
}

impl<T> Receiver<T> {
    /// The queue, to wait for a wake-up.
    pub fn queue(&self) -> Arc<CommandQueue<T>> {
        self.0.clone()
    }

    /// The next value, if one waits.
    pub fn take(&self) -> Option<T> {
        let mut state = self.0.state.lock();
        let next = state.waiting.pop_front();
        self.0.count.store(state.waiting.len(), Ordering::Release);
        next
    }

    /// [`CommandQueue::len`].
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        // Without the lock: what is dropped may send to this queue.
        drop(waiting);
    }
}

#[cfg(kvmem_model)]
mod models;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_received_in_order_until_the_receiver_is_dropped() {
        let (queue, receiver) = CommandQueue::new();
        (0..3).for_each(|value| queue.send(value).unwrap());
        assert_eq!([receiver.take(), receiver.take()], [Some(0), Some(1)]);
        assert_eq!(receiver.len(), 1);
        drop(receiver);
        assert_eq!(queue.send(7), Err(7));
    }

    /// A value that sends another one when it is dropped.
    struct Echo(Arc<CommandQueue<Option<Echo>>>);

    impl Drop for Echo {
        fn drop(&mut self) {
            assert!(self.0.send(None).is_err());
        }
    }

    #[test]
    fn what_waits_is_dropped_without_the_lock() {
        let (queue, receiver) = CommandQueue::new();
        assert!(queue.send(Some(Echo(queue.clone()))).is_ok());
        drop(receiver);
    }

    #[test]
    fn one_wake_up_represents_all_and_stays_when_another_thread_takes_the_command() {
        let (queue, receiver) = CommandQueue::new();
        assert!(!queue.take_wake() && !queue.wait(Some(Duration::ZERO)));
        queue.wake();
        queue.send(1).unwrap();
        assert_eq!(receiver.take(), Some(1));
        assert!(queue.wait(None) && !queue.take_wake());
    }

    #[test]
    fn a_thread_that_waits_awake_stops_at_a_wake_up_or_after_a_while() {
        let (queue, _receiver) = CommandQueue::<()>::new();
        queue.wake();
        // Only the wake-up ends this.
        queue.wait_awake(Instant::now() + Duration::from_secs(3600));
        assert!(!queue.take_wake(), "the wake-up is used");
        queue.wake();
        queue.wait_awake(Instant::now());
        assert!(queue.take_wake(), "the next wait finds the wake-up");
    }

    #[test]
    fn no_wake_up_is_lost() {
        let ((queue, _receiver), (back, _other)) = (CommandQueue::<()>::new(), CommandQueue::<()>::new());
        let echo = std::thread::spawn({
            let (queue, back) = (queue.clone(), back.clone());
            move || {
                for _ in 0..2000 {
                    assert!(queue.wait(None));
                    back.wake();
                }
            }
        });
        for _ in 0..2000 {
            queue.wake();
            assert!(back.wait(Some(Duration::from_secs(20))));
        }
        echo.join().unwrap();
    }
}
