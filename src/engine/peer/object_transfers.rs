// SPDX-License-Identifier: Apache-2.0
//! Transfers to and from objects. A request is for one object: NIXL writes only whole objects, from contiguous memory, and after
//! a failure only the end of a request for one object says that nothing uses its memory any more.
//!
//! If the bytes of each object are contiguous in the other layout, and in host memory, they are moved directly. Otherwise they
//! pass through an arena, in which they are gathered before a write and scattered from after a read.

use std::sync::Arc;

use super::staged::{Division, StagedPlan, StagingMemory, object_slot_size};
use super::{FlowPlan, NixlMove, local_and_remote, prepare, shared_agent};
use crate::base::{Error, Result, error, fail};
use crate::engine::Candidate;
use crate::engine::preferences::Preferences;
use crate::layout::Layout;
use crate::nixl::MemoryType;
use crate::plan::{LoopOrder, Move, Plan};
use crate::run::TransferMethod;

/// Requests of one transfer in flight: each waits for the store.
const WINDOW: usize = 16;

impl NixlMove {
    pub fn with_objects(sides: [&Arc<Layout>; 2], plan: &Plan, preferences: &Preferences) -> Result<Self> {
        let (reads, [local, remote]) = local_and_remote(sides);
        let agent = shared_agent(local, remote)?.clone();
        let plan = plan.in_order(if reads { LoopOrder::Source } else { LoopOrder::StrictDestination })?;
        let is_contiguous = ObjectParts::new(&plan, remote, reads).check()?;
        let direct_reason = match local.memory_type() {
            MemoryType::Dram if is_contiguous => None,
            MemoryType::Dram => Some("the bytes of an object are not contiguous in the other layout"),
            _ => Some("the other layout is not in host memory"),
        };
        let [direct, staged] = [TransferMethod::Nixl, TransferMethod::NixlStaged];
        // Ranges of an object may be read one by one, by as many requests.
        let can_be_direct = direct_reason.is_none() || (reads && local.memory_type() == MemoryType::Dram);
        let method = match preferences.method {
            Some(method) if method == staged => staged,
            Some(method) if can_be_direct => method,
            Some(method) => {
                let reason = direct_reason.unwrap_or_default();
                fail!(
                    Unsupported,
                    "method {method} is not possible between these layouts: {reason}; request {staged} or no method"
                )
            }
            None if direct_reason.is_none() => direct,
            None => staged,
        };
        let division = match method == staged {
            true => {
                let memory = StagingMemory::between(local, MemoryType::Object);
                let slot = object_slot_size(preferences.staging_size, memory, max_content(remote))?;
                Some(Division::from_objects(&plan, remote, reads, slot))
            }
            false => None,
        };
        let mut shared = prepare(sides, method, plan, None, None)?;
        shared.window = WINDOW;
        if let Some(division) = division {
            let staged = StagedPlan::new(division, local, &agent, preferences.poisons_slots)?;
            shared.flow_plan = FlowPlan::Staged(Arc::new(staged));
        }
        Self::new(shared, candidates(method, [direct, staged], direct_reason, can_be_direct))
    }
}

/// The method that is taken, and why not the other one.
fn candidates(
    method: TransferMethod,
    [direct, staged]: [TransferMethod; 2],
    direct_reason: Option<&'static str>,
    can_be_direct: bool,
) -> Vec<Candidate> {
    let other = |method, reason: &'static str| Candidate::new(method, 0.0).with_reason(Some(reason.into()));
    if method == staged {
        let reason = direct_reason.unwrap_or("another method was requested");
        let direct = Candidate { is_impossible: !can_be_direct, ..other(direct, reason) };
        return vec![Candidate::new(staged, 0.0), direct];
    }
    vec![Candidate::new(direct, 0.0), other(staged, "staging memory would be copied once more")]
}

/// The maximum number of bytes that the layout uses of one of its objects.
fn max_content(objects: &Layout) -> u64 {
    (0..objects.descriptors().len() as u32)
        .filter_map(|region| objects.object_content(region))
        .max()
        .unwrap_or(0)
}

/// The parts of objects that a plan moves, in its order.
struct ObjectParts<'a> {
    plan: &'a Plan,
    objects: &'a Layout,
    reads: bool,
    /// Bytes that the layout uses of each object of a region.
    contents: Vec<u64>,
}

/// The object that the parts before were of, and where the last of them ended.
#[derive(Clone, Copy)]
struct Filled {
    region: u32,
    device_id: u64,
    address: u64,
    end: u64,
}

impl<'a> ObjectParts<'a> {
    fn new(plan: &'a Plan, objects: &'a Layout, reads: bool) -> Self {
        let regions = 0..objects.descriptors().len() as u32;
        let contents = regions.map(|region| objects.object_content(region).unwrap_or(0)).collect();
        Self { plan, objects, reads, contents }
    }

    /// Whether the bytes of each object are contiguous on the other side. Fails if a write would fill only a part of an object.
    fn check(&self) -> Result<bool> {
        let mut is_contiguous = true;
        let mut before: Option<Filled> = None;
        for part in self.parts() {
            let (region, address) = match self.reads {
                true => (part.source_region, part.source),
                false => (part.destination_region, part.destination),
            };
            let span = self.objects.span(region, address, part.size);
            let same = before.filter(|last| last.device_id == span.device_id);
            is_contiguous &= same.is_none();
            let begins_at = same.map_or(0, |last| last.end);
            if !self.reads {
                if same.is_none() {
                    self.ensure_whole(before)?;
                }
                if span.address != begins_at {
                    return Err(self.in_parts(region, address, begins_at));
                }
            }
            let end = span.address + span.size;
            before = Some(Filled { region, device_id: span.device_id, address, end });
        }
        if !self.reads {
            self.ensure_whole(before)?;
        }
        Ok(is_contiguous)
    }

    fn parts(&self) -> impl Iterator<Item = Move> + '_ {
        let at = |is_objects: bool, region, address| match is_objects {
            true => self.objects.bytes_in_piece(region, address),
            false => u64::MAX,
        };
        self.plan.moves().flat_map(move |each| {
            each.cut(
                move |region, address| at(self.reads, region, address),
                move |region, address| at(!self.reads, region, address),
            )
        })
    }

    fn ensure_whole(&self, filled: Option<Filled>) -> Result<()> {
        match filled {
            Some(last) if last.end < self.contents[last.region as usize] => {
                Err(self.in_parts(last.region, last.address, last.end))
            }
            _ => Ok(()),
        }
    }

    fn in_parts(&self, region: u32, address: u64, filled: u64) -> Error {
        let content = self.contents[region as usize];
        error!(
            Unsupported,
            "the transfer writes a part of object '{}': {filled} of its {content} bytes, and then others; NIXL writes only whole \
             objects. Move whole blocks, with as many tokens per block on both sides and without KVMEM_TRANSFER_BY_LAYER, or \
             create the region with objects of the size of the part",
            self.objects.object_key(region, address)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::layout::{Arrangement, Dimensions};
    use crate::plan::{BlockPair, PairedRange, Wanted};
    use crate::region::{ObjectConfig, Region};

    /// A block has 3 layers of 2 outer slots of 64 bytes.
    const BLOCK: u64 = 384;

    fn dimensions() -> Dimensions {
        Dimensions::of_bytes(6)
    }

    fn objects(object_size: u64) -> Arc<Layout> {
        let config = ObjectConfig { prefix: "a".to_string(), object_size, count: 6 * BLOCK / object_size };
        let region = Region::objects_named(config).unwrap();
        Layout::place(dimensions(), Arrangement::FULLY_CONTIGUOUS, vec![region]).unwrap()
    }

    fn host(kind: Arrangement) -> Arc<Layout> {
        Layout::in_host(dimensions(), kind)
    }

    const SEPARATE: Arrangement = Arrangement::LAYER_SEPARATE_OUTER_FIRST;

    /// The check of three blocks between the objects and a host layout.
    fn check(objects: &Arc<Layout>, host: &Arc<Layout>, reads: bool, wanted: Wanted) -> Result<bool> {
        let pairs = [(4, 0), (0, 3), (1, 4)].map(|(source, destination)| BlockPair { source, destination });
        let (source, destination) = if reads { (objects, host) } else { (host, objects) };
        let plan = Plan::once(source, destination, &pairs, wanted).unwrap();
        let plan =
            plan.in_order(if reads { LoopOrder::Source } else { LoopOrder::StrictDestination }).unwrap();
        ObjectParts::new(&plan, objects, reads).check()
    }

    #[test]
    fn whole_blocks_are_direct_if_they_are_contiguous_on_the_other_side() {
        let wanted = Wanted::default();
        for reads in [true, false] {
            let [whole, pieces] = [BLOCK, 64].map(objects);
            let [contiguous, separate] = [Arrangement::FULLY_CONTIGUOUS, SEPARATE].map(host);
            assert!(check(&whole, &contiguous, reads, wanted).unwrap());
            assert!(!check(&whole, &separate, reads, wanted).unwrap());
            assert!(check(&pieces, &contiguous, reads, wanted).unwrap(), "contiguous blocks are cut");
            assert!(check(&pieces, &separate, reads, wanted).unwrap(), "an object is a piece");
        }
    }

    #[test]
    fn a_part_of_an_object_can_be_read_and_not_written() {
        for first in 0..2 {
            let layers = Some(PairedRange { source: first, destination: first, count: 2 });
            let wanted = Wanted { layers, ..Wanted::default() };
            let contiguous = host(Arrangement::FULLY_CONTIGUOUS);
            assert!(check(&objects(BLOCK), &contiguous, true, wanted).unwrap());
            let error = check(&objects(BLOCK), &contiguous, false, wanted).unwrap_err();
            error.assert_is(Status::Unsupported, "only whole objects");
            assert!(error.message().contains("'a000000000"), "{error}");
            assert!(check(&objects(BLOCK / 3), &contiguous, false, wanted).unwrap(), "an object is a layer");
        }
    }
}
