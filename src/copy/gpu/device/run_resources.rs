// SPDX-License-Identifier: Apache-2.0
//! The resources that a run uses on a device until it ends.

use std::sync::Arc;

use super::descriptor_ring::DescriptorSlot;
use super::device_state::DeviceState;
use super::pool::Pooled;
use super::staging::Staging;
use crate::base::{Error, Result, fail};
use crate::cuda::{CallerStream, Event, Stream, is_over};

/// The resources that a run uses until it ends.
pub struct RunResources {
    slot: Option<Arc<DescriptorSlot>>,
    staging: Option<Pooled<Staging>>,
    stream: Option<Pooled<Stream>>,
    /// The completion event on the caller's stream.
    event: Option<Pooled<Event>>,
    /// The completion event of each layer; empty unless layers are moved one by one.
    layers: LayerEvents,
}

/// Events, one per layer.
pub type LayerEvents = Vec<Pooled<Event>>;

impl RunResources {
    /// For a run on its own stream; or on the caller's stream, on which `event` is recorded behind it, and `stream` is an additional one.
    pub fn new(
        event: Option<Pooled<Event>>,
        stream: Option<Pooled<Stream>>,
        slot: Option<Arc<DescriptorSlot>>,
        staging: Option<Pooled<Staging>>,
    ) -> Self {
        Self { slot, staging, stream, event, layers: Vec::new() }
    }

    /// Adds an event for each layer, in a list that is empty.
    pub fn with_layers(mut self, device: &DeviceState, layers: usize, list: LayerEvents) -> Result<Self> {
        self.layers = list;
        for _ in 0..layers {
            self.layers.extend(device.event()?);
        }
        Ok(self)
    }

    /// Returns the events of the layers to their pool. Returns the empty list.
    pub fn release_layers(&mut self) -> LayerEvents {
        let mut list = std::mem::take(&mut self.layers);
        list.clear();
        list
    }

    /// The runs that kernels read.
    pub fn slot(&self) -> Option<&DescriptorSlot> {
        self.slot.as_deref()
    }

    pub fn staging(&self) -> Option<&Staging> {
        self.staging.as_deref()
    }

    /// The run's own stream.
    pub fn stream(&self) -> Option<&Stream> {
        self.stream.as_deref()
    }

    /// The completion event on the caller's stream.
    pub fn event(&self) -> Option<&Event> {
        self.event.as_deref()
    }

    pub fn layer(&self, layer: usize) -> Option<&Event> {
        self.layers.get(layer).map(|event| &**event)
    }

    /// How many layers have completed; the first `known` are skipped. Stores a failure.
    pub fn layers_done(&self, known: usize, failure: &mut Option<Error>) -> usize {
        for (layer, event) in self.layers.iter().enumerate().skip(known) {
            if !is_over(|| event.is_done(), failure) || failure.is_some() {
                return layer;
            }
        }
        self.layers.len()
    }

    /// Makes later work on a stream of the caller wait for the first `layers`, or for the whole run.
    pub fn delay(&self, device: &DeviceState, stream: CallerStream, layers: Option<u64>) -> Result<()> {
        let on = stream.activate(device.context())?;
        let of_layer = layers.and_then(|layers| self.layer((layers as usize).wrapping_sub(1)));
        if let Some(event) = of_layer.or(self.event()) {
            return on.wait_for(event);
        }
        let (Some(own), Some(event)) = (self.stream(), device.event()?) else {
            fail!(Panic, "a run has no completion event");
        };
        // The wait refers to the event as it is recorded now, so the event may be reused at once.
        own.activate()?.record(&event)?;
        on.wait_for(&event)
    }

    /// Whether all of it has completed. Stores a failure.
    pub fn is_done(&self, failure: &mut Option<Error>) -> bool {
        let mut all = true;
        // Checks all: nothing may be freed while one of them is busy, even if another has failed.
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

    /// Returns the resources to their pools. After a failure they can't be reused: marks them so, and returns them to the
    /// caller, who drops them.
    pub fn release(mut self, is_sound: bool) -> Option<Self> {
        if is_sound {
            return None;
        }
        if let Some(stream) = &mut self.stream {
            stream.spoil();
        }
        if let Some(staging) = &mut self.staging {
            staging.spoil();
        }
        self.event.iter_mut().chain(&mut self.layers).for_each(Pooled::spoil);
        Some(self)
    }
}
