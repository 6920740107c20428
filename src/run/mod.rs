// SPDX-License-Identifier: Apache-2.0
//! One run of a transfer: the caller's objects that it keeps, its parts, and its end.

pub mod accesses;
mod block_bytes;
pub mod block_lease;
pub mod completion;
pub mod counters;
pub mod deadline;
pub mod epochs;
#[cfg(test)]
mod epochs_model;
pub mod findings;
mod holds;
pub mod learned;
mod log_lines;
pub mod method;
#[cfg(kvmem_model)]
mod models;
pub mod peer_leases;
pub mod phases;
pub mod queue;
pub mod reports;
mod shown;
pub mod spares;
mod spin;
mod state;
pub mod statistics;
pub mod steps;
mod stop;
pub mod tallies;
pub mod ticket;
pub mod trace;
pub mod unreleased;
pub mod used_bytes;

pub use accesses::PeerAccess;
pub use block_lease::BlockLease;
pub use completion::{Account, Completion, Limit, Outcome};
pub use epochs::ExpectedEpochs;
pub use findings::Findings;
pub use holds::RunHolds;
pub use learned::Record;
pub use method::TransferMethod;
pub use peer_leases::{Granted, LeaseRequest, PeerLeases};
pub use phases::Milestone;
pub use reports::Reports;
pub use spares::Spares;
pub use steps::{PartSequence, RunPart};
pub use stop::{FileProgress, Stop};
pub use tallies::Tallies;
pub use ticket::Ticket;
pub use unreleased::Unreleased;
pub use used_bytes::UsedBytes;

use std::sync::Arc;

use self::completion::MemoryUse;
use crate::base::disposal::dispose_of_then;
use crate::base::file_systems::FileSystems;
use crate::base::{Error, Once, Pool, Result, Shared, Status, leak};
use crate::layout::Layout;
use crate::nixl::{Agent, MemoryType, Released};
use crate::region::ExtentHold;

/// One run of a transfer. Its outcome is reported once: at the latest when it is dropped.
///
/// The run holds the layouts, so that engines need not. It drops them before it reports its end, with any outcome: after
/// the report the caller may deregister and free their memory. An engine drops its own references to objects of the caller
/// before it ends the run. In a struct, such fields are declared before the run, because fields are dropped in that order.
pub struct Run {
    completion: Arc<Completion>,
    life: Life,
    is_reported: bool,
    /// It has a deadline, whose message says how many bytes have moved.
    is_limited: bool,
    /// Dropped before the end is reported.
    held: Option<RunHolds>,
    /// The parts that run in order, and the index of the current one.
    steps: Option<(Arc<dyn Steps>, u64)>,
    /// Checks the blocks after the last byte.
    verification: Option<Arc<dyn Verify>>,
    /// What the source's blocks are expected to have. It may hold memory of the caller.
    epochs: Option<Arc<ExpectedEpochs>>,
    /// Deregisters memory if the run was its last user.
    agent: Option<Arc<Agent>>,
}

#[derive(PartialEq)]
enum Life {
    /// No thread sees it, and its drop reports nothing.
    Reserved,
    Started,
    Ended,
}

/// The parts of a run, one per layer. Each begins when the one before has ended.
pub trait Steps: Send + Sync {
    fn count(&self) -> u64;
    /// Starts a part. Drops these parts before, because the run may end on another thread before this returns, and the caller
    /// may free its memory then.
    fn start(self: Arc<Self>, part: u64, run: Run);
}

/// Checks moved blocks before the run ends: compares them with their expected contents, or computes their checksums.
pub trait Verify: Send + Sync {
    /// Whether there is something to do after the blocks were moved with this outcome, which may have been reported before.
    fn follows(&self, moved: &Outcome, is_reported: bool) -> bool;
    /// The outcome of the run after the blocks were moved with the outcome `moved`. Fails if the blocks differ, or if the run was
    /// cancelled before all of them were read.
    fn outcome(
        &self,
        moved: Outcome,
        layouts: &[Arc<Layout>; 2],
        stop: Stop,
        findings: &mut Findings,
    ) -> Outcome;
    /// Ends what the run uses of others, if the thread that has moved the last byte can do so in microseconds, and waits for nothing.
    /// Returns whether nothing of it is left: then that thread ends the run.
    fn ends_at_once(&self, _moved: &Outcome) -> bool {
        false
    }
    /// Reports to the peer that the blocks are right, if it waits for that.
    fn notify(&self) -> Outcome {
        Ok(())
    }
    /// What the requests to a file are reported to, if blocks are checked meanwhile.
    fn progress(&self) -> Option<Arc<dyn FileProgress>> {
        None
    }
}

/// Starts a part that is ready. A failure to start is the end of the run. It holds no objects of the caller that the run does not hold:
/// the run may end on another thread before it returns, and the caller may free its memory then.
pub type Start = Box<dyn FnOnce() + Send>;

/// The outcome of a run that was cancelled before all of it had begun.
pub fn cancelled() -> Error {
    Error::new(Status::Cancelled, "the transfer was cancelled before all of it had begun")
}

impl Run {
    fn reserved(completion: Arc<Completion>, held: RunHolds, is_limited: bool) -> Self {
        Self {
            completion,
            life: Life::Reserved,
            is_reported: false,
            is_limited,
            held: Some(held),
            steps: None,
            verification: None,
            epochs: None,
            agent: None,
        }
    }

    /// Sets the agent that executes the run. If the run is the last holder of a layout, the agent's thread deregisters the
    /// memory after the run has ended, and the end is reported after that.
    pub fn executed_by(mut self, agent: Arc<Agent>) -> Self {
        self.agent = Some(agent);
        self
    }

    /// Starts the first of several parts; each other one starts when the part before it has ended.
    pub fn in_steps(mut self, steps: Arc<dyn Steps>) {
        self.steps = Some((steps.clone(), 0));
        steps.start(0, self);
    }

    /// The source and the destination.
    pub fn layouts(&self) -> Option<&[Arc<Layout>; 2]> {
        self.held.as_ref().and_then(|held| held.layouts.as_ref())
    }

    /// Reports that `moved` layers have moved, unless the owner of their memory has decommitted it meanwhile.
    pub fn advance(&self, moved: u64) {
        if !self.is_reported && !self.completion.have_moved(moved) && self.ensure_unchanged().is_ok() {
            self.completion.advance(moved);
        }
    }

    /// Notes what it has reached. The first call for a milestone reads the clock.
    pub fn reach(&self, milestone: Milestone) {
        self.completion.reach(milestone);
    }

    /// Whether it was cancelled, by the caller or at its deadline.
    pub fn is_cancelled(&self) -> bool {
        self.completion.is_cancelled()
    }

    /// Whether its outcome was reported: early, or at its deadline.
    pub fn is_reported(&self) -> bool {
        self.is_reported || !self.completion.is_running()
    }

    pub fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Counts bytes that have moved, if it has a deadline.
    pub fn count(&self, bytes: u64) {
        if self.is_limited {
            self.completion.add_moved(bytes);
        }
    }

    /// Lets threads without access to the run check whether it was cancelled, and count the bytes that they move.
    pub fn stop(&self) -> Stop {
        let progress = self.verification.as_ref().and_then(|verification| verification.progress());
        Stop { completion: Some(self.completion.clone()), is_counting: self.is_limited, progress }
    }

    /// The same for threads that only move a part of the bytes.
    pub fn stop_without_count(&self) -> Stop {
        Stop { completion: Some(self.completion.clone()), ..Stop::default() }
    }

    fn ensure_unchanged(&self) -> Result<()> {
        let extents = self.held.iter().flat_map(|held| &held.extents);
        extents.flatten().try_for_each(ExtentHold::ensure_unchanged)
    }

    /// Reports the outcome before the run ends, so that the caller does not wait for requests that can't be cancelled. No
    /// new run can begin before the end, and later reports are ignored.
    pub fn report_early(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.is_reported, true) {
            self.completion.finish(Some(outcome), MemoryUse::GoesOn);
        }
    }

    /// Ends the run, or starts its next part. Once the end is reported, a new run may be submitted.
    pub fn end(mut self, outcome: Outcome) {
        let next = self.steps.as_ref().map(|(steps, part)| (steps.clone(), part + 1));
        let Some((steps, next)) = next.filter(|(steps, next)| outcome.is_ok() && *next < steps.count())
        else {
            return self.verify(outcome);
        };
        self.advance(next);
        if self.is_cancelled() {
            drop(steps);
            return self.finish(Err(cancelled()));
        }
        self.steps = Some((steps.clone(), next));
        steps.start(next, self);
    }

    /// Checks the moved blocks if this was requested. Then ends the run.
    fn verify(mut self, moved: Outcome) {
        let is_reported = self.is_reported();
        let verification = self.verification.as_ref();
        let is_followed = verification.is_some_and(|verification| verification.follows(&moved, is_reported));
        if moved.is_ok() {
            self.completion.reach_moved(is_followed);
        }
        if !is_followed {
            return self.finish(moved);
        }
        if verification.is_some_and(|verification| verification.ends_at_once(&moved)) {
            return self.check(moved, Ok(()));
        }
        // Not on this thread: it has other runs to serve. Computing the checksums may also move blocks, which this thread
        // may have to do, and it must not wait for itself.
        let file_systems = self.file_systems();
        let is_of_gpu = |layout: &Arc<Layout>| layout.memory_type() == MemoryType::Vram;
        let has_peer = self.held.as_ref().is_some_and(|held| held.peer.is_some());
        let may_stall = has_peer || self.layouts().is_some_and(|layouts| layouts.iter().any(is_of_gpu));
        let check = Once::new(move |thread| self.check(moved, thread));
        let shared = check.clone() as Arc<dyn Shared>;
        // A peer that does not respond, or a GPU that a kernel keeps busy, must not take the threads that all runs share.
        let passed = match may_stall {
            true => Pool::services().run_alone(shared).map(drop),
            false => Pool::checks(&file_systems).pass(&shared, 1),
        };
        if let Err(error) = passed {
            check.run_with(Err(error));
        }
    }

    /// Checks the moved blocks, if there is a thread for that. Then ends the run.
    fn check(&mut self, moved: Outcome, thread: Result<()>) {
        let verification = self.verification.take();
        let mut findings = Findings::default();
        let outcome = match (&verification, self.layouts(), thread) {
            (_, _, Err(error)) => moved.and(Err(error.context("verify moved blocks"))),
            (Some(verification), Some(layouts), _) => {
                verification.outcome(moved, layouts, self.stop_without_count(), &mut findings)
            }
            _ => moved,
        };
        self.completion.note(findings);
        let outcome = outcome.and_then(|()| self.ensure_unchanged());
        let outcome = match &verification {
            Some(verification) if outcome.is_ok() && !self.is_reported() => verification.notify(),
            _ => outcome,
        };
        self.reach(Milestone::Verified);
        drop(verification);
        self.finish(outcome);
    }

    /// The file systems that its layouts have files on.
    pub fn file_systems(&self) -> FileSystems {
        let of_layouts = self.layouts().and_then(|layouts| {
            layouts.iter().map(|layout| layout.file_systems()).find(|file_systems| !file_systems.is_empty())
        });
        of_layouts.cloned().unwrap_or_default()
    }

    /// Fails if the owner of the source has raised the epoch of a block meanwhile: then the bytes, which may have been found damaged,
    /// are of another use. The engine has compared those of a peer.
    fn of_expected_epochs(&mut self, outcome: Outcome) -> Outcome {
        let Some(epochs) = self.epochs.take() else { return outcome };
        let have_moved = outcome.as_ref().map_or_else(|error| error.status() == Status::Corrupt, |()| true);
        let outcome = if have_moved && !epochs.is_remote() { epochs.check().and(outcome) } else { outcome };
        let mismatches = epochs.take_stale();
        if !mismatches.is_empty() {
            self.completion.note(Findings { mismatches, ..Findings::default() });
        }
        outcome
    }

    /// Drops the objects that the run holds, except layouts of which it was the last holder.
    fn release(&mut self) -> Vec<Layout> {
        drop((self.steps.take(), self.verification.take()));
        self.held.take().map(RunHolds::release).unwrap_or_default()
    }

    /// Ends the run while hardware may still move its bytes and the end of that can't be detected. Intentionally leaks the
    /// objects that the run holds. Other runs into the same bytes do not begin.
    pub fn abandon(mut self, error: Error) {
        let held = self.held.take();
        let memory = held.as_ref().map(RunHolds::device_memory).unwrap_or_default();
        leak::with_memory((held, self.verification.take()), memory);
        self.finish_with(Err(error), MemoryUse::Unknown);
    }

    fn finish(&mut self, outcome: Outcome) {
        self.finish_with(outcome, MemoryUse::Over);
    }

    fn finish_with(&mut self, outcome: Outcome, memory: MemoryUse) {
        if std::mem::replace(&mut self.life, Life::Ended) == Life::Ended {
            return;
        }
        // The data is invalid if the owner, another process, has decommitted its memory meanwhile.
        let outcome = outcome.and_then(|()| self.ensure_unchanged());
        let outcome = self.of_expected_epochs(outcome);
        let last = self.release();
        let outcome = (!std::mem::replace(&mut self.is_reported, true)).then_some(outcome);
        let agent = self.agent.take();
        if last.is_empty() {
            // Without anything to deregister the agent is dropped here, before the report.
            drop(agent);
            return self.completion.finish(outcome, memory);
        }
        let report = Report { outcome, completion: self.completion.clone() };
        match agent {
            Some(agent) => {
                drop(last);
                agent.defer(Released::Object(Box::new(report)));
            }
            None => dispose_of_then(&holds::blockers(&last), last, move || drop(report)),
        }
    }
}

/// Reports the end of a run when it is dropped. After that the caller may free the memory and start the next run.
struct Report {
    outcome: Option<Outcome>,
    completion: Arc<Completion>,
}

impl Drop for Report {
    fn drop(&mut self) {
        self.completion.finish(self.outcome.take(), MemoryUse::Over);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        match self.life {
            Life::Reserved => {
                self.release();
                self.completion.unclaim();
            }
            Life::Started => {
                self.finish(Err(Error::new(Status::Panic, "the transfer was dropped before its end")));
            }
            // An error allocates, which a run that has ended must not.
            Life::Ended => {}
        }
    }
}
