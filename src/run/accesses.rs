// SPDX-License-Identifier: Apache-2.0
//! Who may still read or write some blocks: runs in flight, runs that have ended and still use their memory, sessions and leases of
//! peers, and holders of leases of mapped memory.
//!
//! Bytes are compared, so that a run between other layouts over the same memory counts. A run adds nothing to a list: a completion is
//! listed by its first run, and says what the one in flight uses when that is asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::block_lease::LeasedBlocks;
use super::unreleased::Unreleased;
use super::used_bytes::UsedBytes;
use super::{block_bytes, block_lease};
use crate::base::{LogId, Mutex, PerProcess, ProcessIdentity, Result, lists};
use crate::layout::Layout;
use crate::plan::overlap::{Placed, common, which_meet};
use crate::plan::{Outline, Plan};
use crate::region::{FoundLease, LeaseEnd};

/// Who accesses bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accessor {
    /// A run in flight of a transfer or request.
    Run { transfer: LogId, user_data: u64 },
    /// A run whose end was reported. It is lost if nothing will detect the end of its work.
    EndedRun { transfer: LogId, user_data: u64, is_lost: bool },
    /// A session that this process serves, of an agent and its process, as they say.
    Peer { agent: String, process: ProcessIdentity },
    /// The holder of a lease of memory that it has mapped.
    Lease(FoundLease),
    /// The holder of a lease that this process keeps for an agent and its process, as they say.
    PeerLease { agent: String, process: ProcessIdentity, end: LeaseEnd },
}

/// Bytes that may be accessed.
pub struct Access {
    pub by: Accessor,
    pub used: Arc<UsedBytes>,
}

/// What accesses bytes from time to time.
pub trait Accesses: Send + Sync {
    /// What it accesses now, if anything.
    fn current(&self) -> Option<Access>;
}

/// The accesses to one block by one accessor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockAccess {
    pub block: u32,
    pub by: Arc<Accessor>,
    pub reads: bool,
    pub writes: bool,
}

type Listed = Mutex<BTreeMap<LogId, Weak<dyn Accesses>>>;

fn listed() -> &'static Listed {
    static LISTED: PerProcess<Listed> = PerProcess::new();
    LISTED.get(Mutex::default)
}

/// Adds an object, until [`unlist`].
pub(super) fn list(id: LogId, object: &Arc<dyn Accesses>) {
    listed().lock().insert(id, Arc::downgrade(object));
}

pub(super) fn unlist(id: LogId) {
    let removed = listed().lock().remove(&id);
    drop(removed);
}

/// A session or a lease of a peer, which is listed while this exists.
pub struct PeerAccess {
    id: LogId,
    /// The name of its agent, as it says.
    pub agent: String,
    pub process: ProcessIdentity,
    used: Arc<UsedBytes>,
    /// Of a lease.
    end: Option<Mutex<LeaseEnd>>,
}

impl PeerAccess {
    pub fn list(agent: String, process: ProcessIdentity, used: UsedBytes) -> Arc<Self> {
        Self::until(None, agent, process, used)
    }

    pub(super) fn until(
        end: Option<LeaseEnd>,
        agent: String,
        process: ProcessIdentity,
        used: UsedBytes,
    ) -> Arc<Self> {
        let (id, used) = (LogId::next(), Arc::new(used));
        let this = Arc::new(Self { id, agent, process, used, end: end.map(Mutex::new) });
        let object: Arc<dyn Accesses> = this.clone();
        list(this.id, &object);
        this
    }

    /// Has the lease end at another time.
    pub(super) fn renew(&self, end: LeaseEnd) {
        self.end.iter().for_each(|known| *known.lock() = end);
    }

    /// Lists it no longer.
    pub(super) fn hide(&self) {
        unlist(self.id);
    }

    /// Whether it is a lease that is over.
    pub(super) fn is_over(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.lock().is_over())
    }
}

impl Accesses for PeerAccess {
    fn current(&self) -> Option<Access> {
        let (agent, process) = (self.agent.clone(), self.process.clone());
        let by = match self.end.as_ref().map(|end| *end.lock()) {
            None => Accessor::Peer { agent, process },
            Some(end) if end.is_over() => return None,
            Some(end) => Accessor::PeerLease { agent, process, end },
        };
        Some(Access { by, used: self.used.clone() })
    }
}

impl Drop for PeerAccess {
    fn drop(&mut self) {
        unlist(self.id);
    }
}

/// All accesses of this process, and of peers that it serves.
fn all() -> Result<Vec<Access>> {
    let listed = {
        let listed = listed().lock();
        lists::collect(listed.values().cloned())?
    };
    let mut found = lists::collect(listed.iter().filter_map(|object| object.upgrade()?.current()))?;
    // After those in flight: a run that ends between the two is in both, rather than in none.
    for ended in Unreleased::get().all()? {
        let is_same = |access: &mut Access| {
            matches!(access.by, Accessor::Run { transfer, .. } if transfer == ended.transfer)
                && Arc::ptr_eq(&access.used, &ended.used)
        };
        let by = Accessor::EndedRun {
            transfer: ended.transfer,
            user_data: ended.user_data,
            is_lost: ended.is_abandoned,
        };
        match found.iter_mut().find_map(|access| is_same(access).then_some(access)) {
            Some(access) => access.by = by,
            None => lists::push(&mut found, Access { by, used: ended.used })?,
        }
    }
    Ok(found)
}

/// Who may still access some blocks, in ascending order of the blocks.
pub fn of_blocks(layout: &Layout, blocks: &[u32]) -> Result<Vec<BlockAccess>> {
    let ids = block_bytes::sorted_ids(layout, blocks)?;
    let mut found: Vec<BlockAccess> = Vec::new();
    if ids.is_empty() {
        return Ok(found);
    }
    let mut asked = None;
    for Access { by, used } in all()? {
        let by = Arc::new(by);
        for (placed, is_written) in [(used.read(), false), (used.written(), true)] {
            let Some(placed) = placed.filter(|placed| placed.places.meet(layout.places())) else { continue };
            let asked = match &mut asked {
                Some(asked) => asked,
                empty => empty.insert(Asked::new(layout, &ids)?),
            };
            for index in asked.meeting(placed)? {
                let access =
                    BlockAccess { block: ids[index], by: by.clone(), reads: !is_written, writes: is_written };
                lists::push(&mut found, access)?;
            }
        }
    }
    let leased = block_lease::of_blocks(layout, &ids)?;
    // In several regions of the layout it is one lease, with the last of its ends there.
    let mut leases: Vec<FoundLease> = Vec::new();
    let place = |leases: &[FoundLease], lease: &FoundLease| {
        leases.binary_search_by_key(&lease.identity(), FoundLease::identity)
    };
    for LeasedBlocks { lease, .. } in &leased {
        match place(&leases, lease) {
            Ok(at) => leases[at].end = leases[at].end.max(lease.end),
            Err(at) => {
                lists::reserve(&mut leases, 1)?;
                leases.insert(at, *lease);
            }
        }
    }
    let holders = lists::collect(leases.iter().map(|lease| Arc::new(Accessor::Lease(*lease))))?;
    for LeasedBlocks { lease, blocks } in leased {
        let Ok(at) = place(&leases, &lease) else { continue };
        for block in blocks {
            let (by, writes) = (holders[at].clone(), lease.holder.writes);
            lists::push(&mut found, BlockAccess { block: ids[block], by, reads: true, writes })?;
        }
    }
    // All accesses of one accessor to a block are beside each other.
    found.sort_unstable_by_key(|access| (access.block, Arc::as_ptr(&access.by)));
    found.dedup_by(|next, last| {
        let is_same = next.block == last.block && Arc::ptr_eq(&next.by, &last.by);
        if is_same {
            last.reads |= next.reads;
            last.writes |= next.writes;
        }
        is_same
    });
    Ok(found)
}

/// The blocks that are asked about, which are planned when some memory is that of their layout.
struct Asked<'a> {
    layout: &'a Layout,
    outline: Arc<Outline>,
    ids: &'a [u32],
    plan: Plan,
}

impl<'a> Asked<'a> {
    fn new(layout: &'a Layout, ids: &'a [u32]) -> Result<Self> {
        let outline = block_bytes::outline(layout)?;
        let plan = block_bytes::plan(&outline, ids)?;
        Ok(Self { layout, outline, ids, plan })
    }

    /// The indices of those that have bytes in common with others. Mostly there are none, which takes one look.
    fn meeting(&self, other: Placed<'_>) -> Result<Vec<usize>> {
        if common([Placed::side(&self.plan, 0, self.layout), other])?.is_none() {
            return Ok(Vec::new());
        }
        let each = self.ids.iter().map(|id| block_bytes::plan(&self.outline, std::slice::from_ref(id)));
        which_meet(self.layout, each, other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::layout::{Arrangement, Dimensions, Order};
    use crate::plan::{BlockPair, PairedRange, Wanted};
    use crate::region::{Contexts, Region, SystemConfig};
    use crate::run::{Account, Completion, Run, Ticket};

    fn region() -> Arc<Region> {
        Region::system(&SystemConfig { size: 1 << 20, ..SystemConfig::default() }).unwrap()
    }

    fn over(region: &Arc<Region>, order: &str) -> Arc<Layout> {
        let arrangement = Arrangement::tight(Order::parse(order).unwrap());
        Layout::place(Dimensions::small(), arrangement, vec![region.clone()]).unwrap()
    }

    fn memory() -> Arc<Layout> {
        over(&region(), "BLONHC")
    }

    fn started(from: &Layout, to: &Layout, pairs: &[[u32; 2]], wanted: Wanted) -> (Arc<Completion>, Run) {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|[source, destination]| BlockPair { source: *source, destination: *destination })
            .collect();
        let plan = Plan::once(from, to, &pairs, wanted).unwrap();
        let places = [from, to].map(|side| Some(side.places().clone()));
        let used = Some(Arc::new(UsedBytes::Blocks { plan, places, contexts: Contexts::default() }));
        let completion = Arc::new(Completion::new(1, None));
        let run = Ticket::unheld(&completion, Account { used, user_data: 7, ..Account::default() }).start();
        (completion, run)
    }

    /// Block, whether it is read, whether it is written.
    fn found(layout: &Layout, blocks: &[u32]) -> Vec<(u32, bool, bool)> {
        let found = of_blocks(layout, blocks).unwrap();
        found.iter().map(|access| (access.block, access.reads, access.writes)).collect()
    }

    #[test]
    fn both_sides_of_a_run_are_in_use_until_it_ends() {
        let (from, to) = (memory(), memory());
        let (completion, run) = started(&from, &to, &[[1, 0], [3, 2]], Wanted::default());
        assert_eq!(found(&from, &[3, 0, 1, 2, 3]), [(1, true, false), (3, true, false)]);
        assert_eq!(found(&to, &[0, 1, 2, 3]), [(0, false, true), (2, false, true)]);
        assert!(
            found(&to, &[1, 3]).is_empty() && found(&to, &[]).is_empty() && found(&memory(), &[0]).is_empty()
        );
        let by = Accessor::Run { transfer: completion.log_id(), user_data: 7 };
        assert_eq!(*of_blocks(&to, &[0]).unwrap()[0].by, by);
        run.end(Ok(()));
        assert!(found(&from, &[0, 1, 2, 3]).is_empty() && found(&to, &[0, 1, 2, 3]).is_empty());
    }

    #[test]
    fn a_completion_is_listed_once_and_until_it_is_dropped() {
        let (from, to) = (memory(), memory());
        let (completion, run) = started(&from, &to, &[[0, 0]], Wanted::default());
        let id = completion.log_id();
        let is_listed = || listed().lock().contains_key(&id);
        drop(run);
        assert!(is_listed());
        drop(completion);
        assert!(!is_listed());
    }

    /// The same memory by other blocks, of another order.
    #[test]
    fn blocks_of_other_layouts_over_the_same_bytes_are_in_use() {
        let (region, other) = (region(), memory());
        let (layout, whole) = (over(&region, "BLONHC"), over(&region, "LBONHC"));
        let layers = Some(PairedRange { source: 0, destination: 0, count: 1 });
        let (_completion, run) = started(&other, &whole, &[[0, 0]], Wanted { layers, ..Wanted::default() });
        assert_eq!(found(&layout, &[0, 1, 2]), [(0, false, true)], "the first layer is at the start of both");
        assert_eq!(found(&whole, &[0, 1, 2]), [(0, false, true)]);
        run.end(Ok(()));
    }

    #[test]
    fn a_run_within_a_block_reads_and_writes_it_once() {
        let layout = memory();
        let layers = Some(PairedRange { source: 0, destination: 1, count: 1 });
        let (_completion, run) = started(&layout, &layout, &[[2, 2]], Wanted { layers, ..Wanted::default() });
        assert_eq!(found(&layout, &[1, 2]), [(2, true, true)]);
        run.end(Ok(()));
    }

    #[test]
    fn a_run_whose_memory_stays_in_use_is_an_ended_one_and_then_none_or_lost() {
        for is_lost in [false, true] {
            let (from, to) = (memory(), memory());
            let (completion, mut run) = started(&from, &to, &[[1, 0]], Wanted::default());
            run.report_early(Err(crate::base::Error::new(Status::TimedOut, "late")));
            let by = |is_lost| Accessor::EndedRun { transfer: completion.log_id(), user_data: 7, is_lost };
            for (layout, block) in [(&from, 1), (&to, 0)] {
                assert_eq!(*of_blocks(layout, &[block]).unwrap()[0].by, by(false));
            }
            if is_lost {
                run.abandon(crate::base::Error::new(Status::TimedOut, "lost"));
            } else {
                run.end(Ok(()));
            }
            for (layout, block) in [(&from, 1), (&to, 0)] {
                let found = of_blocks(layout, &[block]).unwrap();
                assert_eq!(found.first().map(|access| (*access.by).clone()), is_lost.then(|| by(true)));
            }
            // The memory of a lost run is never freed.
            std::mem::forget((from, to));
        }
    }

    #[test]
    fn a_session_of_a_peer_is_listed_while_it_exists() {
        let layout = memory();
        let (address, size) = (layout.placement().bases()[0], 8);
        let used = UsedBytes::Ranges { ranges: vec![(address, size)], are_written: false };
        let session = PeerAccess::list("far".into(), ProcessIdentity::sample(), used);
        assert_eq!(found(&layout, &[0, 1]), [(0, true, false)]);
        assert!(
            matches!(&*of_blocks(&layout, &[0]).unwrap()[0].by, Accessor::Peer { agent, .. } if agent == "far")
        );
        drop(session);
        assert!(found(&layout, &[0, 1]).is_empty());
    }

    #[test]
    fn a_block_that_does_not_exist_is_named() {
        let error = of_blocks(&memory(), &[0, u32::MAX]).unwrap_err();
        assert_eq!(error.status(), Status::OutOfRange);
        assert!(error.message().contains("blocks[1] is 4294967295"), "{error}");
    }
}
