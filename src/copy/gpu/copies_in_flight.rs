// SPDX-License-Identifier: Apache-2.0
//! Copies that were started on a stream of their own: whether they have ended, and what they use until then.

use std::sync::Arc;

use super::checker::{SLEEP, SPIN};
use super::device::descriptor_ring::DescriptorSlot;
use super::device::device_state::DeviceState;
use super::device::pool::Pooled;
use crate::base::{Error, Result, leak, thread};
use crate::cuda::{Active, Stream, is_fatal, is_over};

/// Copies that were started, and what they use until they have ended.
pub struct CopiesInFlight<H: Send + 'static> {
    in_flight: Option<InFlight>,
    held: Option<H>,
    failure: Option<Error>,
}

struct InFlight {
    stream: Pooled<Stream>,
    /// The runs that kernels read.
    _slot: Option<DescriptorSlot>,
    device: Arc<DeviceState>,
}

impl<H: Send + 'static> CopiesInFlight<H> {
    /// Starts what `enqueue` passes to the stream. If that fails, what it has started before is waited for. Holds `held` until the
    /// copies have ended.
    pub fn start(
        device: &Arc<DeviceState>,
        slot: Option<DescriptorSlot>,
        held: H,
        enqueue: impl FnOnce(&Active<'_>) -> Result<()>,
    ) -> Result<Self> {
        let stream = device.one_more_stream()?;
        let started = stream.activate().and_then(|on| enqueue(&on));
        let in_flight = Some(InFlight { stream, _slot: slot, device: device.clone() });
        Ok(Self { in_flight, held: Some(held), failure: started.err() })
    }

    /// Whether they have ended. Then they need nothing of what they hold, and have their failure, if they have failed.
    pub fn is_done(&mut self) -> bool {
        let Some(InFlight { stream, .. }) = &self.in_flight else { return true };
        if !is_over(|| stream.is_done(), &mut self.failure) {
            return false;
        }
        if let (Some(InFlight { mut stream, device, .. }), Some(error)) =
            (self.in_flight.take(), &self.failure)
        {
            if is_fatal(error) {
                device.retire();
            }
            stream.spoil();
        }
        true
    }

    /// Waits for their end.
    pub fn wait(mut self) -> Result<()> {
        thread::poll(SPIN, SLEEP, || Ok(self.is_done()))?;
        self.failure.take().map_or(Ok(()), Err)
    }

    /// What they hold, once they have ended.
    pub fn take_held(&mut self) -> Option<H> {
        self.held.take_if(|_| self.in_flight.is_none())
    }

    /// Why they have failed. Some may still be in progress.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }
}

impl<H: Send + 'static> Drop for CopiesInFlight<H> {
    /// The device may still use what they hold.
    fn drop(&mut self) {
        if !self.is_done() {
            let ordinal = self.in_flight.as_ref().map(|of| of.device.context().device().ordinal());
            leak::with_memory((self.in_flight.take(), self.held.take()), ordinal.map(|ordinal| (ordinal, 0)));
        }
    }
}
