// SPDX-License-Identifier: Apache-2.0
//! Finds the tiles in lists of rows: lists for staging memory have the order of one side, so elements that are transposed are
//! rows of single elements there.

use crate::plan::{Loop, Loops, Matrix, Tile};

/// Loops over matrices that are looked for: with the rows of a matrix, three axes that are apart on one side.
const MAX_LEVELS: usize = 2;

/// What is copied at once.
#[derive(Clone, Copy, Debug)]
pub enum Group<'a> {
    /// Rows as they are in the list.
    Rows(&'a [Matrix]),
    Transposed(Tile),
}

/// Passes everything in a list once.
pub fn for_each_group<'a>(mut list: &'a [Matrix], act: &mut impl FnMut(Group<'a>)) {
    while let [first, ..] = list {
        if !may_be_transposed(first) {
            let end = list.iter().position(may_be_transposed).unwrap_or(list.len());
            act(Group::Rows(&list[..end]));
            list = &list[end..];
            continue;
        }
        let (loops, length) = nest(list);
        if is_transposed(&loops, first.first.size) {
            Tile { first: first.first, loops }.divide(&mut |tile| act(Group::Transposed(tile)));
        } else {
            act(Group::Rows(&list[..length]));
        }
        list = &list[length..];
    }
}

/// Whether the rows are elements that are adjacent on one side only.
fn may_be_transposed(rows: &Matrix) -> bool {
    matches!(rows.first.size, 1 | 2 | 4 | 8) && rows.rows > 1 && rows.strides.contains(&rows.first.size)
}

/// The loops over the longest beginning of a list that is a nest of loops, and its length.
fn nest(list: &[Matrix]) -> (Loops, usize) {
    let first = &list[0];
    let mut loops = Loops::default();
    loops.push(Loop { count: first.rows, strides: first.strides, regions: [0; 2] });
    let mut length = 1;
    for _ in 0..MAX_LEVELS {
        let Some(strides) = list.get(length).and_then(|next| distance(first, next)) else { break };
        let is_next = |(part, index): &(&[Matrix], u64)| {
            let by = strides.map(|stride| stride.saturating_mul(*index));
            part.iter().zip(list).all(|(each, first)| distance(first, each) == Some(by))
        };
        let count = list.chunks_exact(length).zip(0..).take_while(is_next).count();
        if count < 2 {
            break;
        }
        loops.push(Loop { count: count as u64, strides, regions: [0; 2] });
        length *= count;
    }
    (loops, length)
}

/// Bytes from a matrix to one that is equal except for its place, if that is behind it on both sides.
fn distance(first: &Matrix, other: &Matrix) -> Option<[u64; 2]> {
    let is_alike =
        (first.first.size, first.rows, first.strides) == (other.first.size, other.rows, other.strides);
    let by = [
        other.first.source.checked_sub(first.first.source)?,
        other.first.destination.checked_sub(first.first.destination)?,
    ];
    is_alike.then_some(by)
}

/// Whether elements are adjacent along one loop in the source, and along another one in the destination.
fn is_transposed(loops: &Loops, size: u64) -> bool {
    let adjacent = |side: usize| loops.iter().position(|each| each.strides[side] == size);
    matches!((adjacent(0), adjacent(1)), (Some(source), Some(destination)) if source != destination)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Move;

    const NONE: Move = Move { source: 0, destination: 0, size: 2, source_region: 0, destination_region: 0 };

    /// The list of rows of loops, whose last one is within the rows.
    fn list(size: u64, loops: &[(u64, [u64; 2])]) -> Vec<Matrix> {
        let [outer @ .., (rows, strides)] = loops else { panic!("there are loops") };
        let first = Move { size, ..NONE };
        outer.iter().rev().fold(
            vec![Matrix { first, strides: *strides, rows: *rows }],
            |list, (count, by)| {
                let shifted = |index: u64| {
                    list.iter().map(move |each| Matrix {
                        first: each.first.further(by.map(|by| index * by)),
                        ..*each
                    })
                };
                (0..*count).flat_map(shifted).collect()
            },
        )
    }

    /// Numbers of tiles and of rows as they are.
    fn found(list: &[Matrix]) -> (usize, usize) {
        let (mut tiles, mut rows) = (0, 0);
        for_each_group(list, &mut |group| match group {
            Group::Transposed(_) => tiles += 1,
            Group::Rows(some) => rows += some.len(),
        });
        (tiles, rows)
    }

    #[test]
    fn elements_that_are_transposed_are_in_tiles() {
        let block = list(2, &[(1024, [32, 2]), (16, [2, 2048])]);
        assert_eq!(found(&block), (1, 0));
        assert_eq!(found(&list(2, &[(64, [2, 256]), (128, [128, 2])])), (1, 0), "the other direction");
        assert_eq!(found(&list(2, &[(3, [32768, 65536]), (1024, [32, 2]), (16, [2, 2048])])), (1, 0));
        assert_eq!(
            found(&list(1, &[(64, [512, 1]), (8, [32768, 64]), (16, [1, 512])])),
            (1, 0),
            "heads between"
        );
        assert_eq!(
            found(&list(4, &[(1024, [4096, 4]), (1024, [4, 4096])])),
            (64, 0),
            "large ones are divided"
        );
        assert_eq!(found(&[&block[..], &list(64, &[(3, [0, 0]), (9, [128, 64])])].concat()), (1, 3));
    }

    #[test]
    fn other_rows_stay_as_they_are() {
        assert_eq!(found(&list(256, &[(8, [256, 4096]), (16, [2048, 256])])), (0, 8));
        assert_eq!(found(&list(3, &[(8, [48, 3]), (16, [3, 24])])), (0, 8));
        assert_eq!(found(&list(2, &[(8, [64, 64]), (16, [4, 2])])), (0, 8), "gaps on one side");
        assert_eq!(found(&list(2, &[(1, [0, 0]), (16, [2, 64])])), (0, 1));
    }
}
