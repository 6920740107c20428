// SPDX-License-Identifier: Apache-2.0
//! What has happened to the blocks of all stores of this process, for statistics. Each store has counts of its own, too.

use std::path::Path;
use std::sync::Arc;

use super::index::Index;
use super::turns::InTurns;
use crate::base::reported::{ROW, Report, Reported, ReportedKind, Tally, add_label, report};
use crate::base::{Gauge, LogId, Result};

/// Keys that gets have found.
pub static HITS: Gauge = Gauge::new();
/// Keys of gets that were not found: the first that is not stored, and all after it.
pub static MISSES: Gauge = Gauge::new();
/// Blocks that stores have evicted.
pub static EVICTED: Gauge = Gauge::new();
/// Blocks that could not be read, or whose bytes were not those that were stored.
pub static DAMAGED: Gauge = Gauge::new();

/// The index of the first value of the index, behind the runs of gets and puts.
pub const FIRST_COUNT: usize = 2 * ROW;

/// A store that this process has open, as statistics report it.
pub struct ReportedStore {
    labels: String,
    /// A thread that reads statistics may be its last holder, so it holds no file.
    index: Arc<InTurns<Index>>,
    /// Of gets, in the first row, and puts.
    runs: Arc<Tally>,
}

impl ReportedStore {
    /// Reports a store until this is dropped. The number distinguishes it from others at the same path.
    pub(super) fn new(path: &Path, index: Arc<InTurns<Index>>) -> Result<Arc<Self>> {
        let mut labels = String::new();
        add_label(&mut labels, "store", &path.display());
        add_label(&mut labels, "id", &LogId::next().number());
        let runs = Tally::new(ReportedKind::Store, String::new());
        let store = Arc::new(Self { labels, index, runs });
        let object: Arc<dyn Reported> = store.clone();
        report(Arc::downgrade(&object))?;
        Ok(store)
    }

    /// What the runs of its gets and puts are counted by.
    pub fn runs(&self) -> &Arc<Tally> {
        &self.runs
    }
}

impl Reported for ReportedStore {
    fn kind(&self) -> Option<ReportedKind> {
        Some(ReportedKind::Store)
    }

    fn report(&self) -> Report {
        let counts = self.index.lock().counts();
        let free = counts.slots.saturating_sub(counts.stored + counts.retired);
        let mut values = self.runs.values();
        let of_index =
            [counts.hits, counts.misses, counts.evicted, counts.damaged, counts.stored, counts.retired, free];
        values[FIRST_COUNT..FIRST_COUNT + of_index.len()].copy_from_slice(&of_index);
        Report { kind: ReportedKind::Store, labels: self.labels.clone(), values }
    }
}
