// SPDX-License-Identifier: Apache-2.0
//! The header of a store: what its blocks are, and how many it holds.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::files::{Files, StoreFile};
use super::journal::EMPTY_JOURNAL;
use crate::base::wire::Form;
use crate::base::{Error, Result, ensure, fail, random};
use crate::layout::ContentIdentity;
use crate::region::Label;

/// Version 1 did not label the file of blocks with the id of the store.
const VERSION: u16 = 2;
const FORM: Form = Form { magic: b"KVMEMSTO", versions: VERSION..=VERSION, name: "header of a store" };
/// Bytes of the longest header.
const MAX: u64 = 1 << 20;
/// Slots are numbered by 32 bits in memory, and the last number is none.
const MAX_SLOTS: u64 = u32::MAX as u64;

/// What the blocks of a store are: a store with another identity is not opened.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Names and values, such as model, revision and data type. Sorted by name.
    values: Vec<(String, ContentIdentity)>,
    /// The fingerprint of the layout.
    layout: Label,
}

impl Identity {
    pub fn new(values: &[(&str, &[u8])], layout: Label) -> Result<Self> {
        let values = values.iter().map(|(name, value)| Ok((name.to_string(), ContentIdentity::new(value)?)));
        let mut values = values.collect::<Result<Vec<_>>>()?;
        values.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        if let Some(twice) = values.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            fail!(InvalidArgument, "the identity names '{}' twice", twice[0].0);
        }
        let largest = Header { id: [u8::MAX; 16], slots: MAX_SLOTS, values, layout: layout.bytes.clone() };
        let size = FORM.write(VERSION, &largest)?.len() as u64;
        ensure!(
            size <= MAX,
            InvalidArgument,
            "the identity has {size} bytes with its names, and may have {MAX}; give a hash of some values, or shorter names"
        );
        Ok(Self { values: largest.values, layout })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Random: it distinguishes the journal from that of another store.
    pub id: [u8; 16],
    pub slots: u64,
    pub(super) values: Vec<(String, ContentIdentity)>,
    #[serde(with = "serde_bytes")]
    pub(super) layout: Vec<u8>,
}

impl Header {
    pub fn new(identity: &Identity, slots: u64) -> Result<Self> {
        let header = Self {
            id: random()?,
            slots,
            values: identity.values.clone(),
            layout: identity.layout.bytes.clone(),
        };
        header.ensure_countable()?;
        Ok(header)
    }

    fn ensure_countable(&self) -> Result<()> {
        ensure!(
            (1..MAX_SLOTS).contains(&self.slots),
            InvalidArgument,
            "a store has {} slots, it must have 1 to {}",
            self.slots,
            MAX_SLOTS - 1
        );
        Ok(())
    }

    /// Makes the header durable, and with it the store.
    pub fn write(&self, files: &impl Files) -> Result<()> {
        let bytes = FORM.write(VERSION, self)?;
        files.write(StoreFile::NewHeader, 0, &bytes)?;
        files.set_size(StoreFile::NewHeader, bytes.len() as u64)?;
        files.sync(StoreFile::NewHeader)?;
        files.rename(StoreFile::NewHeader, StoreFile::Header)?;
        files.sync_folder()
    }

    /// The header of a store; `None` if there is no store. One without blocks and records is none: its creation has failed, as on a full
    /// disk, or was interrupted.
    pub fn read(files: &impl Files) -> Result<Option<Self>> {
        let used = Self::used_file(files)?;
        let size = match (files.size(StoreFile::Header)?, used) {
            (Some(size), Some(_)) => size,
            (_, None) => return Ok(None),
            (None, Some(file)) => fail!(
                Corrupt,
                "the file {} is missing, to which the file {} belongs",
                StoreFile::Header.name(),
                file.name()
            ),
        };
        ensure!(size <= MAX, Corrupt, "the header of the store has {size} bytes; it has at most {MAX}");
        let mut bytes = vec![0; size as usize];
        files.read(StoreFile::Header, 0, &mut bytes)?;
        let (_, header) = FORM.read::<Self>(&bytes)?;
        header.ensure_countable()?;
        Ok(Some(header))
    }

    /// A file that a store has after its creation only.
    fn used_file(files: &impl Files) -> Result<Option<StoreFile>> {
        let limits =
            [(StoreFile::Blocks, 0), (StoreFile::Journal, EMPTY_JOURNAL), (StoreFile::Namespaces, 0)];
        for (file, limit) in limits {
            if files.size(file)?.is_some_and(|size| size > limit) {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// Fails for a store of other blocks, with each name that differs.
    pub fn ensure_same(&self, wanted: &Identity) -> Result<()> {
        let (there, here) = (by_name(&self.values), by_name(&wanted.values));
        let names: BTreeSet<_> =
            there.keys().chain(here.keys()).filter(|name| there.get(*name) != here.get(*name)).collect();
        let shown =
            |value: Option<&&ContentIdentity>| value.map_or("missing".to_string(), |value| value.to_string());
        let different: Vec<_> = names
            .into_iter()
            .map(|name| {
                format!(
                    "{name} is {} in the store and {} here",
                    shown(there.get(name)),
                    shown(here.get(name))
                )
            })
            .collect();
        ensure!(
            different.is_empty(),
            InvalidArgument,
            "the store has blocks of another identity: {}; open the store of this identity, or create one in another folder",
            different.join(", ")
        );
        let different = (wanted.layout.differences)(&self.layout, &wanted.layout.bytes)
            .map_err(|error: Error| error.context("the layout of the store"))?;
        ensure!(
            different.is_empty(),
            InvalidArgument,
            "the store has blocks of another shape: {}; give the shape of the store, whose number of blocks may be 0, or create \
             one in another folder",
            different.join(", ")
        );
        Ok(())
    }
}

fn by_name(values: &[(String, ContentIdentity)]) -> BTreeMap<&str, &ContentIdentity> {
    values.iter().map(|(name, value)| (name.as_str(), value)).collect()
}
