// SPDX-License-Identifier: Apache-2.0
//! Opening the memory of a share, and checking it against the manifest.

use std::sync::Arc;

use super::import::not_as_described;
use super::manifest::RegionEntry;
use super::memory_handle::{Extent, FabricExtent, MemoryHandle, SharedHandle, SharedMapping};
use super::{OpenOptions, Share};
use crate::base::{Cause, Error, ProcessIdentity, Result, Status, ensure};
use crate::cuda::vmm::Shareable;
use crate::cuda::{Device, DevicePair};
use crate::region::{
    Access, Backing, Control, DiskFile, ElasticMemory, ImportedDevice, ImportedExtent, ImportedMapping,
    ImportedShape, IpcConfig, MappedDevice, MappedPart, OpenRequirements, PinnedMemory, SharedPart,
    SystemMemory,
};

impl Share {
    pub(super) fn open_backing(
        &self,
        entry: &RegionEntry,
        wanted: &OpenRequirements,
        opening: &OpenOptions,
        control: &Arc<Control>,
    ) -> Result<Arc<dyn Backing>> {
        let (writable, alignment) = (wanted.access == Access::ReadWrite, wanted.alignment);
        match &entry.carried {
            MemoryHandle::Memory { fd, offset } => {
                let (offset, trusts_owner) = (*offset, opening.trust_owner);
                let shared = SharedPart { offset, size: entry.size, alignment, writable, trusts_owner };
                let memory = SystemMemory::open(self.fd(*fd)?, &shared)?;
                match opening.pin {
                    Some(ordinal) => Ok(Arc::new(PinnedMemory::lock(memory, ordinal, writable)?)),
                    None => Ok(Arc::new(memory)),
                }
            }
            MemoryHandle::Disk { fd } => Ok(Arc::new(DiskFile::shared(self.fd(*fd)?, entry.size, writable)?)),
            MemoryHandle::Ipc { device, handle, base_size, offset, buffer_id } => {
                self.ensure_kept(control)?;
                let owner = reached(device, opening)?;
                let config = IpcConfig {
                    place: DevicePair { owner, user: opening.users.device().unwrap_or(owner) },
                    handle: *handle,
                    offset: *offset,
                    size: entry.size,
                    base_size: Some(*base_size),
                    buffer_id: Some(*buffer_id),
                };
                let memory = ImportedDevice::open(&config, Some(control.clone()))
                    .map_err(|error| self.refused_handle(error))?;
                Ok(Arc::new(memory))
            }
            MemoryHandle::Extents { device, extent_size, extents } => {
                let (ordinal, extent_size) = (reached(device, opening)?, *extent_size);
                let shape = ImportedShape { size: entry.size, extent_size, alignment };
                let imported = self.extents(extents)?;
                let devices = (ordinal, opening.users);
                let memory = ElasticMemory::import(devices, shape, imported, control.clone(), writable);
                Ok(Arc::new(memory.map_err(not_as_described)?))
            }
            MemoryHandle::Fabric { device, extent_size, extents } => {
                self.ensure_kept(control)?;
                let (ordinal, extent_size) = (reached(device, opening)?, *extent_size);
                let shape = ImportedShape { size: entry.size, extent_size, alignment };
                let imported = extents.iter().map(by_fabric).collect();
                let devices = (ordinal, opening.users);
                let memory = ElasticMemory::import(devices, shape, imported, control.clone(), writable);
                // The driver may reuse the bytes of a handle. The handle has opened the shared memory if that still exists now.
                ensure_extents_kept(control, extents)?;
                self.ensure_kept(control)?;
                Ok(Arc::new(memory.map_err(not_as_described)?))
            }
            MemoryHandle::Mappings { device, offset, mappings } => {
                let ordinal = reached(device, opening)?;
                let imported = self.mappings(mappings)?;
                let devices = (ordinal, opening.users);
                let part = MappedPart { offset: *offset, size: entry.size, alignment };
                let memory = MappedDevice::import(devices, part, &imported, writable);
                if imported.iter().any(|each| matches!(each.memory, Shareable::Fabric(_))) {
                    self.ensure_kept(control)?;
                }
                Ok(Arc::new(memory.map_err(not_as_described)?))
            }
        }
    }

    fn extents(&self, extents: &[Extent]) -> Result<Vec<ImportedExtent<'_>>> {
        let each = |extent: &Extent| {
            let memory = Shareable::Fd(self.borrowed(extent.fd)?);
            Ok(ImportedExtent { index: extent.index as usize, memory, changes: extent.changes })
        };
        extents.iter().map(each).collect()
    }

    fn mappings<'a>(&'a self, mappings: &'a [SharedMapping]) -> Result<Vec<ImportedMapping<'a>>> {
        let mut imported = Vec::with_capacity(mappings.len());
        for SharedMapping { size, handle } in mappings {
            let memory = match handle {
                SharedHandle::Fd(fd) => Shareable::Fd(self.borrowed(*fd)?),
                SharedHandle::Fabric(handle) => Shareable::Fabric(handle),
            };
            imported.push(ImportedMapping { size: *size, memory });
        }
        Ok(imported)
    }

    /// Adds the cause of a failed open: a handle of another PID namespace may be valid there.
    fn refused_handle(&self, error: Error) -> Error {
        let owner = &self.manifest.process;
        let by_driver =
            error.status() == Status::InvalidArgument && matches!(error.cause(), Some(Cause::Cuda(..)));
        let Ok(own) = ProcessIdentity::current() else { return not_as_described(error) };
        if !by_driver || own.counts_like(owner) {
            return not_as_described(error);
        }
        error
            .context(format!(
                "the handle was exported by process {} in PID namespace {}, this is process {} in namespace {}, and the driver \
                 finds the memory of a handle by its process: run both in one PID namespace, or share elastic memory, which \
                 is passed by file descriptors",
                owner.pid, owner.pid_namespace, own.pid, own.pid_namespace
            ))
            .with_status(Status::Unsupported)
    }

    /// Fails if the owner has destroyed the memory of a handle that does not keep it.
    fn ensure_kept(&self, control: &Control) -> Result<()> {
        ensure!(
            !control.owner_is_gone() && !self.manifest.process.is_gone(),
            PeerLost,
            "process {}, which shared device memory, has freed it or has ended, so its handle is invalid",
            self.manifest.process.pid
        );
        Ok(())
    }
}

fn by_fabric(extent: &FabricExtent) -> ImportedExtent<'_> {
    let memory = Shareable::Fabric(&extent.handle);
    ImportedExtent { index: extent.index as usize, memory, changes: extent.changes }
}

fn ensure_extents_kept(control: &Control, extents: &[FabricExtent]) -> Result<()> {
    let is_kept = |extent: &FabricExtent| control.extent(extent.index as usize) == extent.changes;
    ensure!(
        extents.iter().all(is_kept),
        Stale,
        "the owner has decommitted extents since it shared them, so their fabric handles are invalid; have it share them \
         again"
    );
    Ok(())
}

/// The device that memory is located on. The device that it is opened for must be able to access it.
fn reached(uuid: &[u8; 16], opening: &OpenOptions) -> Result<i32> {
    let owner = Device::by_uuid(uuid)?;
    if let Some(user) = opening.users.device() {
        ensure!(
            Device::get(user)?.can_access(&owner)?,
            Unsupported,
            "memory of device {} cannot be opened for device {user}: device {user} cannot access it",
            owner.ordinal()
        );
    }
    Ok(owner.ordinal())
}
