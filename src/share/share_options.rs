// SPDX-License-Identifier: Apache-2.0
//! What a share grants, and how its memory is carried.

#![forbid(unsafe_code)]

use crate::region::Access;

/// How memory is to be carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// As its tier allows.
    #[default]
    Auto,
    /// By file descriptors.
    Fd,
    /// By the driver's IPC handle.
    Ipc,
    /// By fabric handles.
    Fabric,
    /// Not at all: other processes reach it by NIXL.
    Remote,
}

/// What to grant, and how.
#[derive(Clone, Copy, Debug)]
pub struct ShareOptions {
    /// What importers may do with the memory.
    pub access: Access,
    /// How it is to be carried.
    pub way: Transport,
}
