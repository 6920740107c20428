// SPDX-License-Identifier: Apache-2.0
//! Copies a tile: in the order of the source if its rows can be written past the caches one by one, and otherwise in the order of
//! the destination, through a buffer that is written past the caches.
#![allow(unsafe_code)]

use super::rows::{HostRows, LINE, RowLoop, copy_short};
use super::transpose::{BUFFER, Buffer, Transposed};
use super::vector::prefetch;
use super::{streaming, transpose_squares};
use crate::plan::{Loop, Loops, Tile};

/// Shorter rows are not collected in a buffer: the buffer would take longer than the caches.
const SHORTEST_COLLECTED: usize = 16;

/// Copies a tile. `next` is copied after it: its source is prefetched.
///
/// # Safety
/// As for [`HostRows::copy`].
pub unsafe fn copy(tile: &Tile, next: Option<&Tile>, is_streamed: bool) {
    let ahead = next.map_or(0, |next| next.first.source.wrapping_sub(tile.first.source) as isize);
    let size = tile.first.size as usize;
    if let Some((outer, matrix)) = transposed(tile, ahead) {
        return for_each_start(&outer, tile, &mut |from, to| {
            let matrix = Transposed { from, to, ..matrix };
            // SAFETY: the caller's promise.
            unsafe {
                match transpose_squares::suits(&matrix, size) {
                    true => transpose_squares::copy(&matrix, size, is_streamed),
                    false => matrix.copy(size, is_streamed),
                }
            }
        });
    }
    let is_by_line = is_streamed && writes_lines(tile);
    let loops = tile.loops.in_order_of(if is_by_line { 0 } else { 1 });
    let (outer, rows) = rows_of(&loops, size, ahead);
    if is_by_line || !is_streamed || size < SHORTEST_COLLECTED {
        return for_each_start(outer, tile, &mut |from, to| {
            // SAFETY: the caller's promise.
            unsafe { HostRows { from, to, ..rows }.copy(is_by_line) };
        });
    }
    let mut collected = Collected::new();
    for_each_start(outer, tile, &mut |from, to| {
        // SAFETY: the caller's promise.
        HostRows { from, to, ..rows }.each(|from, to| unsafe { collected.add(from, to, size, ahead) });
    });
    // SAFETY: what is left of the rows.
    unsafe { collected.write() };
}

/// Whether the destination of each unit consists of whole cache lines.
fn writes_lines(tile: &Tile) -> bool {
    let strides = tile.loops.iter().fold(0, |all, each| all | each.strides[1]);
    (tile.first.destination | tile.first.size | strides).is_multiple_of(LINE as u64)
}

/// The tile as matrices to transpose, and the loops over them: if its elements are words, adjacent on each side along another
/// axis.
fn transposed(tile: &Tile, ahead: isize) -> Option<(Loops, Transposed)> {
    let size = tile.first.size;
    if !matches!(size, 1 | 2 | 4 | 8) {
        return None;
    }
    let is_adjacent = |each: &Loop, side: usize| each.strides[side] == size && each.count * size >= 16;
    let adjacent = |side: usize| tile.loops.iter().position(|each| is_adjacent(each, side));
    let (columns, rows) = (adjacent(0)?, adjacent(1)?);
    if rows == columns {
        return None;
    }
    let (column, row) = (&tile.loops[columns], &tile.loops[rows]);
    let matrix = Transposed {
        from: std::ptr::null(),
        to: std::ptr::null_mut(),
        counts: [row.count as usize, column.count as usize],
        strides: [row.strides[0] as usize, column.strides[1] as usize],
        ahead,
    };
    Some((tile.loops.without([rows, columns]), matrix))
}

/// The two innermost loops as rows, and the others.
fn rows_of(loops: &Loops, size: usize, ahead: isize) -> (&[Loop], HostRows) {
    let row_loop = |each: &Loop| RowLoop {
        count: each.count as usize,
        strides: each.strides.map(|stride| stride as usize),
    };
    let (others, outer, inner) = match &**loops {
        [others @ .., outer, inner] => (others, row_loop(outer), row_loop(inner)),
        [inner] => (&[][..], RowLoop::ONCE, row_loop(inner)),
        [] => (&[][..], RowLoop::ONCE, RowLoop::ONCE),
    };
    (others, HostRows { from: std::ptr::null(), to: std::ptr::null_mut(), size, outer, inner, ahead })
}

/// Passes the addresses of the first unit in each iteration of some loops of a tile.
fn for_each_start(loops: &[Loop], tile: &Tile, act: &mut dyn FnMut(*const u8, *mut u8)) {
    start_each(loops, [tile.first.source, tile.first.destination], act);
}

fn start_each(loops: &[Loop], [from, to]: [u64; 2], act: &mut dyn FnMut(*const u8, *mut u8)) {
    let [outer, inner @ ..] = loops else { return act(from as *const u8, to as *mut u8) };
    for index in 0..outer.count {
        let at = [from + index * outer.strides[0], to + index * outer.strides[1]];
        start_each(inner, at, act);
    }
}

/// Rows that are adjacent in the destination, which is written when there are many.
struct Collected {
    buffer: Buffer,
    filled: usize,
    to: *mut u8,
}

impl Collected {
    fn new() -> Self {
        Self { buffer: Buffer::new(), filled: 0, to: std::ptr::null_mut() }
    }

    /// Adds a row of at least [`SHORTEST_COLLECTED`] bytes.
    ///
    /// # Safety
    /// As for [`HostRows::copy`].
    #[inline(always)]
    unsafe fn add(&mut self, from: *const u8, to: *mut u8, size: usize, ahead: isize) {
        for line in (0..size).step_by(LINE) {
            prefetch(from.wrapping_offset(ahead).wrapping_add(line));
        }
        // SAFETY: the caller's promise; the row fits into the buffer.
        unsafe {
            if self.to.wrapping_add(self.filled) != to || self.filled + size > BUFFER {
                self.write();
                self.to = to;
            }
            if size > BUFFER {
                return streaming::copy(from, to, size);
            }
            copy_short(from, self.buffer.0.as_mut_ptr().cast::<u8>().add(self.filled), size);
        }
        self.filled += size;
    }

    /// Writes the rows that were added.
    ///
    /// # Safety
    /// As for [`HostRows::copy`].
    unsafe fn write(&mut self) {
        // SAFETY: the caller's promise; the buffer is filled so far.
        unsafe { streaming::copy(self.buffer.0.as_ptr().cast(), self.to, self.filled) };
        self.filled = 0;
    }
}
