// SPDX-License-Identifier: Apache-2.0
//! The thread that makes a store with relaxed durability durable from time to time, or reads what others have stored.

use std::time::Duration;

use crate::base::{Giver, Pool, Result, Taker, deadline_of, handoff, log};

/// Ends the thread when it is dropped.
pub type Checkpoints = Giver<()>;

/// Calls `flush` after each interval, until it returns `None`: then the store has ended.
pub fn start(
    interval: Duration,
    flush: impl Fn() -> Option<Result<()>> + Send + 'static,
) -> Result<Checkpoints> {
    let (checkpoints, end) = handoff();
    Pool::services().run_once_alone(move || flush_regularly(&flush, &end, interval))?;
    Ok(checkpoints)
}

fn flush_regularly(flush: &impl Fn() -> Option<Result<()>>, end: &Taker<()>, interval: Duration) {
    let mut has_failed = false;
    while !end.wait(deadline_of(Some(interval))) {
        let Some(flushed) = flush() else { return };
        if let (Err(error), false) = (&flushed, has_failed) {
            log!(Error, "{error}");
        }
        has_failed = flushed.is_err();
    }
}
