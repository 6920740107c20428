// SPDX-License-Identifier: Apache-2.0
//! GPUDirect Storage: which backend of an agent moves bytes between files and GPUs, and where that was seen to work.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::sync::Mutex;

/// Between what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GdsEndpoints {
    /// The GPU.
    pub ordinal: i32,
    /// The major and minor number of the file system's device.
    pub file_system: (u32, u32),
    /// The file is open for direct I/O.
    pub is_direct: bool,
}

/// Where an agent was seen to move bytes, or why it does not.
#[derive(Default)]
pub struct GdsTrials(Mutex<HashMap<GdsEndpoints, Result<(), String>>>);

impl GdsTrials {
    /// Returns the result of `trial`, which is called once per pair. Other threads wait for it.
    pub fn once(&self, ends: GdsEndpoints, trial: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        let mut known = self.0.lock();
        match known.entry(ends) {
            Entry::Occupied(seen) => seen.get().clone(),
            Entry::Vacant(unseen) => unseen.insert(trial()).clone(),
        }
    }
}
