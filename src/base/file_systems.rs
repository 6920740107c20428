// SPDX-License-Identifier: Apache-2.0
//! The file systems that files are on. Work on one that does not respond must not delay work on others.

use std::sync::Arc;

/// A file system: the major and minor number of its device.
pub type FileSystemId = (u32, u32);

/// The file systems of some files, each once, in order; none for memory.
pub type FileSystems = Arc<[FileSystemId]>;
