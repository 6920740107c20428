// SPDX-License-Identifier: Apache-2.0
//! Compares moved heads or tokens with their source, in host memory, in place.

use super::differences::{Differences, NONE_LEFT};
use super::host::canonical_checksums;
use super::moved_list::MovedList;
use crate::base::{Result, fail};
use crate::engine::single_move::WaitLimits;
use crate::plan::Plan;
use crate::run::{Findings, Outcome};

/// Passes the expected and the found checksum of each part of a plan.
type Checksums<'a> = dyn FnMut(&Plan, &mut dyn FnMut([u32; 2]) -> Result<()>) -> Result<()> + 'a;

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
        self.compare_by(&mut |plan, act| canonical_checksums(plan).try_for_each(act), limits, findings)
    }

    /// The same with any checksums of both sides of a plan.
    fn compare_by(&self, each: &mut Checksums<'_>, limits: &WaitLimits, findings: &mut Findings) -> Outcome {
        let mut first = None;
        each(&self.plan, &mut |checksums @ [expected, found]| {
            limits.ensure_wanted()?;
            first = first.or((expected != found).then_some(checksums));
            Ok(())
        })?;
        let Some([expected, found]) = first else { return Ok(()) };
        self.differences(each, limits)?.outcome(&self.list, findings)?;
        let [all, _] = self.list.nouns();
        fail!(Corrupt, "moved {all} have CRC32C {found:#010x}; expected {expected:#010x}. {NONE_LEFT}")
    }

    /// Compares entry after entry of the caller's list: the plan has them in another order, and several in one span.
    fn differences(&self, each: &mut Checksums<'_>, limits: &WaitLimits) -> Result<Differences> {
        let mut differences = Differences::default();
        for index in 0..self.list.len() {
            limits.ensure_wanted()?;
            let plan = self.list.plan_of(index, &self.plan)?;
            each(&plan, &mut |checksums| differences.compare(index, checksums))?;
        }
        Ok(differences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::layout::{Arrangement, Dimensions, Layout};
    use crate::plan::{BlockPair, PairedRange, Wanted};
    use crate::transfer::transfer_request::Step;

    /// Another thread writes to the blocks between the two comparisons.
    #[test]
    fn blocks_that_differed_once_are_corrupt_though_none_differs_afterwards() {
        let memory = || Layout::in_host(Dimensions::small(), Arrangement::FULLY_CONTIGUOUS);
        let (from, to) = (memory(), memory());
        let pairs = [BlockPair { source: 0, destination: 1 }, BlockPair { source: 1, destination: 0 }];
        let heads = Some(PairedRange { source: 0, destination: 0, count: 4 });
        let wanted = Wanted { heads, ..Wanted::default() };
        let plan = Plan::once(&from, &to, &pairs, wanted).unwrap();
        let step = Step { pairs: &pairs, ..Step::default() };
        let elements = Elements::new(MovedList::new(&step, [&from, &to]).unwrap(), plan);
        let compared = |differing: &[usize]| {
            let (mut calls, mut findings) = (0, Findings::default());
            let mut each = |_: &Plan, act: &mut dyn FnMut([u32; 2]) -> Result<()>| {
                calls += 1;
                act([7, if differing.contains(&calls) { 8 } else { 7 }])
            };
            let outcome = elements.compare_by(&mut each, &WaitLimits::default(), &mut findings);
            (outcome.err().map(|error| (error.status(), error.to_string())), findings.mismatches)
        };
        assert_eq!(compared(&[]), (None, vec![]));
        let (error, mismatches) = compared(&[1, 3]);
        assert!(error.is_some_and(|(status, text)| status == Status::Corrupt && text.contains("1 of 2")));
        assert_eq!(mismatches, [1]);
        let (error, mismatches) = compared(&[1]);
        assert!(error.is_some_and(|(status, text)| status == Status::Corrupt && text.ends_with(NONE_LEFT)));
        assert!(mismatches.is_empty());
    }
}
