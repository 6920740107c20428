// SPDX-License-Identifier: Apache-2.0
//! Threads that post, wait and call, against the running thread of an agent. There is no NIXL: the tasks are scripts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{ThreadId, spawn, yield_now};

use super::super::task::TaskStep::{self, Done, InFlight, Progressed, Waiting};
use super::*;
use crate::base::Giver;
use crate::waiting::until;

/// After this time, something that has to happen is taken for lost.
const PATIENCE: Duration = Duration::from_secs(60);

fn deadline() -> Option<Instant> {
    Some(Instant::now() + PATIENCE)
}

/// An agent whose thread runs, without NIXL.
struct Attended {
    agent: Arc<Agent>,
    /// The folder of the thread under /proc.
    folder: PathBuf,
    ended: Receiver<()>,
}

impl Attended {
    fn begin() -> Self {
        let ((created, agents), (end, ended)) = (channel(), channel());
        spawn(move || {
            let (agent, commands) = Agent::unattended();
            let executor = agent.executor.clone();
            created.send((agent, std::fs::canonicalize("/proc/thread-self").unwrap())).unwrap();
            let state = std::mem::ManuallyDrop::into_inner(AgentState::unloaded());
            // NIXL would destroy the agent, and there is none.
            std::mem::forget(executor.run_until_stopped(state, commands, None));
            end.send(()).unwrap();
        });
        let (agent, folder) = agents.recv().unwrap();
        Self { agent, folder, ended }
    }

    /// Waits until the thread sleeps, which it does until the next wake-up.
    fn fall_asleep(&self) {
        until("the agent's thread does not sleep", || {
            std::fs::read_to_string(self.folder.join("stat")).unwrap().contains(") S ")
        });
    }

    fn end(self) {
        drop(self.agent);
        self.ended.recv_timeout(PATIENCE).expect("the agent's thread ends");
    }
}

/// The tasks and commands of a test.
struct Work {
    agent_thread: ThreadId,
    is_inside: AtomicBool,
    /// Steps that the agent's thread has taken, and other threads.
    steps: [AtomicUsize; 2],
}

impl Work {
    fn new(attended: &Attended) -> Arc<Self> {
        let agent_thread = attended.agent.thread_id;
        Arc::new(Self { agent_thread, is_inside: AtomicBool::new(false), steps: Default::default() })
    }

    /// Does something with the agent, which only one thread may at a time.
    fn alone(&self) {
        assert!(!self.is_inside.swap(true, Ordering::Relaxed), "two threads use the agent at once");
        yield_now();
        self.is_inside.store(false, Ordering::Relaxed);
    }

    fn count_step(&self) {
        let is_other = std::thread::current().id() != self.agent_thread;
        self.steps[usize::from(is_other)].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the agent's thread and the others have each taken this many steps.
    fn is_shared(&self, least: usize) -> bool {
        self.steps.iter().all(|steps| steps.load(Ordering::Relaxed) >= least)
    }
}

/// Has these steps, then reports how many it took.
struct Script {
    steps: &'static [TaskStep],
    taken: usize,
    work: Arc<Work>,
    is_over: Arc<AtomicBool>,
    reply: Giver<Result<usize>>,
}

impl AgentTask for Script {
    fn step(&mut self, _: &mut AgentState) -> TaskStep {
        self.work.alone();
        self.work.count_step();
        self.taken += 1;
        self.steps[self.taken - 1]
    }

    fn end(self: Box<Self>) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.reply.give(Ok(self.taken));
    }

    fn abandon(&mut self, error: Error) {
        let _ = self.reply.give(Err(error));
    }
}

/// Begins a script on this thread. Returns what the thread waits for: whether it is over, and its reply.
fn begin(
    agent: &Agent,
    work: &Arc<Work>,
    steps: &'static [TaskStep],
) -> (Arc<AtomicBool>, Taker<Result<usize>>) {
    let (reply, replied) = handoff();
    let is_over = Arc::<AtomicBool>::default();
    let script = Script { steps, taken: 0, work: work.clone(), is_over: is_over.clone(), reply };
    agent.begin(Box::new(script)).unwrap();
    (is_over, replied)
}

fn assert_taken(reply: Taker<Result<usize>>, steps: &[TaskStep]) {
    match reply.take(deadline()) {
        Taken::Value(taken) => assert_eq!(taken.unwrap(), steps.len()),
        Taken::Gone => panic!("a task was dropped before its end"),
        Taken::TooLate => panic!("a task that was left to the agent's thread was lost"),
    }
}

const SCRIPTS: [&[TaskStep]; 5] = [
    &[Done],
    &[InFlight, InFlight, InFlight, InFlight, Done],
    &[Progressed, Done],
    &[Waiting, Done],
    &[Waiting, Waiting, InFlight, Progressed, Done],
];

/// Posts tasks until `is_enough`, and has every other one done by the thread that waits for it.
fn post(agent: &Agent, work: &Arc<Work>, is_enough: impl Fn() -> bool) {
    let limit = deadline();
    for round in 0.. {
        for steps in SCRIPTS {
            let (is_over, reply) = begin(agent, work, steps);
            if round % 2 == 0 {
                agent.drive(|| is_over.load(Ordering::Relaxed));
            }
            assert_taken(reply, steps);
        }
        if is_enough() {
            return;
        }
        assert!(Some(Instant::now()) < limit, "commands or steps are missing");
    }
}

/// Calls the agent's thread this often.
fn command(agent: &Agent, work: &Arc<Work>, times: usize) {
    let run = Arc::new(AtomicUsize::new(0));
    for number in 0..times {
        let (work, run) = (work.clone(), run.clone());
        let count = move |_: &mut AgentState| {
            work.alone();
            run.fetch_add(1, Ordering::Relaxed)
        };
        if number % 4 == 0 {
            let command = Command::Test(Box::new(move |state| _ = count(state)));
            agent.send(command).unwrap();
        } else {
            let before = agent.run(move |state| Ok(count(state))).unwrap();
            assert_eq!(before, number, "commands of a thread are run in order");
        }
    }
    let all = agent.run(move |_| Ok(run.load(Ordering::Relaxed))).unwrap();
    assert_eq!(all, times);
}

/// Panics with the agent locked, once the agent is free.
fn panic_inside(agent: &Agent) {
    let panics = || catch_unwind(AssertUnwindSafe(|| agent.run_here(|_| panic!("deliberate"))));
    until("commands are not run", || panics().is_err());
    assert!(!agent.executor.is_driven_here());
}

#[test]
fn threads_post_and_call_while_the_agents_thread_runs_tasks() {
    const COMMANDS: usize = 100;
    const STEPS: usize = 100;
    let attended = Attended::begin();
    let work = Work::new(&attended);
    let agent = &attended.agent;
    let commanding = AtomicUsize::new(2);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                post(agent, &work, || commanding.load(Ordering::Relaxed) == 0 && work.is_shared(STEPS))
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                command(agent, &work, COMMANDS);
                commanding.fetch_sub(1, Ordering::Relaxed);
            });
        }
        scope.spawn(|| panic_inside(agent));
    });
    // The thread still listens.
    attended.end();
}

#[test]
fn a_sleeping_thread_of_an_agent_wakes_for_a_task_a_command_and_its_end() {
    let attended = Attended::begin();
    let work = Work::new(&attended);
    let agent = &attended.agent;
    for steps in SCRIPTS {
        attended.fall_asleep();
        let (_, reply) = begin(agent, &work, steps);
        assert_taken(reply, steps);
    }
    attended.fall_asleep();
    assert_eq!(agent.run(|_| Ok(7)).unwrap(), 7);
    attended.fall_asleep();
    attended.end();
}

#[test]
fn a_look_for_messages_is_marked_whichever_task_makes_it() {
    let attended = Attended::begin();
    let executor = attended.agent.executor.clone();
    let look =
        move |state: &mut AgentState| Ok((state.looking(|_| executor.is_looking()), executor.is_looking()));
    assert_eq!(attended.agent.run(look).unwrap(), (true, false));
    attended.end();
}

/// A task that only waits for messages, and reports which threads take its steps.
struct Listener {
    steps: Sender<ThreadId>,
    is_over: Arc<AtomicBool>,
}

impl AgentTask for Listener {
    fn step(&mut self, _: &mut AgentState) -> TaskStep {
        self.steps.send(std::thread::current().id()).unwrap();
        if self.is_over.load(Ordering::Relaxed) { Done } else { Waiting }
    }

    fn only_listens(&self) -> bool {
        true
    }

    fn abandon(&mut self, error: Error) {
        panic!("{error}");
    }
}

#[test]
fn a_thread_that_posts_takes_the_steps_of_a_task_that_waits_for_messages() {
    let attended = Attended::begin();
    let agent = &attended.agent;
    let ((steps, stepped), is_over) = (channel(), Arc::<AtomicBool>::default());
    agent.start(Box::new(Listener { steps, is_over: is_over.clone() })).unwrap();
    assert_eq!(stepped.recv_timeout(PATIENCE), Ok(agent.thread_id));
    let own = std::thread::current().id();
    while stepped.try_iter().all(|thread| thread != own) {
        // The agent's thread does not wait for the agent meanwhile: it leaves the next step to this thread.
        agent.run_here(|_| {
            until("no step is left to the thread that has the agent", || agent.executor.is_look_due());
        });
    }
    is_over.store(true, Ordering::Relaxed);
    attended.end();
}
