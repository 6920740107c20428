// SPDX-License-Identifier: Apache-2.0
//! A model of how the thread of an agent is woken: all orders of the steps of threads that send commands, begin tasks and drive
//! the agent. In none the agent's thread sleeps for ever while there is a command or a task.
//!
//! Why: a thread adds a command or a task first and a wake-up after that, and the agent's thread looks for commands and tasks with
//! the lock held after it has taken a wake-up. So what it does not see gets one later. A thread that drives the agent may
//! take commands and leave their tasks at any time, because it takes no wake-up: that of the command wakes the agent's thread.
#![forbid(unsafe_code)]

use std::collections::HashSet;

/// Faults that the model must find.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The thread is woken before the command is sent.
    WakesFirst,
    /// A begun task that has further steps is left without a wake-up.
    TaskWithoutWakeUp,
    /// A driving thread takes the wake-up of the commands that it takes.
    DriverTakesWakeUp,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    commands: u8,
    tasks: u8,
    is_woken: bool,
    /// The thread that has the agent.
    owner: Option<usize>,
    /// The next step of each thread.
    at: [u8; THREADS],
}

const THREADS: usize = 5;
/// Two threads that send commands, one that begins a task, one that drives, and that of the agent.
const SENDERS: [usize; 2] = [0, 1];
const POSTER: usize = 2;
const DRIVER: usize = 3;
const AGENT: usize = 4;

const DONE: u8 = 9;
/// The agent's thread sleeps until it is woken.
const ASLEEP: u8 = 3;

impl State {
    fn with(mut self, thread: usize, next: u8, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self.at[thread] = next;
        self
    }

    /// Takes the agent, if no thread has it.
    fn locked(self, thread: usize, next: u8) -> Option<Self> {
        self.owner.is_none().then(|| self.with(thread, next, |state| state.owner = Some(thread)))
    }

    /// A step of all tasks completes one of them, or none. Then `next` follows with the agent released.
    fn stepped(self, thread: usize, next: u8) -> Vec<Self> {
        let left = [self.tasks, self.tasks.saturating_sub(1)];
        left.map(|tasks| self.with(thread, next, |state| (state.tasks, state.owner) = (tasks, None))).into()
    }

    fn sends(self, thread: usize, first: u8, fault: Fault) -> Vec<Self> {
        let is_command = (self.at[thread] == first) != (fault == Fault::WakesFirst);
        let next = if self.at[thread] == first { first + 1 } else { DONE };
        vec![self.with(thread, next, |state| match is_command {
            true => state.commands += 1,
            false => state.is_woken = true,
        })]
    }

    fn posts(self, fault: Fault) -> Vec<Self> {
        match self.at[POSTER] {
            // Another thread has the agent: the work is sent.
            0 => vec![self.locked(POSTER, 1).unwrap_or_else(|| self.with(POSTER, 3, |_| ()))],
            1 => {
                let next = if fault == Fault::TaskWithoutWakeUp { DONE } else { 2 };
                vec![self.with(POSTER, next, |state| (state.tasks, state.owner) = (state.tasks + 1, None))]
            }
            2 => vec![self.with(POSTER, DONE, |state| state.is_woken = true)],
            _ => self.sends(POSTER, 3, fault),
        }
    }

    fn drives(self, fault: Fault) -> Vec<Self> {
        match self.at[DRIVER] {
            0 => self.locked(DRIVER, 1).into_iter().chain([self.with(DRIVER, DONE, |_| ())]).collect(),
            1 => vec![self.with(DRIVER, 2, |state| {
                (state.tasks, state.commands) = (state.tasks + state.commands, 0);
                state.is_woken &= fault != Fault::DriverTakesWakeUp;
            })],
            _ => self.stepped(DRIVER, 0),
        }
    }

    fn runs(self) -> Vec<Self> {
        match self.at[AGENT] {
            0 => self.locked(AGENT, 1).into_iter().collect(),
            1 => vec![self.with(AGENT, 2, |state| {
                (state.tasks, state.commands) = (state.tasks + state.commands, 0);
            })],
            // It sleeps without a limit only if there was no task when it had the agent.
            2 => {
                let stepped = self.stepped(AGENT, 4);
                let idle = stepped.clone().into_iter().filter(|state| state.tasks == 0);
                let asleep: Vec<_> = idle.map(|state| state.with(AGENT, ASLEEP, |_| ())).collect();
                [stepped, asleep].concat()
            }
            ASLEEP if !self.is_woken => Vec::new(),
            // Awake, or asleep with a limit: a wake-up is taken if there is one.
            _ => vec![self.with(AGENT, 0, |state| state.is_woken = false)],
        }
    }

    fn next(self, fault: Fault) -> Vec<Self> {
        let others = SENDERS.into_iter().filter(|thread| self.at[*thread] != DONE);
        let mut all: Vec<_> = others.flat_map(|thread| self.sends(thread, 0, fault)).collect();
        if self.at[POSTER] != DONE {
            all.extend(self.posts(fault));
        }
        if self.at[DRIVER] != DONE {
            all.extend(self.drives(fault));
        }
        all.extend(self.runs());
        all
    }
}

/// Whether there is an order in which work waits for ever. Also returns the number of states.
fn loses_a_wake_up(fault: Fault) -> (bool, usize) {
    let begin = State { commands: 0, tasks: 0, is_woken: false, owner: None, at: [0; THREADS] };
    let (mut seen, mut open) = (HashSet::from([begin]), vec![begin]);
    let mut is_lost = false;
    while let Some(state) = open.pop() {
        let next = state.next(fault);
        is_lost |= next.is_empty() && (state.commands > 0 || state.tasks > 0);
        open.extend(next.into_iter().filter(|state| seen.insert(*state)));
    }
    (is_lost, seen.len())
}

#[test]
fn no_order_of_steps_loses_a_wake_up() {
    let (is_lost, states) = loses_a_wake_up(Fault::None);
    assert!(!is_lost);
    assert!(states > 1000, "{states} states");
}

#[test]
fn the_model_finds_the_faults_that_the_order_of_steps_prevents() {
    for fault in [Fault::WakesFirst, Fault::TaskWithoutWakeUp, Fault::DriverTakesWakeUp] {
        assert!(loses_a_wake_up(fault).0);
    }
}
