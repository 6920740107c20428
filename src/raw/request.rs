// SPDX-License-Identifier: Apache-2.0
//! A request on raw descriptors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::raw_run::{Posting, RequestRun, Resource};
use super::{Holds, Prepared};
use crate::base::log::{Level, enabled, log};
use crate::base::{Error, Result, deadline_of, ensure, guarded, leak, lists, nvtx};
use crate::nixl::{
    Agent, AgentState, CallOptions, Command, CostEstimate, Descriptors, MemoryType, NewRequest, Operation,
    Pace, Remote, RemoteHold, RequestSide, RequestSource, TaskStep, Telemetry, is_short,
};
use crate::run::phases::now;
use crate::run::statistics::{CountedAs, Direction};
use crate::run::{Account, Completion, Limit, Reports, RunHolds, Tallies, Ticket, Unreleased, UsedBytes};

/// How long each run of a request may take, and where its end is reported.
#[derive(Clone, Default)]
pub struct RunOptions {
    pub reports: Reports,
    /// The value of the completion.
    pub user_data: u64,
    /// After this duration a run ends as timed out. `None` for no limit.
    pub limit: Option<Duration>,
}

/// How the thread that posts a run leaves it, unless it is complete. Small, so that it is returned in registers.
enum Open {
    /// The agent's thread has to post it.
    Due,
    InFlight,
    /// It cannot be posted.
    Refused(Error),
    /// NIXL has not posted it.
    Failed(Error),
    /// It is unknown what NIXL does for it.
    Panicked(Error),
}

/// A request on raw descriptors. It can be posted again and again. A run in flight continues if this is dropped.
pub struct Request {
    resource: Arc<Resource>,
    completion: Arc<Completion>,
    options: CallOptions,
    user_data: u64,
    limit: Option<Arc<Limit>>,
    bytes: u64,
    counted: CountedAs,
    /// The memory of this process that a run reads or writes, if it does.
    used: Option<Arc<UsedBytes>>,
    /// The thread that posts makes the calls of NIXL. Files are written by the agent's thread, which blocks the signal of a file
    /// that grows too large. A call of NIXL may not return: a run with a deadline must not keep the thread that posts it.
    begins_here: bool,
}

impl Request {
    /// A request on two lists of descriptors, which correspond by index.
    pub fn create(
        agent: &Arc<Agent>,
        operation: Operation,
        local: &Descriptors,
        (owner, remote): (&str, &Descriptors),
        options: CallOptions,
        of_runs: RunOptions,
    ) -> Result<Self> {
        ensure_corresponding(local, remote)?;
        let holds = Holds::new(agent, local)?;
        let new = NewRequest {
            operation,
            local: local.clone(),
            remote: remote.clone(),
            source: RequestSource::Owner(owner.to_string()),
            options,
            names_storage: of_runs.limit.is_some(),
        };
        Self::new(agent, new, None, holds, of_runs)
    }

    /// A request on descriptors of two prepared lists, which correspond by position in the lists of indices.
    pub fn make(
        operation: Operation,
        (local, local_indices): (&Arc<Prepared>, &[u32]),
        (remote, remote_indices): (&Arc<Prepared>, &[u32]),
        options: CallOptions,
        of_runs: RunOptions,
    ) -> Result<Self> {
        let agent = &local.agent;
        ensure!(
            Arc::ptr_eq(agent, &remote.agent),
            InvalidArgument,
            "the local list was prepared by agent '{}', the remote list by agent '{}'; prepare both with one agent",
            agent.name(),
            remote.agent.name()
        );
        for (list, is_local, own, other) in
            [(local, true, "local", "remote"), (remote, false, "remote", "local")]
        {
            ensure!(
                list.is_local() == is_local,
                InvalidArgument,
                "the {own} list was prepared for the {other} side of requests"
            );
        }
        let (local_chosen, local_numbers) = local.chosen(local_indices, "local_indices")?;
        let (remote_chosen, remote_numbers) = remote.chosen(remote_indices, "remote_indices")?;
        ensure_corresponding(&local_chosen, &remote_chosen)?;
        let new = NewRequest {
            operation,
            local: local_chosen,
            remote: remote_chosen,
            source: RequestSource::Prepared([(local.id, local_numbers), (remote.id, remote_numbers)]),
            options,
            names_storage: of_runs.limit.is_some(),
        };
        Self::new(agent, new, Some([local.clone(), remote.clone()]), Holds::default(), of_runs)
    }

    fn new(
        agent: &Arc<Agent>,
        new: NewRequest,
        prepared: Option<[Arc<Prepared>; 2]>,
        holds: Holds,
        of_runs: RunOptions,
    ) -> Result<Self> {
        let (operation, local, options) = (new.operation, new.local.clone(), new.options.clone());
        let used = used(operation, &local)?;
        nvtx::load();
        let (id, side, storage) = agent.call(|reply| Command::CreateRequest(Box::new(new), reply))?;
        let is_over = AtomicBool::new(false);
        let resource = Resource { agent: agent.clone(), id, side, is_over, prepared, holds };
        Ok(Self::around(resource, storage, (operation, used, &local), options, of_runs))
    }

    fn around(
        resource: Resource,
        storage: Option<String>,
        (operation, used, local): (Operation, Option<Arc<UsedBytes>>, &Descriptors),
        options: CallOptions,
        of_runs: RunOptions,
    ) -> Self {
        let RunOptions { mut reports, user_data, limit } = of_runs;
        reports.tallies = Some(Arc::new(Tallies::of_requests(&resource.agent)));
        let limit = limit.map(|after| Arc::new(limited(after, &resource.side, storage)));
        let (bytes, descriptors) = (total(local), local.entries().len() as u64);
        let is_to_peer = matches!(resource.side, RequestSide::Peer(_));
        let direction = match (operation, is_to_peer) {
            (Operation::Read, true) => Direction::Pull,
            (Operation::Write, true) => Direction::Push,
            (Operation::Read, false) => Direction::Read,
            (Operation::Write, false) => Direction::Write,
        };
        Self {
            used,
            begins_here: is_short(bytes, descriptors) && is_to_peer && limit.is_none(),
            resource: Arc::new(resource),
            completion: Arc::new(Completion::reporting(0, reports)),
            options,
            user_data,
            limit,
            bytes,
            counted: CountedAs { method: None, direction },
        }
    }

    /// Starts a run. A notification, unless it is empty, replaces that of the request, for this run and those after it.
    pub fn post(&self, notification: &[u8]) -> Result<()> {
        // NIXL drops the notification of a request that is posted with other options.
        let options = if notification.is_empty() {
            None
        } else {
            let notification = Some(lists::copied(notification)?);
            Some(CallOptions { notification, backends: Vec::new(), ..self.options.clone() })
        };
        self.begin(options.as_ref())
    }

    /// Fails if a run has failed, or if an ended run may still write to the same memory. With the claim: the run before may fail
    /// until it has ended.
    fn ensure_usable(&self) -> Result<()> {
        ensure!(
            !self.resource.is_over.load(Ordering::Acquire),
            InvalidState,
            "a run of the request has failed, and NIXL cannot run it again; create another request"
        );
        let written = self.used.as_ref().and_then(|used| used.written());
        written.map_or(Ok(()), |written| Unreleased::get().ensure_apart(written))
    }

    /// Starts a run; with options for it, if they differ from those of the request.
    #[inline]
    fn begin(&self, options: Option<&CallOptions>) -> Result<()> {
        ensure!(
            self.completion.claim(),
            Busy,
            "the request is in flight; wait for its end, then post it again"
        );
        self.completion.show(self.counted, self.bytes);
        let started = enabled(Level::Debug).then(now);
        let mut hold = None;
        match self.post_here(options, &mut hold) {
            None => {
                let duration = started.map(|started| now().saturating_sub(started));
                self.completion.succeed(self.bytes, self.user_data, duration, self.counted);
                Ok(())
            }
            Some(open) => self.go_on_after(open, hold, options),
        }
    }

    /// Posts the request on the calling thread, if that may make the calls of NIXL and no other thread does. Most requests are
    /// complete then, and need no task. One that is in flight gets its hold of the peer.
    fn post_here(&self, options: Option<&CallOptions>, hold: &mut Option<RemoteHold>) -> Option<Open> {
        let (RequestSide::Peer(remote), true) = (&self.resource.side, self.begins_here) else {
            return Some(Open::Due);
        };
        let post = |state: &mut AgentState| self.post_with(state, remote, options, hold);
        // All of it: what else the thread does for the agent could leave the claim, too.
        left_open(|| self.resource.agent.run_here(post))
    }

    /// Posts the request, and polls it as long as that moves bytes: UCX copies host memory in parts, one per poll. All is done
    /// before another thread can have the agent, which would move the rest meanwhile.
    fn post_with(
        &self,
        state: &mut AgentState,
        remote: &Arc<Remote>,
        options: Option<&CallOptions>,
        hold: &mut Option<RemoteHold>,
    ) -> Option<Open> {
        // The metadata is not invalidated meanwhile: that is done by the thread that has the agent.
        if let Err(error) = self.ensure_usable().and_then(|()| remote.ensure_valid()) {
            return Some(Open::Refused(error));
        }
        let mut posted = state.post_raw(self.resource.id, options);
        let mut pace = Pace::default();
        while matches!(posted, Ok(false)) && pace.goes_on_after(TaskStep::InFlight) {
            posted = state.is_done(self.resource.id);
        }
        if let Ok(true) = posted {
            return None;
        }
        *hold = remote.hold().ok();
        Some(posted.map_or_else(Open::Failed, |_| Open::InFlight))
    }

    /// Has the rest of a run done by the agent's thread.
    #[cold]
    #[inline(never)]
    fn go_on_after(&self, open: Open, hold: Option<RemoteHold>, options: Option<&CallOptions>) -> Result<()> {
        match open {
            Open::InFlight => self.go_on(hold, Posting::Done),
            Open::Failed(error) => self.go_on(hold, Posting::Failed(error)),
            Open::Due => {
                let hold = self.ensure_usable().and_then(|()| self.hold_peer());
                self.go_on(hold.inspect_err(|_| self.completion.unclaim())?, Posting::Due(options.cloned()))
            }
            Open::Refused(error) => {
                self.completion.unclaim();
                Err(error)
            }
            Open::Panicked(error) => self.abandon(error),
        }
    }

    fn hold_peer(&self) -> Result<Option<RemoteHold>> {
        match &self.resource.side {
            RequestSide::Peer(remote) => remote.hold().map(Some),
            RequestSide::Local | RequestSide::Own => Ok(None),
        }
    }

    /// Has the rest of a run done in steps.
    fn go_on(&self, peer: Option<RemoteHold>, posting: Posting) -> Result<()> {
        let task = Box::new(RequestRun::new(self.resource.clone(), posting, self.ticket(peer)?.start()));
        let agent = &self.resource.agent;
        // If the agent's thread has ended, the run gets that as its end.
        let _ = if self.begins_here { agent.begin(task) } else { agent.start(task) };
        Ok(())
    }

    /// Ends a run whose call has panicked: it is unknown what NIXL still does.
    fn abandon(&self, error: Error) -> Result<()> {
        log!(Error, "posting a request: {error}; what the request holds is never freed");
        self.resource.is_over.store(true, Ordering::Release);
        leak::intentionally(self.resource.clone());
        self.ticket(None)?.start().abandon(error);
        Ok(())
    }

    /// For the run that has the claim.
    fn ticket(&self, peer: Option<RemoteHold>) -> Result<Ticket> {
        let (bytes, user_data, limit) = (self.bytes, self.user_data, self.limit.clone());
        let (used, counted) = (self.used.clone(), Some(self.counted));
        let account = Account { bytes, user_data, limit, record: None, counted, used };
        Ticket::new(self.completion.clone(), account, RunHolds { peer, ..RunHolds::default() })
    }

    /// Whether the last run has succeeded: the thread that posts ends a short run itself.
    pub fn has_succeeded(&self) -> bool {
        self.completion.has_succeeded()
    }

    /// The outcome of the last run, or `None` while it is in flight.
    pub fn poll(&self) -> Result<Option<()>> {
        self.ensure_posted()?;
        self.completion.poll()
    }

    /// Waits for the end of the last run; `None` waits without a timeout.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        if let Some(()) = self.poll()? {
            return Ok(());
        }
        let deadline = deadline_of(timeout);
        if self.completion.earlier(deadline).is_none() {
            self.resource.agent.drive(|| !self.completion.is_running());
        }
        self.completion.wait(deadline)
    }

    /// NIXL's estimate of the duration of a run.
    pub fn estimate(&self) -> Result<CostEstimate> {
        self.resource.agent.call(|reply| Command::Estimate(self.resource.id, reply))
    }

    /// What NIXL measured of the last run.
    pub fn telemetry(&self) -> Result<Telemetry> {
        self.ensure_posted()?;
        self.resource.agent.call(|reply| Command::Telemetry(self.resource.id, reply))
    }

    /// The plugin of the backend that NIXL chose.
    pub fn backend(&self) -> Result<String> {
        self.resource.agent.call(|reply| Command::BackendOf(self.resource.id, reply))
    }

    fn ensure_posted(&self) -> Result<()> {
        ensure!(
            self.completion.was_run(),
            InvalidState,
            "the request was not posted; call kvmem_request_post first"
        );
        Ok(())
    }
}

/// What a post leaves to do. `None` from `post` if it was not made.
fn left_open(post: impl FnOnce() -> Option<Option<Open>>) -> Option<Open> {
    match guarded(post) {
        Ok(Some(open)) => open,
        Ok(None) => Some(Open::Due),
        Err(panic) => Some(Open::Panicked(panic)),
    }
}

/// `storage` is what the request uses if it is to the agent itself, as far as NIXL reports it.
fn limited(after: Duration, side: &RequestSide, storage: Option<String>) -> Limit {
    let (with, advice) = match side {
        RequestSide::Peer(remote) => {
            (format!(" with agent '{}'", remote.name()), "check whether the process of the peer runs")
        }
        RequestSide::Local | RequestSide::Own => {
            let with = storage.map_or(String::new(), |storage| format!(" with {storage}"));
            (with, "check the file or the object store")
        }
    };
    let advice = format!(
        "Increase run_timeout_ns, or {advice}. NIXL cannot cancel a request: keep its memory until it can be posted again"
    );
    Limit { after, what: format!("the request{with}"), advice }
}

/// The memory of this process that a run reads or writes, if it does.
fn used(operation: Operation, local: &Descriptors) -> Result<Option<Arc<UsedBytes>>> {
    if !matches!(local.memory_type(), MemoryType::Dram | MemoryType::Vram) {
        return Ok(None);
    }
    let ranges = lists::collect(local.entries().iter().map(|entry| (entry.address, entry.size)))?;
    Ok(Some(Arc::new(UsedBytes::Ranges { ranges, are_written: operation == Operation::Read })))
}

/// NIXL reports neither which descriptors differ nor how.
fn ensure_corresponding(local: &Descriptors, remote: &Descriptors) -> Result<()> {
    let (here, there) = (local.entries(), remote.entries());
    ensure!(!here.is_empty(), InvalidArgument, "the request has no descriptors");
    ensure!(
        here.len() == there.len(),
        InvalidArgument,
        "the local side has {} descriptors, the remote side {}; they correspond by index",
        here.len(),
        there.len()
    );
    for (index, (here, there)) in here.iter().zip(there).enumerate() {
        ensure!(
            here.size == there.size && here.size > 0,
            InvalidArgument,
            "descriptor {index} has {} bytes on the local side and {} on the remote side; they must be equal, and not 0",
            here.size,
            there.size
        );
    }
    Ok(())
}

fn total(descriptors: &Descriptors) -> u64 {
    descriptors.entries().iter().fold(0, |sum, entry| sum.saturating_add(entry.size))
}

#[cfg(test)]
mod tests;
