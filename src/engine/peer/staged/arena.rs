// SPDX-License-Identifier: Apache-2.0
//! The bounce arena of an agent: registered memory in slots. A slot is the credit for one chunk in flight, so that the
//! arena never overflows, whatever the number of transfers that share it.
//!
//! A request to a stopped peer may keep its slot for ever. So a peer has at most a share of the slots, and slots that peers
//! keep for long are replaced, by other memory, once another peer needs one, up to a total.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::staging_memory::StagingMemory;
use crate::base::{
    Error, Leases, LogId, Mutex, PerProcess, Result, SharedObjects, Status, guarded, leak, log, thread,
};
use crate::copy::gpu::RowCopier;
use crate::nixl::{self, Agent, Remote};
use crate::region::{Region, Registration, RegistrationHold};

pub const SLOTS: u64 = 8;
pub const SLOTS_OF_PEER: u64 = SLOTS * 3 / 4;
/// Slots of an arena with those that replace others, including those that NIXL may use for ever.
const MAX_SLOTS: u64 = 8 * SLOTS;
/// How long a peer may keep a slot before it is replaced for others.
const LEASE: Duration = Duration::from_millis(250);
/// Interval between attempts to replace slots, if one has failed.
const RETRY: Duration = Duration::from_secs(1);

/// What the slots of an arena are for. Each has arenas of its own: a run that holds a slot of one may wait for a slot of
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArenaUse {
    /// Blocks on their way to or from peers.
    Chunks,
    /// Objects, which have no peer.
    Objects,
    /// Copies of control blocks.
    Mailboxes,
}

#[derive(PartialEq)]
struct ArenaKey {
    agent: LogId,
    purpose: ArenaUse,
    kind: StagingMemory,
    slot_size: u64,
}

/// A peer, by its number, or the stores of objects. Slots that are in use do not hold their peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotUser(Option<LogId>);

impl SlotUser {
    /// The user of slots that have no peer.
    pub const STORES: Self = Self(None);

    /// A peer. A peer that was loaded again is another user.
    pub fn peer(remote: &Remote) -> Self {
        Self(Some(remote.number()))
    }
}

/// Registered memory in slots. Transfers and layouts of the agent hold it.
pub struct Arena {
    agent: Arc<Agent>,
    pub kind: StagingMemory,
    /// What copies between it and a layout; `None` for the threads that copy host memory.
    pub copier: Option<Arc<RowCopier>>,
    pub slot_size: u64,
    slots: Mutex<Slots>,
}

struct Slots {
    free: Vec<Place>,
    /// The numbers of those that are in use.
    taken: Leases<SlotUser, u64>,
    next: u64,
    replacing: Replacing,
    /// When a run that has some has last moved bytes.
    last_moved: Option<Instant>,
    /// All memory that exists, with its number of slots.
    allocated: Vec<(Weak<RegistrationHold>, u64)>,
}

struct Place {
    memory: Arc<RegistrationHold>,
    address: u64,
}

/// Whether a thread allocates memory in place of slots that are kept for long.
#[derive(Clone, Copy, PartialEq)]
enum Replacing {
    No,
    Now,
    NotBefore(Instant),
}

impl Slots {
    /// How many slots are to be allocated because others keep theirs for long, or NIXL may use them for ever. None is free.
    fn missing(&self, user: SlotUser) -> u64 {
        let is_possible = match self.replacing {
            Replacing::No => true,
            Replacing::Now => false,
            Replacing::NotBefore(time) => Instant::now() >= time,
        };
        let usable = self.taken.iter().filter(|lease| lease.peer == user || lease.age() < LEASE).count();
        if is_possible { SLOTS.saturating_sub(usable as u64) } else { 0 }
    }

    /// How many slots can be allocated.
    fn left(&mut self) -> u64 {
        self.allocated.retain(|(memory, _)| memory.strong_count() > 0);
        MAX_SLOTS.saturating_sub(self.allocated.iter().map(|(_, slots)| slots).sum())
    }

    fn add(&mut self, Allocated { memory, slots, places }: Allocated) {
        self.allocated.push((memory, slots));
        self.free.extend(places);
    }
}

impl Arena {
    /// The arena of an agent for this use with slots of this size: an existing one, or a new one.
    pub fn for_agent(
        agent: &Arc<Agent>,
        purpose: ArenaUse,
        kind: StagingMemory,
        slot_size: u64,
    ) -> Result<Arc<Self>> {
        static ARENAS: PerProcess<SharedObjects<ArenaKey, Arena>> = PerProcess::new();
        let key = ArenaKey { agent: agent.log_id(), purpose, kind, slot_size };
        let share = if purpose == ArenaUse::Objects { SLOTS } else { SLOTS_OF_PEER };
        let make = || {
            let mut slots = Slots {
                free: Vec::new(),
                taken: Leases::new(MAX_SLOTS as usize, share as usize),
                next: 0,
                replacing: Replacing::No,
                last_moved: None,
                allocated: Vec::new(),
            };
            slots.add(allocate(agent, kind, slot_size, SLOTS)?);
            let copier = kind.copier()?;
            Ok(Self { agent: agent.clone(), kind, copier, slot_size, slots: Mutex::new(slots) })
        };
        ARENAS.get(SharedObjects::default).get(key, |_| true, agent.call_deadline(), make)
    }

    /// Takes a free slot, if there is one and the user has less than its share.
    pub fn take(self: &Arc<Self>, user: SlotUser) -> Option<Slot> {
        let mut slots = self.slots.lock();
        let number = slots.next;
        if slots.taken.left_for(&user) == 0 {
            return None;
        }
        let Some(place) = slots.free.pop() else {
            let missing = slots.missing(user);
            if missing > 0 {
                slots.replacing = Replacing::Now;
                let possible = missing.min(slots.left());
                drop(slots);
                self.replace(possible);
            }
            return None;
        };
        if slots.taken.add(user, 1, number).is_err() {
            slots.free.push(place);
            return None;
        }
        slots.next += 1;
        drop(slots);
        Some(Slot { arena: self.clone(), number, place: Some(place) })
    }

    /// Whether a user has as many slots as it may have.
    pub fn has_share(&self, user: SlotUser) -> bool {
        self.slots.lock().taken.has_share(&user)
    }

    /// Notes that a run that may have slots has moved bytes.
    pub fn note_moved(&self, at: Instant) {
        self.slots.lock().last_moved = Some(at);
    }

    /// When such a run has last moved bytes.
    pub fn last_moved(&self) -> Option<Instant> {
        self.slots.lock().last_moved
    }

    /// Allocates so many slots in another thread: the agent's thread registers them. Each is memory of its own, which is freed when
    /// the slot is not needed any more, whatever others are used for.
    fn replace(self: &Arc<Self>, slots: u64) {
        if slots == 0 {
            let message = format!(
                "all {MAX_SLOTS} slots of {} bytes that an agent can have are in use",
                self.slot_size
            );
            return self.replaced(Err(Error::new(Status::OutOfMemory, message)));
        }
        let arena = self.clone();
        let started = thread::spawn("kvmem-staging", move || {
            let one = || allocate(&arena.agent, arena.kind, arena.slot_size, 1);
            arena.replaced(guarded(|| as_many(slots, one)).and_then(|made| made));
        });
        if let Err(error) = started {
            self.replaced(Err(error));
        }
    }

    fn replaced(&self, made: Result<Vec<Allocated>>) {
        let mut slots = self.slots.lock();
        slots.replacing = match made {
            Ok(made) => {
                made.into_iter().for_each(|allocated| slots.add(allocated));
                Replacing::No
            }
            Err(error) => {
                log!(
                    Warn,
                    "transfers wait, because other peers keep staging memory that cannot be replaced: {error}"
                );
                Replacing::NotBefore(Instant::now() + RETRY)
            }
        };
    }
}

/// Memory that was allocated and registered, and its slots.
struct Allocated {
    memory: Weak<RegistrationHold>,
    slots: u64,
    places: Vec<Place>,
}

fn allocate(agent: &Arc<Agent>, kind: StagingMemory, slot_size: u64, slots: u64) -> Result<Allocated> {
    let make = || Registration::create(&kind.allocate(slots * slot_size)?, agent)?.hold();
    let memory = nixl::within(agent.call_deadline(), make)?;
    let (first, memory) = (memory.region().address(), Arc::new(memory));
    let place = |index| Place { memory: memory.clone(), address: first + index * slot_size };
    let places = (0..slots).rev().map(place).collect();
    Ok(Allocated { memory: Arc::downgrade(&memory), slots, places })
}

/// Makes up to `count` objects. Fails if there is none: memory for fewer is of use, too.
fn as_many<T>(count: u64, mut make: impl FnMut() -> Result<T>) -> Result<Vec<T>> {
    let mut made = Vec::new();
    for _ in 0..count {
        match make() {
            Ok(one) => made.push(one),
            Err(error) if made.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    Ok(made)
}

/// A slot that is in use. It is free again once this is dropped.
pub struct Slot {
    pub arena: Arc<Arena>,
    number: u64,
    /// Taken when this is dropped.
    place: Option<Place>,
}

impl Slot {
    pub fn address(&self) -> u64 {
        self.place.as_ref().map_or(0, |place| place.address)
    }

    pub fn region(&self) -> Option<&Region> {
        self.place.as_ref().map(|place| &**place.memory.region())
    }

    /// Never frees it, because NIXL may still use it. Its user can take another one.
    pub fn retire(mut self) {
        let ordinal = self.region().and_then(Region::ordinal);
        leak::with_memory(self.place.take(), ordinal.map(|ordinal| (ordinal, self.arena.slot_size)));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut slots = self.arena.slots.lock();
        slots.taken.end(|lease| lease.item == self.number);
        // Beyond the usual number they were replaced.
        let surplus = match self.place.take() {
            Some(place) if (slots.free.len() as u64) < SLOTS => {
                slots.free.push(place);
                None
            }
            surplus => surplus,
        };
        drop(slots);
        // After the lock: it may deregister memory.
        drop(surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::super::slot_sizes::PAGE;
    use super::*;
    use crate::base::error;

    /// `None` without NIXL.
    fn arena() -> Option<Arc<Arena>> {
        let agent = Agent::with_ucx("arena")?;
        Some(Arena::for_agent(&agent, ArenaUse::Chunks, StagingMemory::Host, PAGE).unwrap())
    }

    #[test]
    fn as_many_slots_are_replaced_as_there_is_memory_for() {
        let some = |limit: u64| {
            let mut left = limit;
            as_many(4, || {
                left = left.checked_sub(1).ok_or_else(|| error!(OutOfMemory, "full"))?;
                Ok(left)
            })
        };
        assert_eq!([1, 3, 4, 9].map(|limit| some(limit).unwrap().len()), [1, 3, 4, 4]);
        assert_eq!(some(0).unwrap_err().status(), Status::OutOfMemory);
    }

    fn new_user() -> SlotUser {
        SlotUser(Some(LogId::next()))
    }

    fn take_all(arena: &Arc<Arena>, user: SlotUser) -> Vec<Slot> {
        std::iter::from_fn(|| arena.take(user)).collect()
    }

    /// Takes a slot once others were replaced.
    fn take_replaced(arena: &Arc<Arena>, user: SlotUser) -> Slot {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(slot) = arena.take(user) {
                return slot;
            }
            assert!(Instant::now() < until, "the slots are not replaced");
            std::thread::yield_now();
        }
    }

    #[test]
    fn slots_that_some_peers_keep_are_replaced_for_others() {
        let Some(arena) = arena() else { return };
        let [first, second, third] = [(); 3].map(|()| new_user());
        let kept = [take_all(&arena, first), take_all(&arena, second)];
        assert_eq!(kept.each_ref().map(Vec::len), [6, 2], "of the first peer, and of all");
        let other = take_replaced(&arena, third);
        assert!(kept.iter().flatten().all(|slot| slot.address() != other.address()));
        assert!(arena.take(first).is_none(), "a peer that keeps its share gets no other memory");
        drop((kept, other));
        assert_eq!(arena.slots.lock().free.len() as u64, SLOTS, "what is more than usual is freed");
        assert_eq!(take_all(&arena, first).len(), 6);
    }

    #[test]
    fn slots_that_nixl_may_use_for_ever_are_replaced_for_their_user_too() {
        let Some(arena) = arena() else { return };
        let user = new_user();
        let lost: Vec<_> = take_all(&arena, user).into_iter().chain(take_all(&arena, new_user())).collect();
        let addresses: Vec<_> = lost.iter().map(Slot::address).collect();
        lost.into_iter().for_each(Slot::retire);
        let again = take_replaced(&arena, user);
        assert!(!addresses.contains(&again.address()));
        assert_eq!(take_all(&arena, user).len(), 5);
    }

    /// Among them slots that are lost.
    #[test]
    fn peers_that_keep_slots_get_no_more_than_the_total() {
        let Some(arena) = arena() else { return };
        take_all(&arena, new_user()).into_iter().for_each(Slot::retire);
        let mut kept = Vec::new();
        let is_full = || arena.slots.lock().left() == 0 && arena.slots.lock().free.is_empty();
        let until = Instant::now() + Duration::from_secs(120);
        while !is_full() {
            assert!(Instant::now() < until, "there is no total");
            kept.extend(take_all(&arena, new_user()));
            std::thread::yield_now();
        }
        assert_eq!(kept.len() as u64, MAX_SLOTS - 6);
        std::thread::sleep(LEASE);
        assert!(arena.take(new_user()).is_none() && is_full(), "nothing is allocated");
        drop(kept.pop());
        assert!(arena.take(new_user()).is_some());
    }
}
