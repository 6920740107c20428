// SPDX-License-Identifier: Apache-2.0
//! The reads of the control block of a peer's elastic memory by a run: before its first request, and after its last.

use super::extent_guard::Guard;
use crate::base::Result;
use crate::nixl::{AgentState, RequestId};

/// The reads, one of which may be due or in flight.
pub(super) struct ControlRead {
    request: RequestId,
    state: ControlReadState,
    is_last: bool,
}

#[derive(PartialEq)]
enum ControlReadState {
    Due,
    InFlight,
    Over,
}

impl ControlRead {
    /// The first one is due.
    pub fn new(request: RequestId) -> Self {
        Self { request, state: ControlReadState::Due, is_last: false }
    }

    /// Posts a read that is due, or asks whether it has ended. `None` if there is none; otherwise whether it has ended with the expected
    /// state, and whether NIXL reported a failure.
    pub fn advance(&mut self, state: &mut AgentState, guard: Option<&Guard>) -> Option<(Result<bool>, bool)> {
        let result = match self.state {
            ControlReadState::Over => return None,
            ControlReadState::Due => {
                guard.inspect(|guard| guard.forget());
                state.post(self.request)
            }
            ControlReadState::InFlight => state.is_done(self.request),
        };
        self.state = if let Ok(false) = result { ControlReadState::InFlight } else { ControlReadState::Over };
        let has_failed = result.is_err();
        let outcome = result.and_then(|done| match guard {
            Some(guard) if done => guard.check().map(|()| true),
            _ => Ok(done),
        });
        Some((outcome, has_failed))
    }

    /// Begins the last read. Returns false if it has begun.
    pub fn begin_last(&mut self) -> bool {
        if self.is_last {
            return false;
        }
        (self.is_last, self.state) = (true, ControlReadState::Due);
        true
    }
}
