// SPDX-License-Identifier: Apache-2.0
//! Which process owns the memory of a region, and what this process may do with it.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

use crate::process::ProcessIdentity;

/// What a process may do with memory.
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
    /// What this process may do with it.
    pub access: Access,
}
