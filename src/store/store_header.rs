// SPDX-License-Identifier: Apache-2.0
//! The header of a store: what its blocks are, and how many it holds.

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
        Ok(Self { values, layout })
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
        ensure!(
            bytes.len() as u64 <= MAX,
            InvalidArgument,
            "an identity of {} bytes is too large",
            bytes.len()
        );
        files.write(StoreFile::NewHeader, 0, &bytes)?;
        files.set_size(StoreFile::NewHeader, bytes.len() as u64)?;
        files.sync(StoreFile::NewHeader)?;
        files.rename(StoreFile::NewHeader, StoreFile::Header)?;
        files.sync_folder()
    }

    /// The header of a store; `None` if there is no store.
    pub fn read(files: &impl Files) -> Result<Option<Self>> {
        let Some(size) = files.size(StoreFile::Header)? else {
            return Self::ensure_no_store(files).map(|()| None);
        };
        ensure!(size <= MAX, Corrupt, "the header of the store has {size} bytes; it has at most {MAX}");
        let mut bytes = vec![0; size as usize];
        files.read(StoreFile::Header, 0, &mut bytes)?;
        let (_, header) = FORM.read::<Self>(&bytes)?;
        header.ensure_countable()?;
        Ok(Some(header))
    }

    /// Fails for files of a store whose header is missing. A creation that was interrupted leaves no block and no record.
    fn ensure_no_store(files: &impl Files) -> Result<()> {
        let limits =
            [(StoreFile::Blocks, 0), (StoreFile::Journal, EMPTY_JOURNAL), (StoreFile::Namespaces, 0)];
        for (file, limit) in limits {
            let is_used = files.size(file)?.is_some_and(|size| size > limit);
            // Another process may have created the store since.
            ensure!(
                !is_used || files.size(StoreFile::Header)?.is_some(),
                Corrupt,
                "the file {} is missing, to which the file {} belongs",
                StoreFile::Header.name(),
                file.name()
            );
        }
        Ok(())
    }

    /// Fails for a store of other blocks, with each name that differs.
    pub fn ensure_same(&self, wanted: &Identity) -> Result<()> {
        let shown = |found: Option<&(String, ContentIdentity)>| {
            found.map_or("missing".to_string(), |(_, value)| value.to_string())
        };
        let value = |list: &[(String, ContentIdentity)], name: &str| {
            list.iter().find(|(other, _)| other == name).cloned()
        };
        let names = self.values.iter().chain(&wanted.values).map(|(name, _)| name.as_str());
        let mut different = Vec::new();
        for name in names {
            let (there, here) = (value(&self.values, name), value(&wanted.values, name));
            let text = || {
                format!("{name} is {} in the store and {} here", shown(there.as_ref()), shown(here.as_ref()))
            };
            if there != here && !different.contains(&text()) {
                different.push(text());
            }
        }
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
