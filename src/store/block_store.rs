// SPDX-License-Identifier: Apache-2.0
//! A store: the index in memory and its journal. Who stores a block writes its bytes between [`Store::reserve`] and [`Store::commit`].

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::blocks::{Counts, Entry, Located, Written};
use super::commits::Commits;
use super::files::{Files, StoreFile};
use super::index::Index;
use super::journal::{Journal, Recovered};
use super::key::Key;
use super::listing::ListedRecords;
use super::namespace::Opened;
use super::namespace_list::NamespaceList;
use super::record::Record;
use super::statistics::{HITS, MISSES, ReportedStore};
use super::store_header::{Header, Identity};
use super::turns::InTurns;
use crate::base::{Count, Mutex, Result, lists, log};

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
    pub(super) index: Arc<InTurns<Index>>,
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
    pub(super) is_behind: bool,
    /// The journal is replaced when it has this many.
    long: u64,
}

/// A checkpoint replaces a journal of this many records more than two for each slot.
const LONG: u64 = 1024;
/// Keys that are looked up, and slots that are listed, while the index is locked. Others get it between them.
pub(super) const LOOK_UPS: usize = 256;
pub(super) const LISTED: usize = 4096;

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
        let (mut index, (mut namespaces, damage)) =
            (Index::to_replay(header.slots)?, NamespaceList::recover(&files, &header)?);
        namespaces.iter().for_each(|each| index.set_quota(each.number, each.slots));
        let mut newest = 0;
        let Recovered { mut journal, damaged } = Journal::recover(&files, header.id, |record| {
            newest = newest.max(record.namespace());
            index.replay(record)
        })?;
        index.end_replay();
        let is_older = namespaces.pass(newest);
        if damage.is_some() || is_older {
            let why =
                damage.map_or("it is missing, or older than the index".into(), |error| error.to_string());
            let lost = Count(index.pools.used_by_unlisted(), "block");
            log!(
                Warn,
                "the file {} of the store lacks namespaces ({why}): {lost} of these are not found, and are evicted before others; open \
                 the namespaces again, with their quotas",
                StoreFile::Namespaces.name()
            );
        }
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
        Self {
            files,
            header,
            policy,
            commits: Commits::default(),
            journal,
            index: Arc::new(InTurns::new(index)),
        }
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
            let outcome = self.write_stored(&mut pending, &written);
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

    fn write_stored(&self, pending: &mut Pending, written: &[Vec<Written>]) -> Result<()> {
        let mut records = Vec::new();
        // Not while the index is locked.
        lists::reserve(&mut records, written.iter().map(Vec::len).sum())?;
        self.in_steps(written.iter().flatten(), |index, written| records.extend(index.record(written)));
        if self.policy.durability == Durability::Relaxed {
            return lists::extend(&mut pending.records, records);
        }
        self.write_pending(pending)?;
        pending.journal.append(&self.files, &records, self.syncs())
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

    /// What statistics report of it, by its path, until this is dropped. It holds no file.
    pub fn reported(&self, path: &Path) -> Result<Arc<ReportedStore>> {
        ReportedStore::new(path, self.index.clone())
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
        while self.index.lock().end_quarantine(LISTED) {}
        if pending.journal.records() >= pending.long
            && let Err(error) = self.shorten(&mut pending.journal)
        {
            log!(Warn, "the index of the store is not shortened: {error}");
            pending.long = pending.journal.records() + self.header.slots + LONG;
        }
        Ok(())
    }

    /// Replaces a long journal by a checkpoint. If there is no space or memory for it, the journal grows further.
    fn shorten(&self, journal: &mut Journal) -> Result<()> {
        // All slots whose blocks change are changed under the lock of the journal.
        let mut listed = ListedRecords::default();
        self.parts_from(0).try_for_each(|slots| self.index.lock().list_records(slots, &mut listed))?;
        journal.checkpoint(&self.files, &listed.in_order()?)
    }
}
