// SPDX-License-Identifier: Apache-2.0
//! Waiting for notifications, as work of the agent's thread.

use std::time::{Duration, Instant};

use super::notification_inbox::Arrivals;
use super::state::AgentState;
use super::task::{AgentTask, TaskStep};
use crate::base::{Count, Error, Giver, Result, has_passed, log};

/// Waits on the agent's thread until a message is there or the time is over.
pub(super) struct ReceiveTask {
    deadline: Option<Instant>,
    reply: Giver<Result<Arrivals>>,
}

impl ReceiveTask {
    /// Without a deadline it waits for ever.
    pub(super) fn new(deadline: Option<Instant>, reply: Giver<Result<Arrivals>>) -> Self {
        Self { deadline, reply }
    }

    fn poll(&self, state: &mut AgentState) -> Option<Result<Arrivals>> {
        if let Some(arrivals) = state.inbox.take() {
            return Some(Ok(arrivals));
        }
        if let Some(error) = state.look_failure() {
            return Some(Err(error.clone()));
        }
        has_passed(self.deadline).then(|| Err(state.none_arrived()))
    }
}

impl AgentTask for ReceiveTask {
    fn look_interval(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    fn step(&mut self, state: &mut AgentState) -> TaskStep {
        // A caller that waits no more leaves the messages, or the loss, to the next one.
        let mut taken = None;
        self.reply.give_with(|| {
            let outcome = self.poll(state)?;
            if let Ok(Arrivals::Messages(messages)) = &outcome {
                taken = Some(Count(messages.len() as u64, "notification"));
            }
            Some(outcome)
        });
        if let Some(count) = taken {
            log!(Debug, "agent {} took {count}", state.log_name());
        }
        if self.reply.is_awaited() { TaskStep::Waiting } else { TaskStep::Done }
    }

    fn abandon(&mut self, error: Error) {
        let _ = self.reply.give(Err(error));
    }
}

#[cfg(test)]
mod tests {
    use super::super::notification::Notification;
    use super::*;
    use crate::base::{Taken, handoff};

    #[test]
    fn what_cannot_be_reported_waits_for_the_next_caller() {
        let mut state = AgentState::unloaded();
        while !state.inbox.keep(Notification { agent: "peer".into(), data: Vec::new() }) {}
        for is_lost in [false, true] {
            let (giver, taker) = handoff();
            assert!(matches!(taker.take(Some(Instant::now())), Taken::TooLate));
            assert_eq!(ReceiveTask::new(None, giver).step(&mut state), TaskStep::Done);
            let (giver, taker) = handoff();
            assert_eq!(ReceiveTask::new(None, giver).step(&mut state), TaskStep::Done);
            let Taken::Value(Ok(arrivals)) = taker.take(None) else { panic!("nothing arrived") };
            assert_eq!(arrivals == Arrivals::Lost(1), is_lost);
        }
        assert!(state.inbox.is_empty());
    }
}
