// SPDX-License-Identifier: Apache-2.0
//! The wire form of a layout: what a peer needs to reach its blocks. docs/layout-descriptor.md has it byte by byte.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Layout;
use super::arrangement::Arrangement;
use super::combined::ensure_ranges_separate;
use super::config::Dimensions;
use super::epochs::Epochs;
use super::geometry::Geometry;
use super::memory::{LocalMemory, Memory, RemoteMemory};
use super::part::{MAX_PARTS, ensure_parts};
use super::placement::Placement;
use super::remote_elastic::RemoteElastic;
use super::served::Served;
use crate::base::wire::Form;
use crate::base::{Error, ProcessIdentity, Result, Status, ensure, fail, lists};
use crate::nixl::{Agent, Command, Descriptor, Import, MemoryType};
use crate::region::{Backing, Region, Tier};

const FORM: Form = Form { magic: b"KVMEMLAY", versions: 4..=5, name: "layout descriptor" };
/// The version of a descriptor of a layout without parts.
const OF_ONE: u16 = 4;
/// The version of a descriptor that contains those of parts.
const OF_PARTS: u16 = 5;

#[derive(Serialize, Deserialize)]
struct Payload {
    agent: String,
    process: ProcessIdentity,
    tier: Tier,
    arrangement: Arrangement,
    dimensions: Dimensions,
    regions: Vec<Descriptor>,
    bases: Vec<u64>,
    elastic: Option<RemoteElastic>,
    /// Readers that know no services ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    served: Option<Served>,
    /// Readers that know no epochs ignore them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    epochs: Option<Descriptor>,
    /// What the metadata of this agent contains, and that of no other agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<Descriptor>,
}

#[derive(Serialize, Deserialize)]
struct Parts {
    parts: Vec<PartEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    served: Option<Served>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    epochs: Option<Descriptor>,
}

#[derive(Serialize, Deserialize)]
struct PartEntry {
    name: String,
    /// A descriptor of its own, of a layout without parts.
    #[serde(with = "serde_bytes")]
    descriptor: Vec<u8>,
}

enum Described {
    Layout(Box<Checked>),
    Parts(Vec<(String, Checked)>, OfParts),
}

/// What a layout with parts has beside them.
struct OfParts {
    served: Option<Served>,
    epochs: Option<Descriptor>,
}

/// A layout without parts, with the memory that the peer must have registered.
struct Checked {
    payload: Payload,
    placement: Placement,
    claimed: Vec<Descriptor>,
}

impl Layout {
    /// Exports the descriptor that a peer imports.
    pub fn export(&self) -> Result<Vec<u8>> {
        if self.num_parts() == 0 {
            return export(self);
        }
        let entry = |(name, part): (&str, &Arc<Self>)| {
            let descriptor = export(part).map_err(|error| error.context(format!("part '{name}'")))?;
            Ok(PartEntry { name: name.to_string(), descriptor })
        };
        let parts = self.part_layouts().map(entry).collect::<Result<_>>()?;
        let (served, epochs) = (self.served().cloned(), self.epochs().map(Epochs::descriptor));
        FORM.write(OF_PARTS, &Parts { parts, served, epochs })
    }

    /// Imports a layout from its descriptor. `agent` accesses it.
    pub fn import(agent: &Arc<Agent>, bytes: &[u8]) -> Result<Arc<Self>> {
        match read(bytes)? {
            Described::Layout(checked) => import(agent, *checked),
            Described::Parts(parts, of_parts) => {
                let import = |(name, part): (String, Checked)| {
                    let layout =
                        import(agent, part).map_err(|error| error.context(format!("part '{name}'")))?;
                    Ok((name, layout))
                };
                let layout = Self::combine(parts.into_iter().map(import).collect::<Result<_>>()?)?;
                of_parts.import(agent, &layout)?;
                Ok(layout)
            }
        }
    }

    /// Fails for a layout that cannot be exported.
    pub fn ensure_exportable(&self) -> Result<()> {
        match self.num_parts() {
            0 => exportable(self).map(drop),
            _ => self.part_layouts().try_for_each(|(name, part)| {
                exportable(part).map(drop).map_err(|error| error.context(format!("part '{name}'")))
            }),
        }
    }

    /// The process that has exported a descriptor, if the bytes are consistent.
    pub fn exporter(bytes: &[u8]) -> Option<ProcessIdentity> {
        Some(match read(bytes).ok()? {
            Described::Layout(checked) => checked.payload.process,
            Described::Parts(parts, _) => parts.into_iter().next()?.1.payload.process,
        })
    }

    /// Fails unless the bytes are a consistent descriptor. Its claims about the peer are not checked.
    pub fn check_descriptor(bytes: &[u8]) -> Result<()> {
        read(bytes).map(|_| ())
    }
}

impl OfParts {
    /// Checks its claims against the metadata that the agent has of the peer, and notes it in the layout.
    fn import(self, agent: &Arc<Agent>, layout: &Layout) -> Result<()> {
        let Self { served, epochs } = self;
        let memory = memory_of(served.as_ref(), epochs);
        let Memory::Remote(remote) = layout.memory() else { return Ok(()) };
        if !memory.is_empty() {
            let peer = remote.peer.name().to_string();
            agent.call(|reply| Command::Remote(peer, memory, reply))?;
        }
        note(layout, served, epochs)
    }
}

/// The memory of a service and of epochs, which the peer must have registered.
fn memory_of(served: Option<&Served>, epochs: Option<Descriptor>) -> Vec<Descriptor> {
    served.map(Served::descriptors).into_iter().flatten().chain(epochs).collect()
}

fn note(layout: &Layout, served: Option<Served>, epochs: Option<Descriptor>) -> Result<()> {
    served.map_or(Ok(()), |served| layout.set_served(served))?;
    epochs.map_or(Ok(()), |epochs| layout.set_epochs(Epochs::Remote(epochs)))
}

/// Serialises a layout that peers can access.
fn export(layout: &Layout) -> Result<Vec<u8>> {
    let local = exportable(layout)?;
    let identity = local.agent.as_ref().map_or(Ok(None), |agent| agent.call(Command::Identity)?);
    let identity = identity.map_err(|error| error.context("export the layout"))?;
    let payload = Payload {
        agent: layout.memory().owner().unwrap_or_default().to_string(),
        process: ProcessIdentity::current()?,
        tier: local.tier,
        arrangement: layout.geometry().arrangement(),
        dimensions: layout.geometry().dimensions().clone(),
        regions: lists::copied(&local.descriptors)?,
        bases: lists::copied(layout.placement().bases())?,
        elastic: elastic(&local.regions)?,
        served: layout.served().cloned(),
        epochs: layout.epochs().map(Epochs::descriptor),
        identity,
    };
    FORM.write(OF_ONE, &payload)
}

/// The memory of a layout that peers can access. Fails for other layouts.
fn exportable(layout: &Layout) -> Result<&LocalMemory> {
    match layout.memory() {
        Memory::Remote(_) => {
            fail!(Unsupported, "a remote layout can be exported and served only by the process that owns it")
        }
        Memory::Local(local) => {
            ensure!(
                !local.tier.is_storage(),
                Unsupported,
                "a peer cannot access a layout on tier {}; copy its blocks to a host layout",
                local.tier.name()
            );
            ensure!(
                local.agent.is_some(),
                InvalidState,
                "the layout was built without an agent, so no peer can access it; build it with an agent"
            );
            ensure!(
                local.regions.iter().all(|region| region.origin().is_none()),
                Unsupported,
                "the layout's memory belongs to another process; only that process can export it"
            );
            Ok(local)
        }
    }
}

/// The committed extents. Peers detect changes by the control block.
fn elastic(regions: &[Arc<Region>]) -> Result<Option<RemoteElastic>> {
    let (base, _) = Region::root_of(&regions[0]);
    let Some(memory) = base.elastic_memory() else { return Ok(None) };
    ensure!(
        regions.iter().all(|region| Arc::ptr_eq(Region::root_of(region).0, base)),
        Unsupported,
        "the layout uses several elastic regions, and a descriptor supports one: make its regions views of one region"
    );
    Ok(Some(RemoteElastic {
        start: memory.address(),
        extent_size: memory.extent_size(),
        committed: memory.committed_changes(),
        control: memory.control().descriptor(),
    }))
}

/// Imports a layout without parts. Its claims are checked against the metadata that the agent has of the peer.
fn import(agent: &Arc<Agent>, checked: Checked) -> Result<Arc<Layout>> {
    let Checked { payload, placement, claimed } = checked;
    let Payload {
        agent: peer, process, tier, regions: descriptors, elastic, served, epochs, identity, ..
    } = payload;
    ensure!(
        !process.is_gone(),
        PeerLost,
        "process {} of agent '{peer}', which exported the layout, has ended; if a new process has that agent name, import \
         a layout that it exports",
        process.pid
    );
    let memory = [claimed, memory_of(served.as_ref(), epochs)].concat();
    let import = Import { peer, identity, memory, process: process.clone() };
    let peer = agent.call(|reply| Command::Exporter(Box::new(import), reply))?;
    let memory = RemoteMemory { agent: agent.clone(), peer, process, descriptors, tier, elastic };
    let layout = Layout::new(placement, Memory::Remote(memory));
    note(&layout, served, epochs)?;
    Ok(layout)
}

/// Reads a descriptor. The bytes may be anything, and their claims are checked for consistency.
fn read(bytes: &[u8]) -> Result<Described> {
    if FORM.version(bytes)? < OF_PARTS {
        return Ok(Described::Layout(Box::new(read_layout(bytes)?)));
    }
    let (_, Parts { parts, served, epochs }): (_, Parts) = FORM.read(bytes)?;
    served.iter().try_for_each(Served::validate)?;
    ensure!(
        parts.len() <= MAX_PARTS,
        Corrupt,
        "the layout descriptor has {} parts; {MAX_PARTS} are the most",
        parts.len()
    );
    let read_part = |PartEntry { name, descriptor }: PartEntry| {
        ensure!(
            FORM.version(&descriptor)? < OF_PARTS,
            Corrupt,
            "a part of the layout descriptor has parts itself"
        );
        let part = read_layout(&descriptor)
            .map_err(|error| error.context(format!("part '{}'", name.escape_debug())))?;
        Ok((name, part))
    };
    let parts = parts.into_iter().map(read_part).collect::<Result<Vec<_>>>()?;
    check_parts(&parts).map_err(corrupt)?;
    let num_blocks = parts[0].1.placement.geometry().dimensions().num_blocks;
    epochs.iter().try_for_each(|epochs| Epochs::validate(epochs, num_blocks))?;
    Ok(Described::Parts(parts, OfParts { served, epochs }))
}

fn corrupt(error: Error) -> Error {
    error.context("the layout descriptor is inconsistent").with_status(Status::Corrupt)
}

/// Fails for parts that no layout can be combined from.
fn check_parts(parts: &[(String, Checked)]) -> Result<()> {
    ensure_parts(parts.iter().map(|(name, part)| (name.as_str(), part.placement.geometry())))?;
    let (_, Checked { payload: first, .. }) = &parts[0];
    for (name, Checked { payload, .. }) in parts {
        ensure!(
            payload.agent == first.agent && payload.process == first.process && payload.tier == first.tier,
            Corrupt,
            "part '{name}' belongs to another agent, process or tier than the first part"
        );
    }
    let placements: Vec<_> = parts.iter().map(|(name, part)| (name.as_str(), &part.placement)).collect();
    ensure_ranges_separate(&placements)
}

fn read_layout(bytes: &[u8]) -> Result<Checked> {
    let (_, payload): (_, Payload) = FORM.read(bytes)?;
    let (placement, claimed) = validate(&payload)?;
    Ok(Checked { payload, placement, claimed })
}

/// The addresses of the blocks, and the memory that the peer must have registered.
fn validate(payload: &Payload) -> Result<(Placement, Vec<Descriptor>)> {
    let geometry = Geometry::new(payload.dimensions.clone(), payload.arrangement).map_err(corrupt)?;
    ensure!(
        !payload.tier.is_storage(),
        Corrupt,
        "the layout descriptor is of a layout on tier {}, which no peer can access",
        payload.tier.name()
    );
    ensure!(
        payload.regions.len() == payload.bases.len(),
        Corrupt,
        "the layout descriptor has {} regions and {} bases",
        payload.regions.len(),
        payload.bases.len()
    );
    let placement = Placement::new(geometry, payload.bases.clone()).map_err(corrupt)?;
    placement.ensure_separate().map_err(corrupt)?;
    let size = placement.geometry().region_size();
    for (index, (region, base)) in payload.regions.iter().zip(placement.bases()).enumerate() {
        ensure!(
            region.memory_type == payload.tier.memory_type(),
            Corrupt,
            "region {index} of the layout descriptor is {} memory",
            region.memory_type.name()
        );
        let inside = region.address <= *base
            && region.address.checked_add(region.size).is_some_and(|end| base + size <= end);
        ensure!(
            inside,
            Corrupt,
            "blocks of the layout descriptor at {base:#x} of {size} bytes are outside region {index} at {:#x} of {} bytes",
            region.address,
            region.size
        );
    }
    ensure!(
        payload.elastic.is_some() == (payload.tier == Tier::Elastic),
        Corrupt,
        "the layout descriptor is of {} memory; it must contain extents if the memory is elastic, and none otherwise",
        payload.tier.name()
    );
    payload.served.iter().try_for_each(Served::validate)?;
    let num_blocks = payload.dimensions.num_blocks;
    payload.epochs.iter().try_for_each(|epochs| Epochs::validate(epochs, num_blocks))?;
    ensure!(
        payload.identity.is_none_or(|identity| identity.memory_type == MemoryType::Dram),
        Corrupt,
        "the identity in the layout descriptor is not in host memory"
    );
    let claimed = match &payload.elastic {
        Some(elastic) => elastic.validate(&placement, payload.regions[0].device_id)?,
        None => payload.regions.clone(),
    };
    Ok((placement, claimed))
}

#[cfg(test)]
pub(super) mod tests;
