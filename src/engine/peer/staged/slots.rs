// SPDX-License-Identifier: Apache-2.0
//! The slots of an arena: which are free, who has the others, and when some are replaced. It allocates none.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::base::{Leases, LogId, Mutex, Result, log};
use crate::nixl::Remote;

pub const SLOTS: u64 = 8;
pub const SLOTS_OF_PEER: u64 = SLOTS * 3 / 4;
/// Slots of an arena with those that replace others, including those that NIXL may use for ever.
pub const MAX_SLOTS: u64 = 8 * SLOTS;
/// How long a peer may keep a slot before it is replaced for others.
pub const LEASE: Duration = Duration::from_millis(250);
/// Interval between attempts to replace slots, if one has failed.
const RETRY: Duration = Duration::from_secs(1);

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

/// Slots in memory of a kind, which is freed with its last slot.
pub struct Slots<M>(Mutex<State<M>>);

pub struct Place<M> {
    pub memory: Arc<M>,
    pub address: u64,
}

/// Memory that was allocated and registered, and its slots.
pub struct Allocated<M> {
    pub memory: Weak<M>,
    pub slots: u64,
    pub places: Vec<Place<M>>,
}

/// What a user gets.
pub enum Taken<M> {
    /// A slot, with its number.
    Slot(u64, Place<M>),
    /// None: so many are to be allocated, and passed to [`Slots::replaced`]. 0 if no more may exist.
    Missing(u64),
    Nothing,
}

struct State<M> {
    free: Vec<Place<M>>,
    /// The numbers of those that are in use.
    taken: Leases<SlotUser, u64>,
    next: u64,
    replacing: Replacing,
    /// When a run that has some has last moved bytes.
    last_moved: Option<Instant>,
    /// All memory that exists, with its number of slots.
    allocated: Vec<(Weak<M>, u64)>,
}

/// Whether a thread allocates memory in place of slots that are kept for long.
#[derive(Clone, Copy, PartialEq)]
enum Replacing {
    No,
    Now,
    NotBefore(Instant),
}

impl<M> State<M> {
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

    fn add(&mut self, Allocated { memory, slots, places }: Allocated<M>) {
        self.allocated.push((memory, slots));
        self.free.extend(places);
    }
}

impl<M> Slots<M> {
    /// The slots of a new arena, of which a user has at most `share`.
    pub fn new(share: u64, allocated: Allocated<M>) -> Self {
        let mut state = State {
            free: Vec::new(),
            taken: Leases::new(MAX_SLOTS as usize, share as usize),
            next: 0,
            replacing: Replacing::No,
            last_moved: None,
            allocated: Vec::new(),
        };
        state.add(allocated);
        Self(Mutex::new(state))
    }

    /// Takes a free slot, if there is one and the user has less than its share.
    pub fn take(&self, user: SlotUser) -> Taken<M> {
        let mut state = self.0.lock();
        let number = state.next;
        if state.taken.left_for(&user) == 0 {
            return Taken::Nothing;
        }
        let Some(place) = state.free.pop() else {
            let missing = state.missing(user);
            if missing == 0 {
                return Taken::Nothing;
            }
            state.replacing = Replacing::Now;
            return Taken::Missing(missing.min(state.left()));
        };
        if state.taken.add(user, 1, number).is_err() {
            state.free.push(place);
            return Taken::Nothing;
        }
        state.next += 1;
        Taken::Slot(number, place)
    }

    /// Ends the use of a slot; without a place, it is lost. Returns a place that is not needed any more.
    pub fn give_back(&self, number: u64, place: Option<Place<M>>) -> Option<Place<M>> {
        let mut state = self.0.lock();
        state.taken.end(|lease| lease.item == number);
        // Beyond the usual number they were replaced.
        if (state.free.len() as u64) < SLOTS {
            state.free.extend(place);
            return None;
        }
        place
    }

    /// Adds what was allocated in place of missing slots.
    pub fn replaced(&self, made: Result<Vec<Allocated<M>>>) {
        let mut state = self.0.lock();
        state.replacing = match made {
            Ok(made) => {
                made.into_iter().for_each(|allocated| state.add(allocated));
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

    pub fn has_share(&self, user: SlotUser) -> bool {
        self.0.lock().taken.has_share(&user)
    }

    pub fn note_moved(&self, at: Instant) {
        self.0.lock().last_moved = Some(at);
    }

    pub fn last_moved(&self) -> Option<Instant> {
        self.0.lock().last_moved
    }
}

#[cfg(test)]
impl<M> Slots<M> {
    pub fn free(&self) -> u64 {
        self.0.lock().free.len() as u64
    }

    pub fn left(&self) -> u64 {
        self.0.lock().left()
    }
}

#[cfg(test)]
impl SlotUser {
    pub fn new() -> Self {
        Self(Some(LogId::next()))
    }
}

#[cfg(kvmem_model)]
mod models;
