// SPDX-License-Identifier: Apache-2.0
//! The pieces of a plan in the order of the file, listed window by window: while the requests of one are executed, the next
//! is listed. So creating a transfer takes time and memory for its blocks, not for its pieces.

use std::os::fd::RawFd;
use std::sync::Arc;

use once_cell::sync::OnceCell;

use super::file_requests::{FileRequests, MAX_BYTES, Piece};
use super::file_sides::FileSides;
use crate::base::{Result, lists};
use crate::plan::{LoopOrder, Plan};

/// Moves of a window: listing them takes about half a millisecond, and requests of adjacent pieces are found among them.
const MOVES_OF_WINDOW: u64 = 4096;
/// Bytes of a window, each mebibyte of which is a request.
const BYTES_OF_WINDOW: u64 = 256 << 20;
/// A plan with no more moves is listed at once, and its requests are counted.
const FEW_MOVES: u64 = 64;

/// A plan between a file and memory.
pub struct PlannedPieces {
    /// In the order of the file, from window to window.
    plan: Plan,
    /// The open file of each region.
    files: Arc<[RawFd]>,
    writes: bool,
    windows: u64,
}

impl PlannedPieces {
    /// `ordered` is the plan in the order of the file.
    pub fn new(sides: &FileSides<'_>, ordered: Plan) -> Self {
        Self {
            windows: ordered.windows(MOVES_OF_WINDOW, BYTES_OF_WINDOW),
            plan: ordered,
            files: sides.file.files().clone(),
            writes: sides.writes,
        }
    }

    /// Whether they are written to the file.
    pub fn writes(&self) -> bool {
        self.writes
    }

    pub fn bytes(&self) -> u64 {
        self.plan.bytes()
    }

    /// The pieces of a window with their region of memory.
    fn window(&self, window: u64) -> impl Iterator<Item = (Piece, u32)> {
        self.plan.moves_in_window(window, self.windows).map(|each| {
            let from = (each.source_region, each.source);
            let to = (each.destination_region, each.destination);
            let ((file, offset), (region, address)) = if self.writes { (to, from) } else { (from, to) };
            (Piece { file: self.files[file as usize], offset, address, size: each.size }, region)
        })
    }
}

/// The plan in the order of the file. The pieces of a single window are sorted anyway.
pub fn in_file_order(plan: &Plan, writes: bool) -> Result<Plan> {
    let is_ordered = writes || plan.windows(MOVES_OF_WINDOW, BYTES_OF_WINDOW) == 1;
    if is_ordered { Ok(plan.clone()) } else { plan.in_order(LoopOrder::Source) }
}

/// All pieces of a plan, in the order of the file.
pub struct Pieces {
    planned: Arc<PlannedPieces>,
    next_window: u64,
    /// What is left of the current one.
    window: std::vec::IntoIter<(Piece, u32)>,
}

impl Pieces {
    pub fn new(planned: Arc<PlannedPieces>) -> Self {
        Self { planned, next_window: 0, window: Vec::new().into_iter() }
    }

    fn list_next(&mut self) -> Result<()> {
        let mut window = lists::collect(self.planned.window(self.next_window))?;
        let place = |(piece, _): &(Piece, u32)| (piece.file, piece.offset);
        if !window.is_sorted_by_key(place) {
            window.sort_unstable_by_key(place);
        }
        (self.window, self.next_window) = (window.into_iter(), self.next_window + 1);
        Ok(())
    }
}

impl Iterator for Pieces {
    type Item = Result<(Piece, u32)>;

    fn next(&mut self) -> Option<Result<(Piece, u32)>> {
        loop {
            if let Some(piece) = self.window.next() {
                return Some(Ok(piece));
            }
            if self.next_window == self.planned.windows {
                return None;
            }
            if let Err(error) = self.list_next() {
                return Some(Err(error));
            }
        }
    }
}

/// The reads or writes of a plan.
pub struct PlannedRequests {
    pieces: PlannedPieces,
    max_moves: u64,
    /// Of the only window, if there is one: later runs use it again.
    only: OnceCell<Arc<FileRequests>>,
    counts: OnceCell<Counts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub moves: u64,
    pub requests: u64,
}

impl Counts {
    pub fn with(self, list: &FileRequests) -> Self {
        Self { moves: self.moves + list.pieces(), requests: self.requests + list.len() as u64 }
    }
}

impl PlannedRequests {
    pub fn new(pieces: PlannedPieces, max_moves: u64) -> Self {
        let this = Self { pieces, max_moves, only: OnceCell::new(), counts: OnceCell::new() };
        if max_moves <= FEW_MOVES && this.pieces.windows == 1 {
            // If it fails, the first run lists them again, and reports why.
            let _ = this.window(0);
        }
        this
    }

    pub fn windows(&self) -> u64 {
        self.pieces.windows
    }

    /// The requests of a window; at least one.
    pub fn window(&self, window: u64) -> Result<Arc<FileRequests>> {
        if let Some(only) = self.only.get() {
            return Ok(only.clone());
        }
        let pieces = self.pieces.window(window).map(|(piece, _)| piece);
        let list = Arc::new(FileRequests::gather(pieces, self.pieces.writes)?);
        Ok(if self.pieces.windows == 1 { self.only.get_or_init(|| list).clone() } else { list })
    }

    pub fn bytes(&self) -> u64 {
        self.pieces.bytes()
    }

    /// The most requests there can be; their number, if they are listed.
    pub fn max_requests(&self) -> u64 {
        let listed = self.only.get().map(|list| list.len() as u64);
        listed.unwrap_or_else(|| self.max_moves.saturating_add(self.bytes() / MAX_BYTES))
    }

    /// How many there are. Lists all unless a run has done so.
    pub fn counts(&self) -> Result<Counts> {
        if let Some(counts) = self.counts.get() {
            return Ok(*counts);
        }
        let count = |sum: Counts, window| self.window(window).map(|list| sum.with(&list));
        let counts = (0..self.windows()).try_fold(Counts::default(), count)?;
        self.note(counts);
        Ok(counts)
    }

    /// Keeps what a run has counted.
    pub fn note(&self, counts: Counts) {
        // Every run counts the same.
        let _ = self.counts.set(counts);
    }
}

/// The requests of one run, taken one by one.
#[derive(Default)]
pub struct RequestSource {
    planned: Option<Arc<PlannedRequests>>,
    next_window: u64,
    list: Option<Arc<FileRequests>>,
    next: usize,
    counts: Counts,
}

impl RequestSource {
    pub fn planned(planned: Arc<PlannedRequests>) -> Self {
        Self { planned: Some(planned), ..Self::default() }
    }

    pub fn listed(list: Arc<FileRequests>) -> Self {
        Self { list: Some(list), ..Self::default() }
    }

    /// Requests of the current list.
    fn listed_now(&self) -> usize {
        self.list.as_ref().map_or(0, |list| list.len())
    }

    /// Whether none is left.
    pub fn is_over(&self) -> bool {
        let has_windows = self.planned.as_ref().is_some_and(|planned| self.next_window < planned.windows());
        self.next == self.listed_now() && !has_windows
    }

    /// The next request: its list and its index.
    pub fn take(&mut self) -> Result<Option<(Arc<FileRequests>, usize)>> {
        while self.next == self.listed_now() {
            let planned = self.planned.as_ref().filter(|planned| self.next_window < planned.windows());
            let Some(planned) = planned else { return Ok(None) };
            let list = planned.window(self.next_window)?;
            (self.next, self.next_window) = (0, self.next_window + 1);
            self.counts = self.counts.with(&list);
            if self.next_window == planned.windows() {
                planned.note(self.counts);
            }
            self.list = Some(list);
        }
        self.next += 1;
        Ok(self.list.clone().map(|list| (list, self.next - 1)))
    }

    /// Drops all that are left.
    pub fn clear(&mut self) {
        (self.planned, self.next) = (None, self.listed_now());
    }

    /// Bytes of all, and the most requests there can be. Of a source that nothing was taken from.
    pub fn sizes(&self) -> (u64, u64) {
        match &self.planned {
            Some(planned) => (planned.bytes(), planned.max_requests()),
            None => (self.list.as_ref().map_or(0, |list| list.bytes()), self.listed_now() as u64),
        }
    }
}
