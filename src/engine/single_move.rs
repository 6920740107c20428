// SPDX-License-Identifier: Apache-2.0
//! A move that is made once, to its end: copies for a verification, to memory that kvmem reads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::prepare::prepare;
use super::runs::{self, Needs, Runs};
use super::{Engine, select, time_limit};
use crate::base::{Result, Status, ensure, has_passed, time_left};
use crate::engine::preferences::{Ending, Preferences, STALL_TIMEOUT};
use crate::layout::Layout;
use crate::plan::Plan;
use crate::run::completion::{Account, Completion, Limit};
use crate::run::method::TransferMethod;
use crate::run::{Stop, UsedBytes, cancelled};

/// How long moves may take, one after the other, and what they are for.
#[derive(Clone, Default)]
pub struct WaitLimits {
    /// When they end at the latest; `None` for no deadline.
    pub deadline: Option<Instant>,
    /// How long a peer may make no progress; `None` for the default.
    pub stall_timeout: Option<Duration>,
    /// Whether the run that they are for was cancelled: then no further one begins.
    pub stop: Stop,
    /// That of the run that they are for.
    pub user_data: u64,
}

impl WaitLimits {
    /// Fails if no further move may begin.
    pub fn ensure_wanted(&self) -> Result<()> {
        if self.stop.is_asked() { Err(cancelled()) } else { Ok(()) }
    }

    /// Fails after the deadline, with the state that `what` gives.
    pub fn ensure_in_time(&self, what: impl FnOnce() -> String) -> Result<()> {
        ensure!(!has_passed(self.deadline), TimedOut, "timeout_ns has passed, and {}", what());
        Ok(())
    }

    fn of_run(&self, described: &str) -> Option<Limit> {
        time_left(self.deadline).map(|after| Limit {
            after,
            what: described.to_string(),
            advice: "Pass a longer timeout_ns, or fewer blocks".to_string(),
        })
    }
}

/// Moves blocks by the fastest method, or has the owner of the source move them if it serves them. Waits for the end, until the
/// deadline at the latest.
pub fn move_once(
    source: &Arc<Layout>,
    destination: &Arc<Layout>,
    plan: Plan,
    limits: &WaitLimits,
) -> Result<()> {
    limits.ensure_wanted()?;
    let sides = [source, destination];
    let method = select::method(source, destination, None)?;
    let contexts = runs::contexts(sides.map(|side| &**side), method.is_cuda());
    contexts.ensure_alive()?;
    let limit = limits.of_run(&time_limit::described(method, sides, &plan)).map(Arc::new);
    let used = Some(UsedBytes::of_plan(&plan, sides, [true; 2], &contexts));
    let account =
        Account { bytes: plan.bytes(), limit, used, user_data: limits.user_data, ..Account::default() };
    let completion = Completion::new(plan.layers().count, None);
    let touched = runs::touched(source, destination, &plan);
    let engine = prepared(method, sides, plan, limits)?;
    let needs = Needs::new(&*engine, touched, contexts, account);
    let runs = Runs::new([source.clone(), destination.clone()], completion);
    engine.submit(runs.reserve(&*engine, &needs)?)?;
    runs.wait(&*engine, None)
}

/// Prepares the engine. If the owner of a remote source serves it, the owner reads the blocks: it finds them by its own layout, and
/// not by the addresses that the moved blocks may have been read from.
fn prepared(
    method: TransferMethod,
    sides: [&Arc<Layout>; 2],
    plan: Plan,
    limits: &WaitLimits,
) -> Result<Box<dyn Engine>> {
    let (stall_timeout, prepared_by) = (limits.stall_timeout.or(Some(STALL_TIMEOUT)), limits.deadline);
    let preferences =
        Preferences { stall_timeout, prepared_by, poisons_slots: true, ..Preferences::default() };
    if method == TransferMethod::Nixl && sides[0].served().is_some() {
        let served = Preferences { method: Some(TransferMethod::NixlServed), ..preferences.clone() };
        match prepare(method, sides, plan.clone(), &served, Ending::default(), None) {
            Err(error) if error.status() == Status::Unsupported => {}
            prepared => return prepared,
        }
    }
    prepare(method, sides, plan, &preferences, Ending::default(), None)
}
