// SPDX-License-Identifier: Apache-2.0
//! Modules: code in a context, which was compiled from PTX.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUfunction, CUmodule};
use once_cell::sync::OnceCell;

use super::codes::{
    Code, INVALID_PTX, JIT_COMPILATION_DISABLED, NO_BINARY_FOR_GPU, UNSUPPORTED_PTX_VERSION, has_code,
};
use super::compile::compile;
use super::context::Context;
use super::deferred::Deferred;
use super::ending::released;
use super::exit::{self, Unattended};
use super::patience::{Patience, Phase};
use super::ptx::Ptx;
use super::quiet::{ContextWork, PATIENCE, Waited, busy};
use super::stream::Active;
use crate::base::{Condvar, Error, Mutex, MutexGuard, Result, Status, error, fail, guarded, thread};

/// Code in a context. It is unloaded after its last function was dropped.
struct Module {
    raw: CUmodule,
    context: Arc<Context>,
}

// SAFETY: any thread may use a module while the module's context is current on it.
unsafe impl Send for Module {}
// SAFETY: see above; it never changes.
unsafe impl Sync for Module {}

impl Module {
    /// Loads code. Waits for all work of the context.
    fn load(context: &Arc<Context>, code: &[u8]) -> Result<Self> {
        let driver = context.driver();
        let mut raw = std::ptr::null_mut();
        let entered = context.enter()?;
        // SAFETY: a current context; code that the driver has compiled; the output lives through the call.
        let result = entered
            .call(|| unsafe { driver.api.module_load_data.call(&mut raw, code.as_ptr().cast::<c_void>()) })?;
        driver.check(result, "load kernels")?;
        Ok(Self { raw, context: context.clone() })
    }

    fn function(self, name: &CStr) -> Result<Function> {
        let module = Deferred::new(&self.context.clone(), self, 0);
        let driver = module.context.driver();
        let mut raw = std::ptr::null_mut();
        let entered = module.context.enter()?;
        // SAFETY: a live module; the name ends with a NUL; the output lives through the call.
        let result = entered
            .call(|| unsafe { driver.api.module_get_function.call(&mut raw, module.raw, name.as_ptr()) })?;
        driver.check(result, format_args!("find the kernel {}", name.to_string_lossy()))?;
        drop(entered);
        Ok(Function { raw, _module: module })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let driver = self.context.driver();
        released(self.context.free(|| {
            // SAFETY: loaded by this value. Its functions hold it, and each launch was complete before its function was
            // dropped.
            let result = unsafe { driver.api.module_unload.call(self.raw) };
            driver.check(result, "unload kernels")
        }));
    }
}

/// Codes for devices and drivers on which no attempt succeeds.
const IMPOSSIBLE: &[Code] =
    &[NO_BINARY_FOR_GPU, INVALID_PTX, UNSUPPORTED_PTX_VERSION, JIT_COMPILATION_DISABLED];
/// How long another failure to load a kernel is remembered. Each attempt takes the time of a compilation.
const REMEMBERED: Duration = Duration::from_secs(1);

/// A kernel that is loaded when it is first needed, on a thread of its own: all of the calls but the compilation may wait for the
/// device.
pub struct LazyFunction {
    ptx: Ptx,
    name: &'static CStr,
    context: Arc<Context>,
    work: Arc<ContextWork>,
    loaded: OnceCell<Function>,
    /// What the thread shares. When a caller has the kernel, the thread holds nothing of the context any more.
    exchange: Arc<Exchange>,
}

#[derive(Default)]
struct Exchange {
    state: Mutex<Loading>,
    changed: Condvar,
}

#[derive(Default)]
struct Loading {
    attempt: Option<Attempt>,
    /// Callers that wait.
    callers: usize,
    /// The code, until it is loaded: if it was compiled while the device got other work, or all callers left, it is kept.
    compiled: Option<Vec<u8>>,
    function: Option<Function>,
    failed: Option<(Error, Instant)>,
}

struct Attempt {
    /// Until when the device may be busy, as its callers have asked.
    until: Instant,
    /// One of them has no other method.
    is_needed: bool,
    /// The caller that started it does not wait, and captures no stream.
    is_unattended: bool,
    phase: Phase,
}

impl Attempt {
    /// Until when the device may be busy in a phase. A thread that began late has its time, if a caller waits so long.
    fn until(&self, since: Instant) -> Instant {
        if self.is_needed { self.until.max(since + PATIENCE) } else { self.until }
    }
}

impl LazyFunction {
    /// A kernel of a text that ends with a NUL, for a context.
    pub fn new(context: &Arc<Context>, ptx: Ptx, name: &'static CStr) -> Self {
        let (context, work) = (context.clone(), ContextWork::shared(context));
        Self { ptx, name, context, work, loaded: OnceCell::new(), exchange: Arc::default() }
    }

    /// The kernel, loaded in its context. Fails with BUSY if it is not loaded within `patience`, because the device has other work, or
    /// the driver still compiles. Another failure is returned again for a second.
    pub fn get(&self, patience: &Patience) -> Result<&Function> {
        match self.loaded.get() {
            Some(loaded) => Ok(loaded),
            None => self.load(patience),
        }
    }

    /// The kernel, which was loaded before.
    pub fn get_loaded(&self) -> Result<&Function> {
        match self.loaded.get() {
            Some(loaded) => Ok(loaded),
            None => self.load(&Patience::needed(PATIENCE)),
        }
    }

    #[cold]
    fn load(&self, patience: &Patience) -> Result<&Function> {
        if self.work.is_captured() || (patience.is_short() && self.work.is_known_to_be_long()) {
            return Err(busy(&self.context));
        }
        let mut state = self.exchange.state.lock();
        state.callers += 1;
        let (mut state, loaded) = self.await_function(state, patience);
        state.callers -= 1;
        loaded
    }

    fn await_function<'a>(
        &'a self,
        mut state: MutexGuard<'a, Loading>,
        patience: &Patience,
    ) -> (MutexGuard<'a, Loading>, Result<&'a Function>) {
        let mut asked = Instant::now();
        let (mut has_waited, mut is_starting) = (false, false);
        loop {
            if is_starting && !matches!(state.attempt, Some(Attempt { phase: Phase::Starting, .. })) {
                patience.has_started(&mut asked);
                is_starting = false;
            }
            if let Some(function) = state.function.take() {
                return (state, Ok(self.loaded.get_or_init(|| function)));
            }
            if let Some(loaded) = self.loaded.get() {
                return (state, Ok(loaded));
            }
            let until = patience.for_work(asked);
            let Some(attempt) = &mut state.attempt else {
                if let Some((error, at)) = &state.failed
                    && (at.elapsed() < REMEMBERED || is_impossible(error))
                {
                    let error = error.clone();
                    return (state, Err(error));
                }
                // An attempt has ended because the device was busy, or a stream is being captured: then no query is repeated.
                if has_waited && (Instant::now() >= until || self.work.is_captured()) {
                    return (state, Err(busy(&self.context)));
                }
                let waits = patience.is_needed() || patience.is_none();
                let until = if waits { until.max(Instant::now() + PATIENCE) } else { until };
                let (is_needed, is_unattended) = (patience.is_needed(), patience.is_none());
                let phase = Phase::Starting;
                state.attempt = Some(Attempt { until, is_needed, is_unattended, phase });
                drop(state);
                self.start();
                state = self.exchange.state.lock();
                continue;
            };
            has_waited = true;
            attempt.until = attempt.until.max(until);
            attempt.is_needed |= patience.is_needed();
            let phase = attempt.phase;
            is_starting = matches!(phase, Phase::Starting);
            let Some(pause) = patience.pause(asked, phase) else {
                return (state, Err(not_loaded(&self.context, phase)));
            };
            state = self.exchange.changed.wait_timeout(state, pause).0;
        }
    }

    /// Starts a thread for the attempt. Without one, the attempt fails: on this thread it could wait for the device.
    fn start(&self) {
        let (ptx, name) = (self.ptx, self.name);
        let (exchange, context, work) = (self.exchange.clone(), self.context.clone(), self.work.clone());
        if let Err(error) = thread::spawn("kvmem-load", move || exchange.attempt(ptx, name, context, work)) {
            let message = format!("load kernels: {error}");
            self.exchange.end(Err(Error::new(Status::OutOfMemory, message)));
        }
    }
}

/// Whether the error of a kernel means that none can be loaded on this device.
pub fn is_impossible(error: &Error) -> bool {
    has_code(error, IMPOSSIBLE)
}

/// The requirements are those of the PTX in `kernels/`.
fn explained(error: Error) -> Error {
    if !is_impossible(&error) {
        return error;
    }
    let needed = "kernels of kvmem need a GPU of compute capability 7.5 or higher, and a driver of CUDA 12.0 or later that compiles \
                  them";
    error.followed_by(needed).with_status(Status::Unsupported)
}

impl Exchange {
    fn attempt(self: Arc<Self>, ptx: Ptx, name: &CStr, context: Arc<Context>, work: Arc<ContextWork>) {
        let unattended = Unattended::begin();
        let outcome = guarded(|| {
            unattended.as_ref().map_err(Clone::clone)?;
            self.load(ptx, name, &context, &work).inspect(|_| exit::precedes_the_driver())
        });
        let outcome = outcome.and_then(|loaded| loaded);
        // Before the caller continues, who may be about to release the context.
        drop((context, work));
        self.end(outcome);
        // Unloads the kernel if it is needed no longer: the process waits for that, too.
        drop((self, unattended));
    }

    fn end(&self, outcome: Result<Function>) {
        let mut state = self.state.lock();
        state.attempt = None;
        // That the device is busy is known of the context, not of a kernel.
        (state.function, state.failed) = match outcome {
            Ok(function) => (Some(function), None),
            Err(error) if error.status() == Status::Busy => (None, None),
            Err(error) => (None, Some((error, Instant::now()))),
        };
        drop(state);
        self.changed.notify_all();
    }

    /// The device is asked before the compilation, so that callers of a busy one do not wait for that, and again after it.
    fn load(&self, ptx: Ptx, name: &CStr, context: &Arc<Context>, work: &ContextWork) -> Result<Function> {
        let mut is_idle = self.ask(context, work)?;
        if self.state.lock().compiled.is_none() {
            self.enter(&mut self.state.lock(), Phase::Compiling);
            let code = compile(context, &ptx.unpack()?).map_err(explained)?;
            self.state.lock().compiled = Some(code);
            is_idle = self.ask(context, work)?;
        }
        let code = {
            let mut state = self.state.lock();
            let Some(code) = state.compiled.take_if(|_| is_idle) else { return Err(busy(context)) };
            self.enter(&mut state, Phase::Loading);
            code
        };
        Module::load(context, &code).map_err(explained)?.function(name)
    }

    /// Waits for the end of the work of the device, as long as callers do. Returns false if all callers have left: they may capture a
    /// stream, which the query would invalidate.
    fn ask(&self, context: &Arc<Context>, work: &ContextWork) -> Result<bool> {
        let asked = {
            let mut state = self.state.lock();
            if state.callers == 0 && !state.attempt.as_ref().is_some_and(|attempt| attempt.is_unattended) {
                return Ok(false);
            }
            self.enter(&mut state, Phase::Asking)
        };
        let until = || self.state.lock().attempt.as_ref().map_or(asked, |attempt| attempt.until(asked));
        match work.wait(context, until)? {
            Waited::Idle | Waited::Fed | Waited::Unknown => Ok(true),
            Waited::Busy | Waited::Captured => Err(busy(context)),
        }
    }

    fn enter(&self, state: &mut Loading, phase: fn(Instant) -> Phase) -> Instant {
        let now = Instant::now();
        if let Some(attempt) = &mut state.attempt {
            attempt.phase = phase(now);
        }
        self.changed.notify_all();
        now
    }
}

/// The error of a kernel that is not loaded in time.
fn not_loaded(context: &Context, phase: Phase) -> Error {
    if !matches!(phase, Phase::Compiling(_)) {
        return busy(context);
    }
    let device = context.device().ordinal();
    error!(
        Busy,
        "the driver compiles a kernel for device {device}; transfers that are created later can use it"
    )
}

pub struct Function {
    raw: CUfunction,
    _module: Deferred<Module>,
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
            fail!(InvalidArgument, "a kernel needs at least 1 CTA, 0 were requested");
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
