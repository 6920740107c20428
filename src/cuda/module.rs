// SPDX-License-Identifier: Apache-2.0
//! Modules: code in a context, which the driver compiles from PTX.

use std::ffi::{CStr, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUfunction, CUmodule};
use once_cell::sync::OnceCell;

use super::context::Context;
use super::quiet::ensure_quiet;
use super::stream::Active;
use crate::base::error::{Error, Result, Status};
use crate::base::log::log;
use crate::base::sync::Mutex;

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
    /// Compiles and loads PTX. Fails with BUSY while the device is busy with other work, for which the driver would wait.
    pub(super) fn load(context: &Arc<Context>, ptx: &CStr) -> Result<Arc<Self>> {
        ensure_quiet(context)?;
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
    pub(super) fn function(self: &Arc<Self>, name: &CStr) -> Result<Function> {
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

/// How long a failure to load a kernel is remembered. Each attempt takes the time of a compilation, or waits for the device.
const REMEMBERED: Duration = Duration::from_secs(1);

/// A kernel that is loaded when it is first needed: the driver compiles each in about 100 ms.
pub struct LazyFunction {
    ptx: &'static str,
    name: &'static CStr,
    loaded: OnceCell<Function>,
    failed: Mutex<Option<(Error, Instant)>>,
}

impl LazyFunction {
    /// A kernel of a text that ends with a NUL.
    pub const fn new(ptx: &'static str, name: &'static CStr) -> Self {
        Self { ptx, name, loaded: OnceCell::new(), failed: Mutex::new(None) }
    }

    /// The kernel, loaded in `context`, which is the same at each call. A failure is returned again for a second.
    pub fn get(&self, context: &Arc<Context>) -> Result<&Function> {
        if let Some(loaded) = self.loaded.get() {
            return Ok(loaded);
        }
        let mut failed = self.failed.lock();
        if let Some((error, at)) = &*failed
            && at.elapsed() < REMEMBERED
        {
            return Err(error.clone());
        }
        let loaded = self.loaded.get_or_try_init(|| self.load(context));
        *failed = loaded.as_ref().err().map(|error| (error.clone(), Instant::now()));
        loaded
    }

    fn load(&self, context: &Arc<Context>) -> Result<Function> {
        let broken = |_| Error::new(Status::Unsupported, "the copy kernels hold a NUL");
        let ptx = CStr::from_bytes_with_nul(self.ptx.as_bytes()).map_err(broken)?;
        Module::load(context, ptx)?.function(self.name)
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
