// SPDX-License-Identifier: Apache-2.0
//! The copy between a layout and some bytes of a plan in a row, which are in a slot, and their checksums.
//!
//! Bytes are added to the checksum after they have been copied from or to the slot. So whatever else is written to the slot before the
//! copy has read it is in the checksum, too.
#![allow(unsafe_code)]

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use crate::base::{Result, ensure, lists};
use crate::copy::gpu::RowCopier;
use crate::copy::host;
use crate::copy::host::poison::Poison;
use crate::plan::{LinearPlan, Matrix};
use crate::region::ExtentHold;

/// Rows that are listed at a time.
const BATCH: usize = 1024;
/// Bytes that are copied and then added to the checksum, while they are in the cache of the processor.
const PIECE: u64 = 32 << 10;

/// The rows between a layout and a slot, for some bytes of a plan.
pub struct LinearCopy {
    pub plan: Arc<LinearPlan>,
    pub bytes: Range<u64>,
    /// The address; `None` if NIXL accesses the layout, and only the checksum is computed.
    pub slot: Option<u64>,
    pub into_layout: bool,
    pub check: Option<Check>,
    /// Dropped when the copy has ended, as the extents of elastic memory are.
    pub _held: [Option<Arc<dyn Any + Send + Sync>>; 2],
    pub _extents: Option<ExtentHold>,
}

/// The checksum that is computed with a copy.
#[derive(Clone, Copy)]
pub struct Check {
    /// The checksum of what precedes the bytes.
    pub seed: u32,
    /// That of the layout is computed, too, from a second read.
    pub reads_layout: bool,
    /// The slot is in GPU memory.
    pub is_on_device: bool,
}

/// CRC32C of the bytes of a copy in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksums {
    pub slot: u32,
    /// As they are in the layout; that of the slot, if they were not read again.
    pub layout: u32,
}

impl LinearCopy {
    /// The rows; to the layout, if the copy is.
    pub fn rows(&self) -> impl Iterator<Item = Matrix> {
        let into_layout = self.into_layout;
        self.rows_to(self.slot.unwrap_or(0), self.bytes.clone())
            .map(move |row| if into_layout { row.reversed() } else { row })
    }

    /// The rows of some of the bytes from the layout to an address.
    fn rows_to(&self, address: u64, bytes: Range<u64>) -> impl Iterator<Item = Matrix> {
        let start = bytes.start;
        self.plan.rows_in(bytes).map(move |mut row| {
            row.first.destination = address + (row.first.destination - start);
            row
        })
    }

    /// Copies by the calling thread. `batch` is its memory.
    pub fn copy(&self, batch: &mut Vec<Matrix>) -> Result<Checksums> {
        let Some(check) = &self.check else {
            copy_all(self.rows(), batch);
            return Ok(Checksums::default());
        };
        let mut found = Checksums { slot: check.seed, layout: check.seed };
        let mut memory = Vec::new();
        for start in self.bytes.clone().step_by(PIECE as usize) {
            let piece = start..self.bytes.end.min(start + PIECE);
            let size = piece.end - piece.start;
            let Some(slot) = self.slot.map(|slot| slot + (start - self.bytes.start)) else {
                found.layout = self.checksum_in_place(found.layout, piece)?;
                continue;
            };
            let rows = self.rows_to(slot, piece.clone());
            copy_all(rows.map(|row| if self.into_layout { row.reversed() } else { row }), batch);
            found.slot = append(found.slot, slot, size);
            if check.reads_layout {
                lists::reserve(&mut memory, PIECE as usize)?;
                memory.resize(PIECE as usize, 0);
                let copy = memory.as_mut_ptr() as u64;
                copy_all(self.rows_to(copy, piece), batch);
                found.layout = append(found.layout, copy, size);
            }
        }
        if self.slot.is_none() {
            found.slot = found.layout;
        } else if !check.reads_layout {
            found.layout = found.slot;
        }
        Ok(found)
    }

    /// The checksums of a copy that a GPU has made. Waits for the GPU.
    pub fn check_copied(&self, copier: &RowCopier, batch: &mut Vec<Matrix>) -> Result<Checksums> {
        let (Some(check), Some(slot)) = (&self.check, self.slot) else { return Ok(Checksums::default()) };
        let size = self.bytes.end - self.bytes.start;
        let of_slot = || match check.is_on_device {
            // SAFETY: the caller of `start_linear` holds the slot until the copy has ended.
            true => unsafe { copier.checksum(check.seed, slot, size) },
            false => Ok(append(check.seed, slot, size)),
        };
        let found = of_slot()?;
        if !(check.reads_layout && self.into_layout) {
            return Ok(Checksums { slot: found, layout: found });
        }
        // Read back to the slot, which no longer has these bytes.
        if !check.is_on_device {
            // SAFETY: as above. Nothing else uses the slot before the end of the copy.
            unsafe { Poison::new()?.fill(slot, size) };
        }
        batch.clear();
        lists::extend(batch, self.rows_to(slot, self.bytes.clone()))?;
        // SAFETY: as in `copy_rows`.
        unsafe { copier.copy_to_cleared(batch, (slot, size), check.is_on_device)? };
        Ok(Checksums { slot: found, layout: of_slot()? })
    }

    /// Adds bytes of the layout to a checksum.
    fn checksum_in_place(&self, before: u32, piece: Range<u64>) -> Result<u32> {
        let (mut at, mut checksum) = (piece.start, before);
        for each in self.plan.rows_in(piece).flat_map(Matrix::moves) {
            ensure!(each.destination == at, Panic, "the bytes of a plan are not in a row");
            checksum = append(checksum, each.source, each.size);
            at += each.size;
        }
        Ok(checksum)
    }
}

/// Copies rows, some at a time.
fn copy_all(rows: impl Iterator<Item = Matrix>, batch: &mut Vec<Matrix>) {
    batch.clear();
    for row in rows {
        batch.push(row);
        if batch.len() == BATCH {
            copy_rows(batch, false);
            batch.clear();
        }
    }
    copy_rows(batch, false);
}

fn append(checksum: u32, address: u64, size: u64) -> u32 {
    // SAFETY: bytes of a slot, of a layout or of this object's memory in this process, which are held until the copy has ended. If they
    // are written meanwhile, the checksum is that of neither the old nor the new bytes.
    crc32c::crc32c_append(checksum, unsafe {
        std::slice::from_raw_parts(address as *const u8, size as usize)
    })
}

/// Copies rows by the calling thread.
pub(super) fn copy_rows(rows: &[Matrix], is_streamed: bool) {
    // SAFETY: the caller of `start` checked the rows against a slot, and the plan against the layouts, which are held until
    // the copy has ended. A slot and memory of a layout have no byte in common.
    unsafe { host::copy_rows(rows, is_streamed) };
}
