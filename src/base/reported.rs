// SPDX-License-Identifier: Apache-2.0
//! Objects that statistics report one by one, and what runs have moved for them.
//!
//! The counters of an object are in as many shards as those of all runs. The end of a run adds to the shard that it has locked, so that an
//! addition costs no atomic operation, and readers take no lock.

use std::fmt::Display;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::one_line::one_line;
use super::{Mutex, PerProcess, Result, lists};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedKind {
    Agent,
    Layout,
    Queue,
    Store,
}

pub const KINDS: usize = 4;

/// Objects of a kind that are reported, so that the text and the locks that it takes are bounded. Of the others only their kind is asked.
pub const MAX_REPORTED: usize = 1000;

/// The values of a row: runs by outcome, and bytes.
pub const ROW: usize = 4;
/// The index of the bytes of the runs that have succeeded.
pub const BYTES: usize = 3;
/// The index of what exists for an object, behind the rows.
pub const HELD: usize = 4 * ROW;
pub const MAX_VALUES: usize = HELD + 1;

/// What is reported of an object.
pub struct Report {
    pub kind: ReportedKind,
    /// Of all its series, as Prometheus writes them.
    pub labels: String,
    pub values: [u64; MAX_VALUES],
}

/// What is reported of all objects.
#[derive(Default)]
pub struct Listing {
    /// In the order in which the objects were added.
    pub reports: Vec<Report>,
    /// Objects of each kind that are not among them, because there are too many.
    pub left_out: [u64; KINDS],
}

/// Dropping it must not wait: the thread that reads statistics may be its last holder.
pub trait Reported: Send + Sync {
    /// `None` if it is no longer in use. Asked of all objects, so it is quick.
    fn kind(&self) -> Option<ReportedKind>;

    fn report(&self) -> Report;
}

type Objects = Mutex<Vec<Weak<dyn Reported>>>;

/// A forked child begins without any: it may not use those of its parent.
fn objects() -> &'static Objects {
    static OBJECTS: PerProcess<Objects> = PerProcess::new();
    OBJECTS.get(Mutex::default)
}

/// Reports an object until it is dropped. Fails if there is no memory for it.
pub fn report(object: Weak<dyn Reported>) -> Result<()> {
    let mut objects = objects().lock();
    // Only if the list is full, and then it is at least twice as long afterwards: most additions do not look at all of it.
    if objects.len() == objects.capacity() {
        objects.retain(|object| object.strong_count() > 0);
        let left = objects.len();
        lists::reserve(&mut objects, left + 1)?;
    }
    objects.push(object);
    Ok(())
}

pub fn listing() -> Result<Listing> {
    // No object is used, nor dropped, under this lock.
    let objects: Vec<_> = lists::collect(objects().lock().iter().cloned())?;
    let (mut listing, mut counts) = (Listing::default(), [0; KINDS]);
    for object in objects {
        let Some(object) = object.upgrade() else { continue };
        let Some(kind) = object.kind() else { continue };
        let count = &mut counts[kind as usize];
        *count += 1;
        if *count > MAX_REPORTED {
            listing.left_out[kind as usize] += 1;
        } else {
            lists::push(&mut listing.reports, object.report())?;
        }
    }
    Ok(listing)
}

/// Adds a label. The first one has no comma before it. The format has an escape for line breaks, and for no other hidden character.
#[inline(never)]
pub fn add_label(labels: &mut String, name: &str, value: &dyn Display) {
    let comma = if labels.is_empty() { "" } else { "," };
    let escaped = |line: &str| one_line(line.to_string()).replace('\\', "\\\\").replace('"', "\\\"");
    let value = value.to_string().split('\n').map(escaped).collect::<Vec<_>>().join("\\n");
    labels.extend([comma, name, "=\"", &value, "\""]);
}

/// Shards that threads lock. Few, and more than threads that end runs at the same time usually are.
pub const LOCKED: usize = 8;

/// Which counters a thread changes that ends a run: those of the shard that it has locked, or those that are never locked. The type
/// says which, because a decision for each counter takes longer than the addition.
#[derive(Clone, Copy)]
pub struct ShardIndex<const IS_LOCKED: bool>(usize);

impl ShardIndex<true> {
    pub fn locked(index: usize) -> Self {
        Self(index)
    }
}

impl ShardIndex<false> {
    pub const NEVER_LOCKED: Self = Self(LOCKED);
}

impl<const IS_LOCKED: bool> ShardIndex<IS_LOCKED> {
    pub fn index(self) -> usize {
        self.0
    }

    /// Adds to a counter of the shard.
    #[inline]
    pub fn add(self, counter: &AtomicU64, amount: u64) {
        match IS_LOCKED {
            true => counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Release),
            false => drop(counter.fetch_add(amount, Ordering::Release)),
        }
    }
}

/// What runs have moved for an object, in some rows, such as one for each direction.
pub struct Tally {
    kind: ReportedKind,
    labels: String,
    is_over: AtomicBool,
    held: AtomicU64,
    /// Of each shard. Within the object, so that the end of a run follows one pointer.
    shards: [[Line; LINES]; LOCKED + 1],
}

const LINES: usize = HELD / ROW / 2;

/// Two rows, in one cache line.
#[derive(Default)]
#[repr(align(64))]
struct Line([[AtomicU64; ROW]; 2]);

impl Tally {
    /// That of a part of an object, which reports it itself.
    pub fn new(kind: ReportedKind, labels: String) -> Arc<Self> {
        let (is_over, held) = (AtomicBool::new(false), AtomicU64::new(0));
        Arc::new(Self { kind, labels, is_over, held, shards: Default::default() })
    }

    /// Adds a run with an outcome of the row, and its bytes if it has succeeded.
    #[inline]
    pub fn add<const IS_LOCKED: bool>(
        &self,
        shard: ShardIndex<IS_LOCKED>,
        row: usize,
        outcome: usize,
        bytes: u64,
    ) {
        let lines = self.shards.get(shard.index());
        let Some(Line(rows)) = lines.and_then(|lines| lines.get(row / 2)) else { return };
        let counters = &rows[row % 2];
        if outcome == 0 {
            shard.add(&counters[BYTES], bytes);
        }
        shard.add(&counters[outcome], 1);
    }

    /// Counts something that exists for the object, as long as the result does.
    pub fn hold(self: &Arc<Self>) -> HeldByTally {
        self.held.fetch_add(1, Ordering::Relaxed);
        HeldByTally(self.clone())
    }

    pub fn values(&self) -> [u64; MAX_VALUES] {
        let mut values = [0; MAX_VALUES];
        for lines in &self.shards {
            let counters = lines.iter().flat_map(|Line(rows)| rows.as_flattened());
            values.iter_mut().zip(counters).for_each(|(sum, value)| *sum += value.load(Ordering::Acquire));
        }
        values[HELD] = self.held.load(Ordering::Relaxed);
        values
    }
}

impl Reported for Tally {
    fn kind(&self) -> Option<ReportedKind> {
        (!self.is_over.load(Ordering::Relaxed)).then_some(self.kind)
    }

    fn report(&self) -> Report {
        Report { kind: self.kind, labels: self.labels.clone(), values: self.values() }
    }
}

pub struct HeldByTally(Arc<Tally>);

impl Drop for HeldByTally {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The tally of an object, which is reported until this is dropped: a run, or what is kept for the next one, may have it for longer.
pub struct OpenTally(pub Arc<Tally>);

impl OpenTally {
    pub fn reported(kind: ReportedKind, labels: String) -> Result<Self> {
        let open = Self(Tally::new(kind, labels));
        let object: Arc<dyn Reported> = open.clone();
        report(Arc::downgrade(&object))?;
        Ok(open)
    }
}

impl Deref for OpenTally {
    type Target = Arc<Tally>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for OpenTally {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(labels: &str) -> OpenTally {
        OpenTally::reported(ReportedKind::Queue, labels.into()).unwrap()
    }

    fn is_listed(labels: &str) -> bool {
        listing().unwrap().reports.iter().any(|report| report.labels == labels)
    }

    #[test]
    fn runs_are_counted_in_their_row_by_threads_with_and_without_a_shard() {
        let open = reported("counts");
        let tally = &**open;
        fn add<const IS_LOCKED: bool>(tally: &Tally, shard: ShardIndex<IS_LOCKED>, row: usize) {
            (0..1000).for_each(|run| tally.add(shard, row, run % 3, 5));
            tally.add(shard, 4, 0, 1);
        }
        std::thread::scope(|scope| {
            for (index, row) in (0..LOCKED).zip([0, 1, 2, 3].into_iter().cycle()) {
                scope.spawn(move || add(tally, ShardIndex::locked(index), row));
                scope.spawn(move || add(tally, ShardIndex::NEVER_LOCKED, row));
            }
        });
        let held = open.hold();
        let row = [4 * 334, 4 * 333, 4 * 333, 4 * 334 * 5];
        assert_eq!(tally.values()[..HELD], [row; 4].concat());
        assert_eq!(tally.values()[HELD], 1);
        drop(held);
        assert_eq!(tally.values()[HELD], 0);
    }

    #[test]
    fn an_object_is_listed_until_it_is_dropped_even_if_others_hold_its_tally() {
        let (one, other) = (reported("one"), reported("other"));
        assert!(is_listed("one") && is_listed("other"));
        let kept = one.clone();
        drop(one);
        assert!(!is_listed("one") && is_listed("other"));
        drop((kept, other));
        assert!(!is_listed("other"));
    }

    #[test]
    fn the_memory_of_objects_that_are_over_is_used_again_and_others_than_the_first_are_left_out() {
        for _ in 0..20 * MAX_REPORTED {
            drop(reported("short"));
        }
        assert!(objects().lock().capacity() < 10 * MAX_REPORTED);
        let many: Vec<_> = (0..MAX_REPORTED + 7)
            .map(|_| OpenTally::reported(ReportedKind::Store, "many".into()).unwrap())
            .collect();
        let listing = listing().unwrap();
        assert!(listing.left_out[ReportedKind::Store as usize] >= 7);
        let is_store = |report: &&Report| report.kind == ReportedKind::Store;
        assert_eq!(listing.reports.iter().filter(is_store).count(), MAX_REPORTED);
        drop(many);
    }

    #[test]
    fn labels_are_escaped() {
        let mut labels = String::new();
        add_label(&mut labels, "path", &"a\\b\"c\nd\u{2028}");
        add_label(&mut labels, "id", &7);
        assert_eq!(labels, r#"path="a\\b\"c\nd\\u{2028}",id="7""#);
    }
}
