// SPDX-License-Identifier: Apache-2.0
//! A device's primary context: retained while an object of kvmem needs it, and current only during calls of kvmem.
//!
//! A program may reset its device. The driver then destroys the primary context with everything in it, retained or not,
//! and the next retain creates a new context with the same handle. Passing a stream, event or module of the old context to
//! the driver crashes the process, or refers to an object of the program. So each context stores the id that the driver
//! assigns to every new context, and no object is passed to the driver unless the id is unchanged: [`Entered::call`] checks
//! it directly before each such call, with no other call of the driver in between. Threads of kvmem do so while transfers
//! are in flight, so a program can reset its device at any time but one: between that check and the end of the one call
//! after it. The driver has no call that does both, so nothing can close this window.
#![allow(unsafe_code)]

use std::ptr;

use cudarc::driver::sys::CUcontext;

use super::codes::{CONTEXT_IS_DESTROYED, has_code};
use super::device::Device;
use super::driver::Driver;
use super::ending::released;
use super::entry::CallResult;
use crate::base::{Cause, Error, Result, Status};

/// A device's primary context, retained.
pub struct Context {
    device: Device,
    raw: CUcontext,
    id: u64,
}

/// Identifies a context without retaining it.
#[derive(Clone, Copy)]
pub struct ContextIdentity {
    device: Device,
    /// The handle, which is valid until the process ends.
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

/// The driver's number for a context, which is unique within the process.
fn id_of(device: Device, raw: CUcontext) -> Result<u64> {
    let driver = device.driver();
    let mut id = 0;
    // SAFETY: the handle of a primary context, which the driver also accepts after the context was destroyed; the output
    // lives through the call.
    let result = unsafe { driver.api.ctx_get_id.call(raw, &mut id) };
    driver.check(result, format_args!("identify the context of device {}", device.ordinal())).map(|()| id)
}

/// The error that the driver itself returns for a context that was destroyed and not retained again.
fn lost(device: Device) -> Error {
    let message = format!(
        "the primary context of device {} was reset or destroyed, and everything in it was destroyed with its context",
        device.ordinal()
    );
    let cause = Cause::Cuda(CONTEXT_IS_DESTROYED as i32, "CUDA_ERROR_CONTEXT_IS_DESTROYED".into());
    Error::new(Status::Cuda, message).with_cause(cause)
}

/// The same error for a call that started nothing because of it: its status is INVALID_STATE.
pub fn not_started(error: Error) -> Error {
    if is_lost(&error) { error.with_status(Status::InvalidState) } else { error }
}

/// Whether the cause of an error is a context that was reset or destroyed.
pub fn is_lost(error: &Error) -> bool {
    has_code(error, &[CONTEXT_IS_DESTROYED])
}

// SAFETY: any thread may use a context; it is made current on the thread that uses it.
unsafe impl Send for Context {}
// SAFETY: see above; the driver synchronises its use.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the primary context of a device. The first retain in a process creates it.
    pub fn retain(device: Device) -> Result<Self> {
        let driver = device.driver();
        let mut raw = ptr::null_mut();
        // SAFETY: a valid device; the output lives through the call.
        let result = unsafe { driver.api.primary_ctx_retain.call(&mut raw, device.raw()) };
        driver.check(result, format_args!("retain the primary context of device {}", device.ordinal()))?;
        let mut this = Self { device, raw, id: 0 };
        this.id = id_of(device, raw)?;
        Ok(this)
    }

    /// Retains the primary context if it exists.
    pub fn retain_existing(device: Device) -> Option<Self> {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: a valid device; the outputs live through the call.
        let result =
            unsafe { device.driver().api.primary_ctx_get_state.call(device.raw(), &mut flags, &mut active) };
        if result.is_success() && active != 0 { Self::retain(device).ok() } else { None }
    }

    pub fn device(&self) -> Device {
        self.device
    }

    pub fn driver(&self) -> &'static Driver {
        self.device.driver()
    }

    pub fn identity(&self) -> ContextIdentity {
        ContextIdentity { device: self.device, raw: self.raw as usize, id: self.id }
    }

    /// Fails if it was reset or destroyed. Then no object of it may be passed to the driver.
    pub fn ensure_alive(&self) -> Result<()> {
        self.identity().ensure_alive()
    }

    /// The driver's number for it, which is unique within the process.
    pub(super) fn number(&self) -> u64 {
        self.id
    }

    pub(super) fn raw(&self) -> CUcontext {
        self.raw
    }

    pub(super) fn is(&self, raw: CUcontext) -> bool {
        self.raw == raw
    }

    /// Enables access of kernels of this context to plain memory of another device. Succeeds if it was enabled before.
    pub(super) fn enable_access_to(&self, peer: &Self) -> Result<()> {
        const ALREADY_ENABLED: u32 = 704;
        let driver = self.driver();
        let _entered = self.enter()?;
        // SAFETY: both contexts are retained.
        let result = unsafe { driver.api.ctx_enable_peer_access.call(peer.raw, 0) };
        if result.code == ALREADY_ENABLED {
            return Ok(());
        }
        let (from, to) = (self.device.ordinal(), peer.device.ordinal());
        driver.check(result, format_args!("enable access of device {from} to memory of device {to}"))
    }

    /// Makes the context current on this thread until the guard is dropped, which restores the previous one. Fails if the
    /// context was reset.
    pub fn enter(&self) -> Result<Entered<'_>> {
        self.ensure_alive()?;
        self.enter_unchecked()
    }

    /// The same without that check, for callers whose every call is one of [`Entered::call`] or [`Entered::query`], which
    /// check it themselves. A primary context that was destroyed can be current: the driver only refuses what needs it.
    pub(super) fn enter_unchecked(&self) -> Result<Entered<'_>> {
        self.push().map_err(|error| self.ensure_alive().err().unwrap_or(error))
    }

    /// The same for the end of work, which there may be no later attempt for: tries twice.
    pub(super) fn enter_to_end(&self) -> Result<Entered<'_>> {
        self.enter_unchecked().or_else(|_| self.enter_unchecked())
    }

    fn push(&self) -> Result<Entered<'_>> {
        let driver = self.driver();
        // SAFETY: retained by this value.
        let result = unsafe { driver.api.ctx_push_current.call(self.raw) };
        driver.check(result, format_args!("make device {} current", self.device.ordinal()))?;
        let mut entered = Entered { context: self, capture_mode: None };
        entered.capture_mode = Some(exchange_capture_mode(driver, RELAXED)?);
        Ok(entered)
    }

    /// Like [`Self::enter`], for releasing resources. Tries twice, because there is no later attempt.
    pub fn enter_to_free(&self) -> Result<Entered<'_>> {
        self.enter().or_else(|_| self.enter())
    }

    /// Calls `free`, which releases a resource of the context, with the context current, directly after checking that the
    /// context was not reset. Does nothing if it was, because that has destroyed the resource.
    pub fn free(&self, free: impl FnOnce() -> Result<()>) -> Result<()> {
        let checked = self.enter_to_end().and_then(|entered| {
            self.ensure_alive().or_else(|_| self.ensure_alive())?;
            Ok(entered)
        });
        match checked {
            Err(error) if is_lost(&error) => Ok(()),
            Err(error) => Err(error),
            Ok(_entered) => free(),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let driver = self.driver();
        // Also if the context was reset: the driver still counts the earlier retains.
        // SAFETY: retained once by this value.
        let result = unsafe { driver.api.primary_ctx_release.call(self.device.raw()) };
        released(driver.check(result, "release a primary context"));
    }
}

/// CU_STREAM_CAPTURE_MODE_RELAXED: calls of this thread do not invalidate captures.
const RELAXED: u32 = 2;

/// Sets the capture mode of this thread, and returns the previous one.
fn exchange_capture_mode(driver: &Driver, mut mode: u32) -> Result<u32> {
    // SAFETY: reads and writes the one mode, of the calling thread only.
    let result = unsafe { driver.api.thread_exchange_capture_mode.call(&mut mode) };
    driver.check(result, "set the stream capture mode of this thread").map(|()| mode)
}

/// A context that is current on this thread, and the capture mode in which this thread may allocate, free and query while
/// an engine captures a graph. In any other mode each such call fails and invalidates the capture, also one of another
/// thread (observed with driver 580 for queries of events and streams, and for allocating, freeing, page-locking and
/// unlocking memory).
pub struct Entered<'a> {
    context: &'a Context,
    /// The previous mode of the thread.
    capture_mode: Option<u32>,
}

impl Entered<'_> {
    pub(super) fn driver(&self) -> &'static Driver {
        self.context.driver()
    }

    /// Calls a function of the driver with objects of the context. Fails instead if the context was reset, because the
    /// driver crashes if it is given an object that was destroyed.
    pub(super) fn call(&self, function: impl FnOnce() -> CallResult) -> Result<CallResult> {
        self.context.ensure_alive().map(|()| function())
    }

    /// The same for a query. Its result counts only if the context was not reset before it returned: a reset drops work,
    /// and a new object of the program may have the old one's address.
    pub(super) fn query(&self, function: impl FnOnce() -> CallResult) -> Result<CallResult> {
        let result = self.call(function)?;
        self.context.ensure_alive().map(|()| result)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let driver = self.context.driver();
        let restore =
            || self.capture_mode.map_or(Ok(()), |mode| exchange_capture_mode(driver, mode).map(drop));
        let restored = restore().or_else(|_| restore());
        let mut popped = ptr::null_mut();
        // SAFETY: pushed on this thread by `enter`; calls of kvmem leave the stack of contexts unchanged.
        let result = unsafe { driver.api.ctx_pop_current.call(&mut popped) };
        released(driver.check(result, "restore the current context"));
        // A third attempt without the context, which a reset may have destroyed meanwhile.
        released(restored.or_else(|_| restore()));
    }
}
