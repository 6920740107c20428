// SPDX-License-Identifier: Apache-2.0
//! Served transfers: the owner of a layout gathers what a peer requests in an arena, and the peer reads it from there in few
//! large ranges; or the peer writes to the arena, and the owner scatters. docs/served-transfers.md specifies it.
//!
//! The requester makes all requests of NIXL. So an owner accesses no memory of a peer, needs no metadata of it, and has no
//! request in flight that a peer could delay.

mod control;
mod flow;
pub mod message;
mod plan;
mod serve;
mod service;
mod session;
#[cfg(test)]
mod tests;
mod words;

pub use self::flow::ServedFlow;
pub use self::plan::{ServedDivision, ServedPlan};
pub use self::serve::{ServeOptions, serve};

use std::ops::Range;

use crate::error::{Result, ensure};
use crate::transfer::plan::{LinearPlan, Matrix};

/// Rows that are listed at a time.
const BATCH: usize = 1024;

/// Passes the rows between a layout and a slot at `slot`, for some bytes of a plan, to `copy`.
fn each_batch(
    plan: &LinearPlan,
    bytes: Range<u64>,
    slot: u64,
    into_layout: bool,
    copy: &mut dyn FnMut(&[Matrix]),
) {
    let first = bytes.start;
    let mut batch = Vec::new();
    for mut row in plan.rows_in(bytes) {
        row.first.destination = slot + (row.first.destination - first);
        batch.push(if into_layout { row.reversed() } else { row });
        if batch.len() == BATCH {
            copy(&batch);
            batch.clear();
        }
    }
    copy(&batch);
}

/// Fails if owner and requester count other bytes.
fn ensure_bytes(here: u64, there: u64) -> Result<()> {
    ensure!(
        here == there,
        InvalidArgument,
        "the request is for {there} bytes, and its blocks have {here} in the owner's layout"
    );
    Ok(())
}
