// SPDX-License-Identifier: Apache-2.0
//! Remainders of the polynomial division of CRC32C, and how to combine the remainders of parts. Pure.
//! The highest power is in the lowest bit, as in the checksum.

/// CRC32C's polynomial, without its highest power.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// x to the power of 0.
const ONE: u32 = 1 << 31;

/// The initial value of a checksum, and the value that is added after the last byte.
pub const ENDS: u32 = u32::MAX;

fn times_x(a: u32) -> u32 {
    (a >> 1) ^ if a & 1 == 1 { POLYNOMIAL } else { 0 }
}

pub fn product(a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    for power in 0..32 {
        // A mask: all ones if the bit is set. A branch would be mispredicted half of the time.
        sum ^= b & ((a << power) as i32 >> 31) as u32;
        b = times_x(b);
    }
    sum
}

/// x to the power of 8, 16, 32 and so on: the factors by which 1, 2, 4, ... following bytes multiply a
/// remainder.
fn powers<const COUNT: usize>() -> [u32; COUNT] {
    let mut power = (0..8).fold(ONE, |power, _| times_x(power));
    std::array::from_fn(|_| {
        let this = power;
        power = product(power, power);
        this
    })
}

/// The factor by which `bytes` following bytes multiply a remainder.
pub fn power(bytes: u64) -> u32 {
    let powers: [u32; 64] = powers();
    let set = powers.iter().enumerate().filter(|(bit, _)| bytes >> bit & 1 == 1);
    set.fold(ONE, |all, (_, power)| product(all, *power))
}

/// The checksum of some bytes and of others behind them, which have the factor `after`.
pub fn joined(checksum: u32, next: u32, after: u32) -> u32 {
    product(checksum, after) ^ next
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Divides bit by bit, starting with a remainder.
    fn divide(remainder: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(remainder, |remainder, byte| {
            (0..8).fold(remainder ^ u32::from(*byte), |remainder, _| times_x(remainder))
        })
    }

    proptest! {
        #[test]
        fn combined_remainders_of_parts_are_the_checksum(
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
            let joined = cuts.windows(2).fold(0, |all, cut| {
                let part = &bytes[cut[0]..cut[1]];
                joined(all, crc32c::crc32c(part), power(part.len() as u64))
            });
            prop_assert_eq!(joined, crc32c::crc32c(&bytes));
        }

        #[test]
        fn powers_add_up(a in any::<u32>(), b in any::<u32>()) {
            prop_assert_eq!(power(u64::from(a) + u64::from(b)), product(power(a.into()), power(b.into())));
        }
    }

    #[test]
    fn the_table_has_the_powers_of_1_2_4_and_8_bytes() {
        let table: [u32; 4] = powers();
        assert_eq!(table, [1, 2, 4, 8].map(power));
        assert_eq!(power(0), ONE);
    }
}
