// SPDX-License-Identifier: Apache-2.0
//! Between a file and a GPU by a GDS backend of NIXL, where it was verified to work.
//!
//! cuFile, which these backends call, passes bytes through host memory if it can't do better, and does not
//! report it. So it counts as GDS only if it is configured to fail instead, and after a trial.

mod probe;

use std::sync::Arc;
use std::time::Instant;

use super::file_sides::FileSides;
use crate::base::{Result, Status, error, fail};
use crate::engine::cost::outcome::Against;
use crate::engine::peer::NixlMove;
use crate::engine::preferences::Preferences;
use crate::nixl::gds::GdsEndpoints;
use crate::nixl::{self, Agent, Command, cufile};
use crate::plan::Plan;
use crate::run::method::TransferMethod;

/// The minimum average size of a move: NIXL makes one request per move, while the staging ring merges
/// adjacent ones into requests of up to this size.
const MIN_MOVE: u64 = super::file_requests::MAX_BYTES;

/// A transfer by GDS, and whether it is certain that bytes do not pass through host memory.
pub struct Chosen {
    pub moved: NixlMove,
    /// Why bytes may pass through host memory.
    pub doubt: Option<String>,
}

/// The transfer, or what is against it. Fails if this method was requested and is not possible.
pub fn choose(
    sides: &FileSides<'_>,
    plan: &Plan,
    preferences: &Preferences,
) -> Result<std::result::Result<Chosen, Against>> {
    let method = TransferMethod::Nixl;
    let is_requested = preferences.method == Some(method);
    if preferences.method.is_some() && !is_requested {
        // Its agent is not asked: a call of NIXL may take long.
        let possible = shared_agent(sides).map(|_| Against::better("another method was requested"));
        return Ok(Err(possible.unwrap_or_else(|error| Against::impossible(error.to_string()))));
    }
    match attempt(sides, plan, preferences, is_requested) {
        Err(error) if is_requested => {
            Err(error.context(format!("{method} was requested and is not possible")))
        }
        Err(error) => {
            let is_impossible = error.status() == Status::Unsupported;
            Ok(Err(Against { reason: error.to_string().into(), is_impossible }))
        }
        Ok(attempted) => Ok(attempted.map_err(Against::better)),
    }
}

/// The transfer, or why another method is better. Fails with UNSUPPORTED if the method is not possible, and with another status if that
/// is not known.
fn attempt(
    sides: &FileSides<'_>,
    plan: &Plan,
    preferences: &Preferences,
    is_requested: bool,
) -> Result<std::result::Result<Chosen, String>> {
    let agent = agent(sides)?;
    let refuses_bounces = preferences.no_host_bounce || preferences.zero_copy;
    let doubt = doubt(sides);
    match &doubt {
        Some(reason) if refuses_bounces => fail!(Unsupported, "{reason}"),
        Some(reason) if !is_requested => return Ok(Err(reason.clone())),
        _ => (),
    }
    if !is_requested
        && !refuses_bounces
        && let Some(reason) = not_worth_it(plan)
    {
        return Ok(Err(reason));
    }
    try_out(agent, sides, preferences.prepared_by)?;
    Ok(Ok(Chosen { moved: prepare(sides, plan)?, doubt }))
}

const NO_AGENT: &str = "no agent with a GDS backend knows both layouts";

/// The one agent that knows both layouts.
fn shared_agent<'a>(sides: &FileSides<'a>) -> Result<&'a Arc<Agent>> {
    let (file, memory) = (sides.file.agent(), sides.memory.agent());
    let both = file.filter(|agent| memory.is_some_and(|other| Arc::ptr_eq(agent, other)));
    both.ok_or_else(|| error!(Unsupported, "{NO_AGENT}"))
}

/// The same, if it has a backend for them.
fn agent<'a>(sides: &FileSides<'a>) -> Result<&'a Arc<Agent>> {
    let agent = shared_agent(sides)?;
    match agent.call(Command::GdsBackend)? {
        Ok(_) => Ok(agent),
        Err(others) => {
            fail!(Unsupported, "{NO_AGENT}; agent '{}' knows both, and has {others}", agent.name())
        }
    }
}

/// Why bytes may pass through host memory.
fn doubt(sides: &FileSides<'_>) -> Option<String> {
    if !sides.is_direct() {
        return Some("the file is buffered, and its bytes pass through the page cache".to_string());
    }
    match cufile::may_bounce() {
        Ok(false) => None,
        Ok(true) => Some(format!(
            "cuFile may pass bytes through host memory without reporting it; set CUFILE_ALLOW_COMPAT_MODE=false, \
             or allow_compat_mode in cufile.json, before the first agent gets its backend{}",
            nvidia_fs()
        )),
        Err(reason) => {
            Some(format!("cuFile does not report whether bytes pass through host memory: {reason}"))
        }
    }
}

/// A remark if the nvidia-fs module is not loaded. Most file systems need it, but not with all kernels.
fn nvidia_fs() -> &'static str {
    if std::path::Path::new("/proc/driver/nvidia-fs").exists() { "" } else { " (nvidia-fs is not loaded)" }
}

/// Why its requests are too small to be faster than other methods.
pub fn not_worth_it(plan: &Plan) -> Option<String> {
    let move_size = plan.bytes() / plan.max_moves().max(1);
    (move_size < MIN_MOVE).then(|| {
        format!(
            "each move of {move_size} bytes would be one request; the staging ring merges them into requests of up to {MIN_MOVE}"
        )
    })
}

/// Runs a trial transfer, once per file system. Waits for it as long as the caller has time, and a call of the agent may take.
fn try_out(agent: &Arc<Agent>, sides: &FileSides<'_>, until: Option<Instant>) -> Result<()> {
    let until = agent.call_deadline_before(until);
    let device = sides.memory.memory().regions().first().and_then(|region| region.ordinal());
    let ordinal = device.ok_or_else(|| error!(Unsupported, "the memory is not GPU memory"))?;
    for file in sides.file.memory().regions().iter().filter_map(|region| region.file()) {
        let ends = GdsEndpoints { ordinal, file_system: file.file_system(), is_direct: file.is_direct() };
        agent.trials.outcome(ends, until, || {
            let (agent, beside) = (agent.clone(), probe::beside(file)?);
            Ok(move |end| {
                nixl::within(Some(end), || probe::there_and_back(&agent, ordinal, beside, end)).map_err(
                    |error| error.context("a trial transfer failed").with_status(Status::Unsupported),
                )
            })
        })?;
    }
    Ok(())
}

/// Prepares the transfer and its requests, so that NIXL reports errors now rather than at the first submission.
fn prepare(sides: &FileSides<'_>, plan: &Plan) -> Result<NixlMove> {
    let [source, destination] = match sides.writes {
        true => [sides.memory, sides.file],
        false => [sides.file, sides.memory],
    };
    let prepared = NixlMove::prepare([source, destination], plan.clone(), None)
        .and_then(|moved| moved.make_requests().map(|()| moved));
    prepared.map_err(|error| {
        let advised = error.followed_by("build layouts after their agent has its backends");
        if advised.status() == Status::TimedOut { advised } else { advised.with_status(Status::Unsupported) }
    })
}
