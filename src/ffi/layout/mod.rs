// SPDX-License-Identifier: Apache-2.0
//! Layouts: where each block of a KV cache is located.

pub mod address;
pub mod build;
pub mod checksum;
pub mod config;
pub mod info;
pub mod parts;

use std::sync::Arc;

use crate::ffi::common::{Handle, opaque};
use crate::layout::Layout;

/// Location of each block of a KV cache. A layout keeps its regions and registrations alive.
pub struct kvmem_layout {
    handle: Handle<Arc<Layout>>,
}
opaque!(kvmem_layout, Arc<Layout>, "layout");
