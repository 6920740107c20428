// SPDX-License-Identifier: Apache-2.0
//! Shares: a region or layout for another process.

pub mod bytes;
pub mod create;
pub mod info;
pub mod open;
pub mod socket;

use std::sync::Arc;

use crate::ffi::common::{Handle, opaque};
use crate::share::Share;

/// A region or a layout in transit to another process: bytes, and the file descriptors that belong to them.
/// The owner's share keeps the memory allocated, and elastic extents that it carries cannot be decommitted.
pub struct kvmem_share {
    handle: Handle<Arc<Share>>,
}
opaque!(kvmem_share, Arc<Share>, "share");
