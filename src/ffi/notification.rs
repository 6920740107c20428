// SPDX-License-Identifier: Apache-2.0
//! Notifications.

use std::ffi::{CString, c_char, c_void};

use super::error::kvmem_error;
use super::guard::call;
use super::handle::{Handle, borrow, destroy, opaque, out, peek};
use super::status::kvmem_status;
use crate::error::{Error, Status};
use crate::nixl::Notification;

/// Messages taken from an agent. They never change, so any threads may read them at once.
pub struct kvmem_notifications {
    handle: Handle<Messages>,
}
opaque!(kvmem_notifications, Messages, "notifications");

/// Messages with their senders' names as C reads them.
pub struct Messages(Vec<(CString, Vec<u8>)>);

/// One message. Both pointers live as long as the kvmem_notifications.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_notification {
    /// The name of the agent that sent it.
    pub agent: *const c_char,
    /// The bytes, as sent. Not NUL-terminated.
    pub data: *const c_void,
    /// How many.
    pub size: usize,
}

pub(super) fn value(messages: Vec<Notification>) -> Messages {
    let name = |agent: String| CString::new(agent).unwrap_or_default();
    Messages(messages.into_iter().map(|message| (name(message.agent), message.data)).collect())
}

/// How many messages there are.
///
/// @param notifications messages; NULL answers 0
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_notifications_count(notifications: *const kvmem_notifications) -> usize {
    // SAFETY: NULL or live, by contract.
    unsafe { peek(notifications) }.map_or(0, |messages| messages.0.len())
}

/// One of the messages. Those of one sender are in the order NIXL delivered them.
///
/// @param notifications messages
/// @param index which one, below the count
/// @param notification gets it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE past the last
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_notifications_get(
    notifications: *const kvmem_notifications,
    index: usize,
    notification: *mut kvmem_notification,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let messages = &borrow(scope, notifications)?.0;
            let past = || {
                Error::new(
                    Status::OutOfRange,
                    format!("there is no message {index}, there are {}", messages.len()),
                )
            };
            let (agent, data) = messages.get(index).ok_or_else(past)?;
            out(notification, "notification")?.write(kvmem_notification {
                agent: agent.as_ptr(),
                data: data.as_ptr().cast(),
                size: data.len(),
            });
            Ok(())
        })
    }
}

/// Frees messages.
///
/// @param notifications messages, used by nobody any more; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_notifications_destroy(notifications: *mut kvmem_notifications) {
    // SAFETY: by contract.
    unsafe { destroy(notifications) };
}
