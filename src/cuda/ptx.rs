// SPDX-License-Identifier: Apache-2.0
//! The PTX of the kernels, which is part of the library in the packed form of scripts/kernels.py: a third of its size.

use std::ffi::CString;

use crate::base::{Result, error};

/// Bytes from this one on stand for pairs.
const FIRST_PAIR: u8 = 128;

/// The PTX of a file.
#[derive(Clone, Copy)]
pub struct Ptx(&'static [u8]);

impl Ptx {
    pub const fn packed(bytes: &'static [u8]) -> Self {
        Self(bytes)
    }

    pub fn unpack(self) -> Result<CString> {
        let text =
            self.text().ok_or_else(|| error!(Unsupported, "the kernels in this library are damaged"))?;
        CString::new(text).map_err(|_| error!(Unsupported, "the kernels in this library hold a NUL"))
    }

    /// `None` if it is not a packed text. A pair contains only bytes that stand for earlier pairs, so the expansion ends.
    fn text(self) -> Option<Vec<u8>> {
        let (&num_pairs, rest) = self.0.split_first()?;
        let (pairs, packed) = rest.split_at_checked(2 * usize::from(num_pairs))?;
        let mut text = Vec::with_capacity(4 * packed.len());
        let mut expanded: Vec<u8> = Vec::new();
        for &byte in packed {
            expanded.push(byte);
            while let Some(byte) = expanded.pop() {
                let Some(pair) = byte.checked_sub(FIRST_PAIR) else {
                    text.push(byte);
                    continue;
                };
                let at = 2 * usize::from(pair);
                let (first, second) = (*pairs.get(at)?, *pairs.get(at + 1)?);
                if first.max(second) >= byte {
                    return None;
                }
                expanded.extend([second, first]);
            }
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_pairs_are_expanded_in_order() {
        let packed = Ptx::packed(&[2, b'a', b'b', 128, b'c', 129, b'-', 128, 129]);
        assert_eq!(packed.unpack().unwrap().to_bytes(), b"abc-ababc");
    }

    #[test]
    fn damaged_files_fail() {
        let endless = &[1, 128, b'a', 128];
        let damaged: [&[u8]; 4] = [&[], &[1, b'a'], &[1, b'a', b'b', 129], endless];
        for damaged in damaged {
            assert!(Ptx::packed(damaged).unpack().is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn the_kernels_are_ptx() {
        let files: [&[u8]; 2] =
            [include_bytes!("kernels/copy.packed"), include_bytes!("kernels/transpose.packed")];
        for file in files {
            let text = Ptx::packed(file).unpack().unwrap().into_string().unwrap();
            assert!(text.contains("\n.version "), "{}", &text[..200]);
            assert!(text.contains(".visible .entry kvmem_"));
        }
    }
}
