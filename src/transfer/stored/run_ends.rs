// SPDX-License-Identifier: Apache-2.0
//! What follows when the bytes of a put or a get have moved, before the end of its run is reported. Such a run always ends on a thread for
//! checks, because it may be the last holder of its store, and the thread that moves bytes to files must not close one.

use std::sync::Arc;

use super::OpenStore;
use crate::base::{Error, Mutex, Status, error, log};
use crate::layout::Layout;
use crate::run::{Findings, Outcome, Stop, Verify};
use crate::store::{Located, Reserved};
use crate::transfer::verify::Verification;
use crate::transfer::verify::checksum;

/// Slots that are reserved until they are taken. The others become free when it is dropped.
pub struct Slots {
    store: Arc<OpenStore>,
    slots: Vec<Option<Reserved>>,
}

impl Slots {
    pub fn new(store: &Arc<OpenStore>, slots: Vec<Option<Reserved>>) -> Self {
        Self { store: store.clone(), slots }
    }

    pub fn take(&mut self) -> Vec<Option<Reserved>> {
        std::mem::take(&mut self.slots)
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let left = self.take().into_iter().flatten().collect();
        self.store.store.abandon(left);
    }
}

/// Blocks that keep their slots until it is dropped.
pub struct Held {
    store: Arc<OpenStore>,
    run: Vec<Located>,
}

impl Held {
    pub fn new(store: &Arc<OpenStore>, run: Vec<Located>) -> Self {
        Self { store: store.clone(), run }
    }

    pub fn blocks(&self) -> &[Located] {
        &self.run
    }

    /// The blocks, whose use the caller ends.
    pub fn into_run(mut self) -> Vec<Located> {
        std::mem::take(&mut self.run)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.store.store.release(std::mem::take(&mut self.run));
    }
}

/// Makes the blocks of a put visible.
pub struct PutEnd {
    slots: Mutex<Slots>,
    checks: Option<Arc<Verification>>,
}

impl PutEnd {
    pub fn new(slots: Slots, checks: Option<Arc<Verification>>) -> Self {
        Self { slots: Mutex::new(slots), checks }
    }
}

impl Verify for PutEnd {
    fn follows(&self, _moved: &Outcome, _is_reported: bool) -> bool {
        true
    }

    fn outcome(
        &self,
        moved: Outcome,
        layouts: &[Arc<Layout>; 2],
        stop: Stop,
        findings: &mut Findings,
    ) -> Outcome {
        moved?;
        if let Some(checks) = &self.checks {
            checks.outcome(Ok(()), layouts, stop, findings)?;
        }
        let checksums = findings.checksums.iter().flatten().copied();
        let mut slots = self.slots.lock();
        let written = slots.take().into_iter().flatten().zip(checksums).collect();
        slots.store.store.commit(written)
    }

    fn notify(&self) -> Outcome {
        Ok(())
    }
}

/// Ends the use of the slots of a get. Blocks that have not arrived as they were stored are removed from the store.
pub struct GetEnd {
    held: Mutex<Held>,
    checks: Option<Arc<Verification>>,
}

impl GetEnd {
    pub fn new(held: Held, checks: Option<Arc<Verification>>) -> Self {
        Self { held: Mutex::new(held), checks }
    }

    /// Removes blocks from the store, and retires the slots of those that are damaged there, too.
    fn remove(&self, wrong: &[u64], moved: Outcome) -> Error {
        let mut held = self.held.lock();
        let (store, run) = (held.store.clone(), std::mem::take(&mut held.run));
        drop(held);
        let located = |at: &&u64| run.get(**at as usize).is_some_and(|block| store.is_damaged(block));
        let damaged: Vec<u64> = wrong.iter().filter(located).copied().collect();
        let (count, all) = (wrong.len(), run.len());
        if let Err(error) = store.store.release_wrong(run, wrong, &damaged) {
            log!(Warn, "the removal of damaged blocks is not in the index of the store: {error}");
        }
        let cause = moved.err().map_or(String::new(), |error| format!(": {error}"));
        let error = error!(
            Corrupt,
            "{count} of {all} blocks did not arrive as they were stored, and {} slots of the store are damaged; these blocks are \
             no longer stored, kvmem_transfer_get_mismatches returns them{cause}",
            damaged.len()
        );
        log!(Warn, "{error}");
        error
    }
}

impl Verify for GetEnd {
    fn follows(&self, _moved: &Outcome, _is_reported: bool) -> bool {
        true
    }

    fn outcome(
        &self,
        moved: Outcome,
        layouts: &[Arc<Layout>; 2],
        stop: Stop,
        findings: &mut Findings,
    ) -> Outcome {
        let is_readable = moved.as_ref().err().is_none_or(|error| error.status() == Status::Io);
        let Some(checks) = self.checks.as_ref().filter(|_| is_readable) else { return moved };
        // After a read that failed, too: this finds the blocks that have not arrived.
        match checks.outcome(Ok(()), layouts, stop, findings) {
            Err(error) if error.status() == Status::Corrupt => Err(self.remove(&findings.mismatches, moved)),
            checked => moved.and(checked),
        }
    }

    fn notify(&self) -> Outcome {
        Ok(())
    }
}

impl OpenStore {
    /// Whether the bytes of a slot can't be read, or are not those that were stored.
    pub(super) fn is_damaged(&self, block: &Located) -> bool {
        match checksum::of_blocks(&self.layout, &[block.slot()], None) {
            Ok(found) => found != [block.checksum()],
            Err(error) => matches!(error.status(), Status::Io | Status::Corrupt),
        }
    }
}
