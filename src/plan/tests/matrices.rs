// SPDX-License-Identifier: Apache-2.0
//! A plan as matrices: the same bytes, in rows that a driver supports, and as few matrices as were counted.

use super::*;

fn listed(matrices: &Matrices<'_>) -> Vec<Matrix> {
    let mut list = Vec::new();
    matrices.for_each(|matrix| list.push(matrix));
    list
}

pub fn rows_of(matrix: &Matrix) -> impl Iterator<Item = Move> {
    let Matrix { first, strides: [here, there], rows } = *matrix;
    (0..rows).map(move |row| Move {
        source: first.source + row * here,
        destination: first.destination + row * there,
        ..first
    })
}

proptest! {
    #[test]
    fn matrices_are_the_bytes_of_the_moves(
        pairs in prop_oneof![any_pairs(), regular_pairs()], from in 0usize..3, to in 0usize..3,
        from_shift in 0u32..7, to_shift in 0u32..7,
        layers in fitting_range(3), outers in fitting_range(2), max_pitch in prop_oneof![1u64..500, Just(1u64 << 31)],
    ) {
        let side = |kind: usize, shift: u32, start| {
            placement(Dimensions { alignment: 1 << shift, ..dimensions() }, KINDS[kind], start)
        };
        let (source, destination) = (side(from, from_shift, 4096), side(to, to_shift, 1 << 20));
        let wanted = Wanted { layers: Some(layers), outers: Some(outers), heads: None };
        let plan = Plan::between(&source, &destination, &pairs, wanted).unwrap();
        let matrices = plan.matrices(max_pitch).next().unwrap();
        let list = listed(&matrices);
        let count = list.len() as u64;
        prop_assert_eq!(matrices.count(u64::MAX), Some(count));
        prop_assert_eq!(matrices.count(count), Some(count));
        prop_assert_eq!(matrices.count(count - 1), None);
        prop_assert!(count <= matrices.total_rows());
        for Matrix { first, strides, rows } in &list {
            prop_assert!(*rows == 1 || strides.iter().all(|stride| (first.size..=max_pitch).contains(stride)));
        }
        let rows: Vec<_> = list.iter().flat_map(rows_of).collect();
        let moves: Vec<_> = plan.moves().collect();
        prop_assert_eq!(bytes_of(&rows), bytes_of(&moves));
    }
}

/// Blocks at regular distances, then some more.
fn regular_pairs() -> impl Strategy<Value = Vec<BlockPair>> {
    (0u32..6, 0u32..4, 1u32..4, 1u32..3, 1u32..6, any::<bool>()).prop_map(
        |(source, destination, here, there, count, with_last)| {
            let regular = (0..count).map(|i| (source + i * here, destination + i * there));
            let inside = regular.filter(|(source, destination)| *source < 12 && *destination < 11);
            let last = with_last.then_some((3, 11));
            inside.chain(last).map(|(source, destination)| BlockPair { source, destination }).collect()
        },
    )
}

fn matrices_of(list: &[(u32, u32)], kinds: [Arrangement; 2], wanted: Wanted) -> Vec<(u64, u64)> {
    let (a, b) = (placement(dimensions(), kinds[0], 4096), placement(dimensions(), kinds[1], 1 << 20));
    let plan = Plan::between(&a, &b, &pairs(list), wanted).unwrap();
    let list = listed(&plan.matrices(1 << 31).next().unwrap());
    list.iter().map(|matrix| (matrix.rows, matrix.first.size)).collect()
}

const PIECE: u64 = 12;

#[test]
fn every_second_block_is_a_row() {
    let [contiguous, first, second] = KINDS;
    let all = Wanted::default();
    let every_second = [(0, 0), (2, 1), (4, 2), (6, 3)];
    assert_eq!(matrices_of(&every_second, [contiguous; 2], all), [(4, 6 * PIECE)]);
    assert_eq!(matrices_of(&every_second, [first; 2], all), [(4, 2 * PIECE); 3]);
    assert_eq!(matrices_of(&every_second, [second; 2], all), [(4, PIECE); 6]);
    assert_eq!(matrices_of(&every_second, [contiguous, second], all), [(4, PIECE); 6]);
    let pairs_of_blocks = [(0, 0), (1, 1), (4, 2), (5, 3), (8, 4), (9, 5)];
    assert_eq!(matrices_of(&pairs_of_blocks, [contiguous; 2], all), [(3, 12 * PIECE)]);
    let with_others = [(9, 0), (0, 1), (2, 3), (4, 5), (1, 8)];
    assert_eq!(
        matrices_of(&with_others, [contiguous; 2], all),
        [(1, 6 * PIECE), (3, 6 * PIECE), (1, 6 * PIECE)]
    );
}

#[test]
fn layers_are_rows_where_that_makes_fewer_matrices() {
    let values = Wanted {
        outers: Some(PairedRange { source: 1, destination: 1, count: 1 }),
        layers: None,
        heads: None,
    };
    let contiguous = [Arrangement::FULLY_CONTIGUOUS; 2];
    assert_eq!(matrices_of(&[(5, 0), (1, 3)], contiguous, values), [(3, PIECE); 2]);
    assert_eq!(matrices_of(&[(5, 0), (6, 1), (7, 2), (8, 3)], contiguous, values), [(12, PIECE)]);
    let regular = [(0, 0), (2, 1), (4, 2), (6, 3)];
    assert_eq!(matrices_of(&regular, contiguous, values), [(4, PIECE); 3], "three layers of four blocks");
}
