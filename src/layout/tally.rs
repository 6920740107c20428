// SPDX-License-Identifier: Apache-2.0
//! What runs have moved from a layout and to it, in statistics.

use std::sync::Arc;

use super::Layout;
use crate::base::Result;
use crate::base::reported::{OpenTally, ReportedKind, Tally, add_label};

impl Layout {
    /// What runs have moved from it, in the first row, and to it, in the second one.
    pub fn tally(&self) -> Result<&Arc<Tally>> {
        let tally = self.tally.get_or_try_init(|| {
            let mut labels = String::new();
            add_label(&mut labels, "layout", &self.log_id.number());
            self.agent().iter().for_each(|agent| add_label(&mut labels, "agent", &agent.name()));
            OpenTally::reported(ReportedKind::Layout, labels)
        })?;
        Ok(tally)
    }

    /// Has its runs counted for a store, whose blocks it has, instead of for itself. To be called before its first transfer.
    pub fn count_for(&self, store: &Arc<Tally>) {
        let _is_first = self.tally.set(OpenTally(store.clone())).is_ok();
    }
}
