// SPDX-License-Identifier: Apache-2.0
//! A store: the index in memory and its journal. Who stores a block writes its bytes between [`Store::reserve`] and [`Store::commit`].

use std::ops::Range;

use super::blocks::{Counts, Entry, Located, NewBlock, Reserved, Written};
use super::commits::Commits;
use super::files::{Files, StoreFile};
use super::index::Index;
use super::journal::{Journal, Recovered};
use super::key::Key;
use super::listing::ListedRecords;
use super::namespace::Opened;
use super::namespace_list::NamespaceList;
use super::pools::Missing;
use super::record::Record;
use super::statistics::{EVICTED, HITS, MISSES};
use super::store_header::{Header, Identity};
use super::turns::InTurns;
use crate::base::{Count, Error, Mutex, Result, Status, ensure, error, lists, log};

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

/// What is the same for all blocks of an open store.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub durability: Durability,
    /// The store evicts blocks when it needs slots. Otherwise its caller removes some.
    pub evicts: bool,
    pub access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Write,
    /// Beside the process that writes, if there is one.
    Read,
}

pub struct Store<F> {
    pub(super) files: F,
    pub(super) header: Header,
    pub(super) policy: Policy,
    commits: Commits,
    /// Locked before the index, and during calls of the file system.
    pub(super) journal: Mutex<Pending>,
    /// Never locked during a call of the file system.
    pub(super) index: InTurns<Index>,
}

/// What the journal of a store is, and what it will have.
pub(super) struct Recovery {
    pub(super) header: Header,
    pub(super) journal: Journal,
    pub(super) index: Index,
    pub(super) namespaces: NamespaceList,
}

pub(super) struct Pending {
    pub(super) journal: Journal,
    /// Records that are not in the journal yet.
    pub(super) records: Vec<Record>,
    pub(super) namespaces: NamespaceList,
    pub(super) opened: Opened,
    /// They could not be written when this was tried last.
    is_behind: bool,
    /// The journal is replaced when it has this many.
    long: u64,
}

/// A checkpoint replaces a journal of this many records more than two for each slot.
const LONG: u64 = 1024;
/// Keys that are looked up, and slots that are listed, while the index is locked. Others get it between them.
pub(super) const LOOK_UPS: usize = 256;
pub(super) const LISTED: usize = 4096;
/// If there is no free slot, this fraction of all slots is freed, so that not each block has to wait for the journal.
const EVICTED_FRACTION: u64 = 64;

impl<F: Files> Store<F> {
    /// Creates a store, or opens one with this identity. One that exists keeps its number of slots.
    ///
    /// A crash before the header is written leaves no store.
    pub fn open_or_create(files: F, identity: &Identity, slots: u64, policy: Policy) -> Result<Self> {
        if let Some(header) = Header::read(&files)? {
            return Self::recover(files, header, identity, policy);
        }
        let (header, index) = (Header::new(identity, slots)?, Index::new(slots)?);
        // Its name is durable with those of the others. A layout treats an empty file as a new one.
        files.write(StoreFile::Blocks, 0, &[])?;
        let journal = Journal::create(&files, header.id)?;
        header.write(&files)?;
        let namespaces = NamespaceList::new(header.id);
        Ok(Self::new(files, policy, Recovery { header, journal, index, namespaces }))
    }

    /// What the header of the store says; `None` if there is no store.
    pub fn header_in(files: &F) -> Result<Option<Header>> {
        Header::read(files)
    }

    fn recover(files: F, header: Header, identity: &Identity, policy: Policy) -> Result<Self> {
        header.ensure_same(identity)?;
        // Opened before blocks are written, because the kernel reports a failed write to files that were open then.
        files.size(StoreFile::Blocks)?;
        let (mut index, namespaces) =
            (Index::to_replay(header.slots)?, NamespaceList::read(&files, &header)?);
        namespaces.iter().for_each(|each| index.set_quota(each.number, each.slots));
        let Recovered { mut journal, damaged } = Journal::recover(&files, header.id, |record| {
            namespaces.ensure_known(&record)?;
            index.replay(record)
        })?;
        index.end_replay();
        if damaged > 0 {
            log!(Warn, "damaged records of the store's index: {damaged}; blocks may be missing");
            // What is damaged stays so, and is left out when the store is opened again.
            let mut listed = ListedRecords::default();
            index.list_records(0..header.slots as usize, &mut listed)?;
            if let Err(error) = journal.checkpoint(&files, &listed.in_order()?) {
                log!(Warn, "the index of the store is not replaced: {error}");
            }
        }
        Ok(Self::new(files, policy, Recovery { header, journal, index, namespaces }))
    }

    pub(super) fn new(files: F, policy: Policy, recovery: Recovery) -> Self {
        let Recovery { header, journal, index, namespaces } = recovery;
        let (long, records, opened) = (2 * header.slots + LONG, Vec::new(), Vec::new());
        let journal = Mutex::new(Pending { journal, records, namespaces, opened, is_behind: false, long });
        Self { files, header, policy, commits: Commits::default(), journal, index: InTurns::new(index) }
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    pub fn slots(&self) -> u64 {
        self.header.slots
    }

    /// Distinguishes the files of the store from those of others.
    pub fn id(&self) -> [u8; 16] {
        self.header.id
    }

    /// Notes for each key whether it is stored. Changes nothing, also not what is evicted next.
    pub fn contains(&self, keys: impl Iterator<Item = Key>, mut found: impl FnMut(bool)) {
        self.in_steps(keys, |index, key| found(index.contains(&key)));
    }

    /// Does something for each item. Others get the index between some of them.
    pub(super) fn in_steps<T>(&self, items: impl Iterator<Item = T>, mut act: impl FnMut(&mut Index, T)) {
        let mut items = items.peekable();
        while items.peek().is_some() {
            let mut index = self.index.lock();
            items.by_ref().take(LOOK_UPS).for_each(|item| act(&mut index, item));
        }
    }

    /// Reserves a slot for each block of a namespace; `None` for blocks that are stored, or that another caller is storing. Evicts others if there are not
    /// enough free slots. Fails with BUSY, and reserves none, if that does not suffice.
    pub fn reserve(&self, blocks: &[NewBlock]) -> Result<Vec<Option<Reserved>>> {
        self.ensure_writable()?;
        let limit = self.index.lock().limit(NewBlock::namespace_of(blocks));
        ensure!(
            blocks.len() as u64 <= limit,
            OutOfRange,
            "{} blocks do not fit the {} of {}",
            blocks.len(),
            Count(limit, "slot"),
            match NewBlock::namespace_of(blocks) {
                0 =>
                    "the store; give fewer keys, lower quotas, or create a store with more slots in another folder",
                _ => "the namespace; give fewer keys, or set a higher quota",
            }
        );
        loop {
            let mut can_free = true;
            // Slots of removed blocks are free after the next write of the journal, also if the caller evicts.
            while can_free && self.missing(blocks).count() > 0 {
                can_free = self.make_free(blocks)?;
            }
            match self.reserve_now(blocks) {
                // Another put has taken them meanwhile.
                Err(error) if can_free && error.status() == Status::Busy => {}
                outcome => return outcome.map_err(|error| self.full(error)),
            }
        }
    }

    /// The same if it has not to wait for a file; otherwise `None`.
    pub fn reserve_free(&self, blocks: &[NewBlock]) -> Option<Vec<Option<Reserved>>> {
        if self.policy.access == Access::Read {
            return None;
        }
        if self.missing(blocks).count() == 0 { self.reserve_now(blocks).ok() } else { None }
    }

    /// The slots that must be freed before all of these blocks have one.
    fn missing(&self, blocks: &[NewBlock]) -> Missing {
        let new = blocks.chunks(LOOK_UPS).map(|part| self.index.lock().new_blocks(part)).sum();
        self.index.lock().missing(NewBlock::namespace_of(blocks), new)
    }

    fn reserve_now(&self, blocks: &[NewBlock]) -> Result<Vec<Option<Reserved>>> {
        let mut reserved = Vec::new();
        lists::reserve(&mut reserved, blocks.len())?;
        let outcome = blocks.chunks(LOOK_UPS).try_for_each(|part| {
            let mut index = self.index.lock();
            part.iter().try_for_each(|block| index.reserve(*block).map(|slot| reserved.push(slot)))
        });
        match outcome {
            Ok(()) => Ok(reserved),
            Err(error) => {
                self.abandon(reserved.into_iter().flatten());
                Err(error)
            }
        }
    }

    fn full(&self, error: Error) -> Error {
        if self.policy.evicts || error.status() != Status::Busy {
            return error;
        }
        error!(
            OutOfMemory,
            "the store has no free slot; remove blocks by kvmem_store_remove, or let the store evict them with KVMEM_EVICTION_STORE"
        )
    }

    /// Evicts blocks, and ends the quarantine of their slots. Returns false if slots are missing, and none can be freed.
    pub(super) fn make_free(&self, blocks: &[NewBlock]) -> Result<bool> {
        let mut pending = self.journal.lock();
        if pending.is_behind {
            // Puts that fail, as on a full disk, do not empty the store.
            return self.write_pending(&mut pending).map(|()| true);
        }
        let (namespace, missing) = (NewBlock::namespace_of(blocks), self.missing(blocks));
        let quarantined = self.index.lock().quarantine.len();
        let fraction = self.index.lock().limit(namespace) / EVICTED_FRACTION;
        // The write below frees those in quarantine. They are no help to a namespace that is above its quota.
        let wanted = missing.after_freeing(quarantined).at_least(fraction as usize);
        let mut wanted = if self.policy.evicts { wanted } else { Missing::default() };
        let count = wanted.count();
        // Each block that is removed has a record.
        lists::reserve(&mut pending.records, count)?;
        let mut evicted = Vec::new();
        lists::reserve(&mut evicted, count)?;
        while evicted.len() < count {
            let most = LOOK_UPS.min(count - evicted.len());
            let part = self.index.lock().evict(namespace, &mut wanted, most);
            if part.is_empty() {
                break;
            }
            evicted.extend(part);
        }
        EVICTED.add(evicted.len() as u64);
        let is_freed = missing.own == 0 && missing.any <= quarantined || !evicted.is_empty();
        lists::extend(&mut pending.records, evicted)?;
        self.write_pending(&mut pending)?;
        Ok(is_freed)
    }

    /// Makes blocks visible whose bytes were written to reserved slots. The blocks are as durable as the mode says when
    /// it returns. If it fails, no block is visible, and the slots are free again, unless it is unknown whether their records survive.
    ///
    /// Commits that wait while another one is written are written together, with one sync of each file.
    pub fn commit(&self, written: Vec<Written>) -> Result<()> {
        let commit = match self.commits.add(written) {
            Ok(commit) => commit,
            Err((written, error)) => {
                self.abandon(written.into_iter().map(|written| written.slot));
                return Err(error);
            }
        };
        let mut pending = self.journal.lock();
        self.commits.write_waiting(|written| {
            let outcome = self.write_stored(&mut pending, written.iter().flatten());
            let is_usable = pending.journal.is_usable();
            self.in_steps(written.into_iter().flatten(), |index, written| match outcome {
                Ok(()) => index.publish(written),
                Err(_) if is_usable => index.abandon(written.slot),
                Err(_) => {}
            });
            outcome
        });
        drop(pending);
        commit.outcome()
    }

    /// Commits that wait for another one.
    #[cfg(test)]
    pub fn waiting_commits(&self) -> usize {
        self.commits.waiting()
    }

    fn write_stored<'a>(
        &self,
        pending: &mut Pending,
        written: impl Iterator<Item = &'a Written>,
    ) -> Result<()> {
        let (mut records, mut outcome) = (Vec::new(), Ok(()));
        self.in_steps(written, |index, written| {
            if let Some(record) = index.record(written)
                && outcome.is_ok()
            {
                outcome = lists::push(&mut records, record);
            }
        });
        outcome?;
        if self.policy.durability == Durability::Relaxed {
            return lists::extend(&mut pending.records, records);
        }
        self.write_pending(pending)?;
        pending.journal.append(&self.files, &records, self.syncs())
    }

    /// Frees reserved slots whose blocks were not written.
    pub fn abandon(&self, reserved: impl Iterator<Item = Reserved>) {
        self.in_steps(reserved, Index::abandon);
    }

    /// The blocks of the first keys, up to the first that is not stored. They keep their slots until [`Self::release`].
    pub fn hold_run(&self, keys: &[Key]) -> Result<Vec<Located>> {
        let (mut run, mut is_stored) = (Vec::new(), true);
        lists::reserve(&mut run, keys.len())?;
        self.in_steps(keys.iter(), |index, key| {
            is_stored = is_stored && index.hold(key).map(|block| run.push(block)).is_some();
        });
        Ok(run)
    }

    /// Counts the keys of a get that has begun.
    pub fn count_get(&self, namespace: u32, hits: usize, misses: usize) {
        self.index.lock().count_get(namespace, hits, misses);
        HITS.add(hits as u64);
        MISSES.add(misses as u64);
    }

    /// Holds some of the stored blocks of a namespace, or of all, from a slot on, until [`Self::release`].
    pub fn hold_from(&self, namespace: Option<u32>, first: u64, count: usize) -> Result<Vec<Located>> {
        let mut held = Vec::new();
        lists::reserve(&mut held, count)?;
        for slots in self.parts_from(first) {
            self.index.lock().hold_in(namespace, slots, count, &mut held);
            if held.len() == count {
                break;
            }
        }
        Ok(held)
    }

    /// Ends the use of blocks.
    pub fn release(&self, run: Vec<Located>) {
        self.in_steps(run.iter(), Index::release);
    }

    /// Protects blocks from eviction, or no longer. Returns how many are stored.
    pub fn pin(&self, keys: impl Iterator<Item = Key>, is_pinned: bool) -> Result<u64> {
        self.ensure_writable()?;
        let mut found = 0;
        self.in_steps(keys, |index, key| found += u64::from(index.pin(&key, is_pinned)));
        Ok(found)
    }

    /// Passes the stored blocks of a namespace from a slot on to `take`, in the order of their slots, at most so many.
    pub fn list(&self, namespace: u32, first: u64, count: usize, mut take: impl FnMut(Entry)) {
        let mut left = count;
        for slots in self.parts_from(first) {
            let index = self.index.lock();
            index.entries(namespace, slots).take(left).for_each(|entry| {
                take(entry);
                left -= 1;
            });
            if left == 0 {
                return;
            }
        }
    }

    /// All slots from one on, in parts for each of which the index is locked once.
    pub(super) fn parts_from(&self, first: u64) -> impl Iterator<Item = Range<usize>> {
        let end = self.slots() as usize;
        let first = usize::try_from(first).unwrap_or(end);
        (first..end).step_by(LISTED).map(move |from| from..end.min(from + LISTED))
    }

    pub fn counts(&self) -> Counts {
        self.index.lock().counts()
    }

    pub fn counts_of(&self, namespace: u32) -> Counts {
        self.index.lock().counts_of(namespace)
    }

    /// Makes all that was committed durable, whatever the mode. A reader reads what the writer has published.
    pub fn flush(&self) -> Result<()> {
        if self.policy.access == Access::Read {
            return self.read_on();
        }
        let mut pending = self.journal.lock();
        self.write_pending(&mut pending)?;
        if !self.syncs() {
            pending.journal.sync(&self.files, StoreFile::Blocks)?;
            pending.journal.sync(&self.files, StoreFile::Journal)?;
        }
        Ok(())
    }

    fn syncs(&self) -> bool {
        self.policy.durability != Durability::None
    }

    /// Appends the records that wait. The slots of removed blocks are free then: blocks are removed under the lock of the journal only,
    /// so the records of all removals are among them. After a failure the records wait further.
    pub(super) fn write_pending(&self, pending: &mut Pending) -> Result<()> {
        if !pending.records.is_empty() {
            pending.is_behind = true;
            pending.journal.append(&self.files, &pending.records, self.syncs())?;
            pending.is_behind = false;
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
        // All slots whose blocks change are changed under the lock of the journal.
        let mut listed = ListedRecords::default();
        self.parts_from(0).try_for_each(|slots| self.index.lock().list_records(slots, &mut listed))?;
        let records = listed.in_order()?;
        if let Err(error) = pending.journal.checkpoint(&self.files, &records) {
            log!(Warn, "the index of the store is not shortened: {error}");
            pending.long = pending.journal.records() + self.header.slots + LONG;
        }
        Ok(())
    }
}
