// SPDX-License-Identifier: Apache-2.0
//! Memory that a run may still use after its end was reported: at its deadline, because a request cannot be cancelled, or because
//! the end of its work can't be detected. A run of another transfer into bytes that it may write would be overwritten after it has
//! succeeded, so it does not begin.

use std::sync::Arc;

use super::used_bytes::UsedBytes;
use crate::base::atomic::{AtomicUsize, Ordering};
use crate::base::{Error, LogId, Mutex, PerProcess, Result, error, lists};
use crate::plan::overlap::{Placed, common};

/// The runs of this process that have ended and still use their memory.
#[derive(Default)]
pub struct Unreleased {
    /// Their number, which a run that begins reads without the lock.
    count: AtomicUsize,
    runs: Mutex<Vec<EndedRun>>,
}

/// A run that has ended, and may still read and write.
#[derive(Clone)]
pub(super) struct EndedRun {
    pub transfer: LogId,
    /// That of its completion.
    pub user_data: u64,
    pub used: Arc<UsedBytes>,
    /// Nothing will detect the end of its work.
    pub is_abandoned: bool,
}

impl Unreleased {
    pub fn get() -> &'static Self {
        static UNRELEASED: PerProcess<Unreleased> = PerProcess::new();
        UNRELEASED.get(Self::default)
    }

    /// Adds the run of a transfer, which has one at a time.
    pub(super) fn add(&self, transfer: LogId, user_data: u64, used: Arc<UsedBytes>) {
        self.change(|runs| runs.push(EndedRun { transfer, user_data, used, is_abandoned: false }));
    }

    /// Removes the run of a transfer when it no longer uses its memory.
    pub(super) fn remove(&self, transfer: LogId) {
        if self.count.load(Ordering::Acquire) > 0 {
            let removed = self.change(|runs| index(runs, transfer).map(|index| runs.swap_remove(index)));
            drop(removed);
        }
    }

    /// Keeps the run of a transfer that was added: it may use its memory for as long as that exists. Storage that it writes is not
    /// kept: it outlives this process, a write fails because it is full or limited, and the blocks must be writable when that has
    /// changed.
    pub(super) fn keep(&self, transfer: LogId) {
        let before = self.change(|runs| {
            let index = index(runs, transfer)?;
            runs[index].is_abandoned = true;
            let used = &runs[index].used;
            if !used.written().is_some_and(|written| written.places.are_stored()) {
                return None;
            }
            match used.without_written() {
                Some(read) => Some(std::mem::replace(&mut runs[index].used, Arc::new(read))),
                None => Some(runs.swap_remove(index).used),
            }
        });
        drop(before);
    }

    /// All of them, without those whose memory is lost.
    pub(super) fn all(&self) -> Result<Vec<EndedRun>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(Vec::new());
        }
        // Without the lock: the ends of runs take it.
        let mut runs = lists::collect(self.runs.lock().iter().cloned())?;
        runs.retain(|run| !(run.is_abandoned && self.forgets(&run.used)));
        Ok(runs)
    }

    /// Removes a run whose memory is lost. Returns whether it is.
    fn forgets(&self, used: &Arc<UsedBytes>) -> bool {
        let is_lost = used.is_lost();
        if is_lost {
            self.change(|runs| runs.retain(|known| !Arc::ptr_eq(&known.used, used)));
        }
        is_lost
    }

    fn change<R>(&self, change: impl FnOnce(&mut Vec<EndedRun>) -> R) -> R {
        let mut runs = self.runs.lock();
        let changed = change(&mut runs);
        self.count.store(runs.len(), Ordering::Release);
        changed
    }

    /// Fails if one of them may still write to these bytes.
    #[inline]
    pub fn ensure_apart(&self, new: Placed<'_>) -> Result<()> {
        if self.count.load(Ordering::Acquire) == 0 { Ok(()) } else { self.compare(new) }
    }

    #[cold]
    fn compare(&self, new: Placed<'_>) -> Result<()> {
        // Without the lock: the ends of runs take it.
        let runs = lists::collect(self.runs.lock().iter().cloned())?;
        for EndedRun { transfer, used, is_abandoned, .. } in runs {
            let Some(old) = used.written().filter(|old| old.places.meet(new.places)) else { continue };
            if is_abandoned && self.forgets(&used) {
                continue;
            }
            if let Some([(_, address, _), _]) = common([new, old])? {
                return Err(still_written(transfer, address, is_abandoned));
            }
        }
        Ok(())
    }
}

/// The run of a transfer whose end will be detected.
fn index(runs: &[EndedRun], transfer: LogId) -> Option<usize> {
    runs.iter().position(|known| known.transfer == transfer && !known.is_abandoned)
}

fn still_written(transfer: LogId, address: u64, is_abandoned: bool) -> Error {
    let remedy = match is_abandoned {
        true => {
            "Its end can't be detected, so move to other blocks; kept_bytes of kvmem_cuda_get_device_info counts those of a GPU"
        }
        false => "Move to other blocks, or submit again later",
    };
    error!(
        Busy,
        "an earlier run may still write to the destination, at {address:#x}: that of transfer or request {transfer} has ended, \
         as at a timeout, but its memory is still in use. {remedy}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::layout::{Arrangement, Dimensions, Layout};
    use crate::plan::{BlockPair, PairedRange, Plan, Wanted};
    use crate::region::{Contexts, DiskConfig, Region};

    const SIZE: u64 = 1 << 20;

    fn over(region: &Arc<Region>) -> Arc<Layout> {
        Layout::place(Dimensions::small(), Arrangement::FULLY_CONTIGUOUS, vec![region.clone()]).unwrap()
    }

    fn memory() -> Arc<Layout> {
        Layout::in_host(Dimensions::small(), Arrangement::FULLY_CONTIGUOUS)
    }

    fn heads(first: u64) -> Wanted {
        Wanted {
            heads: Some(PairedRange { source: first, destination: first, count: 4 }),
            ..Wanted::default()
        }
    }

    fn plan(to: &Layout, block: u32, wanted: Wanted) -> Plan {
        Plan::once(&memory(), to, &[BlockPair { source: 0, destination: block }], wanted).unwrap()
    }

    fn written(to: &Layout, block: u32, wanted: Wanted) -> Arc<UsedBytes> {
        let (plan, places) = (plan(to, block, wanted), [None, Some(to.places().clone())]);
        Arc::new(UsedBytes::Blocks { plan, places, contexts: Contexts::default() })
    }

    fn is_free(unreleased: &Unreleased, to: &Layout, block: u32, wanted: Wanted) -> bool {
        match unreleased.ensure_apart(written(to, block, wanted).written().unwrap()) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.status(), Status::Busy);
                false
            }
        }
    }

    #[test]
    fn only_the_bytes_that_a_run_writes_are_busy_until_it_is_over() {
        let (unreleased, to, transfer) = (Unreleased::default(), memory(), LogId::next());
        unreleased.add(transfer, 0, written(&to, 1, heads(0)));
        assert!(!is_free(&unreleased, &to, 1, heads(0)) && !is_free(&unreleased, &to, 1, Wanted::default()));
        assert!(is_free(&unreleased, &to, 1, heads(4)), "other heads of the block");
        assert!(is_free(&unreleased, &to, 2, heads(0)) && is_free(&unreleased, &memory(), 1, heads(0)));
        unreleased.remove(LogId::next());
        assert!(!is_free(&unreleased, &to, 1, heads(0)));
        unreleased.remove(transfer);
        assert!(is_free(&unreleased, &to, 1, heads(0)));
    }

    #[test]
    fn ranges_of_addresses_are_busy() {
        let (unreleased, to) = (Unreleased::default(), memory());
        let start = to.placement().bases()[0];
        let used = |ranges: &[(u64, u64)]| UsedBytes::Ranges { ranges: ranges.to_vec(), are_written: true };
        unreleased.add(LogId::next(), 0, Arc::new(used(&[(start - 1, 1), (start, 1)])));
        assert!(
            !is_free(&unreleased, &to, 0, Wanted::default())
                && is_free(&unreleased, &to, 1, Wanted::default())
        );
        assert!(unreleased.ensure_apart(used(&[(start + 1, 8)]).written().unwrap()).is_ok());
    }

    #[test]
    fn the_bytes_of_a_file_are_busy() {
        let file = Region::disk(&DiskConfig { size: SIZE, ..DiskConfig::default() }).unwrap();
        let (unreleased, transfer) = (Unreleased::default(), LogId::next());
        unreleased.add(transfer, 0, written(&over(&file), 1, Wanted::default()));
        assert!(!is_free(&unreleased, &over(&file), 1, Wanted::default()));
        assert!(is_free(&unreleased, &over(&file), 0, Wanted::default()));
        unreleased.keep(transfer);
        assert!(is_free(&unreleased, &over(&file), 1, Wanted::default()), "a full disk may have space again");
    }

    #[test]
    fn a_run_whose_end_is_unknown_leaves_its_transfer_but_not_its_bytes() {
        let (unreleased, to, transfer) = (Unreleased::default(), memory(), LogId::next());
        unreleased.add(transfer, 0, written(&to, 0, Wanted::default()));
        unreleased.keep(transfer);
        unreleased.add(transfer, 0, written(&to, 1, Wanted::default()));
        unreleased.remove(transfer);
        assert!(
            !is_free(&unreleased, &to, 0, Wanted::default())
                && is_free(&unreleased, &to, 1, Wanted::default())
        );
    }
}
