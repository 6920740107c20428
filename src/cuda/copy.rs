// SPDX-License-Identifier: Apache-2.0
//! The driver's own copies: one a call, many a call, and rows at regular distances.

use std::ops::Range;

use cudarc::driver::sys::{CUmemcpyAttributes, CUmemcpySrcAccessOrder};

use super::raw::{RawRows, RawSide};
use super::stream::Active;
use crate::error::{Error, Result, Status};

/// Bytes from one place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Where they come from.
    pub source: u64,
    /// Where they go.
    pub destination: u64,
    /// How many.
    pub size: u64,
}

/// Copies as the driver's batch call takes them.
pub struct Batch {
    sources: Vec<u64>,
    destinations: Vec<u64>,
    sizes: Vec<usize>,
}

impl Batch {
    /// None yet, with room for as many as there may be.
    pub fn with_room(room: usize) -> Self {
        Self {
            sources: Vec::with_capacity(room),
            destinations: Vec::with_capacity(room),
            sizes: Vec::with_capacity(room),
        }
    }

    /// Puts copies into the form.
    pub fn new(copies: impl ExactSizeIterator<Item = Copy>) -> Self {
        let mut batch = Self::with_room(copies.len());
        copies.for_each(|copy| batch.push(copy));
        batch
    }

    /// One more.
    pub fn push(&mut self, copy: Copy) {
        self.sources.push(copy.source);
        self.destinations.push(copy.destination);
        self.sizes.push(copy.size as usize);
    }

    /// Removes all; room for as many stays.
    pub fn clear(&mut self) {
        self.sources.clear();
        self.destinations.clear();
        self.sizes.clear();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// One after the other.
    pub fn copies(&self) -> impl Iterator<Item = Copy> + '_ {
        let ends = self.sources.iter().zip(&self.destinations);
        ends.zip(&self.sizes).map(|((source, destination), size)| Copy {
            source: *source,
            destination: *destination,
            size: *size as u64,
        })
    }
}

/// When the driver may read what is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceOrder {
    /// When the stream gets to it: what is before it on the stream may write it.
    Stream,
    /// At any time: it is there already. Only for host memory.
    Any,
}

/// Rows of equal size at regular distances on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The first.
    pub first: Copy,
    /// Bytes from a row to the next at the source.
    pub source_stride: u64,
    /// And at the destination.
    pub destination_stride: u64,
    /// How many rows.
    pub count: u64,
}

/// What the copy engine is at when it is given a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineLoad {
    /// Nothing: it begins when the driver's call ends, so that the first calls are short.
    Idle,
    /// Copies that take longer than the call.
    Busy,
}

/// Copies in the first call of a batch, where the copy engine waits for it.
pub const FIRST_CALL: usize = 8;
/// The most copies that go in a call.
pub const FULL_CALL: usize = 128;

/// How many copies of a batch go in each call: the driver slows down by far when it is given thousands at once. Each
/// call should end before what the ones before it have started does, so that they grow no faster than the copy engine
/// gains on them.
pub fn call_sizes(mut left: usize, ahead: EngineLoad) -> impl Iterator<Item = usize> {
    let mut most = if ahead == EngineLoad::Busy { FULL_CALL } else { FIRST_CALL };
    std::iter::from_fn(move || {
        let size = left.min(most);
        (left, most) = (left - size, (most + most / 2).min(FULL_CALL));
        (size > 0).then_some(size)
    })
}

/// The spans of all calls below must be memory of this process, and stay so until the stream is done, also after a
/// failure: what was started goes on.
impl Active<'_> {
    /// Starts one copy between any two of host and device memory.
    ///
    /// # Safety
    /// See above.
    pub unsafe fn copy(&self, copy: Copy) -> Result<()> {
        let driver = self.driver();
        let Copy { source, destination, size } = copy;
        // SAFETY: the caller's promise.
        let answer = unsafe { driver.api.memcpy_async.call(destination, source, size as usize, self.raw) };
        driver.check(answer, format_args!("copy {size} bytes from {source:#x} to {destination:#x}"))
    }

    /// Starts setting bytes of device memory to 0.
    ///
    /// # Safety
    /// See above.
    pub unsafe fn clear(&self, address: u64, size: u64) -> Result<()> {
        let driver = self.driver();
        // SAFETY: the caller's promise.
        let answer = unsafe { driver.api.memset_d8_async.call(address, 0, size as usize, self.raw) };
        driver.check(answer, format_args!("clear {size} bytes at {address:#x}"))
    }

    /// Starts all copies, in no order among each other; not on the legacy default stream. By batches where the driver
    /// takes them and there are several, else one by one.
    ///
    /// # Safety
    /// See above.
    pub unsafe fn copy_all(&self, batch: &Batch, reading: SourceOrder, ahead: EngineLoad) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            match batch.len() > 1 && self.driver().copies_batches() {
                true => self.copy_batch(batch, reading, ahead),
                false => self.copy_each(batch),
            }
        }
    }

    /// Starts all copies one by one, on any stream.
    ///
    /// # Safety
    /// See above.
    pub unsafe fn copy_each(&self, batch: &Batch) -> Result<()> {
        // SAFETY: the caller's promise.
        batch.copies().try_for_each(|copy| unsafe { self.copy(copy) })
    }

    /// Starts all copies in few calls, in no order among each other; not on the legacy default stream, nor where the
    /// driver has no such call.
    ///
    /// # Safety
    /// See above.
    pub unsafe fn copy_batch(&self, batch: &Batch, reading: SourceOrder, ahead: EngineLoad) -> Result<()> {
        let mut first = 0;
        for size in call_sizes(batch.len(), ahead) {
            // SAFETY: the caller's promise.
            unsafe { self.copy_some(batch, first..first + size, reading)? };
            first += size;
        }
        Ok(())
    }

    /// By one call.
    unsafe fn copy_some(&self, batch: &Batch, some: Range<usize>, reading: SourceOrder) -> Result<()> {
        let driver = self.driver();
        let Some(function) = driver.api.memcpy_batch_async else {
            return Err(Error::new(
                Status::UnavailableCuda,
                "the CUDA driver is too old for batches of copies",
            ));
        };
        // SAFETY: an all-zero value is one of plain integers.
        let mut attributes: CUmemcpyAttributes = unsafe { std::mem::zeroed() };
        attributes.srcAccessOrder = match reading {
            SourceOrder::Stream => CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
            SourceOrder::Any => CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
        };
        let (mut first, mut failed) = (0, usize::MAX);
        let (sources, destinations, sizes) =
            (&batch.sources[some.clone()], &batch.destinations[some.clone()], &batch.sizes[some.clone()]);
        // SAFETY: arrays of as many that the driver only reads, and one attribute for all; the caller's promise.
        let answer = unsafe {
            function.call(
                destinations.as_ptr().cast_mut(),
                sources.as_ptr().cast_mut(),
                sizes.as_ptr().cast_mut(),
                sizes.len(),
                &mut attributes,
                &mut first,
                1,
                &mut failed,
                self.raw,
            )
        };
        let count = batch.len();
        let which = |error: Error| match sizes.get(failed) {
            Some(size) => error.context(format!(
                "copy {} of {count}: {size} bytes from {:#x} to {:#x}",
                some.start + failed,
                sources[failed],
                destinations[failed]
            )),
            None => error,
        };
        driver.check(answer, format_args!("start a batch of {count} copies")).map_err(which)
    }

    /// Starts a copy of rows.
    ///
    /// # Safety
    /// See above.
    pub unsafe fn copy_rows(&self, rows: &Rows) -> Result<()> {
        let driver = self.driver();
        let Rows { first, source_stride, destination_stride, count } = *rows;
        let asked = RawRows {
            source: RawSide::new(first.source, source_stride),
            destination: RawSide::new(first.destination, destination_stride),
            width: first.size as usize,
            height: count as usize,
        };
        // SAFETY: the description lives through the call; the caller's promise.
        let answer = unsafe { driver.api.memcpy_2d_async.call(&asked, self.raw) };
        driver.check(answer, format_args!("copy {count} rows of {} bytes", first.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_goes_in_calls_that_grow() {
        let sizes = |count, ahead| call_sizes(count, ahead).collect::<Vec<_>>();
        assert_eq!(sizes(0, EngineLoad::Idle), Vec::<usize>::new());
        assert_eq!(sizes(8, EngineLoad::Idle), [8]);
        assert_eq!(sizes(600, EngineLoad::Idle), [8, 12, 18, 27, 40, 60, 90, 128, 128, 89]);
        assert_eq!(sizes(300, EngineLoad::Busy), [128, 128, 44]);
    }
}
