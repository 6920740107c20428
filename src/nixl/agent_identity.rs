// SPDX-License-Identifier: Apache-2.0
//! The identity of an agent, which its metadata contains: a page of its memory that is registered with a random device id.
//!
//! Agents of two processes can have one name and equal addresses, as forked replicas do, and an agent that restarts has the name
//! of the previous one. So a layout's descriptor names the identity of its agent, and the importer checks that the metadata that
//! it has loaded under the name contains it. NIXL compares device ids; UCX uses none for host memory.
#![allow(unsafe_code)]

use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::param::page_size;

use super::descriptor::{Descriptor, MemoryType};
use crate::base::{Error, Result, random};

/// An identity, and the plugins of the backends that it is registered with. It must live as long as the agent: NIXL deregisters it.
pub(super) struct Identity {
    page: usize,
    id: u64,
    pub plugins: Vec<String>,
}

impl Identity {
    pub fn new() -> Result<Self> {
        let id = u64::from_ne_bytes(random()?) | 1;
        // A page of its own, because UCX may remove the pages of registered memory from forked children.
        // SAFETY: a new mapping, which nothing else uses.
        let page = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                page_size(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let page = page.map_err(|errno| Error::errno("map a page for the identity of an agent", errno))?;
        Ok(Self { page: page.expose_provenance(), id, plugins: Vec::new() })
    }

    /// What metadata with this identity covers.
    pub fn descriptor(&self) -> Descriptor {
        let (address, size) = (self.page as u64, page_size() as u64);
        Descriptor { address, size, device_id: self.id, memory_type: MemoryType::Dram }
    }

    /// Another identity for the same page. Returns the descriptor of the previous one.
    pub fn renew(&mut self) -> Result<Descriptor> {
        let previous = self.descriptor();
        self.id = u64::from_ne_bytes(random()?) | 1;
        Ok(previous)
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; the agent that it was registered with is destroyed.
        let _ = unsafe { munmap(ptr::with_exposed_provenance_mut(self.page), page_size()) };
    }
}
