// SPDX-License-Identifier: Apache-2.0
//! A prepared copy: what it needs to run, and how it is put on a stream.

use std::sync::Arc;

use super::driver::{DriverCopies, Place};
use super::engine::{Engine, Staging};
use super::kernel::KernelCopy;
use super::ring::Slot;
use super::shelf::Taken;
use super::staged::StagedCopy;
use crate::cuda::Event;
use crate::cuda::kernel::CopyKernel;
use crate::cuda::stream::{Active, CallerStream, Stream};
use crate::error::{Error, Result, Status};

/// A prepared copy.
pub enum Job {
    /// By the driver.
    Driver(DriverCopies),
    /// By the kernel.
    Kernel(KernelCopy, Arc<CopyKernel>),
    /// By both.
    Staged(Box<StagedCopy>, Arc<CopyKernel>),
}

/// What a run uses until it is over.
pub struct Held {
    slot: Option<Arc<Slot>>,
    staging: Option<Taken<Staging>>,
    /// Its own.
    stream: Option<Taken<Stream>>,
    /// On the caller's stream.
    event: Option<Taken<Event>>,
}

/// Driver calls that a caller's thread makes by itself: handing a run over costs as much.
const QUICK_CALLS: usize = 16;
/// Copies of a batch, likewise.
const QUICK_BATCH: usize = 128;

impl Job {
    /// Whether starting it costs little.
    pub fn is_quick(&self) -> bool {
        match self {
            Self::Driver(DriverCopies::Batch(batch, _)) => batch.len() <= QUICK_BATCH,
            Self::Driver(DriverCopies::Loop(copies)) => copies.len() <= QUICK_CALLS,
            Self::Driver(DriverCopies::Rows(rows)) => rows.len() <= QUICK_CALLS,
            Self::Kernel(..) => true,
            Self::Staged(copy, _) => copy.calls() <= QUICK_CALLS,
        }
    }

    /// All that a run needs; `None` while some of it is in use.
    pub fn take(&self, engine: &Engine) -> Result<Option<Held>> {
        let Some(stream) = engine.stream()? else { return Ok(None) };
        let mut held = Held { slot: None, staging: None, stream: Some(stream), event: None };
        match self {
            Self::Driver(_) => {}
            Self::Kernel(copy, _) => {
                held.slot = copy.runs.slot(engine);
                if held.slot.is_none() {
                    return Ok(None);
                }
            }
            Self::Staged(copy, _) => {
                held.staging = copy.staging(engine)?;
                if held.staging.is_none() {
                    return Ok(None);
                }
                held.slot = copy.runs.slot(engine);
                if held.slot.is_none() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(held))
    }

    /// The same for a run on a stream of the caller's, which can't wait.
    pub fn take_now(&self, engine: &Engine) -> Result<Held> {
        let mut held = Held { slot: None, staging: None, stream: None, event: engine.event()? };
        match self {
            Self::Driver(_) => {}
            Self::Kernel(copy, _) => held.slot = Some(copy.runs.slot_now(engine)?),
            Self::Staged(copy, _) => {
                let busy =
                    |what| Error::new(Status::Busy, format!("the {what} is in use by other transfers"));
                held.staging = Some(copy.staging(engine)?.ok_or_else(|| busy("staging memory"))?);
                held.stream = Some(engine.stream()?.ok_or_else(|| busy("last stream"))?);
                held.slot = Some(copy.runs.slot_now(engine)?);
            }
        }
        Ok(held)
    }

    /// Starts it on the stream that it holds.
    ///
    /// # Safety
    /// What is moved must be memory of this process until `held` is done, also after a failure here.
    pub unsafe fn start(&self, _engine: &Engine, held: &Held) -> Result<()> {
        let Some(stream) = &held.stream else { return Ok(()) };
        let on = stream.activate()?;
        // SAFETY: the caller's promise.
        unsafe { self.enqueue(&on, held, Place::Own) }
    }

    /// Starts it on a stream of the caller's, and marks its end there.
    ///
    /// # Safety
    /// As for [`Job::start`]; the stream is alive.
    pub unsafe fn start_on(&self, engine: &Engine, stream: CallerStream, held: &Held) -> Result<()> {
        let on = stream.activate(engine.context())?;
        let place = if stream.is_legacy() { Place::Elsewhere } else { Place::Callers };
        // SAFETY: the caller's promise.
        let started = unsafe { self.enqueue(&on, held, place) };
        if let Some(event) = &held.event {
            // Tried again once: it may have told of an earlier failure.
            on.record(event).or_else(|_| on.record(event))?;
        }
        started
    }

    /// Puts it into the graph that a stream of the caller's is captured into. The slot must live as long as the graph.
    ///
    /// # Safety
    /// As for [`Job::start`], for every run of the graph.
    pub unsafe fn capture(&self, engine: &Engine, stream: CallerStream, slot: Option<&Slot>) -> Result<()> {
        let on = stream.activate(engine.context())?;
        match (self, slot) {
            // SAFETY: the caller's promise.
            (Self::Driver(copies), _) => unsafe { copies.enqueue(&on, Place::Elsewhere) },
            // SAFETY: the caller's promise.
            (Self::Kernel(copy, kernel), Some(slot)) => unsafe { copy.enqueue(kernel, &on, slot) },
            _ => Err(Error::new(
                Status::InvalidState,
                "a staged copy uses memory that it shares with others, and can't go into a graph; force another path",
            )),
        }
    }

    unsafe fn enqueue(&self, on: &Active<'_>, held: &Held, place: Place) -> Result<()> {
        // SAFETY: the caller's promise, for all of it.
        unsafe {
            match (self, &held.slot, &held.staging, &held.stream) {
                (Self::Driver(copies), ..) => copies.enqueue(on, place),
                (Self::Kernel(copy, kernel), Some(slot), ..) => copy.enqueue(kernel, on, slot),
                (Self::Staged(copy, kernel), Some(slot), Some(staging), Some(stream)) => {
                    copy.enqueue(kernel, on, stream, slot, staging)
                }
                _ => Err(Error::new(Status::Panic, "a run was started without what it needs")),
            }
        }
    }
}

impl Held {
    /// Whether the driver is done with all of it.
    pub fn is_done(&self) -> Result<bool> {
        let event = self.event.as_ref().map(|event| event.is_done());
        let stream = self.stream.as_ref().map(|stream| stream.is_done());
        let copier = self.staging.as_ref().map(|staging| staging.copier.is_done());
        // All are asked: nothing may be let go while one of them goes on, even when another has failed.
        let answers: Vec<_> = [event, stream, copier].into_iter().flatten().collect();
        if answers.iter().any(|answer| matches!(answer, Ok(false))) {
            return Ok(false);
        }
        answers.into_iter().collect::<Result<Vec<_>>>().map(|_| true)
    }

    /// What was used is used again, unless something failed on it.
    pub fn let_go(mut self, is_sound: bool) {
        if is_sound {
            return;
        }
        if let Some(stream) = &mut self.stream {
            stream.spoil();
        }
        if let Some(staging) = &mut self.staging {
            staging.spoil();
        }
        if let Some(event) = &mut self.event {
            event.spoil();
        }
    }
}
