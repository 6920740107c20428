// SPDX-License-Identifier: Apache-2.0
//! Whether what a transfer reads and what it writes are apart: by where they lie, and where this process has memory of
//! another's mapped more than once, by what they are.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Move, Plan};
use crate::error::{Error, Result, Status};
use crate::layout::Layout;
use crate::region::{FileId, Region};

/// Whether two layouts have memory in common.
pub(super) fn have_common_memory(source: &Layout, destination: &Layout) -> bool {
    Spans::of([source, destination]).iter().any(|[from, to]| from.meet(to))
}

/// Within one piece of memory no block may be read after it was written, or while it is.
pub fn ensure_apart(source: &Layout, destination: &Layout, plan: &Plan) -> Result<()> {
    let is_apart = !plan.has_common_memory() || are_blocks_apart(source, destination, plan);
    if is_apart { Ok(()) } else { ensure_moves_apart(source, destination, plan) }
}

/// Whether no block is both read and written, which is soon seen within one layout. The answer is about whole blocks: of a
/// block that is read and written, different parts may be.
fn are_blocks_apart(source: &Layout, destination: &Layout, plan: &Plan) -> bool {
    if !std::ptr::eq(source, destination) {
        return false;
    }
    let interval = |first: u32, length: u32| (u64::from(first), u64::from(first) + u64::from(length));
    let mut reads: Vec<_> = plan.runs().iter().map(|run| interval(run.source, run.length)).collect();
    reads.sort_unstable();
    let mut reads = reads.into_iter().peekable();
    plan.runs().iter().map(|run| interval(run.destination, run.length)).all(|(first, end)| {
        while reads.next_if(|(_, read_end)| *read_end <= first).is_some() {}
        reads.peek().is_none_or(|(read_first, _)| *read_first >= end)
    })
}

fn ensure_moves_apart(source: &Layout, destination: &Layout, plan: &Plan) -> Result<()> {
    let moves: Vec<_> = plan.moves().collect();
    let all = Spans::of([source, destination]);
    all.iter().try_for_each(|[from, to]| {
        let read = |each: &Move| Some((from.at(each.source, each.source_region)?, each.size));
        let written = |each: &Move| Some((to.at(each.destination, each.destination_region)?, each.size));
        ensure_disjoint(moves.iter().filter_map(read).collect(), moves.iter().filter_map(written).collect())
    })
}

fn ensure_disjoint(mut reads: Vec<(u64, u64)>, mut writes: Vec<(u64, u64)>) -> Result<()> {
    reads.sort_unstable();
    writes.sort_unstable();
    let (mut read, mut write) = (0, 0);
    while let (Some((from, from_size)), Some((to, to_size))) = (reads.get(read), writes.get(write)) {
        if from < &(to + to_size) && to < &(from + from_size) {
            let message = format!(
                "source and destination overlap: {from_size} bytes at {from:#x} are read and {to_size} at {to:#x} \
                 written"
            );
            return Err(Error::new(Status::InvalidArgument, message));
        }
        if from + from_size <= *to { read += 1 } else { write += 1 }
    }
    Ok(())
}

/// Where a layout's regions would lie if all memory were mapped but once; `None` for a region of other memory.
struct Spans(Vec<Option<Span>>);

struct Span {
    start: u64,
    size: u64,
    /// What leads there from the region's own addresses.
    shift: u64,
}

/// Memory that is shared, and the first place where it is mapped.
type Known = Vec<([u8; 16], u64)>;

impl Spans {
    /// By address; and for each memory file that both layouts have parts of, by offset in the file. A file can be adopted
    /// and opened several times, at different addresses.
    fn of(layouts: [&Layout; 2]) -> Vec<[Self; 2]> {
        let mut known = Known::new();
        let by_address = layouts.map(|layout| {
            Self::each(layout, |region| Some(region.address().wrapping_add(shift(region, &mut known))))
        });
        let parts = layouts.map(file_parts);
        let files: BTreeSet<_> = parts[0].iter().flatten().map(|(file, _)| *file).collect();
        let is_of_both = |file: &FileId| parts[1].iter().flatten().any(|(other, _)| other == file);
        let by_file = files.into_iter().filter(is_of_both).map(|file| {
            [0, 1].map(|side| {
                let mut parts = parts[side].iter();
                let start =
                    |part: &Option<(FileId, u64)>| part.filter(|(of, _)| *of == file).map(|(_, at)| at);
                Self::each(layouts[side], |_| parts.next().and_then(start))
            })
        });
        std::iter::once(by_address).chain(by_file).collect()
    }

    fn each(layout: &Layout, mut start: impl FnMut(&Arc<Region>) -> Option<u64>) -> Self {
        let span = |region: &Arc<Region>| {
            let start = start(region)?;
            Some(Span { start, size: region.size(), shift: start.wrapping_sub(region.address()) })
        };
        Self(layout.memory().regions().iter().map(span).collect())
    }

    fn meet(&self, other: &Self) -> bool {
        self.0.iter().flatten().any(|from| {
            let mut others = other.0.iter().flatten();
            others.any(|to| from.start < to.start + to.size && to.start < from.start + from.size)
        })
    }

    fn at(&self, address: u64, region: u32) -> Option<u64> {
        let span = self.0.get(region as usize)?.as_ref()?;
        Some(address.wrapping_add(span.shift))
    }
}

/// For each region of a layout the memory file that it is a part of, and where in the file it starts, if other regions can
/// be parts of the same file.
fn file_parts(layout: &Layout) -> Vec<Option<(FileId, u64)>> {
    // Many regions may be views of one, and identifying a file is a system call.
    let mut last: Option<(&Arc<Region>, Option<(FileId, u64)>)> = None;
    let part = |region| {
        let (root, offset) = Region::root_of(region);
        let known = last.filter(|(known, _)| Arc::ptr_eq(known, root));
        let (_, part) = *last.insert(known.unwrap_or_else(|| (root, root.foreign_file_part())));
        part.map(|(file, start)| (file, start.saturating_add(offset)))
    };
    layout.memory().regions().iter().map(part).collect()
}

/// From a region's addresses to those of the first region of the same memory.
fn shift(region: &Arc<Region>, known: &mut Known) -> u64 {
    let (root, _) = Region::root_of(region);
    let Some(id) = root.shared_id() else { return 0 };
    match known.iter().find(|(other, _)| *other == id) {
        Some((_, first)) => first.wrapping_sub(root.address()),
        None => {
            known.push((id, root.address()));
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::{AllocationConfig, Dimensions, LayoutKind};
    use crate::region::SystemConfig;
    use crate::transfer::request::{BlockPair, PairedRange, Wanted};

    fn layout() -> std::sync::Arc<Layout> {
        let memory = AllocationConfig::System(SystemConfig::default());
        let dimensions = Dimensions { num_blocks: 12, num_layers: 2, ..Dimensions::small() };
        Layout::builder(dimensions)
            .kind(LayoutKind::FullyContiguous)
            .unwrap()
            .allocate(memory)
            .build()
            .unwrap()
    }

    fn plan(layout: &Layout, pairs: &[BlockPair], layers: Option<PairedRange>) -> Plan {
        Plan::once(layout, layout, pairs, Wanted { layers, outers: None }).unwrap()
    }

    proptest! {
        #[test]
        fn blocks_of_one_layout_are_apart_if_their_moves_are(
            destinations in Just((0u32..12).collect::<Vec<_>>()).prop_shuffle(),
            sources in prop::collection::vec(0u32..12, 12), count in 1usize..5,
        ) {
            let layout = layout();
            let zipped = sources.into_iter().zip(destinations).take(count);
            let pairs: Vec<_> = zipped.map(|(source, destination)| BlockPair { source, destination }).collect();
            let plan = plan(&layout, &pairs, None);
            prop_assert!(plan.has_common_memory());
            let are_apart = ensure_moves_apart(&layout, &layout, &plan).is_ok();
            prop_assert_eq!(are_blocks_apart(&layout, &layout, &plan), are_apart);
            prop_assert_eq!(ensure_apart(&layout, &layout, &plan).is_ok(), are_apart);
        }
    }

    #[test]
    fn layers_of_one_block_may_move_to_other_layers_of_it() {
        let layout = layout();
        let layers = Some(PairedRange { source: 0, destination: 1, count: 1 });
        let plan = plan(&layout, &[BlockPair { source: 3, destination: 3 }], layers);
        assert!(!are_blocks_apart(&layout, &layout, &plan));
        assert!(ensure_apart(&layout, &layout, &plan).is_ok());
    }
}
