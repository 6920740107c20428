// SPDX-License-Identifier: Apache-2.0
//! A move that is prepared once and repeated, each time to its end: copies for a verification, to memory that kvmem reads.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::runs::{self, Needs, Runs};
use super::{Engine, select, time_limit};
use crate::base::error::{Result, Status};
use crate::engine::preferences::{Preferences, STALL_TIMEOUT};
use crate::layout::Layout;
use crate::plan::Plan;
use crate::run::completion::{Account, Completion, Limit};
use crate::run::path::TransferPath;

/// The limits of the waits of runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitLimits {
    /// Runs will have a deadline. This is known before: threads make no calls for them that may not return.
    pub is_limited: bool,
    /// How long a peer may make no progress; `None` for the default.
    pub stall_timeout: Option<Duration>,
}

/// A prepared move by the fastest path, or one that the owner of the source serves. It holds both layouts.
pub struct RepeatedMove {
    engine: Box<dyn Engine>,
    needs: Needs,
    runs: Runs,
    /// What it moves, for the error at a deadline.
    described: String,
}

impl RepeatedMove {
    /// Prepares it. Nothing is moved.
    pub fn prepare(
        source: &Arc<Layout>,
        destination: &Arc<Layout>,
        plan: Plan,
        limits: WaitLimits,
    ) -> Result<Self> {
        let path = select::path(source, destination, None)?;
        let contexts = runs::contexts([source, destination], path.is_cuda());
        contexts.ensure_alive()?;
        let completion = Completion::new(plan.layers().count, None);
        let (bytes, described) = (plan.bytes(), time_limit::described(path, [source, destination], &plan));
        let touched = runs::touched(source, destination, &plan);
        let is_limited = limits.is_limited;
        let engine = prepare(path, [source, destination], plan, limits)?;
        let needs =
            Needs::new(&*engine, touched, contexts, Account { bytes, is_limited, ..Account::default() });
        let runs = Runs::new([source.clone(), destination.clone()], completion);
        Ok(Self { engine, needs, runs, described })
    }

    /// Moves the blocks, and waits for the end, at the deadline at the latest.
    pub fn run(&self, deadline: Option<Instant>) -> Result<()> {
        let limit = deadline.map(|deadline| Arc::new(self.limit(deadline)));
        self.runs
            .within(limit.as_ref(), || self.engine.submit(&|| self.runs.begin(&*self.engine, &self.needs)))?;
        self.runs.wait(&*self.engine, None)
    }

    fn limit(&self, deadline: Instant) -> Limit {
        Limit {
            after: deadline.saturating_duration_since(Instant::now()),
            what: self.described.clone(),
            advice: "Pass a longer timeout_ns, or fewer blocks".to_string(),
        }
    }
}

/// Prepares the engine. If the owner of a remote source serves it, the owner reads the blocks: it finds them by its own layout, and
/// not by the addresses that the moved blocks may have been read from.
fn prepare(
    path: TransferPath,
    sides: [&Arc<Layout>; 2],
    plan: Plan,
    limits: WaitLimits,
) -> Result<Box<dyn Engine>> {
    let stall_timeout = limits.stall_timeout.or(Some(STALL_TIMEOUT));
    let preferences = Preferences { stall_timeout, poisons_slots: true, ..Preferences::default() };
    if path == TransferPath::NixlRead && sides[0].served().is_some() {
        let served = Preferences { path: Some(TransferPath::NixlReadServed), ..preferences.clone() };
        match super::prepare(path, sides, plan.clone(), &served, None, None) {
            Err(error) if error.status() == Status::Unsupported => {}
            prepared => return prepared,
        }
    }
    super::prepare(path, sides, plan, &preferences, None, None)
}
