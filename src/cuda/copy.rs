// SPDX-License-Identifier: Apache-2.0
//! Copies by the driver: one per call, many per call, and rows at regular strides.
#![allow(unsafe_code)]

use std::ops::Range;

use cudarc::driver::sys::{CUmemcpyAttributes, CUmemcpySrcAccessOrder};

use super::driver_structs::{RawRows, RawSide};
use super::stream::Active;
use crate::base::{Error, Result, fail, lists};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    pub source: u64,
    pub destination: u64,
    pub size: u64,
}

/// Copies in the form of the driver's batch call.
#[derive(Default)]
pub struct Batch {
    sources: Vec<u64>,
    destinations: Vec<u64>,
    sizes: Vec<usize>,
}

impl Batch {
    /// An empty batch with a capacity. Fails if there is no memory for it.
    pub fn with_capacity(capacity: usize) -> Result<Self> {
        let mut batch = Self::default();
        batch.reserve(capacity)?;
        Ok(batch)
    }

    pub fn new(copies: impl ExactSizeIterator<Item = Copy>) -> Result<Self> {
        let mut batch = Self::with_capacity(copies.len())?;
        for copy in copies {
            batch.push(copy)?;
        }
        Ok(batch)
    }

    /// Adds a copy. Fails if there is no memory for it.
    pub fn push(&mut self, copy: Copy) -> Result<()> {
        if self.has_to_grow() {
            self.reserve(1)?;
        }
        self.sources.push(copy.source);
        self.destinations.push(copy.destination);
        self.sizes.push(copy.size as usize);
        Ok(())
    }

    /// Whether one of the lists is full: their capacities may differ.
    fn has_to_grow(&self) -> bool {
        let least = self.sources.capacity().min(self.destinations.capacity()).min(self.sizes.capacity());
        self.sizes.len() == least
    }

    #[cold]
    fn reserve(&mut self, more: usize) -> Result<()> {
        lists::reserve(&mut self.sources, more)?;
        lists::reserve(&mut self.destinations, more)?;
        lists::reserve(&mut self.sizes, more)
    }

    /// Removes all copies, and keeps the capacity.
    pub fn clear(&mut self) {
        self.sources.clear();
        self.destinations.clear();
        self.sizes.clear();
    }

    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there are no copies.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// The copies, in order.
    pub fn copies(&self) -> impl Iterator<Item = Copy> + '_ {
        let ends = self.sources.iter().zip(&self.destinations);
        ends.zip(&self.sizes).map(|((source, destination), size)| Copy {
            source: *source,
            destination: *destination,
            size: *size as u64,
        })
    }
}

/// When the driver may read the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceOrder {
    /// In stream order: earlier work on the stream may write the source.
    Stream,
    /// At any time, because the source is complete. Only for host memory.
    Any,
}

/// Rows of equal size at regular strides on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The first row.
    pub first: Copy,
    /// Bytes from a row to the next in the source.
    pub source_stride: u64,
    /// Bytes from a row to the next in the destination.
    pub destination_stride: u64,
    pub count: u64,
}

/// Whether the copy engine has work when a batch is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineLoad {
    /// It has none: it starts when the driver's call returns, so the first calls are short.
    Idle,
    /// It has copies that take longer than the call.
    Busy,
}

/// Copies in the first call of a batch while the copy engine is idle.
pub const FIRST_CALL: usize = 8;
/// The maximum number of copies per call.
pub const FULL_CALL: usize = 128;

/// The number of copies of a batch in each call. Calls with thousands of copies are far slower per copy. Each call should
/// return before the copies of the earlier calls complete, so the calls grow no faster than the queued work.
pub fn call_sizes(copies: usize, ahead: EngineLoad) -> impl Iterator<Item = usize> {
    equal_calls(copies, ahead).flat_map(|(size, calls)| std::iter::repeat_n(size, calls))
}

/// The same as the number of copies, and the number of consecutive calls with so many.
pub fn equal_calls(mut left: usize, ahead: EngineLoad) -> impl Iterator<Item = (usize, usize)> {
    let mut most = if ahead == EngineLoad::Busy { FULL_CALL } else { FIRST_CALL };
    std::iter::from_fn(move || {
        let size = left.min(most);
        let calls = if size == FULL_CALL { left / FULL_CALL } else { 1 };
        (left, most) = (left - size * calls, (most + most / 2).min(FULL_CALL));
        (size > 0).then_some((size, calls))
    })
}

/// The memory ranges of all calls below must be valid until the stream is idle, also after a failure, because copies that
/// were started continue.
impl Active<'_> {
    /// Starts one copy between any two of host and device memory.
    ///
    /// # Safety
    /// See above.
    pub unsafe fn copy(&self, copy: Copy) -> Result<()> {
        let driver = self.driver();
        let Copy { source, destination, size } = copy;
        // SAFETY: the caller's promise.
        let result = self
            .call(|| unsafe { driver.api.memcpy_async.call(destination, source, size as usize, self.raw) })?;
        driver.check(result, format_args!("copy {size} bytes from {source:#x} to {destination:#x}"))
    }

    /// Starts setting bytes of device memory to 0.
    ///
    /// # Safety
    /// See above.
    pub unsafe fn clear(&self, address: u64, size: u64) -> Result<()> {
        let driver = self.driver();
        // SAFETY: the caller's promise.
        let result =
            self.call(|| unsafe { driver.api.memset_d8_async.call(address, 0, size as usize, self.raw) })?;
        driver.check(result, format_args!("clear {size} bytes at {address:#x}"))
    }

    /// Starts all copies, in any order; not on the legacy default stream. Uses batch calls if the driver supports them and
    /// there are several copies, and one call per copy otherwise.
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

    /// Starts all copies with one call each, on any stream.
    ///
    /// # Safety
    /// See above.
    pub unsafe fn copy_each(&self, batch: &Batch) -> Result<()> {
        // SAFETY: the caller's promise.
        batch.copies().try_for_each(|copy| unsafe { self.copy(copy) })
    }

    /// Starts all copies with batch calls, in any order; not on the legacy default stream. The driver must support such
    /// calls.
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

    /// Starts some copies with one call.
    unsafe fn copy_some(&self, batch: &Batch, some: Range<usize>, reading: SourceOrder) -> Result<()> {
        let driver = self.driver();
        let Some(function) = driver.api.memcpy_batch_async else {
            fail!(
                UnavailableCuda,
                "the CUDA driver has no cuMemcpyBatchAsync: update it to CUDA 12.8 or newer"
            );
        };
        // SAFETY: plain integers, for which zero is a valid value.
        let mut attributes: CUmemcpyAttributes = unsafe { std::mem::zeroed() };
        attributes.srcAccessOrder = match reading {
            SourceOrder::Stream => CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
            SourceOrder::Any => CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
        };
        let (mut first, mut failed) = (0, usize::MAX);
        let (sources, destinations, sizes) =
            (&batch.sources[some.clone()], &batch.destinations[some.clone()], &batch.sizes[some.clone()]);
        // SAFETY: arrays of equal length that the driver only reads, and one attribute for all; the caller's promise.
        let result = self.call(|| unsafe {
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
        })?;
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
        driver.check(result, format_args!("start a batch of {count} copies")).map_err(which)
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
        let result = self.call(|| unsafe { driver.api.memcpy_2d_async.call(&asked, self.raw) })?;
        driver.check(result, format_args!("copy {count} rows of {} bytes", first.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_submitted_in_calls_of_growing_size() {
        let sizes = |count, ahead| call_sizes(count, ahead).collect::<Vec<_>>();
        assert_eq!(sizes(0, EngineLoad::Idle), Vec::<usize>::new());
        assert_eq!(sizes(8, EngineLoad::Idle), [8]);
        assert_eq!(sizes(600, EngineLoad::Idle), [8, 12, 18, 27, 40, 60, 90, 128, 128, 89]);
        assert_eq!(sizes(300, EngineLoad::Busy), [128, 128, 44]);
        assert_eq!(equal_calls(300, EngineLoad::Busy).collect::<Vec<_>>(), [(128, 2), (44, 1)]);
    }
}
