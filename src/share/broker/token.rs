// SPDX-License-Identifier: Apache-2.0
//! Tokens: secrets that authorise a client to fetch a share.

use std::fmt;

use crate::base::{Result, random};

pub const TOKEN_BYTES: usize = 32;

/// 256 random bits.
#[derive(Clone, Copy)]
pub struct Token(pub [u8; TOKEN_BYTES]);

impl Token {
    pub fn generate() -> Result<Self> {
        random().map(Self).map_err(|error| error.context("generate a token"))
    }

    /// Whether both are equal. The duration does not depend on where they differ.
    pub fn is(&self, other: &Self) -> bool {
        let difference = self.0.iter().zip(&other.0).fold(0, |all, (own, other)| all | (own ^ other));
        std::hint::black_box(difference) == 0
    }
}

impl fmt::Debug for Token {
    /// A token is a secret, and is never printed.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_equal_themselves() {
        let (first, second) = (Token::generate().unwrap(), Token::generate().unwrap());
        assert!(first.is(&first) && !first.is(&second) && !first.is(&Token([0; TOKEN_BYTES])));
        for bit in 0..TOKEN_BYTES * 8 {
            let mut other = first;
            other.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!first.is(&other), "bit {bit}");
        }
        assert_eq!(format!("{first:?}"), "Token(..)");
    }
}
