// SPDX-License-Identifier: Apache-2.0
//! Which reads from a peer go through an arena, before any run has shown what requests cost. `cost::requests` replays measurements.

use super::*;
use crate::engine::cost::requests::RequestRates;
use crate::layout::{Arrangement, Dimensions};
use crate::plan::{BlockPair, Wanted};

const LAYERS: u64 = 4;
const OUTERS: u64 = 2;
const TOTAL: u64 = 32 << 20;
/// Of so many blocks one is moved, so that none is beside another one.
const SPACING: u64 = 8;

const CONTIGUOUS: Arrangement = Arrangement::FULLY_CONTIGUOUS;
const SEPARATE: Arrangement = Arrangement::LAYER_SEPARATE_OUTER_FIRST;

/// The choice for a read of blocks that are scattered on the peer, with pieces of so many bytes.
fn choice([remote, local]: [Arrangement; 2], piece: u64) -> Choice {
    let count = TOTAL / (piece * LAYERS * OUTERS);
    let layout = |kind| {
        let dimensions = Dimensions {
            num_blocks: SPACING * count,
            num_layers: LAYERS,
            outer_dim: OUTERS,
            inner_dim: piece,
            ..Dimensions::ONE
        };
        // No page is touched.
        Layout::in_host(dimensions, kind)
    };
    let (local, remote) = (layout(local), layout(remote));
    let pair = |index: u64| BlockPair {
        source: (index * 5 % count * SPACING) as u32,
        destination: (index * SPACING) as u32,
    };
    let pairs: Vec<_> = (0..count).map(pair).collect();
    let plan = Plan::once(&remote, &local, &pairs, Wanted::default()).unwrap();
    let fresh = Arc::<RequestRates>::default;
    let rates = Rates { direct: fresh(), staged: fresh(), served: fresh(), is_slow: false };
    let (local, remote, plan, rates) = (&local, &remote, &plan, &rates);
    Choosing {
        local,
        remote,
        reads: true,
        plan,
        preferences: &Preferences::default(),
        verifies: false,
        rates,
    }
    .choose()
    .unwrap()
}

#[test]
fn pieces_that_the_peer_has_together_are_read_through_an_arena() {
    for piece in [4 << 10, 16 << 10, 32 << 10] {
        let method = choice([CONTIGUOUS, SEPARATE], piece).method;
        assert_eq!(method, TransferMethod::NixlStaged, "pieces of {piece} bytes");
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
        let choice = choice(kinds, piece);
        assert_eq!(choice.method, TransferMethod::Nixl, "{kinds:?}, pieces of {piece} bytes");
        let reason = choice.candidates[1].reason.as_deref().unwrap();
        assert!(reason.contains("few, or long enough"), "{reason}");
    }
}
