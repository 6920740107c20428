// SPDX-License-Identifier: Apache-2.0
//! The state of a transfer's last run as its caller sees it, by polling, by waiting, or from a completion queue: the
//! outcome, the duration, and the number of layers that have moved.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::deadline::{Deadline, Deadlines, Expires, Reservation};
use super::history::Record;
use super::queue::{Queue, QueueEntry};
use super::spin::is_met_soon;
use crate::error::{Error, Result, Status, fail};
use crate::log::{Microseconds, log};
use crate::log_id::LogId;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// How a run ended.
pub type Outcome = Result<()>;

const NEVER_RUN: u8 = 0;
const RUNNING: u8 = 1;
const OVER: u8 = 2;
/// As [`OVER`], with success, and the completion is in the queue.
const SUCCEEDED: u8 = 3;

/// The state of a transfer's last run. The transfer and the engine that executes the run share it.
pub struct Completion {
    log_id: LogId,
    phase: AtomicU8,
    /// A run is in flight, or still uses its memory.
    is_claimed: AtomicBool,
    last: Mutex<Last>,
    over: Condvar,
    layers: u64,
    /// Layers of the last run that have moved, from the first on.
    moved: AtomicU64,
    /// Bytes of the last run that have moved, if it has a limit and its engine counts them.
    moved_bytes: AtomicU64,
    /// The last run was cancelled, by the caller or at its deadline: parts that have not begun must not begin.
    is_cancelled: AtomicBool,
    queue: Option<Arc<Queue>>,
}

/// The data that the end of a run reports together with its outcome. It may differ between runs of a transfer.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Bytes that it moves.
    pub bytes: u64,
    /// The caller's value that is returned with the completion.
    pub user_data: u64,
    /// Collects the durations of runs.
    pub record: Option<Arc<Record>>,
    /// It has a [`Limit`].
    pub is_limited: bool,
}

/// How long a run may take.
pub struct Limit {
    /// From its submission.
    pub after: Duration,
    /// What has the limit, for the message.
    pub what: String,
    /// What the caller can do, for the end of the message.
    pub advice: String,
}

/// The state before a run.
pub(super) struct Before {
    phase: u8,
    moved: u64,
}

struct Last {
    outcome: Outcome,
    duration: Duration,
    /// Of the run in flight.
    account: Account,
    /// Of the run in flight, if it has one.
    deadline: Option<(Deadline, Arc<Limit>)>,
}

impl Completion {
    /// The state of a transfer of `layers` layers that was never submitted.
    pub fn new(layers: u64, queue: Option<Arc<Queue>>) -> Self {
        Self {
            log_id: LogId::next(),
            phase: AtomicU8::new(NEVER_RUN),
            is_claimed: AtomicBool::new(false),
            last: Mutex::new(Last {
                outcome: Ok(()),
                duration: Duration::ZERO,
                account: Account::default(),
                deadline: None,
            }),
            over: Condvar::new(),
            layers,
            moved: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
            is_cancelled: AtomicBool::new(false),
            queue,
        }
    }

    /// The number of the transfer in log messages.
    pub fn log_id(&self) -> LogId {
        self.log_id
    }

    /// Claims the transfer for a run. False if a run is in flight, or still uses its memory.
    pub fn claim(&self) -> bool {
        !self.is_claimed.swap(true, Ordering::AcqRel)
    }

    /// Ends the claim of a run that is not begun.
    pub fn unclaim(&self) {
        self.is_claimed.store(false, Ordering::Release);
    }

    /// Whether a run is in flight, or still uses its memory.
    pub fn is_claimed(&self) -> bool {
        self.is_claimed.load(Ordering::Acquire)
    }

    /// Number of layers of a run.
    pub fn layers(&self) -> u64 {
        self.layers
    }

    /// How many layers of the last run have moved, from the first on.
    pub fn moved(&self) -> Result<u64> {
        self.ensure_submitted()?;
        Ok(self.moved.load(Ordering::Acquire))
    }

    /// Cancels the last run: parts that have not begun will not begin. A run that has ended is unchanged.
    pub fn cancel(&self) -> Result<()> {
        self.ensure_submitted()?;
        // Under the lock that the start of a run takes, so that this never cancels a run that starts concurrently.
        let last = self.last();
        if self.phase.load(Ordering::Acquire) == RUNNING {
            self.is_cancelled.store(true, Ordering::Release);
            log!(Debug, "transfer {} is being cancelled", self.log_id);
        }
        drop(last);
        Ok(())
    }

    fn ensure_submitted(&self) -> Result<()> {
        match self.phase.load(Ordering::Acquire) {
            NEVER_RUN => {
                fail!(InvalidState, "the transfer was not submitted; call kvmem_transfer_submit first")
            }
            _ => Ok(()),
        }
    }

    /// The outcome of the last run, or `None` while it is in flight.
    pub fn poll(&self) -> Result<Option<()>> {
        match self.phase.load(Ordering::Acquire) {
            RUNNING => Ok(None),
            SUCCEEDED => Ok(Some(())),
            // Under the lock, so that the completion is in the queue then.
            _ => self.outcome().map(Some),
        }
    }

    /// Whether a run is in flight.
    pub fn is_running(&self) -> bool {
        self.phase.load(Ordering::Acquire) == RUNNING
    }

    /// The earlier one of a deadline and that of the run in flight. A thread must not enter a call that may not return if there
    /// is one.
    pub fn earlier(&self, deadline: Option<Instant>) -> Option<Instant> {
        let last = self.last();
        // A limited run has no deadline yet while its submission has not returned.
        let of_run = last
            .account
            .is_limited
            .then(|| last.deadline.as_ref().map_or_else(Instant::now, |known| known.0.0));
        [deadline, of_run].into_iter().flatten().min()
    }

    /// Waits for the outcome of the last run; `None` waits without a timeout.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<()> {
        self.wait_until(deadline, || !self.is_running())?;
        self.outcome()
    }

    /// The outcome of the last run that was started. Fails if there is none.
    fn outcome(&self) -> Outcome {
        self.ensure_submitted()?;
        self.last().outcome.clone()
    }

    /// Waits until `layers` layers of the last run have moved. Fails with the run's error if it ends before.
    pub fn wait_layers(&self, layers: u64, deadline: Option<Instant>) -> Result<()> {
        let have_moved = || self.have_moved(layers);
        self.wait_until(deadline, || have_moved() || !self.is_running())?;
        if have_moved() { Ok(()) } else { self.outcome() }
    }

    fn wait_until(&self, deadline: Option<Instant>, is_met: impl Fn() -> bool) -> Result<()> {
        self.ensure_submitted()?;
        if is_met_soon(deadline, &is_met) { Ok(()) } else { self.sleep(deadline, is_met) }
    }

    fn sleep(&self, deadline: Option<Instant>, is_met: impl Fn() -> bool) -> Result<()> {
        let mut last = self.last();
        while !is_met() {
            last = match deadline {
                None => self.over.wait(last),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        fail!(TimedOut, "the transfer is still in flight");
                    }
                    self.over.wait_timeout(last, left).0
                }
            };
        }
        Ok(())
    }

    /// Marks the start of a run: it is in flight, not cancelled, and no layer has moved. Returns the previous state for
    /// [`Self::withdraw`].
    pub(super) fn begin(&self, account: Account) -> Before {
        let mut last = self.last();
        let moved = self.renew(&mut last, account);
        let phase = self.phase.load(Ordering::Relaxed);
        self.phase.store(RUNNING, Ordering::Release);
        drop(last);
        Before { phase, moved }
    }

    /// Reports a run that has succeeded before another thread could see it in flight. Its claim ends.
    pub fn succeed(&self, account: Account, duration: Duration) {
        let mut last = self.last();
        self.renew(&mut last, account);
        self.unclaim();
        self.report(last, Ok(()), duration);
    }

    /// Replaces the data of the run before. Returns how many of its layers have moved, which changes only under the lock.
    fn renew(&self, last: &mut Last, account: Account) -> u64 {
        last.account = account;
        let moved = self.moved.load(Ordering::Relaxed);
        self.moved.store(0, Ordering::Release);
        self.moved_bytes.store(0, Ordering::Relaxed);
        self.is_cancelled.store(false, Ordering::Release);
        moved
    }

    /// Restores the state before a run that could not be started. Ends its claim under the same lock as [`Self::finish`].
    pub(super) fn withdraw(&self, before: &Before) {
        let last = self.last();
        self.unclaim();
        self.moved.store(before.moved, Ordering::Release);
        self.phase.store(before.phase, Ordering::Release);
        drop(last);
        self.over.notify_all();
    }

    /// Whether at least `layers` layers of the last run have moved.
    pub(super) fn have_moved(&self, layers: u64) -> bool {
        self.moved.load(Ordering::Acquire) >= layers
    }

    /// Whether the run was cancelled, by the caller or at its deadline.
    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }

    /// Adds to the bytes that the last run has moved.
    pub(super) fn add_moved(&self, bytes: u64) {
        self.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Reports that `moved` layers have moved.
    pub(super) fn advance(&self, moved: u64) {
        let last = self.last();
        if !self.is_running() {
            return;
        }
        self.moved.store(moved, Ordering::Release);
        drop(last);
        self.over.notify_all();
    }

    /// Submits a run, which ends at its deadline if it has a limit. The deadline is added after the run has started, because the
    /// end of a run that could not be started is not reported.
    pub fn within(
        self: &Arc<Self>,
        limit: Option<&Arc<Limit>>,
        submit: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let Some(limit) = limit else { return submit() };
        let watch = Deadlines::get().reserve()?;
        let deadline = Instant::now().checked_add(limit.after);
        submit()?;
        if let Some(deadline) = deadline {
            self.limit(watch, deadline, limit);
        }
        Ok(())
    }

    /// Ends the run in flight at `at`, unless it has ended before.
    fn limit(self: &Arc<Self>, watch: Reservation, at: Instant, limit: &Arc<Limit>) {
        // Under the lock that the end of the run takes, so that the end removes the deadline.
        let mut last = self.last();
        if self.is_running() {
            last.deadline = Some((watch.add(at, self.clone()), limit.clone()));
        }
    }

    /// Duration of the last run that ended.
    pub fn duration(&self) -> Duration {
        self.last().duration
    }

    /// Reports the outcome of a run, unless that was done at its deadline. If the run is over, its claim ends before the outcome
    /// is visible, and under the lock that [`Self::begin`] takes, so that the next run begins after this one was reported.
    pub(super) fn finish(&self, outcome: Outcome, duration: Duration, is_over: bool) {
        let mut last = self.last();
        if is_over {
            self.unclaim();
        }
        if !self.is_running() {
            return;
        }
        if let Some((deadline, _)) = last.deadline.take() {
            Deadlines::get().remove(deadline);
        }
        self.report(last, outcome, duration);
    }

    fn report(&self, mut last: MutexGuard<'_, Last>, outcome: Outcome, duration: Duration) {
        let status = outcome.as_ref().err().map(Error::status);
        let Account { bytes, user_data, record, .. } = std::mem::take(&mut last.account);
        self.log_end(bytes, &outcome, duration);
        if let (None, Some(record)) = (status, record) {
            record.add(bytes, duration);
        }
        if status.is_none() {
            self.moved.store(self.layers, Ordering::Release);
        }
        (last.outcome, last.duration) = (outcome, duration);
        self.phase.store(OVER, Ordering::Release);
        // Before the lock is released, because otherwise the next run could end and reach the queue first.
        if let Some(queue) = &self.queue {
            let bytes = if status.is_none() { bytes } else { 0 };
            queue.push(QueueEntry { user_data, bytes, status });
        }
        if status.is_none() {
            self.phase.store(SUCCEEDED, Ordering::Release);
        }
        drop(last);
        self.over.notify_all();
    }

    fn log_end(&self, bytes: u64, outcome: &Outcome, duration: Duration) {
        let id = self.log_id;
        match outcome {
            Ok(()) => {
                log!(
                    Debug,
                    "transfer {id} ended: {bytes} bytes in {}, {:.2} GB/s",
                    Microseconds(duration),
                    rate(bytes, duration)
                );
            }
            Err(error) if error.status() == Status::Cancelled => {
                log!(Debug, "transfer {id} cancelled after {}", Microseconds(duration));
            }
            Err(error) => {
                let (took, status) = (Microseconds(duration), error.status().name());
                log!(Debug, "transfer {id} failed after {took}: {status}: {error}");
            }
        }
    }

    /// The outcome of the run in flight at its deadline.
    fn timed_out(&self, limit: &Limit, bytes: u64) -> Error {
        let of_layers = bytes / self.layers.max(1) * self.moved.load(Ordering::Acquire);
        let moved = self.moved_bytes.load(Ordering::Relaxed).max(of_layers).min(bytes);
        let Limit { after, what, advice } = limit;
        let milliseconds = after.as_secs_f64() * 1e3;
        let message = format!(
            "{what} was not complete after {milliseconds} ms: at least {moved} of {bytes} bytes have moved. {advice}"
        );
        Error::new(Status::TimedOut, message)
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock()
    }
}

impl Expires for Completion {
    /// The end is reported at once, because parts that have begun may never end.
    fn expire(&self, deadline: Deadline) {
        let mut last = self.last();
        let Some((_, limit)) = last.deadline.take_if(|(known, _)| *known == deadline) else { return };
        self.is_cancelled.store(true, Ordering::Release);
        let error = self.timed_out(&limit, last.account.bytes);
        log!(Warn, "transfer {}: {error}", self.log_id);
        self.report(last, Err(error), limit.after);
    }
}

/// In gigabytes per second, which are bytes per nanosecond.
fn rate(bytes: u64, duration: Duration) -> f64 {
    bytes as f64 / (duration.as_nanos().max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: u64 = 100_000;

    #[test]
    fn a_run_that_was_never_in_flight_is_reported_like_others() {
        let queue = Queue::create().unwrap();
        let completion = Completion::new(3, Some(queue.clone()));
        for user_data in [7, 8] {
            assert!(completion.claim());
            completion.succeed(Account { bytes: 5, user_data, ..Account::default() }, Duration::ZERO);
            assert_eq!((completion.is_claimed(), completion.poll().unwrap()), (false, Some(())));
            assert_eq!(completion.moved().unwrap(), 3);
            let mut entries = [QueueEntry { user_data: 0, bytes: 0, status: None }; 2];
            assert_eq!(queue.poll(&mut entries), 1);
            assert_eq!(entries[0], QueueEntry { user_data, bytes: 5, status: None });
        }
        completion.wait(None).unwrap();
    }

    /// Two threads that each start a run as soon as the run of the other is over.
    #[test]
    fn completions_of_one_transfer_are_in_order_of_its_runs() {
        let queue = Queue::create().unwrap();
        let completion = Completion::new(1, Some(queue.clone()));
        let begun = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let (completion, begun) = (&completion, &begun);
            scope.spawn(move || (0..RUNS).step_by(2).for_each(|number| in_turn(completion, begun, number)));
            (1..RUNS).step_by(2).for_each(|number| in_turn(completion, begun, number));
        });
        let mut entries = vec![QueueEntry { user_data: 0, bytes: 0, status: None }; RUNS as usize];
        assert_eq!(queue.poll(&mut entries), RUNS as usize);
        assert!(entries.iter().map(|entry| entry.user_data).eq(0..RUNS));
    }

    /// Begins and ends a run once the runs with smaller numbers are over.
    fn in_turn(completion: &Completion, begun: &AtomicU64, number: u64) {
        while begun.load(Ordering::Acquire) != number || completion.is_running() {
            std::thread::yield_now();
        }
        completion.begin(Account { user_data: number, ..Account::default() });
        begun.store(number + 1, Ordering::Release);
        completion.finish(Ok(()), Duration::ZERO, false);
    }
}
