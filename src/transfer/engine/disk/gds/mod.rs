// SPDX-License-Identifier: Apache-2.0
//! Between a file and a GPU by a GDS backend of NIXL's, where that was seen to work.
//!
//! cuFile, which these backends call, passes bytes through host memory where it can't do better, and tells nobody. So
//! it is taken for GDS only where it was told to fail instead; and even then it is tried out first.

mod probe;

use std::sync::Arc;

use super::sides::Sides;
use crate::error::{Error, Result, Status};
use crate::nixl::gds::GdsEndpoints;
use crate::nixl::{Agent, cufile};
use crate::transfer::engine::nixl::NixlMove;
use crate::transfer::path::Path;
use crate::transfer::plan::Plan;
use crate::transfer::request::Preferences;

/// The least a move has on average to be worth it: NIXL makes a request of each, the staging ring one of up to so much
/// that lies together in the file.
const LEAST_MOVE: u64 = super::requests::MOST_BYTES;

/// The transfer, and what is to be said of it.
pub struct Taken {
    /// The transfer.
    pub moved: NixlMove,
    /// Why it may be no GDS.
    pub doubt: Option<String>,
}

/// Its name.
pub fn path(sides: &Sides<'_>) -> Path {
    if sides.writes { Path::NixlFileWrite } else { Path::NixlFileRead }
}

/// The transfer, or why it goes another way. Fails where this one is asked for and can't be taken.
pub fn choose(
    sides: &Sides<'_>,
    plan: &Plan,
    preferences: &Preferences,
) -> Result<std::result::Result<Taken, String>> {
    let path = path(sides);
    let is_asked = preferences.path == Some(path);
    if preferences.path.is_some() && !is_asked {
        return Ok(Err("another path was asked for".to_string()));
    }
    match attempt(sides, plan, preferences, is_asked) {
        Err(reason) if is_asked => {
            let message = format!("{path}, which is asked for, can't be taken: {reason}");
            Err(Error::new(Status::Unsupported, message))
        }
        attempted => Ok(attempted),
    }
}

fn attempt(
    sides: &Sides<'_>,
    plan: &Plan,
    preferences: &Preferences,
    is_asked: bool,
) -> std::result::Result<Taken, String> {
    let agent = agent(sides)?;
    let refuses_bounces = preferences.no_host_bounce || preferences.zero_copy;
    let doubt = doubt(sides);
    if let (Some(reason), true) = (&doubt, refuses_bounces || !is_asked) {
        return Err(reason.clone());
    }
    if !is_asked && !refuses_bounces {
        ensure_worth_it(plan)?;
    }
    try_out(agent, sides)?;
    Ok(Taken { moved: prepare(sides, plan)?, doubt })
}

/// The one agent that knows both layouts and has a backend for them.
fn agent<'a>(sides: &Sides<'a>) -> std::result::Result<&'a Arc<Agent>, String> {
    const NONE: &str = "no agent with a GDS backend knows both layouts";
    let (file, memory) = (sides.file.agent(), sides.memory.agent());
    let both = file.filter(|agent| memory.is_some_and(|other| Arc::ptr_eq(agent, other)));
    let agent = both.ok_or(NONE)?;
    let backend = agent.call(|state| Ok(state.gds_backend())).map_err(|error| error.to_string())?;
    match backend {
        Ok(_) => Ok(agent),
        Err(others) => Err(format!("{NONE}; '{}' does, and has {others}", agent.name())),
    }
}

/// Why nobody can say that bytes do not pass through host memory.
fn doubt(sides: &Sides<'_>) -> Option<String> {
    if !sides.is_direct() {
        return Some("the file is buffered, and its bytes pass through the page cache".to_string());
    }
    match cufile::may_bounce() {
        Ok(false) => None,
        Ok(true) => Some(format!(
            "cuFile is free to pass bytes through host memory, and does not tell; set CUFILE_ALLOW_COMPAT_MODE=false, \
             or allow_compat_mode in cufile.json, before the first agent gets its backend{}",
            nvidia_fs()
        )),
        Err(reason) => Some(format!("cuFile does not tell whether bytes pass through host memory: {reason}")),
    }
}

/// Most file systems need it; some kernels do without.
fn nvidia_fs() -> &'static str {
    if std::path::Path::new("/proc/driver/nvidia-fs").exists() { "" } else { " (nvidia-fs is not loaded)" }
}

/// Whether its requests would be large enough to be faster than the other ways.
pub fn is_worth_it(plan: &Plan) -> bool {
    ensure_worth_it(plan).is_ok()
}

fn ensure_worth_it(plan: &Plan) -> std::result::Result<(), String> {
    let (bytes, moves) = (plan.bytes(), plan.most_moves().max(1));
    if bytes / moves >= LEAST_MOVE {
        return Ok(());
    }
    Err(format!(
        "moves of {} bytes are as many requests, and through the ring fewer of up to {LEAST_MOVE}",
        bytes / moves
    ))
}

/// By a transfer of bytes of our own, once for each file system.
fn try_out(agent: &Arc<Agent>, sides: &Sides<'_>) -> std::result::Result<(), String> {
    let device = sides.memory.memory().regions().first().and_then(|region| region.ordinal());
    let ordinal = device.ok_or("the memory is no GPU's")?;
    for file in sides.file.memory().regions().iter().filter_map(|region| region.file()) {
        let ends = GdsEndpoints { ordinal, file_system: file.file_system(), is_direct: file.is_direct() };
        agent.trials.once(ends, || {
            probe::there_and_back(agent, ordinal, file).map_err(|error| format!("it was tried out: {error}"))
        })?;
    }
    Ok(())
}

/// What NIXL refuses is known before anything is submitted.
fn prepare(sides: &Sides<'_>, plan: &Plan) -> std::result::Result<NixlMove, String> {
    let (source, destination) = match sides.writes {
        true => (sides.memory, sides.file),
        false => (sides.file, sides.memory),
    };
    let prepared = NixlMove::prepare(source, destination, path(sides), plan.clone(), None)
        .and_then(|moved| moved.make_requests().map(|()| moved));
    prepared.map_err(|error| format!("{error}; layouts are built after their agent has its backends"))
}
