// SPDX-License-Identifier: Apache-2.0
//! The process that owns the memory of a region, the access of this process, and what else is required of memory that it opens.

use serde::{Deserialize, Serialize};

use super::open_file::FileId;
use super::tiers::DeviceUsers;
use crate::base::ProcessIdentity;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Access {
    Read,
    ReadWrite,
}

/// The owner of an imported region.
#[derive(Clone, Debug)]
pub struct Origin {
    pub process: ProcessIdentity,
    pub access: Access,
}

/// The requirements for a region of a share that is being opened.
pub struct OpenRequirements {
    pub control: FileId,
    /// The file of its memory; `None` if the memory is not a file.
    pub file: Option<FileId>,
    pub access: Access,
    /// Required alignment of its address, a power of two.
    pub alignment: u64,
    /// The device to page-lock it for.
    pub pin: Option<i32>,
    /// The devices that will access device memory, in addition to the one that it is located on.
    pub users: DeviceUsers,
    /// Its extents, each with its word in the control block.
    pub extents: Vec<(usize, u32)>,
}
