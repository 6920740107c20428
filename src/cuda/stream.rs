// SPDX-License-Identifier: Apache-2.0
//! Streams of the library's own.

use cudarc::driver::sys::CUstream;

use super::context::Context;
use crate::error::Result;
use crate::log::log;

/// CU_STREAM_NON_BLOCKING: it does not wait for the legacy default stream.
const NON_BLOCKING: u32 = 1;

/// A stream.
pub struct Stream {
    raw: CUstream,
    context: Context,
}

// SAFETY: a stream may be used from any thread whose current context is its own.
unsafe impl Send for Stream {}
// SAFETY: see above; the driver guards it.
unsafe impl Sync for Stream {}

impl Stream {
    /// Makes a stream in a context.
    pub fn new(context: Context) -> Result<Self> {
        let driver = context.driver();
        let mut raw = std::ptr::null_mut();
        {
            let _entered = context.enter()?;
            // SAFETY: a current context; the output lives through the call.
            let code = unsafe { (driver.api.stream_create)(&mut raw, NON_BLOCKING) };
            driver.check(code, "make a stream")?;
        }
        Ok(Self { raw, context })
    }

    /// Starts a copy between any two of host and device memory.
    ///
    /// # Safety
    /// Both spans must be memory of this process, and stay so until [`Stream::synchronize`] returns.
    pub unsafe fn copy(&self, source: u64, destination: u64, size: u64) -> Result<()> {
        let driver = self.context.driver();
        let _entered = self.context.enter()?;
        // SAFETY: the caller's promise.
        let code = unsafe { (driver.api.memcpy_async)(destination, source, size as usize, self.raw) };
        driver.check(code, format_args!("copy {size} bytes from {source:#x} to {destination:#x}"))
    }

    /// Waits for everything started on it.
    pub fn synchronize(&self) -> Result<()> {
        let driver = self.context.driver();
        let _entered = self.context.enter()?;
        // SAFETY: a live stream.
        let code = unsafe { (driver.api.stream_synchronize)(self.raw) };
        driver.check(code, "wait for copies")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let driver = self.context.driver();
        let destroyed = self.context.enter().and_then(|_entered| {
            // SAFETY: made by this value.
            let code = unsafe { (driver.api.stream_destroy)(self.raw) };
            driver.check(code, "destroy a stream")
        });
        if let Err(error) = destroyed {
            log!(Warn, "{error}");
        }
    }
}
