// SPDX-License-Identifier: Apache-2.0
//! The memory of a layout.

use std::sync::Arc;

use super::remote_elastic::RemoteElastic;
use crate::base::ProcessIdentity;
use crate::nixl::{Agent, Descriptor, Remote};
use crate::region::{Region, RegistrationHold, Tier};

/// Memory of this process or of a peer.
pub enum Memory {
    /// Mapped here.
    Local(LocalMemory),
    /// Accessed by NIXL.
    Remote(RemoteMemory),
}

pub struct LocalMemory {
    /// One for each part of the layout.
    pub regions: Vec<Arc<Region>>,
    /// The NIXL descriptor of each region; a view is registered with the region that it is a part of.
    pub descriptors: Vec<Descriptor>,
    /// Keeps them registered.
    pub holds: Vec<RegistrationHold>,
    pub tier: Tier,
    /// The agent they are registered with.
    pub agent: Option<Arc<Agent>>,
    /// The elastic region that they are views of, if it was allocated for the layout.
    pub elastic_base: Option<Arc<Region>>,
}

pub struct RemoteMemory {
    /// The agent that imported them.
    pub agent: Arc<Agent>,
    pub peer: Arc<Remote>,
    pub process: ProcessIdentity,
    /// The NIXL descriptor of each region.
    pub descriptors: Vec<Descriptor>,
    /// The tier that they are located on in the peer's process.
    pub tier: Tier,
    /// The committed extents in the peer's process, if the memory is elastic.
    pub elastic: Option<RemoteElastic>,
}

/// How this process accesses a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locality {
    /// By this process only: it is registered with no agent.
    Local,
    /// By this process, and by peers of its agent.
    Registered,
    /// By this process, which has mapped memory of another process.
    Mapped,
    /// By NIXL.
    Remote,
}

impl Memory {
    pub fn locality(&self) -> Locality {
        match self {
            Self::Local(local) if local.regions.iter().any(|region| region.origin().is_some()) => {
                Locality::Mapped
            }
            Self::Local(local) if local.agent.is_none() => Locality::Local,
            Self::Local(_) => Locality::Registered,
            Self::Remote(_) => Locality::Remote,
        }
    }

    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(_))
    }

    pub fn tier(&self) -> Tier {
        match self {
            Self::Local(local) => local.tier,
            Self::Remote(remote) => remote.tier,
        }
    }

    /// Its regions in this process; none if it belongs to a peer.
    pub fn regions(&self) -> &[Arc<Region>] {
        match self {
            Self::Local(local) => &local.regions,
            Self::Remote(_) => &[],
        }
    }

    /// The elastic region that was allocated for it.
    pub fn elastic_base(&self) -> Option<&Arc<Region>> {
        match self {
            Self::Local(local) => local.elastic_base.as_ref(),
            Self::Remote(_) => None,
        }
    }

    /// The elastic memory of the peer that it is located in.
    pub fn remote_elastic(&self) -> Option<&RemoteElastic> {
        match self {
            Self::Local(_) => None,
            Self::Remote(remote) => remote.elastic.as_ref(),
        }
    }

    pub fn agent(&self) -> Option<&Arc<Agent>> {
        match self {
            Self::Local(local) => local.agent.as_ref(),
            Self::Remote(remote) => Some(&remote.agent),
        }
    }

    /// The name of the agent that owns it.
    pub fn owner(&self) -> Option<&str> {
        match self {
            Self::Local(local) => local.agent.as_ref().map(|agent| agent.name()),
            Self::Remote(remote) => Some(remote.peer.name()),
        }
    }

    /// The backends that access its objects or block storage, and their stores, for messages.
    pub fn store(&self) -> Option<String> {
        match self {
            // The registration of elastic memory is locked while extents are added, and the agent's thread is waited for.
            Self::Local(local) if local.tier.is_storage() => {
                local.holds.first().and_then(|hold| hold.store())
            }
            _ => None,
        }
    }

    /// The NIXL descriptor of each region.
    pub fn descriptors(&self) -> &[Descriptor] {
        match self {
            Self::Local(local) => &local.descriptors,
            Self::Remote(remote) => &remote.descriptors,
        }
    }
}
