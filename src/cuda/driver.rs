// SPDX-License-Identifier: Apache-2.0
//! Finding libcuda: missing, too old, and without a device are three different answers.

use std::ffi::CStr;

use cudarc::driver::sys;
use once_cell::sync::OnceCell;

use crate::error::{Cause, Error, Result, Status, ensure};

/// The functions that are called here; cudarc panics on one that is missing, so each is looked up first.
const SYMBOLS: &[&CStr] = &[c"cuInit", c"cuDriverGetVersion", c"cuDeviceGetCount", c"cuGetErrorName"];

/// The driver, initialised.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// The CUDA version it implements: 1000 × major + 10 × minor.
    pub version: i32,
    /// Devices this process may use; at least 1.
    pub device_count: i32,
}

static DRIVER: OnceCell<Driver> = OnceCell::new();

/// Loads and initialises the driver once. A failure is not remembered.
pub fn get() -> Result<&'static Driver> {
    DRIVER.get_or_try_init(initialise)
}

fn initialise() -> Result<Driver> {
    // SAFETY: only looks for the library and loads it.
    let present = unsafe { sys::is_culib_present() };
    ensure!(present, UnavailableCuda, "the CUDA driver is missing: the loader does not find libcuda.so.1");
    require_symbols()?;
    let (mut version, mut device_count) = (0, 0);
    // SAFETY: every function was looked up; the outputs live through the calls.
    unsafe {
        check("initialise the CUDA driver", sys::cuInit(0))?;
        check("ask the CUDA driver's version", sys::cuDriverGetVersion(&mut version))?;
        check("count CUDA devices", sys::cuDeviceGetCount(&mut device_count))?;
    }
    ensure!(device_count > 0, UnavailableCuda, "the CUDA driver has no device this process may use");
    Ok(Driver { version, device_count })
}

fn require_symbols() -> Result<()> {
    // SAFETY: the library was loaded just before; looking a symbol up calls nothing.
    let library = unsafe { sys::culib() };
    for symbol in SYMBOLS {
        // SAFETY: the symbol is not called through this type.
        let found = unsafe { library.get::<unsafe extern "C" fn()>(symbol.to_bytes_with_nul()) };
        ensure!(found.is_ok(), UnavailableCuda, "the CUDA driver is too old: it has no {symbol:?}");
    }
    Ok(())
}

fn check(action: &str, result: sys::CUresult) -> Result<()> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let message = format!("{action}: the driver answers {result:?}");
    Err(Error::new(Status::UnavailableCuda, message).with_cause(Cause::Cuda(result as i32)))
}
