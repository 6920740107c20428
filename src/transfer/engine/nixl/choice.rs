// SPDX-License-Identifier: Apache-2.0
//! Chooses between a descriptor for each contiguous span and large ranges through an arena, by measured cost.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::cost::RequestRates;
use super::staged::{Division, slot_size};
use crate::error::{Result, ensure};
use crate::layout::Layout;
use crate::nixl::MemoryType;
use crate::transfer::engine::Candidate;
use crate::transfer::path::TransferPath;
use crate::transfer::plan::Plan;
use crate::transfer::request::Preferences;

/// Longer spans are worth a descriptor each: prepared lists make it cheap, and the arena copies every byte once more.
const LONG_SPAN: u64 = 4096;
/// Fewer spans are not worth an arena.
const LEAST_SPANS: u64 = 64;
/// The arena must save a tenth, and as many seconds: its estimate is the less certain one, and it takes memory.
const LEAST_GAIN: f64 = 0.9;
const LEAST_SAVED: f64 = 100e-6;

/// The chosen path to a peer, and the others.
pub(super) struct Choice {
    pub path: TransferPath,
    /// The chunks, if it goes through an arena.
    pub division: Option<Division>,
    pub candidates: Vec<Candidate>,
}

/// Chooses the path of a transfer with a peer.
pub(super) fn choose(
    [local, remote]: [&Arc<Layout>; 2],
    reads: bool,
    plan: &Plan,
    preferences: &Preferences,
    rates: &RequestRates,
) -> Result<Choice> {
    let [direct, staged] = match reads {
        true => [TransferPath::NixlRead, TransferPath::NixlReadStaged],
        false => [TransferPath::NixlWrite, TransferPath::NixlWriteStaged],
    };
    let is_forced = preferences.path == Some(staged);
    let obstacle = (local.memory_type() != MemoryType::Dram)
        .then(|| "the local layout is not in host memory, which its rows are copied to or from".to_string());
    if let Some(obstacle) = &obstacle {
        ensure!(!is_forced, Unsupported, "path {staged} is not possible between these layouts: {obstacle}");
    }
    let spans = plan.most_moves();
    let of_direct = candidate(direct, rates.direct(spans, plan.bytes()), None);
    let are_short = plan.bytes() < spans * LONG_SPAN;
    let is_worth_a_try =
        obstacle.is_none() && are_short && spans >= LEAST_SPANS && preferences.path != Some(direct);
    if !is_forced && !is_worth_a_try {
        let is_impossible = obstacle.is_some();
        let reason = obstacle.unwrap_or_else(|| match preferences.path {
            Some(_) => "another path was requested".to_string(),
            None => format!("{spans} contiguous ranges are few, or long enough"),
        });
        let of_staged = Candidate { is_impossible, ..candidate(staged, 0.0, Some(reason)) };
        return Ok(Choice { path: direct, division: None, candidates: vec![of_direct, of_staged] });
    }
    let division = Division::of(plan, remote, reads, slot_size(preferences.staging_size)?, rates);
    let estimate = division.estimate(false);
    let seconds = rates.staged(&estimate, plan.bytes());
    let of_staged = candidate(staged, seconds, None);
    let are_fewer =
        format!("{} ranges through staging memory replace {spans} descriptors", estimate.descriptors);
    if is_forced || seconds < (of_direct.seconds * LEAST_GAIN).min(of_direct.seconds - LEAST_SAVED) {
        let of_direct = Candidate { reason: Some(are_fewer), ..of_direct };
        return Ok(Choice { path: staged, division: Some(division), candidates: vec![of_staged, of_direct] });
    }
    let reason = format!("{are_fewer}, which saves too little");
    let of_staged = Candidate { reason: Some(reason), ..of_staged };
    Ok(Choice { path: direct, division: None, candidates: vec![of_direct, of_staged] })
}

fn candidate(path: TransferPath, seconds: f64, reason: Option<String>) -> Candidate {
    Candidate { path, seconds, reason, is_impossible: false }
}
