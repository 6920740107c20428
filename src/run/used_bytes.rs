// SPDX-License-Identifier: Apache-2.0
//! The bytes that a run reads and writes, or a session of a peer.

use std::sync::Arc;

use crate::layout::Layout;
use crate::plan::overlap::{Bytes, Placed};
use crate::plan::{LinearPlan, Plan};
use crate::region::{Contexts, Places};

/// The sides of a run, in the order of layouts.
const READ: usize = 0;
const WRITTEN: usize = 1;

pub enum UsedBytes {
    /// Both sides of a plan.
    Blocks {
        plan: Plan,
        /// Where the memory of source and destination is. `None` for a side that is not used as planned.
        places: [Option<Arc<Places>>; 2],
        /// The contexts of the memory of both sides.
        contexts: Contexts,
    },
    /// Ranges of addresses of this process, each with its size.
    Ranges { ranges: Vec<(u64, u64)>, are_written: bool },
    /// Rows of a layout.
    Rows { plan: Arc<LinearPlan>, places: Arc<Places>, are_written: bool },
}

impl UsedBytes {
    /// What a plan reads and writes, without a side that is not used as planned.
    pub fn of_plan(
        plan: &Plan,
        sides: [&Arc<Layout>; 2],
        are_used: [bool; 2],
        contexts: &Contexts,
    ) -> Arc<Self> {
        let places = [READ, WRITTEN].map(|side| are_used[side].then(|| sides[side].places().clone()));
        Arc::new(Self::Blocks { plan: plan.clone(), places, contexts: contexts.clone() })
    }

    pub fn read(&self) -> Option<Placed<'_>> {
        self.side(READ)
    }

    pub fn written(&self) -> Option<Placed<'_>> {
        self.side(WRITTEN)
    }

    fn side(&self, side: usize) -> Option<Placed<'_>> {
        let is_used = |are_written: bool| are_written == (side == WRITTEN);
        match self {
            Self::Blocks { plan, places, .. } => {
                let places = places[side].as_deref()?;
                Some(Placed { bytes: Bytes::Side(plan, side), places })
            }
            Self::Ranges { ranges, are_written } => is_used(*are_written)
                .then(|| Placed { bytes: Bytes::Ranges(ranges), places: Places::of_addresses() }),
            Self::Rows { plan, places, are_written } => {
                is_used(*are_written).then(|| Placed { bytes: Bytes::Rows(plan), places })
            }
        }
    }

    /// The same without what is written; `None` if nothing is read.
    pub(super) fn without_written(&self) -> Option<Self> {
        match self {
            Self::Blocks { plan, places: [Some(read), _], contexts } => Some(Self::Blocks {
                plan: plan.clone(),
                places: [Some(read.clone()), None],
                contexts: contexts.clone(),
            }),
            _ => None,
        }
    }

    /// Whether a context was reset. Nothing moves its memory any more, and other memory may be at its addresses.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Blocks { contexts, .. } if contexts.ensure_alive().is_err())
    }
}
