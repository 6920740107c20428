// SPDX-License-Identifier: Apache-2.0
//! A function of the driver's library. It knows its name, and so does the result of a call.
#![allow(unsafe_code)]

use std::ffi::c_void;

use cudarc::driver::sys;

use super::codes::Code;

/// A function of the driver's. `F` is its type.
#[derive(Clone, Copy)]
pub(super) struct EntryPoint<F> {
    pointer: F,
    name: &'static str,
}

/// The return value of a function.
#[derive(Clone, Copy)]
pub(super) struct CallResult {
    pub code: Code,
    pub function: &'static str,
}

impl CallResult {
    pub fn is_success(self) -> bool {
        self.code == 0
    }
}

impl<F: Copy> EntryPoint<F> {
    /// Looks a function up by name; `None` if the driver has no such function.
    ///
    /// # Safety
    /// The library must be present, or this panics. `F` must be the type of that function.
    pub unsafe fn find(name: &'static str) -> Option<Self> {
        const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
        // SAFETY: the caller's promise.
        let address = unsafe { address_of(name) }?;
        // SAFETY: the caller's promise: this is the type of the function.
        Some(Self { pointer: unsafe { std::mem::transmute_copy(&address) }, name })
    }
}

/// The address of a function, whatever its type: found by one function rather than by one for each type.
///
/// # Safety
/// The library must be present, or this panics.
#[inline(never)]
unsafe fn address_of(name: &str) -> Option<*const c_void> {
    // SAFETY: the caller's promise; the library stays loaded.
    unsafe { sys::culib().get::<*const c_void>(name.as_bytes()) }.ok().map(|address| *address)
}

/// Makes functions of so many arguments callable.
macro_rules! callable {
    ($($argument:ident: $type:ident),+) => {
        impl<$($type),+> EntryPoint<unsafe extern "C" fn($($type),+) -> Code> {
            /// Calls it.
            ///
            /// # Safety
            /// The requirements of the driver's function.
            #[allow(clippy::too_many_arguments, reason = "they are the driver's")]
            pub unsafe fn call(&self, $($argument: $type),+) -> CallResult {
                // SAFETY: the caller's promise.
                let code = unsafe { (self.pointer)($($argument),+) };
                CallResult { code, function: self.name }
            }
        }
    };
}

callable!(a: A);
callable!(a: A, b: B);
callable!(a: A, b: B, c: C);
callable!(a: A, b: B, c: C, d: D);
callable!(a: A, b: B, c: C, d: D, e: E);
callable!(a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H);
callable!(a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H, i: I);
callable!(a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H, i: I, j: J, k: K);
