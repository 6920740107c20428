// SPDX-License-Identifier: Apache-2.0
//! Elastic memory: addresses are reserved for the maximum size, and memory is committed for the part in use.
//!
//! It grows and shrinks in extents. One extent is one allocation of the driver, one mapping and one NIXL registration,
//! because UCX exports only the first mapping of a registration. Addresses never change; the generation counts the changes
//! of the memory behind them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::extent_properties::{granularity_of, properties, with_fabric};
use super::open_devices::{DeviceUsers, OpenDevices};
use crate::base::{Counted, Gauge, Mutex, MutexGuard, Result, ensure, fail};
use crate::cuda::DevicePair;
use crate::cuda::vmm::{
    AddressRange, AllocationProperties, DeviceMapping, ExportedHandle, HandleType, PhysicalMemory, Shareable,
};
use crate::region::control::MAX_EXTENTS;
use crate::region::registration::Registrations;
use crate::region::{
    Backing, Control, EqualPieces, Export, MemoryRange, OpenRequirements, PeerMemory, Properties, Tier,
};

/// The default size of an extent: the cost of growing is per extent, not per byte.
const EXTENT: u64 = 64 << 20;

/// The address range to reserve.
#[derive(Clone, Debug, Default)]
pub struct ElasticConfig {
    /// The maximum size in bytes; rounded up to whole extents.
    pub size: u64,
    /// The size of an extent in bytes, a multiple of the granularity; 0 means 64 MiB.
    pub extent_size: u64,
    /// The alignment of the first address, a power of two; 0 means the granularity.
    pub alignment: u64,
    /// The device, as CUDA_VISIBLE_DEVICES orders them.
    pub ordinal: i32,
    /// Extents can be shared by fabric handle too.
    pub fabric: bool,
}

/// Reserved addresses, and the extents that have memory.
pub struct ElasticMemory {
    range: Arc<AddressRange>,
    properties: AllocationProperties,
    ordinal: i32,
    extent_size: u64,
    /// The committed extents. The maximum size that another process claims costs no memory here.
    extents: Mutex<BTreeMap<usize, Extent>>,
    /// The last mappings that a call of an agent has used. NIXL may use them after their extent was decommitted: they remain mapped
    /// then, and are used again when it is committed again.
    used: Mutex<BTreeMap<usize, Weak<DeviceMapping>>>,
    control: Arc<Control>,
    /// The devices that its extents are open for, also those of extents to come.
    reach: OpenDevices,
    is_imported: bool,
}

/// Bytes of the extents of all regions of this process that have memory.
pub static COMMITTED: Gauge = Gauge::new();

struct Extent {
    mapping: Arc<DeviceMapping>,
    holds: usize,
    /// Its word in the control block when it was added to the region here.
    changes: u32,
    _committed: Counted,
}

/// The addresses of memory that another process has shared.
#[derive(Clone, Copy, Debug)]
pub struct ImportedShape {
    pub size: u64,
    pub extent_size: u64,
    /// Alignment of the first address, a power of two.
    pub alignment: u64,
}

/// An extent of another process.
pub struct ImportedExtent<'a> {
    /// Which extent of the region.
    pub index: usize,
    pub memory: Shareable<'a>,
    /// Its word in the control block when it was shared.
    pub changes: u32,
}

/// An extent that was exported for another process.
pub struct ExportedExtent {
    /// Which extent of the region.
    pub index: usize,
    pub memory: ExportedHandle,
    /// Its word in the control block.
    pub changes: u32,
}

/// New extents that are mapped, but not yet part of the region. Dropping it unmaps them.
pub struct Growth {
    /// Index of each.
    pub extents: Vec<usize>,
    pub mappings: Vec<Arc<DeviceMapping>>,
}

impl ElasticMemory {
    /// Reserves addresses. Nothing has memory yet.
    pub fn reserve(config: &ElasticConfig) -> Result<Self> {
        let plain = properties(config.ordinal)?;
        let granularity = granularity_of(plain, config.ordinal)?;
        let properties = if config.fabric { with_fabric(plain, config.ordinal)? } else { plain };
        let extent_size = if config.extent_size == 0 { EXTENT } else { config.extent_size };
        ensure!(
            extent_size.is_multiple_of(granularity),
            InvalidArgument,
            "extent_size is {extent_size} bytes; it must be a multiple of the granularity, {granularity}"
        );
        ensure!(
            config.size > 0,
            InvalidArgument,
            "the size of an elastic region is 0 bytes; it must be at least 1"
        );
        let size = config.size.checked_next_multiple_of(extent_size).filter(|size| *size <= i64::MAX as u64);
        ensure!(size.is_some(), InvalidArgument, "{} bytes exceed the address space", config.size);
        let size = size.unwrap_or_default();
        let count = (size / extent_size) as usize;
        ensure!(
            count <= MAX_EXTENTS,
            OutOfRange,
            "{size} bytes are {count} extents of {extent_size} bytes, and a region has at most {MAX_EXTENTS}; raise \
             extent_size"
        );
        let range = AddressRange::reserve(size, granularity.max(config.alignment))?;
        Ok(Self {
            range,
            properties,
            ordinal: config.ordinal,
            extent_size,
            extents: Mutex::default(),
            used: Mutex::default(),
            control: Arc::new(Control::create(count)?),
            reach: OpenDevices::from_owner(config.ordinal),
            is_imported: false,
        })
    }

    /// Maps what another process has shared of its elastic memory. What is there
    /// now is all there will be. It is opened for its own device and for `users`.
    pub fn import(
        (ordinal, users): (i32, DeviceUsers),
        ImportedShape { size, extent_size, alignment }: ImportedShape,
        shared: Vec<ImportedExtent<'_>>,
        control: Arc<Control>,
        writable: bool,
    ) -> Result<Self> {
        let count = (size / extent_size) as usize;
        ensure!(
            control.extent_count() == count,
            Corrupt,
            "{size} bytes are {count} extents of {extent_size} bytes, the control block has {}",
            control.extent_count()
        );
        let properties = properties(ordinal)?;
        let granularity = granularity_of(properties, ordinal)?;
        ensure!(
            extent_size.is_multiple_of(granularity),
            Corrupt,
            "an extent of {extent_size} bytes is not a multiple of the granularity {granularity}"
        );
        let range = AddressRange::reserve(size, granularity.max(alignment))?;
        let mut extents = BTreeMap::new();
        let mut mappings = Vec::with_capacity(shared.len());
        for ImportedExtent { index, memory, changes } in shared {
            let memory = PhysicalMemory::import(memory, extent_size, Some(properties.location))?;
            let mapping = DeviceMapping::create(&range, index as u64 * extent_size, &memory)?;
            mappings.push(mapping.clone());
            extents.insert(
                index,
                Extent { mapping, holds: 0, changes, _committed: COMMITTED.count(extent_size) },
            );
        }
        let reach = OpenDevices::open(&mappings, ordinal, users, writable)?;
        let (extents, used) = (Mutex::new(extents), Mutex::default());
        Ok(Self { range, properties, ordinal, extent_size, extents, used, control, reach, is_imported: true })
    }

    /// Whether its extents can be exported as this type of handle.
    pub fn allows(&self, kind: HandleType) -> bool {
        self.properties.allow(kind)
    }

    pub fn extent_size(&self) -> u64 {
        self.extent_size
    }

    /// The control block, which counts the changes of extents, also for other processes.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// How often the memory behind an address has changed.
    pub fn generation(&self) -> u64 {
        self.control.generation()
    }

    /// Number of committed extents.
    pub fn num_committed(&self) -> u64 {
        self.extents().len() as u64
    }

    /// The committed extents, in order.
    pub fn committed(&self) -> Vec<usize> {
        self.extents().keys().copied().collect()
    }

    pub fn committed_size(&self) -> u64 {
        self.extents().len() as u64 * self.extent_size
    }

    /// The committed extents, in order, each with its number of changes.
    pub fn committed_changes(&self) -> Vec<(u64, u32)> {
        self.extents().iter().map(|(index, extent)| (*index as u64, extent.changes)).collect()
    }

    /// Address and size of an extent.
    pub fn span(&self, extent: usize) -> (u64, u64) {
        (self.address() + extent as u64 * self.extent_size, self.extent_size)
    }

    /// The extents that a span within the region touches.
    pub fn touched(&self, offset: u64, size: u64) -> std::ops::Range<usize> {
        let touched = EqualPieces { start: 0, size: self.extent_size }.touched(offset, size);
        touched.start as usize..touched.end as usize
    }

    /// Creates and maps the extents of `wanted` that are not committed: all of them, or none.
    pub fn grow(&self, wanted: &[usize]) -> Result<Growth> {
        self.ensure_own()?;
        let missing: Vec<_> = {
            let extents = self.extents();
            wanted.iter().copied().filter(|index| !extents.contains_key(index)).collect()
        };
        let mut mappings = Vec::with_capacity(missing.len());
        for extent in &missing {
            let asked = missing.len() as u64 * self.extent_size;
            let doing = || format!("commit {asked} bytes, in extents of {} bytes", self.extent_size);
            mappings.push(self.map(*extent).map_err(|error| error.context(doing()))?);
        }
        DeviceMapping::set_access_of_all(&mappings, &self.reach.accesses())?;
        Ok(Growth { extents: missing, mappings })
    }

    fn map(&self, extent: usize) -> Result<Arc<DeviceMapping>> {
        // One whose last use ends now is unmapped when the lock is released.
        let used = self.used().get(&extent).and_then(Weak::upgrade);
        if let Some(used) = used {
            return Ok(used);
        }
        let memory = PhysicalMemory::create(self.extent_size, self.properties)?;
        DeviceMapping::create(&self.range, extent as u64 * self.extent_size, &memory)
    }

    /// The mappings of the committed extents.
    pub fn mappings(&self) -> Vec<Arc<DeviceMapping>> {
        self.extents().values().map(|extent| extent.mapping.clone()).collect()
    }

    /// Notes that a call of an agent uses these mappings.
    pub fn note_use(&self, mappings: &[Arc<DeviceMapping>]) {
        let index_of = |mapping: &Arc<DeviceMapping>| (mapping.offset() / self.extent_size) as usize;
        self.used().extend(mappings.iter().map(|mapping| (index_of(mapping), Arc::downgrade(mapping))));
    }

    /// Drops what a call has used.
    pub fn end_use(&self, mappings: Vec<Arc<DeviceMapping>>) {
        let _used = self.used();
        drop(mappings);
    }

    /// Makes new extents part of the region.
    pub fn add(&self, growth: Growth) {
        let mut extents = self.extents();
        self.control.changed(&growth.extents);
        for (index, mapping) in growth.extents.into_iter().zip(growth.mappings) {
            let (changes, _committed) = (self.control.extent(index), COMMITTED.count(self.extent_size));
            extents.insert(index, Extent { mapping, holds: 0, changes, _committed });
        }
    }

    /// Removes extents from the region; dropping the result frees their memory. Removes none if one is not committed or in
    /// use.
    pub fn take(&self, unwanted: &[usize]) -> Result<Vec<Arc<DeviceMapping>>> {
        self.ensure_own()?;
        let mut extents = self.extents();
        for index in unwanted {
            let (offset, size) = (*index as u64 * self.extent_size, self.extent_size);
            let Some(extent) = extents.get(index) else {
                fail!(InvalidState, "the {size} bytes at offset {offset} are not committed");
            };
            ensure!(
                extent.holds == 0,
                Busy,
                "a transfer in flight or a share uses the {size} bytes at offset {offset}: wait for the transfer, and \
                 destroy or unpublish the share, first"
            );
        }
        self.control.changed(unwanted);
        Ok(unwanted.iter().filter_map(|index| extents.remove(index)).map(|extent| extent.mapping).collect())
    }

    /// Keeps extents committed until they are released. Fails if one is not committed.
    pub fn hold(&self, wanted: &[usize]) -> Result<()> {
        let mut extents = self.extents();
        for index in wanted {
            ensure!(
                extents.contains_key(index),
                InvalidState,
                "the {} bytes at offset {} of the elastic region are not committed",
                self.extent_size,
                *index as u64 * self.extent_size
            );
        }
        if self.is_imported {
            wanted.iter().try_for_each(|index| self.ensure_current(*index, extents.get(index)))?;
        }
        for index in wanted {
            extents.entry(*index).and_modify(|extent| extent.holds += 1);
        }
        Ok(())
    }

    /// Fails if extents of another process have changed since they were shared.
    pub fn ensure_unchanged(&self, held: &[usize]) -> Result<()> {
        let extents = self.extents();
        if self.is_imported {
            held.iter().try_for_each(|index| self.ensure_current(*index, extents.get(index)))?;
        }
        Ok(())
    }

    fn ensure_current(&self, index: usize, extent: Option<&Extent>) -> Result<()> {
        ensure!(
            extent.is_some_and(|extent| extent.changes == self.control.extent(index)),
            Stale,
            "the owner has decommitted the {} bytes at offset {} since it shared them; have it share them again",
            self.extent_size,
            index as u64 * self.extent_size
        );
        Ok(())
    }

    /// Exports these extents for another process. The driver is called without the lock, which getters take.
    pub fn export(&self, wanted: &[usize], kind: HandleType) -> Result<Vec<ExportedExtent>> {
        let found: Option<Vec<_>> = {
            let extents = self.extents();
            let of = |index: &usize| {
                extents.get(index).map(|found| (*index, found.mapping.clone(), found.changes))
            };
            wanted.iter().map(of).collect()
        };
        let Some(found) = found else {
            fail!(InvalidState, "an extent is not committed");
        };
        let export = |(index, mapping, changes): (usize, Arc<DeviceMapping>, u32)| {
            let memory = mapping.memory().export(kind)?;
            Ok(ExportedExtent { index, memory, changes })
        };
        found.into_iter().map(export).collect()
    }

    fn ensure_own(&self) -> Result<()> {
        ensure!(
            !self.is_imported,
            Unsupported,
            "the region belongs to another process, which can grow and shrink it and then share it again"
        );
        Ok(())
    }

    /// Ends a hold of extents.
    pub fn release(&self, held: &[usize]) {
        let mut extents = self.extents();
        for index in held {
            extents.entry(*index).and_modify(|extent| extent.holds -= 1);
        }
    }

    fn extents(&self) -> MutexGuard<'_, BTreeMap<usize, Extent>> {
        self.extents.lock()
    }

    fn used(&self) -> MutexGuard<'_, BTreeMap<usize, Weak<DeviceMapping>>> {
        self.used.lock()
    }
}

impl Backing for ElasticMemory {
    /// With the maximum size.
    fn range(&self) -> MemoryRange {
        MemoryRange { tier: Tier::Elastic, address: self.range.address(), size: self.range.size() }
    }

    fn properties(&self) -> Properties {
        Properties { page_size: Some(self.extent_size), ..Properties::default() }
    }

    fn export(&self) -> Result<Export<'_>> {
        Ok(Export::Extents)
    }

    fn devices(&self) -> Option<DevicePair> {
        Some(DevicePair::on(self.ordinal))
    }

    fn peer_memory(&self) -> PeerMemory {
        self.committed().first().map_or(PeerMemory::Unknown, |extent| PeerMemory::Vmm(self.span(*extent).0))
    }

    fn open_for(&self, users: DeviceUsers, registrations: &Registrations) -> Result<()> {
        if self.reach.covers(self.ordinal, users)? {
            return Ok(());
        }
        // An extent that another thread commits now gets either the old or the new devices.
        let _resizing = registrations.resize()?;
        self.reach.extend(&self.mappings(), self.ordinal, users)
    }

    /// The extents must be present, with the same number of changes.
    fn satisfies(&self, wanted: &OpenRequirements) -> bool {
        let extents = self.extents();
        let has = |(index, changes): &(usize, u32)| {
            extents.get(index).is_some_and(|extent| extent.changes == *changes)
        };
        wanted.extents.iter().all(has) && self.address().is_multiple_of(wanted.alignment)
    }

    fn is_registered_whole(&self) -> bool {
        true
    }

    fn bytes_in_piece(&self, address: u64) -> u64 {
        EqualPieces { start: self.address(), size: self.extent_size }.left(address)
    }
}
