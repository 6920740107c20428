// SPDX-License-Identifier: Apache-2.0
//! The bounce arena of an agent: registered memory in slots. A slot is the credit for one chunk in flight, so that the
//! arena never overflows, whatever the number of transfers that share it.
//!
//! A request to a stopped peer may keep its slot for ever. So a peer has at most a share of the slots, and slots that peers
//! keep for long are replaced, by other memory, once another peer needs one, up to a total.

use std::sync::Arc;
use std::time::Instant;

use super::slots::{self, MAX_SLOTS, SLOTS, SlotUser, Slots, Taken};
use super::staging_memory::StagingMemory;
use crate::base::{Error, LogId, PerProcess, Result, SharedObjects, Status, guarded, leak, thread};
use crate::copy::gpu::RowCopier;
use crate::nixl::{self, Agent};
use crate::region::{Region, Registration, RegistrationHold};

/// What the slots of an arena are for. Each has arenas of its own: a run that holds a slot of one may wait for a slot of
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ArenaUse {
    /// Blocks on their way to or from peers.
    Chunks,
    /// Objects, which have no peer.
    Objects,
    /// Copies of control blocks.
    Mailboxes,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ArenaKey {
    agent: LogId,
    purpose: ArenaUse,
    kind: StagingMemory,
    slot_size: u64,
}

/// Registered memory in slots. Transfers and layouts of the agent hold it.
pub struct Arena {
    agent: Arc<Agent>,
    pub kind: StagingMemory,
    /// What copies between it and a layout; `None` for the threads that copy host memory.
    pub copier: Option<Arc<RowCopier>>,
    pub slot_size: u64,
    slots: Slots<RegistrationHold>,
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
        let share = if purpose == ArenaUse::Objects { SLOTS } else { slots::SLOTS_OF_PEER };
        let make = || {
            let slots = Slots::new(share, allocate(agent, kind, slot_size, SLOTS)?);
            let copier = kind.copier()?;
            Ok(Self { agent: agent.clone(), kind, copier, slot_size, slots })
        };
        ARENAS.get(SharedObjects::default).get(key, |_| true, agent.call_deadline(), make)
    }

    /// Takes a free slot, if there is one and the user has less than its share.
    pub fn take(self: &Arc<Self>, user: SlotUser) -> Option<Slot> {
        match self.slots.take(user) {
            Taken::Slot(number, place) => Some(Slot { arena: self.clone(), number, place: Some(place) }),
            Taken::Missing(slots) => {
                self.replace(slots);
                None
            }
            Taken::Nothing => None,
        }
    }

    /// Whether a user has as many slots as it may have.
    pub fn has_share(&self, user: SlotUser) -> bool {
        self.slots.has_share(user)
    }

    /// Notes that a run that may have slots has moved bytes.
    pub fn note_moved(&self, at: Instant) {
        self.slots.note_moved(at);
    }

    /// When such a run has last moved bytes.
    pub fn last_moved(&self) -> Option<Instant> {
        self.slots.last_moved()
    }

    /// Allocates so many slots in another thread: the agent's thread registers them. Each is memory of its own, which is freed when
    /// the slot is not needed any more, whatever others are used for.
    fn replace(self: &Arc<Self>, slots: u64) {
        if slots == 0 {
            let message = format!(
                "all {MAX_SLOTS} slots of {} bytes that an agent can have are in use",
                self.slot_size
            );
            return self.slots.replaced(Err(Error::new(Status::OutOfMemory, message)));
        }
        let arena = self.clone();
        let started = thread::spawn("kvmem-staging", move || {
            let one = || allocate(&arena.agent, arena.kind, arena.slot_size, 1);
            arena.slots.replaced(guarded(|| as_many(slots, one)).and_then(|made| made));
        });
        if let Err(error) = started {
            self.slots.replaced(Err(error));
        }
    }
}

type Place = slots::Place<RegistrationHold>;
type Allocated = slots::Allocated<RegistrationHold>;

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
        let surplus = self.arena.slots.give_back(self.number, self.place.take());
        // Without a lock: it may deregister memory.
        drop(surplus);
    }
}

#[cfg(test)]
mod tests {

    use super::super::slot_sizes::PAGE;
    use super::*;
    use crate::base::error;
    use crate::waiting::until_some;

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
        SlotUser::new()
    }

    fn take_all(arena: &Arc<Arena>, user: SlotUser) -> Vec<Slot> {
        std::iter::from_fn(|| arena.take(user)).collect()
    }

    /// Takes a slot once others were replaced.
    fn take_replaced(arena: &Arc<Arena>, user: SlotUser) -> Slot {
        until_some("the slots are not replaced", || arena.take(user))
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
        assert_eq!(arena.slots.free(), SLOTS, "what is more than usual is freed");
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
        let is_full = || arena.slots.left() == 0 && arena.slots.free() == 0;
        until_some("there is no total", || {
            kept.extend(take_all(&arena, new_user()));
            is_full().then_some(())
        });
        assert_eq!(kept.len() as u64, MAX_SLOTS - 6);
        std::thread::sleep(slots::LEASE);
        assert!(arena.take(new_user()).is_none() && is_full(), "nothing is allocated");
        drop(kept.pop());
        assert!(arena.take(new_user()).is_some());
    }
}
