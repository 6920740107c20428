// SPDX-License-Identifier: Apache-2.0
//! The process that owns the memory of a region, and the access of this process.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

use crate::base::process::ProcessIdentity;

/// The access of a process to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Access {
    /// Read.
    Read,
    /// Read and write.
    ReadWrite,
}

/// The owner of an imported region.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The process that owns the memory.
    pub process: ProcessIdentity,
    /// The access of this process.
    pub access: Access,
}
