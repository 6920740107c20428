// SPDX-License-Identifier: Apache-2.0
//! Layouts: where each block of a KV cache is located.

pub mod accesses;
pub mod address;
pub mod build;
pub mod checksum;
pub mod config;
pub mod epochs;
pub mod info;
pub mod leases;
pub mod parts;

use std::ffi::{CString, c_char};
use std::ops::Deref;
use std::sync::Arc;

use once_cell::sync::OnceCell;

use crate::ffi::common::{Array, Handle, opaque};
use crate::layout::Layout;

/// Location of each block of a KV cache. A layout keeps its regions and registrations alive.
pub struct kvmem_layout {
    handle: Handle<NamedLayout>,
}
opaque!(kvmem_layout, NamedLayout, "layout");

/// A layout, and its names as C strings.
pub struct NamedLayout {
    layout: Arc<Layout>,
    names: OnceCell<LayoutNames>,
}

/// What `kvmem_layout_info` points to.
pub(in crate::ffi) struct LayoutNames {
    /// The name of its agent.
    pub agent: Option<CString>,
    /// The names of its parts.
    pub parts: Array<*const c_char, CString>,
}

impl NamedLayout {
    /// The names, which are made for the first call.
    pub(in crate::ffi) fn names(&self) -> &LayoutNames {
        // NIXL, and callers, give names as C strings, so none contains a NUL.
        let text = |name: &str| CString::new(name).unwrap_or_default();
        self.names.get_or_init(|| LayoutNames {
            agent: self.memory().owner().map(text),
            parts: Array::new(self.part_names().map(text).collect(), |name| name.as_ptr()),
        })
    }
}

impl From<Arc<Layout>> for NamedLayout {
    fn from(layout: Arc<Layout>) -> Self {
        Self { layout, names: OnceCell::new() }
    }
}

impl Deref for NamedLayout {
    type Target = Arc<Layout>;

    #[inline]
    fn deref(&self) -> &Arc<Layout> {
        &self.layout
    }
}
