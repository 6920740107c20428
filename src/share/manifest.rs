// SPDX-License-Identifier: Apache-2.0
//! The wire form of a share: the shared object, and the memory handle of each region. docs/share-manifest.md specifies the
//! bytes.
//!
//! Reading checks everything that the bytes alone can show. Their claims about memory are checked when it is opened.

use serde::{Deserialize, Serialize};

use super::Transport;
use super::memory_handle::MemoryHandle;
use crate::base::wire::Form;
use crate::base::{ProcessIdentity, Result, Status, ensure, fail};
use crate::layout::{Arrangement, Dimensions, Geometry, MAX_PARTS, ensure_parts};
use crate::region::{Access, EpochTable, Tier};

const VERSION: u16 = 6;
const FORM: Form = Form { magic: b"KVMEMSHR", versions: VERSION..=VERSION, name: "share" };
/// The maximum number of regions of a share: a layout has one region, or one per layer, outer slot or head.
const MAX_REGIONS: usize = 1 << 16;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub process: ProcessIdentity,
    pub access: Access,
    pub fds: u32,
    /// The memory; none if only NIXL can access it.
    pub regions: Vec<RegionEntry>,
    pub object: Object,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Object {
    /// A region, or a part of one.
    Region(RegionPart),
    Layout(LayoutEntry),
    Parts(PartsEntry),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionPart {
    /// Which region.
    pub region: u32,
    /// The offset of the part.
    pub offset: u64,
    pub size: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayoutEntry {
    pub dimensions: Dimensions,
    pub arrangement: Arrangement,
    /// The parts of the regions that it occupies, one per region of the layout; none if only NIXL can access it.
    pub parts: Vec<RegionPart>,
    /// The data that NIXL needs to access it, if it is registered with an agent.
    pub remote: Option<RemoteEntry>,
    /// The table of its epochs, if it has some and the memory is carried. Readers that know no epochs ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<RegionPart>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartsEntry {
    /// Each with its name. They have no data for NIXL of their own.
    pub parts: Vec<(String, LayoutEntry)>,
    /// The data that NIXL needs to access all parts, if they are registered with an agent.
    pub remote: Option<RemoteEntry>,
    /// As in a layout. Parts have no epochs of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<RegionPart>,
}

/// A shared layout, whether or not it was combined from parts.
pub struct SharedLayout<'a> {
    /// A single one without a name if it was not combined.
    pub parts: Vec<(&'a str, &'a LayoutEntry)>,
    /// The data that NIXL needs to access it.
    pub remote: Option<&'a RemoteEntry>,
    /// The table of its epochs.
    pub epochs: Option<&'a RegionPart>,
}

/// The data that NIXL needs to access a layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemoteEntry {
    #[serde(with = "serde_bytes")]
    pub metadata: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub descriptor: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionEntry {
    /// The id in its control block.
    #[serde(with = "serde_bytes")]
    pub id: [u8; 16],
    /// The index of the file descriptor of its control block.
    pub control: u32,
    pub tier: Tier,
    pub size: u64,
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

    pub fn write(&self) -> Result<Vec<u8>> {
        FORM.write(VERSION, self)
    }

    /// Reads a manifest that was received with `fds` file descriptors. Returns a manifest or an error for any bytes.
    pub fn read(bytes: &[u8], fds: usize) -> Result<Self> {
        let (_, manifest): (_, Self) = FORM.read(bytes)?;
        manifest.check(fds).map_err(|error| error.context("the share is inconsistent"))?;
        Ok(manifest)
    }

    fn check(&self, fds: usize) -> Result<()> {
        ensure!(
            self.fds as usize == fds,
            Corrupt,
            "it announces {} file descriptors, and was received with {fds}",
            self.fds
        );
        ensure!(self.regions.len() <= MAX_REGIONS, Corrupt, "it has {} regions", self.regions.len());
        let mut named = 0;
        for (index, region) in self.regions.iter().enumerate() {
            region.check(&mut named).map_err(|error| error.context(format!("region {index}")))?;
        }
        ensure!(named == self.fds, Corrupt, "it uses {named} of its {} file descriptors", self.fds);
        match &self.object {
            Object::Region(part) => self.check_part(part),
            Object::Layout(layout) => {
                let geometry = self.check_layout(layout, layout.remote.is_some())?;
                self.check_epochs(layout.epochs.as_ref(), geometry.dimensions().num_blocks)
            }
            Object::Parts(layout) => self.check_parts(layout),
        }
    }

    fn check_epochs(&self, epochs: Option<&RegionPart>, num_blocks: u64) -> Result<()> {
        let Some(part) = epochs else { return Ok(()) };
        self.check_part(part)?;
        let tier = self.regions[part.region as usize].tier;
        ensure!(
            part.size == EpochTable::size(num_blocks)
                && part.offset.is_multiple_of(8)
                && matches!(tier, Tier::System | Tier::Pinned),
            Corrupt,
            "its epochs are {} bytes at offset {} of {} memory; {num_blocks} blocks have {} bytes of host memory",
            part.size,
            part.offset,
            tier.name(),
            EpochTable::size(num_blocks)
        );
        Ok(())
    }

    fn check_parts(&self, PartsEntry { parts, remote, epochs }: &PartsEntry) -> Result<()> {
        ensure!(parts.len() <= MAX_PARTS, Corrupt, "it has {} parts", parts.len());
        let check = |(name, part): &(String, LayoutEntry)| {
            ensure!(
                part.remote.is_none() && part.epochs.is_none(),
                Corrupt,
                "a part has NIXL metadata or epochs of its own"
            );
            let checked = self.check_layout(part, remote.is_some());
            checked.map_err(|error| error.context(format!("part '{}'", name.escape_debug())))
        };
        let geometries = parts.iter().map(check).collect::<Result<Vec<_>>>()?;
        ensure_parts(parts.iter().map(|(name, _)| name.as_str()).zip(&geometries))
            .map_err(|error| error.with_status(Status::Corrupt))?;
        self.check_epochs(epochs.as_ref(), geometries[0].dimensions().num_blocks)
    }

    fn check_part(&self, part: &RegionPart) -> Result<()> {
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

    fn check_layout(&self, layout: &LayoutEntry, has_remote: bool) -> Result<Geometry> {
        let geometry = Geometry::new(layout.dimensions.clone(), layout.arrangement)
            .map_err(|error| error.with_status(Status::Corrupt))?;
        let mapped = !self.regions.is_empty();
        ensure!(mapped || has_remote, Corrupt, "it contains neither memory handles nor NIXL metadata");
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
        Ok(geometry)
    }
}

impl Object {
    /// The layout, if it is one.
    pub fn layout(&self) -> Option<SharedLayout<'_>> {
        match self {
            Self::Region(_) => None,
            Self::Layout(layout) => {
                let (remote, epochs) = (layout.remote.as_ref(), layout.epochs.as_ref());
                Some(SharedLayout { parts: vec![("", layout)], remote, epochs })
            }
            Self::Parts(PartsEntry { parts, remote, epochs }) => Some(SharedLayout {
                parts: parts.iter().map(|(name, part)| (name.as_str(), part)).collect(),
                remote: remote.as_ref(),
                epochs: epochs.as_ref(),
            }),
        }
    }

    /// The same without the data that NIXL needs.
    pub fn without_remote(&self) -> Self {
        match self.clone() {
            Self::Layout(layout) => Self::Layout(LayoutEntry { remote: None, ..layout }),
            Self::Parts(layout) => Self::Parts(PartsEntry { remote: None, ..layout }),
            region => region,
        }
    }
}

impl SharedLayout<'_> {
    /// Whether the share contains memory handles of its memory.
    pub fn is_carried(&self) -> bool {
        self.parts.iter().all(|(_, part)| !part.parts.is_empty())
    }

    /// The largest alignment of a part.
    pub fn alignment(&self) -> u64 {
        self.parts.iter().map(|(_, part)| part.dimensions.alignment).max().unwrap_or(1)
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
pub(super) mod tests;
