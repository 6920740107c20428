// SPDX-License-Identifier: Apache-2.0
//! Layouts: where each block of a KV cache is located.

pub mod address;
pub mod build;
pub mod checksum;
pub mod config;
pub mod info;

use std::sync::Arc;

use crate::ffi::common::handle::{Handle, opaque};
use crate::layout::Layout;

/// Where each block of a KV cache lies. It holds its regions and their registrations.
///
/// Threads: all functions on one layout may run at once, except kvmem_layout_destroy.
pub struct kvmem_layout {
    handle: Handle<Arc<Layout>>,
}
opaque!(kvmem_layout, Arc<Layout>, "layout");
