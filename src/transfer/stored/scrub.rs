// SPDX-License-Identifier: Apache-2.0
//! Reading all blocks of a store, to find those that are damaged.

use std::sync::Arc;
use std::time::Instant;

use super::OpenStore;
use super::run_ends::Held;
use crate::base::{Result, by_deadline, error, lists};
use crate::engine::single_move::WaitLimits;

/// Blocks that are read at a time.
const BATCH: usize = 64;

impl OpenStore {
    /// Reads all blocks, from where the last call has ended if that was late, and removes those that are damaged. Returns their number.
    pub fn verify(self: &Arc<Self>, deadline: Option<Instant>) -> Result<u64> {
        self.store.ensure_writable()?;
        let store = self.clone();
        // Another call ends at once while this one goes on.
        by_deadline(&Arc::default(), deadline, "verify a store", move || store.verify_until(deadline))
    }

    fn verify_until(self: &Arc<Self>, deadline: Option<Instant>) -> Result<u64> {
        let checked = self.checked.try_lock();
        let mut next = checked
            .ok_or_else(|| error!(Busy, "the store is being verified; wait for the end of that call"))?;
        let (mut damaged, limits) = (0, WaitLimits { deadline, ..WaitLimits::default() });
        loop {
            // The handle of the store checks all namespaces: this needs no key.
            let namespace = (!self.namespace.is_unnamed()).then_some(self.namespace.number());
            let batch = Held::new(self, self.store.hold_from(namespace, *next, BATCH)?);
            let Some(last) = batch.blocks().last().map(|block| u64::from(block.slot())) else {
                *next = 0;
                return Ok(damaged);
            };
            let (sound, looked) = self.look_at(batch.blocks(), &limits);
            looked.map_err(|error| error.followed_by("the next call continues with these"))?;
            let wrong: Vec<u64> =
                lists::collect((0..).zip(sound).filter_map(|(at, is_sound)| (!is_sound).then_some(at)))?;
            damaged += wrong.len() as u64;
            if !wrong.is_empty() {
                self.store.release_damaged(batch.into_run(), &wrong)?;
            }
            *next = last + 1;
        }
    }
}
