// SPDX-License-Identifier: Apache-2.0
//! A resource that peers share: which of them has how much of it, and since when. A peer has at most its share, so that others
//! find some whatever it does. A peer that says nothing more may never return what it has, so the owner of the resource ends
//! leases by their age.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

pub struct Lease<P, T> {
    pub peer: P,
    pub units: usize,
    /// Since when it has them, or has renewed the lease.
    pub since: Instant,
    pub item: T,
}

impl<P, T> Lease<P, T> {
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }
}

/// All leases of a resource, the oldest first.
pub struct Leases<P, T> {
    /// The maximum number of units of all peers, and of one.
    most: usize,
    max_of_one: usize,
    units: usize,
    of: HashMap<P, usize>,
    held: VecDeque<Lease<P, T>>,
}

impl<P: Clone + Eq + Hash, T> Leases<P, T> {
    /// A resource of `most` units, of which a peer has at most `max_of_one`.
    pub fn new(most: usize, max_of_one: usize) -> Self {
        Self { most, max_of_one, units: 0, of: HashMap::new(), held: VecDeque::new() }
    }

    pub fn most(&self) -> usize {
        self.most
    }

    /// Units that no peer has.
    pub fn left(&self) -> usize {
        self.most.saturating_sub(self.units)
    }

    /// Units that a peer can still get.
    pub fn left_for(&self, peer: &P) -> usize {
        let own = self.of.get(peer).copied().unwrap_or(0);
        self.left().min(self.max_of_one.saturating_sub(own))
    }

    pub fn has_share(&self, peer: &P) -> bool {
        self.of.get(peer).is_some_and(|own| *own >= self.max_of_one)
    }

    /// Leases units to a peer. Returns the item if that is more than [`Self::left_for`].
    pub fn add(&mut self, peer: P, units: usize, item: T) -> Result<(), T> {
        if units > self.left_for(&peer) {
            return Err(item);
        }
        self.push(peer, units, item);
        Ok(())
    }

    /// Leases a unit to a peer, in place of others if there is none: see [`Self::make_space`].
    pub fn replace(&mut self, peer: P, item: T) {
        self.make_space(&peer);
        self.push(peer, 1, item);
    }

    fn push(&mut self, peer: P, units: usize, item: T) {
        self.units += units;
        *self.of.entry(peer.clone()).or_default() += units;
        self.held.push_back(Lease { peer, units, since: Instant::now(), item });
    }

    /// Ends the oldest leases until a peer can get a unit: its own if it has its share, otherwise any.
    pub fn make_space(&mut self, peer: &P) -> Vec<Lease<P, T>> {
        let mut ended = Vec::new();
        while self.left_for(peer) == 0 {
            let has_share = self.has_share(peer);
            match self.end(|lease| !has_share || lease.peer == *peer) {
                Some(lease) => ended.push(lease),
                None => break,
            }
        }
        ended
    }

    pub fn end(&mut self, suits: impl FnMut(&Lease<P, T>) -> bool) -> Option<Lease<P, T>> {
        let index = self.held.iter().position(suits)?;
        let lease = self.held.remove(index)?;
        self.units -= lease.units;
        if let Some(own) = self.of.get_mut(&lease.peer) {
            *own -= lease.units;
            if *own == 0 {
                self.of.remove(&lease.peer);
            }
        }
        Some(lease)
    }

    pub fn end_all(&mut self, mut suits: impl FnMut(&Lease<P, T>) -> bool) -> Vec<Lease<P, T>> {
        std::iter::from_fn(|| self.end(&mut suits)).collect()
    }

    /// The leases, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Lease<P, T>> {
        self.held.iter()
    }

    /// The same, to renew them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Lease<P, T>> {
        self.held.iter_mut()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(leases: &Leases<&str, u32>) -> Vec<u32> {
        leases.iter().map(|lease| lease.item).collect()
    }

    #[test]
    fn a_peer_has_at_most_its_share_and_all_at_most_everything() {
        let mut leases = Leases::new(8, 6);
        assert_eq!(leases.add("a", 4, 0), Ok(()));
        assert_eq!(leases.add("a", 3, 1), Err(1));
        assert_eq!(leases.add("a", 2, 2), Ok(()));
        assert_eq!((leases.left_for(&"a"), leases.left_for(&"b")), (0, 2));
        assert_eq!(leases.add("b", 2, 3), Ok(()));
        assert_eq!((leases.left_for(&"b"), leases.left_for(&"c")), (0, 0));
        assert_eq!(leases.end(|lease| lease.item == 0).map(|lease| lease.units), Some(4));
        assert_eq!((leases.left_for(&"a"), leases.left_for(&"c")), (4, 4));
        assert_eq!(leases.end_all(|lease| lease.peer == "a").len(), 1);
        assert!(leases.end(|lease| lease.peer == "a").is_none());
        assert_eq!((leases.left_for(&"a"), leases.of.len()), (6, 1), "peers without a lease are forgotten");
    }

    #[test]
    fn a_peer_with_its_share_replaces_its_own_leases_and_others_the_oldest() {
        let mut leases = Leases::new(4, 2);
        for (peer, item) in [("a", 0), ("b", 1), ("b", 2), ("b", 3), ("c", 4), ("c", 5)] {
            leases.replace(peer, item);
        }
        assert_eq!(items(&leases), [2, 3, 4, 5], "of b the first was replaced, and of all that of a");
        leases.make_space(&"c");
        assert_eq!(items(&leases), [2, 3, 5]);
    }

    #[test]
    fn a_renewed_lease_is_younger() {
        let mut leases = Leases::new(1, 1);
        assert_eq!(leases.add("a", 1, 0), Ok(()));
        let before = Instant::now();
        leases.iter_mut().for_each(|lease| lease.since = before);
        assert!(leases.iter().all(|lease| lease.since == before && lease.age() < Duration::from_secs(60)));
        assert!(!leases.is_empty());
    }
}
