// SPDX-License-Identifier: Apache-2.0
//! A request on raw descriptors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::resource::Resource;
use super::run::{Posting, RequestRun};
use super::{Holds, Prepared};
use crate::error::{Error, Result, ensure};
use crate::guarded::guarded;
use crate::leak;
use crate::log::{Level, enabled, log};
use crate::nixl::{
    Agent, AgentState, CallOptions, CostEstimate, Descriptors, Operation, Pace, RemoteHold, RequestSide,
    TaskStep, Telemetry, is_short,
};
use crate::sync::Mutex;
use crate::transfer::run::completion::{Account, Completion, Limit};
use crate::transfer::run::queue::Queue;
use crate::transfer::run::{Run, RunHolds};

/// How long each run of a request may take, and where its end is reported.
#[derive(Clone, Default)]
pub struct RunOptions {
    /// Gets a completion.
    pub queue: Option<Arc<Queue>>,
    /// The value of the completion.
    pub user_data: u64,
    /// After this duration a run ends as timed out. `None` for no limit.
    pub limit: Option<Duration>,
}

/// What was done of a run by the thread that posts it.
enum Begun {
    /// All; with its duration, if that is logged.
    Complete(Option<Duration>),
    /// The rest is a task.
    Open(Option<RemoteHold>, Posting),
    /// The call has panicked.
    Abandoned(Error),
}

/// A request on raw descriptors. It can be posted again and again. A run in flight continues if this is dropped.
pub struct Request {
    resource: Arc<Resource>,
    completion: Arc<Completion>,
    was_posted: AtomicBool,
    options: CallOptions,
    user_data: u64,
    limit: Option<Arc<Limit>>,
    /// Held by the thread that posts, if there is a limit.
    posting: Mutex<()>,
    bytes: u64,
    descriptors: u64,
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
        let holds = Holds::of(agent, local)?;
        let (name, sides, given) = (owner.to_string(), [local.clone(), remote.clone()], options.clone());
        let is_limited = of_runs.limit.is_some();
        let (id, side, storage) = agent.call(move |state| {
            let side = state.side_of(&name)?;
            let id = state.create_raw(operation, &sides[0], (&side, &sides[1]), &given)?;
            let storage = if is_limited { state.storage_of(id, &sides[1]) } else { None };
            Ok((id, side, storage))
        })?;
        let resource = Resource {
            agent: agent.clone(),
            id,
            side,
            is_released: AtomicBool::new(false),
            prepared: None,
            holds,
        };
        Ok(Self::around(resource, storage, local, options, of_runs))
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
        ensure!(
            local.is_local(),
            InvalidArgument,
            "the local list was prepared for the remote side of requests"
        );
        ensure!(
            !remote.is_local(),
            InvalidArgument,
            "the remote list was prepared for the local side of requests"
        );
        let (local_chosen, local_numbers) = local.chosen(local_indices, "local_indices")?;
        let (remote_chosen, remote_numbers) = remote.chosen(remote_indices, "remote_indices")?;
        ensure_corresponding(&local_chosen, &remote_chosen)?;
        let sizes = local_chosen.clone();
        let ids = [local.id, remote.id];
        let given = options.clone();
        let is_limited = of_runs.limit.is_some();
        let (id, storage) = agent.call(move |state| {
            let sides = ((ids[0], &local_numbers[..]), (ids[1], &remote_numbers[..]));
            let id = state.make_raw(operation, sides.0, sides.1, [&local_chosen, &remote_chosen], &given)?;
            Ok((id, if is_limited { state.storage_of(id, &remote_chosen) } else { None }))
        })?;
        let resource = Resource {
            agent: agent.clone(),
            id,
            side: remote.side.clone(),
            is_released: AtomicBool::new(false),
            prepared: Some([local.clone(), remote.clone()]),
            holds: Holds::default(),
        };
        Ok(Self::around(resource, storage, &sizes, options, of_runs))
    }

    fn around(
        resource: Resource,
        storage: Option<String>,
        local: &Descriptors,
        options: CallOptions,
        of_runs: RunOptions,
    ) -> Self {
        let RunOptions { queue, user_data, limit } = of_runs;
        let limit = limit.map(|after| Arc::new(limited(after, &resource.side, storage)));
        Self {
            resource: Arc::new(resource),
            completion: Arc::new(Completion::new(1, queue)),
            was_posted: AtomicBool::new(false),
            options,
            user_data,
            limit,
            posting: Mutex::default(),
            bytes: total(local),
            descriptors: local.entries().len() as u64,
        }
    }

    /// Starts a run. A notification replaces that of the request, for this run and those after it.
    pub fn post(&self, notification: Option<Vec<u8>>) -> Result<()> {
        // Until the deadline is added: the run may have ended by then, and the deadline must not be that of the run that another
        // thread posts next.
        let _turn = self.limit.as_ref().map(|_| self.posting.lock());
        self.completion.within(self.limit.as_ref(), || self.begin(notification))
    }

    /// Fails if a run has failed. With the claim: the run before may fail until it has ended.
    fn ensure_usable(&self) -> Result<()> {
        ensure!(
            !self.resource.is_released.load(Ordering::Acquire),
            InvalidState,
            "a run of the request has failed, and NIXL cannot run it again; create another request"
        );
        Ok(())
    }

    fn begin(&self, notification: Option<Vec<u8>>) -> Result<()> {
        ensure!(
            self.completion.claim(),
            Busy,
            "the request is in flight; wait for its end, then post it again"
        );
        // NIXL drops the notification of a request that is posted with other options.
        let options = notification.map(|message| CallOptions {
            notification: Some(message),
            backends: Vec::new(),
            ..self.options.clone()
        });
        let begun = self.ensure_usable().and_then(|()| self.post_here(options));
        match begun.inspect_err(|_| self.completion.unclaim())? {
            Begun::Complete(duration) => self.succeed(duration),
            Begun::Open(peer, posting) => return self.go_on(peer, posting),
            Begun::Abandoned(error) => self.abandon(error),
        }
        Ok(())
    }

    /// Posts the request on the calling thread, if that may make the calls of NIXL and no other thread does. Most requests are
    /// complete then, and need no task. Fails if the metadata of the peer was invalidated.
    fn post_here(&self, options: Option<CallOptions>) -> Result<Begun> {
        let RequestSide::Peer(remote) = &self.resource.side else {
            return Ok(Begun::Open(None, Posting::Due(options)));
        };
        let post = |state: &mut AgentState| {
            // The metadata is not invalidated meanwhile: that is done by the thread that has the agent.
            remote.ensure_valid()?;
            let started = enabled(Level::Debug).then(Instant::now);
            let posting = match self.advance_here(state, options.as_ref()) {
                Ok(true) => return Ok(Begun::Complete(started.map(|started| started.elapsed()))),
                Ok(false) => Posting::Done,
                Err(error) => Posting::Failed(error),
            };
            Ok(Begun::Open(remote.hold().ok(), posting))
        };
        let posted =
            self.begins_here().then(|| self.resource.agent.run_here(|state| guarded(|| post(state))));
        match posted.flatten() {
            Some(Ok(posted)) => posted,
            Some(Err(panic)) => Ok(Begun::Abandoned(panic)),
            None => Ok(Begun::Open(Some(remote.hold()?), Posting::Due(options))),
        }
    }

    /// Posts the request, and polls it as long as that moves bytes: UCX copies host memory in parts, one per poll. Returns
    /// whether it is complete. All is done before another thread can have the agent, which would move the rest meanwhile.
    fn advance_here(&self, state: &mut AgentState, options: Option<&CallOptions>) -> Result<bool> {
        let mut is_complete = state.post_raw(self.resource.id, options)?;
        let mut pace = Pace::default();
        while !is_complete && pace.goes_on_after(TaskStep::InFlight) {
            is_complete = state.is_done(self.resource.id)?;
        }
        Ok(is_complete)
    }

    /// Reports a run that is complete. After that the request may be destroyed by another thread.
    fn succeed(&self, duration: Option<Duration>) {
        self.was_posted.store(true, Ordering::Release);
        let completion = self.completion.clone();
        completion.succeed(self.account(), duration.unwrap_or_default());
    }

    /// Has the rest of a run done in steps.
    fn go_on(&self, peer: Option<RemoteHold>, posting: Posting) -> Result<()> {
        let task = Box::new(RequestRun::new(self.resource.clone(), posting, self.run(peer)));
        // Before the end of the run is reported: what asks for its results then finds that it was posted.
        let was_posted = self.was_posted.swap(true, Ordering::AcqRel);
        let agent = &self.resource.agent;
        let started = if self.begins_here() { agent.begin(task) } else { agent.start(task) };
        started.inspect_err(|_| self.was_posted.store(was_posted, Ordering::Release))
    }

    /// Ends a run whose call has panicked: it is unknown what NIXL still does.
    fn abandon(&self, error: Error) {
        log!(Error, "posting a request: {error}; what the request holds is never freed");
        leak::intentionally(self.resource.clone());
        self.was_posted.store(true, Ordering::Release);
        self.run(None).abandon(error);
    }

    fn run(&self, peer: Option<RemoteHold>) -> Run {
        Run::start(self.completion.clone(), self.account(), RunHolds { peer, ..RunHolds::default() })
    }

    fn account(&self) -> Account {
        let is_limited = self.limit.is_some();
        Account { bytes: self.bytes, user_data: self.user_data, is_limited, ..Account::default() }
    }

    /// Whether the thread that posts makes the calls of NIXL. Files are written by the agent's thread, which blocks the signal of
    /// a file that grows too large. A call of NIXL may not return: a run with a deadline must not keep the thread that posts it.
    fn begins_here(&self) -> bool {
        is_short(self.bytes, self.descriptors)
            && matches!(self.resource.side, RequestSide::Peer(_))
            && self.limit.is_none()
    }

    /// The outcome of the last run, or `None` while it is in flight.
    pub fn poll(&self) -> Result<Option<()>> {
        self.ensure_posted()?;
        self.completion.poll()
    }

    /// Waits for the end of the last run; `None` waits without a timeout.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        // The posting thread ends a short run itself.
        if let Some(()) = self.poll()? {
            return Ok(());
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if self.completion.earlier(deadline).is_none() {
            self.resource.agent.drive(|| !self.completion.is_running());
        }
        self.completion.wait(deadline)
    }

    /// NIXL's estimate of the duration of a run.
    pub fn estimate(&self) -> Result<CostEstimate> {
        let id = self.resource.id;
        self.resource.agent.call(move |state| state.estimate(id, &CallOptions::default()))
    }

    /// What NIXL measured of the last run.
    pub fn telemetry(&self) -> Result<Telemetry> {
        self.ensure_posted()?;
        let id = self.resource.id;
        self.resource.agent.call(move |state| state.telemetry(id))
    }

    /// The plugin of the backend that NIXL chose.
    pub fn backend(&self) -> Result<String> {
        let id = self.resource.id;
        self.resource.agent.call(move |state| state.backend_of(id))
    }

    fn ensure_posted(&self) -> Result<()> {
        ensure!(
            self.was_posted.load(Ordering::Acquire),
            InvalidState,
            "the request was not posted; call kvmem_request_post first"
        );
        Ok(())
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
        "Increase timeout_ns, or {advice}. NIXL cannot cancel a request: keep its memory until it can be posted again"
    );
    Limit { after, what: format!("the request{with}"), advice }
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
