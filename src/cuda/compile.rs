// SPDX-License-Identifier: Apache-2.0
//! Compiles PTX to the code of a device.
//!
//! The driver compiles when it loads PTX, too, but holds up all calls of the context until the device has finished its work. This
//! waits for no work, and the driver keeps the result for later processes, as it does for PTX that it loads (measured with driver
//! 580 on an H200). To load the code then takes 0.1 ms.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};

use cudarc::driver::sys::{CUjitInputType, CUlinkState};

use super::context::{Context, Entered};
use super::driver::Driver;
use super::ending::released;
use crate::base::{Result, lists};

/// What is done, for the messages of failures.
const PURPOSE: &str = "compile kernels";

/// The code for the device of the context.
pub(super) fn compile(context: &Context, ptx: &CStr) -> Result<Vec<u8>> {
    let entered = context.enter()?;
    let linker = Linker::new(&entered)?;
    linker.add(&entered, ptx)?;
    linker.complete(&entered)
}

/// A state of the driver's linker, which has no objects in the context.
struct Linker {
    raw: CUlinkState,
    driver: &'static Driver,
}

impl Linker {
    fn new(entered: &Entered<'_>) -> Result<Self> {
        let driver = entered.driver();
        let (mut raw, none) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a current context; no options; the output lives through the call.
        let result =
            entered.call(|| unsafe { driver.api.link_create.call(0, none, none.cast(), &raw mut raw) })?;
        driver.check(result, PURPOSE)?;
        Ok(Self { raw, driver })
    }

    fn add(&self, entered: &Entered<'_>, ptx: &CStr) -> Result<()> {
        let (text, none) = (ptx.to_bytes_with_nul(), std::ptr::null_mut());
        let kind = CUjitInputType::CU_JIT_INPUT_PTX as u32;
        // SAFETY: a live state; the driver copies the text, which ends with a NUL and is not written; no options.
        let result = entered.call(|| unsafe {
            let data = text.as_ptr().cast_mut().cast::<c_void>();
            let name = c"kvmem".as_ptr();
            self.driver.api.link_add_data.call(self.raw, kind, data, text.len(), name, 0, none, none.cast())
        })?;
        self.driver.check(result, PURPOSE)
    }

    fn complete(&self, entered: &Entered<'_>) -> Result<Vec<u8>> {
        let (mut code, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: a live state; the outputs live through the call.
        let result = entered
            .call(|| unsafe { self.driver.api.link_complete.call(self.raw, &raw mut code, &raw mut size) })?;
        self.driver.check(result, PURPOSE)?;
        // SAFETY: the state has so many bytes of code, until it is destroyed.
        lists::copied(unsafe { std::slice::from_raw_parts(code.cast::<u8>(), size) })
    }
}

impl Drop for Linker {
    fn drop(&mut self) {
        // SAFETY: created by this value, and used by no other.
        let result = unsafe { self.driver.api.link_destroy.call(self.raw) };
        released(self.driver.check(result, "release the compiler of kernels"));
    }
}
