// SPDX-License-Identifier: Apache-2.0
//! Device memory of the caller, for example a tensor of an engine.

use super::adopted::ADOPTED_READ_ONLY;
use crate::base::{Result, ensure};
use crate::cuda::memory::{self, AllocationStamp, DeviceRange};
use crate::cuda::{DevicePair, vmm};
use crate::region::release::{Release, ReleaseCallback};
use crate::region::{Access, Backing, Contexts, Export, MemoryRange, PeerMemory, Properties, Source, Tier};

/// Device memory that kvmem never frees.
pub struct AdoptedDevice {
    address: u64,
    size: u64,
    ordinal: i32,
    access: Access,
    /// The number of adjacent allocations or mappings that contain it.
    pieces: usize,
    /// Addresses at which copies must be split; empty if nowhere.
    ends: Vec<u64>,
    stamp: Option<AllocationStamp>,
    _release: Option<Release>,
}

impl AdoptedDevice {
    /// Adopts memory. Fails unless all of it is memory of device `ordinal`, to which the device has this access. `release` is
    /// called only if this succeeds.
    pub fn new(
        address: u64,
        size: u64,
        ordinal: i32,
        access: Access,
        release: Option<ReleaseCallback>,
    ) -> Result<Self> {
        ensure!(address != 0, InvalidArgument, "the address to adopt is NULL");
        ensure!(size > 0, InvalidArgument, "the size to adopt is 0 bytes; it must be at least 1");
        let DeviceRange { device, pieces, ends } =
            memory::identify(address, size, access == Access::ReadWrite)?;
        ensure!(
            device.ordinal() == ordinal,
            InvalidArgument,
            "{address:#x} is memory of device {}, not of device {ordinal}; adopt it as memory of its device",
            device.ordinal()
        );
        let stamp = AllocationStamp::from_address(address)?;
        let _release = release.map(|release| Release::new(release, address, size)).transpose()?;
        Ok(Self { address, size, ordinal, access, pieces, ends, stamp, _release })
    }

    /// Fails if it was destroyed with its context.
    fn ensure_exists(&self) -> Result<()> {
        self.stamp.as_ref().map_or(Ok(()), AllocationStamp::ensure_exists)
    }
}

impl Backing for AdoptedDevice {
    fn range(&self) -> MemoryRange {
        MemoryRange { tier: Tier::Device, address: self.address, size: self.size }
    }

    fn properties(&self) -> Properties {
        Properties { source: Source::Adopted, ..Properties::default() }
    }

    fn export(&self) -> Result<Export<'_>> {
        self.ensure_exists()?;
        let retained = vmm::retain_range(self.address, self.size)?;
        Ok(retained.map_or(Export::IpcHandle, Export::Mappings))
    }

    fn devices(&self) -> Option<DevicePair> {
        Some(DevicePair::on(self.ordinal))
    }

    fn peer_memory(&self) -> PeerMemory {
        PeerMemory::Adopted
    }

    fn add_contexts(&self, memory: &mut Contexts, _page_locks: &mut Contexts) {
        self.stamp.into_iter().for_each(|stamp| memory.add_adopted(stamp));
    }

    /// CUDA forbids freeing memory that other processes have opened by its IPC handle.
    fn waits_for_importers(&self) -> bool {
        true
    }

    fn ensure_registrable(&self) -> Result<()> {
        self.ensure_exists()?;
        ensure_one_mapping(self.pieces)
    }

    fn read_only_because(&self) -> Option<&'static str> {
        (self.access == Access::Read).then_some(ADOPTED_READ_ONLY)
    }

    fn bytes_in_piece(&self, address: u64) -> u64 {
        let next = self.ends.partition_point(|end| *end <= address);
        self.ends.get(next).map_or(u64::MAX, |end| end - address)
    }
}

/// Fails if memory is not one mapping.
pub(super) fn ensure_one_mapping(count: usize) -> Result<()> {
    ensure!(
        count == 1,
        Unsupported,
        "the region consists of {count} mappings, and NIXL can register only the first; adopt each as a region"
    );
    Ok(())
}
