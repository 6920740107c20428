// SPDX-License-Identifier: Apache-2.0
//! Remainders of bytes divided by the polynomial of CRC32C, and how those of parts make that of the whole. Pure. The
//! highest power is in the lowest bit, as in the checksum itself.

#![forbid(unsafe_code)]

/// CRC32C's polynomial, without its highest power.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// x to the power of 0.
const ONE: u32 = 1 << 31;

/// What a checksum begins with before its first byte, and what is added behind the last.
pub const ENDS: u32 = u32::MAX;

fn times_x(a: u32) -> u32 {
    (a >> 1) ^ if a & 1 == 1 { POLYNOMIAL } else { 0 }
}

/// The product of two remainders.
pub fn product(a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    for power in 0..32 {
        // All ones where the power is there: a branch would be guessed wrong every second time.
        sum ^= b & ((a << power) as i32 >> 31) as u32;
        b = times_x(b);
    }
    sum
}

/// x to the power of 8, 16, 32 and so on: what a byte, two, four behind some bytes multiply their remainder by.
fn powers<const COUNT: usize>() -> [u32; COUNT] {
    let mut power = (0..8).fold(ONE, |power, _| times_x(power));
    std::array::from_fn(|_| {
        let this = power;
        power = product(power, power);
        this
    })
}

/// What so many bytes behind some others multiply their remainder by.
pub fn power(bytes: u64) -> u32 {
    let powers: [u32; 64] = powers();
    let set = powers.iter().enumerate().filter(|(bit, _)| bytes >> bit & 1 == 1);
    set.fold(ONE, |all, (_, power)| product(all, *power))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bit by bit, from a remainder on.
    fn divide(remainder: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(remainder, |remainder, byte| {
            (0..8).fold(remainder ^ u32::from(*byte), |remainder, _| times_x(remainder))
        })
    }

    proptest! {
        #[test]
        fn remainders_of_parts_make_the_checksum(
            bytes in prop::collection::vec(any::<u8>(), 0..600), cuts in prop::collection::vec(0usize..600, 0..6),
        ) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let whole = cuts.windows(2).fold(ENDS, |state, cut| {
                let part = &bytes[cut[0]..cut[1]];
                product(state, power(part.len() as u64)) ^ divide(0, part)
            });
            prop_assert_eq!(whole ^ ENDS, crc32c::crc32c(&bytes));
        }

        #[test]
        fn powers_add_up(a in any::<u32>(), b in any::<u32>()) {
            prop_assert_eq!(power(u64::from(a) + u64::from(b)), product(power(a.into()), power(b.into())));
        }
    }

    #[test]
    fn the_first_powers_are_those_of_few_bytes() {
        let table: [u32; 4] = powers();
        assert_eq!(table, [1, 2, 4, 8].map(power));
        assert_eq!(power(0), ONE);
    }
}
