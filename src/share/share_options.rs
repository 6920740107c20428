// SPDX-License-Identifier: Apache-2.0
//! What a share grants, and how its memory is passed.

#![forbid(unsafe_code)]

use crate::region::Access;

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

/// What to grant, and how to pass the memory.
#[derive(Clone, Copy, Debug)]
pub struct ShareOptions {
    /// What importers may do with the memory.
    pub access: Access,
    /// How the memory is passed.
    pub way: Transport,
}
