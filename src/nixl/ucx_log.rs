// SPDX-License-Identifier: Apache-2.0
//! What UCX logs while it refuses to create a backend, to register memory or to load metadata. NIXL reports one status for every reason; UCX
//! names the transports, the devices and the limits of the system.
//!
//! The call is repeated for that, after it has failed. Collecting during the first call would need no repetition, but UCX
//! keeps its list of handlers without a lock: a thread of UCX that logs while the list changes reads it half-changed. So
//! the list is changed only after a failure, never by a call that succeeds. The calls repeat without effect if they are
//! refused: NIXL keeps nothing of a backend or a registration that it has refused, and loads metadata again as after a success.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

use super::library;
use crate::base::{Error, Mutex, OpenLibrary, Result, log};

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
type Pop = unsafe extern "C" fn();

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

/// UCX's list of handlers has no lock.
static HANDLERS: Mutex<()> = Mutex::new(());

/// Repeats work that has failed with `first`, and returns the last outcome with what UCX logged on this thread meanwhile,
/// which UCX writes nowhere else. Returns the first failure if the plugin does not use UCX.
///
/// If the repetition succeeds, its result is returned: the object exists, and a failure would lose it. The log has the
/// first failure then.
pub fn repeat_collecting<R>(plugin: &str, first: Error, work: impl FnOnce() -> Result<R>) -> Result<R> {
    let Some(collecting) = Collecting::begin(plugin) else { return Err(first) };
    let outcome = work();
    let messages = collecting.end();
    if outcome.is_ok() {
        log!(Warn, "{plugin} failed, and succeeded when the call was repeated; the failure: {first}");
    }
    outcome.map_err(|error| messages.into_iter().fold(error, Error::followed_by))
}

/// UCX calls [`note`] while this lives.
struct Collecting {
    pop: Pop,
    /// Keeps UCX loaded.
    _plugin: OpenLibrary,
}

impl Collecting {
    fn begin(plugin: &str) -> Option<Self> {
        let plugin = library::open_plugin(plugin)?;
        let push = plugin.address_of(c"ucs_log_push_handler")?;
        let pop = plugin.address_of(c"ucs_log_pop_handler")?;
        // SAFETY: the functions of these names have these signatures since UCX 1.10; NIXL needs a newer one.
        unsafe {
            let push = std::mem::transmute::<NonNull<c_void>, Push>(push);
            let pop = std::mem::transmute::<NonNull<c_void>, Pop>(pop);
            MESSAGES.set(Some(Vec::new()));
            let _turn = HANDLERS.lock();
            push(note);
            Some(Self { pop, _plugin: plugin })
        }
    }

    fn end(self) -> Vec<String> {
        MESSAGES.take().unwrap_or_default()
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        MESSAGES.set(None);
        let _turn = HANDLERS.lock();
        // SAFETY: the library is loaded; a handler was pushed for this value, and all of them are the same.
        unsafe { (self.pop)() };
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
