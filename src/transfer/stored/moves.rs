// SPDX-License-Identifier: Apache-2.0
//! Puts and gets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::OpenStore;
use super::conversion::{Conversion, whole_table};
use super::run_ends::{Held, RunEnd, Slots, Uses, Work};
use crate::base::{Count, Error, Result, by_deadline, deadline_of, ensure, error, lists, time_left};
use crate::layout::{Axis, Layout};
use crate::plan::{BlockPair, TokenTables, Wanted};
use crate::store::{Access, Key, Keys, Located, NewBlock, Reserved};
use crate::transfer::Transfer;
use crate::transfer::prepared_pairs::FollowedBlocks;
use crate::transfer::transfer_request::{Step, TransferRequest};

/// Blocks of a layout of the caller, under their keys.
pub struct StoredBlocks<'a> {
    pub keys: Keys<'a>,
    /// Those of the tokens of the keys: one for each key, if they have as many tokens as a slot.
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
        self.store.ensure_writable()?;
        let wanted = request.wanted;
        let transfer = Transfer::create(source, &self.layout, request)
            .map_err(|error| error.context("put, whose destination is the store"))?;
        self.ensure_filled(&transfer)?;
        let is_direct = self.is_direct(&transfer)?;
        what.ensure_paired(self.page_size(), page_size(source))?;
        // Before others are evicted for them.
        what.ensure_in(source, what.blocks.len())?;
        let deadline = deadline_of(what.timeout);
        let new = what.new_blocks()?;
        let reserved =
            self.reserve(lists::collect(new.iter().map(|block| self.namespace.block(*block)))?, deadline)?;
        let count = reserved.list().iter().flatten().count();
        if count == 0 {
            return Ok(Moved { transfer: None, count });
        }
        let transfer = if is_direct {
            let pair = |(slot, source): (&Option<Reserved>, &u32)| {
                slot.as_ref().map(|slot| BlockPair { source: *source, destination: slot.slot() })
            };
            let pairs: Vec<_> = lists::collect(reserved.list().iter().zip(what.blocks).filter_map(pair))?;
            let step = Step { returns_checksums: true, ..what.step(&pairs, deadline) };
            transfer.started_once(step, |checks| {
                let work = Work::checks(checks, |checks| checks.begin(source))?;
                Ok(RunEnd::new(Uses::Put(reserved), work, deadline, what.user_data))
            })?
        } else {
            // The slots are reserved, so only the tokens of the source are looked at.
            let slots: Vec<u32> = lists::collect(0..what.keys.count() as u32)?;
            let conversion = self.conversion(wanted, what, new)?;
            let sides = [whole_table(what.blocks), whole_table(&slots)];
            let tables = TokenTables { sides, tokens: slots.len() as u64 * self.page_size() };
            let step = what.step(&[], deadline);
            let blocks =
                FollowedBlocks { tables, step, moved: [count as u64, slots.len() as u64], is_written: false };
            transfer.started_before(
                blocks,
                RunEnd::new(Uses::Put(reserved), Work::Moves(conversion), deadline, what.user_data),
            )?
        };
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
        let wanted = request.wanted;
        let transfer = Transfer::create(&self.layout, destination, request)
            .map_err(|error| error.context("get, whose source is the store"))?;
        let is_direct = self.is_direct(&transfer)?;
        what.ensure_paired(self.page_size(), page_size(destination))?;
        let keys: Vec<Key> = lists::collect(self.keys(what.keys))?;
        let deadline = deadline_of(what.timeout);
        if self.store.policy().access == Access::Read {
            self.flush(deadline)?;
        }
        let held = Held::new(self, self.store.hold_run(&keys)?);
        let count = held.blocks().len();
        if count == 0 {
            self.store.count_get(self.namespace.number(), 0, keys.len());
            return Ok(Moved { transfer: None, count });
        }
        let used = (count as u64 * self.page_size()).div_ceil(page_size(destination));
        what.ensure_in(destination, used as usize)?;
        let used = &what.blocks[..used as usize];
        let transfer = if is_direct {
            let pairs = held.blocks().iter().zip(what.blocks);
            let pairs = pairs.map(|(held, block)| BlockPair { source: held.slot(), destination: *block });
            let (pairs, checksums): (Vec<_>, Vec<_>) =
                (lists::collect(pairs)?, lists::collect(held.blocks().iter().map(Located::checksum))?);
            let step = Step { checksums: Some(&checksums), ..what.step(&pairs, deadline) };
            transfer.started_once(step, |checks| {
                let work =
                    Work::checks(checks, |checks| checks.begin_on_arrival([&self.layout, destination]))?;
                Ok(RunEnd::new(Uses::Get(held), work, deadline, what.user_data))
            })
        } else {
            let slots: Vec<u32> = lists::collect(held.blocks().iter().map(Located::slot))?;
            let conversion = self.conversion(wanted, what, Vec::new())?;
            let sides = [whole_table(&slots), whole_table(what.blocks)];
            let tables = TokenTables { sides, tokens: count as u64 * self.page_size() };
            let step = what.step(&[], deadline);
            let blocks = FollowedBlocks { tables, step, moved: [1, 1], is_written: true };
            transfer.started_before(
                blocks,
                RunEnd::new(Uses::Get(held), Work::Moves(conversion), deadline, what.user_data),
            )
        };
        let transfer = transfer.map_err(|error| twice(used).unwrap_or(error))?;
        self.store.count_get(self.namespace.number(), count, keys.len() - count);
        Ok(Moved { transfer: Some(transfer), count })
    }

    /// `new` are the blocks of a put.
    pub(super) fn conversion(
        &self,
        wanted: Wanted,
        what: &StoredBlocks<'_>,
        new: Vec<NewBlock>,
    ) -> Result<Conversion> {
        let (blocks, slots) = (lists::copied(what.blocks)?, self.slots.clone());
        let namespace = self.namespace.clone();
        Ok(Conversion { wanted, blocks, page_size: self.page_size(), slots, namespace, new })
    }

    /// Whether blocks move between a slot and the memory of the caller without a copy between.
    fn is_direct(&self, transfer: &Transfer) -> Result<bool> {
        let is_direct = self.namespace.cipher().is_none() && transfer.moves_whole_blocks()?;
        let limits = &transfer.route.preferences;
        let is_limited =
            limits.method.is_some() || limits.by_layer || limits.zero_copy || limits.no_host_bounce;
        ensure!(
            is_direct || !is_limited,
            Unsupported,
            "the blocks are encrypted, are no whole slots, or direct I/O cannot access them, so they pass through host memory of \
             kvmem, by the fastest methods; leave method 0, and set of the flags only KVMEM_TRANSFER_REPORT_RELEASE"
        );
        Ok(is_direct)
    }

    /// Tokens of a slot.
    fn page_size(&self) -> u64 {
        page_size(&self.layout)
    }

    /// Fails for a put of some layers, outer slots or heads.
    fn ensure_filled(&self, put: &Transfer) -> Result<()> {
        let have = |axis| self.layout.geometry().count(axis);
        ensure!(
            put.fills_blocks_of(1),
            InvalidArgument,
            "a slot is written as a whole, and only some of its layers, outer slots or heads are to be put; give ranges with all \
             {}, {} and {} of the store",
            Count(have(Axis::Layer), "layer"),
            Count(have(Axis::Outer), "outer slot"),
            Count(have(Axis::Head), "head")
        );
        Ok(())
    }
}

fn page_size(layout: &Layout) -> u64 {
    layout.geometry().count(Axis::Token)
}

impl StoredBlocks<'_> {
    /// The blocks have the tokens of the keys: those of the last block may be more.
    fn ensure_paired(&self, slot: u64, block: u64) -> Result<()> {
        let (keys, blocks) = (self.keys.count() as u64, self.blocks.len() as u64);
        let needed = keys.saturating_mul(slot).div_ceil(block.max(1));
        ensure!(
            blocks == needed || slot != block,
            InvalidArgument,
            "num_blocks is {blocks} and num_keys is {keys}; give one block id for each key"
        );
        ensure!(
            blocks == needed,
            InvalidArgument,
            "num_blocks is {blocks}; {} of {} {} in {} of {}: give {}",
            Count(keys, "key"),
            Count(slot, "token"),
            if keys == 1 { "is" } else { "are" },
            Count(needed, "block"),
            Count(block, "token"),
            Count(needed, "block id")
        );
        Ok(())
    }

    /// The layout has the first of the blocks, so many.
    fn ensure_in(&self, layout: &Layout, count: usize) -> Result<()> {
        let have = layout.geometry().count(Axis::Block);
        for (index, id) in self.blocks.iter().take(count).enumerate() {
            ensure!(
                u64::from(*id) < have,
                OutOfRange,
                "blocks[{index}] is {id}; the layout has {}, give ids below that",
                Count(have, "block")
            );
        }
        Ok(())
    }

    /// With the keys of the caller.
    fn new_blocks(&self) -> Result<Vec<NewBlock>> {
        let mut parent = self.parent;
        lists::collect(self.keys.iter().map(|key| {
            let block = NewBlock { key, parent };
            parent = self.are_related.then_some(key);
            block
        }))
    }

    fn step<'a>(&self, pairs: &'a [BlockPair], deadline: Option<Instant>) -> Step<'a> {
        // A run without time left ends at once, by the clock of runs.
        let timeout = time_left(deadline).map(|left| left.max(Duration::from_nanos(1)));
        Step { pairs, user_data: self.user_data, timeout, ..Step::default() }
    }
}

/// The error for a block of the caller that a get would fill twice. A plan of the run finds it, and names pairs and tables, which the caller has not.
#[cold]
fn twice(blocks: &[u32]) -> Option<Error> {
    let mut at: Vec<usize> = (0..blocks.len()).collect();
    at.sort_by_key(|index| blocks[*index]);
    let same = at.windows(2).find(|two| blocks[two[0]] == blocks[two[1]])?;
    Some(error!(
        InvalidArgument,
        "blocks[{}] and blocks[{}] are {}, and a get fills a block once; give each key a block of its own",
        same[0],
        same[1],
        blocks[same[0]]
    ))
}
