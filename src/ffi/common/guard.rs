// SPDX-License-Identifier: Apache-2.0
//! The boundary to C: converts failures and panics into a status and an error.

use std::any::type_name;

use crate::error::{Error, Result};
use crate::ffi::common::call_log;
use crate::ffi::common::error::{Failure, kvmem_error};
use crate::ffi::common::handle::new_handle;
use crate::ffi::common::scope::Scope;
use crate::ffi::common::status::{KVMEM_STATUS_OK, kvmem_status};
use crate::guarded::guarded;

/// Runs the body of a C function that returns KVMEM_STATUS_OK or an error.
///
/// # Safety
/// `error` must be NULL or writable.
pub unsafe fn call<'a, F>(error: *mut *mut kvmem_error, body: F) -> kvmem_status
where
    F: FnOnce(&Scope<'a>) -> Result<()>,
{
    // SAFETY: the caller's promise.
    unsafe { run(type_name::<F>(), error, |scope| body(scope).map(|()| KVMEM_STATUS_OK)) }
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
    unsafe { run("", error, |scope| body(scope).map(|()| KVMEM_STATUS_OK)) }
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
    unsafe { run(type_name::<F>(), error, body) }
}

/// # Safety
/// `error` must be NULL or writable.
#[inline]
unsafe fn run<'a>(
    body_name: &'static str,
    error: *mut *mut kvmem_error,
    body: impl FnOnce(&Scope<'a>) -> Result<kvmem_status>,
) -> kvmem_status {
    let scope = Scope::default();
    // A status is returned in a register, which a Result with an Error is not: this is most of what a short call costs.
    let ended = guarded(|| match body(&scope) {
        Ok(status) => {
            call_log::returned(body_name, status);
            status
        }
        // SAFETY: the caller's promise.
        Err(failure) => unsafe { report(body_name, error, &failure) },
    });
    ended.unwrap_or_else(|panic| {
        scope.poison();
        // SAFETY: the caller's promise.
        unsafe { report(body_name, error, &panic) }
    })
}

#[cold]
unsafe fn report(body_name: &'static str, error: *mut *mut kvmem_error, failure: &Error) -> kvmem_status {
    call_log::failed(body_name, failure);
    // SAFETY: the caller's promise.
    if let Some(slot) = unsafe { error.as_mut() } {
        *slot = new_handle(Failure::of(failure));
    }
    failure.status() as kvmem_status
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::error::Status;
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
                Err(Error::new(Status::NotFound, "deliberate"))
            })
        };
        assert_eq!(status, Status::NotFound as i32);
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
