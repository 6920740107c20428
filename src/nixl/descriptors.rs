// SPDX-License-Identifier: Apache-2.0
//! Lists of raw descriptors: memory, files, objects or blocks, as NIXL addresses them.

#![forbid(unsafe_code)]

use std::any::Any;
use std::ffi::{CStr, CString};
use std::fmt::Write;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::descriptor::{Descriptor, MemoryType};
use super::request_handle::Span;
use crate::base::error::{Error, Result, Status, ensure};
use crate::base::wire::Form;

const FORM: Form = Form { magic: b"KVMEMDSC", versions: 1..=1, name: "descriptor list" };

/// The maximum number of descriptors: NIXL addresses them by `int`.
const MAX: usize = i32::MAX as usize;

/// Descriptors of one memory type.
#[derive(Clone)]
pub struct Descriptors {
    memory_type: MemoryType,
    entries: Vec<DescriptorEntry>,
}

/// One descriptor.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct DescriptorEntry {
    /// Address, or offset in a file or object.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// NIXL's device id.
    pub device_id: u64,
    /// For registration: the key of an object, the path of a file, or what the backend needs.
    #[serde(with = "serde_bytes")]
    pub metadata: Vec<u8>,
    /// The agent that owns the memory, in a list for a remote memory view.
    pub agent: Option<CString>,
    /// The object of this process whose memory it is, if it is one. It stays alive as long as the descriptor.
    #[serde(skip)]
    pub owner: Option<Owner>,
}

impl DescriptorEntry {
    /// The name of the agent that owns the memory.
    pub fn agent_name(&self) -> Result<Option<&str>> {
        let text = self.agent.as_deref().map(CStr::to_str).transpose();
        text.map_err(|_| Error::new(Status::InvalidArgument, "the name of an agent in the list is not UTF-8"))
    }
}

/// An object that owns memory.
pub type Owner = Arc<dyn Any + Send + Sync>;

impl PartialEq for DescriptorEntry {
    fn eq(&self, other: &Self) -> bool {
        let fields = |entry: &Self| (entry.address, entry.size, entry.device_id);
        fields(self) == fields(other) && self.metadata == other.metadata && self.agent == other.agent
    }
}

#[derive(Serialize, Deserialize)]
struct Payload {
    memory_type: MemoryType,
    entries: Vec<DescriptorEntry>,
}

impl Descriptors {
    /// An empty list.
    pub fn new(memory_type: MemoryType) -> Self {
        Self { memory_type, entries: Vec::new() }
    }

    /// A list of one descriptor.
    pub(super) fn from_span(span: &Descriptor) -> Result<Self> {
        let Descriptor { address, size, device_id, memory_type } = *span;
        let mut this = Self::new(memory_type);
        this.add(vec![DescriptorEntry { address, size, device_id, ..DescriptorEntry::default() }])?;
        Ok(this)
    }

    /// The type of the memory.
    pub fn memory_type(&self) -> MemoryType {
        self.memory_type
    }

    /// The descriptors.
    pub fn entries(&self) -> &[DescriptorEntry] {
        &self.entries
    }

    /// Adds descriptors: all of them, or none.
    pub fn add(&mut self, added: Vec<DescriptorEntry>) -> Result<()> {
        let count = self.entries.len() + added.len();
        ensure!(
            count <= MAX,
            OutOfRange,
            "a list of {count} descriptors is too long; NIXL numbers at most {MAX}"
        );
        added.iter().enumerate().try_for_each(|(index, entry)| {
            ensure_addressable(entry).map_err(|error| error.context(format!("added[{index}]")))
        })?;
        self.reserve(added.len(), count)?;
        self.entries.extend(added);
        Ok(())
    }

    /// Replaces a descriptor.
    pub fn set(&mut self, index: usize, entry: DescriptorEntry) -> Result<()> {
        ensure_addressable(&entry)?;
        *self.at(index)? = entry;
        Ok(())
    }

    /// A descriptor.
    pub fn get(&self, index: usize) -> Result<&DescriptorEntry> {
        self.entries.get(index).ok_or_else(|| out_of_range(index, self.entries.len()))
    }

    /// Removes a descriptor. Those behind it move up.
    pub fn remove(&mut self, index: usize) -> Result<()> {
        self.at(index)?;
        self.entries.remove(index);
        Ok(())
    }

    /// Removes the descriptors behind the first `count`, or adds descriptors of zeroes.
    pub fn resize(&mut self, count: usize) -> Result<()> {
        ensure!(
            count <= MAX,
            OutOfRange,
            "a list of {count} descriptors is too long; NIXL numbers at most {MAX}"
        );
        let more = count.saturating_sub(self.entries.len());
        self.reserve(more, count)?;
        self.entries.resize_with(count, DescriptorEntry::default);
        Ok(())
    }

    /// Reserves memory for `more` descriptors, `count` in all.
    fn reserve(&mut self, more: usize, count: usize) -> Result<()> {
        let no_memory =
            |_| Error::new(Status::OutOfMemory, format!("no memory for a list of {count} descriptors"));
        self.entries.try_reserve(more).map_err(no_memory)
    }

    /// Frees memory that the descriptors do not need.
    pub fn trim(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// Removes all descriptors.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// The list as text: one line for the list, then one per descriptor.
    pub fn print(&self) -> String {
        let mut text = format!("{} descriptors of {} memory\n", self.entries.len(), self.memory_type.name());
        for (index, entry) in self.entries.iter().enumerate() {
            let DescriptorEntry { address, size, device_id, metadata, agent, .. } = entry;
            let _ = write!(text, "{index}: address {address:#x}, {size} bytes, device {device_id}");
            if !metadata.is_empty() {
                let _ = write!(text, ", metadata \"{}\"", metadata.escape_ascii());
            }
            if let Some(agent) = agent {
                let _ = write!(text, ", agent '{}'", agent.to_string_lossy());
            }
            text.push('\n');
        }
        text
    }

    /// The bytes of the list, for another process.
    pub fn serialise(&self) -> Result<Vec<u8>> {
        FORM.write(1, &Payload { memory_type: self.memory_type, entries: self.entries.clone() })
    }

    /// A list from its bytes.
    pub fn deserialise(bytes: &[u8]) -> Result<Self> {
        let (_, Payload { memory_type, entries }) = FORM.read::<Payload>(bytes)?;
        let are_texts = entries.iter().all(|entry| entry.agent_name().is_ok());
        ensure!(are_texts, Corrupt, "the name of an agent in the descriptor list is not UTF-8");
        let mut list = Self::new(memory_type);
        list.add(entries).map_err(|error| error.with_status(Status::Corrupt))?;
        Ok(list)
    }

    /// What a transfer knows of the descriptors.
    pub fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.entries.iter().map(|entry| Span {
            address: entry.address,
            size: entry.size,
            device_id: entry.device_id,
        })
    }

    /// Each as a descriptor by itself.
    pub fn descriptors(&self) -> impl Iterator<Item = Descriptor> + '_ {
        self.spans().map(|Span { address, size, device_id }| Descriptor {
            address,
            size,
            device_id,
            memory_type: self.memory_type,
        })
    }

    fn at(&mut self, index: usize) -> Result<&mut DescriptorEntry> {
        let count = self.entries.len();
        self.entries.get_mut(index).ok_or_else(|| out_of_range(index, count))
    }
}

fn ensure_addressable(entry: &DescriptorEntry) -> Result<()> {
    let DescriptorEntry { address, size, .. } = entry;
    ensure!(
        address.checked_add(*size).is_some(),
        OutOfRange,
        "a descriptor of {size} bytes at {address:#x} exceeds the address space"
    );
    Ok(())
}

#[cold]
fn out_of_range(index: usize, count: usize) -> Error {
    Error::new(Status::OutOfRange, format!("index is {index}, and the list has {count} descriptors"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::wire::tests::ensure_all_damage_is_found;

    fn entry(address: u64, metadata: &[u8]) -> DescriptorEntry {
        DescriptorEntry { address, size: 64, metadata: metadata.to_vec(), ..DescriptorEntry::default() }
    }

    fn list() -> Descriptors {
        let mut list = Descriptors::new(MemoryType::Object);
        let remote = DescriptorEntry { agent: Some(c"far".to_owned()), ..entry(0x2000, b"") };
        list.add(vec![entry(0x1000, b"key\0\xff"), remote]).unwrap();
        list
    }

    #[test]
    fn the_bytes_of_a_list_give_the_list_and_damage_is_found() {
        let bytes = list().serialise().unwrap();
        let read = Descriptors::deserialise(&bytes).unwrap();
        assert_eq!(read.memory_type(), MemoryType::Object);
        assert!(read.entries() == list().entries());
        ensure_all_damage_is_found(&bytes, Descriptors::deserialise);
    }
}
