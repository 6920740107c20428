// SPDX-License-Identifier: Apache-2.0
//! Lists of raw descriptors: memory, files, objects or blocks, as NIXL addresses them.

use std::any::Any;
use std::ffi::{CStr, CString};
use std::sync::Arc;

use super::descriptor::{Descriptor, MemoryType};
use super::request_handle::Span;
use crate::base::{Result, ensure, error};

/// The maximum number of descriptors: NIXL addresses them by `int`.
const MAX: usize = i32::MAX as usize;

/// Descriptors of one memory type. Clones share the list: it may have millions.
#[derive(Clone)]
pub struct Descriptors {
    memory_type: MemoryType,
    entries: Arc<Vec<DescriptorEntry>>,
}

#[derive(Clone, Default)]
pub struct DescriptorEntry {
    /// Address, or offset in a file or object.
    pub address: u64,
    pub size: u64,
    pub device_id: u64,
    /// For registration: the key of an object, the path of a file, or what the backend needs.
    pub metadata: Vec<u8>,
    /// The agent that owns the memory, in a list for a remote memory view.
    pub agent: Option<CString>,
    /// The object of this process whose memory it is, if it is one. It stays alive as long as the descriptor.
    pub owner: Option<Owner>,
}

impl DescriptorEntry {
    /// A span without metadata.
    pub fn from_span(span: &Descriptor) -> Self {
        let Descriptor { address, size, device_id, .. } = *span;
        Self { address, size, device_id, ..Self::default() }
    }

    /// The name of the agent that owns the memory.
    pub fn agent_name(&self) -> Result<Option<&str>> {
        let text = self.agent.as_deref().map(CStr::to_str).transpose();
        text.map_err(|_| error!(InvalidArgument, "the name of an agent in the list is not UTF-8"))
    }
}

/// An object that owns memory.
pub type Owner = Arc<dyn Any + Send + Sync>;

impl Descriptors {
    /// A list. Fails if it has more descriptors than NIXL can address, or one that exceeds the address space.
    pub fn new(memory_type: MemoryType, entries: Vec<DescriptorEntry>) -> Result<Self> {
        let count = entries.len();
        ensure!(
            count <= MAX,
            OutOfRange,
            "a list of {count} descriptors is too long; NIXL numbers at most {MAX}"
        );
        for (index, DescriptorEntry { address, size, .. }) in entries.iter().enumerate() {
            ensure!(
                address.checked_add(*size).is_some(),
                OutOfRange,
                "descriptor {index} of {size} bytes at {address:#x} exceeds the address space"
            );
        }
        Ok(Self { memory_type, entries: Arc::new(entries) })
    }

    /// A list without descriptors.
    pub fn empty(memory_type: MemoryType) -> Self {
        Self { memory_type, entries: Arc::default() }
    }

    pub(super) fn from_span(span: &Descriptor) -> Result<Self> {
        Self::new(span.memory_type, vec![DescriptorEntry::from_span(span)])
    }

    pub fn memory_type(&self) -> MemoryType {
        self.memory_type
    }

    pub fn entries(&self) -> &[DescriptorEntry] {
        &self.entries
    }

    /// What a transfer knows of the descriptors.
    pub fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.entries.iter().map(|entry| Span {
            address: entry.address,
            size: entry.size,
            device_id: entry.device_id,
        })
    }

    pub fn descriptors(&self) -> impl Iterator<Item = Descriptor> + '_ {
        self.spans().map(|Span { address, size, device_id }| Descriptor {
            address,
            size,
            device_id,
            memory_type: self.memory_type,
        })
    }
}
