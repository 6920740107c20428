// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::single_range_in_vec_init, reason = "leases have ranges, sometimes one")]

use std::fs::File;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, OFlags};

use super::*;
use crate::base::Status;
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

    fn found(&self) -> Vec<FoundLease> {
        LeaseLocks::new(&self.lock, &LockBudget::default()).all().unwrap().unwrap()
    }

    fn leased(&self, lease: &FoundLease, ranges: &[Range<u64>]) -> Vec<usize> {
        let budget = LockBudget::default();
        let mut found = LeaseLocks::new(&self.lock, &budget).leased(lease, ranges).unwrap().unwrap();
        found.sort_unstable();
        found
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
    let last = BYTES.end - 1..BYTES.end;
    let reader = take(&one, &[0..100, 300..400], READER, LONG);
    let writer = take(&other, &[50..60, last.clone()], WRITER, None);
    let found = owner.found();
    assert_eq!(found.len(), 2);
    let of = |holder| *found.iter().find(|lease| lease.holder == holder).unwrap();
    assert_eq!(of(WRITER).end.remaining(), None);
    assert!(of(READER).end.remaining().unwrap() <= LONG.unwrap() && !of(READER).end.is_over());
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
    let lease = take(&owner.importer(), &[0..8], READER, Some(Duration::ZERO));
    assert!(owner.found().is_empty(), "it is over, and its bytes are still locked");
    lease.set_end(LeaseEnd::after(LONG)).unwrap();
    let [first] = owner.found()[..] else { panic!() };
    // In the middle of a renewal it has both ends.
    let later = LeaseEnd(first.end.0 + 5_000);
    lock_shared(&lease.slots[0].own.file, byte(first.slot, &ENDS, later.0)).unwrap();
    assert_eq!(owner.found()[0].end, later);
    lease.set_end(later).unwrap();
    assert_eq!(owner.found(), [FoundLease { end: later, ..first }]);
    lease.set_end(LeaseEnd::after(None)).unwrap();
    assert_eq!(owner.found()[0].end, LeaseEnd(NEVER));
    lease.set_end(LeaseEnd::after(Some(Duration::ZERO))).unwrap();
    assert!(owner.found().is_empty());
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

#[test]
fn a_process_that_locks_everything_hides_leases_and_no_other_gets_one() {
    let owner = Owner::new();
    let _hidden = take(&owner.importer(), &[0..8], READER, LONG);
    let hostile = owner.importer();
    let hides = |bytes: Range<u64>| {
        lock_shared(&hostile.file, bytes.clone()).unwrap();
        let found = LeaseLocks::new(&owner.lock, &LockBudget::default()).all().unwrap();
        unlock(&hostile.file, bytes).unwrap();
        found.is_none()
    };
    assert!(hides(ALL) && hides(1..LAST) && hides(FIRST - 1..FIRST + 1) && hides(ALL.end - 1..ALL.end + 1));
    assert!(hides(slot_start(7) - 1..slot_start(7) + 1), "in two slots");
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
    unlock(&hostile.file, FIRST..LAST).unwrap();
    for locked in 1..6 {
        let [end] = owner.found()[..] else { panic!() };
        assert!(end.end >= found.end && end.holder.pid == READER.pid);
        lock_shared(&hostile.file, byte(found.slot, &ENDS, now() + 10_000 * locked)).unwrap();
    }
    assert_eq!(owner.found()[0].end, LeaseEnd(NEVER), "it has more ends than are looked at");
    lock_shared(&hostile.file, part(found.slot, &(7..21))).unwrap();
    lock_shared(&hostile.file, part(found.slot, &HOLDERS)).unwrap();
    let [found] = owner.found()[..] else { panic!() };
    assert_eq!(owner.leased(&found, &[0..1, 10..11, 27..28, 28..29]), [0, 1, 2]);
    drop(hostile);
    assert_eq!(owner.leased(&owner.found()[0], &[0..1, 10..11, 27..28]), [0, 2]);
}

#[test]
fn more_leases_than_are_returned_are_reported_as_too_many() {
    let owner = Owner::new();
    let hostile = owner.importer();
    for slot in 0..MAX_FOUND as u64 {
        lock_shared(&hostile.file, byte(slot, &ENDS, NEVER)).unwrap();
    }
    assert_eq!(owner.found().len(), MAX_FOUND);
    lock_shared(&hostile.file, byte(SLOTS - 1, &ENDS, NEVER)).unwrap();
    assert_eq!(LeaseLocks::new(&owner.lock, &LockBudget::default()).all().unwrap(), None);
}

#[test]
fn leases_that_are_over_are_not_too_many() {
    let owner = Owner::new();
    let late = owner.importer();
    for slot in 0..=MAX_FOUND as u64 {
        lock_shared(&late.file, byte(slot, &ENDS, 0)).unwrap();
    }
    let _lease = take(&owner.importer(), &[0..8], READER, LONG);
    assert_eq!(owner.found().len(), 1);
}

#[test]
fn a_renewal_that_fails_changes_the_end_nowhere() {
    let owners = [Owner::new(), Owner::new()];
    let regions = owners.each_ref().map(|owner| LeasedBytes { own: owner.importer(), ranges: vec![0..8] });
    let lease = RegionLease::take(&regions, READER, LeaseEnd::after(LONG)).unwrap();
    let before = owners.each_ref().map(Owner::found);
    // A process that may write the file of the second region takes the byte of the earlier end.
    let earlier = LeaseEnd(before[0][0].end.0 - 5_000);
    let taken = byte(before[1][0].slot, &ENDS, earlier.0).start;
    let writer = LocalFd::open(|| reopened(&owners[1].file, OFlags::RDWR)).unwrap();
    let _taken = FileLock::exclusive(writer, taken).unwrap();
    assert!(lease.set_end(earlier).is_err());
    assert_eq!(owners.each_ref().map(Owner::found), before);
    let later = LeaseEnd(before[0][0].end.0 + 5_000);
    let taken = byte(before[1][0].slot, &ENDS, later.0).start;
    let writer = LocalFd::open(|| reopened(&owners[1].file, OFlags::RDWR)).unwrap();
    let _later = FileLock::exclusive(writer, taken).unwrap();
    assert!(lease.set_end(later).is_err());
    assert_eq!(owners[0].found(), before[0]);
}

#[test]
fn a_question_and_a_lease_end_when_their_time_is_spent() {
    let owner = Owner::new();
    let spent = LockBudget::spent();
    let locks = LeaseLocks::new(&owner.lock, &spent);
    assert_eq!(locks.all().unwrap(), Some(Vec::new()), "no lock takes no time");
    let _lease = take(&owner.importer(), &[0..8], READER, LONG);
    let found = owner.found()[0];
    assert_eq!((locks.all().unwrap(), locks.leased(&found, &[0..1]).unwrap()), (None, None));
    let late = SlotLease::take(&bytes(&owner.importer(), &[0..8])[0], found.slot ^ 1, READER, &spent);
    assert_eq!(late.err().unwrap().status(), Status::Busy);
    assert_eq!(owner.found(), [found]);
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
    assert_eq!(refused(&[0..BYTES.end + 1]), Some(Status::Unsupported));
}

proptest! {
    #[test]
    fn the_ranges_that_are_leased_are_found(
        locked in prop::collection::vec((0u64..300, 1u64..9), 1..20),
        asked in prop::collection::vec((0u64..9, 1u64..9), 0..30),
    ) {
        let owner = Owner::new();
        let mut ranges: Vec<_> = locked.into_iter().map(|(start, size)| start..start + size).collect();
        let _lease = take(&owner.importer(), &ranges, READER, LONG);
        ranges.sort_unstable_by_key(|range| range.start);
        let mut end = 0;
        let asked: Vec<_> = asked
            .into_iter()
            .map(|(gap, size)| {
                let start = end + gap;
                end = start + size;
                start..end
            })
            .collect();
        let meets = |one: &Range<u64>| ranges.iter().any(|other| one.start < other.end && other.start < one.end);
        let expected: Vec<_> = (0..asked.len()).filter(|index| meets(&asked[*index])).collect();
        prop_assert_eq!(owner.leased(&owner.found()[0], &asked), expected);
    }
}
