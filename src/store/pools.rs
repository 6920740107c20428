// SPDX-License-Identifier: Apache-2.0
//! Which namespace has how many slots, and what it evicts. Pure.
//!
//! A namespace with a name has a quota. The one without a name has the rest, less what is retired. Each evicts its own blocks only; those of
//! one that has more than its quota, because that was lowered, or granted later, go first when another one needs slots. Such a namespace
//! itself loses some with each of its puts, not all with the next one.

use std::collections::{BTreeMap, BTreeSet};

use super::blocks::Counts;

#[derive(Default)]
pub struct Pool {
    /// Slots of a quota.
    quota: u64,
    /// Slots that are reserved or stored.
    pub used: u64,
    /// Slots that it may take although it is above its limit: it has evicted more blocks for them.
    credit: u64,
    /// Since the store was opened, except the blocks that are stored.
    pub counts: Counts,
    /// By last use.
    pub evictable: BTreeSet<(u64, u32)>,
}

#[derive(Default)]
pub struct Pools {
    unnamed: Pool,
    named: BTreeMap<u32, Pool>,
    /// Of all quotas.
    granted: u64,
    /// No namespace below this number has more than its quota: only a lower quota makes one have that.
    within: u32,
    /// Namespaces that were looked at.
    #[cfg(test)]
    pub looks: std::cell::Cell<usize>,
}

impl Pool {
    /// The slot to evict next.
    fn first(&self) -> Option<u32> {
        self.evictable.first().map(|(_, slot)| *slot)
    }
}

/// Slots that must be freed before blocks of a namespace can be stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Those that the namespace itself must free.
    pub own: usize,
    /// Those of any namespace that has more than its quota; otherwise its own, too.
    pub any: usize,
    /// Slots that the namespace may take then, although it stays above its limit.
    pub credit: usize,
}

/// A namespace far above its limit evicts this many blocks more than it stores.
pub const MAX_LOWERED: usize = 1024;

impl Missing {
    pub fn count(self) -> usize {
        self.own + self.any
    }

    /// What is missing when so many slots are free besides.
    pub fn after_freeing(self, count: usize) -> Self {
        Self { any: self.any.saturating_sub(count), ..self }
    }

    /// What must be freed at least: a namespace far above its limit frees more than it stores, if it can.
    pub fn least(self) -> Self {
        if self.credit > 0 { Self { own: self.credit, any: 0, ..self } } else { self }
    }

    /// The same for at least so many slots, unless none is missing.
    pub fn at_least(self, count: usize) -> Self {
        match self {
            Self { own: 0, any: 0, .. } => self,
            Self { own: 0, any, .. } => Self { any: any.max(count), ..self },
            Self { own, any, .. } => Self { own: own.max(count.saturating_sub(any)), ..self },
        }
    }
}

impl Pools {
    /// That of a namespace.
    pub fn of_mut(&mut self, namespace: u32) -> &mut Pool {
        match namespace {
            0 => &mut self.unnamed,
            _ => self.named.entry(namespace).or_default(),
        }
    }

    pub fn get(&self, namespace: u32) -> Option<&Pool> {
        if namespace == 0 { Some(&self.unnamed) } else { self.named.get(&namespace) }
    }

    /// Sets a quota. A namespace that has neither that nor slots leaves nothing.
    pub fn set_quota(&mut self, namespace: u32, quota: u64) {
        let pool = self.named.entry(namespace).or_default();
        self.granted = self.granted - pool.quota + quota;
        pool.quota = quota;
        if pool.used > quota {
            self.within = self.within.min(namespace);
        }
        if quota == 0 && pool.used == 0 {
            self.named.remove(&namespace);
        }
    }

    /// Takes over the quotas and counts of the pools of a reader whose journal was replaced. A namespace that has neither a quota nor slots
    /// leaves nothing.
    pub fn follow(&mut self, before: &Self) {
        let numbers = std::iter::once(0).chain(before.named.keys().copied());
        for (number, pool) in numbers.filter_map(|number| Some((number, before.get(number)?))) {
            if number > 0 {
                self.set_quota(number, pool.quota);
            }
            if self.get(number).is_some() {
                let counts = &mut self.of_mut(number).counts;
                *counts = Counts { stored: counts.stored, ..pool.counts };
            }
        }
    }

    /// The number of slots that a namespace may use, of the usable ones.
    pub fn limit(&self, namespace: u32, usable: u64) -> u64 {
        match namespace {
            0 => usable.saturating_sub(self.granted),
            _ => self.named.get(&namespace).map_or(0, |pool| pool.quota),
        }
    }

    /// The number of slots that a namespace can have if all that is evicted for it is. Others keep what they use of their quotas, and if
    /// slots were retired, there can be fewer than the quotas have.
    pub fn obtainable(&self, namespace: u32, usable: u64) -> u64 {
        if self.granted <= usable {
            return self.limit(namespace, usable);
        }
        let others = self.named.iter().filter(|(number, _)| **number != namespace);
        usable.saturating_sub(others.map(|(_, pool)| pool.used.min(pool.quota)).sum())
    }

    /// What must be freed for so many new blocks.
    pub fn missing(&self, namespace: u32, new: usize, free: usize, usable: u64) -> Missing {
        if new == 0 {
            return Missing::default();
        }
        let (used, credit) = self.get(namespace).map_or((0, 0), |pool| (pool.used, pool.credit as usize));
        let above = (used + new as u64).saturating_sub(self.limit(namespace, usable)) as usize;
        let is_far = above > 2 * new + MAX_LOWERED;
        let own = match is_far {
            true if credit >= new => 0,
            true => new + MAX_LOWERED,
            false => above,
        };
        let credit = if is_far { new.saturating_sub(credit) } else { 0 };
        Missing { own, any: new.saturating_sub(free).saturating_sub(own), credit }
    }

    /// Whether a namespace may take a slot.
    pub fn has_space(&self, namespace: u32, usable: u64) -> bool {
        let limit = self.limit(namespace, usable);
        let may_take = |pool: &Pool| pool.used < limit || pool.used > limit && pool.credit > 0;
        self.get(namespace).map_or(limit > 0, may_take)
    }

    /// Takes a slot for a namespace that has space.
    pub fn take(&mut self, namespace: u32, usable: u64) {
        let limit = self.limit(namespace, usable);
        let pool = self.of_mut(namespace);
        pool.credit = if pool.used > limit { pool.credit.saturating_sub(1) } else { 0 };
        pool.used += 1;
    }

    /// The slot to evict next for a namespace. `from` is 0 after others had the index: see [`Self::find`].
    pub fn victim(
        &mut self,
        namespace: u32,
        missing: &mut Missing,
        usable: u64,
        from: &mut u32,
    ) -> Option<u32> {
        let own = self.get(namespace).and_then(Pool::first);
        if missing.own > 0 {
            missing.own -= 1;
            if own.is_some() && missing.credit > 0 {
                missing.credit -= 1;
                self.of_mut(namespace).credit += 1;
            }
            return own;
        }
        missing.any = missing.any.checked_sub(1)?;
        let is_above = self.unnamed.used > self.limit(0, usable);
        let unnamed = self.unnamed.first().filter(|_| is_above && namespace > 0);
        unnamed.or_else(|| self.above(namespace, from)).or(own)
    }

    /// The first namespace with a name from a number on that `is_it` accepts. All before it are looked at, so who evicts many blocks goes on
    /// where the last one was: an eviction changes only its own namespace.
    #[inline(never)] // it has half a kilobyte
    fn find(&self, from: u32, is_it: &dyn Fn(u32, &Pool) -> bool) -> Option<(u32, &Pool)> {
        #[cfg(test)]
        let is_it = &|number, pool: &Pool| {
            self.looks.set(self.looks.get() + 1);
            is_it(number, pool)
        };
        self.named
            .range(from..)
            .map(|(number, pool)| (*number, pool))
            .find(|(number, pool)| is_it(*number, pool))
    }

    /// Moves `from` to the first namespace of which a block can be evicted. Returns the slot of that block.
    fn first_from(&self, from: &mut u32, is_it: impl Fn(u32, &Pool) -> bool) -> Option<u32> {
        let found = self.find(*from, &|number, pool| is_it(number, pool) && pool.first().is_some());
        *from = found.map_or(u32::MAX, |(number, _)| number);
        found.and_then(|(_, pool)| pool.first())
    }

    /// The slot to evict next of a namespace with a name that has more than its quota, other than this one.
    fn above(&mut self, other: u32, from: &mut u32) -> Option<u32> {
        let first = self.find(self.within, &|_, pool| pool.used > pool.quota);
        self.within = first.map_or(u32::MAX, |(number, _)| number);
        *from = self.within.max(*from);
        self.first_from(from, |number, pool| number != other && pool.used > pool.quota)
    }

    /// The first namespace from a number on, other than this one, that blocks are evicted of for this one, and how many at most. If the
    /// caller evicts, these are of namespaces that are not in the list of them.
    pub fn evicted_for(&self, other: u32, from: u32, usable: u64, evicts: bool) -> Option<(u32, u64)> {
        let above = self.unnamed.used.saturating_sub(self.limit(0, usable));
        if evicts && from == 0 && other > 0 && above > 0 {
            return Some((0, above));
        }
        let found = self.find(from, &|number, pool| {
            number != other && pool.used > pool.quota && (evicts || pool.quota == 0)
        });
        found.map(|(number, pool)| (number, pool.used - pool.quota))
    }

    /// A slot of a namespace that is not in the list of them: no caller can free it. `from` is 0 after others had the index.
    pub fn unlisted(&self, from: &mut u32) -> Option<u32> {
        self.first_from(from, |_, pool| pool.quota == 0)
    }

    /// Slots of these namespaces.
    pub fn used_by_unlisted(&self) -> u64 {
        self.named.values().filter(|pool| pool.quota == 0).map(|pool| pool.used).sum()
    }

    /// Has the lists of what can be evicted begin with these: namespace, last use and slot. Forgets namespaces that were removed.
    pub fn list(&mut self, evictable: impl Iterator<Item = (u32, u64, u32)>) {
        self.named.retain(|_, pool| pool.used > 0 || pool.quota > 0);
        // To insert them one by one would take as long as all else of a recovery.
        let mut unnamed = Vec::new();
        for (namespace, used, slot) in evictable {
            match namespace {
                0 => unnamed.push((used, slot)),
                _ => drop(self.of_mut(namespace).evictable.insert((used, slot))),
            }
        }
        self.unnamed.evictable = unnamed.into_iter().collect();
    }
}
