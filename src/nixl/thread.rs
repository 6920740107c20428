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
use super::pace::Pace;
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
    last_look: Option<Instant>,
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

    /// Looks for messages, then runs one step of each task. Returns whether any made progress.
    pub fn step_all(&mut self, state: &mut AgentState) -> bool {
        self.look(state);
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

    /// Has NIXL serve its peers while the agent is idle, or its tasks only wait for messages.
    pub fn drive_idle(&mut self, state: &mut AgentState) {
        state.forget_retired();
        if self.work.is_empty() {
            logged(|| state.look());
        } else if self.only_listen() {
            self.step_all(state);
        }
    }

    /// Looks for messages, if a task needs that now.
    fn look(&mut self, state: &mut AgentState) {
        let intervals = self.work.iter().filter_map(|(work, _)| work.look_interval());
        let Some(interval) = intervals.min() else { return };
        if self.last_look.is_none_or(|last| last.elapsed() >= interval) {
            logged(|| state.look());
            self.last_look = Some(Instant::now());
        }
    }

    /// Whether all tasks only wait for messages.
    fn only_listen(&self) -> bool {
        self.work.iter().all(|(work, _)| work.only_listens())
    }

    /// How to wait after a round without progress. `quiet` is the time since the last progress. `has_retired`: the last hold of an
    /// invalidated peer may be dropped by a run that the thread that posts it ends itself, and no command follows.
    pub fn wait_policy(&self, quiet: Duration, idle_poll: Option<Duration>, has_retired: bool) -> WaitPolicy {
        if self.work.is_empty() && quiet < AWAKE {
            return WaitPolicy::Listen;
        }
        if self.work.is_empty() {
            return match idle_poll {
                Some(interval) => WaitPolicy::Idle(interval),
                None if has_retired => WaitPolicy::Sleep(sleep_after(quiet)),
                None => WaitPolicy::Forever,
            };
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
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Arc, Weak};

    use super::*;
    use crate::base::error::Status;
    use crate::nixl::command_queue::CommandQueue;
    use crate::nixl::pace::{MOVING, QUIET_STEPS};

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
        let (reported, reports) = channel();
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

    #[test]
    fn an_idle_thread_looks_again_as_long_as_nixl_has_an_invalidated_peer() {
        let (idle, long) = (TaskQueue::default(), 2 * AWAKE);
        assert!(matches!(idle.wait_policy(long, None, true), WaitPolicy::Sleep(_)));
        assert!(matches!(idle.wait_policy(long, None, false), WaitPolicy::Forever));
        assert!(matches!(idle.wait_policy(long, Some(SPIN), true), WaitPolicy::Idle(SPIN)));
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

    /// Waits for messages, for which it needs a look this often.
    struct Listening(Option<Duration>);

    impl AgentTask for Listening {
        fn step(&mut self, _: &mut AgentState) -> TaskStep {
            TaskStep::Waiting
        }

        fn look_interval(&self) -> Option<Duration> {
            self.0
        }

        fn abandon(&mut self, _: Error) {}
    }

    #[test]
    fn the_tasks_of_a_round_share_a_look_for_messages() {
        let mut state = AgentState::unloaded();
        let mut tasks = TaskQueue::default();
        let (seldom, hour) = (Duration::from_secs(7200), Duration::from_secs(3600));
        let mut looks = |intervals: &[Option<Duration>], before: Option<Instant>| {
            let listening = |interval: &Option<Duration>| {
                let task: Box<dyn AgentTask> = Box::new(Listening(*interval));
                (task, TaskStep::Waiting)
            };
            (tasks.work, tasks.last_look) = (intervals.iter().map(listening).collect(), before);
            tasks.step_all(&mut state);
            tasks.last_look != before
        };
        let recent = Some(Instant::now());
        assert!(!looks(&[None], None), "no task handles messages");
        assert!(looks(&[None, Some(hour)], None));
        assert!(!looks(&[Some(seldom), Some(hour)], recent), "the last look is recent");
        assert!(
            looks(&[Some(hour), Some(Duration::ZERO)], recent),
            "the shortest interval is that of the look"
        );
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
        let (reported, _) = channel();
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
