// SPDX-License-Identifier: Apache-2.0
//! Handles: what an opaque pointer points at, and what is checked each time one comes in.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use super::guard::{Scope, quiet};
use crate::error::{Error, Result, Status};
use crate::process;

/// The inside of every opaque type.
pub struct Handle<T> {
    generation: u64,
    poisoned: AtomicBool,
    value: T,
}

impl<T> Handle<T> {
    /// A handle of this process.
    pub fn new(value: T) -> Self {
        Self { generation: process::generation(), poisoned: AtomicBool::new(false), value }
    }
}

/// An opaque C type. It is a handle and nothing else.
pub trait Opaque: Sized + 'static {
    /// What it stands for.
    type Value;
    /// What to call it in messages.
    const NAME: &'static str;
    /// Its inside.
    fn handle(&self) -> &Handle<Self::Value>;
    /// The opposite.
    fn wrap(handle: Handle<Self::Value>) -> Self;
}

/// Makes a struct with one field `handle` opaque.
macro_rules! opaque {
    ($type:ident, $value:ty, $name:literal) => {
        impl $crate::ffi::handle::Opaque for $type {
            type Value = $value;
            const NAME: &'static str = $name;
            fn handle(&self) -> &$crate::ffi::handle::Handle<$value> {
                &self.handle
            }
            fn wrap(handle: $crate::ffi::handle::Handle<$value>) -> Self {
                Self { handle }
            }
        }
    };
}
pub(super) use opaque;

/// What a handle stands for, if it may be used: not NULL, of this process, and not left behind by a panic.
///
/// # Safety
/// `pointer` must be NULL or a live handle of ours.
#[inline]
pub unsafe fn borrow<'a, T: Opaque>(scope: &Scope<'a>, pointer: *const T) -> Result<&'a T::Value> {
    // SAFETY: the caller's promise.
    let Some(opaque) = (unsafe { pointer.as_ref() }) else { return Err(null(T::NAME)) };
    let handle = opaque.handle();
    if handle.generation != process::generation() {
        return Err(forked(T::NAME));
    }
    if handle.poisoned.load(Ordering::Relaxed) {
        return Err(poisoned(T::NAME));
    }
    scope.uses(&handle.poisoned);
    Ok(&handle.value)
}

/// The same where NULL means "none".
///
/// # Safety
/// As for [`borrow`].
pub unsafe fn borrow_nullable<'a, T: Opaque>(
    scope: &Scope<'a>,
    pointer: *const T,
) -> Result<Option<&'a T::Value>> {
    // SAFETY: the caller's promise.
    if pointer.is_null() { Ok(None) } else { unsafe { borrow(scope, pointer) }.map(Some) }
}

/// What a handle stands for, for the few questions that are not checked.
///
/// # Safety
/// `pointer` must be NULL or a live handle of ours.
pub unsafe fn peek<'a, T: Opaque>(pointer: *const T) -> Option<&'a T::Value> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.map(|opaque| &opaque.handle().value)
}

/// Where a function puts the handle it makes. Holds NULL until then, so that every failure leaves NULL.
pub struct Out<T>(*mut *mut T);

impl<T: Opaque> Out<T> {
    /// # Safety
    /// `slot` must be NULL or writable.
    pub unsafe fn new(slot: *mut *mut T) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::nullable(slot) }.ok_or_else(|| null(T::NAME))
    }

    /// # Safety
    /// `slot` must be NULL or writable.
    pub unsafe fn nullable(slot: *mut *mut T) -> Option<Self> {
        // SAFETY: the caller's promise.
        unsafe { slot.as_mut() }.map(|place| {
            *place = std::ptr::null_mut();
            Self(slot)
        })
    }

    /// Hands a new handle to C.
    pub fn set(self, value: T::Value) {
        let handle = Box::into_raw(Box::new(T::wrap(Handle::new(value))));
        // SAFETY: checked and written to when this was made, in the same call.
        unsafe { *self.0 = handle };
    }
}

/// Where a function puts a plain value; NULL is refused.
///
/// # Safety
/// `slot` must be NULL or writable for as long as the call lasts.
pub unsafe fn out<'a, T>(slot: *mut T, name: &str) -> Result<&'a mut std::mem::MaybeUninit<T>> {
    // SAFETY: the caller's promise; the value there need not be initialised.
    unsafe { slot.cast::<std::mem::MaybeUninit<T>>().as_mut() }.ok_or_else(|| null(name))
}

/// Frees a handle. In a forked child it is left alone: what it stands for is the parent's.
///
/// # Safety
/// `pointer` must be NULL or a live handle of ours that is not used again.
pub unsafe fn destroy<T: Opaque>(pointer: *mut T) {
    quiet((), || {
        // SAFETY: the caller's promise.
        let Some(opaque) = (unsafe { pointer.as_ref() }) else { return };
        if opaque.handle().generation == process::generation() {
            // SAFETY: made by `Out::set`, given back once by contract.
            drop(unsafe { Box::from_raw(pointer) });
        }
    });
}

/// A word of the caller's for a callback of the caller's.
pub struct UserData(pub *mut c_void);

// SAFETY: the caller promises that the callback may run on any thread with it.
unsafe impl Send for UserData {}
// SAFETY: see above.
unsafe impl Sync for UserData {}

/// The error for a pointer that must not be NULL.
#[cold]
pub fn null(name: &str) -> Error {
    Error::new(Status::InvalidArgument, format!("{name} is NULL"))
}

#[cold]
fn forked(name: &str) -> Error {
    let message = format!("the {name} was made before this process was forked; the child must make its own");
    Error::new(Status::InvalidState, message)
}

#[cold]
fn poisoned(name: &str) -> Error {
    Error::new(Status::InvalidState, format!("an earlier call on the {name} hit a bug in kvmem; destroy it"))
}
