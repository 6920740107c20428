// SPDX-License-Identifier: Apache-2.0
//! Parts of a transfer that run one after the other, one per layer, for engines without an order of their
//! own.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::{Run, Start, Steps};
use crate::error::{Error, Result, Status};

/// A prepared part.
pub trait RunPart: Send + Sync + 'static {
    /// Starts it, if it is the only one.
    fn start(&self, run: Run) -> Result<()> {
        self.prepare_start(run)()
    }

    /// Prepares its start.
    fn prepare_start(&self, run: Run) -> Start;
}

/// All parts of a transfer: one, or one per layer.
pub struct PartSequence<P>(Arc<Parts<P>>);

struct Parts<P>(Vec<P>);

impl<P: RunPart> PartSequence<P> {
    /// At least one part.
    pub fn new(parts: Vec<P>) -> Self {
        Self(Arc::new(Parts(parts)))
    }

    /// Starts the first part; each other one starts when the part before it has ended.
    pub fn start(&self, run: Run) -> Result<()> {
        match &self.0.0[..] {
            [only] => only.start(run),
            _ => run.in_steps(self.0.clone()),
        }
    }

    /// All parts.
    pub fn parts(&self) -> &[P] {
        &self.0.0
    }

    /// The first part.
    pub fn first(&self) -> &P {
        &self.0.0[0]
    }

    /// The sum of a property of all parts.
    pub fn sum(&self, of: impl Fn(&P) -> u64) -> u64 {
        self.0.0.iter().map(of).sum()
    }
}

impl<P: RunPart> Steps for Parts<P> {
    fn count(&self) -> u64 {
        self.0.len() as u64
    }

    fn prepare(&self, part: u64, run: Run) -> Result<Start> {
        let missing = || Error::new(Status::Panic, "a transfer has no such part");
        Ok(self.0.get(part as usize).ok_or_else(missing)?.prepare_start(run))
    }
}
