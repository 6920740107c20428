// SPDX-License-Identifier: Apache-2.0
//! The requests of one run that are not posted yet.
#![forbid(unsafe_code)]

use crate::base::error::{Error, Result};
use crate::nixl::{AgentState, RequestId};

/// By any method.
pub trait RunFlow {
    /// Whether no request is left, and no chunk is in an arena.
    fn is_over(&self) -> bool {
        !self.has_more()
    }

    /// Whether some have not begun.
    fn has_more(&self) -> bool;

    /// Begins no further ones. Those in flight end.
    fn stop(&mut self);

    /// The next to post, if it can be posted now.
    fn next(&mut self, state: &mut AgentState) -> Result<Option<RequestId>>;

    /// Whether a request only asks the owner how far it is.
    fn is_poll(&self, _: RequestId) -> bool {
        false
    }

    /// Handles what is done between requests. Returns whether there was anything.
    fn advance(&mut self, _: &mut AgentState) -> Result<bool> {
        Ok(false)
    }

    /// Handles the end of one. Returns whether the run has progressed.
    fn ended(&mut self, state: &mut AgentState, request: RequestId, has_failed: bool) -> Result<bool>;

    /// Whether it waits for staging memory of this process, which other transfers have.
    fn lacks_memory(&self) -> bool {
        false
    }

    /// After a panic: never frees staging memory that NIXL or a copy may still use.
    fn abandon(&mut self) {}

    /// Begins to count the bytes that have moved, before the first request.
    fn count_bytes(&mut self) {}

    /// Bytes that have moved at least, if they are counted.
    fn moved(&self) -> u64;

    /// Adds to an error where in the run it occurred.
    fn located(&self, error: Error) -> Error {
        error
    }

    /// Handles the end of the run. Returns whether NIXL may still use memory of a layout.
    fn close(&mut self, _: &mut AgentState) -> bool {
        false
    }
}
