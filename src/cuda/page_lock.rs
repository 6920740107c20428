// SPDX-License-Identifier: Apache-2.0
//! Page-locking host memory, so that devices reach it by DMA.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::Arc;

use super::context::{Context, ContextIdentity, is_lost};
use super::ending::released;
use crate::base::{Result, ensure, log};

/// CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP: locked for all contexts, and mapped.
const PORTABLE_AND_MAPPED: u32 = 1 | 2;
/// CU_MEMHOSTREGISTER_READ_ONLY: devices may only read, like this process.
const READ_ONLY: u32 = 8;

/// A range of host memory that is page-locked, chunk by chunk, until [`PageLock::release`].
pub struct PageLock {
    context: Arc<Context>,
    flags: u32,
    chunks: Vec<usize>,
}

impl PageLock {
    /// A page lock without chunks.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, flags: PORTABLE_AND_MAPPED, chunks: Vec::new() }
    }

    /// The same for read-only memory, which not every device supports.
    pub fn new_read_only(context: Arc<Context>) -> Result<Self> {
        ensure!(
            context.device().locks_read_only(),
            Unsupported,
            "read-only memory cannot be page-locked for device {}: it does not have \
             CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED; open it without page-locking, or request a writable \
             share",
            context.device().ordinal()
        );
        Ok(Self { flags: PORTABLE_AND_MAPPED | READ_ONLY, ..Self::new(context) })
    }

    /// Page-locks one more chunk. It must stay mapped until this value is dropped.
    pub fn add(&mut self, address: usize, length: usize) -> Result<()> {
        let driver = self.context.driver();
        let entered = self.context.enter()?;
        // SAFETY: the caller keeps the memory mapped until this value is dropped.
        let result = entered.call(|| unsafe {
            driver.api.mem_host_register.call(address as *mut c_void, length, self.flags)
        })?;
        driver.check(result, format_args!("page-lock {length} bytes at {address:#x}"))?;
        self.chunks.push(address);
        Ok(())
    }

    /// The context that the locks belong to, retained.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub fn identity(&self) -> ContextIdentity {
        self.context.identity()
    }

    /// Unlocks everything, and returns whether that worked: memory that is still locked must not be unmapped.
    pub fn release(&mut self) -> bool {
        match self.context.enter_to_free() {
            Ok(_entered) => self.chunks.iter().filter(|address| !self.unlock(**address)).count() == 0,
            // A reset has unlocked it already.
            Err(error) if is_lost(&error) => true,
            Err(error) => {
                released(Err(error));
                self.chunks.is_empty()
            }
        }
    }

    fn unlock(&self, address: usize) -> bool {
        // CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED: the first call unlocked it, and reported a failure of earlier work.
        const NOT_REGISTERED: u32 = 713;
        let driver = self.context.driver();
        // SAFETY: registered by this value.
        let unlock = || unsafe { driver.api.mem_host_unregister.call(address as *mut c_void) };
        // Tried twice, because there is no later attempt.
        let first = unlock();
        let result = if first.is_success() { first } else { unlock() };
        let is_reset = || self.context.ensure_alive().is_err_and(|error| is_lost(&error));
        let unlocked = result.is_success() || result.code == NOT_REGISTERED || is_reset();
        if !unlocked
            && let Err(error) = driver.check(result, format_args!("release the page lock at {address:#x}"))
        {
            log!(Error, "{error}; the memory is intentionally leaked");
        }
        unlocked
    }
}
