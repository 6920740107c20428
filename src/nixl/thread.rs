// SPDX-License-Identifier: Apache-2.0
//! The order of work for an agent: commands in order of submission, and tasks in rounds.
//!
//! NIXL has one lock per agent for posting, polling and notifications, and a thread that loops on it starves others. So each
//! round runs a bounded number of commands, and one step of every task.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::command::Command;
use super::command_queue::Receiver;
use super::state::AgentState;
use super::task::{AgentTask, TaskStep};
use crate::base::error::Error;
use crate::base::guarded::guarded;
use crate::base::leak;
use crate::base::log::log;

/// The maximum number of commands per round.
const COMMANDS_PER_ROUND: usize = 32;
/// How long work in flight is polled without sleeping.
pub const SPIN: Duration = Duration::from_micros(100);
/// How long the thread stays awake after its last task, because the next transfer often follows at once.
pub const AWAKE: Duration = Duration::from_micros(100);
/// The longest sleep between polls of work in flight.
const SLEEP_IN_FLIGHT: Duration = Duration::from_micros(20);
/// The longest sleep while all work waits for something slow.
const SLEEP_WAITING: Duration = Duration::from_micros(500);

/// A step that takes this long has moved bytes. One that only looks whether others have takes 1 to 2 µs.
const MOVING: Duration = Duration::from_micros(5);
/// The consecutive steps that move nothing, after which the thread that has begun a task leaves it to the agent's thread: as long
/// as the wake-up of that thread takes the caller.
const QUIET_STEPS: usize = 3;
/// How long the thread that has begun a task takes steps for it. UCX copies 1 MiB of a peer in 0.1 to 0.4 ms, depending on the
/// caches.
const LONGEST_BEGIN: Duration = Duration::from_millis(1);
/// The largest task that the thread that begins it may execute, in bytes and descriptors: UCX makes a system call for each
/// descriptor, and copies this much in less than [`LONGEST_BEGIN`].
const SHORT: (u64, u64) = (1 << 20, 128);

/// Whether a task with a peer is short enough for [`TaskQueue::begin`]: a wake-up of the agent's thread takes 10 to 50 µs.
pub fn is_short(bytes: u64, descriptors: u64) -> bool {
    bytes <= SHORT.0 && descriptors <= SHORT.1
}

/// How long the thread that posts executes a run itself: as long as its steps progress or move bytes.
#[derive(Default)]
pub struct Pace {
    /// The end of the first step, which is the only one of most runs.
    begun: Option<Instant>,
    /// From then to the end of the last step.
    spent: Duration,
    /// The last steps that have moved nothing.
    quiet: usize,
}

impl Pace {
    /// Whether the thread takes another step after one with this result.
    pub fn goes_on_after(&mut self, step: TaskStep) -> bool {
        let now = Instant::now();
        let spent = now - *self.begun.get_or_insert(now);
        let has_moved = step == TaskStep::Progressed || spent.saturating_sub(self.spent) >= MOVING;
        (self.spent, self.quiet) = (spent, if has_moved { 0 } else { self.quiet + 1 });
        step != TaskStep::Waiting && self.quiet < QUIET_STEPS && spent <= LONGEST_BEGIN
    }
}

/// The result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundOutcome {
    /// Commands ran, or a task made progress.
    Progressed,
    /// Neither.
    Quiet,
}

/// How the agent's thread waits for the next round.
pub enum WaitPolicy {
    /// Not at all.
    Spin,
    /// Until a command arrives, without sleeping, and at most until [`AWAKE`] after the last progress.
    Listen,
    /// Until a command arrives, or for this duration.
    Sleep(Duration),
    /// Until a command arrives, with a look for messages at this interval. There is no task.
    Idle(Duration),
    /// The same at growing intervals. All tasks wait for messages.
    Watch,
    /// Until a command arrives.
    Forever,
}

/// The tasks of an agent, and its pending commands.
#[derive(Default)]
pub struct TaskQueue {
    work: Vec<(Box<dyn AgentTask>, TaskStep)>,
    /// Commands that a waiting thread has left to the agent's thread.
    left: VecDeque<Command>,
    stopping: bool,
    /// Why the idle agent could not be driven the last time.
    idle_failure: Option<String>,
}

impl TaskQueue {
    /// Whether no task is left, and none will be added.
    pub fn are_over(&self) -> bool {
        self.stopping && self.work.is_empty() && self.left.is_empty()
    }

    /// Runs some commands, then one step of each task.
    pub fn run_round(&mut self, state: &mut AgentState, commands: &Receiver<Command>) -> RoundOutcome {
        let mut round = RoundOutcome::Quiet;
        for _ in 0..COMMANDS_PER_ROUND {
            let Some(command) = self.left.pop_front().or_else(|| commands.take()) else { break };
            self.execute(command, state);
            round = RoundOutcome::Progressed;
        }
        if self.step_all(state) {
            round = RoundOutcome::Progressed;
        }
        state.forget_retired();
        round
    }

    /// Takes over work that is to be started; false if there are other commands, which are left to the agent's thread.
    #[inline]
    pub fn take_starts(&mut self, commands: &Receiver<Command>) -> bool {
        (self.left.is_empty() && commands.len() == 0) || self.take_waiting_starts(commands)
    }

    #[cold]
    fn take_waiting_starts(&mut self, commands: &Receiver<Command>) -> bool {
        while self.left.is_empty() {
            if commands.len() == 0 {
                return true;
            }
            match commands.take() {
                Some(Command::Start(work)) => self.work.push((work, TaskStep::Progressed)),
                Some(other) => self.left.push_back(other),
                None => return true,
            }
        }
        false
    }

    /// Runs the steps of a new task as long as they progress or move bytes themselves: UCX copies host memory of a peer in parts,
    /// one per step. Returns whether the task has further steps; then it was added to the others.
    pub fn begin(&mut self, mut work: Box<dyn AgentTask>, state: &mut AgentState) -> bool {
        let mut pace = Pace::default();
        loop {
            match guarded(|| work.step(state)) {
                Ok(TaskStep::Done) => {
                    end(work);
                    return false;
                }
                Ok(step) if !pace.goes_on_after(step) => {
                    self.work.push((work, step));
                    return true;
                }
                Ok(_) => {}
                Err(error) => {
                    abandon(work, error);
                    return false;
                }
            }
        }
    }

    /// Runs one step of each task. Returns whether any made progress.
    pub fn step_all(&mut self, state: &mut AgentState) -> bool {
        let (mut index, mut has_progressed) = (0, false);
        while let Some((work, last)) = self.work.get_mut(index) {
            match guarded(|| work.step(state)) {
                Ok(TaskStep::Done) => {
                    end(self.work.remove(index).0);
                    has_progressed = true;
                }
                Ok(step) => {
                    *last = step;
                    has_progressed |= step == TaskStep::Progressed;
                    index += 1;
                }
                Err(error) => abandon(self.work.remove(index).0, error),
            }
        }
        has_progressed
    }

    fn execute(&mut self, command: Command, state: &mut AgentState) {
        match command {
            Command::Start(work) => self.work.push((work, TaskStep::Progressed)),
            Command::Stop => self.stopping = true,
            other => drop(logged(|| other.execute(state))),
        }
    }

    /// Has NIXL serve its peers while the agent is idle, or its tasks only wait for messages. A failure that repeats is logged
    /// once.
    pub fn drive_idle(&mut self, state: &mut AgentState) {
        if !self.work.is_empty() {
            if self.only_listen() {
                self.step_all(state);
            }
            return;
        }
        let failure = logged(|| state.receive()).and_then(Result::err).map(|error| error.to_string());
        if let Some(failure) = failure.as_ref().filter(|failure| self.idle_failure.as_ref() != Some(*failure))
        {
            log!(Warn, "{failure}");
        }
        self.idle_failure = failure;
    }

    /// Whether all tasks only wait for messages.
    fn only_listen(&self) -> bool {
        self.work.iter().all(|(work, _)| work.only_listens())
    }

    /// How to wait after a round without progress. `quiet` is the time since the last progress.
    pub fn wait_policy(&self, quiet: Duration, idle_poll: Option<Duration>) -> WaitPolicy {
        if self.work.is_empty() && quiet < AWAKE {
            return WaitPolicy::Listen;
        }
        if self.work.is_empty() {
            return idle_poll.map_or(WaitPolicy::Forever, WaitPolicy::Idle);
        }
        if self.only_listen() {
            return WaitPolicy::Watch;
        }
        let in_flight = self.work.iter().any(|(_, last)| *last == TaskStep::InFlight);
        match (in_flight, quiet < SPIN) {
            (true, true) => WaitPolicy::Spin,
            (true, false) => WaitPolicy::Sleep(SLEEP_IN_FLIGHT),
            (false, _) => WaitPolicy::Sleep(sleep_after(quiet)),
        }
    }
}

/// How long to sleep while all work waits for something slow: longer with the time without progress, up to a bound.
pub fn sleep_after(quiet: Duration) -> Duration {
    (quiet / 4).clamp(SLEEP_IN_FLIGHT, SLEEP_WAITING)
}

/// After a panic it is unknown what NIXL still does for the task, so the task is intentionally leaked.
fn abandon(mut work: Box<dyn AgentTask>, error: Error) {
    log!(Error, "on the agent's thread: {error}; its memory is never freed");
    logged(|| work.abandon(error));
    leak::intentionally(work);
}

/// Ends a task. A panic here would end the thread, and every later call of the agent would wait for ever.
fn end(work: Box<dyn AgentTask>) {
    let _: Option<()> = logged(|| work.end());
}

/// Runs a command; a panic in it ends the command, not the thread.
fn logged<R>(function: impl FnOnce() -> R) -> Option<R> {
    guarded(function).inspect_err(|error| log!(Error, "on the agent's thread: {error}")).ok()
}

/// Ends a task whose step has panicked, like the agent's thread.
#[cfg(test)]
pub fn panic_in_step(work: Box<dyn AgentTask>) {
    let panic = guarded(|| -> () { panic!("deliberate") });
    abandon(work, panic.unwrap_err());
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};

    use crossbeam_channel::{Sender, unbounded};

    use super::*;
    use crate::base::error::Status;
    use crate::nixl::command_queue::CommandQueue;

    struct Probe {
        panics: bool,
        reported: Sender<Error>,
        _memory: Arc<()>,
    }

    impl AgentTask for Probe {
        fn step(&mut self, _: &mut AgentState) -> TaskStep {
            assert!(!self.panics, "deliberate");
            TaskStep::InFlight
        }

        fn abandon(&mut self, error: Error) {
            self.reported.send(error).unwrap();
        }
    }

    fn probe(panics: bool, reported: &Sender<Error>) -> (Box<dyn AgentTask>, Weak<()>) {
        let memory = Arc::new(());
        let weak = Arc::downgrade(&memory);
        (Box::new(Probe { panics, reported: reported.clone(), _memory: memory }), weak)
    }

    #[test]
    fn a_panicking_step_is_reported_and_other_work_continues() {
        let (reported, reports) = unbounded();
        let (before, _) = probe(false, &reported);
        let (broken, memory) = probe(true, &reported);
        let (after, other_memory) = probe(false, &reported);
        let work = [before, broken, after].into_iter().map(|work| (work, TaskStep::Progressed)).collect();
        let mut tasks = TaskQueue { work, ..TaskQueue::default() };
        assert!(!tasks.step_all(&mut AgentState::unloaded()));
        assert_eq!(tasks.work.len(), 2);
        assert!(tasks.work.iter().all(|(_, last)| *last == TaskStep::InFlight));
        assert_eq!(reports.try_iter().map(|error| error.status()).collect::<Vec<_>>(), [Status::Panic]);
        drop(tasks);
        assert!(memory.upgrade().is_some());
        assert!(other_memory.upgrade().is_none());
    }

    /// Steps that move bytes, until none are left.
    struct Copying(usize);

    impl AgentTask for Copying {
        fn step(&mut self, _: &mut AgentState) -> TaskStep {
            let begun = Instant::now();
            while begun.elapsed() < 2 * MOVING {
                std::hint::spin_loop();
            }
            self.0 -= 1;
            if self.0 == 0 { TaskStep::Done } else { TaskStep::InFlight }
        }

        fn abandon(&mut self, _: Error) {}
    }

    #[test]
    fn a_task_that_moves_bytes_in_its_steps_is_not_left_to_another_thread() {
        let mut tasks = TaskQueue::default();
        assert!(!tasks.begin(Box::new(Copying(3)), &mut AgentState::unloaded()));
        assert!(tasks.work.is_empty());
        assert!(tasks.begin(Box::new(Copying(1_000_000)), &mut AgentState::unloaded()), "for ever");
        assert_eq!(tasks.work.len(), 1);
    }

    /// Steps with these results, the last of them again and again.
    struct Scripted(Vec<TaskStep>);

    impl AgentTask for Scripted {
        fn step(&mut self, _: &mut AgentState) -> TaskStep {
            if self.0.len() > 1 { self.0.remove(0) } else { self.0[0] }
        }

        fn abandon(&mut self, error: Error) {
            panic!("{error}");
        }
    }

    fn begun(steps: &[TaskStep]) -> bool {
        TaskQueue::default().begin(Box::new(Scripted(steps.to_vec())), &mut AgentState::unloaded())
    }

    #[test]
    fn a_task_is_left_to_the_agents_thread_when_it_waits_or_moves_nothing() {
        use TaskStep::{Done, InFlight, Progressed, Waiting};
        let quiet = vec![InFlight; QUIET_STEPS - 1];
        assert!(!begun(&[Progressed, Progressed, Done]));
        assert!(!begun(&[&[Progressed], &quiet[..], &[Progressed], &quiet, &[Done]].concat()));
        assert!(begun(&[Progressed, InFlight]));
        assert!(begun(&[Progressed, Waiting]));
    }

    #[test]
    fn tasks_of_few_bytes_and_few_descriptors_are_short() {
        assert!(is_short(1 << 20, 128) && is_short(0, 1));
        assert!(!is_short((1 << 20) + 1, 1) && !is_short(1 << 16, 129));
    }

    #[test]
    fn a_panic_in_drop_does_not_end_the_thread() {
        struct Fragile;
        impl AgentTask for Fragile {
            fn step(&mut self, _: &mut AgentState) -> TaskStep {
                TaskStep::Done
            }
            fn abandon(&mut self, _: Error) {}
        }
        impl Drop for Fragile {
            fn drop(&mut self) {
                panic!("deliberate");
            }
        }
        let work: Vec<(Box<dyn AgentTask>, TaskStep)> = vec![(Box::new(Fragile), TaskStep::Progressed)];
        let mut tasks = TaskQueue { work, ..TaskQueue::default() };
        assert!(tasks.step_all(&mut AgentState::unloaded()));
        assert!(tasks.work.is_empty());
    }

    #[test]
    fn a_waiting_thread_does_work_and_keeps_the_order_of_commands() {
        let (reported, _) = unbounded();
        let (sender, receiver) = CommandQueue::new();
        let (first, _) = probe(false, &reported);
        let (second, _) = probe(false, &reported);
        sender.send(Command::Start(first)).ok().unwrap();
        sender.send(Command::Test(Box::new(|_| ()))).ok().unwrap();
        sender.send(Command::Start(second)).ok().unwrap();
        let mut tasks = TaskQueue::default();
        assert!(!tasks.take_starts(&receiver));
        assert!(!tasks.take_starts(&receiver), "the command was not run yet");
        assert_eq!((tasks.work.len(), tasks.left.len(), receiver.len()), (1, 1, 1));
        assert_eq!(tasks.run_round(&mut AgentState::unloaded(), &receiver), RoundOutcome::Progressed);
        assert_eq!((tasks.work.len(), tasks.left.len(), receiver.len()), (2, 0, 0));
        assert!(tasks.take_starts(&receiver));
        sender.send(Command::Stop).ok().unwrap();
        assert!(!tasks.take_starts(&receiver) && !tasks.are_over());
    }
}
