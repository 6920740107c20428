// SPDX-License-Identifier: Apache-2.0
//! Streams: the library's own, and those of callers.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{CUcontext, CUstream};

use super::codes::{INVALID_CONTEXT, NOT_READY, STREAM_CAPTURE_INVALIDATED, has_code};
use super::context::{Context, Entered};
use super::driver::Driver;
use super::event::Event;
use crate::error::{Error, Result, Status, ensure, fail};
use crate::log::log;

/// CU_STREAM_NON_BLOCKING: it does not wait for the legacy default stream.
const NON_BLOCKING: u32 = 1;
/// Beyond what any device has: the driver takes the highest.
const HIGHEST_PRIORITY: i32 = i32::MIN;

/// A stream of the library's own. What runs on it gets onto a busy device before what else waits there.
pub struct Stream {
    raw: CUstream,
    context: Arc<Context>,
}

// SAFETY: a stream may be used from any thread whose current context is its own.
unsafe impl Send for Stream {}
// SAFETY: see above; the driver guards it.
unsafe impl Sync for Stream {}

impl Stream {
    /// Makes a stream in a context.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        let driver = context.driver();
        let mut raw = std::ptr::null_mut();
        let _entered = context.enter()?;
        // SAFETY: a current context; the output lives through the call.
        let answer =
            unsafe { driver.api.stream_create_with_priority.call(&mut raw, NON_BLOCKING, HIGHEST_PRIORITY) };
        driver.check(answer, "make a stream")?;
        Ok(Self { raw, context: context.clone() })
    }

    /// The stream with its context current on this thread.
    pub fn activate(&self) -> Result<Active<'_>> {
        Ok(Active { raw: self.raw, entered: self.context.enter()? })
    }

    /// Whether everything started on it is over.
    pub fn is_done(&self) -> Result<bool> {
        let driver = self.context.driver();
        let _entered = self.context.enter_to_free()?;
        // SAFETY: a live stream.
        let answer = unsafe { driver.api.stream_query.call(self.raw) };
        if answer.code == NOT_READY {
            Ok(false)
        } else {
            driver.check_work(answer, "copy blocks").map(|()| true)
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let driver = self.context.driver();
        let destroyed = self.context.free(|| {
            // SAFETY: made by this value.
            let answer = unsafe { driver.api.stream_destroy.call(self.raw) };
            driver.check(answer, "destroy a stream")
        });
        if let Err(error) = destroyed {
            log!(Warn, "{error}");
        }
    }
}

/// A stream of a caller's, who keeps it alive.
#[derive(Clone, Copy)]
pub struct CallerStream(CUstream);

const INVALIDATED_CAPTURE: &str = "the stream's capture was invalidated by a call before this one; end it \
                                   (cuStreamEndCapture) and capture anew";

impl CallerStream {
    /// The caller's handle; 0 is the legacy default stream.
    pub fn new(handle: *mut c_void) -> Self {
        Self(handle.cast())
    }

    /// Refuses a stream of another context than `context`.
    pub fn ensure_of(&self, context: &Context) -> Result<()> {
        let driver = context.driver();
        let mut owner: CUcontext = std::ptr::null_mut();
        // SAFETY: the caller's stream is alive, by contract; the output lives through the call. The special streams
        // are those of the current context, so this is asked before another one is made current.
        let answer = unsafe { driver.api.stream_get_ctx.call(self.0, &mut owner) };
        driver.check(answer, "ask whose the stream is").map_err(|error| self.explained(error))?;
        ensure!(
            context.is(owner),
            InvalidArgument,
            "the stream is not of the primary context of device {}, on which the transfer runs",
            context.device().ordinal()
        );
        Ok(())
    }

    /// With what to do where a default stream is named and no context is current, or a capture was invalidated.
    fn explained(&self, error: Error) -> Error {
        const PER_THREAD: usize = 2;
        let is_default = self.is_legacy() || self.0 as usize == PER_THREAD;
        if is_default && has_code(&error, &[INVALID_CONTEXT]) {
            let message = "a default stream is the current context's, and none is current on this thread: make the \
                           primary context of the GPU current, or pass a stream that was created in it";
            return error.context(message).with_status(Status::InvalidArgument);
        }
        if has_code(&error, &[STREAM_CAPTURE_INVALIDATED]) {
            return error.context(INVALIDATED_CAPTURE).with_status(Status::InvalidState);
        }
        error
    }

    /// Whether what is put on it goes into a graph instead of running.
    pub fn is_capturing(&self, context: &Context) -> Result<bool> {
        const ACTIVE: u32 = 1;
        const INVALIDATED: u32 = 2;
        let driver = context.driver();
        let mut state = 0;
        // SAFETY: as above.
        let answer = unsafe { driver.api.stream_is_capturing.call(self.0, &mut state) };
        driver.check(answer, "ask whether the stream is captured")?;
        if state == INVALIDATED {
            fail!(InvalidState, "{INVALIDATED_CAPTURE}");
        }
        Ok(state == ACTIVE)
    }

    /// Whether it is the legacy default stream.
    pub fn is_legacy(&self) -> bool {
        matches!(self.0 as usize, 0 | 1)
    }

    /// The stream with its context current on this thread.
    pub fn activate<'a>(&self, context: &'a Context) -> Result<Active<'a>> {
        Ok(Active { raw: self.0, entered: context.enter()? })
    }
}

/// A stream whose context is current on this thread.
pub struct Active<'a> {
    pub(super) raw: CUstream,
    entered: Entered<'a>,
}

impl Active<'_> {
    pub(super) fn driver(&self) -> &'static Driver {
        self.entered.driver()
    }

    /// Lets an event happen when all that is on the stream now is over.
    pub fn record(&self, event: &Event) -> Result<()> {
        let driver = self.driver();
        // SAFETY: a live stream and event of the current context.
        let answer = unsafe { driver.api.event_record.call(event.raw, self.raw) };
        driver.check(answer, "record an event")
    }

    /// Has what comes later on the stream wait for an event.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        let driver = self.driver();
        // SAFETY: as above.
        let answer = unsafe { driver.api.stream_wait_event.call(self.raw, event.raw, 0) };
        driver.check(answer, "wait for an event")
    }
}
