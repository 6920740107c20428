// SPDX-License-Identifier: Apache-2.0
//! The boundary: no panic crosses it, every failure becomes a status and an error.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::kvmem_error;
use super::status::{KVMEM_STATUS_OK, kvmem_status};
use crate::error::{Error, Result};
use crate::guarded::guarded;

/// The handles a call has borrowed; they become unusable if it panics.
#[derive(Default)]
pub struct Scope<'a>(Cell<[Option<&'a AtomicBool>; 4]>);

impl<'a> Scope<'a> {
    /// Remembers a handle's mark.
    pub fn uses(&self, poisoned: &'a AtomicBool) {
        let mut used = self.0.get();
        if let Some(free) = used.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(poisoned);
        }
        self.0.set(used);
    }

    fn poison(&self) {
        self.0.get().into_iter().flatten().for_each(|poisoned| poisoned.store(true, Ordering::Release));
    }
}

/// Runs the body of a C function that answers KVMEM_STATUS_OK or an error.
///
/// # Safety
/// `error` must be NULL or writable.
pub unsafe fn call<'a>(
    error: *mut *mut kvmem_error,
    body: impl FnOnce(&Scope<'a>) -> Result<()>,
) -> kvmem_status {
    // SAFETY: the caller's promise.
    unsafe { call_status(error, |scope| body(scope).map(|()| KVMEM_STATUS_OK)) }
}

/// The same for a function with more than one good answer.
///
/// # Safety
/// `error` must be NULL or writable.
pub unsafe fn call_status<'a>(
    error: *mut *mut kvmem_error,
    body: impl FnOnce(&Scope<'a>) -> Result<kvmem_status>,
) -> kvmem_status {
    let scope = Scope::default();
    match guarded(|| body(&scope)) {
        Ok(Ok(status)) => status,
        // SAFETY: the caller's promise.
        Ok(Err(failure)) => unsafe { report(error, &failure) },
        Err(panic) => {
            scope.poison();
            // SAFETY: the caller's promise.
            unsafe { report(error, &panic) }
        }
    }
}

/// Runs the body of a C function that can't fail; a panic is logged.
pub fn quiet<R>(fallback: R, body: impl FnOnce() -> R) -> R {
    guarded(body).unwrap_or_else(|error| {
        crate::log::log!(Error, "{error}");
        fallback
    })
}

#[cold]
unsafe fn report(error: *mut *mut kvmem_error, failure: &Error) -> kvmem_status {
    // SAFETY: the caller's promise.
    if let Some(slot) = unsafe { error.as_mut() } {
        *slot = Box::into_raw(kvmem_error::boxed(failure));
    }
    failure.status() as kvmem_status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

    #[test]
    fn a_panic_becomes_a_status_and_marks_what_was_used() {
        let poisoned = AtomicBool::new(false);
        let mut error = std::ptr::null_mut();
        // SAFETY: a writable slot.
        let status = unsafe {
            call(&mut error, |scope| {
                scope.uses(&poisoned);
                panic!("deliberate")
            })
        };
        assert_eq!(status, Status::Panic as i32);
        assert!(poisoned.load(Ordering::Acquire));
        // SAFETY: written just now.
        let message = unsafe {
            std::ffi::CStr::from_ptr(super::super::error::kvmem_error_message(error, std::ptr::null_mut()))
        };
        assert!(message.to_string_lossy().contains("deliberate"));
        // SAFETY: ours, once.
        unsafe { super::super::error::kvmem_error_destroy(error) };
    }
}
