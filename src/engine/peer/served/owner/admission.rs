// SPDX-License-Identifier: Apache-2.0
//! What each peer has of an owner's slots, waiting requests, closed sessions and refusals. Everything has a share per peer, and
//! comes back after a time if the peer says nothing more. docs/served-transfers.md has both in a table. Pure bookkeeping.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::{Lease, Leases, ProcessIdentity};
use crate::engine::peer::served::protocol::message::{Open, SessionKey};
use crate::engine::peer::served::protocol::session_control::GrantedSlots;
use crate::engine::peer::staged::SLOTS_OF_PEER;

/// Requests that wait for slots, of all peers and of one.
const MAX_WAITING: usize = 32;
const MAX_WAITING_OF_ONE: usize = 16;
const MAX_CLOSED: usize = 64;
const MAX_CLOSED_OF_ONE: usize = 16;
/// Refusals of one peer that it can read.
const MAX_REFUSALS_OF_ONE: usize = 3;
const SLOTS_OF_SESSION: usize = 4;
/// A requester that sends nothing for so long may have ended. Living ones repeat their last report every 200 ms.
const SILENCE: Duration = Duration::from_secs(5);
/// After so many checks, which are at least 100 ms apart, everything that an ended process had sent has arrived.
const CHECKS_OF_ENDED: u32 = 10;

/// After so long without a message, a session ends if a request waits for slots, and a request that waits is forgotten. It is also the
/// lease of writes: a requester begins them only if it has read since then that its session is open.
pub(super) fn silence(stall_timeout: Duration) -> Duration {
    SILENCE.min(stall_timeout)
}

/// The books of a service. Peers are known by the names of their agents.
pub(super) struct Admission {
    free_slots: Vec<u32>,
    slots: Leases<String, SlotsOf>,
    waiting: Leases<String, Waiting>,
    /// Sessions that have ended, the last ones. A request is large, so that it may arrive after the message that closes it; and a requester may
    /// have sent it twice.
    closed: Leases<String, Closed>,
    refusals: Leases<String, Refusal>,
    /// Entries of the control block for refusals.
    free_entries: Vec<usize>,
}

struct SlotsOf {
    key: SessionKey,
    slots: GrantedSlots,
    writes: bool,
    process: ProcessIdentity,
    /// The session has ended, and its requester may still write to them.
    is_quarantined: bool,
    /// In how many checks the process had ended.
    ended_checks: u32,
}

struct Waiting {
    key: SessionKey,
    open: Arc<Open>,
}

struct Closed {
    key: SessionKey,
    /// The owner has ended it, rather than its requester.
    by_owner: bool,
}

struct Refusal {
    key: SessionKey,
    entry: usize,
}

pub(super) struct Admitted {
    pub key: SessionKey,
    /// The name of the requester, as it says.
    pub sender: String,
    pub open: Arc<Open>,
    pub slots: GrantedSlots,
}

impl Admission {
    /// For so many slots, and these entries for refusals.
    pub fn new(slots: u32, refusals: RangeInclusive<usize>) -> Self {
        Self {
            free_slots: (0..slots).rev().collect(),
            slots: Leases::new(slots as usize, SLOTS_OF_PEER as usize),
            waiting: Leases::new(MAX_WAITING, MAX_WAITING_OF_ONE),
            closed: Leases::new(MAX_CLOSED, MAX_CLOSED_OF_ONE),
            refusals: Leases::new(refusals.clone().count(), MAX_REFUSALS_OF_ONE),
            free_entries: refusals.collect(),
        }
    }

    /// Whether a session waits, has slots, or is closed.
    pub fn knows(&self, key: SessionKey) -> bool {
        self.slots.iter().any(|lease| lease.item.key == key)
            || self.waiting.iter().any(|lease| lease.item.key == key)
            || self.closed.iter().any(|lease| lease.item.key == key)
    }

    /// Whether the owner has ended a session of this peer that has no slots any more. The requester may not have read the reason.
    pub fn has_ended(&self, key: SessionKey, sender: &str) -> bool {
        self.closed.iter().any(|lease| lease.item.key == key && lease.item.by_owner && lease.peer == *sender)
    }

    /// Whether another peer has requested a session of this key. Peers find the keys of others in the control block.
    pub fn is_of_another(&self, key: SessionKey, sender: &str) -> bool {
        self.slots.iter().any(|lease| lease.item.key == key && lease.peer != *sender)
            || self.waiting.iter().any(|lease| lease.item.key == key && lease.peer != *sender)
            || self.refusals.iter().any(|lease| lease.item.key == key && lease.peer != *sender)
    }

    /// Whether the control block says why a session has no slots.
    pub fn has_refused(&self, key: SessionKey) -> bool {
        self.refusals.iter().any(|lease| lease.item.key == key)
    }

    /// Whether slots are in use, or may be written to.
    pub fn has_slots_in_use(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Has a request wait for slots. Returns false if too many wait.
    pub fn wait(&mut self, sender: String, key: SessionKey, open: Arc<Open>) -> bool {
        self.waiting.add(sender, 1, Waiting { key, open }).is_ok()
    }

    /// Keeps a request waiting that its requester still wants.
    pub fn renew(&mut self, key: SessionKey, sender: &str) {
        let is_it = |lease: &&mut Lease<String, Waiting>| lease.item.key == key && lease.peer == sender;
        if let Some(lease) = self.waiting.iter_mut().find(is_it) {
            lease.since = Instant::now();
        }
    }

    /// Whether a request waits that could get the slots of this peer. One of another peer that has its share could not.
    pub fn are_wanted(&self, slots_of: &String) -> bool {
        self.waiting.iter().any(|lease| lease.peer == *slots_of || !self.slots.has_share(&lease.peer))
    }

    /// Gives slots to the request that has waited the longest, of those that can get some.
    pub fn next(&mut self) -> Option<Admitted> {
        let grants = Grants::new(&self.slots);
        let next = self.waiting.end(|lease| grants.count(&lease.peer, lease.item.open.writes) > 0)?;
        let count = grants.count(&next.peer, next.item.open.writes).min(self.free_slots.len());
        let (sender, Waiting { key, open }) = (next.peer, next.item);
        let granted = self.free_slots.split_off(self.free_slots.len() - count);
        let slots = GrantedSlots::new(&granted);
        let (writes, process) = (open.writes, open.process.clone());
        let held = SlotsOf { key, slots, writes, process, is_quarantined: false, ended_checks: 0 };
        match self.slots.add(sender.clone(), count, held) {
            Ok(()) => Some(Admitted { key, sender, open, slots }),
            Err(unused) => {
                self.free_slots.extend_from_slice(&unused.slots);
                None
            }
        }
    }

    /// Ends the use of a session's slots. They are kept for a while if its requester may still write to them.
    pub fn end_session(&mut self, key: SessionKey, may_be_written: bool) {
        let peer = self.slots.iter().find(|lease| lease.item.key == key).map(|lease| lease.peer.clone());
        if let Some(peer) = peer.filter(|_| !self.closed.iter().any(|lease| lease.item.key == key)) {
            self.closed.replace(peer, Closed { key, by_owner: true });
        }
        if !may_be_written {
            return self.free(|lease| lease.item.key == key);
        }
        if let Some(lease) = self.slots.iter_mut().find(|lease| lease.item.key == key) {
            lease.item.is_quarantined = true;
            lease.since = Instant::now();
        }
    }

    /// Notes that a requester has closed its session. The session of another agent stays open.
    pub fn close(&mut self, key: SessionKey, sender: &str) {
        if self.is_of_another(key, sender) {
            return;
        }
        self.waiting.end(|lease| lease.item.key == key);
        self.free(|lease| lease.item.key == key && lease.item.is_quarantined);
        if let Some(lease) = self.closed.iter_mut().find(|lease| lease.item.key == key) {
            lease.item.by_owner &= lease.peer != sender;
            return;
        }
        self.closed.replace(sender.to_string(), Closed { key, by_owner: false });
    }

    /// The entry of the control block for a refusal: the one that the session has, a free one, or that of an older refusal.
    pub fn refuse(&mut self, key: SessionKey, sender: &str) -> Option<usize> {
        if let Some(lease) = self.refusals.iter().find(|lease| lease.item.key == key) {
            return Some(lease.item.entry);
        }
        let sender = sender.to_string();
        let replaced = self.refusals.make_space(&sender);
        self.free_entries.extend(replaced.into_iter().map(|lease| lease.item.entry));
        let entry = self.free_entries.pop()?;
        match self.refusals.add(sender, 1, Refusal { key, entry }) {
            Ok(()) => Some(entry),
            Err(unused) => {
                self.free_entries.push(unused.entry);
                None
            }
        }
    }

    pub fn forget_refusal(&mut self, key: SessionKey) -> Option<usize> {
        let entry = self.refusals.end(|lease| lease.item.key == key)?.item.entry;
        self.free_entries.push(entry);
        Some(entry)
    }

    /// Frees what was not renewed, and what was not closed in time or belongs to a process that has ended. Is called at intervals: what
    /// such a process had sent before its end has arrived after `CHECKS_OF_ENDED` calls. Calls are counted rather than time, because this
    /// process may have been stopped, too, and has then received nothing.
    pub fn expire(&mut self, stall_timeout: Duration) {
        let silence = silence(stall_timeout);
        self.waiting.end_all(|lease| lease.age() >= silence || lease.item.open.process.is_gone());
        // A write begins within the lease, and then has as long as a session may stall to end.
        let quarantine = silence.saturating_add(stall_timeout);
        let has_ended = |of: &SlotsOf| of.ended_checks >= CHECKS_OF_ENDED;
        self.free(|lease| lease.item.is_quarantined && (has_ended(&lease.item) || lease.age() >= quarantine));
        for lease in self.slots.iter_mut().filter(|lease| lease.item.is_quarantined) {
            lease.item.ended_checks += u32::from(lease.item.process.is_gone());
        }
    }

    fn free(&mut self, suits: impl FnMut(&Lease<String, SlotsOf>) -> bool) {
        for lease in self.slots.end_all(suits) {
            self.free_slots.extend_from_slice(&lease.item.slots);
        }
    }
}

/// How many slots a session can get.
struct Grants<'a> {
    slots: &'a Leases<String, SlotsOf>,
    writes: usize,
}

impl<'a> Grants<'a> {
    fn new(slots: &'a Leases<String, SlotsOf>) -> Self {
        // Slots of writes come back late if their requesters say nothing more. So a write gets at most half of what other writes leave,
        // rounded up, and one slot is for reads: several silent requesters do not take all.
        let written: usize = slots.iter().filter(|lease| lease.item.writes).map(|lease| lease.units).sum();
        Self { slots, writes: (slots.most() - 1).saturating_sub(written).div_ceil(2) }
    }

    fn count(&self, sender: &String, writes: bool) -> usize {
        let most = if writes { self.writes } else { usize::MAX };
        SLOTS_OF_SESSION.min(self.slots.left_for(sender)).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Terms;

    const STALL_TIMEOUT: Duration = Duration::from_secs(3600);

    fn key(number: u8) -> SessionKey {
        SessionKey([number; 16])
    }

    fn open_by(process: ProcessIdentity, writes: bool) -> Arc<Open> {
        let terms = Terms::raw("BLONHC".into(), [0, 1], [0, 1], [0, 1], [1, 1, 1, 1], vec![0; 12]);
        Arc::new(Open { process, writes, bytes: 1, chunk_size: 4096, verifies: false, terms })
    }

    /// A write of a requester in another container or on another host, whose end cannot be proven.
    fn open() -> Arc<Open> {
        open_by(ProcessIdentity::unknown(), true)
    }

    fn admission() -> Admission {
        Admission::new(8, 9..=15)
    }

    /// Requests a session, and returns the number of its slots, if it gets some.
    fn request_by(admission: &mut Admission, sender: &str, number: u8, open: Arc<Open>) -> Option<usize> {
        assert!(admission.wait(sender.into(), key(number), open));
        admission.next().map(|admitted| {
            assert_eq!((admitted.key, admitted.sender.as_str()), (key(number), sender));
            admitted.slots.len()
        })
    }

    /// The same for a write.
    fn request(admission: &mut Admission, sender: &str, number: u8) -> Option<usize> {
        request_by(admission, sender, number, open())
    }

    #[test]
    fn slots_of_a_write_that_is_never_closed_come_back_after_a_time() {
        let mut admission = admission();
        for (sender, number, slots) in [("a", 1, 4), ("a", 2, 2), ("b", 3, 1)] {
            assert_eq!(request(&mut admission, sender, number), Some(slots));
            admission.end_session(key(number), true);
        }
        assert_eq!(request(&mut admission, "c", 4), None);
        admission.expire(STALL_TIMEOUT);
        assert!(admission.next().is_none(), "a late write may still arrive");
        admission.expire(Duration::ZERO);
        assert!(!admission.has_slots_in_use());
        assert_eq!(request(&mut admission, "c", 5), Some(4));
    }

    #[test]
    fn writes_of_two_silent_peers_leave_slots_for_a_third_and_for_reads() {
        let mut admission = admission();
        for (sender, number, slots) in
            [("a", 1, Some(4)), ("b", 2, Some(2)), ("c", 3, Some(1)), ("d", 4, None)]
        {
            assert_eq!(request(&mut admission, sender, number), slots);
        }
        let read = open_by(ProcessIdentity::unknown(), false);
        assert_eq!(request_by(&mut admission, "e", 5, read), Some(1), "although a write waits");
    }

    #[test]
    fn slots_of_a_write_of_a_process_that_has_ended_come_back_after_some_checks() {
        let mut admission = admission();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let ended = ProcessIdentity { pid: child.id(), ..ProcessIdentity::current().unwrap() };
        assert_eq!(request_by(&mut admission, "a", 1, open_by(ended, true)), Some(4));
        assert_eq!(request_by(&mut admission, "b", 2, open()), Some(2));
        for number in [1, 2] {
            admission.end_session(key(number), true);
        }
        for _ in 0..CHECKS_OF_ENDED {
            admission.expire(STALL_TIMEOUT);
            assert_eq!(admission.free_slots.len(), 2, "what it had sent may still arrive");
        }
        admission.expire(STALL_TIMEOUT);
        assert_eq!(admission.free_slots.len(), 6, "nothing proves the end of the other one");
    }

    #[test]
    fn slots_of_others_are_not_wanted_by_a_peer_that_has_its_share() {
        let mut admission = admission();
        let read = || open_by(ProcessIdentity::unknown(), false);
        for (sender, number, slots) in
            [("a", 1, Some(4)), ("a", 2, Some(2)), ("b", 3, Some(2)), ("a", 4, None)]
        {
            assert_eq!(request_by(&mut admission, sender, number, read()), slots);
        }
        assert!(!admission.are_wanted(&"b".into()), "a has its share");
        assert!(admission.are_wanted(&"a".into()));
        assert_eq!(request_by(&mut admission, "c", 5, read()), None);
        assert!(admission.are_wanted(&"b".into()));
    }

    /// It would get slots, and not use them.
    #[test]
    fn a_request_that_is_not_repeated_is_forgotten_long_before_sessions_stall() {
        let mut admission = admission();
        assert!(admission.wait("a".into(), key(1), open()));
        let old = Instant::now().checked_sub(SILENCE).unwrap();
        admission.waiting.iter_mut().for_each(|lease| lease.since = old);
        admission.expire(STALL_TIMEOUT);
        assert!(admission.waiting.is_empty());
    }

    #[test]
    fn a_session_in_use_keeps_its_slots_and_a_closed_one_frees_them() {
        let mut admission = admission();
        assert_eq!(request(&mut admission, "a", 1), Some(4));
        admission.expire(Duration::ZERO);
        assert!(admission.has_slots_in_use());
        admission.end_session(key(1), true);
        admission.close(key(1), "b");
        assert!(admission.has_slots_in_use(), "it was closed by another agent");
        assert!(admission.has_ended(key(1), "a") && !admission.has_ended(key(1), "b"));
        admission.close(key(1), "a");
        assert!(!admission.has_slots_in_use() && !admission.has_ended(key(1), "a"));
        assert!(admission.knows(key(1)), "a request that arrives late gets no slots");
    }

    #[test]
    fn others_can_neither_close_a_session_nor_have_a_closed_one_forgotten() {
        let mut admission = admission();
        assert_eq!(request(&mut admission, "a", 1), Some(4));
        admission.close(key(1), "b");
        assert_eq!(admission.closed.iter().count(), 0);
        admission.end_session(key(1), false);
        assert!(admission.knows(key(1)), "its request may arrive once more");
        admission.close(key(1), "a");
        (2..=250).for_each(|number| admission.close(key(number), "b"));
        assert!(admission.knows(key(1)), "b has replaced its own closed sessions only");
        assert!(!admission.knows(key(2)) && admission.knows(key(250)));
    }

    #[test]
    fn a_waiting_request_is_kept_while_it_is_renewed() {
        let mut admission = admission();
        assert!(admission.wait("a".into(), key(1), open()));
        let old = Instant::now().checked_sub(Duration::from_secs(9)).unwrap();
        let age =
            |admission: &mut Admission| admission.waiting.iter_mut().for_each(|lease| lease.since = old);
        age(&mut admission);
        admission.renew(key(1), "b");
        assert!(admission.waiting.iter().all(|lease| lease.since == old), "it is not b's");
        admission.renew(key(1), "a");
        admission.expire(Duration::from_secs(9));
        assert!(admission.knows(key(1)));
        age(&mut admission);
        admission.expire(Duration::from_secs(9));
        assert!(!admission.knows(key(1)));
    }

    #[test]
    fn refusals_of_one_peer_leave_entries_for_others() {
        let mut admission = admission();
        let first = admission.refuse(key(1), "a").unwrap();
        let of_b: Vec<_> = (2..200).map(|number| admission.refuse(key(number), "b").unwrap()).collect();
        assert!(!of_b.contains(&first) && of_b.iter().all(|entry| (9..=15).contains(entry)));
        assert_eq!(admission.refuse(key(1), "a"), Some(first), "a session has one entry");
        assert_eq!(admission.forget_refusal(key(1)), Some(first));
        assert_eq!(admission.forget_refusal(key(1)), None);
    }
}
