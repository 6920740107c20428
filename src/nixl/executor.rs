// SPDX-License-Identifier: Apache-2.0
//! Driving an agent: by its own thread, or by a thread that waits for one of its transfers.
//!
//! NIXL moves bytes of host memory within the calls that post and poll a request. If the agent's thread makes them, a
//! transfer begins only after that thread has woken up, and its end is seen only after the waiting thread has. A thread
//! that waits anyway saves both. All NIXL calls of an agent are made with one lock held, so that no two are concurrent.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::command::Command;
use super::command_queue::Receiver;
use super::exit;
use super::state::AgentState;
use super::task::AgentTask;
use super::thread::{AWAKE, SPIN, TaskQueue, WaitPolicy, sleep_after};
use crate::base::file_limit::FileSizeSignal;
use crate::base::thread::{wake_precisely, yields_soon};
use crate::base::{Mutex, MutexGuard};

/// Attempts to get the lock before work is left to the agent's thread: about 5 µs.
const LOCK_ATTEMPTS: usize = 100;
/// The same while the other thread only looks for messages of peers, and for the agent's thread: about 50 µs.
const LONG_LOCK_ATTEMPTS: usize = 1000;

/// The agent and its work. The agent's thread puts it here when it begins, and takes it out when it ends.
pub struct Executor {
    running: Mutex<Option<Running>>,
    /// Whether a thread looks for messages of peers, which is short.
    is_looking: Arc<AtomicBool>,
    /// The idle agent's thread wanted to look for messages while another thread had the agent, which does that now.
    is_look_due: AtomicBool,
    /// A call has waited for as long as calls may take, and the agent's thread has executed no command since.
    is_stuck: AtomicBool,
}

/// An agent that runs, and its work.
pub(super) struct Running {
    state: AgentState,
    commands: Receiver<Command>,
    tasks: TaskQueue,
}

// SAFETY: NIXL's objects may be used by any thread, one at a time, which the lock around this ensures; no pointer to them
// is anywhere else. The rest is `Send` by itself.
unsafe impl Send for Running {}

thread_local! {
    static DRIVEN: Cell<*const Executor> = const { Cell::new(std::ptr::null()) };
}

impl Executor {
    /// One without an agent.
    pub fn new() -> Self {
        Self {
            running: Mutex::new(None),
            is_looking: Arc::default(),
            is_look_due: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
        }
    }

    /// Whether the calling thread drives it: then it must not wait for a command of this agent.
    pub fn is_driven_here(&self) -> bool {
        std::ptr::eq(DRIVEN.get(), self)
    }

    /// Whether the agent's thread is probably in a call of NIXL that does not return.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    /// Notes that a call has waited for as long as calls may take.
    pub fn note_stuck(&self) {
        self.is_stuck.store(true, Ordering::Relaxed);
    }

    /// Runs until it gets a stop command, then destroys the agent. `idle_poll` is how often an idle agent without a progress
    /// thread is driven.
    pub fn run(&self, state: AgentState, commands: Receiver<Command>, idle_poll: Option<Duration>) {
        if let Some(running) = self.run_until_stopped(state, commands, idle_poll) {
            exit::destroy(running);
        }
    }

    pub(super) fn run_until_stopped(
        &self,
        mut state: AgentState,
        commands: Receiver<Command>,
        idle_poll: Option<Duration>,
    ) -> Option<Running> {
        wake_precisely();
        state.is_looking = self.is_looking.clone();
        let queue = commands.queue();
        *self.lock() = Some(Running { state, commands, tasks: TaskQueue::default() });
        let mut last_progress = Instant::now();
        while let Some((has_progressed, policy)) = self.run_round(last_progress, idle_poll) {
            match policy {
                _ if has_progressed => {
                    self.is_stuck.store(false, Ordering::Relaxed);
                    last_progress = Instant::now();
                }
                WaitPolicy::Spin => {
                    if !yields_soon() {
                        queue.wait(Some(BUSY_POLL));
                    }
                }
                WaitPolicy::Listen => queue.wait_awake(last_progress + AWAKE),
                WaitPolicy::Sleep(time) => drop(queue.wait(Some(time))),
                WaitPolicy::Watch(interval) => {
                    while !queue.wait(interval.or_else(|| Some(sleep_after(last_progress.elapsed())))) {
                        if self.drive_idle() {
                            last_progress = Instant::now();
                            break;
                        }
                    }
                }
            }
        }
        self.lock().take()
    }

    /// Whether the round has progressed, and how to wait after it; `None` once the agent has stopped.
    fn run_round(&self, last_progress: Instant, idle_poll: Option<Duration>) -> Option<(bool, WaitPolicy)> {
        let mut running = self.lock_between();
        let Running { state, commands, tasks } = running.as_mut()?;
        self.driving(|| {
            if tasks.are_over() {
                return None;
            }
            let round = tasks.run_round(state, commands);
            Some((round, tasks.wait_policy(last_progress.elapsed(), idle_poll, state.has_retired())))
        })
    }

    /// Looks for messages, or leaves that to the thread that has the agent. Waiting for the lock here would cost a thread that
    /// posts large requests, and has it nearly always, a system call for each release. Returns whether a task made progress.
    fn drive_idle(&self) -> bool {
        match self.running.try_lock() {
            Some(mut running) => self.driving(|| running.as_mut().is_some_and(|running| self.look(running))),
            // If that thread ends just now, the next one looks, or this one after the next interval.
            None => {
                self.is_look_due.store(true, Ordering::Relaxed);
                false
            }
        }
    }

    #[cold]
    fn look(&self, Running { state, tasks, .. }: &mut Running) -> bool {
        self.is_look_due.store(false, Ordering::Relaxed);
        tasks.drive_idle(state)
    }

    /// Has the calling thread take the first steps of `work`, if no other thread does the agent's work. Returns the work if it
    /// was not begun, and otherwise whether the agent's thread has to go on with it.
    pub fn begin_here(&self, work: Box<dyn AgentTask>) -> Result<bool, Box<dyn AgentTask>> {
        let mut left = Some(work);
        let has_more = self
            .enter(|Running { state, tasks, .. }| left.take().is_some_and(|work| tasks.begin(work, state)));
        left.map_or(Ok(has_more.unwrap_or_default()), Err)
    }

    /// Has the calling thread run a short function, if no other thread does the agent's work. `None` if it was not run.
    pub fn run_here<R>(&self, function: impl FnOnce(&mut AgentState) -> R) -> Option<R> {
        self.enter(|running| function(&mut running.state))
    }

    /// Has the calling thread do some work with the agent, if no other thread does its work. Commands that wait are left to the
    /// agent's thread, which runs them in order. As with [`Self::drive`], there is no work with GPU memory here.
    fn enter<R>(&self, work: impl FnOnce(&mut Running) -> R) -> Option<R> {
        let mut locked = self.lock_soon()?;
        let running = locked.as_mut()?;
        if running.state.uses_gpu() || !running.tasks.take_starts(&running.commands) {
            return None;
        }
        let result = self.driving(|| {
            let result = work(running);
            if self.is_look_due() {
                self.look(running);
            }
            result
        });
        Some(result)
    }

    /// Marks the calling thread, which has the lock, as the one that drives this. The mark goes before the lock.
    fn driving<R>(&self, work: impl FnOnce() -> R) -> R {
        DRIVEN.with(|driven| {
            let _mark = Mark { driven, before: driven.replace(self) };
            work()
        })
    }

    /// Has the calling thread do the agent's work until `is_over`, as long as it progresses and no other thread does it.
    /// Leaves commands to the agent's thread: they may take long, and are unrelated to the caller's wait.
    ///
    /// It returns at once if the agent has to do with GPU memory: NIXL and UCX change the current CUDA context, which
    /// belongs to the caller.
    pub fn drive(&self, is_over: impl Fn() -> bool) {
        let mut last_progress = Instant::now();
        while !is_over() && last_progress.elapsed() < SPIN {
            let Some(mut running) = self.running.try_lock() else {
                // The agent's thread works, or another one that waits.
                if !yields_soon() {
                    return;
                }
                continue;
            };
            if !self.driving(|| step_until(&mut running, &mut last_progress, &is_over)) {
                return;
            }
        }
    }

    /// The lock, if it is released within some microseconds, or when another thread has looked for messages. Leaving the work
    /// to that thread would take longer, and keep it awake for the next one.
    fn lock_soon(&self) -> Option<MutexGuard<'_, Option<Running>>> {
        self.running.try_lock().or_else(|| self.lock_contended())
    }

    /// `None` also if the calling thread drives the agent, which it could not have locked again.
    #[cold]
    fn lock_contended(&self) -> Option<MutexGuard<'_, Option<Running>>> {
        if self.is_driven_here() { None } else { self.attempt(|attempt| self.waits_on(attempt)) }
    }

    /// Whether a thread looks for messages of peers.
    pub(super) fn is_looking(&self) -> bool {
        self.is_looking.load(Ordering::Relaxed)
    }

    /// Whether a look for messages is left to the thread that has the agent.
    pub(super) fn is_look_due(&self) -> bool {
        self.is_look_due.load(Ordering::Relaxed)
    }

    /// Whether a posting thread attempts to take the lock again after so many attempts.
    fn waits_on(&self, attempt: usize) -> bool {
        attempt < LOCK_ATTEMPTS || (attempt < LONG_LOCK_ATTEMPTS && self.is_looking())
    }

    /// The lock, for the agent's thread: taken between two requests of a thread that posts. A thread that sleeps until the lock is
    /// released costs each release a system call, and a thread that posts again has taken the lock before the sleeper is awake.
    fn lock_between(&self) -> MutexGuard<'_, Option<Running>> {
        self.attempt(|attempt| attempt < LONG_LOCK_ATTEMPTS).unwrap_or_else(|| self.lock())
    }

    /// Attempts to take the lock without sleeping, as long as `goes_on` is true of the number of attempts.
    fn attempt(&self, goes_on: impl Fn(usize) -> bool) -> Option<MutexGuard<'_, Option<Running>>> {
        (0..).take_while(|attempt| goes_on(*attempt)).find_map(|_| {
            let locked = self.running.try_lock();
            if locked.is_none() {
                std::hint::spin_loop();
            }
            locked
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock()
    }
}

/// How often requests in flight are polled while other threads keep the processors busy.
const BUSY_POLL: Duration = Duration::from_micros(50);

/// Steps the agent's work; false if the agent's thread has to go on.
fn step_until(
    running: &mut Option<Running>,
    last_progress: &mut Instant,
    is_over: impl Fn() -> bool,
) -> bool {
    let Some(Running { state, commands, tasks }) = running else { return false };
    // NIXL's file backends write on this thread. Blocking the signal takes four system calls.
    let _limit_reports_itself = state.may_write_files().then(FileSizeSignal::block);
    while !is_over() && last_progress.elapsed() < SPIN {
        if state.uses_gpu() || !tasks.take_starts(commands) {
            return false;
        }
        match tasks.step_all(state) {
            true => *last_progress = Instant::now(),
            false if yields_soon() => {}
            false => return false,
        }
    }
    true
}

/// Marks this thread as the one that drives an executor, until it is dropped.
struct Mark<'a> {
    driven: &'a Cell<*const Executor>,
    before: *const Executor,
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        self.driven.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::super::command_queue::CommandQueue;
    use super::*;

    #[test]
    fn the_thread_that_has_the_agent_looks_for_messages_if_the_agents_thread_cannot() {
        let executor = Executor::new();
        let (_commands, receiver) = CommandQueue::new();
        let state = std::mem::ManuallyDrop::into_inner(AgentState::unloaded());
        *executor.lock() = Some(Running { state, commands: receiver, tasks: TaskQueue::default() });
        let is_look_due = || executor.is_look_due();
        executor.run_here(|_| executor.drive_idle()).unwrap();
        assert!(!is_look_due(), "the thread that had the agent has looked");
        let held = executor.lock();
        executor.drive_idle();
        drop(held);
        assert!(is_look_due(), "no thread had entered");
        executor.drive_idle();
        assert!(!is_look_due());
        // NIXL would destroy the agent, and there is none.
        std::mem::forget(executor.lock().take());
    }

    #[test]
    fn a_posting_thread_waits_longer_while_the_agents_thread_looks_for_messages() {
        let executor = Executor::new();
        let held = executor.lock();
        std::thread::scope(|scope| {
            assert!(scope.spawn(|| executor.lock_soon().is_none()).join().unwrap());
            let attempts = |is_looking| {
                executor.is_looking.store(is_looking, Ordering::Relaxed);
                let counted = Cell::new(0);
                let locked = executor.attempt(|attempt| {
                    counted.set(attempt);
                    executor.waits_on(attempt)
                });
                assert!(locked.is_none());
                counted.get()
            };
            assert_eq!((attempts(false), attempts(true)), (LOCK_ATTEMPTS, LONG_LOCK_ATTEMPTS));
        });
        drop(held);
        assert!(executor.lock_soon().is_some());
    }
}
