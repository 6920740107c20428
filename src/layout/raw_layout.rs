// SPDX-License-Identifier: Apache-2.0
//! A layout over raw memory of a peer, which need not use kvmem.

use std::sync::Arc;

use super::Layout;
use super::arrangement::Arrangement;
use super::config::Dimensions;
use super::geometry::Geometry;
use super::memory::{Memory, RemoteMemory};
use super::placement::Placement;
use crate::base::{ProcessIdentity, Result, ensure, fail, lists};
use crate::nixl::{Agent, Command, Descriptor, Descriptors, MemoryType};
use crate::region::Tier;

impl Layout {
    /// A remote layout with one descriptor per region. The loaded metadata of the owner must cover the descriptors, and no two
    /// blocks may have a byte in common.
    pub fn from_raw(
        agent: &Arc<Agent>,
        owner: &str,
        (dimensions, arrangement): (Dimensions, Arrangement),
        list: &Descriptors,
    ) -> Result<Arc<Self>> {
        let tier = match list.memory_type() {
            MemoryType::Dram => Tier::System,
            MemoryType::Vram => Tier::Device,
            other => fail!(
                Unsupported,
                "a layout of a peer cannot be in {} memory; move such descriptors by requests",
                other.name()
            ),
        };
        let descriptors = lists::collect(list.descriptors())?;
        let bases = lists::collect(descriptors.iter().map(|descriptor| descriptor.address))?;
        let placement = Placement::new(Geometry::new(dimensions, arrangement)?, bases)?;
        placement.ensure_separate()?;
        let size = placement.geometry().region_size();
        for (index, Descriptor { size: given, .. }) in descriptors.iter().enumerate() {
            ensure!(
                *given >= size,
                OutOfRange,
                "descriptor {index} has {given} bytes, and a region of the layout needs {size}"
            );
        }
        let (name, claimed) = (owner.to_string(), lists::copied(&descriptors)?);
        let peer = agent.call(|reply| Command::Remote(name, claimed, reply))?;
        let process = ProcessIdentity::unknown();
        let memory = RemoteMemory { agent: agent.clone(), peer, process, descriptors, tier, elastic: None };
        Ok(Layout::new(placement, Memory::Remote(memory)))
    }
}
