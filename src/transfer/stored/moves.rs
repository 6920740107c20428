// SPDX-License-Identifier: Apache-2.0
//! Puts and gets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::OpenStore;
use super::run_ends::{Held, RunEnd, Slots, Uses};
use crate::base::{Result, by_deadline, ensure, lists};
use crate::layout::Layout;
use crate::plan::{BlockPair, Wanted};
use crate::store::{Access, Key, Keys, NewBlock};
use crate::transfer::Transfer;
use crate::transfer::transfer_request::{Step, TransferRequest};

/// Blocks of a layout of the caller, under their keys.
pub struct StoredBlocks<'a> {
    pub keys: Keys<'a>,
    /// One for each key.
    pub blocks: &'a [u32],
    /// That of the first key, for a put.
    pub parent: Option<Key>,
    /// Each key is the parent of the next one.
    pub are_related: bool,
    pub user_data: u64,
    pub timeout: Option<Duration>,
}

/// What was started.
pub struct Moved {
    /// `None` if there is nothing to move.
    pub transfer: Option<Transfer>,
    pub count: usize,
}

impl OpenStore {
    /// Stores blocks that are not stored yet. The run has ended when their keys are visible.
    pub fn put(
        self: &Arc<Self>,
        source: &Arc<Layout>,
        request: TransferRequest<'_>,
        what: &StoredBlocks<'_>,
    ) -> Result<Moved> {
        self.ensure_whole_blocks(source, &request)?;
        what.ensure_paired()?;
        let deadline = what.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let (mut slots, mut pairs) = (Vec::new(), Vec::new());
        lists::reserve(&mut pairs, what.blocks.len())?;
        let mut reserved = self.reserve(what.new_blocks()?, deadline)?;
        for (slot, source) in reserved.take().into_iter().zip(what.blocks) {
            let Some(slot) = slot else { continue };
            pairs.push(BlockPair { source: *source, destination: slot.slot() });
            slots.push(Some(slot));
        }
        let (count, reserved) = (pairs.len(), Slots::new(self, slots));
        if count == 0 {
            return Ok(Moved { transfer: None, count });
        }
        let step = Step { returns_checksums: true, ..what.step(&pairs, deadline) };
        let followed = |checks| Arc::new(RunEnd::new(Uses::Put(reserved), checks)) as _;
        let transfer = Transfer::start_single([source, &self.layout], request, step, followed)?;
        Ok(Moved { transfer: Some(transfer), count })
    }

    fn reserve(self: &Arc<Self>, blocks: Vec<NewBlock>, deadline: Option<Instant>) -> Result<Slots> {
        if let Some(slots) = self.store.reserve_free(&blocks) {
            return Ok(Slots::new(self, slots));
        }
        let store = self.clone();
        by_deadline(&self.writes, deadline, "evict blocks of a store", move || {
            let slots = store.store.reserve(&blocks)?;
            Ok(Slots::new(&store, slots))
        })
    }

    /// Moves the blocks of the first keys, up to the first that is not stored.
    pub fn get(
        self: &Arc<Self>,
        destination: &Arc<Layout>,
        request: TransferRequest<'_>,
        what: &StoredBlocks<'_>,
    ) -> Result<Moved> {
        self.ensure_whole_blocks(destination, &request)?;
        what.ensure_paired()?;
        let keys: Vec<Key> = lists::collect(what.keys.iter())?;
        let deadline = what.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if self.store.policy().access == Access::Read {
            self.flush(deadline)?;
        }
        let held = Held::new(self, self.store.hold_run(&keys)?);
        let count = held.blocks().len();
        if count == 0 {
            return Ok(Moved { transfer: None, count });
        }
        let pairs = held.blocks().iter().zip(what.blocks);
        let pairs = pairs.map(|(held, block)| BlockPair { source: held.slot(), destination: *block });
        let (pairs, checksums): (Vec<_>, Vec<_>) =
            (lists::collect(pairs)?, lists::collect(held.blocks().iter().map(|held| held.checksum()))?);
        let step = Step { checksums: Some(&checksums), ..what.step(&pairs, deadline) };
        let followed = |checks| Arc::new(RunEnd::new(Uses::Get(held), checks)) as _;
        let transfer = Transfer::start_single([&self.layout, destination], request, step, followed)?;
        Ok(Moved { transfer: Some(transfer), count })
    }

    /// A store has whole blocks of one size.
    fn ensure_whole_blocks(&self, layout: &Layout, request: &TransferRequest<'_>) -> Result<()> {
        let Wanted { layers, outers, heads, .. } = &request.wanted;
        ensure!(
            layers.is_none() && outers.is_none() && heads.is_none() && request.parts.is_empty(),
            Unsupported,
            "a store has whole blocks; leave the layers, outer slots, heads and parts of kvmem_transfer_options 0"
        );
        let [here, stored] = [layout, &self.layout].map(|each| each.geometry().dimensions().page_size);
        ensure!(
            here == stored,
            InvalidArgument,
            "page_size is {here} in the layout and {stored} in the store, which takes no block tables; give a layout with the page_size \
             of the store, such as one to which kvmem_transfer_submit has moved the tokens"
        );
        Ok(())
    }
}

impl StoredBlocks<'_> {
    fn ensure_paired(&self) -> Result<()> {
        let (keys, blocks) = (self.keys.count(), self.blocks.len());
        ensure!(
            keys == blocks,
            InvalidArgument,
            "num_blocks is {blocks} and num_keys is {keys}; give one block id for each key"
        );
        Ok(())
    }

    fn new_blocks(&self) -> Result<Vec<NewBlock>> {
        let mut parent = self.parent;
        lists::collect(self.keys.iter().map(|key| {
            let block = NewBlock { key, parent };
            parent = self.are_related.then_some(key);
            block
        }))
    }

    fn step<'a>(&self, pairs: &'a [BlockPair], deadline: Option<Instant>) -> Step<'a> {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        // A run without time left ends at once, by the clock of runs.
        let timeout = deadline.map(|deadline| left(deadline).max(Duration::from_nanos(1)));
        Step { pairs, user_data: self.user_data, timeout, ..Step::default() }
    }
}
