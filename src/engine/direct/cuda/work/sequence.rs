// SPDX-License-Identifier: Apache-2.0
//! The tasks of a transfer: one, or one per layer, executed in order on one stream, with an event behind each. They share the
//! stream, the staging memory and the runs of blocks, which are the same in each layer.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::copy_task::CopyTask;
use crate::base::{Error, Mutex, Result, ensure, error};
use crate::copy::gpu::device::resource::{Acquired, Resource};
use crate::copy::gpu::device::run_resources::{LayerEvents, RunResources};
use crate::copy::gpu::driver_copies::StreamKind;
use crate::copy::gpu::{DescriptorSlot, DeviceState};
use crate::cuda::ending::means_lost;
use crate::cuda::{Active, CallerStream};
use crate::engine::cost::gpu::observed::CostObserver;

/// The completion event could not be recorded on a stream of the caller.
pub struct EndNotRecorded(pub Error);

/// At least one task.
pub struct TaskSequence {
    tasks: Vec<CopyTask>,
    /// The index of the task whose slot and staging memory all of them use.
    sharer: usize,
    observer: Option<CostObserver>,
    /// An empty list for the events of the next run.
    spare_events: Mutex<LayerEvents>,
}

impl TaskSequence {
    /// One task for all that is moved, and the observer of its runs.
    pub fn one(task: CopyTask, observer: Option<CostObserver>) -> Self {
        Self { tasks: vec![task], sharer: 0, observer, spare_events: Mutex::default() }
    }

    /// The observer of the runs, if their durations are of use.
    pub fn observer(&self) -> Option<&CostObserver> {
        self.observer.as_ref()
    }

    /// One task per layer, in order.
    pub fn by_layer(mut tasks: Vec<CopyTask>) -> Result<Self> {
        // A layer that starts at another alignment may have launches with less space for the runs.
        let sharer = tasks.iter().position(CopyTask::needs_slot).unwrap_or(0);
        let (before, after) = tasks.split_at_mut(sharer);
        if let Some((own, after)) = after.split_first_mut() {
            let are_alike = before.iter_mut().chain(after).all(|task| task.share_runs(own));
            ensure!(are_alike, Panic, "the layers of a transfer need different copies");
        }
        Ok(Self { tasks, sharer, observer: None, spare_events: Mutex::default() })
    }

    /// Writes the runs of blocks to the descriptor ring, if it has space for prepared copies.
    pub fn keep_runs(mut self, device: &DeviceState) -> Result<Self> {
        if let Some(sharer) = self.tasks.get_mut(self.sharer) {
            sharer.keep_runs(device)?;
        }
        Ok(self)
    }

    /// Whether starting them takes little time.
    pub fn are_quick(&self) -> bool {
        matches!(&self.tasks[..], [task] if task.is_quick())
    }

    fn sharer(&self) -> Result<&CopyTask> {
        self.tasks.get(self.sharer).ok_or_else(|| error!(Panic, "a transfer has nothing to do"))
    }

    fn layer_events(&self) -> usize {
        if self.tasks.len() > 1 { self.tasks.len() } else { 0 }
    }

    fn with_layers(&self, device: &DeviceState, resources: RunResources) -> Result<RunResources> {
        if self.layer_events() == 0 {
            return Ok(resources);
        }
        let list = std::mem::take(&mut *self.spare_events.lock());
        resources.with_layers(device, self.layer_events(), list)
    }

    /// Returns the events of the layers of a run that has ended.
    pub fn release_layers(&self, resources: &mut RunResources) {
        if self.layer_events() == 0 {
            return;
        }
        let list = resources.release_layers();
        *self.spare_events.lock() = list;
    }

    /// The resources that a run can't start without.
    pub fn resources_needed(&self) -> impl Iterator<Item = Resource> {
        let [one, other] = self.tasks.get(self.sharer).map_or([None; 2], CopyTask::resources_needed);
        [Some(Resource::Stream), one, other].into_iter().flatten()
    }

    /// Takes all resources of a run, or returns the one that is in use. If `is_urgent`, a stream is about to wait for the run: it
    /// exceeds the usual limits then, because a resource may be freed only after that wait. Staging memory is never exceeded.
    pub fn take(&self, device: &DeviceState, is_urgent: bool) -> Acquired<RunResources> {
        let sharer = self.sharer()?;
        let stream = if is_urgent { Some(device.one_more_stream()?) } else { device.stream()? };
        let Some(stream) = stream else { return Ok(Err(Resource::Stream)) };
        let staging = match sharer.staging(device)? {
            Ok(staging) => staging,
            Err(resource) => return Ok(Err(resource)),
        };
        let slot = if is_urgent { Ok(sharer.put_now(device)?) } else { sharer.put(device) };
        let with_layers =
            |slot| self.with_layers(device, RunResources::new(None, Some(stream), slot, staging));
        slot.map(with_layers).map_or_else(|resource| Ok(Err(resource)), |taken| taken.map(Ok))
    }

    /// Takes all resources of a run on a stream of the caller. Fails if one is in use, because the run can't wait.
    pub fn take_now(&self, device: &DeviceState) -> Result<RunResources> {
        let sharer = self.sharer()?;
        let event = device.event()?;
        let busy = |what| error!(Busy, "the {what} is in use by other transfers");
        let staging = sharer.staging(device)?.map_err(|_| busy("staging memory"))?;
        let stream = match &staging {
            Some(_) => Some(device.stream()?.ok_or_else(|| busy("last stream"))?),
            None => None,
        };
        let slot = sharer.put_now(device)?;
        self.with_layers(device, RunResources::new(event, stream, slot, staging))
    }

    /// Enqueues them on the stream of the resources.
    ///
    /// # Safety
    /// What is moved must be memory of this process until the resources are done, also after a failure here.
    pub unsafe fn start(&self, resources: &RunResources) -> Result<()> {
        let Some(stream) = resources.stream() else { return Ok(()) };
        let on = stream.activate()?;
        // SAFETY: the caller's promise.
        unsafe { self.enqueue(&on, resources, StreamKind::Own) }
    }

    /// Enqueues them on a stream of the caller, and records the completion event there. Without the event their end can't
    /// be detected.
    ///
    /// # Safety
    /// As for [`TaskSequence::start`]; the stream is valid.
    pub unsafe fn start_on(
        &self,
        device: &DeviceState,
        stream: CallerStream,
        resources: &RunResources,
    ) -> std::result::Result<Result<()>, EndNotRecorded> {
        let on = match stream.activate(device.context()) {
            Ok(on) => on,
            Err(error) => return Ok(Err(error)),
        };
        let place = if stream.is_legacy() { StreamKind::WithoutBatches } else { StreamKind::Caller };
        // SAFETY: the caller's promise.
        let started = unsafe { self.enqueue(&on, resources, place) };
        if let Some(event) = resources.event() {
            // A second attempt: the first may have reported an earlier failure.
            match on.record(event).or_else(|_| on.record(event)) {
                Err(error) if !means_lost(&error) => {
                    return Err(EndNotRecorded(started.err().unwrap_or(error)));
                }
                recorded => return Ok(started.and(recorded)),
            }
        }
        Ok(started)
    }

    unsafe fn enqueue(&self, on: &Active<'_>, resources: &RunResources, place: StreamKind) -> Result<()> {
        self.tasks.iter().enumerate().try_for_each(|(layer, task)| {
            // SAFETY: the caller's promise.
            unsafe { task.enqueue(on, resources, place)? };
            resources.layer(layer).map_or(Ok(()), |event| on.record(event))
        })
    }

    /// Writes the runs for the graphs that the tasks are captured into; `None` if there are none.
    pub fn slot_for_graphs(&self, device: &DeviceState) -> Result<Option<Arc<DescriptorSlot>>> {
        match self.sharer()? {
            task @ CopyTask::Kernel(..) => task.put_now(device),
            _ => Ok(None),
        }
    }

    /// Adds them to the graph that a stream of the caller is captured into. The slot must live as long as the
    /// graph.
    ///
    /// # Safety
    /// As for [`TaskSequence::start`], for every run of the graph.
    pub unsafe fn capture(
        &self,
        device: &DeviceState,
        stream: CallerStream,
        slot: Option<&DescriptorSlot>,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        self.tasks.iter().try_for_each(|task| unsafe { task.capture(device, stream, slot) })
    }
}
