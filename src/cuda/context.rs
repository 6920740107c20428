// SPDX-License-Identifier: Apache-2.0
//! A device's primary context: retained while something of ours needs it, current only inside our calls.

use std::ptr;

use cudarc::driver::sys::CUcontext;

use super::device::Device;
use super::driver::Driver;
use crate::error::Result;
use crate::log::log;

/// A device's primary context, retained.
pub struct Context {
    device: Device,
    raw: CUcontext,
}

// SAFETY: a context may be used from any thread; it is pushed on the thread that uses it.
unsafe impl Send for Context {}
// SAFETY: see above; the driver guards it.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the primary context of a device. The first to do so in a process creates it.
    pub fn retain(device: Device) -> Result<Self> {
        let driver = device.driver();
        let mut raw = ptr::null_mut();
        // SAFETY: a valid device; the output lives through the call.
        let answer = unsafe { driver.api.primary_ctx_retain.call(&mut raw, device.raw()) };
        driver.check(answer, format_args!("retain the primary context of device {}", device.ordinal()))?;
        Ok(Self { device, raw })
    }

    /// The same where the context is there already: makes none.
    pub fn retain_existing(device: Device) -> Option<Self> {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: a valid device; the outputs live through the call.
        let answer =
            unsafe { device.driver().api.primary_ctx_get_state.call(device.raw(), &mut flags, &mut active) };
        if answer.is_success() && active != 0 { Self::retain(device).ok() } else { None }
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The driver.
    pub fn driver(&self) -> &'static Driver {
        self.device.driver()
    }

    /// Whether it is this context of the driver's.
    pub(super) fn is(&self, raw: CUcontext) -> bool {
        self.raw == raw
    }

    /// Lets kernels here reach plain memory of another device, from now on. What others may have done before is fine.
    pub(super) fn enable_access_to(&self, peer: &Self) -> Result<()> {
        const ALREADY_ENABLED: u32 = 704;
        let driver = self.driver();
        let _entered = self.enter()?;
        // SAFETY: both contexts are retained.
        let answer = unsafe { driver.api.ctx_enable_peer_access.call(peer.raw, 0) };
        if answer.code == ALREADY_ENABLED {
            return Ok(());
        }
        let (from, to) = (self.device.ordinal(), peer.device.ordinal());
        driver.check(answer, format_args!("let device {from} reach memory of device {to}"))
    }

    /// Makes the context current on this thread until the guard is dropped; then what was current is again.
    pub fn enter(&self) -> Result<Entered<'_>> {
        let driver = self.driver();
        // SAFETY: retained by this value.
        let answer = unsafe { driver.api.ctx_push_current.call(self.raw) };
        driver.check(answer, format_args!("make device {} current", self.device.ordinal()))?;
        let mut entered = Entered { context: self, capture_mode: None };
        entered.capture_mode = Some(exchange_capture_mode(driver, RELAXED)?);
        Ok(entered)
    }

    /// The same on the way out: tried again once, for what is not given back now never is.
    pub fn enter_to_free(&self) -> Result<Entered<'_>> {
        self.enter().or_else(|_| self.enter())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let driver = self.driver();
        // SAFETY: retained once by this value.
        let answer = unsafe { driver.api.primary_ctx_release.call(self.device.raw()) };
        if let Err(error) = driver.check(answer, "release a primary context") {
            log!(Warn, "{error}");
        }
    }
}

/// Of `CUstreamCaptureMode`: captures of streams are not disturbed by what this thread does.
const RELAXED: u32 = 2;

/// Answers the mode that this thread had.
fn exchange_capture_mode(driver: &Driver, mut mode: u32) -> Result<u32> {
    // SAFETY: reads and writes the one mode, of the calling thread only.
    let answer = unsafe { driver.api.thread_exchange_capture_mode.call(&mut mode) };
    driver.check(answer, "set what this thread may do while streams are captured").map(|()| mode)
}

/// A context that is current on this thread, and a thread that may allocate, free and query meanwhile though an engine
/// captures a graph: in any other mode each such call fails, and ends the capture in failure, also one of another
/// thread (seen with driver 580: events and streams queried, memory allocated, freed, page-locked and unlocked).
pub struct Entered<'a> {
    context: &'a Context,
    /// What the thread had before.
    capture_mode: Option<u32>,
}

impl Entered<'_> {
    pub(super) fn driver(&self) -> &'static Driver {
        self.context.driver()
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let driver = self.context.driver();
        if let Some(mode) = self.capture_mode {
            let restore = || exchange_capture_mode(driver, mode);
            if let Err(error) = restore().or_else(|_| restore()) {
                log!(Error, "{error}");
            }
        }
        let mut popped = ptr::null_mut();
        // SAFETY: pushed on this thread by `enter`; calls of ours leave the stack as they found it.
        let answer = unsafe { driver.api.ctx_pop_current.call(&mut popped) };
        if let Err(error) = driver.check(answer, "restore the current context") {
            log!(Error, "{error}");
        }
    }
}
