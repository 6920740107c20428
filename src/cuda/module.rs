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
use super::ptx::Ptx;
use super::quiet::{ContextWork, PATIENCE, Waited, busy};
use super::stream::Active;
use crate::base::{Condvar, Error, Mutex, Result, Status, fail, guarded, thread};

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
/// How often callers look for a result that is late, and how long they sleep each time. Turns are counted rather than time: on busy
/// processors the thread that loads needs turns, too.
const TURNS: u32 = 15;
const TURN: Duration = Duration::from_millis(1);
/// How long callers wait for a compilation, which waits for no work of the device. It takes 0.1 to 0.4 s once on a machine, and
/// some milliseconds in later processes.
const COMPILATION: Duration = Duration::from_secs(10);

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
    /// The code, if it was compiled while the device got other work.
    compiled: Option<Vec<u8>>,
    function: Option<Function>,
    failed: Option<(Error, Instant)>,
}

struct Attempt {
    /// Until when the device may be busy.
    until: Instant,
    phase: Phase,
}

/// What the thread of an attempt does.
#[derive(Clone, Copy)]
enum Phase {
    /// It has not begun.
    Starting,
    /// Since then, it waits for the work of the device.
    Asking(Instant),
    /// Since then, it compiles.
    Compiling(Instant),
    /// Since then, it loads the code. This takes long only if the device got other work after it was asked.
    Loading(Instant),
}

impl Attempt {
    /// How long a caller sleeps who began at a time, with this patience; `None` if it waits no longer. `turns` are those that it has
    /// slept since a phase began.
    fn pause(&self, begun: Instant, patience: Duration, turns: &mut (Instant, u32)) -> Option<Duration> {
        let (since, until) = match self.phase {
            Phase::Starting => (begun, begun + COMPILATION),
            Phase::Asking(since) | Phase::Loading(since) => (since, (begun + patience).max(since + PATIENCE)),
            Phase::Compiling(since) => (since, since + COMPILATION),
        };
        until.checked_duration_since(Instant::now()).or_else(|| {
            let (counted, count) = *turns;
            let slept = if counted == since { count } else { 0 };
            *turns = (since, slept + 1);
            (slept < TURNS).then_some(TURN)
        })
    }
}

impl LazyFunction {
    /// A kernel of a text that ends with a NUL, for a context.
    pub fn new(context: &Arc<Context>, ptx: Ptx, name: &'static CStr) -> Self {
        let (context, work) = (context.clone(), ContextWork::shared(context));
        Self { ptx, name, context, work, loaded: OnceCell::new(), exchange: Arc::default() }
    }

    /// The kernel, loaded in its context. Fails with BUSY if the device does not finish other work, for which the driver would wait,
    /// within `patience`. Another failure is returned again for a second.
    pub fn get(&self, patience: Duration) -> Result<&Function> {
        match self.loaded.get() {
            Some(loaded) => Ok(loaded),
            None => self.load(patience),
        }
    }

    #[cold]
    fn load(&self, patience: Duration) -> Result<&Function> {
        if self.work.is_captured() || (patience <= PATIENCE && self.work.is_known_to_be_long()) {
            return Err(busy(&self.context));
        }
        let begun = Instant::now();
        let (mut turns, mut has_waited) = ((begun, 0), false);
        let mut state = self.exchange.state.lock();
        loop {
            if let Some(function) = state.function.take() {
                return Ok(self.loaded.get_or_init(|| function));
            }
            if let Some(loaded) = self.loaded.get() {
                return Ok(loaded);
            }
            let Some(attempt) = &mut state.attempt else {
                if let Some((error, at)) = &state.failed
                    && (at.elapsed() < REMEMBERED || is_impossible(error))
                {
                    return Err(error.clone());
                }
                // An attempt has ended because the device was busy, or a stream is being captured: then no query is repeated.
                if has_waited && (begun.elapsed() >= patience || self.work.is_captured()) {
                    return Err(busy(&self.context));
                }
                let until = (begun + patience).max(Instant::now() + PATIENCE);
                state.attempt = Some(Attempt { until, phase: Phase::Starting });
                drop(state);
                self.start();
                state = self.exchange.state.lock();
                continue;
            };
            has_waited = true;
            attempt.until = attempt.until.max(begun + patience);
            let pause = if patience.is_zero() { None } else { attempt.pause(begun, patience, &mut turns) };
            let Some(pause) = pause else { return Err(busy(&self.context)) };
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
    fn attempt(&self, ptx: Ptx, name: &CStr, context: Arc<Context>, work: Arc<ContextWork>) {
        let outcome = guarded(|| self.load(ptx, name, &context, &work)).and_then(|loaded| loaded);
        // Before the caller continues, who may be about to release the context.
        drop((context, work));
        self.end(outcome);
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
        self.await_idle(context, work)?;
        let compiled = self.state.lock().compiled.take();
        let code = match compiled {
            Some(code) => code,
            None => self.compile(ptx, context, work)?,
        };
        self.enter(Phase::Loading);
        Module::load(context, &code).map_err(explained)?.function(name)
    }

    fn compile(&self, ptx: Ptx, context: &Arc<Context>, work: &ContextWork) -> Result<Vec<u8>> {
        self.enter(Phase::Compiling);
        let code = compile(context, &ptx.unpack()?).map_err(explained)?;
        match self.await_idle(context, work) {
            Ok(()) => Ok(code),
            Err(error) => {
                self.state.lock().compiled = Some(code);
                Err(error)
            }
        }
    }

    fn await_idle(&self, context: &Arc<Context>, work: &ContextWork) -> Result<()> {
        let asked = self.enter(Phase::Asking);
        // Other callers may have more patience. A thread that began late has its time, too.
        let until = || self.state.lock().attempt.as_ref().map_or(asked, |attempt| attempt.until);
        match work.wait(context, || until().max(asked + PATIENCE))? {
            Waited::Idle | Waited::Fed | Waited::Unknown => Ok(()),
            Waited::Busy | Waited::Captured => Err(busy(context)),
        }
    }

    fn enter(&self, phase: fn(Instant) -> Phase) -> Instant {
        let now = Instant::now();
        if let Some(attempt) = &mut self.state.lock().attempt {
            attempt.phase = phase(now);
        }
        self.changed.notify_all();
        now
    }
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
