// SPDX-License-Identifier: Apache-2.0
//! One run of a transfer: what it keeps of the caller's, its parts, and its end.

pub mod completion;
pub mod disposal;
pub mod history;
pub mod queue;
mod spin;
pub mod steps;
pub mod threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use self::completion::{Account, Before, Completion, Outcome};
use self::threads::Pool;
use crate::error::{Error, Result, Status};
use crate::layout::Layout;
use crate::leak;
use crate::log::log;
use crate::nixl::{Agent, RemoteHold};
use crate::region::ExtentHold;

/// One run of a transfer. Its outcome is reported once: at the latest when it is dropped.
///
/// The run keeps the layouts, so that the engines need not: it drops them before it reports its end, however it ends. After the
/// report the caller may deregister and free their memory. Whatever else of the caller's an engine uses, it drops before it
/// ends the run, and declares before the run where both are fields of one struct, because fields are dropped in that order.
pub struct Run {
    completion: Arc<Completion>,
    before: Before,
    busy: Arc<AtomicBool>,
    started: Instant,
    told: bool,
    ended: bool,
    /// Dropped before the end is reported.
    held: Option<Held>,
    /// The parts that begin one after the other, and which of them is under way.
    steps: Option<(Arc<dyn Steps>, u64)>,
    /// What is compared when all has moved.
    verification: Option<Arc<dyn Verify>>,
    /// Deregisters memory that the run was the last to use.
    agent: Option<Arc<Agent>>,
}

/// A run in parts, each of which begins when the one before has ended: a part is a layer.
pub trait Steps: Send + Sync {
    /// How many parts.
    fn count(&self) -> u64;
    /// Prepares the start of one.
    fn prepare(&self, part: u64, run: Run) -> Result<Start>;
}

/// Compares moved blocks with what is expected, before the run ends.
pub trait Verify: Send + Sync {
    /// Fails if the blocks differ.
    fn outcome(&self, layouts: &[Arc<Layout>; 2]) -> Outcome;
}

/// Starts a part. It holds only what the run holds too: the run may end on another thread before this returns, and the caller
/// must not keep what the parts hold until then.
pub type Start = Box<dyn FnOnce() -> Result<()> + Send>;

/// Tells whoever works at a run whether its user wants no more of it to begin.
#[derive(Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Whether nothing more shall begin.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The outcome of a run of which something has not begun.
pub fn cancelled() -> Error {
    Error::new(Status::Cancelled, "the transfer was cancelled before all of it had begun")
}

/// What a run keeps of the caller's.
#[derive(Default)]
pub struct Held {
    /// The source and the destination.
    pub layouts: Option<[Arc<Layout>; 2]>,
    /// The extents of the two that it touches.
    pub extents: [Vec<ExtentHold>; 2],
    /// The peer's metadata, which must stay loaded.
    pub peer: Option<RemoteHold>,
}

impl Held {
    /// Drops all of it, and returns whether it was the last holder of a layout.
    fn release(self) -> bool {
        drop((self.extents, self.peer));
        self.layouts.into_iter().flatten().filter_map(Arc::into_inner).count() > 0
    }
}

impl Run {
    /// Begins a run; `busy` is cleared when it is over.
    pub fn start(completion: Arc<Completion>, busy: Arc<AtomicBool>, account: Account, held: Held) -> Self {
        let before = completion.begin(account);
        let started = Instant::now();
        Self {
            completion,
            before,
            busy,
            started,
            told: false,
            ended: false,
            held: Some(held),
            steps: None,
            verification: None,
            agent: None,
        }
    }

    /// Notes the agent that carries the run. If the run is the last holder of a layout, the agent's thread deregisters the
    /// memory later than it ends the run, and the end is reported after that.
    pub fn carried_by(mut self, agent: Arc<Agent>) -> Self {
        self.agent = Some(agent);
        self
    }

    /// Has what was moved compared before the run is over.
    pub fn verified_by(mut self, verification: Arc<dyn Verify>) -> Self {
        self.verification = Some(verification);
        self
    }

    /// Begins the first of several parts; the others follow as each ends.
    pub fn in_steps(mut self, steps: Arc<dyn Steps>) -> Result<()> {
        self.steps = Some((steps.clone(), 0));
        Self::start_part(steps, 0, self)
    }

    fn start_part(steps: Arc<dyn Steps>, part: u64, run: Self) -> Result<()> {
        let start = steps.prepare(part, run)?;
        drop(steps);
        start()
    }

    /// The source and the destination.
    pub fn layouts(&self) -> Option<&[Arc<Layout>; 2]> {
        self.held.as_ref().and_then(|held| held.layouts.as_ref())
    }

    /// Whether ending it frees a layout, which may take long. A handle that its user destroys at this very moment is not
    /// counted as gone yet.
    pub fn is_last_holder(&self) -> bool {
        let Some([source, destination]) = self.layouts() else { return false };
        let own = if Arc::ptr_eq(source, destination) { 2 } else { 1 };
        [source, destination].into_iter().any(|layout| Arc::strong_count(layout) <= own)
    }

    /// Tells that so many layers have moved. Those of memory that its owner has taken back meanwhile are not told of.
    pub fn advance(&self, moved: u64) {
        if !self.told && !self.completion.have_moved(moved) && self.ensure_unchanged().is_ok() {
            self.completion.advance(moved);
        }
    }

    /// Whether its user wants no more of it to begin.
    pub fn is_cancelled(&self) -> bool {
        self.completion.cancellation().load(Ordering::Acquire)
    }

    /// The same for who does not have the run.
    pub fn stop(&self) -> Stop {
        Stop(self.completion.cancellation().clone())
    }

    fn ensure_unchanged(&self) -> Result<()> {
        let extents = self.held.iter().flat_map(|held| &held.extents);
        extents.flatten().try_for_each(ExtentHold::ensure_unchanged)
    }

    /// Tells the outcome before the run is over: its user need not wait for what can't be stopped. No new run can
    /// begin yet, and what is told later is not heard.
    pub fn tell_early(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.told, true) {
            self.completion.finish(outcome, self.started.elapsed(), None);
        }
    }

    /// Ends the run, or begins its next part: a new run may be submitted by whoever hears of the end.
    pub fn end(mut self, outcome: Outcome) {
        let next = self.steps.as_ref().map(|(steps, part)| (steps.clone(), part + 1));
        let Some((steps, next)) = next.filter(|(steps, next)| outcome.is_ok() && *next < steps.count())
        else {
            return self.verify(outcome);
        };
        self.advance(next);
        if self.is_cancelled() {
            drop(steps);
            return self.over(Err(cancelled()));
        }
        self.steps = Some((steps.clone(), next));
        if let Err(error) = Self::start_part(steps, next, self) {
            log!(Error, "layer {next} of a transfer could not be started: {error}");
        }
    }

    /// Has what was moved compared, where that is asked for and anybody hears of it; else it is over.
    fn verify(mut self, outcome: Outcome) {
        let Some(verification) = self.verification.take().filter(|_| outcome.is_ok() && !self.told) else {
            return self.over(outcome);
        };
        // The thread that moved the blocks has others to look after. It may also have to move them for the checksums, and
        // must not wait for itself.
        Pool::checks().hand_over(move |handed_over| {
            let outcome = match self.layouts() {
                Some(layouts) if handed_over => verification.outcome(layouts),
                _ => {
                    Err(Error::new(Status::OutOfMemory, "no thread could be started to verify moved blocks"))
                }
            };
            drop(verification);
            self.over(outcome);
        });
    }

    /// Ends the run because its engine could not begin it, or its next part. If nothing has begun, the failure is that of
    /// the submission, so no completion is reported.
    pub fn not_begun(mut self, error: &Error) {
        if self.steps.as_ref().is_some_and(|(_, part)| *part > 0) {
            return self.over(Err(error.clone()));
        }
        self.ended = true;
        self.release();
        log!(Debug, "transfer {} could not be started: {error}", self.completion.log_id());
        self.completion.withdraw(&self.before, &self.busy);
    }

    /// Drops what the run keeps, and returns whether it was the last holder of a layout.
    fn release(&mut self) -> bool {
        drop((self.steps.take(), self.verification.take()));
        self.held.take().is_some_and(Held::release)
    }

    /// Ends the run while something may still move its bytes and no longer reports when it is done. Intentionally leaks
    /// what the run holds.
    pub fn end_for_good(mut self, error: Error) {
        leak::intentionally(self.held.take());
        self.over(Err(error));
    }

    fn over(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        // Bytes of memory that its owner, another process, has taken back meanwhile are nobody's.
        let outcome = outcome.and_then(|()| self.ensure_unchanged());
        let was_last = self.release();
        let report = Report {
            outcome: (!std::mem::replace(&mut self.told, true)).then_some(outcome),
            completion: self.completion.clone(),
            busy: self.busy.clone(),
            started: self.started,
        };
        match self.agent.take() {
            Some(agent) if was_last => agent.defer(move |_| drop(report)),
            _ => drop(report),
        }
    }
}

/// Reports the end of a run when it is dropped: then the caller may free the memory, and start the next run.
struct Report {
    /// None if it was reported early.
    outcome: Option<Outcome>,
    completion: Arc<Completion>,
    busy: Arc<AtomicBool>,
    started: Instant,
}

impl Drop for Report {
    fn drop(&mut self) {
        match self.outcome.take() {
            Some(outcome) => self.completion.finish(outcome, self.started.elapsed(), Some(&self.busy)),
            None => self.busy.store(false, Ordering::Release),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.over(Err(Error::new(Status::Panic, "the transfer was given up before its end")));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;

    /// Two parts. The start of the second returns only after the run has ended on another thread and that was reported.
    struct Parts {
        completion: Arc<Completion>,
        own: Weak<Parts>,
    }

    impl Steps for Parts {
        fn count(&self) -> u64 {
            2
        }

        fn prepare(&self, part: u64, run: Run) -> Result<Start> {
            let (completion, parts) = (self.completion.clone(), self.own.clone());
            Ok(Box::new(move || {
                if part == 0 {
                    run.end(Ok(()));
                    return Ok(());
                }
                let elsewhere = std::thread::spawn(move || run.end(Ok(())));
                completion.wait(None)?;
                assert!(parts.upgrade().is_none(), "the parts are held after the end was reported");
                elsewhere.join().unwrap();
                Ok(())
            }))
        }
    }

    #[test]
    fn the_parts_are_dropped_before_the_end_is_reported() {
        let completion = Arc::new(Completion::new(2, None));
        let parts =
            Arc::new_cyclic(|own: &Weak<Parts>| Parts { completion: completion.clone(), own: own.clone() });
        let run = Run::start(completion.clone(), Arc::default(), Account::default(), Held::default());
        run.in_steps(parts).unwrap();
        completion.wait(None).unwrap();
    }
}
