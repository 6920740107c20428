// SPDX-License-Identifier: Apache-2.0
//! Leases that the owner of a layout keeps for peers that reach it by NIXL: what they ask for, and what each of them has. An owner keeps
//! a lease no longer than it has chosen, whatever the peer says: nothing reports the end of a peer on another machine.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::accesses::PeerAccess;
use super::block_bytes;
use super::counters::{PEER_LEASED_BLOCKS, PEER_LEASES};
use super::used_bytes::UsedBytes;
use crate::base::{Count, Counted, Lease, Leases, ProcessIdentity, Result, ensure, lists};
use crate::layout::Layout;
use crate::region::{Contexts, LEASE_IS_OVER, LeaseEnd};

/// Blocks that all peers have leased, and one. A lease counts as this many blocks at least.
const MAX_BLOCKS: usize = 1 << 18;
const MAX_BLOCKS_OF_ONE: usize = 1 << 16;
const MIN_BLOCKS: usize = 256;
/// Leases whose holders are looked for at a time: a look is a system call.
const LOOKED_FOR: usize = 32;
/// Bytes of an entry of [`LeaseRequest::blocks`].
const SPAN_BYTES: usize = 8;

/// What a peer asks for: a lease, the reply to that once more, or another end of it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRequest {
    pub process: ProcessIdentity,
    /// 0 for a new lease, and then one more for each renewal.
    pub number: u64,
    /// After which it ends.
    pub milliseconds: u64,
    /// The peer may also write the blocks.
    pub writes: bool,
    /// Of a new lease: for each run of consecutive blocks the first, and how many; 32 bits each, little-endian. Empty for a renewal, and to
    /// get the reply once more.
    #[serde(with = "serde_bytes")]
    pub blocks: Vec<u8>,
}

/// A lease that a peer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Of the last request.
    pub number: u64,
    pub milliseconds: u32,
}

/// The blocks of a new lease, as a request has them. Fails for one that the layout does not have, or without blocks.
pub fn spans(layout: &Layout, blocks: &[u32]) -> Result<Vec<u8>> {
    let mut runs: Vec<[u32; 2]> = Vec::new();
    for id in block_bytes::leased_ids(layout, blocks)? {
        match runs.last_mut() {
            Some([first, count]) if *first + *count == id => *count += 1,
            _ => lists::push(&mut runs, [id, 1])?,
        }
    }
    lists::collect(runs.iter().flatten().flat_map(|word| word.to_le_bytes()))
}

/// The blocks of a request, which may be anything.
fn ids(blocks: &[u8]) -> Result<Vec<u32>> {
    let word = |at: &[u8]| u32::from_le_bytes([at[0], at[1], at[2], at[3]]);
    let runs = || blocks.chunks_exact(SPAN_BYTES).map(|run| (word(run), word(&run[4..])));
    let count = runs().fold(0u64, |sum, (_, count)| sum.saturating_add(count.into()));
    ensure!(
        count > 0
            && blocks.len().is_multiple_of(SPAN_BYTES)
            && runs().all(|(first, count)| first.checked_add(count).is_some()),
        InvalidArgument,
        "the request lists {count} blocks in {} bytes",
        blocks.len()
    );
    ensure!(
        count <= MAX_BLOCKS_OF_ONE as u64,
        OutOfMemory,
        "the lease has {count} blocks, and {MAX_BLOCKS_OF_ONE} are the most that an owner keeps for a peer; lease fewer blocks"
    );
    lists::collect(runs().flat_map(|(first, count)| first..first + count))
}

/// All leases that one owner of a layout keeps.
pub struct PeerLeases {
    /// The units are blocks.
    held: Leases<String, Held>,
    longest: u32,
    turn: usize,
    is_hidden: bool,
}

struct Held {
    key: [u8; 16],
    granted: Granted,
    access: Arc<PeerAccess>,
    _counted: [Counted; 2],
}

impl Held {
    fn is(lease: &Lease<String, Self>, key: [u8; 16], sender: &str) -> bool {
        lease.item.key == key && lease.peer == sender
    }
}

impl PeerLeases {
    /// Keeps none longer than so many milliseconds.
    pub fn new(longest: u32) -> Self {
        Self { held: Leases::new(MAX_BLOCKS, MAX_BLOCKS_OF_ONE), longest, turn: 0, is_hidden: false }
    }

    /// Whether another peer has the lease of this key. Peers find the keys of others in the control block.
    pub fn is_of_another(&self, key: [u8; 16], sender: &str) -> bool {
        self.held.iter().any(|lease| lease.item.key == key && lease.peer != sender)
    }

    /// Begins, renews or repeats a lease of a key that no other peer has; `None` if a new one is not known and the request has no blocks.
    pub fn reply(
        &mut self,
        layout: &Layout,
        sender: &str,
        key: [u8; 16],
        request: &LeaseRequest,
    ) -> Result<Option<Granted>> {
        let number = request.number;
        let milliseconds = request.milliseconds.clamp(1, self.longest.max(1).into()) as u32;
        let granted = Granted { number, milliseconds };
        let end = || LeaseEnd::after(Some(Duration::from_millis(milliseconds.into())));
        self.held.end(|lease| Held::is(lease, key, sender) && lease.item.access.is_over());
        if let Some(held) = self.held.iter_mut().find(|lease| Held::is(lease, key, sender)) {
            if number > held.item.granted.number {
                held.item.access.renew(end());
                held.item.granted = granted;
            }
            return Ok(Some(held.item.granted));
        }
        if request.blocks.is_empty() {
            ensure!(number == 0, Stale, "{LEASE_IS_OVER}");
            return Ok(None);
        }
        let ids = ids(&request.blocks)?;
        let (peer, units) = (sender.to_string(), ids.len().max(MIN_BLOCKS));
        self.ensure_space(&peer, ids.len(), units)?;
        let plan =
            block_bytes::plan(&block_bytes::outline(layout)?, &block_bytes::sorted_ids(layout, &ids)?)?;
        let places = [Some(layout.places().clone()), request.writes.then(|| layout.places().clone())];
        let used = UsedBytes::Blocks { plan, places, contexts: Contexts::default() };
        let access = PeerAccess::until(Some(end()), peer.clone(), request.process.clone(), used);
        let _counted = [PEER_LEASES.count(1), PEER_LEASED_BLOCKS.count(ids.len() as u64)];
        // There is space for it.
        let _ = self.held.add(peer, units, Held { key, granted, access, _counted });
        Ok(Some(granted))
    }

    /// Fails if a peer cannot have so many units more. The message says whose leases take them.
    fn ensure_space(&self, peer: &String, blocks: usize, units: usize) -> Result<()> {
        let left = self.held.left_for(peer);
        let (agents, most, advice) = match units > self.held.left() && !self.held.has_share(peer) {
            true => ("all agents", MAX_BLOCKS, "try again after other leases have ended"),
            false => ("this agent", MAX_BLOCKS_OF_ONE, "end leases"),
        };
        ensure!(
            units <= left,
            OutOfMemory,
            "no space for a lease of {}: {agents} can have {left} more of {most}, and a lease counts as {MIN_BLOCKS} at least; {advice}, \
             or lease fewer blocks",
            Count(blocks as u64, "block")
        );
        Ok(())
    }

    /// Ends a lease, if the peer has it.
    pub fn end(&mut self, key: [u8; 16], sender: &str) {
        self.held.end(|lease| Held::is(lease, key, sender));
    }

    /// Ends those that are over. Looks for the processes of some of the others, and ends those whose process has ended.
    pub fn expire(&mut self) {
        self.held.end_all(|lease| lease.item.access.is_over());
        let apart = self.held.iter().count().div_ceil(LOOKED_FOR).max(1);
        self.turn = (self.turn + 1) % apart;
        let looked_for = self.held.iter().skip(self.turn).step_by(apart);
        let gone = looked_for.filter(|lease| lease.item.access.process.is_gone());
        let keys: Vec<_> = gone.map(|lease| lease.item.key).collect();
        self.held.end_all(|lease| keys.contains(&lease.item.key));
    }

    /// Has blocks of the layout, which was destroyed, no longer leased. Their holders may still ask for renewals.
    pub fn hide(&mut self) {
        if !std::mem::replace(&mut self.is_hidden, true) {
            self.held.iter().for_each(|lease| lease.item.access.hide());
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests;
