// SPDX-License-Identifier: Apache-2.0
//! How far a run has come: layers that have moved, streams that wait for them, and taking back what has not begun.

use std::time::{Duration, Instant};

use super::{Engine, Transfer};
use crate::cuda::stream::CallerStream;
use crate::error::{Result, ensure, fail};

impl Transfer {
    /// How many layers of the last run have moved, from the first on. Without `by_layer` all, once it is over.
    pub fn moved_layers(&self) -> Result<u64> {
        if let Engine::Cuda(copy) = &self.engine {
            copy.look();
        }
        self.completion.moved()
    }

    /// Waits until the first `layers` of the last run have moved; 0 for all. `None` waits for ever.
    pub fn wait_layers(&self, layers: u64, timeout: Option<Duration>) -> Result<()> {
        let wanted = self.wanted(layers)?.unwrap_or(self.completion.layers());
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let is_enough = || self.completion.moved().is_ok_and(|moved| moved >= wanted);
        match &self.engine {
            Engine::Host(copy) => copy.help(deadline, is_enough),
            Engine::Cuda(copy) => copy.look_for_a_while(deadline, is_enough),
            Engine::Disk(_) | Engine::Nixl(_) => {}
        }
        self.completion.wait_layers(wanted, deadline)
    }

    /// Has what is put on a stream of the caller's from now on wait for the first `layers` of the last run; 0 for all.
    pub fn wait_on(&self, layers: u64, stream: CallerStream) -> Result<()> {
        let wanted = self.wanted(layers)?;
        let moved = self.completion.moved()?;
        let Engine::Cuda(copy) = &self.engine else {
            let over = self.completion.poll()?.is_some();
            ensure!(
                over || wanted.is_some_and(|wanted| moved >= wanted),
                Unsupported,
                "no stream carries {}, so that none can wait for it; wait for the layers before work is put there",
                self.path
            );
            return Ok(());
        };
        if copy.check_stream(stream)? {
            fail!(InvalidState, "a graph can't wait for a run that began outside it");
        }
        self.completion.poll()?;
        // Without marks behind the layers, the end of the run is what there is to wait for.
        copy.hold_back(stream, wanted.filter(|_| self.by_layer))
    }

    /// Takes back what of the last run has not begun. What has begun goes on.
    pub fn cancel(&self) -> Result<()> {
        self.completion.cancel()?;
        if let Engine::Host(copy) = &self.engine {
            copy.cancel();
        }
        Ok(())
    }

    /// Refuses more layers than there are; `None` for all.
    fn wanted(&self, layers: u64) -> Result<Option<u64>> {
        let have = self.completion.layers();
        ensure!(layers <= have, OutOfRange, "the transfer moves {have} layers, and {layers} are asked for");
        Ok((layers > 0).then_some(layers))
    }
}
