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
    pub fn enable_access_to(&self, peer: &Self) -> Result<()> {
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
        Ok(Entered(self))
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

/// A context that is current on this thread.
pub struct Entered<'a>(&'a Context);

impl Entered<'_> {
    pub(super) fn driver(&self) -> &'static Driver {
        self.0.driver()
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let driver = self.0.driver();
        let mut popped = ptr::null_mut();
        // SAFETY: pushed on this thread by `enter`; calls of ours leave the stack as they found it.
        let answer = unsafe { driver.api.ctx_pop_current.call(&mut popped) };
        if let Err(error) = driver.check(answer, "restore the current context") {
            log!(Error, "{error}");
        }
    }
}
