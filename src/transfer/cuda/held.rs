// SPDX-License-Identifier: Apache-2.0
//! What a run uses on a device until it is over.

use std::sync::Arc;

use super::engine::{Engine, Staging};
use super::ring::Slot;
use super::shelf::Taken;
use crate::cuda::Event;
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
    /// What the driver told of one of them while another went on: it may tell it once.
    failure: Option<Error>,
}

impl Held {
    /// On a stream of the run's own.
    pub fn own(stream: Taken<Stream>, slot: Option<Arc<Slot>>, staging: Option<Taken<Staging>>) -> Self {
        Self { slot, staging, stream: Some(stream), event: None, layers: Vec::new(), failure: None }
    }

    /// On the caller's stream, whose end there `event` marks; `stream` is a further one.
    pub fn on_callers(
        event: Option<Taken<Event>>,
        stream: Option<Taken<Stream>>,
        slot: Option<Arc<Slot>>,
        staging: Option<Taken<Staging>>,
    ) -> Self {
        Self { slot, staging, stream, event, layers: Vec::new(), failure: None }
    }

    /// The same, with an event for each of so many layers.
    pub fn with_layers(mut self, engine: &Engine, layers: usize) -> Result<Self> {
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

    /// How many layers the driver is done with, where `known` are known to be.
    pub fn layers_done(&self, known: usize) -> Result<usize> {
        for (layer, event) in self.layers.iter().enumerate().skip(known) {
            if !event.is_done()? {
                return Ok(layer);
            }
        }
        Ok(self.layers.len())
    }

    /// Has what comes later on a stream of the caller's wait for the first `layers`, or for all of the run.
    pub fn hold_back(&self, engine: &Engine, stream: CallerStream, layers: Option<u64>) -> Result<()> {
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

    /// Whether the driver is done with all of it.
    pub fn is_done(&mut self) -> Result<bool> {
        let event = self.event.as_ref().map(|event| event.is_done());
        let stream = self.stream.as_ref().map(|stream| stream.is_done());
        let copier = self.staging.as_ref().map(|staging| staging.copier.is_done());
        // All are asked: nothing may be let go while one of them goes on, even when another has failed.
        let mut goes_on = false;
        for answer in [event, stream, copier].into_iter().flatten() {
            match answer {
                Ok(is_done) => goes_on |= !is_done,
                Err(error) => {
                    self.failure.get_or_insert(error);
                }
            }
        }
        if goes_on { Ok(false) } else { self.failure.take().map_or(Ok(true), Err) }
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
        self.event.iter_mut().chain(&mut self.layers).for_each(Taken::spoil);
    }
}
