// SPDX-License-Identifier: Apache-2.0
//! Memory that a run may still write after its end was reported: at its deadline, because a request cannot be cancelled, or because
//! the end of its work can't be detected. A run of another transfer into these bytes would be overwritten after it has succeeded, so
//! it does not begin.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::{Error, LogId, Mutex, PerProcess, Result, error, lists};
use crate::plan::Plan;
use crate::plan::overlap::{Bytes, Placed, common};
use crate::region::{Contexts, Places};

pub enum Written {
    Blocks {
        plan: Plan,
        /// Where the memory of the layout is.
        places: Arc<Places>,
        /// The contexts of the memory of both sides.
        contexts: Contexts,
    },
    /// Ranges of addresses of this process, each with its size.
    Ranges(Vec<(u64, u64)>),
}

impl Written {
    pub fn placed(&self) -> Placed<'_> {
        match self {
            Self::Blocks { plan, places, .. } => Placed { bytes: Bytes::Side(plan, 1), places },
            Self::Ranges(ranges) => Placed { bytes: Bytes::Ranges(ranges), places: Places::of_addresses() },
        }
    }

    /// Whether a context was reset. Nothing moves its memory any more, and other memory may be at its addresses.
    fn is_lost(&self) -> bool {
        matches!(self, Self::Blocks { contexts, .. } if contexts.ensure_alive().is_err())
    }
}

/// The runs of this process that have ended and still use their memory.
#[derive(Default)]
pub struct Unreleased {
    /// Their number, which a run that begins reads without the lock.
    count: AtomicUsize,
    runs: Mutex<Vec<EndedRun>>,
}

/// A run that has ended, and may still write.
#[derive(Clone)]
struct EndedRun {
    transfer: LogId,
    written: Arc<Written>,
    /// Nothing will detect the end of its work.
    is_abandoned: bool,
}

impl Unreleased {
    pub fn get() -> &'static Self {
        static UNRELEASED: PerProcess<Unreleased> = PerProcess::new();
        UNRELEASED.get(Self::default)
    }

    /// Adds the run of a transfer, which has one at a time.
    pub(super) fn add(&self, transfer: LogId, written: Arc<Written>) {
        self.change(|runs| runs.push(EndedRun { transfer, written, is_abandoned: false }));
    }

    /// Removes the run of a transfer when it no longer uses its memory.
    pub(super) fn remove(&self, transfer: LogId) {
        if self.count.load(Ordering::Acquire) > 0 {
            let removed = self.change(|runs| index(runs, transfer).map(|index| runs.swap_remove(index)));
            drop(removed);
        }
    }

    /// Keeps the run of a transfer that was added: it may write for as long as its memory exists. Storage is not kept: it outlives
    /// this process, a write fails because it is full or limited, and the blocks must be writable when that has changed.
    pub(super) fn keep(&self, transfer: LogId) {
        let stored = self.change(|runs| {
            let index = index(runs, transfer)?;
            runs[index].is_abandoned = true;
            runs[index].written.placed().places.are_stored().then(|| runs.swap_remove(index))
        });
        drop(stored);
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
        for EndedRun { transfer, written, is_abandoned } in runs {
            let old = written.placed();
            if !old.places.meet(new.places) {
                continue;
            }
            if is_abandoned && written.is_lost() {
                self.change(|runs| runs.retain(|known| !Arc::ptr_eq(&known.written, &written)));
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
    use crate::plan::{BlockPair, PairedRange, Wanted};
    use crate::region::{DiskConfig, Region};

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

    fn written(to: &Layout, block: u32, wanted: Wanted) -> Arc<Written> {
        let (plan, places) = (plan(to, block, wanted), to.places().clone());
        Arc::new(Written::Blocks { plan, places, contexts: Contexts::default() })
    }

    fn is_free(unreleased: &Unreleased, to: &Layout, block: u32, wanted: Wanted) -> bool {
        match unreleased.ensure_apart(written(to, block, wanted).placed()) {
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
        unreleased.add(transfer, written(&to, 1, heads(0)));
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
        let ranges = Written::Ranges(vec![(start - 1, 1), (start, 1)]);
        unreleased.add(LogId::next(), Arc::new(ranges));
        assert!(
            !is_free(&unreleased, &to, 0, Wanted::default())
                && is_free(&unreleased, &to, 1, Wanted::default())
        );
        let after = Written::Ranges(vec![(start + 1, 8)]);
        assert!(unreleased.ensure_apart(after.placed()).is_ok());
    }

    #[test]
    fn the_bytes_of_a_file_are_busy() {
        let file = Region::disk(&DiskConfig { size: SIZE, ..DiskConfig::default() }).unwrap();
        let (unreleased, transfer) = (Unreleased::default(), LogId::next());
        unreleased.add(transfer, written(&over(&file), 1, Wanted::default()));
        assert!(!is_free(&unreleased, &over(&file), 1, Wanted::default()));
        assert!(is_free(&unreleased, &over(&file), 0, Wanted::default()));
        unreleased.keep(transfer);
        assert!(is_free(&unreleased, &over(&file), 1, Wanted::default()), "a full disk may have space again");
    }

    #[test]
    fn a_run_whose_end_is_unknown_leaves_its_transfer_but_not_its_bytes() {
        let (unreleased, to, transfer) = (Unreleased::default(), memory(), LogId::next());
        unreleased.add(transfer, written(&to, 0, Wanted::default()));
        unreleased.keep(transfer);
        unreleased.add(transfer, written(&to, 1, Wanted::default()));
        unreleased.remove(transfer);
        assert!(
            !is_free(&unreleased, &to, 0, Wanted::default())
                && is_free(&unreleased, &to, 1, Wanted::default())
        );
    }
}
