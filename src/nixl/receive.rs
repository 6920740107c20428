// SPDX-License-Identifier: Apache-2.0
//! Waiting for notifications, as work of the agent's thread.

#![forbid(unsafe_code)]

use std::time::Instant;

use super::handoff::Giver;
use super::notification::Notification;
use super::state::AgentState;
use super::thread::{AgentTask, TaskStep};
use crate::error::{Error, Result};
use crate::log::{Count, log};

/// Waits on the agent's thread until a message is there or the time is over.
pub(super) struct ReceiveTask {
    deadline: Option<Instant>,
    reply: Giver<Result<Vec<Notification>>>,
}

impl ReceiveTask {
    /// Without a deadline it waits for ever.
    pub(super) fn new(deadline: Option<Instant>, reply: Giver<Result<Vec<Notification>>>) -> Self {
        Self { deadline, reply }
    }

    fn poll(&self, state: &mut AgentState) -> Option<Result<Vec<Notification>>> {
        if let Err(error) = state.receive() {
            return Some(Err(error));
        }
        let messages = state.take_inbox();
        if !messages.is_empty() {
            let count = Count(messages.len() as u64, "notification");
            log!(Debug, "agent {} took {count}", state.log_name());
            return Some(Ok(messages));
        }
        let over = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        over.then(|| Err(state.none_arrived()))
    }
}

impl AgentTask for ReceiveTask {
    fn step(&mut self, state: &mut AgentState) -> TaskStep {
        match self.poll(state) {
            Some(result) => {
                // A caller that waits no more leaves its messages to the next one.
                if let Err(Ok(messages)) = self.reply.give(result) {
                    state.inbox.0.extend(messages);
                }
                TaskStep::Done
            }
            None => TaskStep::Waiting,
        }
    }

    fn abandon(&mut self, error: Error) {
        let _ = self.reply.give(Err(error));
    }
}
