// SPDX-License-Identifier: Apache-2.0
//! The runs of a prepared copy on their way to the kernel: they wait in the descriptor ring where that has room to
//! spare for copies that do not run, and are written there for each run of the copy where it has not.

use std::sync::Arc;

use super::engine::Engine;
use super::need::Need;
use super::ring::Slot;
use crate::cuda::kernel::Run;
use crate::error::Result;

/// Runs of blocks.
pub enum PreparedRuns {
    /// Where kernels read them.
    InRing(Arc<Slot>),
    /// Not yet.
    Here(Vec<Run>),
}

impl PreparedRuns {
    /// Puts them into the ring, where it has room to spare.
    pub fn keep(&mut self, engine: &Engine) -> Result<()> {
        if let Self::Here(runs) = self
            && let Some(slot) = engine.keep(runs)?
        {
            *self = Self::InRing(Arc::new(slot));
        }
        Ok(())
    }

    /// Leaves them to another copy that reads the same and is not in the ring yet; whether that is so.
    pub fn leave_to(&mut self, other: &Self) -> bool {
        let is_same = matches!((&*self, other), (Self::Here(mine), Self::Here(others)) if mine == others);
        if is_same {
            *self = Self::Here(Vec::new());
        }
        is_same
    }

    /// What they need to be read.
    pub fn need(&self) -> Option<Need> {
        match self {
            Self::InRing(_) => None,
            Self::Here(_) => Some(Need::Slot),
        }
    }

    /// Where a kernel reads them; `None` while the ring is full.
    pub fn slot(&self, engine: &Engine) -> Option<Arc<Slot>> {
        match self {
            Self::InRing(slot) => Some(slot.clone()),
            Self::Here(runs) => engine.put(runs).map(Arc::new),
        }
    }

    /// The same where nobody can wait.
    pub fn slot_now(&self, engine: &Engine) -> Result<Arc<Slot>> {
        match self {
            Self::InRing(slot) => Ok(slot.clone()),
            Self::Here(runs) => engine.put_now(runs).map(Arc::new),
        }
    }
}
