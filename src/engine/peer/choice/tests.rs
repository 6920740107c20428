// SPDX-License-Identifier: Apache-2.0
//! Simulates transports, request by request and chunk by chunk. Costs are learned from their runs, and the chosen method must take
//! about as long as the best.

use super::*;
use crate::engine::cost::requests::{Estimate, RequestRates, Sample};
use crate::layout::{AllocationConfig, BlockDim, Dimensions, LayoutKind};
use crate::plan::{BlockPair, Wanted};
use crate::region::SystemConfig;

const LAYERS: u64 = 4;
const OUTERS: u64 = 2;
const TOTAL: u64 = 32 << 20;
/// Of so many blocks one is moved, so that none is beside another one.
const SPACING: u64 = 8;
/// Seconds of a chunk besides its bytes: its request, and the wake-up of the thread that copies it.
const PER_CHUNK: f64 = 20e-6;

/// What the steps of a transfer take, in seconds.
#[derive(Clone, Copy, Debug)]
struct Transport {
    per_descriptor: f64,
    per_byte: f64,
    per_copied_byte: f64,
}

const SHARED_MEMORY: Transport =
    Transport { per_descriptor: 2e-6, per_byte: 1.0 / 5e9, per_copied_byte: 1.0 / 7e9 };
const TCP: Transport = Transport { per_descriptor: 20e-6, per_byte: 1.0 / 1.2e9, per_copied_byte: 1.0 / 5e9 };
const CHEAP_DESCRIPTORS: Transport =
    Transport { per_descriptor: 0.1e-6, per_byte: 1.0 / 5e9, per_copied_byte: 1.0 / 3e9 };
const SLOW_COPIES: Transport =
    Transport { per_descriptor: 1e-6, per_byte: 1.0 / 10e9, per_copied_byte: 1.0 / 1.5e9 };

impl Transport {
    fn direct(&self, spans: u64, bytes: u64) -> f64 {
        spans as f64 * self.per_descriptor + bytes as f64 * self.per_byte
    }

    /// One request after the other, and one copy after the other: a copy begins after its request.
    fn staged(&self, estimate: &Estimate, bytes: u64) -> f64 {
        let chunks = estimate.chunks.max(1);
        let request = self.direct(estimate.descriptors, estimate.transferred) / chunks as f64;
        let copy = bytes as f64 * self.per_copied_byte / chunks as f64;
        let (mut requested, mut copied) = (0.0, 0.0f64);
        for _ in 0..chunks {
            requested += request + PER_CHUNK;
            copied = copied.max(requested) + copy;
        }
        copied
    }
}

/// The blocks that are moved, with pieces of so many bytes.
fn blocks(piece: u64) -> u64 {
    TOTAL / (piece * LAYERS * OUTERS)
}

fn layout(kind: LayoutKind, piece: u64) -> Arc<Layout> {
    let dimensions = Dimensions {
        num_blocks: SPACING * blocks(piece),
        num_layers: LAYERS,
        outer_dim: OUTERS,
        inner_dim: piece,
        ..Dimensions::ONE
    };
    // No page is touched.
    let memory = AllocationConfig::System(SystemConfig::default());
    Layout::allocate(dimensions, kind, memory).unwrap()
}

fn fresh_rates() -> Rates {
    let rates = Arc::<RequestRates>::default;
    Rates { direct: rates(), staged: rates(), served: rates(), is_slow: false }
}

/// A read of blocks that are scattered on the peer.
struct Read {
    local: Arc<Layout>,
    remote: Arc<Layout>,
    plan: Plan,
    rates: Rates,
}

impl Read {
    fn new([remote, local]: [LayoutKind; 2], piece: u64) -> Self {
        let [remote, local] = [remote, local].map(|kind| layout(kind, piece));
        let count = blocks(piece) as u32;
        let pair = |index: u32| BlockPair {
            source: index * 5 % count * SPACING as u32,
            destination: index * SPACING as u32,
        };
        let pairs: Vec<_> = (0..count).map(pair).collect();
        let plan = Plan::once(&remote, &local, &pairs, Wanted::default()).unwrap();
        Self { local, remote, plan, rates: fresh_rates() }
    }

    fn choice(&self, method: Option<TransferMethod>) -> Choice {
        let preferences = Preferences { method, ..Preferences::default() };
        let (local, remote, plan, rates) = (&self.local, &self.remote, &self.plan, &self.rates);
        Choosing { local, remote, reads: true, plan, preferences: &preferences, rates }.choose().unwrap()
    }

    fn through_arena(&self) -> Estimate {
        self.choice(Some(TransferMethod::NixlStaged)).division.unwrap().estimate(true).unwrap()
    }

    /// Runs each method, which teaches the rates, and returns their seconds: direct and staged.
    fn run(&self, transport: &Transport) -> [f64; 2] {
        let (spans, bytes) = (self.plan.moves().count() as u64, self.plan.bytes());
        let estimate = self.through_arena();
        let direct = transport.direct(spans, bytes);
        let requests = transport.direct(estimate.descriptors, estimate.transferred);
        self.rates.direct.add(&Sample {
            descriptors: spans,
            transferred: bytes,
            seconds: direct,
            ..Sample::default()
        });
        self.rates.staged.add(&Sample {
            descriptors: estimate.descriptors,
            transferred: estimate.transferred,
            seconds: requests,
            copied: bytes,
            copying: bytes as f64 * transport.per_copied_byte,
            places: 0,
        });
        [direct, transport.staged(&estimate, bytes)]
    }
}

const CONTIGUOUS: LayoutKind = LayoutKind::FullyContiguous;
const SEPARATE: LayoutKind = LayoutKind::LayerSeparate(BlockDim::Second);

#[test]
fn pieces_that_the_peer_has_together_are_read_through_an_arena() {
    for piece in [4 << 10, 16 << 10, 32 << 10] {
        let read = Read::new([CONTIGUOUS, SEPARATE], piece);
        assert_eq!(read.choice(None).method, TransferMethod::NixlStaged, "pieces of {piece} bytes");
    }
}

#[test]
fn pieces_that_are_apart_on_both_sides_or_long_are_not_compared() {
    for (kinds, piece) in [
        ([CONTIGUOUS; 2], 4 << 10),
        ([SEPARATE; 2], 4 << 10),
        ([SEPARATE, CONTIGUOUS], 16 << 10),
        ([CONTIGUOUS, SEPARATE], 1 << 20),
    ] {
        let choice = Read::new(kinds, piece).choice(None);
        assert_eq!(choice.method, TransferMethod::Nixl, "{kinds:?}, pieces of {piece} bytes");
        let reason = choice.candidates[1].reason.as_deref().unwrap();
        assert!(reason.contains("few, or long enough"), "{reason}");
    }
}

#[test]
fn the_chosen_method_is_about_as_fast_as_the_best_one_once_both_have_run() {
    for transport in [SHARED_MEMORY, TCP, CHEAP_DESCRIPTORS, SLOW_COPIES] {
        for kinds in [[CONTIGUOUS, SEPARATE], [SEPARATE, CONTIGUOUS], [CONTIGUOUS; 2]] {
            for piece in [512, 2 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10] {
                let read = Read::new(kinds, piece);
                let seconds = [(); 10].map(|()| read.run(&transport))[9];
                let method = read.choice(None).method;
                let taken = seconds[usize::from(method == TransferMethod::NixlStaged)];
                let best = seconds[0].min(seconds[1]);
                assert!(
                    taken <= 1.2 * best,
                    "{method} takes {taken}, the best {best}: {transport:?}, {kinds:?}, pieces of {piece} bytes"
                );
            }
        }
    }
}
