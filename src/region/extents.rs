// SPDX-License-Identifier: Apache-2.0
//! What an elastic region has of its memory now: growing, shrinking, and holding what is in use.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use super::elastic::ElasticMemory;
use super::span_registrar::SpanFailure;
use super::{Backing, ExportedExtent, Region, Registration};
use crate::cuda::vmm::HandleType;
use crate::error::{Error, Result, Status, ensure};
use crate::log::{Count, Microseconds, log};
use crate::nixl::Descriptor;
use crate::sync::MutexGuard;

impl Region {
    /// The elastic memory behind it, if it is that.
    pub fn elastic_memory(&self) -> Option<&ElasticMemory> {
        match self.root() {
            Backing::Elastic(memory) => Some(memory),
            _ => None,
        }
    }

    /// Gives `size` bytes at `offset` memory, in whole extents; what has some keeps it. All of it, or none.
    pub fn commit(&self, offset: u64, size: u64) -> Result<()> {
        let memory = self.resizable(offset, size)?;
        self.commit_extents(&memory.touched(offset, size).collect::<Vec<_>>())
    }

    /// Takes the memory of `size` bytes at `offset` away, in whole extents.
    pub fn decommit(&self, offset: u64, size: u64) -> Result<()> {
        let memory = self.resizable(offset, size)?;
        let extent = memory.extent_size();
        ensure!(
            offset.is_multiple_of(extent) && size.is_multiple_of(extent),
            InvalidArgument,
            "{size} bytes at offset {offset} are no whole extents of {extent} bytes"
        );
        self.decommit_extents(&memory.touched(offset, size).collect::<Vec<_>>())
    }

    /// Commits extents, and registers them with the agents that know the region. All of them, or none.
    fn commit_extents(&self, wanted: &[usize]) -> Result<()> {
        let registrations; // dropped after the lock: the last holder waits for an agent
        let _resizing = self.resizing();
        registrations = self.registrations.held();
        self.grow(self.own_elastic_memory()?, &registrations, wanted)
    }

    /// Decommits extents, after the agents that know them have deregistered them. Fails while one is in use. If an
    /// agent fails to deregister an extent, the extent leaves the region like the others, but its memory stays, to be
    /// used again when the extent is committed again.
    fn decommit_extents(&self, unwanted: &[usize]) -> Result<()> {
        let registrations; // dropped after the lock: the last holder waits for an agent
        let _resizing = self.resizing();
        registrations = self.registrations.all()?;
        self.shrink(self.own_elastic_memory()?, &registrations, unwanted)
    }

    /// Commits exactly these extents of the region: those that are missing are committed, all others decommitted. What
    /// is committed is compared and changed under one lock. Otherwise two callers could both commit and decommit what
    /// they saw as the difference, and leave a mixture that neither of them asked for.
    pub fn set_committed(&self, wanted: &BTreeSet<usize>) -> Result<()> {
        let (held, all); // dropped after the lock: the last holder waits for an agent
        let _resizing = self.resizing();
        let memory = self.own_elastic_memory()?;
        let committed: BTreeSet<usize> = memory.committed().into_iter().collect();
        let missing: Vec<_> = wanted.difference(&committed).copied().collect();
        let unwanted: Vec<_> = committed.difference(wanted).copied().collect();
        if !missing.is_empty() {
            held = self.registrations.held();
            self.grow(memory, &held, &missing)?;
        }
        if !unwanted.is_empty() {
            all = self.registrations.all()?;
            self.shrink(memory, &all, &unwanted)?;
        }
        Ok(())
    }

    /// The caller holds the resizing lock.
    fn grow(
        &self,
        memory: &ElasticMemory,
        registrations: &[Arc<Registration>],
        wanted: &[usize],
    ) -> Result<()> {
        let started = Instant::now();
        let growth = memory.grow(wanted)?;
        let added: Vec<_> =
            growth.extents.iter().map(|extent| self.extent_descriptor(memory, *extent)).collect();
        for (index, registration) in registrations.iter().enumerate() {
            if let Err(failure) = registration.extend(&added) {
                let failure = take_back(&registrations[..index], &added, failure);
                memory.keep(&growth.mappings, &failure.stuck);
                return Err(failure.error);
            }
        }
        log!(
            Debug,
            "region {}: {} of {} bytes committed in {}",
            self.log_id(),
            Count(growth.extents.len() as u64, "extent"),
            memory.extent_size(),
            Microseconds(started.elapsed())
        );
        memory.add(growth);
        Ok(())
    }

    /// The caller holds the resizing lock.
    fn shrink(
        &self,
        memory: &ElasticMemory,
        registrations: &[Arc<Registration>],
        unwanted: &[usize],
    ) -> Result<()> {
        let started = Instant::now();
        let taken = memory.take(unwanted)?;
        let removed: Vec<_> = unwanted.iter().map(|extent| self.extent_descriptor(memory, *extent)).collect();
        let mut outcome = Ok(());
        for registration in registrations {
            if let Err(failure) = registration.reduce(&removed) {
                memory.keep(&taken, &failure.stuck);
                outcome = outcome.and(Err(failure.error));
            }
        }
        drop(taken);
        log!(
            Debug,
            "region {}: {} of {} bytes decommitted in {}",
            self.log_id(),
            Count(unwanted.len() as u64, "extent"),
            memory.extent_size(),
            Microseconds(started.elapsed())
        );
        outcome
    }

    fn own_elastic_memory(&self) -> Result<&ElasticMemory> {
        match &self.backing {
            Backing::Elastic(memory) => Ok(memory),
            _ => Err(not_elastic()),
        }
    }

    /// The extents that have memory, for another process. Held, they stay.
    pub fn export_extents(self: &Arc<Self>, way: HandleType) -> Result<(Vec<ExportedExtent>, ExtentHold)> {
        let _unchanged = self.resizing();
        let memory = self.elastic_memory().ok_or_else(not_elastic)?;
        let committed = Arc::new(memory.committed());
        let hold = ExtentHold::new(self, &committed)?;
        Ok((memory.export(&committed, way)?, hold))
    }

    /// What NIXL knows it as: the control block, for peers to look at, and each extent that has memory; or the region
    /// as one.
    pub fn descriptors(&self) -> Vec<Descriptor> {
        match &self.backing {
            Backing::Elastic(memory) => {
                let control = self.origin.is_none().then(|| memory.control().descriptor());
                let committed = memory.committed().into_iter();
                control
                    .into_iter()
                    .chain(committed.map(|extent| self.extent_descriptor(memory, extent)))
                    .collect()
            }
            _ => vec![self.descriptor()],
        }
    }

    /// Nothing grows, shrinks or is registered while this is held.
    pub(super) fn resizing(&self) -> MutexGuard<'_, ()> {
        self.resizing.lock()
    }

    fn resizable(&self, offset: u64, size: u64) -> Result<&ElasticMemory> {
        let memory = self.own_elastic_memory()?;
        ensure!(size > 0, InvalidArgument, "0 bytes can't be committed or decommitted");
        ensure!(
            offset.checked_add(size).is_some_and(|end| end <= memory.size()),
            OutOfRange,
            "{size} bytes at offset {offset} reach past the {} bytes that were reserved",
            memory.size()
        );
        Ok(memory)
    }

    fn extent_descriptor(&self, memory: &ElasticMemory, extent: usize) -> Descriptor {
        let (address, size) = memory.span(extent);
        Descriptor { address, size, ..self.descriptor() }
    }
}

/// Takes from the agents again what they were told before one of them failed; that failure comes first.
fn take_back(told: &[Arc<Registration>], added: &[Descriptor], failure: SpanFailure) -> SpanFailure {
    let later = told.iter().filter_map(|registration| registration.reduce(added).err());
    later.fold(failure, SpanFailure::and)
}

fn not_elastic() -> Error {
    Error::new(
        Status::InvalidArgument,
        "the region is not elastic, or a view of one: commit through the region itself",
    )
}

/// Extents of a region that are in use: they stay until this is dropped.
pub struct ExtentHold {
    region: Arc<Region>,
    extents: Arc<Vec<usize>>,
}

impl ExtentHold {
    /// Holds extents; refused where one has no memory.
    pub fn new(region: &Arc<Region>, extents: &Arc<Vec<usize>>) -> Result<Self> {
        region.elastic_memory().map_or(Ok(()), |memory| memory.hold(extents))?;
        Ok(Self { region: region.clone(), extents: extents.clone() })
    }

    /// Refuses extents that their owner, another process, has taken back meanwhile.
    pub fn ensure_unchanged(&self) -> Result<()> {
        self.region.elastic_memory().map_or(Ok(()), |memory| memory.ensure_unchanged(&self.extents))
    }
}

impl Drop for ExtentHold {
    fn drop(&mut self) {
        if let Some(memory) = self.region.elastic_memory() {
            memory.release(&self.extents);
        }
    }
}
