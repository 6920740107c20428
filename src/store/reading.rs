// SPDX-License-Identifier: Apache-2.0
//! A store that is open for reading, beside the process that writes it. Its index follows the journal of the writer.
//!
//! The writer publishes the removal of a block before the slot has other bytes. So a block was read with its own bytes if the index has
//! it after that, too.

use super::block_store::{Access, Policy, Recovery, Store};
use super::blocks::Located;
use super::files::{Files, StoreFile, StoreFolder};
use super::index::Index;
use super::journal::{Journal, Recovered};
use super::namespace_list::NamespaceList;
use super::published::Published;
use super::store_header::{Header, Identity};
use crate::base::{Result, ensure, error, fail, lists};

/// How often a journal is opened that the writer replaces again and again.
const ATTEMPTS: usize = 1000;

impl Store<StoreFolder> {
    /// Opens a store for reading.
    pub fn open_to_read(files: StoreFolder, identity: &Identity, policy: Policy) -> Result<Self> {
        let has_writer = |files: &StoreFolder| files.writer().is_some();
        Self::follow(files, identity, policy, has_writer)
    }
}

impl<F: Files> Store<F> {
    pub(super) fn follow(
        files: F,
        identity: &Identity,
        policy: Policy,
        has_writer: impl Fn(&F) -> bool,
    ) -> Result<Self> {
        let header = Header::read(&files)?.ok_or_else(|| error!(NotFound, "the folder contains no store"))?;
        header.ensure_same(identity)?;
        if !has_writer(&files) {
            // All records, as a writer that opens the store would find them.
            let mut index = Index::to_replay(header.slots)?;
            let Recovered { journal, .. } = Journal::read(&files, header.id, |record| index.replay(record))?;
            if !has_writer(&files) {
                return Ok(Self::reader(files, policy, header, journal, index));
            }
            files.reopen(StoreFile::Journal);
        }
        let (journal, index) = published_journal(&files, &header, 0)?;
        Ok(Self::reader(files, policy, header, journal, index))
    }

    /// Its namespaces are read when one is opened.
    fn reader(files: F, policy: Policy, header: Header, journal: Journal, index: Index) -> Self {
        let namespaces = NamespaceList::new(header.id);
        Self::new(files, policy, Recovery { header, journal, index, namespaces })
    }

    /// Reads what the writer has published since.
    pub(super) fn read_on(&self) -> Result<()> {
        let mut pending = self.journal.lock();
        let published = published(&self.files, &self.header)?;
        if published.generation != pending.journal.published().generation {
            self.files.reopen(StoreFile::Journal);
            // No block of it is taken for one of the index before. Only this thread stores blocks in that: it has the lock of the journal.
            let clock = self.index.lock().clock();
            let (journal, mut next) = published_journal(&self.files, &self.header, clock)?;
            let mut index = self.index.lock();
            next.follow(&index);
            let before = std::mem::replace(&mut *index, next);
            pending.journal = journal;
            drop((index, before));
            return Ok(());
        }
        let mut records = Vec::new();
        pending
            .journal
            .read_to(&self.files, published.records, |record| lists::push(&mut records, record))?;
        let mut outcome = Ok(());
        self.in_steps(records.into_iter(), |index, record| {
            if outcome.is_ok() {
                outcome = index.replay(record);
            }
        });
        outcome
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

fn published(files: &impl Files, header: &Header) -> Result<Published> {
    Published::read(files, header.id)?.ok_or_else(|| {
        error!(Busy, "a process opens the store for writing now; try again when it is open there")
    })
}

/// The journal that its writer has published last, and its index, whose clock begins after `clock`.
fn published_journal(files: &impl Files, header: &Header, clock: u64) -> Result<(Journal, Index)> {
    for _ in 0..ATTEMPTS {
        let published = published(files, header)?;
        let (mut journal, _) = Journal::open(files, header.id)?;
        if journal.published().generation == published.generation {
            let mut index = Index::to_replay(header.slots)?.after(clock);
            journal.read_to(files, published.records, |record| index.replay(record))?;
            return Ok((journal, index));
        }
        files.reopen(StoreFile::Journal);
    }
    fail!(Busy, "the writer of the store replaces its index now; try again")
}
