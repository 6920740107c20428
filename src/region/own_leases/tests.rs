// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::single_range_in_vec_init, reason = "leases have ranges, sometimes one")]

use std::fs::File;
use std::time::Duration;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, OFlags};

use super::*;
use crate::base::Status;
use crate::region::file_lock::FileLock;
use crate::region::lease_locks::*;
use crate::region::lease_places::{ALL, Level, NEVER, holders};
use crate::region::reopened;

/// The last byte that can be locked.
const LAST: u64 = i64::MAX as u64;
const READER: LeaseHolder = LeaseHolder { pid: 4_194_303, writes: false };
const WRITER: LeaseHolder = LeaseHolder { pid: 1, writes: true };
const LONG: Option<Duration> = Some(Duration::from_secs(1000));

/// The control block of an owner, and the locks that it asks for.
struct Owner {
    file: File,
    lock: FileLock,
}

impl Owner {
    fn new() -> Self {
        let file: File = rustix::fs::memfd_create("leased", MemfdFlags::CLOEXEC).unwrap().into();
        let lock = LocalFd::open(|| reopened(&file, OFlags::RDWR)).unwrap();
        Self { lock: FileLock::exclusive(lock, 0).unwrap(), file }
    }

    /// Like another process, which has another open of the file.
    fn importer(&self) -> Arc<OwnLeases> {
        OwnLeases::new(LocalFd::open(|| reopened(&self.file, OFlags::RDONLY)).unwrap()).into()
    }

    fn on(&self, ranges: &[Range<u64>]) -> Leased {
        LeaseLocks::new(&self.lock, &LockBudget::with_steps(u64::MAX)).unwrap().on(ranges).unwrap()
    }

    /// All of them.
    fn found(&self) -> Vec<FoundLease> {
        let Leased { leases, unknown } = self.on(&[0..BYTES]);
        assert!(unknown.is_empty());
        leases.into_iter().map(|(lease, _)| lease).collect()
    }

    /// That of a slot.
    fn found_with(&self, slot: u64) -> FoundLease {
        *self.found().iter().find(|lease| lease.slot == slot).unwrap()
    }

    fn leased(&self, lease: &FoundLease, ranges: &[Range<u64>]) -> Vec<usize> {
        let Leased { leases, unknown } = self.on(ranges);
        assert!(unknown.is_empty());
        leases
            .into_iter()
            .find(|(found, _)| found.slot == lease.slot)
            .map(|(_, ranges)| ranges)
            .unwrap_or_default()
    }
}

fn bytes(own: &Arc<OwnLeases>, ranges: &[Range<u64>]) -> [LeasedBytes; 1] {
    [LeasedBytes { own: own.clone(), ranges: ranges.to_vec() }]
}

fn take(
    own: &Arc<OwnLeases>,
    ranges: &[Range<u64>],
    holder: LeaseHolder,
    duration: Option<Duration>,
) -> RegionLease {
    RegionLease::take(&bytes(own, ranges), holder, LeaseEnd::after(duration)).unwrap()
}

#[test]
fn leases_of_several_processes_are_told_apart_and_end() {
    let owner = Owner::new();
    assert!(owner.found().is_empty());
    let (one, other) = (owner.importer(), owner.importer());
    let last = BYTES - 1..BYTES;
    let reader = take(&one, &[0..100, 300..400], READER, LONG);
    let writer = take(&other, &[50..60, last.clone()], WRITER, None);
    let found = owner.found();
    assert_eq!(found.len(), 2);
    let of = |holder| *found.iter().find(|lease| lease.holder == holder).unwrap();
    assert_eq!(of(WRITER).end.remaining(), None);
    assert!(of(READER).end.guaranteed().unwrap() <= LONG.unwrap() && of(READER).end.ensure_to_come().is_ok());
    let asked = [0..10, 55..56, 60..61, 100..300, 399..500, last.start - 1..last.start, last];
    assert_eq!(owner.leased(&of(READER), &asked), [0, 1, 2, 4]);
    assert_eq!(owner.leased(&of(WRITER), &asked), [1, 6]);
    drop(reader);
    assert_eq!(owner.found(), [of(WRITER)]);
    // As when its process ends: the file is closed, and nothing is unlocked.
    std::mem::forget(writer);
    assert_eq!(owner.found().len(), 1);
    let process = Arc::into_inner(one).map(|own| own.taken.lock().slots.len());
    assert_eq!(process, Some(0));
}

#[test]
fn a_lease_ends_after_its_time_and_is_renewed_without_a_gap() {
    let owner = Owner::new();
    let own = owner.importer();
    let late = RegionLease::take(&bytes(&own, &[0..8]), READER, LeaseEnd::passed()).unwrap();
    assert!(owner.found().is_empty(), "it is over, and its bytes are still locked");
    assert_eq!(late.renew(LeaseEnd::never()).unwrap_err().status(), Status::Stale);
    let lease = take(&own, &[0..8], READER, LONG);
    let [first] = owner.found()[..] else { panic!() };
    for end in [first.end.0 + 5_000, first.end.0 - 5_000, NEVER, 0] {
        lease.renew(LeaseEnd(end)).unwrap();
        let expected = [FoundLease { end: LeaseEnd(end), ..first }];
        assert_eq!(owner.found(), expected[..usize::from(end > 0)]);
    }
    assert_eq!(lease.renew(LeaseEnd::never()).unwrap_err().status(), Status::Stale);
    // One that ends while it is renewed, after the look at its end.
    assert_eq!(lease.replace(LeaseEnd::passed(), LeaseEnd::never()).unwrap_err().status(), Status::Stale);
    assert!(owner.found().is_empty());
}

#[test]
fn a_lease_does_not_end_early() {
    let owner = Owner::new();
    for nanoseconds in [1, 999_999, 1_000_001, 1_500_000] {
        let duration = Duration::from_nanos(nanoseconds);
        let before = now();
        let lease = take(&owner.importer(), &[0..8], READER, Some(duration));
        while !owner.found().is_empty() {}
        assert!(now() >= before + duration && lease.end().guaranteed() == Some(Duration::ZERO));
    }
    for _ in 0..100 {
        let (before, duration) = (now(), Duration::from_millis(1));
        assert!(Duration::from_millis(LeaseEnd::after(Some(duration)).0) >= before + duration);
    }
}

#[test]
fn a_slot_that_another_process_uses_is_left_to_it() {
    let owner = Owner::new();
    let first = take(&owner.importer(), &[0..8], READER, LONG);
    let [found] = owner.found()[..] else { panic!() };
    let other = owner.importer();
    let budget = LockBudget::default();
    assert!(SlotLease::take(&bytes(&other, &[8..16])[0], found.slot, WRITER, &budget).unwrap().is_none());
    assert_eq!(owner.found(), [found]);
    // In its own process, too.
    let own = &first.slots[0].own;
    assert!(SlotLease::take(&bytes(own, &[8..16])[0], found.slot, WRITER, &budget).unwrap().is_none());
    assert_eq!(owner.found(), [found]);
    assert_eq!((own.taken.lock().ranges, other.taken.lock().ranges), (1, 0));
}

/// Where a lease of the first bytes locks them.
fn first_level() -> Level {
    Level::all().next().unwrap()
}

#[test]
fn a_process_that_locks_everything_hides_leases_and_no_other_gets_one() {
    let owner = Owner::new();
    let _hidden = take(&owner.importer(), &[0..8], READER, LONG);
    let hostile = owner.importer();
    let hidden = |bytes: Range<u64>| {
        lock_shared(&hostile.file, bytes.clone()).unwrap();
        let found = owner.on(&[0..1, 8..9, 1 << 20..1 << 21, 1 << 30..1 << 31]);
        unlock(&hostile.file, bytes).unwrap();
        found.unknown
    };
    let first = first_level().area();
    for bytes in [ALL, 1..LAST, ALL.start..first.end] {
        assert_eq!(hidden(bytes), [0, 1, 2, 3]);
    }
    // Only what may be hidden.
    assert_eq!(hidden(first.start..first.start + (1 << 30)), [0, 1]);
    assert_eq!(hidden(first.start + 8..first.start + (1 << 17) + 8), [0, 1], "in two cells");
    assert_eq!(hidden(first.start + 9..first.start + (1 << 17)), [0; 0], "between what is asked");
    assert_eq!(hidden(header(7).start..header(8).end), [0; 0]);
    lock_shared(&hostile.file, ALL).unwrap();
    let refused = RegionLease::take(&bytes(&owner.importer(), &[0..8]), READER, LeaseEnd::after(LONG));
    assert_eq!(refused.err().unwrap().status(), Status::Busy);
    drop(hostile);
    assert_eq!(owner.found().len(), 1);
}

/// It can add to it.
#[test]
fn no_process_ends_or_shortens_the_lease_of_another() {
    let owner = Owner::new();
    let hostile = owner.importer();
    // The kernel reports locks of that open of the file first which has the oldest.
    lock_shared(&hostile.file, 5..6).unwrap();
    let _lease = take(&owner.importer(), &[0..8, 20..28], READER, LONG);
    let [found] = owner.found()[..] else { panic!() };
    unlock(&hostile.file, ALL.start..LAST).unwrap();
    for locked in 1..6 {
        let [end] = owner.found()[..] else { panic!() };
        assert!(end.end >= found.end && end.holder.pid == READER.pid);
        let end = end_byte(found.slot, milliseconds(now()) + 10_000 * locked);
        lock_shared(&hostile.file, end..end + 1).unwrap();
    }
    assert_eq!(owner.found()[0].end, LeaseEnd(NEVER), "it has more ends than are looked at");
    let cell = pieces(&(7..21), found.slot).next().unwrap();
    lock_shared(&hostile.file, cell).unwrap();
    lock_shared(&hostile.file, holders(found.slot)).unwrap();
    let [found] = owner.found()[..] else { panic!() };
    assert_eq!(owner.leased(&found, &[0..1, 10..11, 27..28, 28..29]), [0, 1, 2]);
    drop(hostile);
    assert_eq!(owner.leased(&found, &[0..1, 10..11, 27..28]), [0, 2]);
}

/// Four processes have 250 leases of a block each, whose layers are apart.
#[test]
fn what_a_question_takes_does_not_depend_on_leases_of_other_bytes() {
    const LAYER: u64 = 1 << 30;
    const BLOCK: u64 = 96 << 10;
    let block =
        |block: u64| (0..4).map(move |layer| layer * LAYER + block * BLOCK).map(|start| start..start + BLOCK);
    let owner = Owner::new();
    let processes: Vec<_> = (0..4).map(|_| owner.importer()).collect();
    let mut leases = Vec::new();
    for index in 0..1000 {
        let ranges: Vec<_> = block(index).collect();
        leases.push(take(&processes[index as usize % 4], &ranges, READER, LONG));
    }
    let mut asked: Vec<_> = (496..504).chain(2000..2008).flat_map(block).collect();
    asked.sort_unstable_by_key(|range| range.start);
    let Leased { leases: found, unknown } =
        LeaseLocks::new(&owner.lock, &LockBudget::with_steps(1000)).unwrap().on(&asked).unwrap();
    assert_eq!((found.len(), unknown.len()), (8, 0));
    assert!(found.iter().all(|(lease, ranges)| lease.holder == READER && ranges.len() == 4));
    drop(leases);
    assert_eq!(owner.on(&asked), Leased::default());
    assert!(LeaseLocks::new(&owner.lock, &LockBudget::default()).unwrap().is_empty());
}

#[test]
fn more_leases_than_are_returned_are_unknown_and_those_that_are_over_do_not_count() {
    let owner = Owner::new();
    let hostile = owner.importer();
    let lock = |slot: u64, end: u64| {
        lock_shared(&hostile.file, end_byte(slot, end)..end_byte(slot, end) + 1).unwrap();
        lock_shared(&hostile.file, pieces(&(8..16), slot).next().unwrap()).unwrap();
    };
    (0..10).for_each(|slot| lock(slot, 0));
    (10..10 + MAX_FOUND as u64).for_each(|slot| lock(slot, NEVER));
    let found = owner.on(&[0..1, 8..9]);
    assert_eq!((found.leases.len(), found.unknown.len()), (MAX_FOUND, 0));
    lock(SLOTS - 1, NEVER);
    let found = owner.on(&[0..1, 8..9]);
    assert_eq!((found.leases.len(), found.unknown), (MAX_FOUND, vec![0, 1]));
}

#[test]
fn a_renewal_that_fails_changes_the_end_nowhere() {
    let owners = [Owner::new(), Owner::new()];
    let regions = owners.each_ref().map(|owner| LeasedBytes { own: owner.importer(), ranges: vec![0..8] });
    let lease = RegionLease::take(&regions, READER, LeaseEnd::after(LONG)).unwrap();
    let before = owners.each_ref().map(Owner::found);
    let [first] = before[0][..] else { panic!() };
    // A process that may write the file of the second region takes the byte of the later end.
    let later = LeaseEnd(first.end.0 + 5_000);
    let writer = LocalFd::open(|| reopened(&owners[1].file, OFlags::RDWR)).unwrap();
    let taken = FileLock::exclusive(writer, end_byte(first.slot, later.0)).unwrap();
    lease.renew(later).unwrap_err().assert_is(Status::Busy, "has locked these bytes exclusively");
    assert_eq!((owners[0].found(), lease.end()), (before[0].clone(), first.end));
    drop(taken);
    assert_eq!(owners.each_ref().map(Owner::found), before);
    lease.renew(later).unwrap();
    assert_eq!(owners.map(|owner| owner.found()[0].end), [later; 2]);
}

#[test]
fn a_question_and_a_lease_end_when_their_time_is_spent() {
    let owner = Owner::new();
    let spent = LockBudget::spent();
    let ask = || LeaseLocks::new(&owner.lock, &spent).unwrap().on(&[0..1, 5..6]).unwrap();
    assert_eq!(ask(), Leased { unknown: vec![0, 1], ..Leased::default() }, "nothing was looked at");
    let _lease = take(&owner.importer(), &[0..8], READER, LONG);
    assert_eq!(ask(), Leased { unknown: vec![0, 1], ..Leased::default() });
    let found = owner.found();
    let late = SlotLease::take(&bytes(&owner.importer(), &[0..8])[0], found[0].slot ^ 1, READER, &spent);
    assert_eq!(late.err().unwrap().status(), Status::Busy);
    assert_eq!(owner.found(), found);
}

#[test]
fn a_process_has_a_number_of_leases_and_ranges_which_come_back() {
    let owner = Owner::new();
    let own = owner.importer();
    let refused = |ranges: &[Range<u64>]| {
        let taken = RegionLease::take(&bytes(&own, ranges), READER, LeaseEnd::after(LONG));
        taken.err().map(|error| error.status())
    };
    let many: Vec<_> = (0..MAX_RANGES as u64).map(|index| 2 * index..2 * index + 1).collect();
    assert_eq!(refused(&[many.clone(), vec![1 << 20..1 << 21]].concat()), Some(Status::OutOfMemory));
    let all = take(&own, &many[1..], READER, LONG);
    assert_eq!(refused(&many[..2]), Some(Status::OutOfMemory));
    assert_eq!(refused(&many[..1]), None);
    drop(all);
    let leases: Vec<_> = (0..MAX_LEASES).map(|_| take(&own, &many[..1], READER, LONG)).collect();
    assert_eq!(owner.found().len(), MAX_LEASES);
    assert_eq!(refused(&many[..1]), Some(Status::OutOfMemory));
    drop(leases);
    assert!(owner.found().is_empty() && own.taken.lock().ranges == 0);
    assert_eq!(refused(&[0..BYTES + 1]), Some(Status::Unsupported));
}

proptest! {
    #[test]
    fn the_ranges_that_are_leased_are_found(
        locked in prop::collection::vec((0u64..300, 1u64..9), 1..20),
        asked in prop::collection::vec((0u64..9, 1u64..9), 0..30),
        // Bytes, and sizes of each of the chunks.
        unit in prop_oneof![1u64..20_000, 1u64..1 << 34],
    ) {
        let owner = Owner::new();
        let sizes = locked.into_iter().map(|(start, size)| start * unit..(start + size) * unit);
        let mut ranges: Vec<_> = sizes.collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let lease = take(&owner.importer(), &ranges, READER, LONG);
        let _other = take(&owner.importer(), &[0..5, 7 * unit + 5..8 * unit + 9], READER, LONG);
        let mut end = 0;
        let asked: Vec<_> = asked
            .into_iter()
            .map(|(gap, size)| {
                let start = end + gap * unit;
                end = start + size * unit;
                start..end
            })
            .collect();
        let meets = |one: &Range<u64>| ranges.iter().any(|other| one.start < other.end && other.start < one.end);
        let expected: Vec<_> = (0..asked.len()).filter(|index| meets(&asked[*index])).collect();
        prop_assert_eq!(owner.leased(&owner.found_with(lease.slots[0].slot), &asked), expected);
    }
}
