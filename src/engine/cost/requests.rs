// SPDX-License-Identifier: Apache-2.0
//! What requests to a peer cost: a time for each descriptor, and a time for each byte. Both are measured by the runs of this
//! process, and assumed before the first. Also the rate at which rows are copied between an arena and local memory.

use std::sync::Arc;
use std::time::Instant;

use once_cell::sync::OnceCell;

use super::history::MAX_ENTRIES;
use crate::base::{Keyed, Mutex, PerProcess};
use crate::layout::cache::LayoutCache;
use crate::layout::{Layout, Memory};
use crate::nixl::MemoryType;
use crate::plan::Plan;
use crate::run::learned::{Learned, ORDER_OF_MAGNITUDE};

/// Requests that take so many times as long per byte as assumed between host memories are slow.
const SLOW: f64 = 4.0;
/// What a chunk costs besides its descriptors and bytes: creating, posting and releasing its request, and waking the thread
/// that copies it.
const SECONDS_PER_CHUNK: f64 = 30e-6;
/// What a session of a served transfer takes besides its bytes: until the owner has found the request.
const SECONDS_PER_SESSION: f64 = 300e-6;
/// What it takes for each run of blocks that its requests list: writing, sending, checking and placing it.
const SECONDS_PER_SPAN: f64 = 50e-9;
/// What it takes for each separate place in memory, beside its bytes: to gather there, and to scatter here. The costs of spans and
/// places were measured over shared memory with 100 to 70,000 runs of 64 to 65,536 bytes in 1 to 16 layers
/// (bench/notes/17-peer-reshape.md).
const SECONDS_PER_PLACE: f64 = 130e-9;
/// Shorter runs say more about latency.
const MIN_SECONDS: f64 = 1e-3;

/// Costs in seconds that are assumed before the first run.
#[derive(Clone, Copy, Debug)]
struct Assumed {
    per_descriptor: f64,
    per_byte: f64,
    /// Of a byte to or from an arena, as a fraction of `per_byte`. An arena of host memory stays in the caches.
    in_arena: f64,
    /// Of a byte that is copied between the arena and the layout here.
    per_copied_byte: f64,
    /// Of each separate place here that these bytes are in.
    per_copied_place: f64,
    /// Of a byte that the owner serves. Owner and requester work at the same time.
    per_served_byte: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    Hosts,
    /// GPU memory that UCX maps by CUDA IPC.
    Gpus,
    /// UCX moves the bytes through the host: VMM memory, or GPU memory on one side.
    ThroughHost,
}

impl Between {
    const COUNT: usize = Self::ThroughHost as usize + 1;

    /// Of two memories, each with its type and whether it is VMM memory.
    fn from_sides(sides: [(MemoryType, bool); 2]) -> Self {
        match sides.map(|(memory_type, is_vmm)| (memory_type == MemoryType::Vram, is_vmm)) {
            [(false, _), (false, _)] => Self::Hosts,
            [(true, false), (true, false)] => Self::Gpus,
            _ => Self::ThroughHost,
        }
    }

    /// Measured with UCX: shared memory on several hosts, GPU memory on H200 hosts with one GPU and with two.
    fn assumed(self) -> Assumed {
        let hosts = Assumed {
            per_descriptor: 2e-6,
            per_byte: 1.0 / 5e9,
            in_arena: 0.75,
            per_copied_byte: 1.0 / 6.5e9,
            per_copied_place: SECONDS_PER_PLACE,
            per_served_byte: 1.0 / 3.2e9,
        };
        match self {
            Self::Hosts => hosts,
            Self::Gpus => Assumed {
                per_descriptor: 8e-6,
                per_byte: 1.0 / 150e9,
                in_arena: 1.0,
                per_copied_byte: 1.0 / 500e9,
                // A kernel copies them. Not measured.
                per_copied_place: 0.0,
                per_served_byte: 1.0 / 13e9,
            },
            Self::ThroughHost => Assumed { per_byte: 1.0 / 0.4e9, in_arena: 1.0, ..hosts },
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    pub descriptors: u64,
    pub transferred: u64,
    /// Seconds with a request in flight.
    pub seconds: f64,
    /// Bytes that were copied between the arena and local memory.
    pub copied: u64,
    /// Separate places in local memory that they are in.
    pub places: u64,
    /// Seconds of these copies.
    pub copying: f64,
}

/// What a transfer through an arena takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    pub descriptors: u64,
    /// Bytes between the peer and the arena.
    pub transferred: u64,
    pub chunks: u64,
    /// Separate places in local memory.
    pub places: u64,
}

impl Estimate {
    /// The same for so many times the bytes.
    pub fn scaled(self, factor: f64) -> Self {
        let scale = |count: u64| (count as f64 * factor) as u64;
        Self {
            descriptors: scale(self.descriptors),
            transferred: scale(self.transferred),
            chunks: scale(self.chunks),
            places: scale(self.places),
        }
    }
}

/// What a served transfer moves, and asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedSize {
    pub bytes: u64,
    /// Requests to the owner, one after the other.
    pub sessions: u64,
    /// Runs of blocks, or of spans of tokens, that the requests list.
    pub spans: u64,
    pub places: u64,
}

/// Separate places in memory that a plan moves. Rows within a piece of a block follow each other closely, and do not count.
pub fn places_of(plan: &Plan) -> u64 {
    plan.pieces().min(plan.max_moves())
}

impl ServedSize {
    pub fn new(plan: &Plan, sessions: u64) -> Self {
        Self { bytes: plan.bytes(), sessions, spans: plan.spans(), places: places_of(plan) }
    }

    /// Seconds until the owner has found the requests.
    fn latency(&self) -> f64 {
        SECONDS_PER_SESSION * self.sessions as f64
    }

    /// Seconds that do not depend on the bytes.
    fn waiting(&self) -> f64 {
        self.latency() + SECONDS_PER_SPAN * self.spans as f64 + SECONDS_PER_PLACE * self.places as f64
    }
}

/// The rates that the methods to a peer depend on.
pub struct Rates {
    /// Of requests between the layouts.
    pub direct: Arc<RequestRates>,
    /// Of requests between the peer's layout and an arena of this process.
    pub staged: Arc<RequestRates>,
    /// Of requests to an arena of the owner, and of what it serves.
    pub served: Arc<RequestRates>,
    /// Requests between the layouts are slow, however few there are.
    pub is_slow: bool,
}

impl Rates {
    /// The rates of reads from or writes to the peer of a remote layout. `arena_for` returns the memory of an arena for requests to
    /// or from memory of the peer.
    pub fn new(
        local: &Layout,
        remote: &Layout,
        reads: bool,
        arena_for: impl Fn(MemoryType) -> MemoryType,
    ) -> Self {
        let PeerRates(known) = &*OF_PEERS.get_or_default(remote);
        let of = |sides| {
            let between = Between::from_sides(sides);
            let rates = &known[usize::from(reads)][between as usize];
            rates.get_or_init(|| RequestRates::for_layout(remote, reads, between)).clone()
        };
        let theirs = (remote.memory_type(), remote.is_elastic());
        // An arena is plain memory.
        let arena = |peers: MemoryType| (arena_for(peers), false);
        let slots = remote.served().map_or(remote.memory_type(), |served| served.memory().memory_type);
        let direct = of([(local.memory_type(), local.is_elastic()), theirs]);
        Self {
            is_slow: direct.are_slow(),
            staged: of([arena(remote.memory_type()), theirs]),
            served: of([arena(slots), (slots, false)]),
            direct,
        }
    }
}

static OF_PEERS: LayoutCache<PeerRates> = LayoutCache::new();

/// The rates that are kept for a remote layout: by direction, and by the memory that the bytes move between. Each is looked up by the
/// name of its peer once.
#[derive(Default)]
struct PeerRates([[OnceCell<Arc<RequestRates>>; Between::COUNT]; 2]);

/// The rates of requests to one peer in one direction.
#[derive(Debug)]
pub struct RequestRates(Mutex<Shown>);

/// What is assumed, and what runs have shown.
#[derive(Clone, Copy, Debug)]
struct Shown {
    assumed: Assumed,
    /// Factors of descriptors and of bytes.
    requests: Learned<2>,
    /// Of bytes that are copied between an arena and local memory.
    copies: Learned<1>,
    /// Of bytes that the owner serves.
    served: Learned<1>,
}

impl Shown {
    /// Assumed seconds of descriptors and of bytes.
    fn parts(&self, descriptors: u64, bytes: f64) -> [f64; 2] {
        [descriptors as f64 * self.assumed.per_descriptor, bytes * self.assumed.per_byte]
    }

    fn seconds(&self, descriptors: u64, bytes: u64) -> f64 {
        self.requests.seconds(self.parts(descriptors, bytes as f64), Instant::now())
    }

    /// Seconds of requests to or from an arena.
    fn seconds_in_arena(&self, descriptors: u64, bytes: u64) -> f64 {
        let parts = self.parts(descriptors, self.assumed.in_arena * bytes as f64);
        self.requests.seconds(parts, Instant::now())
    }

    fn seconds_to_copy(&self, bytes: u64, places: u64) -> f64 {
        let of_bytes = self.copies.seconds([bytes as f64 * self.assumed.per_copied_byte], Instant::now());
        of_bytes + self.assumed.per_copied_place * places as f64
    }
}

impl Default for RequestRates {
    fn default() -> Self {
        Self::assuming(Between::Hosts)
    }
}

impl RequestRates {
    fn for_layout(remote: &Layout, reads: bool, between: Between) -> Arc<Self> {
        /// By the name of the peer, the memories, and whether this process reads.
        static RATES: PerProcess<Keyed<(String, Between, bool), RequestRates>> = PerProcess::new();
        let peer = match remote.memory() {
            Memory::Remote(memory) => memory.peer.name().to_string(),
            Memory::Local(_) => String::new(),
        };
        let key = (peer, between, reads);
        RATES.get(Keyed::new).get_or(key, MAX_ENTRIES, || Self::assuming(between))
    }

    fn assuming(between: Between) -> Self {
        let [copies, served] = [Learned::new(&ORDER_OF_MAGNITUDE); 2];
        let requests = Learned::new(&ORDER_OF_MAGNITUDE);
        Self(Mutex::new(Shown { assumed: between.assumed(), requests, copies, served }))
    }

    pub fn add_served(&self, size: &ServedSize, seconds: f64) {
        let mut shown = self.0.lock();
        let (bytes, waiting) = (size.bytes as f64 * shown.assumed.per_served_byte, size.waiting());
        // Of short runs the time of the sessions and spans is the most. A run that takes much longer says something of its bytes even
        // so: the transport is slow.
        if bytes >= waiting || (bytes >= size.latency() && seconds >= 2.0 * (waiting + bytes)) {
            shown.served.add([bytes], (seconds - waiting).max(0.1 * seconds), 1.0, Instant::now());
        }
    }

    /// Seconds of a served transfer.
    pub fn served(&self, size: &ServedSize) -> f64 {
        let shown = *self.0.lock();
        let bytes = size.bytes as f64 * shown.assumed.per_served_byte;
        size.waiting() + shown.served.seconds([bytes], Instant::now())
    }

    pub fn add(&self, sample: &Sample) {
        let (mut shown, now) = (self.0.lock(), Instant::now());
        let mut bytes = sample.transferred as f64;
        if sample.copied > 0 {
            bytes *= shown.assumed.in_arena;
            let of_places = shown.assumed.per_copied_place * sample.places as f64;
            let assumed = sample.copied as f64 * shown.assumed.per_copied_byte;
            // Of short places their number takes the most.
            let of_bytes = (sample.copying - of_places).max(0.1 * sample.copying);
            shown.copies.add([assumed], of_bytes, 1.0, now);
        }
        let parts = shown.parts(sample.descriptors, bytes);
        if parts[0] + parts[1] >= MIN_SECONDS {
            shown.requests.add(parts, sample.seconds, 1.0, now);
        }
    }

    /// Whether bytes take several times as long as those of host memory: UCX has no fast transport between the layouts. Then the other
    /// methods are worth an estimate, however few and long the spans are.
    fn are_slow(&self) -> bool {
        let shown = *self.0.lock();
        let bytes = 1 << 30;
        shown.seconds(0, bytes) > SLOW * Between::Hosts.assumed().per_byte * bytes as f64
    }

    /// The bytes to or from an arena that take as long as a descriptor.
    pub fn bytes_per_descriptor(&self) -> u64 {
        let shown = *self.0.lock();
        (shown.seconds_in_arena(1, 0) / shown.seconds_in_arena(0, 1)) as u64
    }

    /// Seconds of requests for so many ranges to or from an arena, without copies.
    pub fn in_arena(&self, descriptors: u64, bytes: u64) -> f64 {
        self.0.lock().seconds_in_arena(descriptors, bytes)
    }

    /// Seconds of a transfer with a descriptor for each span.
    pub fn direct(&self, descriptors: u64, bytes: u64) -> f64 {
        self.0.lock().seconds(descriptors, bytes)
    }

    /// Seconds of a transfer of `bytes` through an arena: the slower of requests and copies, and the one chunk for which the
    /// other waits. And those that the copy of one chunk takes.
    pub fn staged(&self, estimate: &Estimate, bytes: u64) -> [f64; 2] {
        let (shown, chunks) = (*self.0.lock(), estimate.chunks.max(1) as f64);
        let requests = shown.seconds_in_arena(estimate.descriptors, estimate.transferred);
        let copies = shown.seconds_to_copy(bytes, estimate.places);
        let alone = requests.min(copies) / chunks;
        [requests.max(copies) + alone + SECONDS_PER_CHUNK * estimate.chunks as f64, copies / chunks]
    }
}

#[cfg(test)]
mod tests;
