// SPDX-License-Identifier: Apache-2.0
//! Whether a device has finished the work of a context.
//!
//! Some calls of the driver wait for all work of the context: cuModuleLoadData, cuModuleUnload, cuMemFree, cuMemFreeHost and
//! cuMemHostUnregister (measured with driver 580; allocating, page-locking, creating streams and events, launching, and
//! unmapping VMM memory do not wait). While they wait they hold a lock of the context: launches, copies, event records and
//! allocations of every other thread wait too. A kernel of an engine may run until the host acts, which such a call would then
//! prevent for ever, on whichever thread it is made. So kvmem loads kernels only while the device finishes its work.
//!
//! The question itself invalidates captures of the context. So memory is freed without it, unless work has once run for long.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Context;
use super::event::Event;
use crate::base::error::{Error, Result, Status};
use crate::base::keyed::Keyed;
use crate::base::sync::Mutex;

/// How long work of a context may take to be finished. Steps of a model take less.
pub const PATIENCE: Duration = Duration::from_millis(20);
/// How long the thread polls before it sleeps between polls.
const SPIN: Duration = Duration::from_micros(100);
const SLEEP: Duration = Duration::from_micros(100);
/// How long it is remembered that a device is busy.
const REMEMBERED: Duration = Duration::from_secs(1);

/// The work that was submitted to a context before a question.
pub(super) enum Work {
    /// The device has finished it, or that is unknown.
    Finished,
    /// The event completes with it.
    Running(Event),
}

impl Work {
    /// The work of a context now.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        let event = Event::new(context)?;
        if !event.record_context()? || event.is_done()? {
            Ok(Self::Finished)
        } else {
            Ok(Self::Running(event))
        }
    }
}

/// What is known of the work of a device's context.
#[derive(Default)]
struct LongWork {
    /// The id of the context.
    context: u64,
    /// When the device was last found to be busy.
    found: Option<Instant>,
}

static LONG_WORK: Keyed<i32, Mutex<Option<LongWork>>> = Keyed::new();

/// Whether work of this context has once run for longer than [`PATIENCE`].
pub(super) fn runs_long_work(context: &Context) -> bool {
    let known = LONG_WORK.get(context.device().ordinal());
    let known = known.lock();
    known.as_ref().is_some_and(|known| known.context == context.number())
}

/// The error of a busy device, if it was found to be busy a moment ago.
pub(super) fn recently_busy(context: &Context) -> Option<Error> {
    let known = LONG_WORK.get(context.device().ordinal());
    let known = known.lock();
    let found = known.as_ref().filter(|known| known.context == context.number())?.found?;
    (found.elapsed() < REMEMBERED).then(|| busy(context))
}

/// Remembers that work of this context runs for long.
pub(super) fn note_busy(context: &Context) {
    let found = Some(Instant::now());
    *LONG_WORK.get(context.device().ordinal()).lock() = Some(LongWork { context: context.number(), found });
}

fn note_quiet(context: &Context) {
    if let Some(known) = &mut *LONG_WORK.get(context.device().ordinal()).lock() {
        known.found = None;
    }
}

/// The error of a device that is busy.
pub(super) fn busy(context: &Context) -> Error {
    Error::formatted(
        Status::Busy,
        format_args!(
            "work on device {} has run for more than {} ms, and the driver loads no kernel meanwhile",
            context.device().ordinal(),
            PATIENCE.as_millis()
        ),
    )
}

/// Fails with BUSY if the device does not finish the work that was submitted to the context before this call until a time that
/// may change meanwhile. Succeeds if that is unknown.
pub(super) fn ensure_quiet(context: &Arc<Context>, until: impl Fn() -> Instant) -> Result<()> {
    if let Work::Running(event) = Work::new(context)? {
        let begun = Instant::now();
        while !event.is_done()? {
            if begun.elapsed() > PATIENCE {
                note_busy(context);
            }
            if Instant::now() > until() {
                note_busy(context);
                return Err(busy(context));
            }
            if begun.elapsed() < SPIN { std::thread::yield_now() } else { std::thread::sleep(SLEEP) }
        }
    }
    note_quiet(context);
    Ok(())
}
