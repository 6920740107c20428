// SPDX-License-Identifier: Apache-2.0
//! What one thread at a time does, by a key. Others wait for their turn until their own deadlines.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use crate::base::sync::{Condvar, Mutex};

pub struct Turns<K: Ord> {
    taken: Mutex<BTreeSet<K>>,
    ended: Condvar,
}

impl<K: Ord> Default for Turns<K> {
    fn default() -> Self {
        Self { taken: Mutex::default(), ended: Condvar::new() }
    }
}

/// The turn of a key. Dropping it ends the turn.
pub struct Turn<K: Ord>(Arc<Turns<K>>, K);

impl<K: Ord + Clone> Turns<K> {
    /// Waits until no other thread has the turn. `None` if the deadline passes before.
    pub fn take(self: &Arc<Self>, key: &K, deadline: Option<Instant>) -> Option<Turn<K>> {
        let is_taken = |taken: &mut BTreeSet<K>| !taken.insert(key.clone());
        drop(self.ended.wait_while_until(self.taken.lock(), deadline, is_taken).ok()?);
        Some(Turn(self.clone(), key.clone()))
    }
}

impl<K: Ord> Drop for Turn<K> {
    fn drop(&mut self) {
        self.0.taken.lock().remove(&self.1);
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_turn_at_a_time_and_no_other_key_waits() {
        let (turns, now) = (Arc::<Turns<u32>>::default(), Some(Instant::now()));
        let first = turns.take(&1, now);
        assert!(first.is_some() && turns.take(&1, now).is_none() && turns.take(&2, now).is_some());
        drop(first);
        assert!(turns.take(&1, now).is_some());
    }
}
