// SPDX-License-Identifier: Apache-2.0
//! The access that a share grants, and the transport of its memory.

use crate::region::{Access, FutureWrites};

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
