// SPDX-License-Identifier: Apache-2.0
//! Whether a device has finished the work of a context.
//!
//! Some calls of the driver wait for all work of the context: cuModuleLoadData, cuModuleUnload, cuMemFree, cuMemFreeHost and
//! cuMemHostUnregister (measured with driver 580; allocating, page-locking, creating streams and events, launching, and
//! unmapping VMM memory do not wait). While they wait they hold a lock of the context: launches, copies, event records and
//! allocations of every other thread wait too. A kernel of an engine may run until the host acts, which such a call would then
//! prevent for ever, on whichever thread it is made. So kvmem loads kernels only while the device finishes its work.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Context;
use super::event::Event;
use crate::base::error::{Error, Result, Status};

/// How long work of a context may take to be finished. Steps of a model take less.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long the thread polls before it sleeps between polls.
const SPIN: Duration = Duration::from_micros(100);
const SLEEP: Duration = Duration::from_micros(100);

/// Fails with BUSY if the device does not finish the work that was submitted to the context before this call within
/// [`PATIENCE`]. Succeeds if that is unknown.
pub(super) fn ensure_quiet(context: &Arc<Context>) -> Result<()> {
    let event = Event::new(context)?;
    if !event.record_context()? {
        return Ok(());
    }
    let begun = Instant::now();
    while !event.is_done()? {
        if begun.elapsed() > PATIENCE {
            return Err(Error::formatted(
                Status::Busy,
                format_args!(
                    "work on device {} has run for more than {} ms, and the driver loads no kernel meanwhile",
                    context.device().ordinal(),
                    PATIENCE.as_millis()
                ),
            ));
        }
        if begun.elapsed() < SPIN { std::thread::yield_now() } else { std::thread::sleep(SLEEP) }
    }
    Ok(())
}
