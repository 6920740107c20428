// SPDX-License-Identifier: Apache-2.0
//! The log callback.

use std::ffi::{CString, c_char, c_void};

use crate::base::ensure;
use crate::base::log::{self, Level};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call_unlogged;
use crate::ffi::common::handle::UserData;
use crate::ffi::common::status::kvmem_status;

/// No messages.
pub const KVMEM_LOG_OFF: u32 = 0;
/// Failures that no return value can report.
pub const KVMEM_LOG_ERROR: u32 = 1;
/// Something works, but not as well as requested.
pub const KVMEM_LOG_WARN: u32 = 2;
/// Milestones, such as a loaded library, and methods that the setup makes slow.
pub const KVMEM_LOG_INFO: u32 = 3;
/// Creation and destruction of regions, layouts and transfers; start and end of runs; opened files,
/// registrations, shares; failed calls. Objects have numbers, as in "transfer #7".
pub const KVMEM_LOG_DEBUG: u32 = 4;
/// All calls, timeouts, and the steps of operations.
pub const KVMEM_LOG_TRACE: u32 = 5;

/// Receives one message. Target and message are UTF-8 and valid during the call. A message is one line:
/// control characters in it, such as those of names, are escaped as in "\n" and "\u{1b}", and so are
/// separators of lines and marks of the direction of text.
///
/// kvmem calls it on a dedicated thread, one message at a time, in the order in which the messages were
/// logged. It may call any function of kvmem and may block: only kvmem_log_set_callback waits for it.
/// Messages that kvmem logs on the callback's own thread are not delivered. Work that the callback starts on
/// other threads is logged: a callback that starts a transfer for each transfer message never ends.
///
/// Up to 4 MiB of messages are queued. Others are dropped, and one at KVMEM_LOG_ERROR reports their number.
///
/// Notes: target is the module that logged, such as "kvmem::transfer". Targets may change between versions.
pub type kvmem_log_callback = Option<
    unsafe extern "C" fn(level: u32, target: *const c_char, message: *const c_char, user_data: *mut c_void),
>;

/// Sets the log callback of the process, or removes it.
///
/// Messages that were logged before are delivered to the previous callback, then the function returns. After
/// it returns, the previous callback is not running and is not called again, so its user data can be freed.
/// The caller must not hold a lock that the previous callback takes.
///
/// Called from the log callback itself, the function cannot wait: it discards the queued messages, and the
/// previous callback is not called again after its running call returns.
///
/// @param level least important level to deliver, a KVMEM_LOG_* value; KVMEM_LOG_OFF removes the callback
/// @param callback the function to call; NULL removes the callback
/// @param user_data passed to every call
/// @return KVMEM_STATUS_OUT_OF_MEMORY: the callback's thread could not be started; nothing has changed
///
/// Notes: messages that are still queued when the process ends are lost; remove the callback before. Remove a
/// callback that is part of a shared object before dlclose. A forked child starts without a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_log_set_callback(
    level: u32,
    callback: kvmem_log_callback,
    user_data: *mut c_void,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        ensure!(
            level <= KVMEM_LOG_TRACE,
            InvalidArgument,
            "level is {level}; it must be KVMEM_LOG_OFF (0) to KVMEM_LOG_TRACE ({KVMEM_LOG_TRACE})"
        );
        log::set_sink(level, callback.map(|callback| sink(callback, UserData(user_data))))
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call_unlogged(error, body) }
}

fn sink(
    callback: unsafe extern "C" fn(u32, *const c_char, *const c_char, *mut c_void),
    user_data: UserData,
) -> log::Sink {
    Box::new(move |level: Level, target: &str, message: &str| {
        let user_data = &user_data;
        let text = |text: &str| CString::new(text.replace('\0', "?")).unwrap_or_default();
        let (target, message) = (text(target), text(message));
        // SAFETY: a callback that does not unwind, by contract; the strings live through the call.
        unsafe { callback(level as u32, target.as_ptr(), message.as_ptr(), user_data.0) };
    })
}
