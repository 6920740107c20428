// SPDX-License-Identifier: Apache-2.0
//! The log callback.

use std::ffi::{CString, c_char, c_void};

use super::error::kvmem_error;
use super::guard::call;
use super::handle::UserData;
use super::status::kvmem_status;
use crate::error::ensure;
use crate::log::{self, Level};

/// Nothing is logged.
pub const KVMEM_LOG_OFF: u32 = 0;
/// Something failed that no return value could tell.
pub const KVMEM_LOG_ERROR: u32 = 1;
/// Something works, but not as well as asked.
pub const KVMEM_LOG_WARN: u32 = 2;
/// Milestones, such as a library that was loaded.
pub const KVMEM_LOG_INFO: u32 = 3;
/// One line an operation.
pub const KVMEM_LOG_DEBUG: u32 = 4;
/// Everything.
pub const KVMEM_LOG_TRACE: u32 = 5;

/// Gets one message. Called from any thread but an agent's, also from several at once, never with a lock of kvmem's held.
/// It may call kvmem, but must not wait in it for the end of a transfer or for notifications: the thread may be the one
/// that would see to them. Target and message are UTF-8 and live through the call. Must not unwind.
pub type kvmem_log_callback = Option<
    unsafe extern "C" fn(level: u32, target: *const c_char, message: *const c_char, user_data: *mut c_void),
>;

/// Sets the one log callback of the process, or takes it away.
///
/// A message that another thread began before the change may still arrive at the old callback after this returns.
///
/// @param level the least important messages wanted, a KVMEM_LOG_* value; KVMEM_LOG_OFF takes the callback away
/// @param callback who gets them; NULL takes the callback away
/// @param user_data handed to every call
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_INVALID_ARGUMENT for a level that is none
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_log_set_callback(
    level: u32,
    callback: kvmem_log_callback,
    user_data: *mut c_void,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        ensure!(level <= KVMEM_LOG_TRACE, InvalidArgument, "{level} is no log level");
        log::set_sink(level, callback.map(|callback| sink(callback, UserData(user_data))));
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
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
