// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;

use super::*;

#[allow(dead_code, reason = "only its vectors are used")]
#[path = "portable.rs"]
mod portable;

/// Bytes at the start of a line, as streaming needs it.
#[repr(align(64))]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bytes([u8; 4 * VECTOR]);

macro_rules! all_operations {
    ($vector:ty, $from:expr) => {{
        let from = &$from.0;
        let mut to = Bytes([0xEE; 4 * VECTOR]);
        let (start, end) = (from.as_ptr(), to.0.as_mut_ptr());
        // SAFETY: inside of both.
        unsafe {
            let (first, second) =
                (<$vector>::load(start.add(1)), <$vector>::load_lanes([start.add(77), start.add(40)]));
            let mut found = vec![first, second, first.joined()];
            found.extend(first.interleaved::<1>(second));
            found.extend(first.interleaved::<2>(second));
            found.extend(first.interleaved::<4>(second));
            found.extend(first.interleaved::<8>(second));
            let mut all = Vec::new();
            for vector in found {
                vector.stream(end);
                vector.store(end.add(VECTOR + 1));
                vector.store_lanes([end.add(VECTOR + 40), end.add(VECTOR + 70)]);
                settle();
                all.push(to);
            }
            all
        }
    }};
}

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
fn by_machine(from: &Bytes) -> Vec<Bytes> {
    all_operations!(Vector, from)
}

/// Transposes `2 * N` rows by the network, and by the definition: of each lane's rows, the columns one after the other.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
fn check_network<const SIZE: usize, const N: usize>(from: &[u8]) {
    const STRIDE: usize = 24;
    assert!(from.len() >= 2 * N * STRIDE);
    // SAFETY: inside of the bytes.
    let columns = transposed::<SIZE, N>(unsafe { load_rows::<N>(from.as_ptr(), STRIDE) });
    for (index, vector) in columns.into_iter().enumerate() {
        let mut found = [0; VECTOR];
        // SAFETY: as many bytes.
        unsafe { vector.store(found.as_mut_ptr()) };
        for (at, byte) in found.into_iter().enumerate() {
            let (lane, element) = (at / LANE, (index * LANE + at % LANE) / SIZE);
            let (column, row) = (element / N, lane * N + element % N);
            assert_eq!(byte, from[row * STRIDE + column * SIZE + at % SIZE], "vector {index}, byte {at}");
        }
    }
}

proptest! {
    #[test]
    fn every_operation_has_the_result_of_the_portable_one(
        from in prop::collection::vec(any::<u8>(), 4 * VECTOR), rows in prop::collection::vec(any::<u8>(), 16 * 24),
    ) {
        if !is_available() {
            crate::skip::skip("AVX2: this processor has none");
            return Ok(());
        }
        let bytes = Bytes(from.try_into().unwrap());
        let expected = all_operations!(portable::Vector, bytes);
        // SAFETY: the processor has vectors.
        #[allow(unused_unsafe, reason = "on x86 only")]
        unsafe {
            prop_assert_eq!(by_machine(&bytes), expected);
            check_network::<1, 8>(&rows);
            check_network::<2, 8>(&rows);
            check_network::<2, 4>(&rows);
            check_network::<4, 4>(&rows);
            check_network::<4, 2>(&rows);
            check_network::<8, 1>(&rows);
        }
    }
}
