// SPDX-License-Identifier: Apache-2.0
//! The file of namespaces: their names and quotas, and how their keys are recognised.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::cipher::Recognition;
use super::files::{Files, StoreFile};
use super::store_header::Header;
use crate::base::wire::Form;
use crate::base::{Count, Error, Result, Status, ensure, error};

const VERSION: u16 = 1;
const FORM: Form =
    Form { magic: b"KVMEMNSP", versions: VERSION..=VERSION, name: "list of a store's namespaces" };
/// Bytes of the longest name.
const MAX_NAME: usize = 128;
/// Namespaces of a store.
const MAX_COUNT: usize = 4096;
/// Numbers that are passed over when a list was lost, less one.
const NUMBERS_PASSED: u32 = 0xffff;
/// Bytes of the longest file.
const MAX: u64 = 2 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamespaceList {
    /// The id of the store.
    store: [u8; 16],
    /// The number of the next one. No number is used again, so that no namespace gets the blocks of another one.
    pub(super) next: u32,
    list: Vec<Described>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Described {
    /// At least 1: 0 is the namespace without a name.
    pub number: u32,
    pub name: String,
    pub slots: u64,
    /// If it is encrypted.
    pub encryption: Option<Recognition>,
}

impl NamespaceList {
    pub fn new(store: [u8; 16]) -> Self {
        Self { store, next: 1, list: Vec::new() }
    }

    /// Those of a store. It has none without the file.
    pub fn read(files: &impl Files, header: &Header) -> Result<Self> {
        let Some(size) = files.size(StoreFile::Namespaces)? else { return Ok(Self::new(header.id)) };
        ensure!(size <= MAX, Corrupt, "the list of namespaces has {size} bytes; it has at most {MAX}");
        let mut bytes = vec![0; size as usize];
        files.read(StoreFile::Namespaces, 0, &mut bytes)?;
        let (_, read) = FORM.read::<Self>(&bytes)?;
        let name = StoreFile::Namespaces.name();
        ensure!(read.store == header.id, Corrupt, "the file {name} belongs to another store");
        read.ensure_valid(header).map_err(|error| error!(Corrupt, "the file {name}: {error}"))?;
        Ok(read)
    }

    /// The same for the writer. A list that is damaged has no namespaces; the error says why.
    pub fn recover(files: &impl Files, header: &Header) -> Result<(Self, Option<Error>)> {
        match Self::read(files, header) {
            Ok(list) => Ok((list, None)),
            Err(error) if error.status() == Status::Corrupt => Ok((Self::new(header.id), Some(error))),
            Err(error) => {
                let name = StoreFile::Namespaces.name();
                let advice = format!(
                    "without the file {name}, the store opens, and does not find the blocks of its namespaces"
                );
                Err(error.context(format!("read the file {name}")).with_advice(Some(advice)))
            }
        }
    }

    /// Makes the list durable. If this fails, the store has the list before or this one.
    pub fn write(&self, files: &impl Files) -> Result<()> {
        let bytes = FORM.write(VERSION, self)?;
        files.write(StoreFile::NewNamespaces, 0, &bytes)?;
        files.set_size(StoreFile::NewNamespaces, bytes.len() as u64)?;
        files.sync(StoreFile::NewNamespaces)?;
        files.rename(StoreFile::NewNamespaces, StoreFile::Namespaces)?;
        files.sync_folder()
    }

    pub fn find(&mut self, name: &str) -> Option<&mut Described> {
        self.list.iter_mut().find(|each| each.name == name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Described> {
        self.list.iter()
    }

    pub fn add(&mut self, described: Described) -> Result<()> {
        self.next = described.number.checked_add(1).ok_or_else(|| {
            error!(OutOfRange, "the store has had 4294967295 namespaces; create one in another folder")
        })?;
        self.list.push(described);
        Ok(())
    }

    pub fn remove(&mut self, number: u32) {
        self.list.retain(|each| each.number != number);
    }

    /// Gives no number again that blocks have, up to the newest one. Returns whether there are namespaces that the list does not know.
    ///
    /// A list that was lost may have had some more, without blocks. They are not among the next numbers, either.
    pub fn pass(&mut self, newest: u32) -> bool {
        let is_older = newest >= self.next;
        if is_older {
            self.next = (newest | NUMBERS_PASSED).saturating_add(1);
        }
        is_older
    }

    /// Fails for a list that no store of this header has.
    pub fn ensure_valid(&self, header: &Header) -> Result<()> {
        ensure!(
            self.list.len() <= MAX_COUNT,
            OutOfRange,
            "{} are more than the {MAX_COUNT} that a store has",
            Count(self.list.len() as u64, "namespace")
        );
        let (mut names, mut numbers, mut granted) = (HashSet::new(), HashSet::new(), 0u64);
        for Described { number, name, slots, .. } in &self.list {
            ensure!(
                (1..=MAX_NAME).contains(&name.len()),
                InvalidArgument,
                "the name of a namespace has {} bytes, it must have 1 to {MAX_NAME}",
                name.len()
            );
            // Names are in descriptions and messages, of which each line must be what it looks like.
            ensure!(
                !name.contains(char::is_control),
                InvalidArgument,
                "the name {name:?} of a namespace has a control character; use printable ones"
            );
            ensure!(
                (1..self.next).contains(number) && numbers.insert(number) && names.insert(name),
                InvalidArgument,
                "the namespace '{name}' has the number or the name of another one"
            );
            ensure!(
                *slots > 0,
                InvalidArgument,
                "the quota of the namespace '{name}' is less than a slot; set quota to at least slot_size bytes"
            );
            granted = granted.saturating_add(*slots);
        }
        ensure!(
            granted <= header.slots,
            OutOfRange,
            "the quotas of all namespaces would have {}, {} more than the store; set a quota with fewer slots, lower another one, or create \
             a larger store in another folder",
            Count(granted, "slot"),
            granted - header.slots
        );
        Ok(())
    }
}
