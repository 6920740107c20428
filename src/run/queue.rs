// SPDX-License-Identifier: Apache-2.0
//! A completion queue with an event fd.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use super::spin::is_met_soon;
use crate::base::atomic::{AtomicBool, Ordering};
use crate::base::reported::{MAX_VALUES, Report, Reported, ReportedKind, add_label, report};
use crate::base::{
    Condvar, Count, Error, EventFd, LogId, Mutex, MutexGuard, Result, Status, deadline_of, log,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    RunEnded,
    /// Layers of the run in flight have moved.
    LayersMoved,
    /// The memory of a run that had ended before is no longer in use, or nothing will detect when.
    MemoryReleased,
    /// Messages have arrived at an agent.
    Notifications,
    /// Something has changed in a directory.
    Events,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    pub kind: EntryKind,
    /// The caller's value from the submission.
    pub user_data: u64,
    /// Bytes moved; 0 after a failure.
    pub bytes: u64,
    /// How many layers of the run have moved, from the first on.
    pub layers: u64,
    /// The status of a failure, or `None`.
    pub status: Option<Status>,
    /// The run no longer uses its memory.
    pub is_released: bool,
}

impl QueueEntry {
    /// Reports something that is no run.
    pub fn news(kind: EntryKind, user_data: u64) -> Self {
        Self { kind, user_data, bytes: 0, layers: 0, status: None, is_released: false }
    }
}

/// How many completions were added to a queue before this one.
pub type Place = u64;

/// Completions in order of arrival. The queue grows as needed, so no completion is lost.
pub struct Queue {
    log_id: LogId,
    state: Mutex<State>,
    /// Whether there are completions; read without the lock.
    has_some: AtomicBool,
    arrival: Condvar,
}

struct State {
    entries: VecDeque<QueueEntry>,
    /// How many were taken: the place of the first one that is left.
    taken: Place,
    /// `None` if the queue is closed.
    event: Option<EventFd>,
    /// The event fd was asked for. Until then no thread can wait for it, and it is not signalled.
    is_watched: bool,
}

/// The caller's reference to a queue. Dropping it closes the queue and its event fd at once: a thread that reports the end
/// of a run may hold the queue slightly longer than the run.
pub struct OpenQueue(pub Arc<Queue>);

impl std::ops::Deref for OpenQueue {
    type Target = Arc<Queue>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for OpenQueue {
    fn drop(&mut self) {
        let closed = std::mem::replace(&mut *self.lock(), State::new(None));
        let left = Count(closed.entries.len() as u64, "completion");
        log!(Debug, "queue {} destroyed with {left} in it", self.log_id);
    }
}

impl State {
    fn new(event: Option<EventFd>) -> Self {
        Self { entries: VecDeque::new(), taken: 0, event, is_watched: false }
    }

    /// Adds a completion. A closed queue discards it.
    fn push(&mut self, entry: QueueEntry, has_some: &AtomicBool) {
        let Self { entries, event: Some(event), is_watched, .. } = self else { return };
        entries.push_back(entry);
        if entries.len() == 1 {
            if *is_watched {
                event.signal();
            }
            has_some.store(true, Ordering::Release);
        }
    }
}

impl Reported for Queue {
    fn kind(&self) -> Option<ReportedKind> {
        self.lock().event.is_some().then_some(ReportedKind::Queue)
    }

    fn report(&self) -> Report {
        let mut report = Report { kind: ReportedKind::Queue, labels: String::new(), values: [0; MAX_VALUES] };
        add_label(&mut report.labels, "queue", &self.log_id.number());
        let state = self.lock();
        (report.values[0], report.values[1]) = (state.taken, state.entries.len() as u64);
        report
    }
}

impl Queue {
    pub fn create() -> Result<Arc<Self>> {
        let event = EventFd::new()?;
        let log_id = LogId::next();
        log!(Debug, "queue {log_id} created: event fd {}", event.as_fd().as_raw_fd());
        let queue = Arc::new(Self {
            log_id,
            state: Mutex::new(State::new(Some(event))),
            has_some: AtomicBool::new(false),
            arrival: Condvar::new(),
        });
        let object: Arc<dyn Reported> = queue.clone();
        report(Arc::downgrade(&object))?;
        Ok(queue)
    }

    /// The event fd, which is readable while there are completions; -1 if the queue is closed.
    pub fn fd(&self) -> RawFd {
        let mut state = self.lock();
        let State { entries, event: Some(event), is_watched, .. } = &mut *state else { return -1 };
        if !std::mem::replace(is_watched, true) && !entries.is_empty() {
            event.signal();
        }
        event.as_fd().as_raw_fd()
    }

    /// Adds a completion. A closed queue discards it.
    pub fn push(&self, entry: QueueEntry) {
        self.push_and(entry, || ());
    }

    /// The same, and calls `then` before the completion can be taken, and before another one can be added.
    pub fn push_and(&self, entry: QueueEntry, then: impl FnOnce()) {
        let mut state = self.lock();
        state.push(entry, &self.has_some);
        then();
        drop(state);
        self.arrival.notify_one();
    }

    /// Puts a completion where the one at `before` is, if that was not taken yet, or else adds it. Returns its place.
    pub fn replace(&self, before: Option<Place>, entry: QueueEntry) -> Place {
        let mut state = self.lock();
        let State { entries, taken, .. } = &mut *state;
        let index = before.and_then(|before| usize::try_from(before.checked_sub(*taken)?).ok());
        if let (Some(before), Some(known)) = (before, index.and_then(|index| entries.get_mut(index))) {
            *known = entry;
            return before;
        }
        let place = *taken + entries.len() as Place;
        state.push(entry, &self.has_some);
        drop(state);
        self.arrival.notify_one();
        place
    }

    /// Removes up to `most` completions, oldest first, and passes them to `put`, which must not use the queue. Returns their
    /// number.
    pub fn poll(&self, most: usize, put: impl FnMut(QueueEntry)) -> usize {
        self.take(&mut self.lock(), most, put)
    }

    /// Waits for a completion, then removes up to `most` of them, like [`Self::poll`]. `None` waits without a timeout.
    #[inline]
    pub fn wait(&self, most: usize, timeout: Option<Duration>, put: impl FnMut(QueueEntry)) -> Result<usize> {
        // The completion of a short run is there before the call. Then no clock is read.
        let mut state = self.lock();
        if state.entries.is_empty() {
            drop(state);
            state = self.sleep(timeout)?;
        }
        let count = self.take(&mut state, most, put);
        // One arrival wakes one waiter, which wakes the next if entries are left.
        if !state.entries.is_empty() {
            self.arrival.notify_one();
        }
        Ok(count)
    }

    #[cold]
    fn sleep(&self, timeout: Option<Duration>) -> Result<MutexGuard<'_, State>> {
        let deadline = deadline_of(timeout);
        is_met_soon(deadline, || self.has_some.load(Ordering::Acquire));
        let arrived = self.arrival.wait_while_until(self.lock(), deadline, |state| state.entries.is_empty());
        arrived.map_err(|_| Error::elapsed("no completion arrived within the timeout"))
    }

    #[inline]
    fn take(
        &self,
        State { entries, taken, event, is_watched }: &mut State,
        most: usize,
        mut put: impl FnMut(QueueEntry),
    ) -> usize {
        let mut count = 0;
        while let Some(entry) = if count < most { entries.pop_front() } else { None } {
            put(entry);
            count += 1;
        }
        *taken += count as Place;
        if count > 0 && entries.is_empty() {
            self.has_some.store(false, Ordering::Release);
            event.iter().filter(|_| *is_watched).for_each(EventFd::clear);
        }
        count
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[cfg(test)]
impl Queue {
    /// Whether the event fd of an open queue is readable.
    pub fn is_readable(&self) -> bool {
        use rustix::event::{PollFd, PollFlags};

        use crate::base::retried;
        let state = self.lock();
        let mut polled = [PollFd::new(state.event.as_ref().unwrap(), PollFlags::IN)];
        retried::poll(&mut polled, Some(Duration::ZERO)).unwrap() == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: QueueEntry = QueueEntry {
        kind: EntryKind::RunEnded,
        user_data: 0,
        bytes: 0,
        layers: 0,
        status: None,
        is_released: true,
    };

    #[test]
    fn an_event_fd_that_is_asked_for_after_a_completion_is_readable() {
        let queue = Queue::create().unwrap();
        queue.push(NONE);
        assert!(queue.fd() >= 0 && queue.is_readable());
        assert_eq!((queue.poll(1, drop), queue.is_readable()), (1, false));
        queue.push(NONE);
        assert!(queue.is_readable(), "it is asked for once");
    }

    #[test]
    fn an_event_fd_that_was_not_asked_for_is_not_signalled() {
        let queue = Queue::create().unwrap();
        queue.push(NONE);
        assert!(!queue.is_readable());
        assert_eq!(queue.wait(2, None, drop).unwrap(), 1);
    }

    #[test]
    fn the_event_fd_is_readable_only_while_there_are_completions() {
        let queue = Queue::create().unwrap();
        assert!(queue.fd() >= 0 && !queue.is_readable());
        for user_data in 1..=3 {
            queue.push(QueueEntry { user_data, ..NONE });
        }
        let mut taken = Vec::new();
        let mut take = || queue.poll(2, |entry| taken.push(entry.user_data));
        assert_eq!((take(), queue.is_readable()), (2, true));
        assert_eq!((take(), queue.is_readable()), (1, false));
        assert_eq!(take(), 0);
        assert_eq!(taken, [1, 2, 3]);
    }

    #[test]
    fn destroying_the_queue_closes_its_event_fd_and_discards_later_completions() {
        let open = OpenQueue(Queue::create().unwrap());
        let reporter = open.0.clone();
        let fd = open.fd();
        assert!(std::fs::exists(format!("/proc/self/fd/{fd}")).unwrap());
        drop(open);
        assert_eq!(reporter.fd(), -1);
        reporter.push(NONE);
        assert_eq!(reporter.poll(1, drop), 0);
    }

    #[test]
    fn a_completion_is_replaced_until_it_is_taken() {
        let queue = Queue::create().unwrap();
        let entry = |user_data| QueueEntry { user_data, ..NONE };
        let mut taken = Vec::new();
        queue.push(entry(1));
        let place = queue.replace(None, entry(2));
        queue.push(entry(3));
        assert_eq!(queue.replace(Some(place), entry(4)), place);
        queue.poll(2, |entry| taken.push(entry.user_data));
        let other = queue.replace(Some(place), entry(5));
        assert_ne!(other, place);
        assert_eq!(queue.replace(Some(other), entry(6)), other);
        queue.poll(9, |entry| taken.push(entry.user_data));
        assert_eq!(taken, [1, 4, 3, 6]);
        drop(OpenQueue(queue.clone()));
        queue.replace(Some(other), NONE);
        assert_eq!(queue.poll(1, drop), 0, "it is closed");
    }

    #[test]
    fn waiting_on_an_empty_queue_times_out() {
        let queue = Queue::create().unwrap();
        queue.wait(1, Some(Duration::from_millis(1)), drop).unwrap_err().assert_is(Status::TimedOut, "");
    }

    #[test]
    fn many_waiters_get_every_completion_once() {
        let queue = Queue::create().unwrap();
        let takers: Vec<_> = (0..4)
            .map(|_| {
                let queue = queue.clone();
                std::thread::spawn(move || {
                    let mut seen = Vec::new();
                    let limit = Some(Duration::from_secs(20));
                    while queue.wait(3, limit, |entry| seen.push(entry.user_data)).is_ok() {
                        if seen.contains(&0) {
                            queue.push(NONE); // Ends the next thread.
                            break;
                        }
                    }
                    seen
                })
            })
            .collect();
        (1..=1000).for_each(|user_data| queue.push(QueueEntry { user_data, ..NONE }));
        queue.push(NONE);
        let mut all: Vec<_> = takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect();
        all.retain(|user_data| *user_data != 0);
        all.sort_unstable();
        assert_eq!(all, (1..=1000).collect::<Vec<_>>());
    }
}
