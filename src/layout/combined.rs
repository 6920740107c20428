// SPDX-License-Identifier: Apache-2.0
//! Layouts that are combined from parts. The parts keep their memory, and register, commit and free it themselves.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::geometry::Geometry;
use super::memory::{LocalMemory, Memory, RemoteMemory};
use super::part::ensure_parts;
use super::placement::Placement;
use super::separate::{Steps, share_elements};
use super::{Layout, NamedPart};
use crate::base::sorting::sort_few_by;
use crate::base::{Result, ensure, log};
use crate::nixl::Agent;
use crate::region::{Meeting, Region, meetings, meetings_of_ranges};

/// A layout, and its name as a part.
pub type Named = (String, Arc<Layout>);

impl Layout {
    /// Combines layouts with the same block ids to one. The order of the parts does not matter.
    pub fn combine(mut parts: Vec<Named>) -> Result<Arc<Self>> {
        for (name, layout) in &parts {
            ensure!(
                layout.parts.is_empty(),
                InvalidArgument,
                "part '{}' was combined from parts itself; combine its parts, which kvmem_layout_get_part returns",
                name.escape_debug()
            );
        }
        ensure_parts(parts.iter().map(|(name, layout)| (name.as_str(), layout.geometry())))?;
        sort_few_by(&mut parts, |(one, _), (other, _)| one.cmp(other));
        ensure_alike(&parts)?;
        ensure_all_separate(&parts)?;
        let memory = memory(&parts);
        let placement = parts[0].1.placement.clone();
        let mut first_region = 0;
        let named = parts.into_iter().map(|(name, layout)| {
            let regions = layout.placement.bases().len() as u32;
            let part = NamedPart { name, layout, first_region };
            first_region += regions;
            part
        });
        let layout = Self::unlogged(placement, named.collect(), memory);
        for NamedPart { name, layout: part, .. } in &layout.parts {
            log!(Debug, "layout {} created: part '{name}' is layout {}", layout.log_id, part.log_id);
        }
        Ok(Arc::new(layout))
    }

    /// Commits the memory of the first blocks of all parts. If more memory is needed and not all parts get it, none does.
    pub(super) fn resize_parts(&self, blocks: u64) -> Result<()> {
        let bases = self.parts.iter().map(|part| part.layout.memory.elastic_base());
        let before: Vec<_> = bases.map(committed).collect();
        for (index, part) in self.parts.iter().enumerate() {
            let Err(failure) = part.layout.resize(blocks) else { continue };
            for (part, before) in self.parts[..index].iter().zip(&before) {
                part.layout.decommit_except(before);
            }
            return Err(failure.context(format!("part '{}'", part.name)));
        }
        Ok(())
    }

    /// Decommits what was committed since.
    fn decommit_except(&self, before: &BTreeSet<usize>) {
        let Some(base) = self.memory.elastic_base() else { return };
        let kept: BTreeSet<_> = committed(Some(base)).intersection(before).copied().collect();
        if let Err(error) = base.set_committed(&kept) {
            log!(Warn, "layout {}: memory stays committed after a failure to resize: {error}", self.log_id);
        }
    }
}

fn committed(base: Option<&Arc<Region>>) -> BTreeSet<usize> {
    let memory = base.and_then(|base| base.elastic_memory());
    memory.map(|memory| memory.committed().into_iter().collect()).unwrap_or_default()
}

/// Fails for parts that one transfer could not move: on several tiers, devices, agents or peers.
fn ensure_alike(parts: &[Named]) -> Result<()> {
    let (first_name, first) = &parts[0];
    for (name, layout) in &parts[1..] {
        let same = |what: &str, one: &str, other: &str| {
            ensure!(
                one == other,
                InvalidArgument,
                "part '{first_name}' is {what} {one} and part '{name}' {other}; parts of one layout are moved by one method, so build \
                 them alike, or move them as layouts of their own"
            );
            Ok(())
        };
        same("memory of tier", first.memory.tier().name(), layout.memory.tier().name())?;
        same("known to", &owner(first), &owner(layout))?;
        let places =
            [first, layout].map(|part| part.memory.regions().first().and_then(|region| region.devices()));
        ensure!(
            places[0] == places[1],
            InvalidArgument,
            "the parts '{first_name}' and '{name}' are on different devices, or were opened for different ones"
        );
        let agents = [first, layout].map(|part| part.agent().map(Arc::as_ptr));
        ensure!(
            agents[0] == agents[1] && is_same_peer(first, layout),
            InvalidArgument,
            "the parts '{first_name}' and '{name}' belong to different agents or processes; one agent must know all parts"
        );
    }
    Ok(())
}

fn owner(layout: &Layout) -> String {
    let name = |agent: &Arc<Agent>| format!("agent '{}'", agent.name());
    match &layout.memory {
        Memory::Local(local) => local.agent.as_ref().map_or("no agent".to_string(), name),
        Memory::Remote(remote) => format!("peer '{}'", remote.peer.name()),
    }
}

fn is_same_peer(one: &Layout, other: &Layout) -> bool {
    match (&one.memory, &other.memory) {
        (Memory::Local(_), Memory::Local(_)) => true,
        (Memory::Remote(one), Memory::Remote(other)) => one.process == other.process,
        _ => false,
    }
}

/// Fails if two parts have bytes in common.
fn ensure_all_separate(parts: &[Named]) -> Result<()> {
    let placements: Vec<_> = parts.iter().map(|(name, layout)| (name.as_str(), layout.placement())).collect();
    match &parts[0].1.memory {
        Memory::Remote(_) => ensure_ranges_separate(&placements),
        Memory::Local(_) => {
            let regions: Vec<_> =
                parts.iter().flat_map(|(_, layout)| layout.memory.regions()).cloned().collect();
            let placed = placed(&placements);
            let sizes: Vec<_> = placed.iter().map(|region| region.geometry.region_size()).collect();
            ensure_no_meeting(&placed, meetings(&regions, &sizes)?)
        }
    }
}

/// Fails if the addresses of parts, all in one process, overlap.
pub(super) fn ensure_ranges_separate(parts: &[(&str, &Placement)]) -> Result<()> {
    let placed = placed(parts);
    let ranges: Vec<_> = placed.iter().map(|region| (region.base, region.geometry.region_size())).collect();
    ensure_no_meeting(&placed, meetings_of_ranges(&ranges)?)
}

struct PlacedRegion<'a> {
    part: &'a str,
    geometry: &'a Geometry,
    base: u64,
}

fn placed<'a>(parts: &[(&'a str, &'a Placement)]) -> Vec<PlacedRegion<'a>> {
    let of_part = |(part, placement): &(&'a str, &'a Placement)| {
        let (part, geometry) = (*part, placement.geometry());
        placement.bases().iter().map(move |base| PlacedRegion { part, geometry, base: *base })
    };
    parts.iter().flat_map(of_part).collect()
}

/// Fails if regions of different parts, which have some memory in common, have some bytes in common.
fn ensure_no_meeting(placed: &[PlacedRegion<'_>], found: Vec<Meeting>) -> Result<()> {
    let mut steps = Steps::new(found.len());
    for Meeting { regions, starts } in found {
        let [one, other] = regions.map(|index| &placed[index]);
        ensure!(
            one.part == other.part || !share_elements([one.geometry, other.geometry], starts, &mut steps),
            InvalidArgument,
            "the parts '{}' and '{}' overlap in memory, or alternate in it with different strides; give each part bytes of \
             its own, and give parts that alternate in the rows of a buffer the strides of the whole row",
            one.part,
            other.part
        );
    }
    Ok(())
}

/// The regions of all parts. The parts hold the registrations.
fn memory(parts: &[Named]) -> Memory {
    let layouts = || parts.iter().map(|(_, layout)| layout);
    let descriptors: Vec<_> = layouts().flat_map(|layout| layout.descriptors()).copied().collect();
    match &parts[0].1.memory {
        Memory::Local(LocalMemory { tier, agent, .. }) => Memory::Local(LocalMemory {
            regions: layouts().flat_map(|layout| layout.memory.regions()).cloned().collect(),
            descriptors,
            holds: Vec::new(),
            tier: *tier,
            agent: agent.clone(),
            elastic_base: None,
        }),
        Memory::Remote(RemoteMemory { agent, peer, process, tier, .. }) => Memory::Remote(RemoteMemory {
            agent: agent.clone(),
            peer: peer.clone(),
            process: process.clone(),
            descriptors,
            tier: *tier,
            elastic: None,
        }),
    }
}
