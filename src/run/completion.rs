// SPDX-License-Identifier: Apache-2.0
//! The state of a transfer's last run as its caller sees it, by polling, by waiting, or from a completion queue: the
//! outcome, the duration, and the number of layers that have moved.

mod expiry;
mod listing;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::deadline::{Deadline, Deadlines, Reservation};
use super::findings::Findings;
use super::learned::Record;
use super::log_lines;
use super::phases::{Milestone, RunClock, RunTimes, now};
use super::queue::{EntryKind, Queue, QueueEntry};
use super::reports::{Reported, Reports};
use super::shown::ShownRun;
use super::spin::is_met_soon;
pub use super::state::MemoryUse;
use super::state::{Phase, RunState};
use super::statistics::{CountedAs, Counters};
use super::trace::EndedRun;
use super::unreleased::Unreleased;
use super::used_bytes::UsedBytes;
use crate::base::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::{Condvar, Error, LogId, Mutex, MutexGuard, Result, Status, earlier, fail, log};

pub type Outcome = Result<()>;

/// The state of a transfer's last run. The transfer and the engine that executes the run share it.
pub struct Completion {
    log_id: LogId,
    state: RunState,
    last: Mutex<Last>,
    over: Condvar,
    layers: u64,
    /// Layers of the last run that have moved, from the first on.
    moved: AtomicU64,
    /// Bytes of the last run that have moved, if it has a limit and its engine counts them.
    moved_bytes: AtomicU64,
    /// The last run was cancelled, by the caller or at its deadline: parts that have not begun must not begin.
    is_cancelled: AtomicBool,
    clock: RunClock,
    counters: &'static Counters,
    shown: ShownRun,
    reports: Reports,
}

/// The data that the end of a run reports together with its outcome. It may differ between runs of a transfer.
#[derive(Clone, Default)]
pub struct Account {
    pub bytes: u64,
    /// The caller's value that is returned with the completion.
    pub user_data: u64,
    pub record: Option<Arc<Record>>,
    /// `None` if it is not counted.
    pub counted: Option<CountedAs>,
    /// How long it may take; `None` for no limit.
    pub limit: Option<Arc<Limit>>,
    /// What it reads and writes, also if its end is reported while it still does. `None` for no memory of the caller.
    pub used: Option<Arc<UsedBytes>>,
}

/// How long a run may take.
#[derive(Debug)]
pub struct Limit {
    /// From its submission.
    pub after: Duration,
    /// What has the limit, for the message.
    pub what: String,
    /// What the caller can do, for the end of the message.
    pub advice: String,
}

struct Last {
    /// Unless it has succeeded.
    outcome: Outcome,
    /// In nanoseconds.
    duration: u64,
    /// Of the run in flight.
    account: Account,
    /// Of the run in flight, if it has one.
    deadline: Option<Deadline>,
    reported: Reported,
    findings: Findings,
    /// Whether it is in the list of what may access blocks, which it is from its first run on.
    is_listed: bool,
}

impl Completion {
    /// The state of a transfer of `layers` layers that was never submitted, and reports the ends of its runs.
    pub fn new(layers: u64, queue: Option<Arc<Queue>>) -> Self {
        Self::reporting(layers, Reports { queue, ..Reports::default() })
    }

    /// The same for a transfer that may report more.
    pub fn reporting(layers: u64, reports: Reports) -> Self {
        Self {
            log_id: LogId::next(),
            state: RunState::new(),
            last: Mutex::new(Last {
                outcome: Ok(()),
                duration: 0,
                account: Account::default(),
                deadline: None,
                reported: Reported::default(),
                findings: Findings::default(),
                is_listed: false,
            }),
            over: Condvar::new(),
            layers,
            moved: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
            is_cancelled: AtomicBool::new(false),
            clock: RunClock::default(),
            counters: Counters::get(),
            shown: ShownRun::default(),
            reports,
        }
    }

    /// The number of the transfer in log messages.
    pub fn log_id(&self) -> LogId {
        self.log_id
    }

    /// Claims the transfer for a run. False if a run is in flight, or still uses its memory.
    pub fn claim(&self) -> bool {
        self.state.claim()
    }

    /// Shows the run in the timeline of a profiler from here on. One that is not shown yet when it begins is shown then.
    #[inline]
    pub fn show(&self, counted: CountedAs, bytes: u64) {
        self.shown.begin(counted, bytes);
    }

    /// Ends the claim of a run that is not begun.
    pub fn unclaim(&self) {
        self.shown.end();
        self.state.unclaim();
    }

    /// Ends the claim of a run whose end was reported before, unless it goes on. Other runs into its memory can begin before the
    /// release is reported.
    fn leave(&self, last: &mut Last, memory: MemoryUse) {
        match memory {
            MemoryUse::GoesOn => return,
            MemoryUse::Over => Unreleased::get().remove(self.log_id),
            MemoryUse::Unknown => Unreleased::get().keep(self.log_id),
        }
        let is_released = memory == MemoryUse::Over;
        last.reported.release(&self.reports, is_released, || self.state.unclaim());
    }

    /// Whether a run is in flight, or still uses its memory.
    pub fn is_claimed(&self) -> bool {
        self.state.is_claimed()
    }

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
        if self.is_running() {
            self.is_cancelled.store(true, Ordering::Release);
            log!(Debug, "transfer {} is being cancelled", self.log_id);
        }
        drop(last);
        Ok(())
    }

    pub fn ensure_submitted(&self) -> Result<()> {
        match self.was_run() {
            true => Ok(()),
            false => fail!(InvalidState, "the transfer was not submitted; call kvmem_transfer_submit first"),
        }
    }

    /// The outcome of the last run, or `None` while it is in flight.
    pub fn poll(&self) -> Result<Option<()>> {
        if self.is_running() { Ok(None) } else { self.outcome().map(Some) }
    }

    pub fn is_running(&self) -> bool {
        self.state.phase() == Phase::Running
    }

    pub fn was_run(&self) -> bool {
        self.state.phase() != Phase::NeverRun
    }

    /// Whether the last run has succeeded.
    pub fn has_succeeded(&self) -> bool {
        self.state.phase() == Phase::Succeeded
    }

    /// The earlier one of a deadline and that of the run in flight. A thread must not enter a call that may not return if there
    /// is one.
    pub fn earlier(&self, deadline: Option<Instant>) -> Option<Instant> {
        let of_run = self.last().deadline.map(|(at, _)| at);
        earlier(deadline, of_run)
    }

    /// Waits for the outcome of the last run; `None` waits without a timeout.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<()> {
        self.wait_until(deadline, || !self.is_running())?;
        self.outcome()
    }

    /// The outcome of the last run that was started. Fails if there is none.
    fn outcome(&self) -> Outcome {
        if self.has_succeeded() {
            return Ok(());
        }
        self.ensure_submitted()?;
        // Under the lock, so that the completion is in the queue then.
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
        let met = self.over.wait_while_until(self.last(), deadline, |_| !is_met());
        met.map(drop).map_err(|_| Error::elapsed("the transfer is still in flight"))
    }

    /// Marks the start of a run: it is in flight, not cancelled, and no layer has moved. It ends at its deadline, unless it has
    /// ended before.
    pub(super) fn begin(self: &Arc<Self>, account: Account, deadline: Option<(Reservation, Instant)>) {
        let started = now();
        if let Some(counted) = account.counted {
            self.counters.start(self.log_id);
            self.show(counted, account.bytes);
        }
        let mut last = self.last();
        self.list(&mut last);
        if self.has_succeeded() {
            last.outcome = Ok(());
        }
        (last.account, last.findings) = (account, Findings::default());
        last.deadline = deadline.map(|(reservation, at)| reservation.add(at, self.clone()));
        self.moved.store(0, Ordering::Release);
        self.moved_bytes.store(0, Ordering::Relaxed);
        self.is_cancelled.store(false, Ordering::Release);
        self.clock.begin(started);
        self.state.enter(Phase::Running, true);
    }

    /// Reports a run that has succeeded before another thread could see it in flight: no thread waits for it, and no deadline
    /// or cancellation is of it, so this takes no lock. Its claim ends. The duration is only logged. Nothing of this is used
    /// after the end is visible, except the queue.
    #[inline]
    pub fn succeed(&self, bytes: u64, user_data: u64, duration: Option<u64>, counted: CountedAs) {
        self.counters.add_whole(self.log_id, counted, bytes, self.reports.tallies.as_deref());
        self.shown.end();
        if let Some(duration) = duration {
            log_lines::ended(self.log_id, bytes, &Ok(()), duration);
        }
        self.moved.store(self.layers, Ordering::Release);
        self.conclude(Phase::Succeeded, self.end(user_data, bytes, None, true));
    }

    #[inline]
    fn end(&self, user_data: u64, bytes: u64, status: Option<Status>, is_released: bool) -> QueueEntry {
        let (kind, layers) = (EntryKind::RunEnded, self.moved.load(Ordering::Acquire));
        QueueEntry { kind, user_data, bytes, layers, status, is_released }
    }

    /// Makes the end of a run visible, and adds its completion to the queue. The claim ends with that, if its memory is released: a
    /// thread that sees the end, or takes the completion, can start the next run, whose completion is behind this one.
    #[inline]
    fn conclude(&self, phase: Phase, entry: QueueEntry) {
        let enter = || self.state.enter(phase, !entry.is_released);
        match &self.reports.queue {
            Some(queue) => queue.push_and(entry, enter),
            None => enter(),
        }
    }

    /// Whether at least `layers` layers of the last run have moved.
    pub(super) fn have_moved(&self, layers: u64) -> bool {
        self.moved.load(Ordering::Acquire) >= layers
    }

    /// Whether the run was cancelled, by the caller or at its deadline.
    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }

    /// Notes what the run in flight has reached.
    pub(super) fn reach(&self, milestone: Milestone) {
        self.clock.reach(milestone);
    }

    /// Notes that all bytes have moved. Reads no clock if the call that submits the run has moved them, and nothing follows.
    pub(super) fn reach_moved(&self, is_followed: bool) {
        if is_followed || self.clock.has_reached(Milestone::Begun) {
            self.clock.reach(Milestone::Moved);
        }
    }

    /// The times of the last run that was in flight; `None` before its end, and if there was none.
    pub fn times(&self) -> Option<RunTimes> {
        let last = self.last();
        let has_ended = self.was_run() && !self.is_running();
        has_ended.then(|| self.clock.times(last.duration))
    }

    /// Adds to the bytes that the last run has moved.
    pub(super) fn add_moved(&self, bytes: u64) {
        self.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Reports that `moved` layers have moved.
    pub(super) fn advance(&self, moved: u64) {
        let mut last = self.last();
        if !self.is_running() {
            return;
        }
        self.moved.store(moved, Ordering::Release);
        let user_data = last.account.user_data;
        last.reported.layers(&self.reports, user_data, moved, self.layers);
        drop(last);
        self.over.notify_all();
    }

    /// Keeps what the check of the run in flight has found. After its deadline, nothing.
    pub(super) fn note(&self, findings: Findings) {
        let mut last = self.last();
        if self.is_running() {
            last.findings = findings;
        }
    }

    /// Passes what the check of the last run has found to `read`: nothing, if it was not checked. Returns `None` while the run is in
    /// flight. Fails as the run has failed, unless its blocks were compared and differ, or some have other epochs than expected.
    pub fn findings<T>(&self, read: impl FnOnce(&Findings) -> T) -> Result<Option<T>> {
        self.ensure_submitted()?;
        let last = self.last();
        if self.is_running() {
            return Ok(None);
        }
        match &last.outcome {
            Err(error) if !has_findings(error, &last.findings) && !self.has_succeeded() => Err(error.clone()),
            _ => Ok(Some(read(&last.findings))),
        }
    }

    /// Duration of the last run that ended.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.last().duration)
    }

    /// Reports the outcome of a run, `None` if that was done early, unless that was done at its deadline. Its claim ends unless it
    /// goes on.
    pub(super) fn finish(&self, outcome: Option<Outcome>, memory: MemoryUse) {
        let duration = self.clock.elapsed();
        self.shown.end();
        let mut last = self.last();
        let Some(outcome) = outcome.filter(|_| self.is_running()) else {
            return self.leave(&mut last, memory);
        };
        if let Some(deadline) = last.deadline.take() {
            Deadlines::get().remove(deadline);
        }
        self.report(last, outcome, duration, memory);
    }

    fn report(&self, mut last: MutexGuard<'_, Last>, outcome: Outcome, duration: u64, memory: MemoryUse) {
        let status = outcome.as_ref().err().map(Error::status);
        let Account { bytes, user_data, record, counted, used, .. } = std::mem::take(&mut last.account);
        if let Some(used) = used.filter(|_| memory != MemoryUse::Over) {
            Unreleased::get().add(self.log_id, user_data, used);
        }
        log_lines::ended(self.log_id, bytes, &outcome, duration);
        if let Some(counted) = counted {
            let times = self.clock.times(duration);
            let (transfer, [method, direction]) = (self.log_id.number(), counted.indices());
            let run = EndedRun { transfer, user_data, bytes, method, direction, status, times };
            self.counters.end(&run, self.reports.tallies.as_deref());
        }
        if let (None, Some(record)) = (status, record) {
            record.add(bytes, Duration::from_nanos(duration));
        }
        if status.is_none() {
            self.moved.store(self.layers, Ordering::Release);
            last.reported.layers(&self.reports, user_data, self.layers, self.layers);
        }
        (last.outcome, last.duration) = (outcome, duration);
        let (phase, bytes) = if status.is_none() { (Phase::Succeeded, bytes) } else { (Phase::Failed, 0) };
        let end = self.end(user_data, bytes, status, memory == MemoryUse::Over);
        last.reported.end(&self.reports, end);
        self.conclude(phase, end);
        if memory == MemoryUse::Unknown {
            self.leave(&mut last, memory);
        }
        drop(last);
        self.over.notify_all();
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock()
    }
}

/// Whether a run that has failed has found something. A peer may be stale, too, and then no block is named.
fn has_findings(error: &Error, findings: &Findings) -> bool {
    match error.status() {
        Status::Stale => !findings.mismatches.is_empty(),
        status => status == Status::Corrupt,
    }
}

#[cfg(kvmem_model)]
mod models;
#[cfg(test)]
mod tests;
