// SPDX-License-Identifier: Apache-2.0
//! The requests of one run: where they come from, and for how long some are in flight.

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use super::run_flow::RunFlow;
use super::served::ServedFlow;
use super::staged::StagedFlow;
use crate::engine::peer::plain::listed_requests::ListedFlow;

/// The requests of a run that are not posted yet.
pub(super) enum Flow {
    Listed(ListedFlow),
    /// Through an arena of this process.
    Staged(StagedFlow),
    /// Through an arena of the owner, which gathers or scatters.
    Served(Box<ServedFlow>),
}

impl Deref for Flow {
    type Target = dyn RunFlow;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Listed(flow) => flow,
            Self::Staged(flow) => flow,
            Self::Served(flow) => &**flow,
        }
    }
}

impl DerefMut for Flow {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Listed(flow) => flow,
            Self::Staged(flow) => flow,
            Self::Served(flow) => &mut **flow,
        }
    }
}

/// The time in which a request was in flight.
#[derive(Default)]
pub(super) struct BusyTime {
    since: Option<Instant>,
    /// All of it until the last end.
    pub all: Duration,
}

impl BusyTime {
    /// A request is in flight from now on.
    pub fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// No request is in flight any more, if `is_idle`.
    pub fn end_if(&mut self, is_idle: bool) {
        self.all += self.since.take_if(|_| is_idle).map_or(Duration::ZERO, |since| since.elapsed());
    }
}
