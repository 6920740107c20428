// SPDX-License-Identifier: Apache-2.0
//! Streams of kvmem, and streams of callers.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::sys::{CUcontext, CUstream};

use super::codes::{INVALID_CONTEXT, NOT_READY, STREAM_CAPTURE_INVALIDATED, has_code};
use super::context::{Context, Entered};
use super::driver::Driver;
use super::ending::released;
use super::entry::CallResult;
use super::event::Event;
use super::quiet::Capture;
use crate::base::{Condvar, Error, Mutex, Result, Status, ensure, fail};

/// CU_STREAM_NON_BLOCKING: no implicit synchronisation with the legacy default stream.
const NON_BLOCKING: u32 = 1;
/// Outside the range of every device, so the driver uses the highest priority.
const HIGHEST_PRIORITY: i32 = i32::MIN;

/// A stream of kvmem. Its work has priority over other work that waits for a busy device.
pub struct Stream {
    raw: CUstream,
    context: Arc<Context>,
}

// SAFETY: any thread may use a stream while the stream's context is current on it.
unsafe impl Send for Stream {}
// SAFETY: see above; the driver synchronises its use.
unsafe impl Sync for Stream {}

impl Stream {
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        let driver = context.driver();
        let mut raw = ptr::null_mut();
        let entered = context.enter()?;
        // SAFETY: a current context; the output lives through the call.
        let result = entered.call(|| unsafe {
            driver.api.stream_create_with_priority.call(&mut raw, NON_BLOCKING, HIGHEST_PRIORITY)
        })?;
        driver.check(result, "create a stream")?;
        Ok(Self { raw, context: context.clone() })
    }

    /// The stream with its context current on this thread.
    pub fn activate(&self) -> Result<Active<'_>> {
        Ok(Active { raw: self.raw, entered: self.context.enter_unchecked()? })
    }

    pub fn is_done(&self) -> Result<bool> {
        let driver = self.context.driver();
        let entered = self.context.enter_to_end()?;
        // SAFETY: a live stream.
        let result = entered.query(|| unsafe { driver.api.stream_query.call(self.raw) })?;
        if result.code == NOT_READY {
            Ok(false)
        } else {
            driver.check_work(result, "copy blocks").map(|()| true)
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let driver = self.context.driver();
        released(self.context.free(|| {
            // SAFETY: created by this value.
            let result = unsafe { driver.api.stream_destroy.call(self.raw) };
            driver.check(result, "destroy a stream")
        }));
    }
}

/// A stream of the caller, which must exist while this value is used.
#[derive(Clone, Copy)]
pub struct CallerStream(CUstream);

const INVALIDATED_CAPTURE: &str = "the stream's capture was invalidated by an earlier call or by another thread; end it \
                                   (cuStreamEndCapture) and start another capture";

impl CallerStream {
    /// The caller's handle; 0 is the legacy default stream.
    pub fn new(handle: *mut c_void) -> Self {
        Self(handle.cast())
    }

    /// Fails unless the stream belongs to `context`. Returns its capture, if it is being captured, so that work on it becomes part of a
    /// graph instead of running.
    pub fn capture_in(&self, context: &Context) -> Result<Option<Capture>> {
        self.ensure_of(context)?;
        Ok(self.is_capturing(context)?.then(|| Capture::new(context)))
    }

    fn ensure_of(&self, context: &Context) -> Result<()> {
        let driver = context.driver();
        let mut owner: CUcontext = ptr::null_mut();
        context.ensure_alive()?;
        // SAFETY: the caller's stream exists, by contract; the output lives through the call. The special streams are those
        // of the current context, so this is queried before another context is made current.
        let result = unsafe { driver.api.stream_get_ctx.call(self.0, &mut owner) };
        driver.check(result, "get the context of the stream").map_err(|error| self.explained(error))?;
        ensure!(
            context.is(owner),
            InvalidArgument,
            "the stream does not belong to the primary context of device {}, on which the transfer runs",
            context.device().ordinal()
        );
        Ok(())
    }

    /// Adds advice if a default stream was passed while no context is current, or if a capture was invalidated.
    fn explained(&self, error: Error) -> Error {
        const PER_THREAD: usize = 2;
        let is_default = self.is_legacy() || self.0 as usize == PER_THREAD;
        if is_default && has_code(&error, &[INVALID_CONTEXT]) {
            let message = "a default stream belongs to the current context, and no context is current on this thread: make \
                           the primary context of the GPU current, or pass a stream that was created in it";
            return error.context(message).with_status(Status::InvalidArgument);
        }
        if has_code(&error, &[STREAM_CAPTURE_INVALIDATED]) {
            return error.context(INVALIDATED_CAPTURE).with_status(Status::InvalidState);
        }
        error
    }

    fn is_capturing(&self, context: &Context) -> Result<bool> {
        context.ensure_alive()?;
        // SAFETY: as above.
        unsafe { is_capturing(context.driver(), self.0) }
    }

    /// Whether it is the legacy default stream.
    pub fn is_legacy(&self) -> bool {
        matches!(self.0 as usize, 0 | 1)
    }

    /// The stream with its context current on this thread.
    pub fn activate<'a>(&self, context: &'a Context) -> Result<Active<'a>> {
        Ok(Active { raw: self.0, entered: context.enter_unchecked()? })
    }
}

/// Wakes a thread that waits for work of a device without polling. Rung once, by a host function behind the work, on the thread of the
/// driver.
#[derive(Default)]
pub struct Wake {
    is_rung: Mutex<bool>,
    changed: Condvar,
}

impl Wake {
    fn ring(&self) {
        *self.is_rung.lock() = true;
        self.changed.notify_all();
    }

    /// Waits until it is rung, or until a time.
    pub fn wait(&self, until: Instant) {
        drop(self.changed.wait_while_until(self.is_rung.lock(), Some(until), |is_rung| !*is_rung));
    }
}

/// Called by a thread of the driver. It must call no function of the driver.
unsafe extern "C" fn ring(data: *mut c_void) {
    // SAFETY: a reference that `Active::wake` has passed.
    let wake = unsafe { Arc::from_raw(data.cast_const().cast::<Wake>()) };
    wake.ring();
}

/// Whether a stream is being captured.
///
/// # Safety
/// The stream must exist, in a context that was not reset.
unsafe fn is_capturing(driver: &Driver, stream: CUstream) -> Result<bool> {
    const ACTIVE: u32 = 1;
    const INVALIDATED: u32 = 2;
    let mut state = 0;
    // SAFETY: the caller's promise; the output lives through the call.
    let result = unsafe { driver.api.stream_is_capturing.call(stream, &mut state) };
    driver.check(result, "get the capture status of the stream")?;
    if state == INVALIDATED {
        fail!(InvalidState, "{INVALIDATED_CAPTURE}");
    }
    Ok(state == ACTIVE)
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

    /// Calls a function of the driver with the stream, unless its context was reset.
    pub(super) fn call(&self, function: impl FnOnce() -> CallResult) -> Result<CallResult> {
        self.entered.call(function)
    }

    /// Whether it is being captured, also if the driver does not say: the legacy stream while another stream is captured.
    pub fn is_captured(&self) -> bool {
        // SAFETY: a live stream of a context that is current.
        unsafe { is_capturing(self.driver(), self.raw) }.unwrap_or(true)
    }

    /// Records an event: it completes when the work that is on the stream now is complete.
    pub fn record(&self, event: &Event) -> Result<()> {
        let driver = self.driver();
        // SAFETY: a live stream and event of the current context.
        let result = self.call(|| unsafe { driver.api.event_record.call(event.raw, self.raw) })?;
        driver.check(result, "record an event")
    }

    /// Wakes a thread when the work that is on the stream now has ended. Never, if the context is reset before.
    pub fn wake(&self, wake: &Arc<Wake>) -> Result<()> {
        let data = Arc::into_raw(wake.clone());
        let driver = self.driver();
        // SAFETY: a live stream of the current context. The function gets the reference of `data`.
        let called = self.call(|| unsafe {
            driver.api.launch_host_func.call(self.raw, Some(ring), data.cast_mut().cast::<c_void>())
        });
        let launched = called.and_then(|result| driver.check(result, "launch a host function"));
        launched.inspect_err(|_| {
            // SAFETY: the driver has not taken it.
            drop(unsafe { Arc::from_raw(data) });
        })
    }

    /// Makes later work on the stream wait for an event.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        let driver = self.driver();
        // SAFETY: as above.
        let result = self.call(|| unsafe { driver.api.stream_wait_event.call(self.raw, event.raw, 0) })?;
        driver.check(result, "wait for an event")
    }
}
