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
//! Only cuCtxRecordEvent tells of the work of all streams. It invalidates each capture of the context, whatever the mode of the
//! thread and of the capture, and no call of the driver tells beforehand whether there is one: streams are queried one by one, and
//! kvmem does not know those of the engine. So the question is put rarely: its answer is an event, which is queried without harm to
//! captures, and all that need the answer share it. The next question is put after the event has completed.
#![forbid(unsafe_code)]

use std::mem;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::context::Context;
use super::event::{Event, Recorded};
use crate::base::error::{Error, Result, Status};
use crate::base::keyed::Keyed;
use crate::base::sync::Mutex;

/// How long work of a context may take to be finished. Steps of a model take less.
pub const PATIENCE: Duration = Duration::from_millis(20);
/// How long the thread polls before it sleeps between polls.
const SPIN: Duration = Duration::from_micros(100);
const SLEEP: Duration = Duration::from_micros(100);
/// How long no question is put after one that has met a capture.
const CAPTURE: Duration = Duration::from_secs(1);

/// The work that was submitted to a context before a question.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// The device has finished it, or the driver is too old to tell.
    Finished,
    /// It was running when it was asked for at this time, and still is.
    Running(Instant),
    /// Unknown: a stream is being captured, or was within the last second.
    Captured,
}

/// The answer to the last question.
#[derive(Clone)]
enum Answer {
    Finished,
    /// The event completes with the work before this time.
    Running(Arc<Event>, Instant),
    Captured(Instant),
}

/// How a wait for the end of work has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    /// All work is finished.
    Idle,
    /// All work that was older than [`PATIENCE`] is finished, but there always was newer work.
    Fed,
    /// Work has run for longer than that.
    Busy,
    /// A stream is being captured.
    Captured,
}

/// What is known of the work of a context. It lives as long as its users, because an answer retains the context.
pub(super) struct ContextWork {
    /// The id of the context.
    context: u64,
    answer: Mutex<Answer>,
}

static KNOWN: Keyed<i32, Mutex<Weak<ContextWork>>> = Keyed::new();

impl ContextWork {
    /// What the users of a context share.
    pub fn of(context: &Context) -> Arc<Self> {
        let slot = KNOWN.get(context.device().ordinal());
        // Dropped after the lock: the last holder of an answer destroys an event.
        let known: Option<Arc<Self>>;
        let mut slot = slot.lock();
        known = slot.upgrade();
        if let Some(known) = known.as_ref().filter(|known| known.context == context.number()) {
            return known.clone();
        }
        let fresh = Arc::new(Self { context: context.number(), answer: Mutex::new(Answer::Finished) });
        *slot = Arc::downgrade(&fresh);
        fresh
    }

    /// The work now. The driver is asked only if the last answer has become obsolete.
    pub fn look(&self, context: &Arc<Context>) -> Result<Work> {
        if let Some(work) = self.known()? {
            return Ok(work);
        }
        let (answer, work) = ask(context)?;
        let obsolete = mem::replace(&mut *self.answer.lock(), answer);
        drop(obsolete);
        Ok(work)
    }

    /// The last answer, unless it has become obsolete.
    fn known(&self) -> Result<Option<Work>> {
        let answer = self.answer.lock().clone();
        Ok(match answer {
            Answer::Running(event, since) if !event.is_done()? => Some(Work::Running(since)),
            Answer::Captured(at) if at.elapsed() < CAPTURE => Some(Work::Captured),
            _ => None,
        })
    }

    /// Whether work is known to have run for longer than [`PATIENCE`], or a stream to be captured. Asks the driver nothing new.
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

/// Asks the driver.
fn ask(context: &Arc<Context>) -> Result<(Answer, Work)> {
    if !context.driver().can_record_contexts() {
        return Ok((Answer::Finished, Work::Finished));
    }
    let event = Event::new(context)?;
    let now = Instant::now();
    Ok(match event.record_context()? {
        Recorded::Captured => (Answer::Captured(now), Work::Captured),
        Recorded::Work if !event.is_done()? => (Answer::Running(Arc::new(event), now), Work::Running(now)),
        Recorded::Work => (Answer::Finished, Work::Finished),
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
