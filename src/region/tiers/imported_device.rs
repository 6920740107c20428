// SPDX-License-Identifier: Apache-2.0
//! A part of an allocation of another process, opened by its legacy IPC handle.

use std::sync::Arc;

use crate::base::{Result, ensure};
use crate::cuda::ipc::{DevicePair, InUse, IpcHandle, IpcMapping};
use crate::cuda::not_started;
use crate::region::{
    Backing, Contexts, Export, MemoryRange, OpenRequirements, PeerMemory, Properties, Source, Tier,
};

/// The memory of another process to open.
#[derive(Clone, Debug)]
pub struct IpcConfig {
    /// The device that it is located on, and the device that will use it, in the order of CUDA_VISIBLE_DEVICES here.
    pub place: DevicePair,
    pub handle: IpcHandle,
    /// Its offset in the allocation.
    pub offset: u64,
    pub size: u64,
    /// The size of the allocation in bytes, if the exporter reported it.
    pub base_size: Option<u64>,
    /// The exporter's number for the allocation, if the exporter reported it.
    pub buffer_id: Option<u64>,
}

/// A part of an allocation, which is open as long as any part of it is in use.
pub struct ImportedDevice {
    mapping: Arc<IpcMapping>,
    address: u64,
    size: u64,
}

impl ImportedDevice {
    /// Opens memory of another process, which keeps it as long as `in_use` exists.
    pub fn open(config: &IpcConfig, in_use: Option<InUse>) -> Result<Self> {
        ensure!(config.size > 0, InvalidArgument, "size is 0 bytes; it must be at least 1");
        let mapping = IpcMapping::open(config.place, &config.handle, config.buffer_id, in_use)?;
        config.base_size.map_or(Ok(()), |size| mapping.check_size(size))?;
        let address = mapping.part(config.offset, config.size)?;
        Ok(Self { mapping, address, size: config.size })
    }
}

impl Backing for ImportedDevice {
    fn range(&self) -> MemoryRange {
        MemoryRange { tier: Tier::Device, address: self.address, size: self.size }
    }

    fn properties(&self) -> Properties {
        Properties { source: Source::Imported, ..Properties::default() }
    }

    fn export(&self) -> Result<Export<'_>> {
        self.ensure_registrable()?;
        Ok(Export::IpcHandle)
    }

    fn devices(&self) -> Option<DevicePair> {
        Some(self.mapping.place())
    }

    fn peer_memory(&self) -> PeerMemory {
        PeerMemory::Opened
    }

    fn add_contexts(&self, memory: &mut Contexts, _page_locks: &mut Contexts) {
        memory.add(self.mapping.identity());
    }

    /// It is mapped for one device. The driver chooses its address, and would choose no better one a second time.
    fn satisfies(&self, wanted: &OpenRequirements) -> bool {
        let DevicePair { owner, user } = self.mapping.place();
        user == wanted.users.device().unwrap_or(owner)
    }

    fn waits_for_importers(&self) -> bool {
        true
    }

    /// Fails if it was destroyed with its context.
    fn ensure_registrable(&self) -> Result<()> {
        self.mapping.identity().ensure_alive().map_err(not_started)
    }
}
