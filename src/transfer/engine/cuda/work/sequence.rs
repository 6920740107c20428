// SPDX-License-Identifier: Apache-2.0
//! The jobs of a transfer: one, or one a layer, which follow each other on one stream with a mark behind each. They
//! share a stream, staging memory and the runs of blocks, which are the same in every layer.

use std::sync::Arc;

use super::super::device::descriptor_ring::DescriptorSlot;
use super::super::device::resource::{Acquired, Resource};
use super::super::device::run_resources::RunResources;
use super::super::device::state::DeviceState;
use super::super::rates::observer::CostObserver;
use super::driver::Place;
use super::task::CopyTask;
use crate::cuda::ending::means_lost;
use crate::cuda::stream::{Active, CallerStream};
use crate::error::{Error, Result, Status, ensure};

/// Why a stream of the caller's has no mark behind what was started there.
pub struct EndNotRecorded(pub Error);

/// At least one job.
pub struct TaskSequence {
    tasks: Vec<CopyTask>,
    observer: Option<CostObserver>,
}

impl TaskSequence {
    /// One job for all that is moved, and what passes on what its runs show.
    pub fn one(task: CopyTask, observer: Option<CostObserver>) -> Self {
        Self { tasks: vec![task], observer }
    }

    /// What passes on what runs show, where they show anything.
    pub fn observer(&self) -> Option<&CostObserver> {
        self.observer.as_ref()
    }

    /// A job for each layer, in order.
    pub fn by_layer(mut tasks: Vec<CopyTask>) -> Result<Self> {
        if let Some((first, others)) = tasks.split_first_mut() {
            let are_alike = others.iter_mut().all(|task| task.share_runs(first));
            ensure!(are_alike, Panic, "the layers of a transfer are not alike");
        }
        Ok(Self { tasks, observer: None })
    }

    /// Puts the runs of blocks where kernels read them, if there is room to spare.
    pub fn keep_runs(mut self, engine: &DeviceState) -> Result<Self> {
        if let Some(first) = self.tasks.first_mut() {
            first.keep_runs(engine)?;
        }
        Ok(self)
    }

    /// Whether starting them costs little.
    pub fn are_quick(&self) -> bool {
        matches!(&self.tasks[..], [task] if task.is_quick())
    }

    fn first(&self) -> Result<&CopyTask> {
        self.tasks.first().ok_or_else(|| Error::new(Status::Panic, "a transfer has nothing to do"))
    }

    /// How many marks a run takes.
    fn marks(&self) -> usize {
        if self.tasks.len() > 1 { self.tasks.len() } else { 0 }
    }

    /// What a run can't start without.
    pub fn resources_needed(&self) -> impl Iterator<Item = Resource> {
        let of_first = self.tasks.first().map(CopyTask::resources_needed).into_iter().flatten().flatten();
        std::iter::once(Resource::Stream).chain(of_first)
    }

    /// All that a run needs, or what of it is in use.
    pub fn take(&self, engine: &DeviceState) -> Acquired<RunResources> {
        let first = self.first()?;
        let Some(stream) = engine.stream()? else { return Ok(Err(Resource::Stream)) };
        let staging = match first.staging(engine)? {
            Ok(staging) => staging,
            Err(resource) => return Ok(Err(resource)),
        };
        let slot = match first.put(engine) {
            Ok(slot) => slot,
            Err(resource) => return Ok(Err(resource)),
        };
        RunResources::own(stream, slot, staging).with_layers(engine, self.marks()).map(Ok)
    }

    /// The same for a run that a stream is to wait for, beyond what runs may use at a time: what would be let go for it
    /// may stand behind that wait. Staging memory may be in use all the same: there is no more of it.
    pub fn take_urgently(&self, engine: &DeviceState) -> Acquired<RunResources> {
        let first = self.first()?;
        let staging = match first.staging(engine)? {
            Ok(staging) => staging,
            Err(resource) => return Ok(Err(resource)),
        };
        let stream = engine.one_more_stream()?;
        let slot = first.put_now(engine)?;
        RunResources::own(stream, slot, staging).with_layers(engine, self.marks()).map(Ok)
    }

    /// The same for a run on a stream of the caller's, which can't wait.
    pub fn take_now(&self, engine: &DeviceState) -> Result<RunResources> {
        let first = self.first()?;
        let event = engine.event()?;
        let busy = |what| Error::new(Status::Busy, format!("the {what} is in use by other transfers"));
        let staging = first.staging(engine)?.map_err(|_| busy("staging memory"))?;
        let stream = match &staging {
            Some(_) => Some(engine.stream()?.ok_or_else(|| busy("last stream"))?),
            None => None,
        };
        let slot = first.put_now(engine)?;
        RunResources::on_callers(event, stream, slot, staging).with_layers(engine, self.marks())
    }

    /// Starts them on the stream that is held.
    ///
    /// # Safety
    /// What is moved must be memory of this process until `held` is done, also after a failure here.
    pub unsafe fn start(&self, resources: &RunResources) -> Result<()> {
        let Some(stream) = resources.stream() else { return Ok(()) };
        let on = stream.activate()?;
        // SAFETY: the caller's promise.
        unsafe { self.enqueue(&on, resources, Place::Own) }
    }

    /// Starts them on a stream of the caller's, and marks their end there. Without a mark nobody can tell when the
    /// stream is past them.
    ///
    /// # Safety
    /// As for [`TaskSequence::start`]; the stream is alive.
    pub unsafe fn start_on(
        &self,
        engine: &DeviceState,
        stream: CallerStream,
        resources: &RunResources,
    ) -> std::result::Result<Result<()>, EndNotRecorded> {
        let on = match stream.activate(engine.context()) {
            Ok(on) => on,
            Err(error) => return Ok(Err(error)),
        };
        let place = if stream.is_legacy() { Place::Elsewhere } else { Place::Callers };
        // SAFETY: the caller's promise.
        let started = unsafe { self.enqueue(&on, resources, place) };
        if let Some(event) = resources.event() {
            // Tried again once: it may have told of an earlier failure.
            match on.record(event).or_else(|_| on.record(event)) {
                Err(error) if !means_lost(&error) => {
                    return Err(EndNotRecorded(started.err().unwrap_or(error)));
                }
                marked => return Ok(started.and(marked)),
            }
        }
        Ok(started)
    }

    unsafe fn enqueue(&self, on: &Active<'_>, resources: &RunResources, place: Place) -> Result<()> {
        self.tasks.iter().enumerate().try_for_each(|(layer, task)| {
            // SAFETY: the caller's promise.
            unsafe { task.enqueue(on, resources, place)? };
            resources.layer(layer).map_or(Ok(()), |mark| on.record(mark))
        })
    }

    /// Writes the runs for the graphs that the jobs are captured into; `None` where there are none to write.
    pub fn slot_for_graphs(&self, engine: &DeviceState) -> Result<Option<Arc<DescriptorSlot>>> {
        match self.first()? {
            task @ CopyTask::Kernel(..) => task.put_now(engine),
            _ => Ok(None),
        }
    }

    /// Puts them into the graph that a stream of the caller's is captured into. The slot must live as long as the
    /// graph.
    ///
    /// # Safety
    /// As for [`TaskSequence::start`], for every run of the graph.
    pub unsafe fn capture(
        &self,
        engine: &DeviceState,
        stream: CallerStream,
        slot: Option<&DescriptorSlot>,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        self.tasks.iter().try_for_each(|task| unsafe { task.capture(engine, stream, slot) })
    }
}
