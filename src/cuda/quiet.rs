// SPDX-License-Identifier: Apache-2.0
//! Whether a device has finished the work of a context.
//!
//! Some calls of the driver wait for all work of the context: cuModuleLoadData, cuModuleUnload, cuMemFree, cuMemFreeHost and
//! cuMemHostUnregister (measured with driver 580; allocating, page-locking, creating and destroying streams and events, launching,
//! and unmapping VMM memory do not wait). While they wait they hold a lock of the context: launches, copies, event records and
//! allocations of every other thread wait too. A kernel of an engine may run until the host acts, which such a call would then
//! prevent for ever, on whichever thread it is made. So kvmem makes these calls only when the device has finished its work: it
//! loads kernels by [`super::module`], and frees by [`super::deferred`].
//!
//! Only cuCtxRecordEvent reports the work of all streams. It invalidates each capture of the context, whatever the mode of the
//! thread and of the capture. The legacy stream reports captures of blocking streams; no call reports the rest: streams are queried
//! one by one, and kvmem does not know those of the engine. So the query is rare: its result is an event, which is queried without
//! harm to captures, and all users of a context share it. The next query is made after the event has completed, and not while a
//! [`Capture`] is known.

use std::mem;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::context::Context;
use super::event::{Event, Recorded};
use crate::base::{Error, Keyed, Mutex, Result, Status};

/// How long work of a context may take to be finished. Steps of a model take less.
pub const PATIENCE: Duration = Duration::from_millis(20);
/// How long the thread polls before it sleeps between polls.
const SPIN: Duration = Duration::from_micros(100);
const SLEEP: Duration = Duration::from_micros(100);
/// How long no query is made after one that has found a capture.
const CAPTURE: Duration = Duration::from_secs(1);

/// The work that was submitted to a context before a query.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// The device has finished it.
    Finished,
    /// The driver does not report it.
    Unknown,
    /// It was running at this time, and still is.
    Running(Instant),
    /// Unknown: a stream is being captured, or was within the last second.
    Captured,
}

/// The result of the last query.
#[derive(Clone)]
enum Found {
    Finished,
    /// The event completes with the work before this time.
    Running(Arc<Event>, Instant),
}

struct State {
    found: Found,
    /// Number of [`Capture`]s.
    captures: usize,
    /// When a query last found a capture.
    captured: Option<Instant>,
}

impl State {
    fn is_captured(&self) -> bool {
        self.captures > 0 || self.captured.is_some_and(|at| at.elapsed() < CAPTURE)
    }
}

/// A call of the caller on a stream that is being captured. During the call, nothing is queried that would invalidate the capture, on
/// any thread: no kernel is loaded, and what waits for the end of work is freed later.
pub struct Capture(Arc<ContextWork>);

impl Capture {
    pub(super) fn new(context: &Context) -> Self {
        let work = ContextWork::shared(context);
        work.state.lock().captures += 1;
        Self(work)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.0.state.lock().captures -= 1;
    }
}

/// How a wait for the end of work has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    Idle,
    /// All work that was older than [`PATIENCE`] is finished, but there always was newer work.
    Fed,
    /// Work has run for longer than that.
    Busy,
    Captured,
    /// The driver does not report it.
    Unknown,
}

/// What is known of the work of a context. It lives as long as its users, because an event retains the context.
pub(super) struct ContextWork {
    context: u64,
    state: Mutex<State>,
}

static KNOWN: Keyed<i32, Mutex<Weak<ContextWork>>> = Keyed::new();

impl ContextWork {
    pub fn shared(context: &Context) -> Arc<Self> {
        let slot = KNOWN.get(context.device().ordinal());
        // Dropped after the lock: the last holder destroys an event.
        let known: Option<Arc<Self>>;
        let mut slot = slot.lock();
        known = slot.upgrade();
        if let Some(known) = known.as_ref().filter(|known| known.context == context.number()) {
            return known.clone();
        }
        let state = Mutex::new(State { found: Found::Finished, captures: 0, captured: None });
        let fresh = Arc::new(Self { context: context.number(), state });
        *slot = Arc::downgrade(&fresh);
        fresh
    }

    /// The work now. The driver is queried only if the last result has become obsolete.
    pub fn look(&self, context: &Arc<Context>) -> Result<Work> {
        if let Some(work) = self.known()? {
            return Ok(work);
        }
        let (found, work) = query(context)?;
        let mut state = self.state.lock();
        if let Work::Captured = work {
            state.captured = Some(Instant::now());
        }
        let obsolete = mem::replace(&mut state.found, found);
        drop(state);
        drop(obsolete);
        Ok(work)
    }

    /// The last result, unless it has become obsolete.
    fn known(&self) -> Result<Option<Work>> {
        let state = self.state.lock();
        if state.is_captured() {
            return Ok(Some(Work::Captured));
        }
        let found = state.found.clone();
        drop(state);
        Ok(match found {
            Found::Running(event, since) if !event.is_done()? => Some(Work::Running(since)),
            _ => None,
        })
    }

    /// Whether a stream is known to be captured, so that no kernel is loaded.
    pub fn is_captured(&self) -> bool {
        self.state.lock().is_captured()
    }

    /// Whether work is known to have run for longer than [`PATIENCE`], or a stream to be captured. Makes no new query.
    pub fn is_known_to_be_long(&self) -> bool {
        match self.known() {
            Ok(Some(Work::Running(since))) => since.elapsed() > PATIENCE,
            Ok(Some(Work::Captured)) => true,
            _ => false,
        }
    }

    /// Waits for the end of all work until a time that may change meanwhile.
    pub fn wait(&self, context: &Arc<Context>, until: impl Fn() -> Instant) -> Result<Waited> {
        let begun = Instant::now();
        let mut first = None;
        loop {
            let now = Instant::now();
            match self.look(context)? {
                Work::Finished => return Ok(Waited::Idle),
                Work::Captured => return Ok(Waited::Captured),
                Work::Unknown => return Ok(Waited::Unknown),
                Work::Running(since) => {
                    let is_first = *first.get_or_insert(since) == since;
                    if now > until() {
                        let is_long = is_first || since.elapsed() > PATIENCE;
                        return Ok(if is_long { Waited::Busy } else { Waited::Fed });
                    }
                }
            }
            if begun.elapsed() < SPIN { std::thread::yield_now() } else { std::thread::sleep(SLEEP) }
        }
    }
}

/// Queries the driver.
fn query(context: &Arc<Context>) -> Result<(Found, Work)> {
    let event = Event::new(context)?;
    let now = Instant::now();
    Ok(match event.record_context()? {
        Recorded::Captured => (Found::Finished, Work::Captured),
        Recorded::Unsupported => (Found::Finished, Work::Unknown),
        Recorded::Work if !event.is_done()? => (Found::Running(Arc::new(event), now), Work::Running(now)),
        Recorded::Work => (Found::Finished, Work::Finished),
    })
}

/// The error of a device that is busy.
pub(super) fn busy(context: &Context) -> Error {
    Error::formatted(
        Status::Busy,
        format_args!(
            "work on device {} has run for more than {} ms, or one of its streams is being captured, and the driver loads no \
             kernel meanwhile",
            context.device().ordinal(),
            PATIENCE.as_millis()
        ),
    )
}
