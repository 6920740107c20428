// SPDX-License-Identifier: Apache-2.0
//! What a run uses on a device until it is over.

#![forbid(unsafe_code)]

use std::sync::Arc;

use super::descriptor_ring::Slot;
use super::pool::Taken;
use super::state::{DeviceState, Staging};
use crate::cuda::Event;
use crate::cuda::ending::is_over;
use crate::cuda::stream::{CallerStream, Stream};
use crate::error::{Error, Result, fail};

/// What a run uses until it is over.
pub struct Held {
    slot: Option<Arc<Slot>>,
    staging: Option<Taken<Staging>>,
    /// Its own.
    stream: Option<Taken<Stream>>,
    /// On the caller's stream.
    event: Option<Taken<Event>>,
    /// Behind each layer; none where nobody asks for layers.
    layers: Vec<Taken<Event>>,
}

impl Held {
    /// On a stream of the run's own.
    pub fn own(stream: Taken<Stream>, slot: Option<Arc<Slot>>, staging: Option<Taken<Staging>>) -> Self {
        Self { slot, staging, stream: Some(stream), event: None, layers: Vec::new() }
    }

    /// On the caller's stream, whose end there `event` marks; `stream` is a further one.
    pub fn on_callers(
        event: Option<Taken<Event>>,
        stream: Option<Taken<Stream>>,
        slot: Option<Arc<Slot>>,
        staging: Option<Taken<Staging>>,
    ) -> Self {
        Self { slot, staging, stream, event, layers: Vec::new() }
    }

    /// The same, with an event for each of so many layers.
    pub fn with_layers(mut self, engine: &DeviceState, layers: usize) -> Result<Self> {
        for _ in 0..layers {
            self.layers.extend(engine.event()?);
        }
        Ok(self)
    }

    /// The runs that kernels read.
    pub fn slot(&self) -> Option<&Slot> {
        self.slot.as_deref()
    }

    /// The staging memory.
    pub fn staging(&self) -> Option<&Staging> {
        self.staging.as_deref()
    }

    /// The run's own stream.
    pub fn stream(&self) -> Option<&Stream> {
        self.stream.as_deref()
    }

    /// What marks the end on the caller's stream.
    pub fn event(&self) -> Option<&Event> {
        self.event.as_deref()
    }

    /// What marks the end of a layer.
    pub fn layer(&self, layer: usize) -> Option<&Event> {
        self.layers.get(layer).map(|event| &**event)
    }

    /// How many layers the driver is done with, where `known` are known to be. A failure of theirs is kept.
    pub fn layers_done(&self, known: usize, failure: &mut Option<Error>) -> usize {
        for (layer, event) in self.layers.iter().enumerate().skip(known) {
            if !is_over(|| event.is_done(), failure) || failure.is_some() {
                return layer;
            }
        }
        self.layers.len()
    }

    /// Has what comes later on a stream of the caller's wait for the first `layers`, or for all of the run.
    pub fn hold_back(&self, engine: &DeviceState, stream: CallerStream, layers: Option<u64>) -> Result<()> {
        let on = stream.activate(engine.context())?;
        let marked = layers.and_then(|layers| self.layer((layers as usize).wrapping_sub(1)));
        if let Some(event) = marked.or(self.event()) {
            return on.wait_for(event);
        }
        let (Some(own), Some(event)) = (self.stream(), engine.event()?) else {
            fail!(Panic, "a run has no mark of its end");
        };
        // What is waited for is what the event marks now: it may be used again at once.
        own.activate()?.record(&event)?;
        on.wait_for(&event)
    }

    /// Whether the driver is done with all of it. A failure of it is kept.
    pub fn is_done(&self, failure: &mut Option<Error>) -> bool {
        let mut all = true;
        // All are asked: nothing may be let go while one of them goes on, even when another has failed.
        if let Some(event) = &self.event {
            all &= is_over(|| event.is_done(), failure);
        }
        if let Some(stream) = &self.stream {
            all &= is_over(|| stream.is_done(), failure);
        }
        if let Some(staging) = &self.staging {
            all &= is_over(|| staging.copier.is_done(), failure);
        }
        all
    }

    /// Gives back what can be used again; what something failed on can't, and is returned to be dropped.
    pub fn give_back(mut self, is_sound: bool) -> Option<Self> {
        if is_sound {
            return None;
        }
        if let Some(stream) = &mut self.stream {
            stream.spoil();
        }
        if let Some(staging) = &mut self.staging {
            staging.spoil();
        }
        self.event.iter_mut().chain(&mut self.layers).for_each(Taken::spoil);
        Some(self)
    }
}
