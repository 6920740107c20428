// SPDX-License-Identifier: Apache-2.0
//! The report that messages have arrived, to a caller that does not wait for them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::state::AgentState;
use super::task::{AgentTask, TaskStep};
use crate::base::{Error, log};

/// The shortest time between two looks for messages, while the thread of the agent is busy with other work.
const INTERVAL: Duration = Duration::from_micros(50);

/// Called when messages have arrived and none waited before.
pub struct Bell(Box<dyn Fn() + Send + Sync>);

impl Bell {
    /// A bell that calls `ring`, and the task of the agent that rings it, which ends with the bell.
    pub fn new(ring: Box<dyn Fn() + Send + Sync>) -> (Arc<Self>, Box<dyn AgentTask>) {
        let bell = Arc::new(Self(ring));
        let weak = Arc::downgrade(&bell);
        let task = RingTask { bell: weak, is_rung: false, taken: 0 };
        (bell, Box::new(task))
    }
}

/// Rings for messages until the bell is gone.
struct RingTask {
    bell: Weak<Bell>,
    /// The messages that wait were reported.
    is_rung: bool,
    /// How often messages were taken before the report.
    taken: u64,
}

impl AgentTask for RingTask {
    fn step(&mut self, state: &mut AgentState) -> TaskStep {
        let Some(bell) = self.bell.upgrade() else { return TaskStep::Done };
        let (are_there, taken) = (!state.inbox.is_empty(), state.inbox.taken());
        if !are_there || (self.is_rung && taken == self.taken) {
            self.is_rung &= are_there;
            return TaskStep::Waiting;
        }
        (self.is_rung, self.taken) = (true, taken);
        (bell.0)();
        TaskStep::Progressed
    }

    fn look_interval(&self) -> Option<Duration> {
        Some(INTERVAL)
    }

    fn only_listens(&self) -> bool {
        true
    }

    fn abandon(&mut self, error: Error) {
        log!(Error, "arriving notifications are no longer reported: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::notification::Notification;
    use crate::base::{Taken, handoff};
    use std::time::Instant;

    use super::super::receive::ReceiveTask;
    use super::*;

    #[test]
    fn the_bell_rings_for_messages_and_for_a_loss_after_them() {
        let mut state = AgentState::unloaded();
        let bell = Arc::new(Bell(Box::new(|| ())));
        let (weak, taken) = (Arc::downgrade(&bell), 0);
        let mut task = RingTask { bell: weak, is_rung: false, taken };
        let mut look = |state: &mut AgentState| task.step(state);
        assert_eq!(look(&mut state), TaskStep::Waiting);
        while !state.inbox.keep(Notification { agent: "peer".into(), data: Vec::new() }) {}
        for _ in ["messages", "loss"] {
            assert_eq!(look(&mut state), TaskStep::Progressed);
            assert_eq!(look(&mut state), TaskStep::Waiting, "once");
            assert!(state.inbox.take().is_some());
        }
        assert_eq!(look(&mut state), TaskStep::Waiting);
        assert!(!state.inbox.keep(Notification { agent: "peer".into(), data: Vec::new() }));
        assert_eq!(look(&mut state), TaskStep::Progressed);
        let (giver, taker) = handoff();
        assert!(matches!(taker.take(Some(Instant::now())), Taken::TooLate));
        assert_eq!(ReceiveTask::new(None, giver).step(&mut state), TaskStep::Done);
        assert_eq!(look(&mut state), TaskStep::Waiting, "a caller that was late has taken nothing");
        drop(bell);
        assert_eq!(look(&mut state), TaskStep::Done);
    }
}
