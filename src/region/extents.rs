// SPDX-License-Identifier: Apache-2.0
//! The extents of an elastic region: committing, decommitting, and holding those in use.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use super::tiers::{ElasticMemory, Growth};
use super::{Backing, ExportedExtent, Region, Registration};
use crate::base::{Count, Error, Microseconds, Result, ensure, error, leak, log};
use crate::cuda::vmm::HandleType;
use crate::nixl::{Descriptor, SpanFailure, SpanResult};

impl Region {
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
            "{size} bytes at offset {offset} are not a whole number of extents of {extent} bytes"
        );
        self.decommit_extents(&memory.touched(offset, size).collect::<Vec<_>>())
    }

    /// Commits extents, and registers them with the agents that know the region. All of them, or none.
    fn commit_extents(&self, wanted: &[usize]) -> Result<()> {
        let registrations; // dropped after the lock: the last holder waits for an agent
        let _resizing = self.registrations.resize()?;
        registrations = self.registrations.held();
        self.grow(self.own_elastic_memory()?, &registrations, wanted)
    }

    /// Decommits extents, after the agents have deregistered them. Fails while one is in use. If an agent fails to
    /// deregister an extent, the extent is removed from the region like the others, but its memory is kept, and used again
    /// when the extent is committed again.
    fn decommit_extents(&self, unwanted: &[usize]) -> Result<()> {
        let registrations; // dropped after the lock: the last holder waits for an agent
        let _resizing = self.registrations.resize()?;
        registrations = self.registrations.all()?;
        self.shrink(self.own_elastic_memory()?, &registrations, unwanted)
    }

    /// Commits exactly these extents of the region: those that are missing are committed, all others decommitted. What
    /// is committed is compared and changed under one lock. Otherwise two concurrent callers could each apply the
    /// difference that they computed, and the result could be a mixture of both.
    pub fn set_committed(&self, wanted: &BTreeSet<usize>) -> Result<()> {
        let (held, all); // dropped after the lock: the last holder waits for an agent
        let _resizing = self.registrations.resize()?;
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

    /// The caller resizes the region: no other thread does.
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
            if let Err(failure) = registration.extend(&added, &growth.mappings) {
                return Err(undone(failure, &registrations[..index], |earlier| {
                    earlier.reduce(&added, &growth.mappings).inspect_err(|failure| {
                        if failure.is_refusal() {
                            leak::intentionally(growth.mappings.clone());
                        }
                    })
                }));
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

    /// The caller resizes the region: no other thread does.
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
        for (index, registration) in registrations.iter().enumerate() {
            let Err(failure) = registration.reduce(&removed, &taken) else { continue };
            if failure.is_refusal() {
                let extend = |earlier: &Registration| earlier.extend(&removed, &taken);
                let error = undone(failure, &registrations[..index], extend);
                memory.add(Growth { extents: unwanted.to_vec(), mappings: taken });
                return Err(error);
            }
            outcome = outcome.and(Err(failure.error));
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
        let memory = self.ensure_elastic()?;
        ensure!(
            !self.is_view(),
            InvalidArgument,
            "the region is a view; commit and decommit through the region that it is a view of"
        );
        Ok(memory)
    }

    /// The same, or of a view.
    pub fn ensure_elastic(&self) -> Result<&ElasticMemory> {
        self.elastic_memory().ok_or_else(|| {
            error!(InvalidArgument, "the region is not elastic: all of a {} region has memory from its creation on, and cannot be committed or \
                 decommitted",
                self.tier().name())
        })
    }

    /// Exports the committed extents for another process. The hold keeps them committed.
    pub fn export_extents(self: &Arc<Self>, way: HandleType) -> Result<(Vec<ExportedExtent>, ExtentHold)> {
        let memory = self.ensure_elastic()?;
        let _unchanged = Self::root_of(self).0.registrations.resize()?;
        let committed = memory.committed();
        let exported = memory.export(&committed, way)?;
        let hold = ExtentHold::new(&[RegionExtents { region: self.clone(), indices: committed }].into())?;
        Ok((exported, hold))
    }

    /// The descriptors to register with NIXL: of an elastic region the control block, which peers read, and each committed
    /// extent; of any other the region.
    pub fn descriptors(&self) -> Vec<Descriptor> {
        let Ok(memory) = self.own_elastic_memory() else { return vec![self.descriptor()] };
        let control = self.origin.is_none().then(|| memory.control().descriptor());
        let committed = memory.committed().into_iter();
        let extents = committed.map(|extent| self.extent_descriptor(memory, extent));
        control.into_iter().chain(extents).collect()
    }

    fn resizable(&self, offset: u64, size: u64) -> Result<&ElasticMemory> {
        let memory = self.own_elastic_memory()?;
        ensure!(size > 0, InvalidArgument, "size is 0 bytes; it must be at least 1");
        ensure!(
            offset.checked_add(size).is_some_and(|end| end <= memory.size()),
            OutOfRange,
            "{size} bytes at offset {offset} exceed the {} bytes that were reserved",
            memory.size()
        );
        Ok(memory)
    }

    fn extent_descriptor(&self, memory: &ElasticMemory, extent: usize) -> Descriptor {
        let (address, size) = memory.span(extent);
        Descriptor { address, size, ..self.descriptor() }
    }
}

/// A failure, after which the registrations before it are as they were.
fn undone(
    failure: SpanFailure,
    earlier: &[Arc<Registration>],
    undo: impl Fn(&Registration) -> SpanResult,
) -> Error {
    earlier.iter().filter_map(|earlier| undo(earlier).err()).fold(failure, SpanFailure::and).error
}

pub struct RegionExtents {
    pub region: Arc<Region>,
    /// The extents, in order.
    pub indices: Vec<usize>,
}

/// Keeps extents of some regions committed until it is dropped.
pub struct ExtentHold {
    all: Arc<[RegionExtents]>,
    /// The regions whose extents are held: all, unless one is not committed.
    held: usize,
}

impl ExtentHold {
    /// Holds extents. Fails if one is not committed. Allocates nothing, because runs that are repeated hold theirs.
    pub fn new(all: &Arc<[RegionExtents]>) -> Result<Self> {
        let mut hold = Self { all: all.clone(), held: 0 };
        for each in all.iter() {
            each.region.elastic_memory().map_or(Ok(()), |memory| memory.hold(&each.indices))?;
            hold.held += 1;
        }
        Ok(hold)
    }

    /// Fails if the owner, another process, has decommitted one of the extents.
    pub fn ensure_unchanged(&self) -> Result<()> {
        self.all.iter().try_for_each(|each| {
            each.region.elastic_memory().map_or(Ok(()), |memory| memory.ensure_unchanged(&each.indices))
        })
    }
}

impl Drop for ExtentHold {
    fn drop(&mut self) {
        for each in &self.all[..self.held] {
            if let Some(memory) = each.region.elastic_memory() {
                memory.release(&each.indices);
            }
        }
    }
}
