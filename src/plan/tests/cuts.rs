// SPDX-License-Identifier: Apache-2.0
//! Moves and matrices are cut at the ends of pieces of memory: the parts have the same bytes, no part spans such an end, and
//! there is no other cut.

use super::matrices::rows_of;
use super::*;
use crate::region::EqualPieces;

/// Pieces that start before the addresses of any move.
fn any_pieces() -> impl Strategy<Value = EqualPieces> {
    (0u64..100, 1u64..200).prop_map(|(start, size)| EqualPieces { start, size })
}

fn any_move() -> impl Strategy<Value = Move> {
    (100u64..1000, 100u64..1000, 1u64..300).prop_map(|(source, destination, size)| Move {
        source,
        destination: 10_000 + destination,
        size,
        source_region: 1,
        destination_region: 2,
    })
}

/// Returns the bytes up to the end of the piece, and checks that the region is the expected one.
fn left_of(pieces: EqualPieces, region: u32) -> impl Fn(u32, u64) -> u64 {
    move |given, address| {
        assert_eq!(given, region);
        pieces.left(address)
    }
}

/// Whether a span contains the end of a piece.
fn straddles(pieces: EqualPieces, address: u64, size: u64) -> bool {
    pieces.touched(address, size).count() > 1
}

fn either_straddles(pieces: [EqualPieces; 2], span: &Move) -> bool {
    straddles(pieces[0], span.source, span.size) || straddles(pieces[1], span.destination, span.size)
}

/// The span from the first byte of a matrix to its last, for each side with its own stride.
fn whole(matrix: &Matrix, rows: u64) -> [Move; 2] {
    matrix.strides.map(|stride| Move { size: (rows - 1) * stride + matrix.first.size, ..matrix.first })
}

fn matrix_straddles(pieces: [EqualPieces; 2], matrix: &Matrix, rows: u64) -> bool {
    let [source, destination] = whole(matrix, rows);
    straddles(pieces[0], source.source, source.size)
        || straddles(pieces[1], destination.destination, destination.size)
}

proptest! {
    #[test]
    fn moves_are_cut_at_ends_of_pieces_and_nowhere_else(
        whole in any_move(), here in any_pieces(), there in any_pieces(),
    ) {
        let parts: Vec<_> = whole.cut(left_of(here, 1), left_of(there, 2)).collect();
        prop_assert_eq!(bytes_of(&parts), bytes_of(&[whole]));
        prop_assert!(parts.iter().all(|part| !either_straddles([here, there], part)));
        for pair in parts.windows(2) {
            prop_assert!(pair[0].goes_on_in(&pair[1]), "in order");
            let both = Move { size: pair[0].size + pair[1].size, ..pair[0] };
            prop_assert!(either_straddles([here, there], &both), "cut where no piece ends");
        }
    }

    #[test]
    fn matrices_are_cut_at_ends_of_pieces_and_nowhere_else(
        mut first in any_move(), gaps in [0u64..100, 0u64..100], rows in 1u64..12,
        here in any_pieces(), there in any_pieces(),
    ) {
        first.size = first.size.min(60);
        let matrix = Matrix { first, strides: gaps.map(|gap| first.size + gap), rows };
        let mut parts = Vec::new();
        matrix.cut(left_of(here, 1), left_of(there, 2), |part| parts.push(part));
        let bytes = |list: &[Matrix]| bytes_of(&list.iter().flat_map(rows_of).collect::<Vec<_>>());
        prop_assert_eq!(bytes(&parts), bytes(&[matrix]));
        for part in &parts {
            prop_assert!(!matrix_straddles([here, there], part, part.rows));
            let is_last = part.first.source + (part.rows - 1) * part.strides[0] + part.first.size
                == first.source + (rows - 1) * matrix.strides[0] + first.size;
            let is_whole = part.first.size == first.size;
            prop_assert!(
                is_last || !is_whole || matrix_straddles([here, there], part, part.rows + 1),
                "one row more would have fit"
            );
        }
        for pair in parts.windows(2) {
            let both = Move { size: pair[0].first.size + pair[1].first.size, ..pair[0].first };
            let begins_row = (pair[1].first.source - first.source).is_multiple_of(matrix.strides[0]);
            let is_row = !begins_row && pair[0].first.goes_on_in(&pair[1].first);
            prop_assert!(!is_row || either_straddles([here, there], &both), "cut where no piece ends");
        }
    }

    #[test]
    fn a_plan_cut_at_extents_is_the_plan(
        pairs in any_pairs(), from in 0usize..3, to in 0usize..3, here in any_pieces(), there in any_pieces(),
    ) {
        let (source, destination) =
            (placement(dimensions(), KINDS[from], 4096), placement(dimensions(), KINDS[to], 1 << 20));
        let plan = Plan::between(&source, &destination, &pairs, Wanted::default()).unwrap();
        let moves: Vec<_> = plan.moves().collect();
        let left = |pieces: EqualPieces| move |_, address| pieces.left(address);
        let parts: Vec<_> = moves.iter().flat_map(|each| each.cut(left(here), left(there))).collect();
        prop_assert_eq!(bytes_of(&parts), bytes_of(&moves));
        prop_assert!(parts.iter().all(|part| !either_straddles([here, there], part)));
        let mut rows = Vec::new();
        let matrices = plan.matrices(1 << 31).next().unwrap();
        matrices.for_each(|matrix| matrix.cut(left(here), left(there), |part| rows.extend(rows_of(&part))));
        prop_assert_eq!(bytes_of(&rows), bytes_of(&moves));
        prop_assert!(rows.iter().all(|row| !either_straddles([here, there], row)));
    }
}
