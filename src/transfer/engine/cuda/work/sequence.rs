// SPDX-License-Identifier: Apache-2.0
//! The jobs of a transfer: one, or one a layer, which follow each other on one stream with a mark behind each. They
//! share a stream, staging memory and the runs of blocks, which are the same in every layer.

use std::sync::Arc;

use super::super::device::descriptor_ring::Slot;
use super::super::device::need::{Need, Taking};
use super::super::device::resources::Held;
use super::super::device::state::DeviceState;
use super::super::rates::observer::Observer;
use super::driver::Place;
use super::task::Job;
use crate::cuda::ending::means_lost;
use crate::cuda::stream::{Active, CallerStream};
use crate::error::{Error, Result, Status, ensure};

/// Why a stream of the caller's has no mark behind what was started there.
pub struct Unmarked(pub Error);

/// At least one job.
pub struct Jobs {
    jobs: Vec<Job>,
    observer: Option<Observer>,
}

impl Jobs {
    /// One job for all that is moved, and what passes on what its runs show.
    pub fn one(job: Job, observer: Option<Observer>) -> Self {
        Self { jobs: vec![job], observer }
    }

    /// What passes on what runs show, where they show anything.
    pub fn observer(&self) -> Option<&Observer> {
        self.observer.as_ref()
    }

    /// A job for each layer, in order.
    pub fn by_layer(mut jobs: Vec<Job>) -> Result<Self> {
        if let Some((first, others)) = jobs.split_first_mut() {
            let are_alike = others.iter_mut().all(|job| job.share_runs(first));
            ensure!(are_alike, Panic, "the layers of a transfer are not alike");
        }
        Ok(Self { jobs, observer: None })
    }

    /// Puts the runs of blocks where kernels read them, if there is room to spare.
    pub fn keep_runs(mut self, engine: &DeviceState) -> Result<Self> {
        if let Some(first) = self.jobs.first_mut() {
            first.keep_runs(engine)?;
        }
        Ok(self)
    }

    /// Whether starting them costs little.
    pub fn are_quick(&self) -> bool {
        matches!(&self.jobs[..], [job] if job.is_quick())
    }

    fn first(&self) -> Result<&Job> {
        self.jobs.first().ok_or_else(|| Error::new(Status::Panic, "a transfer has nothing to do"))
    }

    /// How many marks a run takes.
    fn marks(&self) -> usize {
        if self.jobs.len() > 1 { self.jobs.len() } else { 0 }
    }

    /// What a run can't start without.
    pub fn needs(&self) -> impl Iterator<Item = Need> {
        let of_first = self.jobs.first().map(Job::needs).into_iter().flatten().flatten();
        std::iter::once(Need::Stream).chain(of_first)
    }

    /// All that a run needs, or what of it is in use.
    pub fn take(&self, engine: &DeviceState) -> Taking<Held> {
        let first = self.first()?;
        let Some(stream) = engine.stream()? else { return Ok(Err(Need::Stream)) };
        let staging = match first.staging(engine)? {
            Ok(staging) => staging,
            Err(need) => return Ok(Err(need)),
        };
        let slot = match first.put(engine) {
            Ok(slot) => slot,
            Err(need) => return Ok(Err(need)),
        };
        Held::own(stream, slot, staging).with_layers(engine, self.marks()).map(Ok)
    }

    /// The same for a run that a stream is to wait for, beyond what runs may use at a time: what would be let go for it
    /// may stand behind that wait. Staging memory may be in use all the same: there is no more of it.
    pub fn take_urgently(&self, engine: &DeviceState) -> Taking<Held> {
        let first = self.first()?;
        let staging = match first.staging(engine)? {
            Ok(staging) => staging,
            Err(need) => return Ok(Err(need)),
        };
        let stream = engine.one_more_stream()?;
        let slot = first.put_now(engine)?;
        Held::own(stream, slot, staging).with_layers(engine, self.marks()).map(Ok)
    }

    /// The same for a run on a stream of the caller's, which can't wait.
    pub fn take_now(&self, engine: &DeviceState) -> Result<Held> {
        let first = self.first()?;
        let event = engine.event()?;
        let busy = |what| Error::new(Status::Busy, format!("the {what} is in use by other transfers"));
        let staging = first.staging(engine)?.map_err(|_| busy("staging memory"))?;
        let stream = match &staging {
            Some(_) => Some(engine.stream()?.ok_or_else(|| busy("last stream"))?),
            None => None,
        };
        let slot = first.put_now(engine)?;
        Held::on_callers(event, stream, slot, staging).with_layers(engine, self.marks())
    }

    /// Starts them on the stream that is held.
    ///
    /// # Safety
    /// What is moved must be memory of this process until `held` is done, also after a failure here.
    pub unsafe fn start(&self, held: &Held) -> Result<()> {
        let Some(stream) = held.stream() else { return Ok(()) };
        let on = stream.activate()?;
        // SAFETY: the caller's promise.
        unsafe { self.enqueue(&on, held, Place::Own) }
    }

    /// Starts them on a stream of the caller's, and marks their end there. Without a mark nobody can tell when the
    /// stream is past them.
    ///
    /// # Safety
    /// As for [`Jobs::start`]; the stream is alive.
    pub unsafe fn start_on(
        &self,
        engine: &DeviceState,
        stream: CallerStream,
        held: &Held,
    ) -> std::result::Result<Result<()>, Unmarked> {
        let on = match stream.activate(engine.context()) {
            Ok(on) => on,
            Err(error) => return Ok(Err(error)),
        };
        let place = if stream.is_legacy() { Place::Elsewhere } else { Place::Callers };
        // SAFETY: the caller's promise.
        let started = unsafe { self.enqueue(&on, held, place) };
        if let Some(event) = held.event() {
            // Tried again once: it may have told of an earlier failure.
            match on.record(event).or_else(|_| on.record(event)) {
                Err(error) if !means_lost(&error) => return Err(Unmarked(started.err().unwrap_or(error))),
                marked => return Ok(started.and(marked)),
            }
        }
        Ok(started)
    }

    unsafe fn enqueue(&self, on: &Active<'_>, held: &Held, place: Place) -> Result<()> {
        self.jobs.iter().enumerate().try_for_each(|(layer, job)| {
            // SAFETY: the caller's promise.
            unsafe { job.enqueue(on, held, place)? };
            held.layer(layer).map_or(Ok(()), |mark| on.record(mark))
        })
    }

    /// Writes the runs for the graphs that the jobs are captured into; `None` where there are none to write.
    pub fn slot_for_graphs(&self, engine: &DeviceState) -> Result<Option<Arc<Slot>>> {
        match self.first()? {
            job @ Job::Kernel(..) => job.put_now(engine),
            _ => Ok(None),
        }
    }

    /// Puts them into the graph that a stream of the caller's is captured into. The slot must live as long as the
    /// graph.
    ///
    /// # Safety
    /// As for [`Jobs::start`], for every run of the graph.
    pub unsafe fn capture(
        &self,
        engine: &DeviceState,
        stream: CallerStream,
        slot: Option<&Slot>,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        self.jobs.iter().try_for_each(|job| unsafe { job.capture(engine, stream, slot) })
    }
}
