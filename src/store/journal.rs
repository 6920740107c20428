// SPDX-License-Identifier: Apache-2.0
//! The journal: records are appended to it, and a checkpoint replaces it when it has become long.

use serde::{Deserialize, Serialize};

use super::files::{Files, StoreFile};
use super::published::Published;
use super::record::{Read, Record, SIZE};
use crate::base::wire::Form;
use crate::base::{Error, Result, Status, ensure, fail, lists, log};

const VERSION: u16 = 1;
const FORM: Form =
    Form { magic: b"KVMEMIDX", versions: VERSION..=VERSION, name: "header of a store's index" };
const LENGTH: usize = size_of::<u32>();
/// Records that are read or written at a time.
const CHUNK: usize = 4096;

/// Bytes of a journal without records.
pub const EMPTY_JOURNAL: u64 = SIZE as u64;

/// The first 256 bytes of the file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Start {
    store: [u8; 16],
    generation: u64,
}

#[derive(Clone)]
pub struct Journal {
    start: Start,
    /// The number of the next record.
    next: u64,
    /// Readers know how far they may read.
    is_published: bool,
    /// Why it takes no more records until the store is opened again.
    broken: Option<Error>,
}

/// A journal that was read, and whether it should be replaced: some of its records are damaged.
pub struct Recovered {
    pub journal: Journal,
    pub damaged: u64,
}

impl Journal {
    /// Creates the journal of a store. Replaces one that an interrupted creation has left.
    pub fn create(files: &impl Files, store: [u8; 16]) -> Result<Self> {
        let mut journal =
            Self { start: Start { store, generation: 0 }, next: 0, is_published: false, broken: None };
        journal.write_whole(files, &[])?;
        replace(files)?;
        journal.publish_later(files);
        Ok(journal)
    }

    /// Replaces the journal by one with these records. If the new one cannot be written, the journal stays unchanged.
    pub fn checkpoint(&mut self, files: &impl Files, records: &[Record]) -> Result<()> {
        self.ensure_usable()?;
        let start = Start { generation: self.start.generation + 1, ..self.start };
        let mut next = Self { start, next: 0, is_published: false, broken: None };
        next.write_whole(files, records)?;
        // It is unknown which of the two is durable if this fails.
        replace(files).inspect_err(|error| self.broken = Some(error.clone()))?;
        *self = next;
        self.publish_later(files);
        Ok(())
    }

    /// Makes a file with these records durable, beside the journal.
    fn write_whole(&mut self, files: &impl Files, records: &[Record]) -> Result<()> {
        files.write(StoreFile::NewJournal, 0, &self.start.to_bytes()?)?;
        // One that an interrupted checkpoint has left may be longer.
        files.set_size(StoreFile::NewJournal, SIZE as u64)?;
        self.write(files, StoreFile::NewJournal, records)?;
        self.next = records.len() as u64;
        files.sync(StoreFile::NewJournal)
    }

    /// Reads the journal of a store, and passes each record to `replay`. What follows the last valid record was not written
    /// completely, and is removed, so that no later record makes it valid again.
    pub fn recover(
        files: &impl Files,
        store: [u8; 16],
        replay: impl FnMut(Record) -> Result<()>,
    ) -> Result<Recovered> {
        let mut recovered = Self::read(files, store, replay)?;
        let end = offset(recovered.journal.next);
        if files.size(StoreFile::Journal)?.is_some_and(|size| size > end) {
            files.set_size(StoreFile::Journal, end)?;
            files.sync(StoreFile::Journal)?;
        }
        recovered.journal.publish_later(files);
        Ok(recovered)
    }

    /// The same without a change of the file.
    pub fn read(
        files: &impl Files,
        store: [u8; 16],
        replay: impl FnMut(Record) -> Result<()>,
    ) -> Result<Recovered> {
        let (mut journal, count) = Self::open(files, store)?;
        let damaged = journal.read_to(files, count, replay)?;
        Ok(Recovered { journal, damaged })
    }

    /// A journal of which no record was read yet, and how many it has at most.
    pub fn open(files: &impl Files, store: [u8; 16]) -> Result<(Self, u64)> {
        let Some(size) = files.size(StoreFile::Journal)? else {
            fail!(Corrupt, "the store has no file {}", StoreFile::Journal.name());
        };
        ensure!(
            size >= SIZE as u64,
            Corrupt,
            "the index of the store has {size} bytes, its header alone {SIZE}"
        );
        let mut first = [0; SIZE];
        files.read(StoreFile::Journal, 0, &mut first)?;
        let start = Start::from_bytes(&first)?;
        ensure!(
            start.store == store,
            Corrupt,
            "the file {} belongs to another store",
            StoreFile::Journal.name()
        );
        Ok((Self { start, next: 0, is_published: false, broken: None }, size / SIZE as u64 - 1))
    }

    /// Reads the records from the next one up to the one with this number, and passes each to `replay`. Returns how many are damaged
    /// that are followed by a valid one.
    pub fn read_to(
        &mut self,
        files: &impl Files,
        end: u64,
        mut replay: impl FnMut(Record) -> Result<()>,
    ) -> Result<u64> {
        let (seed, mut damaged, mut sequence) = (self.seed(), 0, self.next);
        let mut buffer = vec![0; end.saturating_sub(sequence).min(CHUNK as u64) as usize * SIZE];
        while sequence < end {
            let chunk = (end - sequence).min(CHUNK as u64) as usize * SIZE;
            files.read(StoreFile::Journal, offset(sequence), &mut buffer[..chunk])?;
            for bytes in buffer[..chunk].as_chunks::<SIZE>().0 {
                match Record::from_bytes(bytes, sequence, seed) {
                    Read::Record(record) => {
                        damaged += sequence - self.next;
                        self.next = sequence + 1;
                        replay(record)?;
                    }
                    Read::Damaged => {}
                    Read::Newer => fail!(
                        VersionMismatch,
                        "record {sequence} of the store's index was written by a newer version of kvmem"
                    ),
                }
                sequence += 1;
            }
        }
        Ok(damaged)
    }

    /// Says how far readers in other processes may read. Until then they see none of the changes, so no slot of a removed block is
    /// written before.
    fn publish(&mut self, files: &impl Files) -> Result<()> {
        self.is_published = false;
        self.published().write(files, self.start.store)?;
        self.is_published = true;
        Ok(())
    }

    /// The same where nothing has changed. If there is no space for it, it is done before the next records are written.
    fn publish_later(&mut self, files: &impl Files) {
        if let Err(error) = self.publish(files) {
            log!(Warn, "readers of the store do not know its index yet: {error}");
        }
    }

    pub fn published(&self) -> Published {
        Published { generation: self.start.generation, records: self.next }
    }

    /// Appends records. With `syncs`, the blocks are durable before the records that name them are written, and the records when it returns.
    /// After a failure none of the records is in the journal, or the journal takes no more.
    pub fn append(&mut self, files: &impl Files, records: &[Record], syncs: bool) -> Result<()> {
        self.ensure_usable()?;
        if !self.is_published {
            self.publish(files)?;
        }
        if syncs && records.iter().any(|record| matches!(record, Record::Stored { .. })) {
            self.sync(files, StoreFile::Blocks)?;
        }
        if let Err(error) = self.write(files, StoreFile::Journal, records) {
            let undone = files
                .set_size(StoreFile::Journal, offset(self.next))
                .and_then(|()| files.sync(StoreFile::Journal));
            self.broken = undone.err();
            return Err(error);
        }
        if syncs {
            self.sync(files, StoreFile::Journal)?;
        }
        self.next += records.len() as u64;
        // The records are in the journal.
        self.publish(files).inspect_err(|error| self.broken = Some(error.clone()))
    }

    /// After a failure the journal takes no more records: the kernel reports a failed write once, and may then take the pages for written.
    pub fn sync(&mut self, files: &impl Files, file: StoreFile) -> Result<()> {
        self.ensure_usable()?;
        files.sync(file).inspect_err(|error| self.broken = Some(error.clone()))
    }

    pub fn records(&self) -> u64 {
        self.next
    }

    pub fn is_usable(&self) -> bool {
        self.broken.is_none()
    }

    fn ensure_usable(&self) -> Result<()> {
        match &self.broken {
            None => Ok(()),
            Some(error) => Err(error
                .clone()
                .context("the store's index takes no more changes until the store is opened again")
                .with_status(Status::InvalidState)),
        }
    }

    fn write(&self, files: &impl Files, file: StoreFile, records: &[Record]) -> Result<()> {
        let (seed, mut bytes, mut sequence) = (self.seed(), Vec::new(), self.next);
        for chunk in records.chunks(CHUNK) {
            bytes.clear();
            lists::reserve(&mut bytes, chunk.len() * SIZE)?;
            let at = offset(sequence);
            for record in chunk {
                bytes.extend_from_slice(&record.to_bytes(sequence, seed));
                sequence += 1;
            }
            files.write(file, at, &bytes)?;
        }
        Ok(())
    }

    /// Checksums of records start with it: what another journal has left on the disk is not valid here.
    fn seed(&self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.start.store), &self.start.generation.to_le_bytes())
    }
}

impl Start {
    fn to_bytes(self) -> Result<[u8; SIZE]> {
        let (form, mut bytes) = (FORM.write(VERSION, &self)?, [0; SIZE]);
        ensure!(form.len() <= SIZE - LENGTH, OutOfRange, "the header of the index has {} bytes", form.len());
        bytes[..LENGTH].copy_from_slice(&(form.len() as u32).to_le_bytes());
        bytes[LENGTH..LENGTH + form.len()].copy_from_slice(&form);
        Ok(bytes)
    }

    fn from_bytes(bytes: &[u8; SIZE]) -> Result<Self> {
        let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        let Some(form) = bytes[LENGTH..].get(..length).filter(|form| !form.is_empty()) else {
            fail!(Corrupt, "the header of the store's index is damaged: its length is {length}");
        };
        FORM.read(form).map(|(_, start)| start)
    }
}

/// Makes the next journal the journal.
fn replace(files: &impl Files) -> Result<()> {
    files.rename(StoreFile::NewJournal, StoreFile::Journal)?;
    files.sync_folder()
}

fn offset(sequence: u64) -> u64 {
    (sequence + 1) * SIZE as u64
}
