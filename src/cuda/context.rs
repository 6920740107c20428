// SPDX-License-Identifier: Apache-2.0
//! A device's primary context: retained while something of ours needs it, current only inside our calls.
//!
//! A program may reset its device: the driver then destroys the primary context with everything in it, whatever is
//! retained. The next retain makes a new context with the same handle. A stream, event or module of the old context that
//! is passed to the driver then crashes the process, or names an object of the program's. So every context keeps the id
//! that the driver gives each new one, and nothing is passed to the driver unless the id is still the same. The check and
//! the call after it are not one step: a reset must not run concurrently with calls of this library.

use std::ptr;

use cudarc::driver::sys::CUcontext;

use super::codes::{CONTEXT_IS_DESTROYED, has_code};
use super::device::Device;
use super::driver::Driver;
use crate::error::{Cause, Error, Result, Status};
use crate::log::log;

/// A device's primary context, retained.
pub struct Context {
    device: Device,
    raw: CUcontext,
    id: u64,
}

/// Which context something belongs to, without retaining it.
#[derive(Clone, Copy)]
pub struct ContextIdentity {
    device: Device,
    /// The handle, which the driver knows until the process ends.
    raw: usize,
    id: u64,
}

impl PartialEq for ContextIdentity {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl ContextIdentity {
    /// Fails if the context was reset or destroyed.
    pub fn ensure_alive(&self) -> Result<()> {
        match id_of(self.device, self.raw as CUcontext) {
            Ok(id) if id == self.id => Ok(()),
            Ok(_) => Err(lost(self.device)),
            Err(error) if has_code(&error, &[CONTEXT_IS_DESTROYED]) => Err(lost(self.device)),
            Err(error) => Err(error),
        }
    }
}

/// The driver's number for a context: no other of this process has had it or will have it.
fn id_of(device: Device, raw: CUcontext) -> Result<u64> {
    let driver = device.driver();
    let mut id = 0;
    // SAFETY: the handle of a primary context, of which the driver also knows when it was destroyed; the output lives
    // through the call.
    let answer = unsafe { driver.api.ctx_get_id.call(raw, &mut id) };
    driver.check(answer, format_args!("identify the context of device {}", device.ordinal())).map(|()| id)
}

/// The same error as the driver's own for a context that was destroyed and not retained again.
fn lost(device: Device) -> Error {
    let message = format!(
        "the primary context of device {} was reset or destroyed, and what belonged to it went with its context",
        device.ordinal()
    );
    let cause = Cause::Cuda(CONTEXT_IS_DESTROYED as i32, "CUDA_ERROR_CONTEXT_IS_DESTROYED".into());
    Error::new(Status::Cuda, message).with_cause(cause)
}

/// The same error where nothing was started because of it.
pub fn not_started(error: Error) -> Error {
    if is_lost(&error) { error.with_status(Status::InvalidState) } else { error }
}

/// Whether an error says that a context was reset or destroyed.
pub fn is_lost(error: &Error) -> bool {
    has_code(error, &[CONTEXT_IS_DESTROYED])
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
        let mut this = Self { device, raw, id: 0 };
        this.id = id_of(device, raw)?;
        Ok(this)
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

    /// Which context it is.
    pub fn identity(&self) -> ContextIdentity {
        ContextIdentity { device: self.device, raw: self.raw as usize, id: self.id }
    }

    /// Fails if it was reset or destroyed: then nothing of it may be passed to the driver.
    pub fn ensure_alive(&self) -> Result<()> {
        self.identity().ensure_alive()
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

    /// Makes the context current on this thread until the guard is dropped; then what was current is again. Fails if the
    /// context was reset.
    pub fn enter(&self) -> Result<Entered<'_>> {
        self.ensure_alive()?;
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

    /// Has `free` give something of the context back to the driver. What a reset has destroyed needs no more of that.
    pub fn free(&self, free: impl FnOnce() -> Result<()>) -> Result<()> {
        match self.enter_to_free() {
            Err(error) if is_lost(&error) => Ok(()),
            Err(error) => Err(error),
            Ok(_entered) => free(),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let driver = self.driver();
        // Also of a context that was reset: the driver goes on counting what was retained before.
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
