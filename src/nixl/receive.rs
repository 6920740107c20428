// SPDX-License-Identifier: Apache-2.0
//! Waiting for notifications, as work of the agent's thread.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::notification::Notification;
use super::state::AgentState;
use super::thread::{AgentTask, Step};
use crate::error::{Error, Result};

/// Waits on the agent's thread until a message is there or the time is over.
pub(super) struct ReceiveTask {
    deadline: Option<Instant>,
    reply: Sender<Result<Vec<Notification>>>,
}

impl ReceiveTask {
    /// `timeout` of `None` waits for ever.
    pub(super) fn new(timeout: Option<Duration>, reply: Sender<Result<Vec<Notification>>>) -> Self {
        Self { deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)), reply }
    }

    fn poll(&self, state: &mut AgentState) -> Option<Result<Vec<Notification>>> {
        if let Err(error) = state.receive() {
            return Some(Err(error));
        }
        let messages = state.take_inbox();
        if !messages.is_empty() {
            return Some(Ok(messages));
        }
        let over = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        over.then(|| Err(state.none_arrived()))
    }
}

impl AgentTask for ReceiveTask {
    fn step(&mut self, state: &mut AgentState) -> Step {
        match self.poll(state) {
            Some(result) => {
                // If the caller no longer waits, the next one gets its messages.
                if let Err(unsent) = self.reply.send(result)
                    && let Ok(messages) = unsent.into_inner()
                {
                    state.inbox.0.extend(messages);
                }
                Step::Done
            }
            None => Step::Waiting,
        }
    }

    fn abandon(&mut self, error: Error) {
        let _ = self.reply.send(Err(error));
    }
}
