// SPDX-License-Identifier: Apache-2.0
//! The memory of a region that a call of an agent uses. NIXL may use it until the call returns, also if the caller has left, and for
//! ever after some failures.

use std::collections::HashSet;
use std::sync::Arc;

use super::registrar::Registrar;
use crate::base::{leak, log};
use crate::cuda::vmm::DeviceMapping;
use crate::nixl::{Descriptor, Registered, SpanFailure, SpanResult};
use crate::region::Region;

/// Holds a region, and extents of an elastic one, which could be decommitted otherwise.
#[derive(Clone)]
pub struct UsedMemory {
    region: Arc<Region>,
    extents: Vec<Arc<DeviceMapping>>,
}

impl UsedMemory {
    pub fn all_of(region: &Arc<Region>) -> Self {
        let extents = region.elastic_memory().map(|memory| memory.mappings()).unwrap_or_default();
        Self::of_extents(region, &extents)
    }

    pub fn of_extents(region: &Arc<Region>, extents: &[Arc<DeviceMapping>]) -> Self {
        if let Some(memory) = region.elastic_memory() {
            memory.note_use(extents);
        }
        Self { region: region.clone(), extents: extents.to_vec() }
    }

    /// Registers spans of it: all, or none. If NIXL returns too late, that is undone, and the memory is held until then.
    pub fn register(self, registrar: &Registrar, spans: &[Descriptor]) -> SpanResult {
        let late = self.clone();
        let outcome = registrar.register(spans, move |outcome| late.end_late(outcome));
        outcome.inspect_err(|failure| self.leak_stuck(failure))
    }

    /// Deregisters what was registered of it. It is held until NIXL returns. If that is refused, the caller has to keep the memory.
    pub fn deregister(self, registrar: &Registrar, registered: Registered) -> SpanResult {
        let late = self.clone();
        let outcome = registrar.deregister(registered, move |outcome| late.end_late(outcome));
        outcome.inspect_err(|failure| {
            if !failure.is_refusal() {
                self.leak_stuck(failure);
            }
        })
    }

    /// Leaks what NIXL may still use after a failure: the region, and of its extents those.
    fn leak_stuck(&self, failure: &SpanFailure) {
        if !failure.stuck.is_empty() {
            // Extents are counted one by one.
            let whole = self.region.ordinal().filter(|_| self.extents.is_empty());
            leak::with_memory(self.region.clone(), whole.map(|ordinal| (ordinal, self.region.size())));
        }
        let stuck: HashSet<_> = failure.stuck.iter().map(|span| span.address).collect();
        let is_stuck = |extent: &&Arc<DeviceMapping>| stuck.contains(&extent.address());
        for extent in self.extents.iter().filter(is_stuck) {
            leak::with_memory(extent.clone(), self.region.ordinal().map(|ordinal| (ordinal, extent.size())));
        }
    }

    /// Handles the outcome of a call whose caller has left.
    pub fn end_late(self, outcome: SpanResult) {
        if let Err(failure) = outcome {
            self.leak_stuck(&failure);
            let fate = if failure.stuck.is_empty() { "" } else { "; its memory is intentionally leaked" };
            log!(Error, "region {}: {}{fate}", self.region.log_id(), failure.error);
        }
    }
}

impl Drop for UsedMemory {
    fn drop(&mut self) {
        let extents = std::mem::take(&mut self.extents);
        if let Some(memory) = self.region.elastic_memory() {
            memory.end_use(extents);
        }
    }
}
