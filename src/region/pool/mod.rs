// SPDX-License-Identifier: Apache-2.0
//! Pools: regions of GPU memory from which PyTorch's allocator gets blocks.
//!
//! PyTorch passes a GPU and a stream, and nothing that names a pool. So one pool of each GPU is current, and a block's pool is found
//! by its address. A pool is listed while it is current or has blocks; the rest of its state belongs to its region.

pub mod blocks;
pub mod ranges;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use self::blocks::Blocks;
use super::{Region, Tier};
use crate::base::{Error, Mutex, PerProcess, Result, Status, ensure, fail};
use crate::cuda::{Active, CallerStream, Context, Deferred};

/// Addresses of blocks are multiples of this, as those of PyTorch's own allocator.
const ALIGNMENT: u64 = 512;
/// How long an allocation waits for work that uses free memory, if there is no other memory.
const PATIENCE: Duration = Duration::from_secs(10);

/// A region that is current or has blocks. Work of the GPU may use its memory when its last block is freed, so the memory is freed
/// when the GPU has finished its work.
struct Pool(Deferred<Arc<Region>>);

#[derive(Default)]
struct Pools {
    /// By the ordinal of the device.
    current: BTreeMap<i32, Arc<Pool>>,
    /// Those with blocks, by their first address.
    used: BTreeMap<u64, Arc<Pool>>,
}

impl Pools {
    /// The pool of a region: that in the list, so that no other one waits for the device when it is dropped. Fails if another region with
    /// blocks has the same memory, such as one that was adopted twice.
    fn pool_of(&self, region: &Arc<Region>, context: &Arc<Context>) -> Result<Arc<Pool>> {
        let (start, end) = (region.address(), region.address() + region.size());
        let before_end = self.used.range(..end).next_back().map(|(_, pool)| pool);
        let known = before_end.filter(|pool| pool.0.address() + pool.0.size() > start);
        ensure!(
            known.is_none_or(|pool| Arc::ptr_eq(&pool.0, region)),
            InvalidArgument,
            "another pool has blocks in the memory of this region; free them, or set the region of that pool"
        );
        let current = || self.current.values().find(|pool| Arc::ptr_eq(&pool.0, region));
        let new = || Arc::new(Pool(Deferred::new(context, region.clone(), region.size())));
        Ok(known.or_else(current).cloned().unwrap_or_else(new))
    }

    /// Removes a pool without blocks from the list.
    fn unlist(&mut self, start: u64, blocks: &Blocks) -> Option<Arc<Pool>> {
        if blocks.is_unused() { self.used.remove(&start) } else { None }
    }
}

/// Per process: in a forked child there is none.
fn pools() -> &'static Mutex<Pools> {
    static POOLS: PerProcess<Mutex<Pools>> = PerProcess::new();
    POOLS.get(Mutex::default)
}

/// Makes a region the pool of new blocks of its device, or none.
pub fn set_current(ordinal: i32, region: Option<&Arc<Region>>) -> Result<()> {
    let context = region.map(|region| pool_context(ordinal, region)).transpose()?;
    // Dropped without the lock, because that may wait for the device.
    let _previous = {
        let mut pools = pools().lock();
        match region.zip(context) {
            Some((region, context)) => {
                let pool = pools.pool_of(region, &context)?;
                pools.current.insert(ordinal, pool)
            }
            None => pools.current.remove(&ordinal),
        }
    };
    Ok(())
}

/// The context of a region that can be the pool of a device.
fn pool_context(ordinal: i32, region: &Arc<Region>) -> Result<Arc<Context>> {
    ensure!(
        matches!(region.tier(), Tier::Device | Tier::Elastic),
        InvalidArgument,
        "a pool is made of a device or elastic region, and this is a {} region",
        region.tier().name()
    );
    ensure!(
        region.ordinal() == Some(ordinal),
        InvalidArgument,
        "the region is located on device {}, and cannot be the pool of device {ordinal}",
        region.ordinal().unwrap_or(-1)
    );
    ensure!(region.origin().is_none(), Unsupported, "the region belongs to another process");
    ensure!(
        !region.is_view(),
        InvalidArgument,
        "the region is a view; make the region that it is a view of a pool"
    );
    Ok(region.pool_blocks(ordinal)?.context.clone())
}

/// Allocates a block of the current pool of a device, for work on a stream. Returns its address.
pub fn allocate(ordinal: i32, size: u64, stream: CallerStream) -> Result<u64> {
    let current = pools().lock().current.get(&ordinal).cloned();
    let Some(pool) = current else {
        fail!(InvalidState, "device {ordinal} has no pool: call kvmem_pool_set_current")
    };
    let start = pool.0.address();
    let allocated = pool.0.allocate_block(size, stream);
    let Ok(address) = allocated else {
        // Its last block may have been freed while this one was tried.
        let _unused = pools().lock().unlist(start, pool.0.ensure_pool()?);
        return allocated;
    };
    let _other = match pools().lock().used.entry(start) {
        Entry::Occupied(_) => Some(pool),
        Entry::Vacant(place) => {
            place.insert(pool);
            None
        }
    };
    Ok(address)
}

/// Frees a block of any pool.
pub fn free(address: u64, stream: CallerStream) -> Result<()> {
    let found = pools().lock().used.range(..=address).next_back().map(|(_, pool)| pool.clone());
    let Some(pool) = found.filter(|pool| address - pool.0.address() < pool.0.size()) else {
        fail!(InvalidArgument, "{address:#x} is no block of a pool")
    };
    let (start, blocks) = (pool.0.address(), pool.0.ensure_pool()?);
    let outcome = blocks.free(address - start, stream);
    let _unused = pools().lock().unlist(start, blocks);
    outcome
}

impl Region {
    fn allocate_block(&self, size: u64, stream: CallerStream) -> Result<u64> {
        let rounded = size.max(1).checked_next_multiple_of(ALIGNMENT).ok_or_else(|| self.is_full(size))?;
        let stream = stream.activate(&self.ensure_pool()?.context)?;
        match self.take_block(rounded, &stream) {
            Err(error) if error.status() == Status::OutOfMemory => {
                self.ensure_pool()?.await_free(PATIENCE);
                self.decommit_free()?;
                self.take_block(rounded, &stream)
            }
            other => other,
        }
    }

    fn take_block(&self, size: u64, stream: &Active<'_>) -> Result<u64> {
        let blocks = self.ensure_pool()?;
        let taken = blocks.take(size, stream)?.ok_or_else(|| self.is_full(size))?;
        let committed = {
            let _resizing = blocks.resizing.lock();
            if self.tier() == Tier::Elastic { self.commit(taken.offset, taken.size) } else { Ok(()) }
        };
        if committed.is_err() {
            blocks.give(taken.offset, taken.work)?;
        }
        committed.map(|()| self.address() + taken.offset)
    }

    fn is_full(&self, size: u64) -> Error {
        let message = format!(
            "the pool has no {size} free bytes in one range of its {} bytes; create it with a larger region",
            self.size()
        );
        Error::new(Status::OutOfMemory, message)
    }

    /// Decommits the extents that neither a block nor work uses.
    fn decommit_free(&self) -> Result<()> {
        if self.elastic_memory().is_none() {
            return Ok(());
        }
        let _resizing = self.ensure_pool()?.resizing.lock();
        let (used, working, committed) = self.pool_extents()?;
        self.set_committed(
            &committed.into_iter().filter(|each| used.contains(each) || working.contains(each)).collect(),
        )
    }

    /// Commits the extents of all blocks, and decommits those that neither a block nor work uses.
    pub fn commit_blocks(&self) -> Result<()> {
        let _resizing = self.ensure_pool()?.resizing.lock();
        let (mut wanted, working, committed) = self.pool_extents()?;
        wanted.extend(working.intersection(&committed));
        self.set_committed(&wanted)
    }

    /// Decommits all extents of elastic memory; device memory stays. The caller has waited for all work that uses them.
    pub fn decommit_blocks(&self) -> Result<()> {
        let blocks = self.ensure_pool()?;
        let _resizing = blocks.resizing.lock();
        if self.elastic_memory().is_some() {
            self.set_committed(&BTreeSet::new())?;
        }
        blocks.end_work();
        Ok(())
    }

    /// The extents of blocks, those of free memory that work uses, and those that have memory.
    fn pool_extents(&self) -> Result<(BTreeSet<usize>, BTreeSet<usize>, BTreeSet<usize>)> {
        let memory = self.ensure_elastic()?;
        let (used, working) = self.ensure_pool()?.extents(|offset, size| memory.touched(offset, size));
        Ok((used, working, memory.committed().into_iter().collect()))
    }
}
