// SPDX-License-Identifier: Apache-2.0
//! A store that is open for reading, beside the process that writes it. Its index follows the journal of the writer.
//!
//! The writer publishes the removal of a block before the slot has other bytes. So a block was read with its own bytes if the index has
//! it after that, too.

use super::block_store::{Access, Pending, Policy, Recovery, Store};
use super::blocks::Located;
use super::files::{Files, StoreFile};
use super::index::Index;
use super::journal::Journal;
use super::namespace_list::NamespaceList;
use super::published::Published;
use super::store_header::{Header, Identity};
use crate::base::{Result, ensure, error, fail, lists};

/// How often a journal is opened that the writer replaces again and again.
const ATTEMPTS: usize = 1000;

impl<F: Files> Store<F> {
    /// Opens a store for reading.
    pub fn open_to_read(files: F, identity: &Identity, policy: Policy) -> Result<Self> {
        let header = Header::read(&files)?.ok_or_else(|| error!(NotFound, "the folder contains no store"))?;
        header.ensure_same(identity)?;
        let (journal, index) = readable_journal(&files, &header, 0)?;
        Ok(Self::reader(files, policy, header, journal, index))
    }

    /// Its namespaces are read when one is opened.
    fn reader(files: F, policy: Policy, header: Header, journal: Journal, index: Index) -> Self {
        let namespaces = NamespaceList::new(header.id);
        Self::new(files, policy, Recovery { header, journal, index, namespaces })
    }

    /// Reads what can be read since the last time.
    pub(super) fn read_on(&self) -> Result<()> {
        let mut pending = self.journal.lock();
        for _ in 0..ATTEMPTS {
            let readable = Readable::now(&self.files, &self.header)?;
            if readable.published.generation != pending.journal.published().generation {
                return self.read_again(&mut pending);
            }
            let (mut journal, mut records) = (pending.journal.clone(), Vec::new());
            let end = readable.published.records;
            let read = journal.read_to(&self.files, end, |record| lists::push(&mut records, record));
            if !readable.holds(&self.files, &self.header)? {
                continue;
            }
            read?;
            pending.journal = journal;
            let mut outcome = Ok(());
            self.in_steps(records.into_iter(), |index, record| {
                if outcome.is_ok() {
                    outcome = index.replay(record);
                }
            });
            return outcome;
        }
        changes_now()
    }

    /// Reads a journal that has replaced the last one.
    fn read_again(&self, pending: &mut Pending) -> Result<()> {
        self.files.reopen(StoreFile::Journal);
        // No block of it is taken for one of the index before. Only this thread stores blocks in that: it has the lock of the journal.
        let clock = self.index.lock().clock();
        let (journal, mut next) = readable_journal(&self.files, &self.header, clock)?;
        let mut index = self.index.lock();
        next.follow(&index);
        let before = std::mem::replace(&mut *index, next);
        pending.journal = journal;
        drop((index, before));
        Ok(())
    }

    /// The indices of blocks that were replaced since they were located: their bytes may be those of others.
    pub fn replaced(&self, run: &[Located]) -> Result<Vec<u64>> {
        if self.policy().access == Access::Write {
            return Ok(Vec::new());
        }
        self.read_on()?;
        let mut replaced = Vec::new();
        self.in_steps((0..).zip(run), |index, (at, block)| {
            replaced.extend((!index.has(block)).then_some(at))
        });
        Ok(replaced)
    }

    pub fn ensure_writable(&self) -> Result<()> {
        ensure!(
            self.policy().access == Access::Write,
            PermissionDenied,
            "the store is open for reading, with KVMEM_DISK_READ_ONLY; only its writer changes it"
        );
        Ok(())
    }
}

/// What can be read of a journal.
struct Readable {
    published: Published,
    /// What a writer has published, if anything.
    said: Option<Published>,
    has_writer: bool,
}

impl Readable {
    /// What the writer has published. Without a writer all valid records, as a writer that opens the store would read them: one that was
    /// killed, or was refused the store, may have published less, or nothing.
    fn now(files: &impl Files, header: &Header) -> Result<Self> {
        let said = Published::read(files, header.id)?;
        let has_writer = files.has_writer()?;
        let published = match said {
            Some(said) if has_writer => said,
            None if has_writer => {
                fail!(Busy, "a process opens the store for writing now; try again when it is open there")
            }
            _ => {
                files.reopen(StoreFile::Journal);
                let (journal, records) = Journal::open(files, header.id)?;
                Published { records, ..journal.published() }
            }
        };
        Ok(Self { published, said, has_writer })
    }

    /// Whether what was read since is still to be read: a writer that has come meanwhile may have withdrawn it.
    fn holds(&self, files: &impl Files, header: &Header) -> Result<bool> {
        Ok(self.has_writer || (!files.has_writer()? && Published::read(files, header.id)? == self.said))
    }
}

/// The journal that can be read now, and its index, whose clock begins after `clock`.
fn readable_journal(files: &impl Files, header: &Header, clock: u64) -> Result<(Journal, Index)> {
    for _ in 0..ATTEMPTS {
        let readable = Readable::now(files, header)?;
        let (mut journal, _) = Journal::open(files, header.id)?;
        if journal.published().generation == readable.published.generation {
            let mut index = Index::to_replay(header.slots)?.after(clock);
            let read = journal.read_to(files, readable.published.records, |record| index.replay(record));
            if readable.holds(files, header)? {
                return read.map(|_| (journal, index));
            }
        }
        files.reopen(StoreFile::Journal);
    }
    changes_now()
}

fn changes_now<T>() -> Result<T> {
    fail!(Busy, "the writer of the store replaces its index now; try again")
}
