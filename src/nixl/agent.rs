// SPDX-License-Identifier: Apache-2.0
//! An agent: a handle on the thread that drives it.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::{JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use super::agent_config::AgentConfig;
use super::bell::Bell;
use super::command::{Command, Released, Reply};
use super::command_queue::CommandQueue;
#[cfg(test)]
use super::command_queue::Receiver;
use super::executor::Executor;
use super::exit::SharedPatience;
use super::gds::GdsTrials;
use super::library;
use super::notification::Notification;
use super::receive::ReceiveTask;
use super::state::AgentState;
use super::task::AgentTask;
use crate::base::reported::{OpenTally, ReportedKind, Tally, add_label};
use crate::base::{
    Error, LogId, Mutex, Result, Taken, Taker, deadline_of, earlier, ensure, error, handoff, log, thread,
};

/// How long a wait whose time is over waits for the agent's thread to look once more.
pub(super) const GRACE: Duration = Duration::from_millis(100);

thread_local! {
    static LIMIT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Does some work that has a deadline: calls with agents that it makes on this thread end soon after it.
pub fn within<R>(deadline: Option<Instant>, work: impl FnOnce() -> R) -> R {
    struct Restore(Option<Instant>);
    impl Drop for Restore {
        fn drop(&mut self) {
            LIMIT.set(self.0);
        }
    }
    let _restore = Restore(LIMIT.replace(deadline));
    work()
}

/// The deadline that work on this thread has, see [`within`].
pub fn limit() -> Option<Instant> {
    LIMIT.get()
}

/// When a call that has begun ends at the latest, with or without a result; `None` for never.
pub fn call_end(begun: Instant, call_timeout: Option<Duration>) -> Option<Instant> {
    call_timeout.and_then(|timeout| begun.checked_add(timeout)?.checked_add(GRACE))
}

/// A NIXL agent. Whatever needs it holds it; its thread ends with the last holder.
pub struct Agent {
    log_id: LogId,
    name: String,
    commands: Arc<CommandQueue<Command>>,
    executor: Arc<Executor>,
    thread: Option<AgentThread>,
    thread_id: ThreadId,
    has_listen_thread: bool,
    call_timeout: Option<Duration>,
    /// Rung when messages arrive.
    bell: Mutex<Option<Arc<Bell>>>,
    /// Results of trial transfers between a GPU and a file.
    pub trials: GdsTrials,
    tally: OpenTally,
}

struct AgentThread {
    handle: JoinHandle<()>,
    /// Its giver is dropped when the thread ends.
    ended: Taker<()>,
}

/// Two agents can have one name, so there is a number, too.
fn reported(name: &str, log_id: LogId) -> Result<OpenTally> {
    let mut labels = String::new();
    add_label(&mut labels, "agent", &name);
    add_label(&mut labels, "id", &log_id.number());
    OpenTally::reported(ReportedKind::Agent, labels)
}

impl Agent {
    /// Loads NIXL if that was not done yet, and starts an agent.
    pub fn create(name: &str, config: &AgentConfig) -> Result<Arc<Self>> {
        ensure!(
            !name.is_empty(),
            InvalidArgument,
            "the agent's name is empty; peers identify the agent by it"
        );
        library::load(None)?;
        let (commands, receiver) = CommandQueue::new();
        let ((created, result), (end, ended)) = (handoff(), handoff::<()>());
        let log_id = LogId::next();
        let tally = reported(name, log_id)?;
        let executor = Arc::new(Executor::new());
        let executing = executor.clone();
        let owned = (name.to_string(), config.clone());
        let idle_poll = (!config.progress_thread).then_some(config.progress_delay);
        let handle = thread::spawn("kvmem-agent", move || {
            let _end = end;
            match AgentState::create(&owned.0, log_id, &owned.1) {
                Ok(state) => {
                    let _ = created.give(Ok(()));
                    executing.run(state, receiver, idle_poll);
                }
                Err(error) => drop(created.give(Err(error))),
            }
        })?;
        match result.take(call_end(Instant::now(), config.call_timeout)) {
            Taken::Value(outcome) => outcome,
            Taken::Gone => Err(thread_gone()),
            Taken::TooLate => {
                // The thread ends as soon as it can.
                let _ = commands.send(Command::Stop);
                Err(in_call(name))
            }
        }?;
        log!(Info, "agent {log_id} '{name}' created");
        let thread_id = handle.thread().id();
        let thread = Some(AgentThread { handle, ended });
        Ok(Self::around((name, log_id, config), (commands, executor), (thread_id, thread), tally))
    }

    fn around(
        (name, log_id, config): (&str, LogId, &AgentConfig),
        (commands, executor): (Arc<CommandQueue<Command>>, Arc<Executor>),
        (thread_id, thread): (ThreadId, Option<AgentThread>),
        tally: OpenTally,
    ) -> Arc<Self> {
        Arc::new(Self {
            log_id,
            name: name.to_string(),
            commands,
            executor,
            thread,
            thread_id,
            has_listen_thread: config.listen_thread,
            call_timeout: config.call_timeout,
            bell: Mutex::new(None),
            trials: GdsTrials::default(),
            tally,
        })
    }

    /// Its name, by which peers know it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What runs have moved by it, in statistics.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Its number, which no other agent of this process has had.
    pub fn log_id(&self) -> LogId {
        self.log_id
    }

    /// How long its calls wait for NIXL; `None` for ever.
    pub fn call_timeout(&self) -> Option<Duration> {
        self.call_timeout
    }

    /// Whether NIXL's listen thread runs, which exchanges metadata by address.
    pub(super) fn has_listen_thread(&self) -> bool {
        self.has_listen_thread
    }

    /// When a call that begins now, and has no time of its own, ends without a result; `None` for never.
    ///
    /// Only NIXL makes it wait that long. Otherwise it waits for what the thread does first: the commands before it, one step of
    /// each transfer in flight for 32 of them, and the calls of NIXL's in both. A step moves no more than a request, whose size is
    /// bounded; none waits for a peer.
    #[inline(never)]
    pub fn call_deadline(&self) -> Option<Instant> {
        earlier(deadline_of(self.call_timeout), LIMIT.get())
    }

    /// When a call with a deadline of the caller's ends: NIXL may not return, also if the caller has none.
    pub fn call_deadline_before(&self, deadline: Option<Instant>) -> Option<Instant> {
        earlier(deadline, self.call_deadline())
    }

    /// Has the agent's thread execute a command, and waits for its result, as long as calls of this agent may take. It may be
    /// executed later: [`Command`] says what becomes of its result.
    pub fn call<R>(&self, command: impl FnOnce(Reply<R>) -> Command) -> Result<R> {
        let begun = Instant::now();
        let outcome = self.call_until(self.call_deadline(), command);
        if outcome.is_err() {
            self.note_failure(begun);
        }
        outcome
    }

    /// The same until [`GRACE`] after a deadline.
    pub fn call_until<R>(
        &self,
        deadline: Option<Instant>,
        command: impl FnOnce(Reply<R>) -> Command,
    ) -> Result<R> {
        let (reply, result) = handoff();
        self.send(command(reply))?;
        self.taken(result, deadline)
    }

    /// Of a call that has waited as long as calls may take, the thread is in NIXL.
    #[cold]
    fn note_failure(&self, begun: Instant) {
        if self.call_timeout.is_some_and(|timeout| begun.elapsed() >= timeout) {
            self.executor.note_stuck();
        }
    }

    /// What the agent's thread replies. It may be in a call of NIXL's at the deadline, which has no time limit: it is waited for
    /// a little longer, and no more.
    pub(super) fn taken<R>(&self, reply: Taker<Result<R>>, deadline: Option<Instant>) -> Result<R> {
        match reply.take(deadline.and_then(|deadline| deadline.checked_add(GRACE))) {
            Taken::Value(outcome) => outcome,
            Taken::Gone => Err(thread_gone()),
            Taken::TooLate => Err(self.is_busy()),
        }
    }

    /// Has the agent's thread execute a command, and waits for its end unless the calling thread drives the agent just now, which
    /// must not wait for itself, or a call has just timed out: the ends of many registrations would wait one after the other.
    pub fn call_or_defer(&self, command: impl FnOnce(Reply<()>) -> Command) {
        if self.is_driven_here() || self.executor.is_stuck() {
            let _ = self.send(command(handoff().0));
        } else if let Err(error) = self.call(command) {
            log!(Error, "agent {} '{}': {error}", self.log_id, self.name);
        }
    }

    /// Has the agent's thread release something, and waits as in [`Self::call_or_defer`].
    pub fn release(&self, released: Released) {
        self.call_or_defer(|reply| Command::Release(released, Some(reply)));
    }

    /// Has the agent's thread release something some time from now.
    pub fn defer(&self, released: Released) {
        let _ = self.send(Command::Release(released, None));
    }

    /// Adds a task. If that fails, [`AgentTask::not_begun`] is called and the task is dropped.
    pub fn start(&self, work: Box<dyn AgentTask>) -> Result<()> {
        self.send(Command::Start(work))
    }

    /// Adds a task, and takes its first steps on the calling thread if no other thread does the agent's work: a wake-up of
    /// the agent's thread takes longer than a short step.
    pub fn begin(&self, work: Box<dyn AgentTask>) -> Result<()> {
        match self.executor.begin_here(work) {
            Ok(has_more) => {
                if has_more {
                    self.commands.wake();
                }
                Ok(())
            }
            Err(work) => self.start(work),
        }
    }

    /// Runs a short function on the calling thread, if no other thread does the agent's work and no command waits. `None` if it
    /// was not run.
    pub fn run_here<R>(&self, function: impl FnOnce(&mut AgentState) -> R) -> Option<R> {
        self.executor.run_here(function)
    }

    /// Has the calling thread, which waits for work of this agent without a deadline, do that work for a while, if no other
    /// thread does.
    pub fn drive(&self, is_over: impl Fn() -> bool) {
        self.executor.drive(is_over);
    }

    fn send(&self, command: Command) -> Result<()> {
        self.commands.send(command).map_err(|command| {
            let error = thread_gone();
            if let Command::Start(mut work) = command {
                work.not_begun(&error);
            }
            error
        })
    }

    fn is_driven_here(&self) -> bool {
        std::thread::current().id() == self.thread_id || self.executor.is_driven_here()
    }

    /// Takes the notifications that have arrived, and waits for at least one. `None` means no timeout. Fails once where some were
    /// lost.
    ///
    /// The agent's thread looks for them, and fails with a reason once the time is over.
    pub fn take_notifications(&self, timeout: Option<Duration>) -> Result<Vec<Notification>> {
        let deadline = deadline_of(timeout);
        let (reply, result) = handoff();
        self.start(Box::new(ReceiveTask::new(deadline, reply)))?;
        self.taken(result, deadline)?.into_messages(&self.name)
    }

    /// Has `ring` called when messages arrive, once until they are taken, by the thread that has the agent. Replaces the function
    /// before it; `None` ends that.
    pub fn ring_on_notifications(&self, ring: Option<Box<dyn Fn() + Send + Sync>>) -> Result<()> {
        let (bell, task) = ring.map(Bell::new).unzip();
        *self.bell.lock() = bell;
        task.map_or(Ok(()), |task| self.start(task))
    }

    /// Waits for the end of the thread, unless NIXL does not return. Nothing of the caller's is in use by then: what uses memory
    /// holds the agent.
    fn join(&self, AgentThread { handle, ended }: AgentThread) {
        let shared = SharedPatience::get();
        let patience = shared.left();
        if ended.take(Instant::now().checked_add(patience)) == Taken::TooLate {
            shared.use_up();
            let (id, name) = (self.log_id, &self.name);
            log!(Warn, "NIXL did not destroy agent {id} '{name}' within {patience:?}; its thread continues");
            return;
        }
        let _ = handle.join();
    }

    /// The error of a wait whose deadline passes before the agent's thread replies.
    pub(super) fn is_busy(&self) -> Error {
        in_call(&self.name)
    }
}

#[cfg(test)]
impl Agent {
    /// Runs a function of a test on the agent's thread.
    pub fn run<R: Send + 'static>(
        &self,
        function: impl FnOnce(&mut AgentState) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let deadline = Instant::now() + Duration::from_secs(60);
        self.call_until(Some(deadline), |reply| {
            Command::Test(Box::new(move |state| drop(reply.give(function(state)))))
        })
    }

    /// An agent with a UCX backend; `None` without NIXL.
    pub fn with_ucx(name: &str) -> Option<Arc<Self>> {
        if std::env::var_os("KVMEM_NIXL_LIBRARY").is_none_or(|path| path.is_empty()) {
            crate::skip::skip("KVMEM_NIXL_LIBRARY names no library of NIXL");
            return None;
        }
        let agent = Self::create(name, &AgentConfig::default()).unwrap();
        agent.run(|state| state.create_backend("UCX", &[])).unwrap();
        Some(agent)
    }

    /// An agent whose thread is the calling one: calls wait until that runs the executor, or the receiver is dropped.
    pub fn unattended() -> (Arc<Self>, Receiver<Command>) {
        let (commands, receiver) = CommandQueue::new();
        let config = AgentConfig { call_timeout: None, ..AgentConfig::default() };
        let thread = (std::thread::current().id(), None);
        let driven = (commands, Arc::new(Executor::new()));
        let (name, log_id) = ("unattended", LogId::next());
        let tally = reported(name, log_id).unwrap();
        (Self::around((name, log_id, &config), driven, thread, tally), receiver)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        log!(Debug, "agent {} '{}' destroyed", self.log_id, self.name);
        // The thread ends when it has no task, and the task that rings ends with the bell.
        drop(self.bell.get_mut().take());
        let _ = self.send(Command::Stop);
        if self.is_driven_here() {
            return; // The last holder was a task of this agent, whose thread ends on its own.
        }
        if let Some(thread) = self.thread.take() {
            self.join(thread);
        }
    }
}

/// The error of a wait for an agent whose thread does not reply.
pub fn in_call(name: &str) -> Error {
    error!(TimedOut, "the thread of agent '{name}' is in a call of NIXL that has not returned")
}

fn thread_gone() -> Error {
    error!(Panic, "the agent's thread ended or panicked")
}

#[cfg(test)]
mod tests;
