// SPDX-License-Identifier: Apache-2.0
//! What the index passes to others: blocks, and their slots.

use std::sync::Arc;

use super::key::Key;
use super::seal::Seal;
use crate::base::{Result, ensure};

/// A block to store.
#[derive(Clone, Copy, Debug)]
pub struct NewBlock {
    pub key: Key,
    pub parent: Option<Key>,
}

impl NewBlock {
    /// The namespace of the blocks of one put.
    pub fn namespace_of(blocks: &[Self]) -> u32 {
        blocks.first().map_or(0, |block| block.key.namespace())
    }

    pub fn ensure_valid(&self) -> Result<()> {
        ensure!(
            self.parent != Some(self.key),
            InvalidArgument,
            "the key {:?} is its own parent: two keys in sequence are equal; give each block a key of its own, or set \
             KVMEM_STORE_UNRELATED",
            self.key
        );
        Ok(())
    }
}

/// A slot that only the holder of this writes, until it is committed or abandoned.
#[must_use]
#[derive(Debug)]
pub struct Reserved(pub(super) u32);

impl Reserved {
    pub fn slot(&self) -> u32 {
        self.0
    }
}

/// A stored block, which is not evicted or removed until it is released.
#[must_use]
#[derive(Debug)]
pub struct Located {
    pub(super) slot: u32,
    pub(super) checksum: u32,
    /// The clock of the index when it was stored.
    pub(super) since: u64,
    pub(super) seal: Option<Arc<Seal>>,
}

/// A slot that was written.
#[derive(Debug)]
pub struct Written {
    pub slot: Reserved,
    /// The CRC32C of its bytes.
    pub checksum: u32,
    /// If its bytes are encrypted.
    pub seal: Option<Arc<Seal>>,
}

impl Located {
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// The CRC32C that its bytes must have.
    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    /// If its bytes are encrypted.
    pub fn seal(&self) -> Option<&Seal> {
        self.seal.as_deref()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub slots: u64,
    pub stored: u64,
    pub retired: u64,
    pub hits: u64,
    pub misses: u64,
    pub evicted: u64,
    /// Blocks whose bytes could not be read, or were not those that were stored.
    pub damaged: u64,
}

/// A stored block, for a list.
#[derive(Clone, Debug)]
pub struct Entry {
    pub slot: u32,
    pub block: NewBlock,
    pub checksum: u32,
    pub seal: Option<Arc<Seal>>,
    pub is_pinned: bool,
}
