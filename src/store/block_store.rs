// SPDX-License-Identifier: Apache-2.0
//! A store: the index in memory and its journal. Who stores a block writes its bytes between [`Store::reserve`] and [`Store::commit`].

use super::files::{Files, StoreFile};
use super::index::{Counts, Index, Located, NewBlock, Reserved};
use super::journal::{Journal, Recovered};
use super::key::Key;
use super::record::Record;
use super::store_header::{Header, Identity};
use crate::base::{Mutex, Result, fail, lists, log};

/// When the blocks of a commit survive a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the system has written them. A process that is killed loses nothing.
    None,
    /// After the next flush. Until then, a process that is killed loses them, too.
    Relaxed,
    /// When the commit returns.
    Strict,
}

pub struct Store<F> {
    files: F,
    header: Header,
    durability: Durability,
    /// Locked before the index, and during calls of the file system.
    journal: Mutex<Pending>,
    /// Never locked during a call of the file system.
    index: Mutex<Index>,
}

struct Pending {
    journal: Journal,
    /// Records that are not in the journal yet.
    records: Vec<Record>,
    /// The journal is replaced when it has this many.
    long: u64,
}

/// A checkpoint replaces a journal of this many records more than two for each slot.
const LONG: u64 = 1024;
/// If there is no free slot, this fraction of all slots is freed, so that not each block has to wait for the journal.
const EVICTED_FRACTION: u64 = 64;

impl<F: Files> Store<F> {
    /// Creates a store, or opens one with this identity. One that exists keeps its number of slots.
    ///
    /// A crash before the header is written leaves no store.
    pub fn open_or_create(files: F, identity: &Identity, slots: u64, durability: Durability) -> Result<Self> {
        if let Some(header) = Header::read(&files)? {
            return Self::recover(files, header, identity, durability);
        }
        let (header, index) = (Header::new(identity, slots)?, Index::new(slots)?);
        // Its name is durable with those of the others. A layout treats an empty file as a new one.
        files.write(StoreFile::Blocks, 0, &[])?;
        let journal = Journal::create(&files, header.id)?;
        header.write(&files)?;
        Ok(Self::new(files, header, durability, journal, index))
    }

    /// Opens a store of this identity.
    pub fn open(files: F, identity: &Identity, durability: Durability) -> Result<Self> {
        match Header::read(&files)? {
            Some(header) => Self::recover(files, header, identity, durability),
            None => fail!(NotFound, "the folder contains no store"),
        }
    }

    fn recover(files: F, header: Header, identity: &Identity, durability: Durability) -> Result<Self> {
        header.ensure_same(identity)?;
        let mut index = Index::new(header.slots)?;
        let Recovered { mut journal, damaged } =
            Journal::recover(&files, header.id, |record| index.replay(record))?;
        index.list_free();
        if damaged > 0 {
            log!(Warn, "{damaged} records of the store's index were damaged; blocks may be missing");
            journal.checkpoint(&files, &index.records()?)?;
        }
        Ok(Self::new(files, header, durability, journal, index))
    }

    fn new(files: F, header: Header, durability: Durability, journal: Journal, index: Index) -> Self {
        let journal = Mutex::new(Pending { journal, records: Vec::new(), long: 2 * header.slots + LONG });
        Self { files, header, durability, journal, index: Mutex::new(index) }
    }

    pub fn slots(&self) -> u64 {
        self.header.slots
    }

    /// Notes for each key whether it is stored. Changes nothing, also not what is evicted next.
    pub fn contains(&self, keys: &[Key], found: &mut [bool]) {
        let index = self.index.lock();
        keys.iter().zip(found).for_each(|(key, found)| *found = index.contains(key));
    }

    /// Reserves a slot for each block; `None` for blocks that are stored, or that another caller is storing. Evicts others if there are not
    /// enough free slots. Fails with BUSY, and reserves none, if that does not suffice.
    pub fn reserve(&self, blocks: &[NewBlock]) -> Result<Vec<Option<Reserved>>> {
        while self.index.lock().missing(blocks) > 0 && self.make_free(blocks)? {}
        let mut index = self.index.lock();
        let mut reserved = Vec::new();
        lists::reserve(&mut reserved, blocks.len())?;
        for block in blocks {
            match index.reserve(*block) {
                Ok(slot) => reserved.push(slot),
                Err(error) => {
                    reserved.into_iter().flatten().for_each(|slot| index.abandon(slot));
                    return Err(error);
                }
            }
        }
        Ok(reserved)
    }

    /// Evicts blocks, and ends the quarantine of their slots. Returns false if none can be evicted.
    fn make_free(&self, blocks: &[NewBlock]) -> Result<bool> {
        let mut pending = self.journal.lock();
        let evicted = {
            let mut index = self.index.lock();
            let missing = index.missing(blocks);
            let fraction = if missing > 0 { (self.header.slots / EVICTED_FRACTION) as usize } else { 0 };
            index.evict(missing.max(fraction))
        };
        let is_freed = !evicted.is_empty();
        lists::extend(&mut pending.records, evicted)?;
        self.write_pending(&mut pending)?;
        Ok(is_freed)
    }

    /// Makes blocks visible whose bytes were written to reserved slots, each with its CRC32C. The blocks are as durable as the mode says when
    /// it returns. If it fails, no block is visible, and the slots are free again, unless it is unknown whether their records survive.
    pub fn commit(&self, written: Vec<(Reserved, u32)>) -> Result<()> {
        let mut pending = self.journal.lock();
        let outcome = self.write_stored(&mut pending, &written);
        let mut index = self.index.lock();
        for (reserved, checksum) in written {
            match outcome {
                Ok(()) => index.publish(reserved, checksum),
                Err(_) if pending.journal.is_usable() => index.abandon(reserved),
                Err(_) => {}
            }
        }
        outcome
    }

    fn write_stored(&self, pending: &mut Pending, written: &[(Reserved, u32)]) -> Result<()> {
        let records = {
            let index = self.index.lock();
            lists::collect(
                written.iter().filter_map(|(reserved, checksum)| index.record(reserved, *checksum)),
            )?
        };
        if self.durability == Durability::Relaxed {
            return lists::extend(&mut pending.records, records);
        }
        self.write_pending(pending)?;
        pending.journal.append(&self.files, &records, self.syncs())
    }

    /// Frees reserved slots whose blocks were not written.
    pub fn abandon(&self, reserved: Vec<Reserved>) {
        let mut index = self.index.lock();
        reserved.into_iter().for_each(|slot| index.abandon(slot));
    }

    /// The blocks of the first keys, up to the first that is not stored. They keep their slots until [`Self::release`].
    pub fn hold_run(&self, keys: &[Key]) -> Result<Vec<Located>> {
        self.index.lock().hold_run(keys)
    }

    /// Ends the use of blocks. Those with the indices in `damaged` did not have their checksum: they are removed, and their slots are not
    /// used again.
    pub fn release(&self, run: Vec<Located>, damaged: &[u64]) -> Result<()> {
        {
            let mut index = self.index.lock();
            run.iter().for_each(|block| index.release(block));
        }
        if damaged.is_empty() {
            return Ok(());
        }
        self.record(|index| {
            let found = damaged.iter().filter_map(|at| run.get(*at as usize));
            lists::collect(found.filter_map(|block| index.retire(block)))
        })
    }

    /// Removes a block. Returns false if the key is not stored. Fails with BUSY while the block is read.
    pub fn remove(&self, key: &Key) -> Result<bool> {
        let mut is_removed = false;
        self.record(|index| {
            let record = index.remove(key)?;
            is_removed = record.is_some();
            lists::collect(record)
        })?;
        Ok(is_removed)
    }

    /// Protects a block from eviction, or no longer. Returns false if it is not stored.
    pub fn pin(&self, key: &Key, is_pinned: bool) -> bool {
        self.index.lock().pin(key, is_pinned)
    }

    pub fn keys(&self) -> Result<Vec<Key>> {
        self.index.lock().keys()
    }

    pub fn counts(&self) -> Counts {
        self.index.lock().counts()
    }

    /// Makes all that was committed durable, whatever the mode.
    pub fn flush(&self) -> Result<()> {
        let mut pending = self.journal.lock();
        self.write_pending(&mut pending)?;
        if !self.syncs() {
            pending.journal.sync(&self.files, StoreFile::Blocks)?;
            pending.journal.sync(&self.files, StoreFile::Journal)?;
        }
        Ok(())
    }

    fn syncs(&self) -> bool {
        self.durability != Durability::None
    }

    /// Changes the index, and has the change in the journal when the mode requires it.
    fn record(&self, change: impl FnOnce(&mut Index) -> Result<Vec<Record>>) -> Result<()> {
        let mut pending = self.journal.lock();
        let records = change(&mut self.index.lock())?;
        lists::extend(&mut pending.records, records)?;
        match self.durability {
            Durability::Relaxed => Ok(()),
            Durability::None | Durability::Strict => self.write_pending(&mut pending),
        }
    }

    /// Appends the records that wait. The slots of removed blocks are free then: blocks are removed under the lock of the journal only,
    /// so the records of all removals are among them. After a failure the records wait further.
    fn write_pending(&self, pending: &mut Pending) -> Result<()> {
        if !pending.records.is_empty() {
            pending.journal.append(&self.files, &pending.records, self.syncs())?;
            pending.records.clear();
        }
        self.index.lock().end_quarantine();
        if pending.journal.records() >= pending.long {
            self.shorten(pending)?;
        }
        Ok(())
    }

    /// Replaces a long journal by a checkpoint. If there is no space for it, the journal grows further.
    fn shorten(&self, pending: &mut Pending) -> Result<()> {
        let records = self.index.lock().records()?;
        if let Err(error) = pending.journal.checkpoint(&self.files, &records) {
            log!(Warn, "the index of the store is not shortened: {error}");
            pending.long = pending.journal.records() + self.header.slots + LONG;
        }
        Ok(())
    }
}
