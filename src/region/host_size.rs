// SPDX-License-Identifier: Apache-2.0
//! Sizes of host memory.

use crate::base::{Error, Result, Status, ensure};

/// Converts a size in bytes to the type of this machine's sizes.
pub fn host_size(what: &str, size: u64) -> Result<usize> {
    ensure!(size > 0, InvalidArgument, "the size of {what} is 0 bytes; it must be at least 1");
    match usize::try_from(size) {
        Ok(size) if size <= isize::MAX as usize => Ok(size),
        _ => Err(Error::new(
            Status::InvalidArgument,
            format!("{what} of {size} bytes exceeds the address space"),
        )),
    }
}
