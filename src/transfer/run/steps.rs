// SPDX-License-Identifier: Apache-2.0
//! Parts of a transfer that begin one after the other, for engines that keep no order themselves: each is a layer.

use std::sync::Arc;

use super::{Run, Start, Steps};
use crate::error::{Error, Result, Status};

/// A prepared part.
pub trait Part: Send + Sync + 'static {
    /// Prepares its start.
    fn prepare_start(&self, run: Run) -> Start;
}

/// All parts of a transfer: one, or one a layer.
pub struct InTurn<P>(Arc<Parts<P>>);

struct Parts<P>(Vec<P>);

impl<P: Part> InTurn<P> {
    /// At least one part.
    pub fn new(parts: Vec<P>) -> Self {
        Self(Arc::new(Parts(parts)))
    }

    /// Starts the first; the others follow.
    pub fn start(&self, run: Run) -> Result<()> {
        match &self.0.0[..] {
            [only] => only.prepare_start(run)(),
            _ => run.in_steps(self.0.clone()),
        }
    }

    /// All of them.
    pub fn parts(&self) -> &[P] {
        &self.0.0
    }

    /// The first of them.
    pub fn first(&self) -> &P {
        &self.0.0[0]
    }

    /// The sum of what each has.
    pub fn sum(&self, of: impl Fn(&P) -> u64) -> u64 {
        self.0.0.iter().map(of).sum()
    }
}

impl<P: Part> Steps for Parts<P> {
    fn count(&self) -> u64 {
        self.0.len() as u64
    }

    fn prepare(&self, part: u64, run: Run) -> Result<Start> {
        let missing = || Error::new(Status::Panic, "a transfer has no such part");
        Ok(self.0.get(part as usize).ok_or_else(missing)?.prepare_start(run))
    }
}
