// SPDX-License-Identifier: Apache-2.0
//! What a layout lies in.

use std::sync::Arc;

use super::remote_elastic::RemoteElastic;
use crate::nixl::{Agent, Descriptor, Remote};
use crate::process::ProcessIdentity;
use crate::region::{Region, RegistrationHold, Tier};

/// Memory of this process, or a peer's.
pub enum Memory {
    /// Mapped here.
    Local(LocalMemory),
    /// Reached by NIXL.
    Remote(RemoteMemory),
}

/// Regions of this process.
pub struct LocalMemory {
    /// One for each part of the layout.
    pub regions: Vec<Arc<Region>>,
    /// What NIXL knows each of them as; a view is known by what it is a part of.
    pub descriptors: Vec<Descriptor>,
    /// Keeps them registered.
    pub holds: Vec<RegistrationHold>,
    /// Where they lie.
    pub tier: Tier,
    /// The agent they are registered with.
    pub agent: Option<Arc<Agent>>,
    /// The elastic region they are parts of, where it was allocated for the layout.
    pub elastic_base: Option<Arc<Region>>,
}

/// Regions of a peer.
pub struct RemoteMemory {
    /// The agent that imported them.
    pub agent: Arc<Agent>,
    /// The peer.
    pub peer: Arc<Remote>,
    /// The process the peer lives in.
    pub process: ProcessIdentity,
    /// What NIXL knows each region as.
    pub descriptors: Vec<Descriptor>,
    /// Where they lie over there.
    pub tier: Tier,
    /// What has memory over there, where that grows and shrinks.
    pub elastic: Option<RemoteElastic>,
}

/// How a layout is reached from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locality {
    /// By this process alone: no agent knows it.
    Local,
    /// By this process, and by peers of its agent.
    Registered,
    /// By this process, which has mapped another's memory.
    Mapped,
    /// By NIXL.
    Remote,
}

impl Memory {
    /// How it is reached.
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

    /// Where it lies.
    pub fn tier(&self) -> Tier {
        match self {
            Self::Local(local) => local.tier,
            Self::Remote(remote) => remote.tier,
        }
    }

    /// The regions of this process it lies in; none for a peer's.
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

    /// The agent that reaches it.
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

    /// What NIXL knows each region as.
    pub fn descriptors(&self) -> &[Descriptor] {
        match self {
            Self::Local(local) => &local.descriptors,
            Self::Remote(remote) => &remote.descriptors,
        }
    }
}
