// SPDX-License-Identifier: Apache-2.0
//! Two layouts that blocks move between: what all transfers between them have in common. The destination keeps it for
//! the next transfer, because engines create transfers between the same layouts again and again.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::engine::{runs, select};
use super::path::TransferPath;
use super::plan::Outline;
use super::request::TransferRequest;
use crate::error::Result;
use crate::layout::Layout;
use crate::log_id::LogId;
use crate::region::Contexts;

/// The checks and results that depend on the two layouts, and on what is moved of each block, but on no block. Layouts
/// do not change, so these do not either.
pub(super) struct LayoutPair {
    /// Not the layout itself: the destination keeps this, and must not keep the source.
    source: LogId,
    /// The path, or one of several that are compared for each list of pairs.
    pub path: TransferPath,
    pub outline: Arc<Outline>,
    /// The CUDA contexts of the memory of both layouts.
    pub contexts: Contexts,
}

impl LayoutPair {
    /// That of the last transfer into the destination, if it is the same.
    pub fn of(source: &Layout, destination: &Layout, request: &TransferRequest<'_>) -> Result<Arc<Self>> {
        if !moves_whole_blocks(request) {
            return Self::new(source, destination, request);
        }
        let kept = destination.kept::<Self>().filter(|kept| kept.source == source.log_id());
        kept.map_or_else(|| Self::new_kept(source, destination, request), Ok)
    }

    #[cold]
    fn new_kept(source: &Layout, destination: &Layout, request: &TransferRequest<'_>) -> Result<Arc<Self>> {
        let pair = Self::new(source, destination, request)?;
        destination.keep(pair.clone());
        Ok(pair)
    }

    #[cold]
    fn new(source: &Layout, destination: &Layout, request: &TransferRequest<'_>) -> Result<Arc<Self>> {
        let path = select::path(source, destination, request.preferences.path)?;
        destination.ensure_writable()?;
        let contexts = runs::contexts([source, destination], path.is_cuda());
        let by_layer = request.preferences.by_layer;
        let outline = Outline::of_parts(source, destination, &request.parts, request.wanted, by_layer)?;
        Ok(Arc::new(Self { source: source.log_id(), path, outline: Arc::new(outline), contexts }))
    }
}

/// Whether the result depends on the layouts alone. Layer by layer it has loops for each layer, which are too many to be
/// kept.
fn moves_whole_blocks(request: &TransferRequest<'_>) -> bool {
    let preferences = &request.preferences;
    request.parts.is_empty() && request.wanted.is_all() && !preferences.by_layer && preferences.path.is_none()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::layout::{AllocationConfig, Dimensions, LayoutKind};
    use crate::region::SystemConfig;
    use crate::transfer::request::{PairedRange, Preferences, Wanted};

    fn layout(num_layers: u64) -> Arc<Layout> {
        let dimensions = Dimensions { num_blocks: 12, num_layers, ..Dimensions::small() };
        let builder = Layout::builder(dimensions).kind(LayoutKind::FullyContiguous).unwrap();
        builder.allocate(AllocationConfig::System(SystemConfig::default())).build().unwrap()
    }

    fn pair(source: &Layout, destination: &Layout, request: TransferRequest<'_>) -> Arc<LayoutPair> {
        LayoutPair::of(source, destination, &request).unwrap()
    }

    #[test]
    fn the_next_transfer_between_the_same_layouts_finds_it() {
        let [source, other, destination] = [2; 3].map(layout);
        let of = |source| pair(source, &destination, TransferRequest::default());
        let first = of(&source);
        assert!(Arc::ptr_eq(&first, &of(&source)));
        let of_other = of(&other);
        assert!(!Arc::ptr_eq(&first, &of_other) && Arc::ptr_eq(&of_other, &of(&other)));
        let back = pair(&destination, &source, TransferRequest::default());
        assert!(!Arc::ptr_eq(&first, &back));
    }

    #[test]
    fn a_request_for_something_else_has_one_of_its_own() {
        let [source, destination] = [2; 2].map(layout);
        let whole = pair(&source, &destination, TransferRequest::default());
        let layers = Some(PairedRange { source: 0, destination: 1, count: 1 });
        let wanted = Wanted { layers, ..Wanted::default() };
        let by_layer = Preferences { by_layer: true, ..Preferences::default() };
        let forced = Preferences { path: Some(TransferPath::Memcpy), ..Preferences::default() };
        for request in [
            TransferRequest { wanted, ..TransferRequest::default() },
            TransferRequest { preferences: by_layer, ..TransferRequest::default() },
            TransferRequest { preferences: forced, ..TransferRequest::default() },
        ] {
            assert!(!Arc::ptr_eq(&whole, &pair(&source, &destination, request)));
        }
        assert!(Arc::ptr_eq(&whole, &pair(&source, &destination, TransferRequest::default())));
    }

    #[test]
    fn threads_that_create_transfers_at_once_find_the_pair_of_their_source() {
        let (sources, destination) = ([2; 3].map(layout), layout(2));
        let start = Barrier::new(2 * sources.len());
        std::thread::scope(|scope| {
            for source in sources.iter().chain(&sources) {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..500 {
                        let of_source = pair(source, &destination, TransferRequest::default());
                        assert_eq!(of_source.source, source.log_id());
                    }
                });
            }
        });
        assert!(sources.iter().all(|source| Arc::strong_count(source) == 1));
    }

    #[test]
    fn layouts_that_differ_are_refused_each_time() {
        let (source, destination) = (layout(2), layout(3));
        for _ in 0..2 {
            assert!(LayoutPair::of(&source, &destination, &TransferRequest::default()).is_err());
        }
    }

    #[test]
    fn the_destination_does_not_keep_the_source() {
        let (source, destination) = (layout(2), layout(2));
        pair(&source, &destination, TransferRequest::default());
        assert_eq!(Arc::strong_count(&source), 1);
    }
}
