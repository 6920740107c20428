// SPDX-License-Identifier: Apache-2.0
//! Modules: code in a context, which the driver compiles from PTX.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction, CUmodule};

use super::context::Context;
use super::stream::Active;
use crate::error::{Error, Result, Status};
use crate::log::log;

/// Code in a context. It is unloaded when its last function is dropped.
pub struct Module {
    raw: CUmodule,
    context: Arc<Context>,
}

// SAFETY: any thread may use a module while the module's context is current on it.
unsafe impl Send for Module {}
// SAFETY: see above; it never changes.
unsafe impl Sync for Module {}

impl Module {
    /// Compiles and loads PTX.
    pub fn load(context: &Arc<Context>, ptx: &CStr) -> Result<Arc<Self>> {
        let driver = context.driver();
        let mut raw = std::ptr::null_mut();
        let entered = context.enter()?;
        // SAFETY: a current context; text that ends with a NUL; the output lives through the call.
        let result = entered
            .call(|| unsafe { driver.api.module_load_data.call(&mut raw, ptx.as_ptr().cast::<c_void>()) })?;
        driver.check(result, "load kernels")?;
        Ok(Arc::new(Self { raw, context: context.clone() }))
    }

    /// Returns a kernel by name.
    pub fn function(self: &Arc<Self>, name: &CStr) -> Result<Function> {
        let driver = self.context.driver();
        let mut raw = std::ptr::null_mut();
        let entered = self.context.enter()?;
        // SAFETY: a live module; the name ends with a NUL; the output lives through the call.
        let result = entered
            .call(|| unsafe { driver.api.module_get_function.call(&mut raw, self.raw, name.as_ptr()) })?;
        driver.check(result, format_args!("find the kernel {}", name.to_string_lossy()))?;
        Ok(Function { raw, _module: self.clone() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let driver = self.context.driver();
        let unloaded = self.context.free(|| {
            // SAFETY: loaded by this value. Its functions hold it, and each launch was complete before its function was
            // dropped.
            let result = unsafe { driver.api.module_unload.call(self.raw) };
            driver.check(result, "unload kernels")
        });
        if let Err(error) = unloaded {
            log!(Warn, "{error}");
        }
    }
}

/// A kernel.
pub struct Function {
    raw: CUfunction,
    _module: Arc<Module>,
}

// SAFETY: any thread may launch a function while the module's context is current on it.
unsafe impl Send for Function {}
// SAFETY: see above; it never changes.
unsafe impl Sync for Function {}

impl Function {
    /// Launches it on a stream of its context, with one parameter, which is copied.
    ///
    /// # Safety
    /// `P` must be the kernel's parameter. The memory that it refers to must remain valid until the stream is idle, also if
    /// this fails.
    pub unsafe fn launch<P>(&self, on: &Active<'_>, ctas: u32, threads: u32, parameter: &P) -> Result<()> {
        let driver = on.driver();
        if ctas == 0 {
            return Err(Error::new(
                Status::InvalidArgument,
                "a kernel needs at least 1 CTA, 0 were requested",
            ));
        }
        let mut parameters = [std::ptr::from_ref(parameter).cast_mut().cast::<c_void>()];
        // SAFETY: the context is current; one parameter, which lives through the call; for the rest the caller's promise.
        let result = on.call(|| unsafe {
            let none = std::ptr::null_mut();
            driver.api.launch_kernel.call(
                self.raw,
                ctas,
                1,
                1,
                threads,
                1,
                1,
                0,
                on.raw,
                parameters.as_mut_ptr(),
                none,
            )
        })?;
        driver.check(result, format_args!("launch a kernel with {ctas} CTAs"))
    }
}
