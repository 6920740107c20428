// SPDX-License-Identifier: Apache-2.0
//! What has happened to the blocks of all stores of this process, for statistics. Each store has counts of its own, too.

use crate::base::Gauge;

/// Keys that gets have found.
pub static HITS: Gauge = Gauge::new();
/// Keys of gets that were not found: the first that is not stored, and all after it.
pub static MISSES: Gauge = Gauge::new();
/// Blocks that stores have evicted.
pub static EVICTED: Gauge = Gauge::new();
/// Blocks that could not be read, or whose bytes were not those that were stored.
pub static DAMAGED: Gauge = Gauge::new();
