// SPDX-License-Identifier: Apache-2.0
//! Whose counters the runs of a transfer or request add to, besides those of all runs.

use std::sync::Arc;

use crate::base::reported::{ShardIndex, Tally};
use crate::base::{Result, Status};
use crate::layout::Layout;
use crate::nixl::Agent;

/// By their indices: success, other failures, and runs that were late.
pub const OUTCOMES: [&str; 3] = ["ok", "failed", "timed_out"];

pub struct Tallies {
    /// The source's, whose first row counts what is moved from it, and the destination's, whose second row counts what is moved to it.
    layouts: Option<[Arc<Tally>; 2]>,
    /// That of the agent that moves bytes if NIXL does, with a row for each direction.
    agent: Option<Arc<Tally>>,
}

impl Tallies {
    /// Those of transfers between two layouts. NIXL moves their bytes by the agent of the one that it alone reaches, or else of any.
    pub fn of_transfers(source: &Layout, destination: &Layout) -> Result<Self> {
        let sides = [source, destination];
        let agent = sides.into_iter().find_map(Layout::agent_of_copies);
        let agent = agent.or_else(|| sides.into_iter().find_map(Layout::agent).cloned());
        let layouts = Some([source.tally()?.clone(), destination.tally()?.clone()]);
        Ok(Self { layouts, agent: agent.map(|agent| agent.tally().clone()) })
    }

    pub fn of_requests(agent: &Agent) -> Self {
        Self { layouts: None, agent: Some(agent.tally().clone()) }
    }

    /// Adds a run as a thread that may change the shard; to the row of the agent, if it moves the bytes.
    #[inline]
    pub(super) fn add<const IS_LOCKED: bool>(
        &self,
        shard: ShardIndex<IS_LOCKED>,
        agent_row: impl FnOnce() -> Option<usize>,
        bytes: u64,
        status: Option<Status>,
    ) {
        let outcome = match status {
            None => 0,
            Some(Status::TimedOut) => 2,
            Some(_) => 1,
        };
        if let Some([source, destination]) = &self.layouts {
            source.add(shard, 0, outcome, bytes);
            destination.add(shard, 1, outcome, bytes);
        }
        if let Some(agent) = &self.agent
            && let Some(row) = agent_row()
        {
            agent.add(shard, row, outcome, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::reported::{HELD, ROW, ReportedKind};

    fn tally() -> Arc<Tally> {
        Tally::new(ReportedKind::Layout, String::new())
    }

    #[test]
    fn layouts_count_each_run_of_theirs_and_an_agent_those_that_it_moves() {
        let ([source, destination], agent) = ([tally(), tally()], tally());
        let layouts = Some([source.clone(), destination.clone()]);
        let tallies = Tallies { layouts, agent: Some(agent.clone()) };
        let shard = ShardIndex::locked(3);
        tallies.add(shard, || Some(2), 5, None);
        tallies.add(shard, || Some(2), 7, Some(Status::TimedOut));
        tallies.add(shard, || Some(1), 11, None);
        tallies.add(shard, || None, 13, Some(Status::Io));
        let (moved, none) = ([2, 1, 1, 5 + 11], [0; ROW]);
        assert_eq!(source.values()[..2 * ROW], [moved, none].concat());
        assert_eq!(destination.values()[..2 * ROW], [none, moved].concat());
        assert_eq!(agent.values()[..HELD], [none, [1, 0, 0, 11], [1, 0, 1, 5], none].concat());
    }
}
