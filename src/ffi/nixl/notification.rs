// SPDX-License-Identifier: Apache-2.0
//! Messages between agents.

use std::ffi::{CString, c_char, c_void};

use crate::error::{Error, Status};
use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::Handle;
use crate::ffi::common::handle::Out;
use crate::ffi::common::handle::borrow;
use crate::ffi::common::handle::destroy;
use crate::ffi::common::handle::opaque;
use crate::ffi::common::handle::peek;
use crate::ffi::common::pointer::out;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::text;
use crate::ffi::common::time::timeout;
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

/// Sends a message to a peer.
///
/// @param agent an agent
/// @param remote the name of a peer whose metadata is loaded
/// @param data the message; any bytes; may be NULL with size 0
/// @param size its bytes
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK once it is on its way; KVMEM_STATUS_NOT_FOUND for a peer that is not loaded;
///         KVMEM_STATUS_NIXL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_notify(
    agent: *mut kvmem_agent,
    remote: *const c_char,
    data: *const c_void,
    size: usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let agent = &borrow(scope, agent)?.agent;
            let remote = text::required(remote, "remote")?.to_string();
            let message = text::bytes(data, size, "data")?.to_vec();
            agent.call(move |driver| driver.notify(&remote, &message))
        })
    }
}

/// Takes all messages that have arrived, and waits for one if there is none. Each message is taken once.
///
/// An agent receives messages through a backend that reaches peers, such as UCX. Without one nothing arrives,
/// and the call waits: a backend may be created meanwhile.
///
/// @param agent an agent
/// @param timeout_ns nanoseconds to wait, 0 not to wait, or KVMEM_TIMEOUT_FOREVER
/// @param notifications gets the messages, at least one; the caller destroys them
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK.
///         KVMEM_STATUS_TIMED_OUT: none has arrived in time.
///         KVMEM_STATUS_NIXL: NIXL failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_take_notifications(
    agent: *mut kvmem_agent,
    timeout_ns: u64,
    notifications: *mut *mut kvmem_notifications,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let notifications = Out::new(notifications)?;
            let messages = borrow(scope, agent)?.agent.take_notifications(timeout(timeout_ns))?;
            notifications.set(value(messages));
            Ok(())
        })
    }
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
/// @param notifications messages that no other call uses; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_notifications_destroy(notifications: *mut kvmem_notifications) {
    // SAFETY: by contract.
    unsafe { destroy(notifications) };
}

fn value(messages: Vec<Notification>) -> Messages {
    let name = |agent: String| CString::new(agent).unwrap_or_default();
    Messages(messages.into_iter().map(|message| (name(message.agent), message.data)).collect())
}
