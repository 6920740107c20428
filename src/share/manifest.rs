// SPDX-License-Identifier: Apache-2.0
//! The wire form of a share: what is shared, and how each region is carried. docs/share.md has it byte by byte.
//!
//! Reading checks everything that bytes can show. What they say of memory is held against the memory when it is
//! opened.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, Status, ensure, fail};
use crate::layout::{Dimensions, Geometry, LayoutKind};
use crate::process::Identity;
use crate::region::{Access, Tier};
use crate::wire::Form;

const FORM: Form = Form { magic: b"KVMEMSHR", version: 1, name: "share" };
/// The most regions of one share: a layout has one, or one a layer.
const MOST_REGIONS: usize = 1 << 16;

/// All that an importer is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The process that shares.
    pub process: Identity,
    /// What importers may do with the memory.
    pub access: Access,
    /// How many file descriptors come along.
    pub fds: u32,
    /// The memory; none where it is only reached by NIXL.
    pub regions: Vec<RegionEntry>,
    /// What is shared.
    pub object: Object,
}

/// What is shared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Object {
    /// A region, or a part of one.
    Region(Part),
    /// A layout.
    Layout(LayoutEntry),
}

/// A part of one of the regions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Which region.
    pub region: u32,
    /// Where in it the part begins.
    pub offset: u64,
    /// Its bytes.
    pub size: u64,
}

/// A layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayoutEntry {
    /// As configured.
    pub dimensions: Dimensions,
    /// As configured.
    pub kind: LayoutKind,
    /// Where it lies, one part for each of its regions; none where it is only reached by NIXL.
    pub parts: Vec<Part>,
    /// How NIXL reaches it, if an agent knows it.
    pub remote: Option<RemoteEntry>,
}

/// How NIXL reaches a layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemoteEntry {
    /// The metadata of its agent.
    #[serde(with = "serde_bytes")]
    pub metadata: Vec<u8>,
    /// Its descriptor.
    #[serde(with = "serde_bytes")]
    pub descriptor: Vec<u8>,
}

/// One region, whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionEntry {
    /// The id in its control block.
    #[serde(with = "serde_bytes")]
    pub id: [u8; 16],
    /// Which of the file descriptors is its control block.
    pub control: u32,
    /// Where it lies.
    pub tier: Tier,
    /// Its bytes.
    pub size: u64,
    /// How it is carried.
    pub carried: Carried,
}

/// How memory is carried from one process to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Carried {
    /// A memory file.
    Memory {
        /// Which of the file descriptors.
        fd: u32,
    },
    /// A file on disk.
    Disk {
        /// Which of the file descriptors.
        fd: u32,
    },
    /// The driver's IPC handle of the allocation it lies in.
    Ipc {
        /// The device's UUID.
        #[serde(with = "serde_bytes")]
        device: [u8; 16],
        /// The driver's 64 bytes.
        #[serde(with = "serde_bytes")]
        handle: [u8; 64],
        /// Bytes of the allocation.
        base_size: u64,
        /// Where in the allocation the region begins.
        offset: u64,
        /// The driver's number of the allocation.
        buffer_id: u64,
    },
    /// Memory of the driver's virtual memory management, a file descriptor an extent.
    Extents {
        /// The device's UUID.
        #[serde(with = "serde_bytes")]
        device: [u8; 16],
        /// Bytes of an extent.
        extent_size: u64,
        /// Those that have memory, in order.
        extents: Vec<Extent>,
    },
}

/// One extent that has memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extent {
    /// Which extent of the region.
    pub index: u64,
    /// Which of the file descriptors.
    pub fd: u32,
    /// Its word in the control block, when it was shared.
    pub changes: u32,
}

impl Manifest {
    /// The bytes.
    pub fn write(&self) -> Result<Vec<u8>> {
        FORM.write(self)
    }

    /// Reads what came with `fds` file descriptors. Any bytes give a manifest or an error.
    pub fn read(bytes: &[u8], fds: usize) -> Result<Self> {
        let manifest: Self = FORM.read(bytes)?;
        manifest.check(fds).map_err(|error| error.context("the share is inconsistent"))?;
        Ok(manifest)
    }

    fn check(&self, fds: usize) -> Result<()> {
        ensure!(
            self.fds as usize == fds,
            Corrupt,
            "it says that {} file descriptors come along, {fds} did",
            self.fds
        );
        ensure!(self.regions.len() <= MOST_REGIONS, Corrupt, "it has {} regions", self.regions.len());
        let mut named = 0;
        for (index, region) in self.regions.iter().enumerate() {
            region.check(&mut named).map_err(|error| error.context(format!("region {index}")))?;
        }
        ensure!(named == self.fds, Corrupt, "it names {named} of its {} file descriptors", self.fds);
        match &self.object {
            Object::Region(part) => self.check_part(part),
            Object::Layout(layout) => self.check_layout(layout),
        }
    }

    fn check_part(&self, part: &Part) -> Result<()> {
        let Some(region) = self.regions.get(part.region as usize) else {
            fail!(Corrupt, "there is no region {}, it has {}", part.region, self.regions.len());
        };
        let inside = part.offset.checked_add(part.size).is_some_and(|end| end <= region.size);
        ensure!(
            inside && part.size > 0,
            Corrupt,
            "{} bytes at {} do not fit region {} of {} bytes",
            part.size,
            part.offset,
            part.region,
            region.size
        );
        Ok(())
    }

    fn check_layout(&self, layout: &LayoutEntry) -> Result<()> {
        let geometry = Geometry::new(layout.dimensions.clone(), layout.kind)
            .map_err(|error| error.with_status(Status::Corrupt))?;
        let mapped = !self.regions.is_empty();
        ensure!(mapped || layout.remote.is_some(), Corrupt, "it has neither memory nor a way by NIXL");
        let wanted = if mapped { geometry.num_regions() } else { 0 };
        ensure!(
            layout.parts.len() == wanted,
            Corrupt,
            "the layout lies in {wanted} parts, it has {}",
            layout.parts.len()
        );
        for part in &layout.parts {
            self.check_part(part)?;
            ensure!(
                part.size == geometry.region_size(),
                Corrupt,
                "a part has {} bytes, the layout needs {}",
                part.size,
                geometry.region_size()
            );
        }
        Ok(())
    }
}

impl RegionEntry {
    /// Every file descriptor is named once, in order; `next` is the first that was not named yet.
    fn check(&self, next: &mut u32) -> Result<()> {
        let mut named = |fd: u32| {
            ensure!(fd == *next, Corrupt, "file descriptor {fd} is named, {next} is the next", next = *next);
            *next += 1;
            Ok(())
        };
        ensure!((1..=i64::MAX as u64).contains(&self.size), Corrupt, "it has {} bytes", self.size);
        named(self.control)?;
        match (&self.carried, self.tier) {
            (Carried::Memory { fd }, Tier::System | Tier::Pinned) | (Carried::Disk { fd }, Tier::Disk) => {
                named(*fd)
            }
            (Carried::Ipc { base_size, offset, .. }, Tier::Device) => {
                let inside = offset.checked_add(self.size).is_some_and(|end| end <= *base_size);
                ensure!(
                    inside,
                    Corrupt,
                    "{} bytes at {offset} do not fit an allocation of {base_size}",
                    self.size
                );
                Ok(())
            }
            (Carried::Extents { extent_size, extents, .. }, Tier::Elastic | Tier::Device) => {
                self.check_extents(*extent_size, extents)?;
                extents.iter().try_for_each(|extent| named(extent.fd))
            }
            (_, tier) => Err(Error::new(
                Status::Corrupt,
                format!("it is {} memory, which is not carried this way", tier.name()),
            )),
        }
    }

    fn check_extents(&self, extent_size: u64, extents: &[Extent]) -> Result<()> {
        ensure!(
            extent_size > 0 && self.size.is_multiple_of(extent_size),
            Corrupt,
            "{} bytes are no whole extents of {extent_size} bytes",
            self.size
        );
        let count = self.size / extent_size;
        let ascending = extents.windows(2).all(|pair| pair[0].index < pair[1].index);
        let inside = extents.last().is_none_or(|last| last.index < count);
        ensure!(ascending && inside, Corrupt, "its extents are not in order, or past the last of {count}");
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::tests::ensure_all_damage_is_found;

    /// A layout over one region of each way to carry it that has extents, with all fields in use.
    pub fn manifest() -> Manifest {
        let dimensions = Dimensions {
            num_blocks: 8,
            num_layers: 2,
            outer_dim: 2,
            page_size: 16,
            inner_dim: 32,
            dtype_width: 2,
            alignment: 1,
            num_heads: Some(4),
        };
        let extents = vec![Extent { index: 0, fd: 1, changes: 1 }, Extent { index: 3, fd: 2, changes: 5 }];
        let elastic = Carried::Extents { device: [7; 16], extent_size: 8192, extents };
        let ipc = Carried::Ipc {
            device: [8; 16],
            handle: [9; 64],
            base_size: 1 << 20,
            offset: 4096,
            buffer_id: 77,
        };
        let region =
            |control, tier, carried| RegionEntry { id: [3; 16], control, tier, size: 32768, carried };
        let part = |region| Part { region, offset: 1024, size: 16384 };
        Manifest {
            process: Identity { boot_id: "b".into(), pid: 7, start_time: 9, pid_namespace: 1 },
            access: Access::Read,
            fds: 4,
            regions: vec![region(0, Tier::Elastic, elastic), region(3, Tier::Device, ipc)],
            object: Object::Layout(LayoutEntry {
                dimensions,
                kind: LayoutKind::LayerSeparate(crate::layout::BlockDim::First),
                parts: vec![part(0), part(1)],
                remote: Some(RemoteEntry { metadata: vec![1, 2, 3], descriptor: vec![4; 8] }),
            }),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = manifest().write().unwrap();
        assert_eq!(Manifest::read(&bytes, 4).unwrap(), manifest());
        assert_eq!(Manifest::read(&bytes, 3).unwrap_err().status(), Status::Corrupt);
    }

    #[test]
    fn all_damage_is_found() {
        ensure_all_damage_is_found(&manifest().write().unwrap(), |bytes| Manifest::read(bytes, 4));
    }

    #[test]
    fn a_hostile_sender_is_found_out() {
        fn layout(manifest: &mut Manifest) -> &mut LayoutEntry {
            match &mut manifest.object {
                Object::Layout(layout) => layout,
                Object::Region(_) => unreachable!(),
            }
        }
        let hostile: [fn(&mut Manifest); 14] = [
            |m| m.fds = 5,
            |m| m.regions[0].control = 1,
            |m| m.regions[0].size = 0,
            |m| m.regions[0].size = u64::MAX,
            |m| m.regions[0].tier = Tier::Disk,
            |m| m.regions[1].size = 1 << 30,
            |m| m.regions.clear(),
            |m| {
                m.regions.truncate(1);
            },
            |m| layout(m).parts[1].offset = u64::MAX,
            |m| layout(m).parts[1].size = 1,
            |m| layout(m).parts.truncate(1),
            |m| layout(m).dimensions.num_blocks = u64::MAX,
            |m| layout(m).dimensions.num_blocks = 9,
            |m| {
                let Carried::Extents { extents, .. } = &mut m.regions[0].carried else { unreachable!() };
                extents[1].index = 4;
            },
        ];
        for (index, change) in hostile.iter().enumerate() {
            let mut changed = manifest();
            change(&mut changed);
            let error = Manifest::read(&changed.write().unwrap(), 4).unwrap_err();
            assert_eq!(error.status(), Status::Corrupt, "case {index}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_changed_byte_behind_a_true_checksum_gives_a_result_or_an_error(
            position in any::<prop::sample::Index>(), byte in any::<u8>(),
        ) {
            let mut body = Vec::new();
            ciborium::into_writer(&manifest(), &mut body).unwrap();
            let position = position.index(body.len());
            body[position] = byte;
            let _ = Manifest::read(&FORM.frame(&body).unwrap(), 4);
        }

        #[test]
        fn any_fields_behind_a_true_checksum_give_a_result_or_an_error(
            body in prop::collection::vec(any::<u8>(), 0..512), fds in 0usize..9,
        ) {
            let _ = Manifest::read(&FORM.frame(&body).unwrap(), fds);
        }
    }
}
