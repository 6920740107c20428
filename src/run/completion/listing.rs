// SPDX-License-Identifier: Apache-2.0
//! Runs in flight, in the list of what may access blocks.

use std::sync::Arc;

use super::{Completion, Last};
use crate::run::accesses::{self, Access, Accesses, Accessor};

impl Completion {
    /// Lists it, at its first run: later ones cost nothing.
    pub(super) fn list(self: &Arc<Self>, last: &mut Last) {
        if !std::mem::replace(&mut last.is_listed, true) {
            let this: Arc<dyn Accesses> = self.clone();
            accesses::list(self.log_id, &this);
        }
    }
}

impl Accesses for Completion {
    /// Those of the run in flight.
    fn current(&self) -> Option<Access> {
        let last = self.last();
        let used = last.account.used.clone().filter(|_| self.is_running())?;
        let (transfer, user_data) = (self.log_id, last.account.user_data);
        Some(Access { by: Accessor::Run { transfer, user_data }, used })
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if self.last.get_mut().is_listed {
            accesses::unlist(self.log_id);
        }
    }
}
