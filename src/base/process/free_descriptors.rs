// SPDX-License-Identifier: Apache-2.0
//! Whether file descriptors are free, for libraries that fail without saying that they need them, or break what they have begun.

use rustix::event::{EventfdFlags, eventfd};

use crate::base::error::{Error, Result};

/// Fails with OUT_OF_MEMORY and the limit unless this process can open so many more file descriptors now.
pub fn ensure_free_descriptors(count: usize) -> Result<()> {
    let open = |_| {
        eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|errno| Error::errno(format!("open {count} file descriptors"), errno))
    };
    (0..count).map(open).collect::<Result<Vec<_>>>().map(drop)
}
