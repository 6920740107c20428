// SPDX-License-Identifier: Apache-2.0
//! Narrowing a share to read-only access: the same memory as in the share, without extents that were committed later.

use std::os::fd::OwnedFd;

use rustix::fs::OFlags;

use super::manifest::{Manifest, Object};
use super::memory_handle::{MemoryHandle, SharedHandle};
use super::{Parcel, Share};
use crate::base::{Result, ensure, fail};
use crate::region::{Access, Region, reopened};

impl Share {
    /// The bytes and file descriptors for a process with read-only access. They are valid only as long as this share exists.
    /// Fails with UNSUPPORTED for a share of another process, which alone can narrow it.
    pub fn read_only(&self) -> Result<Parcel> {
        let Some(kept) = &self.kept else {
            fail!(
                Unsupported,
                "the share belongs to another process; only that process can share it read-only"
            );
        };
        let mut fds = Vec::with_capacity(self.parcel.fds.len());
        for (entry, root) in self.manifest.regions.iter().zip(&kept.roots) {
            fds.push(self.fd(entry.control)?);
            self.narrow(&entry.carried, &root.region, &mut fds)?;
        }
        let manifest = Manifest {
            access: Access::Read,
            object: without_remote(&self.manifest.object)?,
            ..self.manifest.clone()
        };
        Ok(Parcel { bytes: manifest.write()?, fds })
    }

    /// Adds the file descriptors of one region, in the order in which the manifest names them.
    fn narrow(&self, carried: &MemoryHandle, region: &Region, fds: &mut Vec<OwnedFd>) -> Result<()> {
        match carried {
            MemoryHandle::Memory { fd, .. } => fds.push(reopened(self.borrowed(*fd)?, OFlags::RDONLY)?),
            MemoryHandle::Disk { .. } => match region.file() {
                Some(file) => fds.push(file.for_sharing(false)?),
                None => fail!(Panic, "a share of a file has no disk region"),
            },
            MemoryHandle::Extents { extents, .. } => {
                for extent in extents {
                    fds.push(self.fd(extent.fd)?);
                }
            }
            MemoryHandle::Mappings { mappings, .. } => {
                for mapping in mappings {
                    if let SharedHandle::Fd(fd) = mapping.handle {
                        fds.push(self.fd(fd)?);
                    }
                }
            }
            MemoryHandle::Ipc { .. } | MemoryHandle::Fabric { .. } => {}
        }
        Ok(())
    }
}

/// NIXL has no read-only access: a process that has the metadata may write.
fn without_remote(object: &Object) -> Result<Object> {
    let Some(layout) = object.layout() else { return Ok(object.clone()) };
    ensure!(
        layout.is_carried(),
        InvalidState,
        "only NIXL can access the layout, and NIXL has no read-only access"
    );
    Ok(object.without_remote())
}
