// SPDX-License-Identifier: Apache-2.0
//! The two sides of a transfer from or to a file.

use std::sync::Arc;

use crate::base::{Result, fail};
use crate::engine::preferences::Preferences;
use crate::layout::Layout;
use crate::nixl::MemoryType;

/// Which side is in a file, and which in memory.
pub struct FileSides<'a> {
    pub file: &'a Arc<Layout>,
    pub memory: &'a Arc<Layout>,
    pub writes: bool,
}

impl<'a> FileSides<'a> {
    pub fn new(source: &'a Arc<Layout>, destination: &'a Arc<Layout>) -> Self {
        match destination.memory_type() {
            MemoryType::File => Self { file: destination, memory: source, writes: true },
            _ => Self { file: source, memory: destination, writes: false },
        }
    }

    /// Whether all of it bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    /// Fails if the caller's flags exclude the transfer. Between a file and a GPU, `against_gds` is the reason
    /// against GDS.
    pub fn ensure_allowed(&self, against_gds: Option<&str>, preferences: &Preferences) -> Result<()> {
        if let (Some(reason), true) = (against_gds, preferences.no_host_bounce || preferences.zero_copy) {
            fail!(
                Unsupported,
                "bytes between a file and GPU memory pass through host memory, which the flags exclude; GPUDirect Storage is \
                 not possible: {reason}"
            );
        }
        Ok(())
    }
}
