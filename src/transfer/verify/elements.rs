// SPDX-License-Identifier: Apache-2.0
//! Compares moved heads or tokens with their source, in host memory, in place.

use super::differences::Differences;
use super::host::canonical_checksums;
use super::moved_list::MovedList;
use crate::base::Result;
use crate::engine::single_move::WaitLimits;
use crate::plan::Plan;
use crate::run::{Findings, Outcome};

/// What is moved, in the caller's order and in that of the plan.
pub struct Elements {
    list: MovedList,
    plan: Plan,
}

impl Elements {
    pub fn new(list: MovedList, plan: Plan) -> Self {
        Self { list, plan }
    }

    /// The layouts are host memory, and the caller keeps them.
    pub fn compare(&self, limits: &WaitLimits, findings: &mut Findings) -> Outcome {
        for [expected, found] in canonical_checksums(&self.plan) {
            limits.ensure_wanted()?;
            if expected != found {
                return self.differences(limits)?.outcome(&self.list, findings);
            }
        }
        Ok(())
    }

    /// Compares entry after entry of the caller's list: the plan has them in another order, and several in one span.
    fn differences(&self, limits: &WaitLimits) -> Result<Differences> {
        let mut differences = Differences::default();
        for index in 0..self.list.len() {
            limits.ensure_wanted()?;
            let plan = self.list.plan_of(index, &self.plan)?;
            for checksums in canonical_checksums(&plan) {
                differences.compare(index, checksums)?;
            }
        }
        Ok(differences)
    }
}
