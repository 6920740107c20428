// SPDX-License-Identifier: Apache-2.0
//! The order of work for an agent: commands in order of submission, and tasks in rounds.
//!
//! NIXL has one lock per agent for posting, polling and notifications, and a thread that loops on it starves others. So each
//! round runs a bounded number of commands, and one step of every task.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::command::Command;
use super::command_queue::Receiver;
use super::state::AgentState;
use super::task::{AgentTask, Pace, TaskStep};
use crate::base::{Error, guarded, leak, log};

const COMMANDS_PER_ROUND: usize = 32;
/// How long work in flight is polled without sleeping.
pub const SPIN: Duration = Duration::from_micros(100);
/// How long the thread stays awake after its last task, because the next transfer often follows at once.
pub const AWAKE: Duration = Duration::from_micros(100);
/// The longest sleep between polls of work in flight.
const SLEEP_IN_FLIGHT: Duration = Duration::from_micros(20);
/// The longest sleep while all work waits for something slow.
const SLEEP_WAITING: Duration = Duration::from_micros(500);
/// How often the thread looks for messages that no task waits for. NIXL's own thread receives them without a limit, and only a look
/// takes them from it: to the inbox, which has limits.
const DRAIN: Duration = Duration::from_millis(100);
/// The same after a look that has found some.
const DRAIN_SOON: Duration = Duration::from_millis(1);

/// How the agent's thread waits for the next round.
pub enum WaitPolicy {
    /// Not at all.
    Spin,
    /// Until a command arrives, without sleeping, and at most until [`AWAKE`] after the last progress.
    Listen,
    /// Until a command arrives, or for this duration.
    Sleep(Duration),
    /// Until a command arrives, with a look for messages at this interval, or at growing ones. There is no task, or all wait for
    /// messages.
    Watch(Option<Duration>),
}

/// The tasks of an agent, and its pending commands.
#[derive(Default)]
pub struct TaskQueue {
    work: Vec<(Box<dyn AgentTask>, TaskStep)>,
    /// Commands that a waiting thread has left to the agent's thread.
    left: VecDeque<Command>,
    stopping: bool,
    last_look: Option<Instant>,
    /// Whether it has found messages.
    has_found: bool,
}

impl TaskQueue {
    /// Whether no task is left, and none will be added.
    pub fn are_over(&self) -> bool {
        self.stopping && self.work.is_empty() && self.left.is_empty()
    }

    /// Runs some commands, then one step of each task. Returns whether commands ran, or a task made progress.
    pub fn run_round(&mut self, state: &mut AgentState, commands: &Receiver<Command>) -> bool {
        let mut has_progressed = false;
        for _ in 0..COMMANDS_PER_ROUND {
            let Some(command) = self.left.pop_front().or_else(|| commands.take()) else { break };
            self.execute(command, state);
            has_progressed = true;
        }
        has_progressed |= self.step_all(state);
        state.forget_retired();
        has_progressed
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

    /// Has NIXL serve its peers while the agent is idle, or its tasks only wait for messages. Returns whether a task made progress.
    pub fn drive_idle(&mut self, state: &mut AgentState) -> bool {
        state.forget_retired();
        if self.work.is_empty() {
            logged(|| state.look());
            return false;
        }
        self.only_listen() && self.step_all(state)
    }

    /// Looks for messages, if a task needs that now, or if none has for a while.
    fn look(&mut self, state: &mut AgentState) {
        let intervals = self.work.iter().filter_map(|(work, _)| work.look_interval());
        // Without a thread of NIXL none arrives before a look, and each look serves peers, which only `idle_poll` may ask for.
        let drain = || state.has_progress_thread.then(|| self.drain_interval());
        let Some(interval) = intervals.min().or_else(drain) else { return };
        if self.last_look.is_none_or(|last| last.elapsed() >= interval) {
            self.has_found = logged(|| state.look()).unwrap_or_default();
            self.last_look = Some(Instant::now());
        }
    }

    fn drain_interval(&self) -> Duration {
        if self.has_found { DRAIN_SOON } else { DRAIN }
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
                Some(_) => WaitPolicy::Watch(idle_poll),
                None if has_retired => WaitPolicy::Sleep(sleep_after(quiet)),
                None => WaitPolicy::Sleep(self.drain_interval()),
            };
        }
        if self.only_listen() {
            return WaitPolicy::Watch(None);
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
    use std::sync::Arc;

    use super::*;
    use crate::base::{Mutex, Status};
    use crate::nixl::command_queue::CommandQueue;
    use crate::nixl::task::{MOVING, QUIET_STEPS};

    /// A task with these steps.
    struct Script<F> {
        step: F,
        look_interval: Option<Duration>,
        abandoned: Arc<Mutex<Option<Error>>>,
    }

    impl<F: FnMut() -> TaskStep + Send> AgentTask for Script<F> {
        fn step(&mut self, _: &mut AgentState) -> TaskStep {
            (self.step)()
        }

        fn look_interval(&self) -> Option<Duration> {
            self.look_interval
        }

        fn abandon(&mut self, error: Error) {
            *self.abandoned.lock() = Some(error);
        }
    }

    fn task(step: impl FnMut() -> TaskStep + Send + 'static) -> Box<dyn AgentTask> {
        Box::new(Script { step, look_interval: None, abandoned: Arc::default() })
    }

    fn in_flight() -> Box<dyn AgentTask> {
        task(|| TaskStep::InFlight)
    }

    fn queue(work: impl IntoIterator<Item = Box<dyn AgentTask>>) -> TaskQueue {
        let work = work.into_iter().map(|work| (work, TaskStep::Progressed)).collect();
        TaskQueue { work, ..TaskQueue::default() }
    }

    #[test]
    fn a_panicking_step_is_reported_and_other_work_continues() {
        let abandoned = Arc::<Mutex<_>>::default();
        let broken: Box<dyn AgentTask> = Box::new(Script {
            step: || panic!("deliberate"),
            look_interval: None,
            abandoned: abandoned.clone(),
        });
        let mut tasks = queue([in_flight(), broken, in_flight()]);
        assert!(!tasks.step_all(&mut AgentState::unloaded()));
        assert_eq!(tasks.work.len(), 2);
        assert!(tasks.work.iter().all(|(_, last)| *last == TaskStep::InFlight));
        assert_eq!(abandoned.lock().take().map(|error| error.status()), Some(Status::Panic));
        assert_eq!(Arc::strong_count(&abandoned), 2, "its memory is not freed");
    }

    #[test]
    fn an_idle_thread_looks_again_as_long_as_nixl_has_an_invalidated_peer() {
        let (idle, long) = (TaskQueue::default(), 2 * AWAKE);
        assert!(matches!(idle.wait_policy(long, None, true), WaitPolicy::Sleep(_)));
        assert!(matches!(idle.wait_policy(long, None, false), WaitPolicy::Sleep(DRAIN)));
        assert!(matches!(idle.wait_policy(long, Some(SPIN), true), WaitPolicy::Watch(Some(SPIN))));
    }

    /// Begins a task with these steps, the last of them again and again. Returns whether it is left to the agent's thread.
    fn is_left(steps: impl IntoIterator<Item = TaskStep>, work: Duration) -> bool {
        let mut steps: Vec<_> = steps.into_iter().collect();
        let script = task(move || {
            let begun = Instant::now();
            while begun.elapsed() < work {
                std::hint::spin_loop();
            }
            if steps.len() > 1 { steps.remove(0) } else { steps[0] }
        });
        let mut tasks = TaskQueue::default();
        let is_left = tasks.begin(script, &mut AgentState::unloaded());
        assert_eq!(tasks.work.len(), usize::from(is_left));
        is_left
    }

    #[test]
    fn a_task_is_left_to_the_agents_thread_when_it_waits_or_moves_nothing() {
        use TaskStep::{Done, InFlight, Progressed, Waiting};
        let (quiet, at_once) = (vec![InFlight; QUIET_STEPS - 1], Duration::ZERO);
        assert!(!is_left([Progressed, Progressed, Done], at_once));
        assert!(!is_left([&[Progressed], &quiet[..], &[Progressed], &quiet, &[Done]].concat(), at_once));
        assert!(is_left([Progressed, InFlight], at_once));
        assert!(is_left([Progressed, Waiting], at_once));
        assert!(!is_left([InFlight, InFlight, InFlight, Done], 2 * MOVING), "it moves bytes in its steps");
        assert!(is_left([InFlight], 2 * MOVING), "for ever");
    }

    #[test]
    fn the_tasks_of_a_round_share_a_look_for_messages() {
        let (seldom, hour) = (Duration::from_secs(7200), Duration::from_secs(3600));
        let looks_of = |progress_thread, intervals: &[Option<Duration>], before: Option<Instant>| {
            let listening = intervals.iter().map(|interval| -> Box<dyn AgentTask> {
                let step = || TaskStep::Waiting;
                Box::new(Script { step, look_interval: *interval, abandoned: Arc::default() })
            });
            let mut tasks = TaskQueue { last_look: before, ..queue(listening) };
            let mut state = AgentState::unloaded();
            state.has_progress_thread = progress_thread;
            tasks.step_all(&mut state);
            tasks.last_look != before
        };
        let looks = |intervals: &[Option<Duration>], before| looks_of(true, intervals, before);
        let recent = Some(Instant::now());
        assert!(!looks(&[None], recent), "no task handles messages");
        assert!(looks(&[None], None), "messages that no task waits for are taken, too");
        assert!(!looks_of(false, &[None], None), "without a thread of NIXL none arrives before a look");
        assert!(looks_of(false, &[Some(hour)], None));
        assert!(looks(&[None, Some(hour)], None));
        assert!(!looks(&[Some(seldom), Some(hour)], recent), "the last look is recent");
        let shortest = &[Some(hour), Some(Duration::ZERO)];
        assert!(looks(shortest, recent), "the shortest interval is that of the look");
    }

    #[test]
    fn a_panic_in_drop_does_not_end_the_thread() {
        struct Fragile;
        impl Drop for Fragile {
            fn drop(&mut self) {
                panic!("deliberate");
            }
        }
        let fragile = Fragile;
        let mut tasks = queue([task(move || {
            let _ = &fragile;
            TaskStep::Done
        })]);
        assert!(tasks.step_all(&mut AgentState::unloaded()));
        assert!(tasks.work.is_empty());
    }

    #[test]
    fn a_waiting_thread_does_work_and_keeps_the_order_of_commands() {
        let (sender, receiver) = CommandQueue::new();
        sender.send(Command::Start(in_flight())).ok().unwrap();
        sender.send(Command::Test(Box::new(|_| ()))).ok().unwrap();
        sender.send(Command::Start(in_flight())).ok().unwrap();
        let mut tasks = TaskQueue::default();
        assert!(!tasks.take_starts(&receiver));
        assert!(!tasks.take_starts(&receiver), "the command was not run yet");
        assert_eq!((tasks.work.len(), tasks.left.len(), receiver.len()), (1, 1, 1));
        assert!(tasks.run_round(&mut AgentState::unloaded(), &receiver));
        assert_eq!((tasks.work.len(), tasks.left.len(), receiver.len()), (2, 0, 0));
        assert!(tasks.take_starts(&receiver));
        sender.send(Command::Stop).ok().unwrap();
        assert!(!tasks.take_starts(&receiver) && !tasks.are_over());
    }
}
