// SPDX-License-Identifier: Apache-2.0
//! Keys of blocks, and how they are hashed.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};

use crate::base::{Result, ensure, random};

/// Bytes of the shortest and of the longest key.
const MIN: usize = 16;
pub const MAX: usize = 64;

/// 16 to 64 bytes of the caller, usually a hash of the tokens, in a namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Followed by zeros.
    bytes: [u8; MAX],
    /// 0 for the one without a name.
    namespace: u32,
    size: u8,
}

impl Key {
    pub fn new(bytes: &[u8]) -> Result<Self> {
        Self::ensure_size(bytes.len())?;
        Ok(Self::padded(bytes))
    }

    fn ensure_size(size: usize) -> Result<()> {
        ensure!(
            (MIN..=MAX).contains(&size),
            InvalidArgument,
            "a key has {size} bytes, it must have {MIN} to {MAX}; use a hash of what is shorter or longer"
        );
        Ok(())
    }

    /// From bytes whose number was checked.
    pub(super) fn padded(bytes: &[u8]) -> Self {
        let mut padded = [0; MAX];
        padded[..bytes.len()].copy_from_slice(bytes);
        Self { bytes: padded, namespace: 0, size: bytes.len() as u8 }
    }

    pub fn in_namespace(self, namespace: u32) -> Self {
        Self { namespace, ..self }
    }

    pub fn namespace(&self) -> u32 {
        self.namespace
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.size.into()]
    }
}

/// Keys of one size, one after the other.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    bytes: &'a [u8],
    size: usize,
}

impl<'a> Keys<'a> {
    /// Fails if the keys are too short or too long.
    pub fn new(bytes: &'a [u8], size: usize) -> Result<Self> {
        Key::ensure_size(size)?;
        Ok(Self { bytes, size })
    }

    pub fn count(&self) -> usize {
        self.bytes.len() / self.size
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = Key> + use<'a> {
        self.bytes.chunks_exact(self.size).map(Key::padded)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().iter().try_for_each(|byte| write!(to, "{byte:02x}"))
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.bytes[..usize::from(self.size).next_multiple_of(8)]);
        if self.namespace > 0 {
            state.write(&u64::from(self.namespace).to_le_bytes());
        }
    }
}

/// Hashes keys with a random seed, so that no peer can choose keys that collide. The standard library's needs twice as long.
#[derive(Clone)]
pub struct KeyHashing([u64; 2]);

impl KeyHashing {
    pub fn new() -> Result<Self> {
        let seed = random::<16>()?;
        let (low, high) = seed.split_at(8);
        Ok(Self([low, high].map(|half| word(half) | 1)))
    }
}

impl BuildHasher for KeyHashing {
    type Hasher = KeyHasher;

    fn build_hasher(&self) -> KeyHasher {
        KeyHasher { state: self.0[0], factor: self.0[1] }
    }
}

pub struct KeyHasher {
    state: u64,
    factor: u64,
}

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for next in bytes.chunks_exact(8) {
            let product = u128::from(self.state ^ word(next)) * u128::from(self.factor);
            // The sum with the state keeps what a product with zero would lose.
            self.state = ((product >> 64) as u64 ^ product as u64).wrapping_add(self.state.rotate_left(23));
        }
    }

    fn finish(&self) -> u64 {
        self.state
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::base::Status;

    #[test]
    fn keys_have_16_to_64_bytes_and_differ_by_their_size() {
        for size in [0, 15, 65] {
            assert_eq!(Key::new(&vec![1; size]).unwrap_err().status(), Status::InvalidArgument);
        }
        assert_ne!(Key::new(&[0; 16]).unwrap(), Key::new(&[0; 17]).unwrap());
        assert_eq!(Key::new(&[7; 64]).unwrap().bytes(), [7; 64]);
        assert_ne!(Key::new(&[7; 64]).unwrap(), Key::new(&[7; 64]).unwrap().in_namespace(1));
    }

    #[test]
    fn keys_that_differ_in_one_bit_have_other_hashes() {
        let hashing = KeyHashing::new().unwrap();
        let mut hashes = HashSet::new();
        for bit in 0..512 {
            let mut bytes = [0; MAX];
            bytes[bit / 8] = 1 << (bit % 8);
            hashes.insert(hashing.hash_one(Key::new(&bytes).unwrap()) >> 32);
        }
        assert!(hashes.len() > 510, "{} of 512 differ in their high half", hashes.len());
    }
}
