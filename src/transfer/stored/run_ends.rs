// SPDX-License-Identifier: Apache-2.0
//! What follows when the bytes of a put or a get have moved, before the end of its run is reported. Such a run ends on a thread for
//! checks, unless all is known, because it may be the last holder of its store, and the thread that moves bytes to files must not close one.

use std::sync::Arc;
use std::time::Instant;

use super::OpenStore;
use super::conversion::Conversion;
use crate::base::{Error, Mutex, Result, Status, ensure, error, lists, log};
use crate::engine::single_move::WaitLimits;
use crate::layout::Layout;
use crate::run::{FileProgress, Findings, Outcome, Stop, Verify, cancelled};
use crate::store::{Located, Reserved, Seal, Written};
use crate::transfer::verify::{Begun, Verification};

/// Slots that are reserved until they are taken. The others become free when it is dropped.
pub struct Slots {
    store: Arc<OpenStore>,
    slots: Vec<Option<Reserved>>,
}

impl Slots {
    pub fn new(store: &Arc<OpenStore>, slots: Vec<Option<Reserved>>) -> Self {
        Self { store: store.clone(), slots }
    }

    pub fn list(&self) -> &[Option<Reserved>] {
        &self.slots
    }

    pub fn take(&mut self) -> Vec<Option<Reserved>> {
        std::mem::take(&mut self.slots)
    }

    /// Makes their blocks visible, each with its checksum, and its seal if there are some. All slots become free if there are not as many.
    pub fn commit(mut self, checksums: &[u32], seals: Vec<Arc<Seal>>) -> Outcome {
        let (slots, count) = (self.slots.iter().flatten().count(), checksums.len());
        ensure!(
            slots == count && (seals.is_empty() || seals.len() == count),
            Panic,
            "a put into {slots} slots has {count} checksums and {} seals; none of its blocks is stored",
            seals.len()
        );
        let mut written = Vec::new();
        lists::reserve(&mut written, count)?;
        let seals = seals.into_iter().map(Some).chain(std::iter::repeat(None));
        let slots = self.take().into_iter().flatten().zip(checksums).zip(seals);
        written.extend(slots.map(|((slot, checksum), seal)| Written { slot, checksum: *checksum, seal }));
        self.store.store.commit(written)
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let left = self.take();
        self.store.store.abandon(left.into_iter().flatten());
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

    /// Ends the use of the slots. If nothing else holds the store, something that does is left: who drops it closes the store.
    fn leave(self) -> Option<Self> {
        let store = self.store.clone();
        drop(self);
        Arc::into_inner(store).map(|store| Self::new(&Arc::new(store), Vec::new()))
    }

    /// What the run has found is that blocks differ, or nothing. A reader looks which blocks the writer has replaced meanwhile.
    pub(super) fn end(self, moved: Outcome, findings: &mut Findings, limits: &WaitLimits) -> Outcome {
        let replaced = self.store.store.replaced(&self.run)?;
        let damaged = findings.mismatches.iter().filter(|at| replaced.binary_search(at).is_err());
        let damaged: Vec<u64> = damaged.copied().collect();
        if damaged.is_empty() && replaced.is_empty() {
            return moved;
        }
        findings.mismatches = replaced;
        findings.mismatches.extend(&damaged);
        findings.mismatches.sort_unstable();
        match damaged.is_empty() {
            false => Err(self.remove(&damaged, moved, limits)),
            true => Err(error!(
                Corrupt,
                "{} of {} blocks were replaced by the writer of the store while they were read; \
                 kvmem_transfer_get_mismatches returns them",
                findings.mismatches.len(),
                self.run.len()
            )),
        }
    }

    /// Removes those of some blocks that are damaged in the store. Others differ only in the memory of the caller: something else
    /// wrote there meanwhile. Those whose slots can't be looked at stay.
    fn remove(self, wrong: &[u64], moved: Outcome, limits: &WaitLimits) -> Error {
        let (store, run) = (self.store.clone(), self.into_run());
        let (at, blocks): (Vec<u64>, Vec<&Located>) =
            wrong.iter().filter_map(|at| run.get(*at as usize).map(|block| (*at, block))).unzip();
        let (are_sound, looked) = store.look_at(&blocks, limits);
        let sound = are_sound.iter().filter(|is_sound| **is_sound).count();
        let damaged = at.into_iter().zip(&are_sound).filter(|(_, is_sound)| !**is_sound);
        let damaged: Vec<u64> = damaged.map(|(at, _)| at).collect();
        let (count, all) = (wrong.len(), run.len());
        let parts = [
            ("damaged in the store, and no longer stored", damaged.len(), String::new()),
            ("overwritten in the destination by something else, and still stored", sound, String::new()),
            (
                "whose slots could not be read again, still stored",
                count - damaged.len() - sound,
                looked.err().map_or(String::new(), |error| format!(" ({error})")),
            ),
        ];
        let parts: String = parts
            .iter()
            .filter(|(_, count, _)| *count > 0)
            .map(|(what, count, cause)| format!("{count} {what}{cause}; "))
            .collect();
        if let Err(error) = store.store.release_damaged(run, &damaged) {
            log!(Warn, "the removal of damaged blocks is not in the index of the store: {error}");
        }
        let cause = moved.err().map_or(String::new(), |error| format!(": {error}"));
        let error = error!(
            Corrupt,
            "{count} of {all} blocks did not arrive as stored: {parts}kvmem_transfer_get_mismatches returns the indices{cause}"
        );
        log!(Warn, "{error}");
        error
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.store.store.release(std::mem::take(&mut self.run));
    }
}

/// What the run of a put or a get has of its store until its end.
pub enum Uses {
    Put(Slots),
    Get(Held),
}

/// What is done with the blocks themselves.
pub enum Work {
    Checks(Option<Arc<Verification>>),
    /// Checksums are computed while the blocks move.
    Begun(Arc<Verification>, Begun),
    /// The run has moved nothing.
    Moves(Conversion),
}

/// Makes the blocks of a put visible, or ends the use of the slots of a get. Drops what the run has of the store when it is dropped.
pub struct RunEnd {
    uses: Mutex<Option<Uses>>,
    work: Work,
    /// When the run ends at the latest.
    deadline: Option<Instant>,
    user_data: u64,
}

impl RunEnd {
    pub fn new(uses: Uses, work: Work, deadline: Option<Instant>, user_data: u64) -> Arc<Self> {
        Arc::new(Self { uses: Mutex::new(Some(uses)), work, deadline, user_data })
    }
}

impl Work {
    /// What is done with blocks, and what has begun of it.
    pub fn checks(
        checks: Option<Arc<Verification>>,
        begin: impl FnOnce(&Verification) -> Result<Option<Begun>>,
    ) -> Result<Self> {
        let Some(checks) = checks else { return Ok(Self::Checks(None)) };
        Ok(match begin(&checks)? {
            Some(begun) => Self::Begun(checks, begun),
            None => Self::Checks(Some(checks)),
        })
    }

    /// Notes the checksums of the blocks of a put. Returns the seals of those that are encrypted.
    fn put(
        &self,
        slots: &Slots,
        layouts: &[Arc<Layout>; 2],
        limits: &WaitLimits,
        findings: &mut Findings,
    ) -> Result<Vec<Arc<Seal>>> {
        match self {
            Self::Checks(None) => {}
            Self::Begun(_, begun) => findings.checksums = Some(begun.checksums()?),
            Self::Checks(Some(checks)) => checks.outcome(Ok(()), layouts, limits.stop.clone(), findings)?,
            Self::Moves(conversion) => {
                let (checksums, seals) = conversion.put(slots.list(), layouts, limits)?;
                findings.checksums = Some(checksums);
                return Ok(seals);
            }
        }
        Ok(Vec::new())
    }

    /// Notes the blocks of a get that are not those that were stored.
    fn get(
        &self,
        held: &Held,
        layouts: &[Arc<Layout>; 2],
        limits: &WaitLimits,
        findings: &mut Findings,
    ) -> Outcome {
        match self {
            Self::Checks(None) => {}
            Self::Checks(Some(checks)) => {
                unless_corrupt(checks.outcome(Ok(()), layouts, limits.stop.clone(), findings))?;
            }
            Self::Begun(checks, begun) => unless_corrupt(checks.compare(&begun.checksums()?, findings))?,
            Self::Moves(conversion) => {
                findings.mismatches = conversion.get(held.blocks(), layouts, limits)?
            }
        }
        Ok(())
    }
}

/// Blocks that differ are among the findings.
fn unless_corrupt(outcome: Outcome) -> Outcome {
    match outcome {
        Err(error) if error.status() != Status::Corrupt => Err(error),
        _ => Ok(()),
    }
}

impl Verify for RunEnd {
    fn follows(&self, _moved: &Outcome, _is_reported: bool) -> bool {
        true
    }

    /// Those of a small get, which were compared as they arrived. The writer of a store asks no file whether blocks were replaced. The last
    /// holder of a store closes it.
    fn ends_at_once(&self, moved: &Outcome) -> bool {
        let (Ok(()), Work::Begun(checks, begun)) = (moved, &self.work) else { return false };
        let are_right = begun.is_over() && begun.checksums().is_ok_and(|found| checks.are_equal(&found));
        let is_of_writer = |uses: &mut Uses| matches!(uses, Uses::Get(held) if !held.store.is_read_only());
        let mut uses = self.uses.lock();
        match uses.take_if(|uses| are_right && is_of_writer(uses)) {
            Some(Uses::Get(held)) => *uses = held.leave().map(Uses::Get),
            _ => return false,
        }
        uses.is_none()
    }

    fn outcome(
        &self,
        moved: Outcome,
        layouts: &[Arc<Layout>; 2],
        stop: Stop,
        findings: &mut Findings,
    ) -> Outcome {
        let (deadline, user_data) = (self.deadline, self.user_data);
        let limits = WaitLimits { deadline, stop, user_data, ..WaitLimits::default() };
        // The lock is not held during calls of the file system.
        let uses = self.uses.lock().take();
        match uses {
            Some(Uses::Put(slots)) => {
                moved?;
                let seals = self.work.put(&slots, layouts, &limits, findings)?;
                // What the caller has cancelled, or waits for no longer, does not become visible.
                if limits.stop.is_asked() {
                    return Err(cancelled());
                }
                slots.commit(findings.checksums.as_deref().unwrap_or_default(), seals)
            }
            Some(Uses::Get(held)) => {
                let is_readable = moved.as_ref().err().is_none_or(|error| error.status() == Status::Io);
                if !is_readable {
                    return moved;
                }
                // After a read that failed, too: this finds the blocks that have not arrived.
                match (self.work.get(&held, layouts, &limits, findings), moved) {
                    (Ok(()), moved) => held.end(moved, findings, &limits),
                    (failed, Ok(())) => failed,
                    (Err(unknown), Err(error)) => {
                        // Of no block it is known that it has arrived.
                        findings.mismatches = lists::collect(0..held.blocks().len() as u64)?;
                        Err(error.followed_by(format!(
                            "kvmem_transfer_get_mismatches returns all blocks, because they were not compared: {unknown}"
                        )))
                    }
                }
            }
            None => moved,
        }
    }

    fn progress(&self) -> Option<Arc<dyn FileProgress>> {
        match &self.work {
            Work::Begun(_, begun) => Some(begun.progress()),
            Work::Checks(_) | Work::Moves(_) => None,
        }
    }
}
