// SPDX-License-Identifier: Apache-2.0
//! What runs on a device wait for: there are only so many of each, and each is waited for in the order of submission.
//! Who needs none of what is waited for waits for nobody.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::Result;

/// Something that a run needs and others may be using.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// A stream.
    Stream,
    /// Room for its runs of blocks in the descriptor ring.
    Slot,
    /// Staging memory for blocks on their way to the host.
    StagingToHost,
    /// Staging memory for blocks on their way from the host.
    StagingToDevice,
}

/// What was taken, or what is in use.
pub type Taking<T> = Result<std::result::Result<T, Need>>;

/// How many runs wait for each.
#[derive(Default)]
pub struct Waiting([AtomicUsize; 4]);

impl Waiting {
    /// One run more waits.
    pub fn add(&self, need: Need) {
        self.0[need as usize].fetch_add(1, Ordering::AcqRel);
    }

    /// One run less waits.
    pub fn remove(&self, need: Need) {
        self.0[need as usize].fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether any does.
    pub fn has(&self, need: Need) -> bool {
        self.0[need as usize].load(Ordering::Acquire) > 0
    }
}
