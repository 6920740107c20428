// SPDX-License-Identifier: Apache-2.0
//! One run on a device: the resources that it needs and uses, its progress, and its end.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::Instant;

use super::super::work::sequence::TaskSequence;
use super::run_cell::Abandon;
use crate::base::file_systems::Blockers;
use crate::base::{Error, Result, disposal, guarded, leak};
use crate::copy::gpu::device::device_state::DeviceState;
use crate::copy::gpu::device::resource::Resource;
use crate::copy::gpu::device::run_counter::CountedRun;
use crate::copy::gpu::device::run_resources::RunResources;
use crate::copy::gpu::device::staging::Staging;
use crate::cuda::context::is_lost;
use crate::cuda::ending::is_fatal;
use crate::cuda::exit;
use crate::cuda::stream::CallerStream;
use crate::run::{Milestone, Run, cancelled};

pub struct CudaRun {
    tasks: Arc<TaskSequence>,
    device: Arc<DeviceState>,
    /// The first failure.
    failure: Option<Error>,
    /// The resources that it uses, once started.
    resources: Option<RunResources>,
    /// Counts it as in flight, once started.
    counted: Option<CountedRun>,
    waits: Option<Resource>,
    reported_layers: usize,
    /// Started on its own stream, and its duration is to be observed.
    is_observed: bool,
    /// Parts of it were passed to the driver.
    has_begun: bool,
    run: Run,
}

impl CudaRun {
    /// A run that has not begun.
    pub fn new(tasks: &Arc<TaskSequence>, device: &Arc<DeviceState>, run: Run) -> Self {
        Self {
            tasks: tasks.clone(),
            device: device.clone(),
            failure: None,
            resources: None,
            counted: None,
            waits: None,
            reported_layers: 0,
            is_observed: false,
            has_begun: false,
            run,
        }
    }

    /// A run that was started on a stream of the caller.
    pub fn started(mut self, resources: RunResources, outcome: Result<()>) -> Self {
        // It waits for earlier work on the stream, so its duration is not observed.
        self.counted = Some(CountedRun::begin(&self.device.run_counter));
        self.failure = outcome.err();
        self.resources = Some(resources);
        self.run.reach(Milestone::Begun);
        self.has_begun = true;
        self
    }

    pub fn device(&self) -> &Arc<DeviceState> {
        &self.device
    }

    /// The resources that it can't start without.
    pub fn resources_needed(&self) -> impl Iterator<Item = Resource> {
        self.tasks.resources_needed()
    }

    /// Whether earlier runs wait for a resource that it needs.
    pub fn is_behind(&self) -> bool {
        self.resources_needed().any(|resource| self.device.waiting.has(resource))
    }

    /// Takes all resources, or returns the one that is in use. If `is_urgent`, it does so before other runs that wait, and beyond the
    /// usual limits. A failure becomes the outcome of the run.
    pub fn take(&mut self, is_urgent: bool) -> std::result::Result<(), Resource> {
        match guarded(|| self.tasks.take(&self.device, is_urgent)).and_then(|taken| taken) {
            Ok(Ok(resources)) => self.resources = Some(resources),
            Ok(Err(resource)) => {
                self.wait_for(Some(resource));
                return Err(resource);
            }
            Err(error) => self.failure = Some(error),
        }
        self.wait_for(None);
        Ok(())
    }

    fn wait_for(&mut self, resource: Option<Resource>) {
        if resource != self.waits {
            resource.into_iter().for_each(|resource| self.device.waiting.add(resource));
            self.waits.into_iter().for_each(|resource| self.device.waiting.remove(resource));
            self.waits = resource;
        }
    }

    /// Starts the copies. If that fails, the copies that have begun are waited for.
    pub fn start(&mut self) {
        let Some(resources) = &self.resources else { return };
        self.has_begun = true;
        self.run.reach(Milestone::Begun);
        self.counted = Some(CountedRun::begin(&self.device.run_counter));
        let begun = Instant::now();
        // SAFETY: the plan checked all spans against their layouts, which are held until the run has ended.
        let started = guarded(|| unsafe { self.tasks.start(resources) });
        self.failure = started.and_then(|outcome| outcome).err();
        if let (Some(observer), None) = (self.tasks.observer(), &self.failure) {
            observer.submitted(begun.elapsed());
            self.is_observed = true;
        }
    }

    /// The error of a run that was cancelled before it began.
    pub fn cancelled(&self) -> Option<Error> {
        (!self.has_begun && self.run.is_cancelled()).then(cancelled)
    }

    /// The outcome; `None` while the driver executes the run. Reports the layers that have moved. If the query of an event
    /// fails for a reason other than the run's own failure, it is repeated.
    pub fn ended(&mut self) -> Option<Result<()>> {
        self.report_layers();
        let is_done = self.resources.as_ref().is_none_or(|resources| resources.is_done(&mut self.failure));
        if is_done {
            self.observe_end();
        }
        is_done.then(|| self.failure.take().map_or(Ok(()), |failure| Err(self.explained(failure))))
    }

    /// Says what a reset did to a run that the driver executed.
    fn explained(&self, failure: Error) -> Error {
        if !self.has_begun || !is_lost(&failure) {
            return failure;
        }
        failure.followed_by("the transfer was in flight, so its destination may hold a part of the blocks")
    }

    fn observe_end(&mut self) {
        let took = self.counted.take().and_then(|counted| counted.alone_for());
        if let (true, Some(observer), Some(took), None) =
            (self.is_observed, self.tasks.observer(), took, &self.failure)
        {
            observer.ended_alone(took);
        }
    }

    fn report_layers(&mut self) {
        let (Some(resources), None) = (&self.resources, &self.failure) else { return };
        let done = resources.layers_done(self.reported_layers, &mut self.failure);
        if done > self.reported_layers {
            self.reported_layers = done;
            self.run.advance(done as u64);
        }
    }

    /// Makes later work on a stream of the caller wait for the first `layers`, or for the whole run.
    pub fn delay(&self, stream: CallerStream, layers: Option<u64>) -> Result<()> {
        match (&self.failure, &self.resources) {
            (None, Some(resources)) => resources.delay(&self.device, stream, layers),
            (Some(error), _) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Drops all references to objects of the caller, then reports the end: after that the caller may free memory. Dropping
    /// may block until the device is idle, so another thread does it.
    pub fn end(mut self, outcome: Result<()>) {
        self.wait_for(None);
        let Self { tasks, device, run, mut resources, has_begun, .. } = self;
        if outcome.as_ref().is_err_and(is_fatal) {
            device.retire();
        }
        let is_sound = outcome.is_ok() || !has_begun;
        if let (true, Some(resources)) = (is_sound, &mut resources) {
            tasks.release_layers(resources);
        }
        let ordinal = device.context().device().ordinal();
        let spoiled = resources.and_then(|resources| resources.release(is_sound));
        exit::dispose_of(ordinal, spoiled.into_iter().collect());
        match (Arc::into_inner(tasks), Arc::into_inner(device)) {
            (None, None) => run.end(outcome),
            last => disposal::dispose_of_then(&Blockers::device(ordinal), last, move || run.end(outcome)),
        }
    }
}

impl Abandon for CudaRun {
    /// Ends a run that the driver may still execute, with no way to detect its end. Its resources are
    /// intentionally leaked.
    fn abandon(mut self, error: Error) {
        self.wait_for(None);
        let Self { tasks, device, run, resources, .. } = self;
        device.retire();
        let staging = resources.as_ref().and_then(RunResources::staging).map_or(0, Staging::size);
        let memory = (device.context().device().ordinal(), staging);
        leak::with_memory((tasks, device, resources), [memory]);
        run.abandon(error);
    }
}
