// SPDX-License-Identifier: Apache-2.0
//! The access that a share grants, the transport of its memory, and how a share is opened.

use std::sync::Arc;

use crate::nixl::Agent;
use crate::region::{Access, DeviceUsers, FutureWrites};

/// How memory is passed to another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Chosen by the tier.
    #[default]
    Auto,
    /// By file descriptors.
    Fd,
    /// By the driver's IPC handle.
    Ipc,
    /// By fabric handles.
    Fabric,
    /// Not mapped: other processes access it by NIXL.
    Remote,
}

/// The access to grant, and the transport of the memory.
#[derive(Clone, Copy, Debug)]
pub struct ShareOptions {
    pub access: Access,
    pub way: Transport,
    pub writes: FutureWrites,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Mapped if possible, otherwise by NIXL if there is an agent.
    #[default]
    Auto,
    /// Mapped; fails if that is impossible.
    Mapped,
    /// By NIXL.
    Remote,
}

#[derive(Clone, Default)]
pub struct OpenOptions {
    /// The requested access; `None` requests all that is granted.
    pub access: Option<Access>,
    /// Page-locks host memory for this device.
    pub pin: Option<i32>,
    /// The devices that will access device memory, in addition to the one that it is located on.
    pub users: DeviceUsers,
    pub reach: Reach,
    /// The agent that accesses a layout by NIXL.
    pub agent: Option<Arc<Agent>>,
    /// Registers a mapped layout with the agent.
    pub register: bool,
    /// Maps reserved huge pages, although a process that may write them can end this one by SIGBUS.
    pub trust_owner: bool,
}
