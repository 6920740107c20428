// SPDX-License-Identifier: Apache-2.0
//! Tasks: what takes many steps on the agent's thread.

use std::time::Duration;

use super::state::AgentState;
use crate::base::Error;

/// The result of one step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStep {
    /// It made progress: call it again at once.
    Progressed,
    /// It waits for hardware or a peer that responds within microseconds.
    InFlight,
    /// It waits for something that may take long.
    Waiting,
    /// It is complete: nothing follows but [`AgentTask::end`].
    Done,
}

/// Something that takes many steps on the agent's thread.
pub trait AgentTask: Send {
    fn step(&mut self, state: &mut AgentState) -> TaskStep;

    /// How often it needs a look for messages of peers, if it handles any. One look before the steps of a round is that of all
    /// tasks.
    fn look_interval(&self) -> Option<Duration> {
        None
    }

    /// Whether it only waits for messages of peers. Then any thread that has the agent may take a step of it.
    fn only_listens(&self) -> bool {
        false
    }

    /// Ends the work, whose last step has returned [`TaskStep::Done`].
    fn end(self: Box<Self>) {}

    /// Reports that the agent's thread has ended, so that the work was never begun. Whatever starts the work gets the same
    /// error; a run ends with it.
    fn not_begun(&mut self, _error: &Error) {}

    /// Reports that a step has panicked. It is not called again, and it is never dropped: NIXL may still use the memory
    /// that it holds.
    fn abandon(&mut self, error: Error);
}
