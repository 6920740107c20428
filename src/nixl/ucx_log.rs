// SPDX-License-Identifier: Apache-2.0
//! What UCX logs while it refuses to create a backend, to register memory or to load metadata. NIXL reports one status for every reason; UCX
//! names the transports, the devices and the limits of the system.
//!
//! UCX keeps its list of handlers without a lock: a thread of UCX that logs while a handler is added may call a null pointer.
//! So the handler is added once, before kvmem's first backend of UCX starts a thread, and never removed. If the program itself uses this
//! copy of UCX, its threads may run already.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

use super::library;
use crate::base::{Error, Mutex, Result, log};

/// A `ucs_log_func_t`. A `va_list` is passed as a pointer on all platforms that NIXL has libraries for.
type Handler = unsafe extern "C" fn(
    file: *const c_char,
    line: c_uint,
    function: *const c_char,
    level: c_int,
    component: *const c_void,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int;
type Push = unsafe extern "C" fn(Handler);

unsafe extern "C" {
    fn vsnprintf(buffer: *mut c_char, size: usize, format: *const c_char, arguments: *mut c_void) -> c_int;
}

/// `ucs_log_func_rc_t`: UCX writes the message no further, or as always.
const STOP: c_int = 0;
const CONTINUE: c_int = 1;

thread_local! {
    /// The messages that UCX has logged on this thread; `None` if they are not collected.
    static MESSAGES: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// UCX logs the same line for each transport and device that it tries.
const MAX_MESSAGES: usize = 16;

/// Has UCX call [`note`]. Called after a plugin was loaded, and before it makes a backend. Does nothing for a plugin without UCX.
pub fn listen(plugin: &str) {
    /// The addresses of the function in the copies of UCX that have the handler. A plugin may bring another copy.
    static HEARD: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let Some(library) = library::open_plugin(plugin) else { return };
    let Some(push) = library.address_of(c"ucs_log_push_handler") else { return };
    let mut heard = HEARD.lock();
    if !heard.contains(&push.addr().get()) {
        // SAFETY: the function of this name has this signature since UCX 1.10; NIXL needs a newer one. The handler is never
        // unloaded, as this library is not.
        unsafe { std::mem::transmute::<NonNull<c_void>, Push>(push)(note) };
        heard.push(push.addr().get());
        // It stays loaded: another copy at its address would have no handler.
        std::mem::forget(library);
    }
}

/// Does work that calls UCX on this thread. A failure has what UCX logged meanwhile, which UCX writes nowhere else.
pub fn collecting<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    let _collecting = Collecting::begin();
    let outcome = work();
    let messages = MESSAGES.take().unwrap_or_default();
    match outcome {
        Err(error) => Err(messages.into_iter().fold(error, Error::followed_by)),
        Ok(value) => {
            messages.iter().for_each(|message| log!(Warn, "UCX: {message}"));
            Ok(value)
        }
    }
}

/// Ends collecting also if the work panics.
struct Collecting;

impl Collecting {
    fn begin() -> Self {
        MESSAGES.set(Some(Vec::new()));
        Self
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        MESSAGES.set(None);
    }
}

/// Called by UCX for each message that its log level admits, on any thread.
unsafe extern "C" fn note(
    _file: *const c_char,
    _line: c_uint,
    _function: *const c_char,
    _level: c_int,
    _component: *const c_void,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    let noted = MESSAGES.try_with(|messages| {
        let mut messages = messages.try_borrow_mut().ok()?;
        let messages = messages.as_mut()?;
        // SAFETY: UCX's own format and arguments.
        let text = unsafe { formatted(format, arguments) };
        if messages.len() < MAX_MESSAGES && !messages.contains(&text) {
            messages.push(text);
        }
        Some(())
    });
    if matches!(noted, Ok(Some(()))) { STOP } else { CONTINUE }
}

/// # Safety
/// `format` and `arguments` must fit, and are used up.
unsafe fn formatted(format: *const c_char, arguments: *mut c_void) -> String {
    let mut text = [0u8; 1024];
    // SAFETY: the caller's promise; it writes at most so many bytes, the last of them NUL.
    unsafe { vsnprintf(text.as_mut_ptr().cast(), text.len(), format, arguments) };
    let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
    text.to_string_lossy().trim().to_string()
}
