// SPDX-License-Identifier: Apache-2.0
//! The file systems that files are on. Work on one that does not respond must not delay work on others.

use std::sync::Arc;

/// A file system: the major and minor number of its device.
pub type FileSystemId = (u32, u32);

/// The file systems of some files, each once, in order; none for memory.
pub type FileSystems = Arc<[FileSystemId]>;

/// What freeing some objects may wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blockers {
    /// The ordinals of the devices whose work it may wait for, each once, in order.
    pub devices: Vec<i32>,
    pub file_systems: FileSystems,
}

impl Blockers {
    /// The work of one device.
    pub fn device(ordinal: i32) -> Self {
        Self { devices: [ordinal].into(), ..Self::default() }
    }
}
