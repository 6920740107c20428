// SPDX-License-Identifier: Apache-2.0
//! What an agent has registered.

use std::collections::{HashMap, HashSet};

use super::descriptor::{Descriptor, MemoryType, describe};
use super::descriptors::Descriptors;
use super::raw_descriptors::SegmentsId;
use super::request_handle::Span;
use crate::base::{Result, ensure, lists};

/// All memory that an agent has registered, by what was registered together.
#[derive(Default)]
pub(super) struct RegistrationTable {
    segments: HashMap<SegmentsId, Segments>,
    /// What each descriptor is a part of. NIXL accepts a descriptor twice, and then deregisters both at once.
    of: HashMap<Descriptor, SegmentsId>,
}

/// Descriptors that were registered together, and with which plugins.
pub(super) struct Segments {
    pub list: Descriptors,
    pub plugins: Vec<String>,
    /// Why another backend, which accepts memory of this type, does not have it.
    pub refused: Option<String>,
}

impl RegistrationTable {
    pub fn get(&self, id: SegmentsId) -> Option<&Segments> {
        self.segments.get(&id)
    }

    pub fn find(&self, descriptor: &Descriptor) -> Option<SegmentsId> {
        self.of.get(descriptor).copied()
    }

    pub fn ids(&self) -> Vec<SegmentsId> {
        self.segments.keys().copied().collect()
    }

    pub fn of_type(&self, memory_type: MemoryType) -> impl Iterator<Item = &Segments> {
        self.segments.values().filter(move |segments| segments.list.memory_type() == memory_type)
    }

    /// Fails if some of a list is registered, or is in it twice.
    pub fn ensure_new(&self, list: &Descriptors) -> Result<()> {
        let (mut listed, count) = (HashSet::new(), list.entries().len());
        lists::reserved(listed.try_reserve(count), count, size_of::<Descriptor>())?;
        for descriptor in list.descriptors() {
            ensure!(
                !self.of.contains_key(&descriptor) && (count == 1 || listed.insert(descriptor)),
                AlreadyExists,
                "{} is already registered, or is in the list twice",
                describe(&descriptor)
            );
        }
        Ok(())
    }

    /// Reserves memory for a list, which can then be added in any case.
    pub fn reserve(&mut self, list: &Descriptors) -> Result<()> {
        let count = list.entries().len();
        lists::reserved(self.of.try_reserve(count), count, size_of::<(Descriptor, SegmentsId)>())
    }

    pub fn add(&mut self, id: SegmentsId, segments: Segments) {
        self.of.extend(segments.list.descriptors().map(|descriptor| (descriptor, id)));
        self.segments.insert(id, segments);
    }

    pub fn remove(&mut self, id: SegmentsId) -> Option<Segments> {
        let segments = self.segments.remove(&id)?;
        segments.list.descriptors().for_each(|descriptor| _ = self.of.remove(&descriptor));
        Some(segments)
    }
}

impl Segments {
    pub fn has(&self, span: &Span) -> bool {
        self.list.spans().any(|memory| {
            memory.device_id == span.device_id
                && memory.address <= span.address
                && span.address - memory.address < memory.size
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::nixl::descriptors::DescriptorEntry;

    fn span(address: u64, size: u64) -> Descriptor {
        Descriptor { address, size, device_id: 0, memory_type: MemoryType::Dram }
    }

    #[test]
    fn a_descriptor_is_registered_once_until_its_list_is_removed() {
        let mut table = RegistrationTable::default();
        let (first, second) = (span(4096, 16), span(8192, 16));
        let list = |spans: &[Descriptor]| {
            let entries = spans.iter().map(DescriptorEntry::from_span).collect();
            Descriptors::new(MemoryType::Dram, entries).unwrap()
        };
        let refusal = |table: &RegistrationTable, spans: &[Descriptor]| {
            table.ensure_new(&list(spans)).err().map(|error| error.status())
        };
        assert_eq!(refusal(&table, &[first, second]), None);
        assert_eq!(refusal(&table, &[first, first]), Some(Status::AlreadyExists), "twice in the list");
        let plugins = vec!["UCX".to_string()];
        table.add(SegmentsId(1), Segments { list: list(&[first, second]), plugins, refused: None });
        assert_eq!(refusal(&table, &[second]), Some(Status::AlreadyExists));
        assert_eq!(refusal(&table, &[span(8192, 8)]), None, "NIXL compares whole descriptors");
        assert_eq!(table.find(&second), Some(SegmentsId(1)));
        let has =
            |address| table.of_type(MemoryType::Dram).any(|known| known.has(&(&span(address, 1)).into()));
        assert_eq!([4096, 4111, 4112, 8192].map(has), [true, true, false, true]);
        assert_eq!(table.of_type(MemoryType::Vram).count(), 0);
        assert!(table.remove(SegmentsId(1)).is_some() && table.remove(SegmentsId(1)).is_none());
        assert_eq!((refusal(&table, &[first, second]), table.find(&first)), (None, None));
    }
}
