// SPDX-License-Identifier: Apache-2.0
//! The wire form of a share: what is shared, and the memory handle of each region. docs/share-manifest.md specifies the
//! bytes.
//!
//! Reading checks everything that the bytes alone can show. Their claims about memory are checked when it is opened.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

use super::Transport;
use super::memory_handle::MemoryHandle;
use crate::error::{Result, Status, ensure, fail};
use crate::layout::{Dimensions, Geometry, LayoutKind};
use crate::process::ProcessIdentity;
use crate::region::{Access, Tier};
use crate::wire::Form;

const FORM: Form = Form { magic: b"KVMEMSHR", versions: 1..=4, name: "share" };
/// The maximum number of regions of a share: a layout has one region, or one per layer, outer slot or head.
const MOST_REGIONS: usize = 1 << 16;

/// The content of a share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The process that created the share.
    pub process: ProcessIdentity,
    /// What importers may do with the memory.
    pub access: Access,
    /// The number of file descriptors.
    pub fds: u32,
    /// The memory; none if only NIXL can access it.
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
    /// The offset of the part.
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
    /// The parts of the regions that it occupies, one per region of the layout; none if only NIXL can access it.
    pub parts: Vec<Part>,
    /// What NIXL needs to access it, if it is registered with an agent.
    pub remote: Option<RemoteEntry>,
}

/// What NIXL needs to access a layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemoteEntry {
    /// The metadata of its agent.
    #[serde(with = "serde_bytes")]
    pub metadata: Vec<u8>,
    /// Its descriptor.
    #[serde(with = "serde_bytes")]
    pub descriptor: Vec<u8>,
}

/// A region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionEntry {
    /// The id in its control block.
    #[serde(with = "serde_bytes")]
    pub id: [u8; 16],
    /// The index of the file descriptor of its control block.
    pub control: u32,
    /// The tier that it is located on.
    pub tier: Tier,
    /// Its bytes.
    pub size: u64,
    /// The handle of its memory.
    pub carried: MemoryHandle,
}

impl Manifest {
    /// How the memory is passed: the transport that [`Transport::Auto`] was resolved to, or `Auto` itself if the regions of a
    /// layout use several.
    pub fn way(&self) -> Transport {
        let mut ways = self.regions.iter().map(|region| region.carried.way());
        let first = ways.next().unwrap_or(Transport::Remote);
        if ways.all(|way| way == first) { first } else { Transport::Auto }
    }

    /// The bytes, in the oldest version that can represent the share, so that old importers can read it.
    pub fn write(&self) -> Result<Vec<u8>> {
        FORM.write(self.version(), self)
    }

    fn version(&self) -> u16 {
        let of_object = match &self.object {
            Object::Layout(LayoutEntry { kind: LayoutKind::Ordered(_), .. }) => 4,
            _ => 1,
        };
        self.regions.iter().map(|region| region.carried.version()).fold(of_object, u16::max)
    }

    /// Reads a manifest that was received with `fds` file descriptors. Returns a manifest or an error for any bytes.
    pub fn read(bytes: &[u8], fds: usize) -> Result<Self> {
        let (version, manifest): (u16, Self) = FORM.read(bytes)?;
        manifest.check(version, fds).map_err(|error| error.context("the share is inconsistent"))?;
        Ok(manifest)
    }

    fn check(&self, version: u16, fds: usize) -> Result<()> {
        ensure!(
            self.version() <= version,
            Corrupt,
            "it has version {version}, and contains a memory handle or an order of version {}",
            self.version()
        );
        ensure!(
            self.fds as usize == fds,
            Corrupt,
            "it announces {} file descriptors, and was received with {fds}",
            self.fds
        );
        ensure!(self.regions.len() <= MOST_REGIONS, Corrupt, "it has {} regions", self.regions.len());
        let mut named = 0;
        for (index, region) in self.regions.iter().enumerate() {
            region.check(&mut named).map_err(|error| error.context(format!("region {index}")))?;
        }
        ensure!(named == self.fds, Corrupt, "it uses {named} of its {} file descriptors", self.fds);
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
            "{} bytes at offset {} exceed region {} of {} bytes",
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
        ensure!(
            mapped || layout.remote.is_some(),
            Corrupt,
            "it contains neither memory handles nor NIXL metadata"
        );
        let wanted = if mapped { geometry.num_regions() } else { 0 };
        ensure!(
            layout.parts.len() == wanted,
            Corrupt,
            "the layout needs {wanted} parts, it has {}",
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
    /// Every file descriptor must be used once, in order; `next` is the first that was not used yet.
    fn check(&self, next: &mut u32) -> Result<()> {
        let mut named = |fd: u32| {
            ensure!(fd == *next, Corrupt, "file descriptor {fd} is used, expected {next}", next = *next);
            *next += 1;
            Ok(())
        };
        ensure!((1..=i64::MAX as u64).contains(&self.size), Corrupt, "it has {} bytes", self.size);
        named(self.control)?;
        self.carried.check(self.tier, self.size, named)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::super::memory_handle::{Extent, FabricExtent, SharedHandle, SharedMapping};
    use super::*;
    use crate::layout::{Arrangement, Axis, Order, Strides};
    use crate::wire::tests::{ensure_all_damage_is_found, of_version};

    /// A layout over one region of each way to carry it that has extents, with all fields in use.
    pub fn manifest() -> Manifest {
        let dimensions =
            Dimensions { num_blocks: 8, inner_dim: 32, num_heads: Some(4), ..Dimensions::small() };
        let extents = vec![Extent { index: 0, fd: 1, changes: 1 }, Extent { index: 3, fd: 2, changes: 5 }];
        let elastic = MemoryHandle::Extents { device: [7; 16], extent_size: 8192, extents };
        let ipc = MemoryHandle::Ipc {
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
            process: ProcessIdentity::sample(),
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

    /// The same regions carried as from version 2 on.
    pub fn newer() -> Manifest {
        let extents = vec![
            FabricExtent { index: 0, handle: [5; 64], changes: 1 },
            FabricExtent { index: 3, handle: [6; 64], changes: 5 },
        ];
        let mapping = |size, handle| SharedMapping { size, handle };
        let mappings = vec![
            mapping(8192, SharedHandle::Fd(2)),
            mapping(16384, SharedHandle::Fabric([4; 64])),
            mapping(16384, SharedHandle::Fd(3)),
        ];
        let mut manifest = manifest();
        manifest.regions[0].carried = MemoryHandle::Fabric { device: [7; 16], extent_size: 8192, extents };
        manifest.regions[1].control = 1;
        manifest.regions[1].carried = MemoryHandle::Mappings { device: [8; 16], offset: 4096, mappings };
        manifest
    }

    /// A part of a memory file.
    fn newest() -> Manifest {
        let mut manifest = manifest();
        manifest.regions.truncate(1);
        manifest.regions[0].tier = Tier::System;
        manifest.regions[0].carried = MemoryHandle::Memory { fd: 1, offset: 4096 };
        manifest.fds = 2;
        manifest.object = Object::Region(Part { region: 0, offset: 0, size: 32768 });
        manifest
    }

    /// A layout with an order.
    fn ordered() -> Manifest {
        let mut manifest = manifest();
        let order = Order::parse("L/BOHNC").unwrap();
        layout(&mut manifest).kind = LayoutKind::Ordered(Arrangement::tight(order));
        manifest
    }

    fn layout(manifest: &mut Manifest) -> &mut LayoutEntry {
        match &mut manifest.object {
            Object::Layout(layout) => layout,
            Object::Region(_) => unreachable!(),
        }
    }

    #[test]
    fn only_version_4_has_an_order() {
        let bytes = ordered().write().unwrap();
        assert_eq!(bytes[8], 4);
        assert_eq!(Manifest::read(&bytes, 4).unwrap(), ordered());
        let older = Manifest::read(&of_version(&bytes, 3), 4).unwrap_err();
        assert_eq!(older.status(), Status::Corrupt, "{older}");
        for axis in Axis::ALL {
            for stride in [1, 24, 1 << 40, 1 << 62, u64::MAX] {
                let mut hostile = ordered();
                let LayoutKind::Ordered(arrangement) = &mut layout(&mut hostile).kind else { unreachable!() };
                arrangement.strides = Strides::default().with(axis, stride);
                let error = Manifest::read(&hostile.write().unwrap(), 4).unwrap_err();
                assert_eq!(error.status(), Status::Corrupt, "{axis:?} {stride}: {error}");
            }
        }
    }

    #[test]
    fn only_version_3_has_a_part_of_a_memory_file() {
        let bytes = newest().write().unwrap();
        assert_eq!(bytes[8], 3);
        assert_eq!(Manifest::read(&bytes, 2).unwrap(), newest());
        let older = Manifest::read(&of_version(&bytes, 2), 2).unwrap_err();
        assert_eq!(older.status(), Status::Corrupt, "{older}");
        let with_offset = |offset| {
            let mut changed = newest();
            changed.regions[0].carried = MemoryHandle::Memory { fd: 1, offset };
            changed
        };
        assert_eq!(with_offset(0).write().unwrap()[8], 1);
        let past_the_end = with_offset(i64::MAX as u64).write().unwrap();
        assert_eq!(Manifest::read(&past_the_end, 2).unwrap_err().status(), Status::Corrupt);
    }

    #[test]
    fn the_oldest_version_that_has_it_is_written() {
        assert_eq!(manifest().write().unwrap()[8], 1);
        let bytes = newer().write().unwrap();
        assert_eq!(bytes[8], 2);
        assert_eq!(Manifest::read(&bytes, 4).unwrap(), newer());
        let older = Manifest::read(&of_version(&bytes, 1), 4).unwrap_err();
        assert_eq!(older.status(), Status::Corrupt, "{older}");
        assert_eq!(Manifest::read(&of_version(&manifest().write().unwrap(), 2), 4).unwrap(), manifest());
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = manifest().write().unwrap();
        assert_eq!(Manifest::read(&bytes, 4).unwrap(), manifest());
        assert_eq!(Manifest::read(&bytes, 3).unwrap_err().status(), Status::Corrupt);
    }

    #[test]
    fn all_damage_is_found() {
        for manifest in [manifest(), newer(), newest(), ordered()] {
            let fds = manifest.fds as usize;
            ensure_all_damage_is_found(&manifest.write().unwrap(), |bytes| Manifest::read(bytes, fds));
        }
    }

    #[test]
    fn a_hostile_sender_is_found_out() {
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
                let MemoryHandle::Extents { extents, .. } = &mut m.regions[0].carried else { unreachable!() };
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

    #[test]
    fn a_hostile_sender_of_version_2_is_found_out() {
        fn mappings(manifest: &mut Manifest) -> (&mut u64, &mut Vec<SharedMapping>) {
            match &mut manifest.regions[1].carried {
                MemoryHandle::Mappings { offset, mappings, .. } => (offset, mappings),
                _ => unreachable!(),
            }
        }
        let hostile: [fn(&mut Manifest); 11] = [
            |m| m.regions[0].tier = Tier::Device,
            |m| m.regions[1].tier = Tier::Elastic,
            |m| *mappings(m).0 = 8192,
            |m| *mappings(m).0 = u64::MAX,
            |m| mappings(m).1.clear(),
            |m| mappings(m).1[1].size = 0,
            |m| mappings(m).1[1].size = u64::MAX,
            |m| mappings(m).1[2].handle = SharedHandle::Fd(2),
            |m| mappings(m).1.truncate(2),
            |m| m.regions[1].size = 20480,
            |m| {
                let MemoryHandle::Fabric { extents, .. } = &mut m.regions[0].carried else { unreachable!() };
                extents[1].index = 0;
            },
        ];
        for (index, change) in hostile.iter().enumerate() {
            let mut changed = newer();
            change(&mut changed);
            let error = Manifest::read(&changed.write().unwrap(), 4).unwrap_err();
            assert_eq!(error.status(), Status::Corrupt, "case {index}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_changed_byte_behind_a_true_checksum_gives_a_result_or_an_error(
            position in any::<prop::sample::Index>(), byte in any::<u8>(), is_newer in any::<bool>(),
        ) {
            let mut body = Vec::new();
            let whole = if is_newer { newer() } else { manifest() };
            ciborium::into_writer(&whole, &mut body).unwrap();
            let position = position.index(body.len());
            body[position] = byte;
            let _ = Manifest::read(&FORM.frame(2, &body).unwrap(), 4);
        }

        #[test]
        fn any_fields_behind_a_true_checksum_give_a_result_or_an_error(
            body in prop::collection::vec(any::<u8>(), 0..512), fds in 0usize..9,
        ) {
            let _ = Manifest::read(&FORM.frame(2, &body).unwrap(), fds);
        }
    }
}
