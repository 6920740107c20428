// SPDX-License-Identifier: Apache-2.0
//! The bytes that the regions of a layout occupy: whether two layouts have memory in common, also if this process has
//! mapped memory more than once.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::region::{FileId, Region};

/// What bytes are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Store {
    /// The addresses of this process.
    Addresses,
    /// A file on disk, or a memory file that other regions can be parts of.
    File(FileId),
    /// Shared memory, by its id.
    Shared([u8; 16]),
}

/// Bytes of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    store: Store,
    start: u64,
    end: u64,
}

impl Span {
    fn new(store: Store, start: u64, size: u64) -> Self {
        Self { store, start, end: start.saturating_add(size) }
    }

    /// Whether it ends before another one begins.
    fn is_before(&self, other: &Self) -> bool {
        (self.store, self.end) <= (other.store, other.start)
    }
}

/// Spans in order, none of which touches another.
#[derive(Debug)]
struct Spans(Vec<Span>);

impl Spans {
    fn from_list(mut spans: Vec<Span>) -> Self {
        spans.sort_unstable();
        spans.dedup_by(|next, last| {
            let continues = next.store == last.store && next.start <= last.end;
            if continues {
                last.end = last.end.max(next.end);
            }
            continues
        });
        Self(spans)
    }

    /// Whether some bytes are in both. Spans that are side by side in a store are skipped at once.
    fn meet(&self, other: &Self) -> bool {
        let (mut mine, mut theirs) = (&self.0[..], &other.0[..]);
        while let (Some(one), Some(another)) = (mine.first(), theirs.first()) {
            if one.is_before(another) {
                mine = &mine[mine.partition_point(|span| span.is_before(another))..];
            } else if another.is_before(one) {
                theirs = &theirs[theirs.partition_point(|span| span.is_before(one))..];
            } else {
                return true;
            }
        }
        false
    }
}

/// A region that is no view, and what else identifies its bytes than their addresses.
#[derive(Clone, Copy)]
struct Root<'a> {
    region: &'a Arc<Region>,
    /// The file that it is a part of, and where it starts there.
    file: Option<(FileId, u64)>,
    /// Its id, if another process has shared it.
    shared: Option<[u8; 16]>,
}

impl<'a> Root<'a> {
    fn new(region: &'a Arc<Region>) -> Self {
        let shared = region.origin().and_then(|_| region.shared_id());
        Self { region, file: region.foreign_file_part(), shared }
    }
}

/// The bytes of some regions.
#[derive(Debug)]
pub struct Occupied(Spans);

impl Occupied {
    /// By address; by offset in a file; and if another process has shared them, by their id, because this process never
    /// imports its own memory. A file can be adopted and opened several times, and memory that the caller has mapped
    /// several times can be adopted by each of its addresses. The file of the latter is found at its adoption. It is
    /// not compared if it consists of several parts of files, if the caller maps it elsewhere later, or if it is
    /// anonymous memory of another process.
    pub fn from_regions(regions: &[Arc<Region>]) -> Self {
        let mut spans = Vec::with_capacity(regions.len());
        // Many regions may be views of one, and identifying a file is a system call.
        let mut last: Option<Root<'_>> = None;
        for region in regions {
            let (root, offset) = Region::root_of(region);
            let known = last.filter(|known| Arc::ptr_eq(known.region, root));
            let Root { file, shared, .. } = *last.insert(known.unwrap_or_else(|| Root::new(root)));
            // The addresses of storage are offsets.
            let address = (!region.tier().is_storage()).then(|| (Store::Addresses, region.address()));
            let in_file = file.map(|(file, start)| (Store::File(file), start.saturating_add(offset)));
            let in_shared = shared.map(|id| (Store::Shared(id), offset));
            let starts = [address, in_file, in_shared].into_iter().flatten();
            spans.extend(starts.map(|(store, start)| Span::new(store, start, region.size())));
        }
        Self(Spans::from_list(spans))
    }

    /// Whether they have bytes in common with others.
    pub fn meet(&self, other: &Self) -> bool {
        self.0.meet(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn spans() -> impl Strategy<Value = Spans> {
        let stores = [Store::Addresses, Store::File(FileId::numbered(1)), Store::Shared([1; 16])];
        let span = (prop::sample::select(stores.to_vec()), 0u64..60, 1u64..9);
        let of = |(store, start, size)| Span::new(store, start, size);
        prop::collection::vec(span.prop_map(of), 0..12).prop_map(Spans::from_list)
    }

    proptest! {
        #[test]
        fn spans_meet_if_two_of_them_have_a_byte_in_common(mine in spans(), theirs in spans()) {
            let bytes = |spans: &Spans| -> BTreeSet<(Store, u64)> {
                let of = |span: &Span| (span.start..span.end).map({ let store = span.store; move |at| (store, at) });
                spans.0.iter().flat_map(of).collect()
            };
            prop_assert_eq!(mine.meet(&theirs), !bytes(&mine).is_disjoint(&bytes(&theirs)));
            prop_assert!(mine.0.windows(2).all(|pair| pair[0].is_before(&pair[1])));
        }
    }

    #[test]
    fn regions_that_follow_each_other_are_one_span() {
        let span = |start| Span::new(Store::Addresses, start, 16);
        assert_eq!(
            Spans::from_list(vec![span(32), span(0), span(16)]).0,
            [Span::new(Store::Addresses, 0, 48)]
        );
    }
}
