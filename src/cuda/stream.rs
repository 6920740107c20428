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

    /// Starts copies of (source, destination, size) between any two of host and device memory.
    ///
    /// # Safety
    /// All spans must be memory of this process, and stay so until [`Stream::is_done`] has answered `true` or an
    /// error, also after a failure here: what was started goes on.
    pub unsafe fn copy_all(&self, copies: impl Iterator<Item = (u64, u64, u64)>) -> Result<()> {
        let driver = self.context.driver();
        let _entered = self.context.enter()?;
        for (source, destination, size) in copies {
            // SAFETY: the caller's promise.
            let code = unsafe { (driver.api.memcpy_async)(destination, source, size as usize, self.raw) };
            driver.check(code, format_args!("copy {size} bytes from {source:#x} to {destination:#x}"))?;
        }
        Ok(())
    }

    /// Whether everything started on it is over.
    pub fn is_done(&self) -> Result<bool> {
        const NOT_READY: u32 = 600;
        let driver = self.context.driver();
        let _entered = self.context.enter_to_free()?;
        // SAFETY: a live stream.
        let code = unsafe { (driver.api.stream_query)(self.raw) };
        if code == NOT_READY { Ok(false) } else { driver.check(code, "copy blocks").map(|()| true) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let driver = self.context.driver();
        let destroyed = self.context.enter_to_free().and_then(|_entered| {
            // SAFETY: made by this value.
            let code = unsafe { (driver.api.stream_destroy)(self.raw) };
            driver.check(code, "destroy a stream")
        });
        if let Err(error) = destroyed {
            log!(Warn, "{error}");
        }
    }
}
