// SPDX-License-Identifier: Apache-2.0
//! Events: points in a stream that the host queries, and that other streams wait for.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUevent, CUstream};

use super::codes::{
    NOT_READY, NOT_SUPPORTED, STREAM_CAPTURE_IMPLICIT, STREAM_CAPTURE_INVALIDATED, STREAM_CAPTURE_UNSUPPORTED,
};
use super::context::Context;
use super::ending::released;
use crate::base::Result;

/// CU_EVENT_DISABLE_TIMING: timing costs, and few events need it.
const DISABLE_TIMING: u32 = 2;
/// CU_EVENT_DEFAULT.
const TIMED: u32 = 0;

/// CU_STREAM_LEGACY: the legacy default stream of the current context.
const LEGACY: CUstream = ptr::without_provenance_mut(1);

pub struct Event {
    pub(super) raw: CUevent,
    context: Arc<Context>,
}

/// What an event of a context has recorded.
pub(super) enum Recorded {
    Work,
    /// Nothing: the driver cannot.
    Unsupported,
    /// Nothing: a stream of the context is being captured.
    Captured,
}

// SAFETY: an event may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: see above; the driver guards it.
unsafe impl Sync for Event {}

impl Event {
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        Self::with(context, DISABLE_TIMING)
    }

    /// The same with timing.
    pub fn timed(context: &Arc<Context>) -> Result<Self> {
        Self::with(context, TIMED)
    }

    fn with(context: &Arc<Context>, flags: u32) -> Result<Self> {
        let driver = context.driver();
        let mut raw = ptr::null_mut();
        let entered = context.enter()?;
        // SAFETY: a current context; the output lives through the call.
        let result = entered.call(|| unsafe { driver.api.event_create.call(&mut raw, flags) })?;
        driver.check(result, "create an event")?;
        Ok(Self { raw, context: context.clone() })
    }

    /// Whether the work that preceded it on its stream is complete.
    pub fn is_done(&self) -> Result<bool> {
        let driver = self.context.driver();
        let entered = self.context.enter_to_end()?;
        // SAFETY: a live event.
        let result = entered.query(|| unsafe { driver.api.event_query.call(self.raw) })?;
        if result.code == NOT_READY {
            Ok(false)
        } else {
            driver.check_work(result, "copy blocks").map(|()| true)
        }
    }

    /// Records all work that was submitted to the context. Drivers before CUDA 12.5 cannot.
    pub(super) fn record_context(&self) -> Result<Recorded> {
        let driver = self.context.driver();
        let Some(record) = driver.api.ctx_record_event else { return Ok(Recorded::Unsupported) };
        let entered = self.context.enter()?;
        let mut state = 0;
        // SAFETY: a stream of the current context; the output lives through the call.
        let legacy = entered.call(|| unsafe { driver.api.stream_is_capturing.call(LEGACY, &mut state) })?;
        // Reported while a blocking stream is being captured, which this query does not invalidate.
        if legacy.code == STREAM_CAPTURE_IMPLICIT {
            return Ok(Recorded::Captured);
        }
        // SAFETY: a live event of the current context.
        let result = entered.call(|| unsafe { record.call(self.context.raw(), self.raw) })?;
        match result.code {
            // The latter after a capture that was invalidated before, and has not ended yet.
            STREAM_CAPTURE_UNSUPPORTED | STREAM_CAPTURE_INVALIDATED => Ok(Recorded::Captured),
            NOT_SUPPORTED => Ok(Recorded::Unsupported),
            _ => driver.check(result, "record the work of a context").map(|()| Recorded::Work),
        }
    }

    /// Seconds since another event, by the device's clock. Both must have timing and be complete.
    pub fn seconds_since(&self, earlier: &Self) -> Result<f64> {
        let driver = self.context.driver();
        let mut milliseconds = 0.0;
        let entered = self.context.enter()?;
        // SAFETY: live events of one context; the output lives through the call.
        let result = entered.query(|| unsafe {
            driver.api.event_elapsed_time.call(&mut milliseconds, earlier.raw, self.raw)
        })?;
        driver.check(result, "get the time between two events").map(|()| f64::from(milliseconds) * 1e-3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let driver = self.context.driver();
        released(self.context.free(|| {
            // SAFETY: created by this value.
            let result = unsafe { driver.api.event_destroy.call(self.raw) };
            driver.check(result, "destroy an event")
        }));
    }
}
