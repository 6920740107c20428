// SPDX-License-Identifier: Apache-2.0
//! A run of a transfer over NIXL.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::extent_guard::ControlRead;
use super::flow::{BusyTime, Flow};
use super::prepared_requests::{PreparedRequests, RunRequests, Spare};
use super::run_flow::stalled;
use crate::base::{Error, Result, Status, error, leak, log};
use crate::engine::cost::requests::{Sample, ServedSize, places_of};
use crate::layout::RemoteMemory;
use crate::nixl::{AgentState, AgentTask, RequestId, TaskStep};
use crate::run::{Milestone, Outcome, Run, cancelled};

/// Interval between checks of a peer that makes no progress.
pub const LIVENESS: Duration = Duration::from_millis(250);
/// How long the report of a failure waits for the peer's process to end: its sockets close before it ends.
pub const DYING: Duration = Duration::from_millis(500);

/// One run, executed in steps on the agent's thread. It ends when NIXL no longer uses the memory, even if the peer is lost.
pub(super) struct NixlRun {
    /// Where this is put at its end.
    spare: Weak<Spare>,
    /// `None` until the first step, and after the last. It holds objects of the caller, like `prepared`.
    flow: Option<Flow>,
    control_read: Option<ControlRead>,
    in_flight: Vec<RequestId>,
    failure: Option<(Error, Instant)>,
    /// NIXL reported the failure of a request. The backend may still execute parts of it.
    has_failed_request: bool,
    last_progress: Instant,
    /// When the peer was last seen alive, or the last request ended.
    last_check: Instant,
    busy: BusyTime,
    /// Bytes that were counted as moved.
    counted: u64,
    /// The outcome was reported while requests were still in flight.
    is_reported: bool,
    /// Dropped before the end of the run is reported, because the caller may free the memory after that. Declared before
    /// `run`, so that this also holds if the run is dropped.
    prepared: Option<Arc<PreparedRequests>>,
    run: Option<Run>,
    /// How the run ends, once that is known.
    ending: Option<Ending>,
}

enum Ending {
    Over(Outcome),
    /// NIXL may still use the memory.
    Abandoned(Error),
}

impl AgentTask for NixlRun {
    fn step(&mut self, state: &mut AgentState) -> TaskStep {
        self.fail_if_cancelled();
        if self.flow.is_none() && self.failure.is_none() {
            self.begin(state);
            return TaskStep::Progressed;
        }
        if let Some(step) = self.read_control(state) {
            return step;
        }
        // Each may progress: requests that end free slots, and slots are filled for requests.
        let progress = [self.poll(state), self.advance(state), self.post_next(state)];
        if self.is_over() {
            if self.begins_last_control_read() {
                return TaskStep::Progressed;
            }
            if self.peer_may_be_dying() {
                return TaskStep::Waiting;
            }
            self.finish(state);
            return TaskStep::Done;
        }
        if progress.contains(&true) {
            self.note_progress();
            return TaskStep::Progressed;
        }
        self.check_peer();
        if self.failure.is_some() { TaskStep::Waiting } else { TaskStep::InFlight }
    }

    fn end(mut self: Box<Self>) {
        let (run, ending, spare) = (self.run.take(), self.ending.take(), self.spare.upgrade());
        // Before the end is reported, so that the next run finds it.
        match spare {
            Some(spare) => spare.put(self),
            None => drop(self),
        }
        match (run, ending) {
            (Some(run), Some(Ending::Over(outcome))) => run.end(outcome),
            (Some(run), Some(Ending::Abandoned(error))) => run.abandon(error),
            (run, _) => drop(run),
        }
    }

    fn not_begun(&mut self, error: &Error) {
        self.prepared = None;
        if let Some(run) = self.run.take() {
            run.end(Err(error.clone()));
        }
    }

    fn abandon(&mut self, error: Error) {
        self.prepared.iter().for_each(|prepared| prepared.abandon());
        self.flow.iter_mut().for_each(|flow| flow.abandon());
        if let Some(run) = self.run.take() {
            run.abandon(error);
        }
    }
}

impl NixlRun {
    /// A run, in the memory of the one before it if that has ended.
    pub fn boxed(prepared: &Arc<PreparedRequests>, run: Run) -> Box<Self> {
        match prepared.spare.take::<Self>() {
            None => Box::new(Self::new(prepared.clone(), run)),
            Some(mut spare) => {
                let in_flight = std::mem::take(&mut spare.in_flight);
                *spare = Self { in_flight, ..Self::new(prepared.clone(), run) };
                spare
            }
        }
    }

    pub fn new(prepared: Arc<PreparedRequests>, run: Run) -> Self {
        let now = Instant::now();
        Self {
            spare: Arc::downgrade(&prepared.spare),
            ending: None,
            flow: None,
            control_read: None,
            in_flight: Vec::new(),
            failure: None,
            has_failed_request: false,
            last_progress: now,
            last_check: now,
            busy: BusyTime::default(),
            counted: 0,
            is_reported: false,
            run: Some(run),
            prepared: Some(prepared),
        }
    }

    fn peer(&self) -> Option<&RemoteMemory> {
        self.prepared.as_ref().and_then(|prepared| prepared.peer())
    }

    /// Whether no request is left, and none is in flight.
    fn is_over(&self) -> bool {
        self.in_flight.is_empty() && self.flow.as_ref().is_none_or(|flow| flow.is_over())
    }

    fn note_progress(&mut self) {
        self.last_progress = Instant::now();
        self.last_check = self.last_progress;
        if let (Some(run), Some(flow)) = (self.run.as_ref().filter(|run| run.is_limited()), &self.flow) {
            let moved = flow.moved();
            run.count(moved - self.counted);
            self.counted = moved;
        }
    }

    fn begin(&mut self, state: &mut AgentState) {
        let Some(prepared) = &self.prepared else { return };
        self.run.iter().for_each(|run| run.reach(Milestone::Begun));
        match prepared.begin(state) {
            Ok(RunRequests { mut flow, control_read }) => {
                if self.run.as_ref().is_some_and(Run::is_limited) {
                    flow.count_bytes();
                }
                self.flow = Some(flow);
                self.control_read = control_read;
            }
            Err(error) => self.fail(error),
        }
    }

    /// Cancels the requests that were not posted, if the caller cancelled the run.
    fn fail_if_cancelled(&mut self) {
        let has_more = self.flow.as_ref().is_none_or(|flow| flow.has_more());
        if has_more && self.failure.is_none() && self.run.as_ref().is_some_and(Run::is_cancelled) {
            self.fail(cancelled());
        }
    }

    /// Continues a read of the peer's control block, if one is due.
    fn read_control(&mut self, state: &mut AgentState) -> Option<TaskStep> {
        let is_over = self.is_over();
        let guard = self.prepared.as_ref().and_then(|prepared| prepared.guard.as_ref());
        let (outcome, has_failed) = self.control_read.as_mut()?.advance(state, guard, is_over)?;
        self.has_failed_request |= has_failed;
        match outcome {
            Ok(true) => self.note_progress(),
            Ok(false) => {
                self.check_peer();
                return Some(if self.failure.is_some() { TaskStep::Waiting } else { TaskStep::InFlight });
            }
            Err(error) => {
                // Bytes that were found damaged are of another use.
                let is_stale = error.status() == Status::Stale;
                self.failure.take_if(|(known, _)| is_stale && known.status() == Status::Corrupt);
                self.fail(error);
            }
        }
        Some(TaskStep::Progressed)
    }

    /// Begins the last read of the control block, unless it was begun or is not needed, or waits for the first. The end is reported after it.
    fn begins_last_control_read(&mut self) -> bool {
        let is_needed = self.failure.as_ref().is_none_or(|(error, _)| error.status() == Status::Corrupt);
        self.control_read.as_mut().is_some_and(|read| read.is_in_flight() || is_needed && read.begin_last())
    }

    /// Handles the requests that have ended. Returns whether there were any.
    fn poll(&mut self, state: &mut AgentState) -> bool {
        let mut has_progressed = false;
        let (mut failure, mut refusal) = (None, None);
        let is_first = self.failure.is_none();
        let Self { in_flight, flow, .. } = self;
        in_flight.retain(|id| {
            let result = match state.is_done(*id) {
                // Only the first failure is reported.
                Err(error) if is_first && failure.is_none() => Err(state.explain_object(*id, error)),
                result => result,
            };
            let is_over = !matches!(result, Ok(false));
            if let (true, Some(flow)) = (is_over, flow.as_mut()) {
                match flow.ended(state, *id, result.is_err()) {
                    Ok(progress) => has_progressed |= progress,
                    Err(error) => refusal = Some(error),
                }
            }
            failure = failure.take().or(result.err());
            !is_over
        });
        self.busy.end_if(self.in_flight.is_empty());
        match failure {
            Some(error) => self.fail_request(error),
            None if has_progressed => self.note_moved(),
            None => {}
        }
        if let Some(error) = refusal {
            self.fail(error);
        }
        has_progressed
    }

    /// Notes that requests have ended, for runs that wait for what this one has.
    fn note_moved(&self) {
        let now = Instant::now();
        if let (Some(remote), Some(flow)) = (self.peer(), &self.flow) {
            remote.peer.note_moved(now);
            flow.note_moved(now);
        }
    }

    /// Handles copies between an arena and local memory, and messages.
    fn advance(&mut self, state: &mut AgentState) -> bool {
        let Some(flow) = &mut self.flow else { return false };
        flow.advance(state).unwrap_or_else(|error| {
            self.fail(error);
            true
        })
    }

    /// Posts one request: the call may take as long as its copy. Returns whether there was one to post.
    fn post_next(&mut self, state: &mut AgentState) -> bool {
        let is_possible = |prepared: &Arc<PreparedRequests>| {
            self.in_flight.len() < prepared.window && prepared.request_plan.has_space(state)
        };
        let is_possible = self.prepared.as_ref().is_some_and(is_possible);
        let Some(flow) = self.flow.as_mut().filter(|_| is_possible) else { return false };
        let id = match flow.next(state) {
            Ok(Some(id)) => id,
            Ok(None) => return false,
            Err(error) => {
                self.fail(error);
                return true;
            }
        };
        self.busy.begin();
        self.run.iter().for_each(|run| run.reach(Milestone::Gathered));
        let is_poll = flow.is_poll(id);
        let result = state.post(id).map_err(|error| state.explain_object(id, error));
        let ended = match result {
            Ok(false) => Ok(!is_poll),
            _ => flow.ended(state, id, result.is_err()),
        };
        match result {
            Ok(true) if is_poll => {}
            Ok(true) => self.note_moved(),
            Ok(false) => self.in_flight.push(id),
            Err(error) => self.fail_request(error),
        }
        self.busy.end_if(self.in_flight.is_empty());
        ended.unwrap_or_else(|error| {
            self.fail(error);
            true
        })
    }

    fn fail_request(&mut self, error: Error) {
        self.has_failed_request = true;
        self.fail(error);
    }

    /// Prevents further requests from being posted. Those in flight complete.
    fn fail(&mut self, error: Error) {
        if let Some(flow) = &mut self.flow {
            flow.stop();
        }
        if self.failure.is_none() {
            self.failure = Some((error, Instant::now()));
        }
    }

    fn peer_may_be_dying(&self) -> bool {
        let Some((error, since)) = &self.failure else { return false };
        let is_known = matches!(error.status(), Status::Stale | Status::Cancelled);
        let recent = !is_known && since.elapsed() < DYING;
        recent && self.peer().is_some_and(|remote| remote.process.is_visible() && !remote.process.is_gone())
    }

    /// Adds to an error where in the run it occurred, unless the caller ended the run.
    fn located(&self, error: Error) -> Error {
        match &self.flow {
            Some(flow) if error.status() != Status::Cancelled => flow.located(error),
            _ => error,
        }
    }

    /// Adds to an error whether the peer's process has ended, which NIXL does not report.
    fn explain(&self, error: Error) -> Error {
        match self.peer() {
            // The cause is already known.
            _ if matches!(error.status(), Status::Stale | Status::Cancelled) => error,
            Some(remote) if remote.process.is_gone() => remote.peer.lost(&remote.process, error),
            Some(remote) => {
                remote.peer.explain_posted(error.context(format!("with agent '{}'", remote.peer.name())))
            }
            None => error,
        }
    }

    /// Reports the outcome early if the peer's process has ended, or if nothing was moved for too long: a request to it may
    /// never end, even after a cancellation or a failure. The memory stays allocated until NIXL no longer uses it.
    fn check_peer(&mut self) {
        let is_reported = self.is_reported || self.run.as_ref().is_some_and(Run::is_reported);
        if is_reported || self.last_check.elapsed() < LIVENESS {
            return;
        }
        self.last_check = Instant::now();
        let Some(remote) = self.peer() else { return };
        let unfinished = if remote.process.is_gone() {
            error!(PeerLost, "requests to it are still in flight")
        } else {
            let awaited = self.flow.as_ref().and_then(|flow| flow.awaited());
            let stall_timeout = self.prepared.as_ref().and_then(|prepared| prepared.stall_timeout);
            let last_progress = self.last_progress;
            let Some(error) = stalled(awaited, &remote.peer, last_progress, stall_timeout) else { return };
            error
        };
        let failure = self.failure.as_ref().map_or(unfinished, |(error, _)| error.clone());
        let explained = self.explain(self.located(failure.clone()));
        log!(Warn, "{explained}");
        self.is_reported = true;
        if let Some(run) = &mut self.run {
            run.report_early(Err(explained));
        }
        self.fail(failure);
    }

    /// Finds how the run ends, and drops what belongs to the caller. No request is in flight.
    fn finish(&mut self, state: &mut AgentState) {
        let holds_memory = self.flow.as_mut().is_some_and(|flow| flow.close(state));
        let outcome = match self.failure.take() {
            Some((error, _)) => Err(self.explain(self.located(error))),
            // The peer would take the blocks for right.
            None if self.run.as_ref().is_some_and(Run::is_reported) => Ok(()),
            None => {
                self.note_rates();
                self.notify(state)
            }
        };
        let released = self.release_failed(state).and(match holds_memory {
            true => Err(error!(Nixl, "a request between the layouts was not released")),
            false => Ok(()),
        });
        let (flow, prepared) = (self.flow.take(), self.prepared.take());
        self.ending = Some(match (released, outcome) {
            (Ok(()), outcome) => {
                if let Some(prepared) = prepared {
                    prepared.keep(flow);
                }
                Ending::Over(outcome)
            }
            (Err(unreleased), outcome) => {
                log!(
                    Error,
                    "{unreleased}; kvmem intentionally leaks the memory of both layouts; {}",
                    leak::COUNTED
                );
                leak::intentionally(prepared);
                Ending::Abandoned(outcome.err().unwrap_or(unreleased))
            }
        });
    }

    /// Releases the requests if NIXL reported a failure of one: the backend may use the memory until they are released.
    fn release_failed(&self, state: &mut AgentState) -> Result<()> {
        match &self.prepared {
            Some(prepared) if self.has_failed_request => prepared.release_requests(state),
            _ => Ok(()),
        }
    }

    /// Notes what the requests took, to choose between methods.
    fn note_rates(&self) {
        let Some(prepared) = &self.prepared else { return };
        let Some(rates) = &prepared.rates else { return };
        let seconds = self.busy.all.as_secs_f64();
        let plan = &prepared.request_plan.plan;
        if let Some(Flow::Served(flow)) = &self.flow {
            return rates.add_served(&ServedSize::new(plan, flow.sessions()), flow.seconds());
        }
        rates.add(&match &self.flow {
            Some(Flow::Staged(flow)) => Sample { seconds, places: places_of(plan), ..flow.sample },
            _ => Sample {
                descriptors: plan.max_moves(),
                transferred: plan.bytes(),
                seconds,
                ..Sample::default()
            },
        });
    }

    fn notify(&self, state: &mut AgentState) -> Result<()> {
        let message = self.prepared.as_ref().and_then(|prepared| prepared.notification.as_ref());
        match (message, self.peer()) {
            (Some(message), Some(remote)) => state.notify_remote(&remote.peer, message).map_err(|error| {
                self.explain(error.context("the blocks have arrived, but the notification was not sent"))
            }),
            _ => Ok(()),
        }
    }
}
