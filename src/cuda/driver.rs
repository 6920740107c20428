// SPDX-License-Identifier: Apache-2.0
//! The driver, found and initialised once. A missing driver, an old one, one without devices and one that fails are
//! reported as different errors.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fmt::Display;

use once_cell::sync::OnceCell;

use super::api::Api;
use super::codes::{Code, NO_DEVICE, OUT_OF_MEMORY};
use super::ending::means_failed;
use super::entry::CallResult;
use super::exit;
use crate::base::process::{self, ForkCheckedLock};
use crate::base::{Cause, Error, Result, Status, ensure, fail, log};

/// The driver, initialised.
pub struct Driver {
    pub(super) api: Api,
    version: i32,
    device_count: i32,
    initialised_in: u64,
}

static DRIVER: OnceCell<Driver> = OnceCell::new();
static INITIALISING: ForkCheckedLock = ForkCheckedLock::new();

/// Finds and initialises the driver. A failure is not remembered.
pub fn get() -> Result<&'static Driver> {
    let driver = match DRIVER.get() {
        Some(driver) => driver,
        None => initialise()?,
    };
    ensure!(
        driver.initialised_in == process::generation(),
        InvalidState,
        "CUDA was initialised before this process was forked, and does not work in a forked child; use exec"
    );
    exit::precedes_all_of_the_driver();
    Ok(driver)
}

fn initialise() -> Result<&'static Driver> {
    let Some(_turn) = INITIALISING.lock() else {
        fail!(
            InvalidState,
            "CUDA was being initialised when this process was forked, and does not work in a forked child; use exec"
        );
    };
    DRIVER.get_or_try_init(Driver::initialise).inspect(|driver| {
        log!(Info, "CUDA loaded: driver {}, {} devices", driver.version, driver.device_count);
    })
}

/// Whether this process has no free file descriptors. The driver has no code of its own for that: a call that needs one
/// fails with any code that could have another reason too.
fn is_out_of_files() -> bool {
    process::ensure_free_descriptors(1).is_err()
}

impl Driver {
    fn initialise() -> Result<Self> {
        let api = Api::load()?;
        let mut driver = Self { api, version: 0, device_count: 0, initialised_in: process::generation() };
        // SAFETY: a looked-up function.
        let result = unsafe { driver.api.init.call(0) };
        ensure!(
            result.code != NO_DEVICE,
            UnavailableCuda,
            "the CUDA driver has no device this process may use"
        );
        driver
            .check(result, "initialise the CUDA driver")
            .map_err(|e| e.with_status(Status::UnavailableCuda))?;
        let (mut version, mut device_count) = (0, 0);
        // SAFETY: looked-up functions; the outputs live through the calls.
        unsafe {
            driver.check(
                driver.api.driver_get_version.call(&mut version),
                "get the version of the CUDA driver",
            )?;
            driver.check(driver.api.device_get_count.call(&mut device_count), "count CUDA devices")?;
        }
        ensure!(device_count > 0, UnavailableCuda, "the CUDA driver has no device this process may use");
        driver.version = version;
        driver.device_count = device_count;
        exit::precedes_the_driver();
        Ok(driver)
    }

    /// The CUDA version it implements: 1000 × major + 10 × minor.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// Devices this process may use; at least 1.
    pub fn device_count(&self) -> i32 {
        self.device_count
    }

    /// Whether one call can start many copies: since CUDA 12.8.
    pub fn copies_batches(&self) -> bool {
        self.api.memcpy_batch_async.is_some()
    }

    /// Converts the return value of a function. The message contains the names of the function and of the code.
    ///
    /// Without free file descriptors the status is OUT_OF_MEMORY, unless the code means that work or a context failed:
    /// such a code has one meaning, and another status would hide a lost context.
    #[inline]
    pub(super) fn check(&self, result: CallResult, action: impl Display) -> Result<()> {
        if result.is_success() { Ok(()) } else { Err(self.failure(result, &action)) }
    }

    /// The same for a query about work on a device. It needs no file descriptor, so the code is reliable.
    #[inline]
    pub(super) fn check_work(&self, result: CallResult, action: impl Display) -> Result<()> {
        if result.is_success() { Ok(()) } else { Err(self.error(result, &action)) }
    }

    #[cold]
    fn failure(&self, result: CallResult, action: &dyn Display) -> Error {
        let error = self.error(result, action);
        if means_failed(result.code) || !is_out_of_files() {
            return error;
        }
        let message = format!(
            "{error}; this process has no free file descriptors, which the driver may have needed: close some, or raise \
             the limit (ulimit -n)"
        );
        let cause = error.cause().cloned();
        let error = Error::new(Status::OutOfMemory, message);
        cause.map_or(error.clone(), |cause| error.with_cause(cause))
    }

    #[cold]
    fn error(&self, CallResult { code, function }: CallResult, action: &dyn Display) -> Error {
        let name = self.error_name(code);
        let status = if code == OUT_OF_MEMORY { Status::OutOfMemory } else { Status::Cuda };
        Error::new(status, format!("{action}: {function}: {name}")).with_cause(Cause::Cuda(code as i32, name))
    }

    fn error_name(&self, code: Code) -> String {
        let mut name = std::ptr::null();
        // SAFETY: a looked-up function; the name is static in the driver.
        unsafe {
            if self.api.get_error_name.call(code, &mut name).is_success() && !name.is_null() {
                return CStr::from_ptr(name).to_string_lossy().into_owned();
            }
        }
        format!("CUresult {code}")
    }
}
