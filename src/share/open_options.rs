// SPDX-License-Identifier: Apache-2.0
//! How a share is opened.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::nixl::Agent;
use crate::region::{Access, DeviceUsers};

/// How a layout is to be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Mapped where that is possible, else by NIXL if there is an agent.
    #[default]
    Auto,
    /// Mapped, or not at all.
    Mapped,
    /// By NIXL.
    Remote,
}

/// How to open a share.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// What this process wants to do with the memory; `None` for all that is granted.
    pub access: Option<Access>,
    /// Page-locks host memory for this device.
    pub pin: Option<i32>,
    /// The devices whose kernels are to reach memory of a device, besides the one that it is located on.
    pub users: DeviceUsers,
    /// How a layout is to be reached.
    pub reach: Reach,
    /// Who reaches a layout by NIXL.
    pub agent: Option<Arc<Agent>>,
    /// Registers a mapped layout with the agent.
    pub register: bool,
    /// Maps reserved huge pages, though a process that may write them can end this one with SIGBUS.
    pub trust_owner: bool,
}
