// SPDX-License-Identifier: Apache-2.0
//! Page-locking host memory, so that devices reach it by DMA.

use std::ffi::c_void;

use super::context::Context;
use crate::error::{Result, fail};
use crate::log::log;

/// CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP: for every context, and mapped.
const PORTABLE_AND_MAPPED: u32 = 1 | 2;

/// A range of host memory that is page-locked, chunk by chunk.
pub struct PageLock {
    context: Context,
    chunks: Vec<usize>,
}

impl PageLock {
    /// Page-locks `size` bytes at `address` in chunks of at most `chunk` bytes: some drivers refuse one of half a TB.
    /// `prepare` is called with offset and length before each chunk. `go_on` is asked after each chunk with the bytes
    /// done; a no takes everything back.
    pub fn new(
        context: Context,
        address: usize,
        size: usize,
        chunk: usize,
        mut prepare: impl FnMut(usize, usize) -> Result<()>,
        mut go_on: impl FnMut(u64) -> bool,
    ) -> Result<Self> {
        let mut this = Self { context, chunks: Vec::new() };
        for offset in (0..size).step_by(chunk.max(1)) {
            let length = chunk.min(size - offset);
            prepare(offset, length)?;
            this.lock(address + offset, length)?;
            if !go_on((offset + length) as u64) {
                fail!(Cancelled, "page-locking was cancelled after {} of {size} bytes", offset + length);
            }
        }
        Ok(this)
    }

    fn lock(&mut self, address: usize, length: usize) -> Result<()> {
        let driver = self.context.driver();
        let _entered = self.context.enter()?;
        // SAFETY: mapped memory of the caller's of this file; it stays mapped until this value is dropped.
        let code =
            unsafe { (driver.api.mem_host_register)(address as *mut c_void, length, PORTABLE_AND_MAPPED) };
        driver.check(code, format_args!("page-lock {length} bytes at {address:#x}"))?;
        self.chunks.push(address);
        Ok(())
    }
}

impl Drop for PageLock {
    fn drop(&mut self) {
        let driver = self.context.driver();
        let Ok(_entered) = self.context.enter().inspect_err(|error| log!(Error, "{error}")) else { return };
        for address in self.chunks.drain(..) {
            // SAFETY: registered by this value.
            let code = unsafe { (driver.api.mem_host_unregister)(address as *mut c_void) };
            if let Err(error) = driver.check(code, format_args!("release the page lock at {address:#x}")) {
                log!(Error, "{error}");
            }
        }
    }
}
