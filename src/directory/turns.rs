// SPDX-License-Identifier: Apache-2.0
//! Publications and withdrawals of one agent run one after another. Each waits for the others until its own deadline.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::base::{Condvar, Mutex, Result, fail};

/// The agents that a call publishes or withdraws now.
#[derive(Default)]
pub struct Turns {
    names: Mutex<BTreeSet<String>>,
    ended: Condvar,
}

/// The right to change the entry of an agent. Dropping it ends the turn.
pub struct Turn<'a> {
    turns: &'a Turns,
    name: &'a str,
}

impl Turns {
    /// Waits until no other call changes the entry of an agent.
    pub fn take<'a>(&'a self, name: &'a str, deadline: Option<Instant>) -> Result<Turn<'a>> {
        let is_taken = |names: &mut BTreeSet<String>| !names.insert(name.to_string());
        if self.ended.wait_while_until(self.names.lock(), deadline, is_taken).is_err() {
            fail!(TimedOut, "another call publishes or withdraws the agent, and did not end in time");
        }
        Ok(Turn { turns: self, name })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.names.lock().remove(self.name);
        self.turns.ended.notify_all();
    }
}
