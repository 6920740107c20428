// SPDX-License-Identifier: Apache-2.0
//! Whether what a transfer reads and what it writes are apart: by where they lie, and where this process has memory of
//! another's mapped more than once, by what they are.

use super::Plan;
use crate::error::{Error, Result, Status};
use crate::layout::Layout;
use crate::region::Region;

/// Within one piece of memory no block may be read after it was written, or while it is.
pub fn ensure_apart(source: &Layout, destination: &Layout, plan: &Plan) -> Result<()> {
    let [from, to] = Spans::of([source, destination]);
    if !from.meet(&to) {
        return Ok(());
    }
    let moves: Vec<_> = plan.moves().collect();
    let mut reads: Vec<_> =
        moves.iter().map(|each| (from.at(each.source, each.source_region), each.size)).collect();
    let mut writes: Vec<_> =
        moves.iter().map(|each| (to.at(each.destination, each.destination_region), each.size)).collect();
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

/// Where a layout's regions would lie if all memory were mapped but once.
struct Spans(Vec<Span>);

struct Span {
    start: u64,
    size: u64,
    /// What leads there from the region's own addresses.
    shift: u64,
}

/// Memory that is shared, and the first place where it is mapped.
type Known = Vec<([u8; 16], u64)>;

impl Spans {
    fn of(layouts: [&Layout; 2]) -> [Self; 2] {
        let mut known = Known::new();
        layouts.map(|layout| {
            let spans = layout.memory().regions().iter().map(|region| {
                let shift = shift(region, &mut known);
                Span { start: region.address().wrapping_add(shift), size: region.size(), shift }
            });
            Self(spans.collect())
        })
    }

    fn meet(&self, other: &Self) -> bool {
        self.0.iter().any(|from| {
            other.0.iter().any(|to| from.start < to.start + to.size && to.start < from.start + from.size)
        })
    }

    fn at(&self, address: u64, region: u32) -> u64 {
        address.wrapping_add(self.0.get(region as usize).map_or(0, |span| span.shift))
    }
}

/// From a region's addresses to those of the first region of the same memory.
fn shift(region: &std::sync::Arc<Region>, known: &mut Known) -> u64 {
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
