// SPDX-License-Identifier: Apache-2.0
//! The same bytes of two layouts by the same addresses, also if this process has mapped memory more than once.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::layout::Layout;
use crate::region::{FileId, Region};

/// For each region of a layout what its addresses are shifted by as if all memory were mapped only once; `None` for a
/// region of other memory.
#[derive(Debug)]
pub struct Spans(Vec<Option<u64>>);

/// Shared memory, and the first address where it is mapped.
type Known = Vec<([u8; 16], u64)>;

impl Spans {
    /// By address; and for each file that both layouts have parts of, by offset in the file: as
    /// `Layout::has_common_memory` compares them.
    pub fn from_layouts(layouts: [&Layout; 2]) -> Vec<[Self; 2]> {
        let mut known = Known::new();
        let by_address = layouts.map(|layout| {
            Self::each(layout, |region| {
                // The addresses of storage are offsets.
                (!region.tier().is_storage())
                    .then(|| region.address().wrapping_add(shift(region, &mut known)))
            })
        });
        let parts = layouts.map(file_parts);
        let files: BTreeSet<_> = parts[0].iter().flatten().map(|(file, _)| *file).collect();
        let is_of_both = |file: &FileId| parts[1].iter().flatten().any(|(other, _)| other == file);
        let by_file = files.into_iter().filter(is_of_both).map(|file| {
            [0, 1].map(|side| {
                let mut parts = parts[side].iter();
                let start = |part: &Option<FilePart>| part.filter(|(of, _)| *of == file).map(|(_, at)| at);
                Self::each(layouts[side], |_| parts.next().and_then(start))
            })
        });
        std::iter::once(by_address).chain(by_file).collect()
    }

    fn each(layout: &Layout, mut start: impl FnMut(&Arc<Region>) -> Option<u64>) -> Self {
        let shift = |region: &Arc<Region>| Some(start(region)?.wrapping_sub(region.address()));
        Self(layout.memory().regions().iter().map(shift).collect())
    }

    /// An address of a region.
    pub fn at(&self, address: u64, region: u32) -> Option<u64> {
        let shift = *self.0.get(region as usize)?;
        Some(address.wrapping_add(shift?))
    }
}

/// A memory file, and an offset in it.
type FilePart = (FileId, u64);

/// For each region of a layout the memory file that it is a part of, and where in the file it starts, if other regions can
/// be parts of the same file.
fn file_parts(layout: &Layout) -> Vec<Option<FilePart>> {
    // Many regions may be views of one, and identifying a file is a system call.
    let mut last: Option<(&Arc<Region>, Option<FilePart>)> = None;
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
