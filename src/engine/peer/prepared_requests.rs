// SPDX-License-Identifier: Apache-2.0
//! The requests of a prepared transfer, which all its runs share.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::extent_guard::{ControlRead, Guard};
use super::flow::Flow;
use super::served::{ServedFlow, ServedPlan};
use super::staged::{StagedFlow, StagedPlan};
use crate::base::{Error, Mutex, Result, ensure};
use crate::engine::cost::requests::RequestRates;
use crate::engine::peer::plain::listed_requests::{ListedFlow, ListedPlan};
use crate::engine::peer::plain::request_plan::RequestPlan;
use crate::layout::{Memory, RemoteMemory};
use crate::nixl::{Agent, AgentState, AgentTask, Released, Reply, RequestId, TaskStep, is_short};
use crate::run::TransferMethod;

/// The part of a prepared transfer that all its runs share. Released with the last of them.
pub(super) struct PreparedRequests {
    pub method: TransferMethod,
    pub agent: Arc<Agent>,
    pub request_plan: Arc<RequestPlan>,
    pub flow_plan: FlowPlan,
    /// The request that reads the peer's control block. Only the agent's thread locks it.
    control_read: Mutex<Option<RequestId>>,
    /// A step of a run has panicked. The state of its requests is unknown, so nothing is released and no run begins.
    is_abandoned: AtomicBool,
    /// The memory of the last run between the layouts. Others allocate theirs.
    listed: Mutex<Option<ListedFlow>>,
    /// For the object of the next run.
    pub spare: Arc<Spare>,
    /// Sent to the peer after the last byte.
    pub notification: Option<Vec<u8>>,
    /// For a peer's elastic memory, or expected epochs.
    pub guard: Option<Guard>,
    /// The measured costs of requests to the peer, if there is one.
    pub rates: Option<Arc<RequestRates>>,
    /// The maximum number of requests of a run in flight.
    pub window: usize,
    /// How long a run may make no progress; `None` for no limit.
    pub stall_timeout: Option<Duration>,
}

/// Requests of a run that are in flight at a time, if the bytes of others would only wait for theirs.
const WINDOW: usize = 4;

/// How the bytes of a transfer are moved.
#[derive(Clone)]
pub(super) enum FlowPlan {
    Listed(Arc<ListedPlan>),
    /// Through an arena of this process.
    Staged(Arc<StagedPlan>),
    /// The owner gathers or scatters.
    Served(Arc<ServedPlan>),
}

pub(super) struct RunRequests {
    pub flow: Flow,
    pub control_read: Option<ControlRead>,
}

impl Drop for PreparedRequests {
    fn drop(&mut self) {
        if let Some(request) = self.control_read.get_mut().take() {
            self.agent.defer(Released::Requests(vec![request]));
        }
    }
}

impl PreparedRequests {
    /// The input for the requests, which are not created yet.
    pub fn new(
        method: TransferMethod,
        agent: Arc<Agent>,
        request_plan: RequestPlan,
        notification: Option<Vec<u8>>,
        guard: Option<Guard>,
    ) -> Self {
        let request_plan = Arc::new(request_plan);
        Self {
            method,
            flow_plan: FlowPlan::Listed(Arc::new(ListedPlan::new(&request_plan, &agent))),
            agent,
            request_plan,
            control_read: Mutex::default(),
            is_abandoned: AtomicBool::new(false),
            listed: Mutex::default(),
            spare: Arc::default(),
            notification,
            guard,
            rates: None,
            window: WINDOW,
            stall_timeout: None,
        }
    }

    /// The peer, if the other side is remote.
    pub fn peer(&self) -> Option<&RemoteMemory> {
        match self.request_plan.remote.memory() {
            Memory::Remote(remote) => Some(remote),
            Memory::Local(_) => None,
        }
    }

    pub fn count(&self) -> Result<u64> {
        match &self.flow_plan {
            FlowPlan::Listed(listed) => listed.count(),
            FlowPlan::Staged(staged) => staged.requests(),
            FlowPlan::Served(served) => Ok(served.chunks()),
        }
    }

    /// Whether the thread that submits may take the steps of a run: files are accessed by the agent's thread, and runs through an
    /// arena wait for other threads.
    pub fn is_short(&self) -> bool {
        let plan = &self.request_plan.plan;
        matches!(self.flow_plan, FlowPlan::Listed(_))
            && self.peer().is_some()
            && is_short(plan.bytes(), plan.max_moves())
    }

    /// The requests of a run that begins, on the agent's thread.
    pub fn begin(&self, state: &mut AgentState) -> Result<RunRequests> {
        self.ensure_usable()?;
        let mut control_read = self.control_read.lock();
        if let (Some(guard), None) = (&self.guard, *control_read) {
            *control_read = Some(guard.request(state, &self.request_plan)?);
        }
        let flow = match &self.flow_plan {
            FlowPlan::Listed(listed) => Flow::Listed(match self.listed.lock().take() {
                Some(flow) => flow.restarted(state),
                None => ListedFlow::new(listed.clone(), state),
            }),
            FlowPlan::Staged(staged) => Flow::Staged(StagedFlow::new(staged.clone())),
            FlowPlan::Served(served) => Flow::Served(Box::new(ServedFlow::new(served.clone()))),
        };
        let has_first = !self.is_short() || self.guard.as_ref().is_some_and(Guard::precedes_requests);
        Ok(RunRequests {
            flow,
            control_read: control_read.map(|request| ControlRead::new(request, has_first)),
        })
    }

    /// Keeps the memory of a run that has ended.
    pub fn keep(&self, flow: Option<Flow>) {
        if let Some(Flow::Listed(flow)) = flow {
            *self.listed.lock() = Some(flow);
        }
    }

    /// Creates the requests that all runs use, on the agent's thread.
    fn create_requests(&self, state: &mut AgentState) -> Result<()> {
        self.ensure_usable()?;
        match &self.flow_plan {
            FlowPlan::Listed(listed) => listed.create_kept(state),
            _ => Ok(()),
        }
    }

    /// Releases all requests after one has failed; the next run creates new ones. If that fails, NIXL may
    /// still use the memory.
    pub fn release_requests(&self, state: &mut AgentState) -> Result<()> {
        let control = self.control_read.lock().take();
        let released = control.map_or(Ok(()), |request| state.release_request(request));
        match &self.flow_plan {
            FlowPlan::Listed(listed) => released.and(listed.release(state)),
            _ => released,
        }
    }

    pub fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
    }

    /// Fails if an earlier run was abandoned.
    pub fn ensure_usable(&self) -> Result<()> {
        ensure!(
            !self.is_abandoned.load(Ordering::Acquire),
            Panic,
            "an earlier run of this transfer hit a bug in kvmem, and NIXL may still move its bytes; create another \
             transfer with other memory"
        );
        Ok(())
    }
}

/// Creates the requests that all runs use, for a thread that waits for that.
pub(super) struct CreateRequests {
    pub shared: Arc<PreparedRequests>,
    pub reply: Reply<()>,
}

impl AgentTask for CreateRequests {
    fn step(&mut self, state: &mut AgentState) -> TaskStep {
        let _ = self.reply.give(self.shared.create_requests(state));
        TaskStep::Done
    }

    fn abandon(&mut self, error: Error) {
        let _ = self.reply.give(Err(error));
    }
}

/// At most one object, of any type, which holds no objects of the caller.
#[derive(Default)]
pub(super) struct Spare(Mutex<Option<Box<dyn Any + Send>>>);

impl Spare {
    /// Keeps an object.
    pub fn put<T: Any + Send>(&self, object: Box<T>) {
        *self.0.lock() = Some(object);
    }

    /// Takes the object, if there is one.
    pub fn take<T: Any>(&self) -> Option<Box<T>> {
        self.0.lock().take()?.downcast().ok()
    }
}
