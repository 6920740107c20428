// SPDX-License-Identifier: Apache-2.0
//! The boundary to C: converts failures and panics into a status and an error.

use std::any::type_name;

use crate::base::log::{Level, enabled};
use crate::base::{Error, Gauge, Result, Status, guarded};
use crate::ffi::common::call_log;
use crate::ffi::common::error::{Failure, kvmem_error};
use crate::ffi::common::handle::{Handle, Opaque, Out, new_handle, unusable, usable};
use crate::ffi::common::pointer::out;
use crate::ffi::common::scope::Scope;
use crate::ffi::common::status::{KVMEM_STATUS_OK, kvmem_status};

/// Number of calls that have failed, by the negative value of their status.
pub static FAILED: [Gauge; 1 + (Status::Panic as i32).unsigned_abs() as usize] =
    [const { Gauge::new() }; 1 + (Status::Panic as i32).unsigned_abs() as usize];

/// Number of waits whose timeout has elapsed. They are no failures.
pub static ELAPSED: Gauge = Gauge::new();

/// Runs the body of a C function that returns KVMEM_STATUS_OK or an error.
///
/// # Safety
/// `error` must be NULL or writable.
pub unsafe fn call<'a, F>(error: *mut *mut kvmem_error, body: F) -> kvmem_status
where
    F: FnOnce(&Scope<'a>) -> Result<()>,
{
    // SAFETY: the caller's promise.
    unsafe { run_in_scope(type_name::<F>(), error, |scope| body(scope).map(|()| KVMEM_STATUS_OK)) }
}

/// Like [`call`], and writes what the body returns to an output parameter of this name, which is checked before.
///
/// # Safety
/// `error` and `slot` must be NULL or writable.
pub unsafe fn call_out<'a, T, F>(
    error: *mut *mut kvmem_error,
    (slot, name): (*mut T, &str),
    body: F,
) -> kvmem_status
where
    F: FnOnce(&Scope<'a>) -> Result<T>,
{
    // SAFETY: the caller's promise.
    let run = |scope: &Scope<'a>| unsafe {
        out(slot, name)?.write(body(scope)?);
        Ok(KVMEM_STATUS_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { run_in_scope(type_name::<F>(), error, run) }
}

/// The same for a handle that the call creates.
///
/// # Safety
/// `error` and `slot` must be NULL or writable.
pub unsafe fn call_new<'a, T: Opaque, F>(
    error: *mut *mut kvmem_error,
    (slot, name): (*mut *mut T, &str),
    body: F,
) -> kvmem_status
where
    F: FnOnce(&Scope<'a>) -> Result<T::Value>,
{
    let run = |scope: &Scope<'a>| {
        // SAFETY: the caller's promise.
        let slot = unsafe { Out::new(slot, name) }?;
        slot.set(body(scope)?);
        Ok(KVMEM_STATUS_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { run_in_scope(type_name::<F>(), error, run) }
}

/// Like [`call`], for a frequent call on one handle: recording handles takes longer than the rest of it.
///
/// # Safety
/// `error` must be NULL or writable, `pointer` NULL or a handle of ours.
#[inline]
pub unsafe fn call_on<'a, T: Opaque, F>(
    pointer: *const T,
    error: *mut *mut kvmem_error,
    body: F,
) -> kvmem_status
where
    F: FnOnce(&'a T::Value) -> Result<()>,
{
    // SAFETY: the caller's promise.
    unsafe { run_on(type_name::<F>(), pointer, error, |value| body(value).map(|()| KVMEM_STATUS_OK)) }
}

/// Like [`call_status`] on one handle that usually meets a condition with which nothing is left to do. The condition is checked
/// without a guard, so `is_met` must not panic.
///
/// # Safety
/// `error` must be NULL or writable, `pointer` NULL or a handle of ours.
#[inline]
pub unsafe fn call_unless<'a, T: Opaque, F>(
    pointer: *const T,
    error: *mut *mut kvmem_error,
    is_met: impl FnOnce(&T::Value) -> bool,
    body: F,
) -> kvmem_status
where
    F: FnOnce(&'a T::Value) -> Result<kvmem_status>,
{
    // SAFETY: the caller's promise. A call that is to be logged is not short.
    if !enabled(Level::Trace) && unsafe { usable(pointer) }.is_some_and(|handle| is_met(handle.value())) {
        return KVMEM_STATUS_OK;
    }
    // SAFETY: the caller's promise.
    unsafe { run_unmet(type_name::<F>(), pointer, error, body) }
}

/// Not inlined, because it saves registers that the check of a condition does not use.
///
/// # Safety
/// As for [`run_on`].
#[inline(never)]
unsafe fn run_unmet<'a, T: Opaque>(
    body_name: &'static str,
    pointer: *const T,
    error: *mut *mut kvmem_error,
    body: impl FnOnce(&'a T::Value) -> Result<kvmem_status>,
) -> kvmem_status {
    // SAFETY: the caller's promise.
    unsafe { run_on(body_name, pointer, error, body) }
}

/// # Safety
/// `error` must be NULL or writable, `pointer` NULL or a handle of ours.
#[inline]
unsafe fn run_on<'a, T: Opaque>(
    body_name: &'static str,
    pointer: *const T,
    error: *mut *mut kvmem_error,
    body: impl FnOnce(&'a T::Value) -> Result<kvmem_status>,
) -> kvmem_status {
    // SAFETY: the caller's promise.
    let handle = unsafe { usable(pointer) };
    let body = || match handle {
        Some(handle) => body(handle.value()),
        // SAFETY: the caller's promise.
        None => Err(unsafe { unusable(pointer) }),
    };
    let poison = || handle.into_iter().for_each(Handle::poison);
    // SAFETY: the caller's promise.
    unsafe { run(body_name, error, poison, body) }
}

/// Like [`call`], for kvmem_log_set_callback. The call itself is not logged: a new callback receives only later messages.
///
/// # Safety
/// `error` must be NULL or writable.
pub unsafe fn call_unlogged<'a, F>(error: *mut *mut kvmem_error, body: F) -> kvmem_status
where
    F: FnOnce(&Scope<'a>) -> Result<()>,
{
    // SAFETY: the caller's promise.
    unsafe { run_in_scope("", error, |scope| body(scope).map(|()| KVMEM_STATUS_OK)) }
}

/// Like [`call`], for a function with more than one status of success.
///
/// # Safety
/// `error` must be NULL or writable.
pub unsafe fn call_status<'a, F>(error: *mut *mut kvmem_error, body: F) -> kvmem_status
where
    F: FnOnce(&Scope<'a>) -> Result<kvmem_status>,
{
    // SAFETY: the caller's promise.
    unsafe { run_in_scope(type_name::<F>(), error, body) }
}

/// # Safety
/// `error` must be NULL or writable.
#[inline]
unsafe fn run_in_scope<'a>(
    body_name: &'static str,
    error: *mut *mut kvmem_error,
    body: impl FnOnce(&Scope<'a>) -> Result<kvmem_status>,
) -> kvmem_status {
    let scope = Scope::default();
    // SAFETY: the caller's promise.
    unsafe { run(body_name, error, || scope.poison(), || body(&scope)) }
}

/// # Safety
/// `error` must be NULL or writable.
#[inline]
unsafe fn run(
    body_name: &'static str,
    error: *mut *mut kvmem_error,
    poison: impl FnOnce(),
    body: impl FnOnce() -> Result<kvmem_status>,
) -> kvmem_status {
    // A status is returned in a register, which a Result with an Error is not: this is most of what a short call costs.
    let ended = guarded(|| match body() {
        Ok(status) => {
            call_log::returned(body_name, status);
            status
        }
        // SAFETY: the caller's promise.
        Err(failure) => unsafe { report(body_name, error, failure) },
    });
    ended.unwrap_or_else(|panic| {
        poison();
        // SAFETY: the caller's promise.
        unsafe { report(body_name, error, panic) }
    })
}

#[cold]
#[inline(never)]
unsafe fn report(body_name: &'static str, error: *mut *mut kvmem_error, failure: Error) -> kvmem_status {
    call_log::failed(body_name, &failure);
    match failure.is_elapsed() {
        true => ELAPSED.add(1),
        false => FAILED[(failure.status() as i32).unsigned_abs() as usize].add(1),
    }
    // SAFETY: the caller's promise.
    if let Some(slot) = unsafe { error.as_mut() } {
        *slot = new_handle(Failure::from_error(&failure));
    }
    failure.status() as kvmem_status
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::base::error;
    use crate::ffi::common::blob::kvmem_blob;
    use crate::ffi::common::handle::{borrow, borrow_each, destroy};

    /// The message of an error, which is destroyed.
    fn message_of(error: *mut kvmem_error) -> String {
        // SAFETY: written by the call under test, and destroyed once.
        unsafe {
            let text = crate::ffi::common::error::kvmem_error_message(error, std::ptr::null_mut());
            let text = std::ffi::CStr::from_ptr(text).to_string_lossy().into_owned();
            crate::ffi::common::error::kvmem_error_destroy(error);
            text
        }
    }

    #[test]
    fn a_panic_becomes_a_status_and_poisons_every_handle_of_the_call() {
        for count in [0, 1, 4, 5, 1000] {
            let handles: Vec<_> = (0..count).map(|_| AtomicBool::new(false)).collect();
            let mut error = std::ptr::null_mut();
            // SAFETY: a writable slot.
            let status = unsafe {
                call(&mut error, |scope| {
                    handles.iter().try_for_each(|handle| scope.uses(handle))?;
                    panic!("deliberate")
                })
            };
            assert_eq!(status, Status::Panic as i32);
            assert!(handles.iter().all(|poisoned| poisoned.load(Ordering::Acquire)), "of {count} handles");
            assert!(message_of(error).contains("deliberate"));
        }
    }

    #[test]
    fn a_failure_poisons_no_handle() {
        let poisoned = AtomicBool::new(false);
        let mut error = std::ptr::null_mut();
        // SAFETY: a writable slot.
        let status = unsafe {
            call(&mut error, |scope| {
                scope.uses(&poisoned)?;
                Err(error!(NotFound, "deliberate"))
            })
        };
        assert_eq!(status, Status::NotFound as i32);
        assert!(FAILED[4].value() > 0);
        assert!(!poisoned.load(Ordering::Acquire));
        assert!(message_of(error).contains("deliberate"));
    }

    /// The status of a call on a handle.
    fn failure_of(handle: *const kvmem_blob) -> Option<Status> {
        let scope = Scope::default();
        // SAFETY: a live handle.
        unsafe { borrow(&scope, handle) }.err().map(|error| error.status())
    }

    #[test]
    fn a_panic_poisons_every_handle_of_an_array() {
        let handles: Vec<*mut kvmem_blob> = (0..100).map(|_| new_handle(Vec::new())).collect();
        // SAFETY: live handles, and no error is asked for.
        let status = unsafe {
            call(std::ptr::null_mut(), |scope| {
                borrow_each(scope, handles.as_ptr(), handles.len(), "handles")?;
                panic!("deliberate")
            })
        };
        assert_eq!(status, Status::Panic as i32);
        for handle in handles {
            assert_eq!(failure_of(handle), Some(Status::InvalidState));
            // SAFETY: live, and not used again.
            unsafe { destroy(handle) };
        }
    }
}
