// SPDX-License-Identifier: Apache-2.0
//! What the index has of a block that is encrypted, beside its slot. Only the cipher of its namespace can read it.

/// Bytes of the hash under which the index has the key of such a block.
pub const HASH: usize = 24;
pub const NONCE: usize = 24;
pub const TAG: usize = 16;
/// Bytes of the encrypted keys of the caller: that of the block, and that of its parent, each followed by zeros.
pub const KEYS: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The hash of the key.
    pub hash: [u8; HASH],
    /// Bytes of the two keys of the caller; 0 for no parent.
    pub sizes: [u8; 2],
    pub keys: [u8; KEYS],
    /// Random: never that of another block.
    pub nonce: [u8; NONCE],
    pub tag: [u8; TAG],
}
