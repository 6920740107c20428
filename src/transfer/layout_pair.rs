// SPDX-License-Identifier: Apache-2.0
//! Two layouts that blocks move between: what all transfers between them have in common. The destination keeps it for
//! the next transfer, because engines create transfers between the same layouts again and again, from one source or from
//! many in turn.

use std::sync::Arc;

use once_cell::sync::OnceCell;

use super::transfer_request::TransferRequest;
use crate::base::{LogId, Mutex, Result};
use crate::cuda::{CallerStream, Capture};
use crate::engine::cost::history;
use crate::engine::{runs, select};
use crate::layout::Layout;
use crate::layout::cache::LayoutCache;
use crate::nixl::MemoryType;
use crate::plan::Outline;
use crate::region::Contexts;
use crate::run::statistics::{Direction, SideKind};
use crate::run::{Record, Reports, Tallies, TransferMethod};

/// The maximum number of sources that a destination keeps something for.
const MAX_SOURCES: usize = 128;
/// The usual throughput of checks, of bytes in host memory: the order of magnitude. The first check replaces it.
const CHECKED_PER_SECOND: f64 = 5e9;

/// The checks and results that depend on the two layouts, and on what is moved of each block, but on no block. Layouts
/// do not change, so these do not either.
///
/// It has no layout: the destination keeps this, and must not keep the source.
pub(super) struct LayoutPair {
    /// The method, or one of several that are compared for each list of pairs.
    pub method: TransferMethod,
    pub has_peer: bool,
    pub direction: Direction,
    pub outline: Arc<Outline>,
    /// The CUDA contexts of the memory of both layouts.
    pub contexts: Contexts,
    /// The throughput of the first method that was asked for.
    record: OnceCell<(TransferMethod, Arc<Record>)>,
    /// The throughput of checks of moved blocks, of the bytes that they read.
    pub checks: Record,
    tallies: Arc<Tallies>,
}

/// Those of each destination.
static PAIRS: LayoutCache<KeptPairs> = LayoutCache::new();

/// The pairs of a destination with each of its last sources, in the order of their numbers.
#[derive(Default)]
struct KeptPairs(Mutex<Vec<(LogId, Arc<LayoutPair>)>>);

impl KeptPairs {
    fn find(&self, source: LogId) -> Option<Arc<LayoutPair>> {
        let pairs = self.0.lock();
        let index = pairs.binary_search_by_key(&source, |(source, _)| *source).ok()?;
        Some(pairs[index].1.clone())
    }

    /// Adds that of a source. If there are too many, the source with the lowest number goes: it is the oldest, and probably
    /// no longer exists.
    fn add(&self, source: LogId, pair: Arc<LayoutPair>) {
        let mut pairs = self.0.lock();
        let replaced = match pairs.binary_search_by_key(&source, |(source, _)| *source) {
            // Another thread has added one meanwhile.
            Ok(index) => Some(std::mem::replace(&mut pairs[index], (source, pair))),
            Err(index) => {
                let oldest = (pairs.len() == MAX_SOURCES).then(|| pairs.remove(0));
                pairs.insert(index.saturating_sub(usize::from(oldest.is_some())), (source, pair));
                oldest
            }
        };
        drop(pairs);
        drop(replaced);
    }
}

fn kind_of(side: &Layout) -> SideKind {
    match side.memory_type() {
        _ if side.memory().is_remote() => SideKind::Peer,
        MemoryType::Dram => SideKind::Host,
        MemoryType::Vram => SideKind::Gpu,
        _ => SideKind::Storage,
    }
}

impl LayoutPair {
    /// The pair of an earlier transfer between the layouts if it is the same, or a new one.
    pub fn cached(source: &Layout, destination: &Layout, request: &TransferRequest<'_>) -> Result<Arc<Self>> {
        if !moves_whole_blocks(request) {
            return Self::new(source, destination, request);
        }
        let kept = PAIRS.get(destination).and_then(|pairs| pairs.find(source.log_id()));
        kept.map_or_else(|| Self::new_kept(source, destination, request), Ok)
    }

    #[cold]
    fn new_kept(source: &Layout, destination: &Layout, request: &TransferRequest<'_>) -> Result<Arc<Self>> {
        let pair = Self::new(source, destination, request)?;
        PAIRS.get_or_default(destination).add(source.log_id(), pair.clone());
        Ok(pair)
    }

    #[cold]
    fn new(source: &Layout, destination: &Layout, request: &TransferRequest<'_>) -> Result<Arc<Self>> {
        let method = select::method(source, destination, request.preferences.method)?;
        destination.ensure_writable()?;
        let contexts = runs::contexts([source, destination], method.is_cuda());
        let by_layer = request.preferences.by_layer;
        let outline = Outline::with_parts(source, destination, &request.parts, request.wanted, by_layer)?;
        let has_peer = [source, destination].iter().any(|side| side.memory().is_remote());
        let direction = Direction::between(kind_of(source), kind_of(destination));
        let (outline, record, checks) =
            (Arc::new(outline), OnceCell::new(), Record::assuming(CHECKED_PER_SECOND));
        let tallies = Arc::new(Tallies::of_transfers(source, destination)?);
        Ok(Arc::new(Self { method, has_peer, direction, outline, contexts, record, checks, tallies }))
    }

    /// What a transfer between the layouts reports: what was asked for, and to statistics.
    pub fn reports(&self, asked: Reports) -> Reports {
        Reports { tallies: Some(self.tallies.clone()), ..asked }
    }

    /// Fails for a stream on which no run between the layouts, which are those of this pair, can be submitted. Returns its capture, if it
    /// is being captured.
    pub fn check_stream(&self, sides: [&Arc<Layout>; 2], stream: CallerStream) -> Result<Option<Capture>> {
        // Checked first: the driver can't be queried about a stream of a context that no longer exists.
        self.contexts.ensure_alive()?;
        select::check_stream(self.method, sides, stream)
    }

    /// The throughput of earlier runs by a method between the layouts, which are those of this pair.
    pub fn record(&self, method: TransferMethod, source: &Layout, destination: &Layout) -> Arc<Record> {
        let look_up = || history::record(method, source, destination);
        match self.record.get_or_init(|| (method, look_up())) {
            (known, record) if *known == method => record.clone(),
            _ => look_up(),
        }
    }
}

/// Whether the result depends on the layouts alone. Layer by layer it has loops for each layer, which are too many to be
/// kept.
fn moves_whole_blocks(request: &TransferRequest<'_>) -> bool {
    let preferences = &request.preferences;
    request.parts.is_empty()
        && request.wanted.is_all()
        && !preferences.by_layer
        && preferences.method.is_none()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::engine::preferences::Preferences;
    use crate::layout::{Arrangement, Dimensions};
    use crate::plan::{PairedRange, Wanted};

    fn layout(num_layers: u64) -> Arc<Layout> {
        let dimensions = Dimensions { num_blocks: 12, num_layers, ..Dimensions::small() };
        Layout::in_host(dimensions, Arrangement::FULLY_CONTIGUOUS)
    }

    fn pair(source: &Layout, destination: &Layout, request: TransferRequest<'_>) -> Arc<LayoutPair> {
        LayoutPair::cached(source, destination, &request).unwrap()
    }

    #[test]
    fn the_next_transfer_between_the_same_layouts_finds_it() {
        let [source, other, destination] = [2; 3].map(layout);
        let of = |source| pair(source, &destination, TransferRequest::default());
        let first = of(&source);
        assert!(Arc::ptr_eq(&first, &of(&source)));
        let of_other = of(&other);
        assert!(!Arc::ptr_eq(&first, &of_other));
        assert!(Arc::ptr_eq(&first, &of(&source)) && Arc::ptr_eq(&of_other, &of(&other)));
        let back = pair(&destination, &source, TransferRequest::default());
        assert!(!Arc::ptr_eq(&first, &back));
    }

    #[test]
    fn of_too_many_sources_the_oldest_one_is_forgotten() {
        let (sources, destination) = ((0..=MAX_SOURCES).map(|_| layout(1)).collect::<Vec<_>>(), layout(1));
        let of = |source: &Arc<Layout>| pair(source, &destination, TransferRequest::default());
        let first = sources.iter().map(of).collect::<Vec<_>>();
        let kept = PAIRS.get(&destination).unwrap();
        assert_eq!(kept.0.lock().len(), MAX_SOURCES);
        let is_kept = |index: usize| Arc::ptr_eq(&first[index], &of(&sources[index]));
        assert!((1..=MAX_SOURCES).all(is_kept));
        assert!(!is_kept(0));
        assert!(!is_kept(1) && (2..=MAX_SOURCES).all(is_kept));
        assert_eq!(kept.0.lock().len(), MAX_SOURCES);
    }

    /// Two threads may create the pair of one source at once.
    #[test]
    fn a_pair_that_is_added_twice_displaces_no_other_source() {
        let (sources, destination) = ((0..MAX_SOURCES).map(|_| layout(1)).collect::<Vec<_>>(), layout(1));
        let of = |source: &Arc<Layout>| pair(source, &destination, TransferRequest::default());
        let all = sources.iter().map(of).collect::<Vec<_>>();
        LayoutPair::new_kept(&sources[9], &destination, &TransferRequest::default()).unwrap();
        let kept = PAIRS.get(&destination).unwrap();
        assert!(Arc::ptr_eq(&all[0], &kept.find(sources[0].log_id()).unwrap()));
        assert_eq!(kept.0.lock().len(), MAX_SOURCES);
    }

    #[test]
    fn the_record_of_a_method_is_looked_up_once() {
        let (source, destination) = (layout(2), layout(2));
        let pair = pair(&source, &destination, TransferRequest::default());
        let of = |method| pair.record(method, &source, &destination);
        assert!(Arc::ptr_eq(&of(TransferMethod::Uring), &of(TransferMethod::Uring)));
        assert!(!Arc::ptr_eq(&of(TransferMethod::Uring), &of(TransferMethod::Nixl)));
    }

    #[test]
    fn a_request_for_something_else_has_one_of_its_own() {
        let [source, destination] = [2; 2].map(layout);
        let whole = pair(&source, &destination, TransferRequest::default());
        let layers = Some(PairedRange { source: 0, destination: 1, count: 1 });
        let wanted = Wanted { layers, ..Wanted::default() };
        let by_layer = Preferences { by_layer: true, ..Preferences::default() };
        let forced = Preferences { method: Some(TransferMethod::Memcpy), ..Preferences::default() };
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
        let outline = |source: &Layout| Outline::new(source, &destination, Wanted::default(), false).unwrap();
        let start = Barrier::new(2 * sources.len());
        std::thread::scope(|scope| {
            for source in sources.iter().chain(&sources) {
                scope.spawn(|| {
                    let expected = format!("{:?}", outline(source));
                    start.wait();
                    for _ in 0..500 {
                        let of_source = pair(source, &destination, TransferRequest::default());
                        assert_eq!(format!("{:?}", of_source.outline), expected);
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
            assert!(LayoutPair::cached(&source, &destination, &TransferRequest::default()).is_err());
        }
    }

    #[test]
    fn the_destination_does_not_keep_the_source() {
        let (source, destination) = (layout(2), layout(2));
        pair(&source, &destination, TransferRequest::default());
        assert_eq!(Arc::strong_count(&source), 1);
    }
}
