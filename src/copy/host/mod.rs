// SPDX-License-Identifier: Apache-2.0
//! Copies rows of host memory, past the caches where that is faster.
#![allow(unsafe_code)]

mod transpose_squares;
mod nested;
pub mod poison;
pub mod rates;
mod rows;
pub mod streaming;
pub mod tile;
mod transpose;
mod vector;

pub use self::rows::LINE;
pub use self::vector::prefetch_into_first_level;

use self::nested::{Group, for_each_group};
use self::rows::{HostRows, RowLoop};
use crate::plan::{Matrix, Move, Tile};

/// Whether copies of a transfer of so many bytes should bypass the caches.
pub fn suits_streaming(bytes: u64) -> bool {
    streaming::suits(bytes)
}

/// Copies spans of `size` bytes between two places of each, as a transfer copies rows that are apart. `is_streamed` bypasses the caches
/// where this machine can.
pub fn copy_spans(
    from: &[u8],
    to: &mut [u8],
    size: usize,
    places: impl Iterator<Item = [usize; 2]>,
    is_streamed: bool,
) {
    let is_streamed = is_streamed && suits_streaming(u64::MAX);
    for [source, destination] in places {
        let (from, to) = (&from[source..source + size], &mut to[destination..destination + size]);
        // SAFETY: both have so many bytes, and are distinct.
        unsafe { copy_span(from.as_ptr(), to.as_mut_ptr(), size, is_streamed) };
    }
    streaming::settle();
}

/// Copies rows of host memory. While rows are copied, the source of those after them is prefetched: rows of blocks that are scattered
/// over many pages would wait for it, because the processor reads ahead within a page only. Elements that the list transposes are
/// copied in tiles.
///
/// # Safety
/// All rows are readable in the source and writable in the destination, and no byte is in both. `is_streamed` requires that
/// [`suits_streaming`] has returned true.
pub unsafe fn copy_rows(rows: &[Matrix], is_streamed: bool) {
    let mut last: Option<Tile> = None;
    // SAFETY: the caller's promise, for all below: the groups have the bytes of the list.
    let copy_tile = |tile: &Tile, next: Option<&Tile>| unsafe { tile::copy(tile, next, is_streamed) };
    for_each_group(rows, &mut |group| match group {
        Group::Rows(rows) => {
            for (index, each) in rows.iter().enumerate() {
                // SAFETY: as above.
                unsafe { copy_matrix(each, rows.get(index + 1), is_streamed) };
            }
        }
        Group::Transposed(tile) => {
            if let Some(last) = last.replace(tile) {
                copy_tile(&last, Some(&tile));
            }
        }
    });
    if let Some(last) = last {
        copy_tile(&last, None);
    }
    if is_streamed {
        streaming::settle();
    }
}

/// Copies the rows of a matrix, and prefetches the source of those of the next one.
///
/// # Safety
/// As for [`copy_rows`]; the caller calls `settle` of [`streaming`].
#[inline]
pub unsafe fn copy_matrix(each: &Matrix, next: Option<&Matrix>, is_streamed: bool) {
    let ahead = next.map_or(0, |next| next.first.source.wrapping_sub(each.first.source) as isize);
    let rows = HostRows {
        from: each.first.source as *const u8,
        to: each.first.destination as *mut u8,
        size: each.first.size as usize,
        outer: RowLoop::ONCE,
        inner: RowLoop { count: each.rows as usize, strides: each.strides.map(|stride| stride as usize) },
        ahead,
    };
    // SAFETY: the caller's promise, for both.
    unsafe {
        match rows.are_short() {
            true => rows.copy(is_streamed),
            false => each.moves().for_each(|each| copy_one(&each, is_streamed)),
        }
    }
}

/// # Safety
/// As for [`copy_matrix`].
unsafe fn copy_one(each: &Move, is_streamed: bool) {
    let (from, to) = (each.source as *const u8, each.destination as *mut u8);
    // SAFETY: the caller's promise.
    unsafe { copy_span(from, to, each.size as usize, is_streamed) }
}

/// # Safety
/// As for [`copy_matrix`].
unsafe fn copy_span(from: *const u8, to: *mut u8, size: usize, is_streamed: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        match is_streamed {
            true => streaming::copy(from, to, size),
            false => std::ptr::copy_nonoverlapping(from, to, size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_copied_to_their_places() {
        let from: Vec<u8> = (0..16).collect();
        let mut to = [0; 16];
        copy_spans(&from, &mut to, 4, [[0, 8], [12, 0]].into_iter(), true);
        assert_eq!(to, [12, 13, 14, 15, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0]);
    }
}
