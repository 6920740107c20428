// SPDX-License-Identifier: Apache-2.0
//! Messages between agents.

use std::ffi::{CString, c_char, c_void};

use crate::base::lists;
use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::{
    Array, borrow, borrow_nullable, call, call_new, destroy, item_list, kvmem_error, kvmem_status, text,
    timeout,
};
use crate::ffi::queue::kvmem_queue;
use crate::nixl::service_mail::ensure_sendable;
use crate::nixl::{Command, Notification};
use crate::transfer::{EntryKind, QueueEntry};

/// Messages, each with its sender's name and its bytes.
pub type Messages = Array<kvmem_notification, (CString, Vec<u8>)>;

/// A message. Both pointers are valid as long as the kvmem_notifications.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_notification {
    /// Name of the agent that sent it.
    pub agent: *const c_char,
    /// Its bytes, not NUL-terminated.
    pub data: *const c_void,
    /// Number of bytes.
    pub size: usize,
}

/// Messages that were taken from an agent. The caller destroys them.
#[repr(C)]
pub struct kvmem_notifications {
    /// Messages in the order of their arrival; NULL if there are none.
    pub items: *const kvmem_notification,
    /// Their number.
    pub count: usize,
}
item_list!(kvmem_notifications, Messages, "notifications");

/// Sends a message to a peer.
///
/// @param data any bytes; NULL with size 0 for an empty message
/// @return KVMEM_STATUS_OK: NIXL has accepted the message
///         KVMEM_STATUS_INVALID_ARGUMENT: the name is the agent's own; or the bytes begin with KVMEMSRV
///         KVMEM_STATUS_OUT_OF_RANGE: the message has more than 64 MiB less 4 KiB, which no peer keeps
///         KVMEM_STATUS_NOT_FOUND: the metadata of the peer is not loaded
///         KVMEM_STATUS_STALE: the metadata of the peer was invalidated
///         KVMEM_STATUS_PEER_LOST: the process of the peer has ended, or the connection to a peer on another
///           machine or in another PID namespace has failed; known only if a layout of the peer was imported
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_notify(
    agent: *mut kvmem_agent,
    remote: *const c_char,
    data: *const c_void,
    size: usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let agent = &borrow(scope, agent)?.agent;
        let remote = text::required(remote, "remote")?.to_string();
        let message = text::bytes(data, size, "data")?;
        ensure_sendable(message)?;
        let message = lists::copied(message)?;
        agent.call(|reply| Command::Notify(remote, message, reply))
    })
}

/// Returns all messages that an agent has received, each once, and waits for one if there is none.
///
/// Messages of one sender arrive in the order in which it has sent them, if a transfer with a message has
/// ended before the sender's next message. Otherwise the message of a transfer arrives after its bytes, and
/// before or after later messages. Messages of different senders have no order.
///
/// An agent receives messages through a backend that reaches peers, such as UCX. Without one no message
/// arrives, and the call waits, because a backend may be created during the wait.
///
/// At most 65536 messages of one sender with 64 MiB, its name included, wait to be taken, and twice that of
/// all. Messages of that sender, or of all, that arrive after that are lost, until the call has returned
/// those that wait. The next call fails and reports their number; the call after it returns later messages.
///
/// @param notifications receives the messages, at least one
/// @return KVMEM_STATUS_TIMED_OUT: no message has arrived; a call of NIXL can delay the end by 100 ms
///         KVMEM_STATUS_OUT_OF_MEMORY: messages were lost at this point, because too many waited; call again
///           for later ones, and have the peers repeat what the caller needs
///
/// Notes: NIXL itself keeps any number of messages until kvmem looks for them. It does so while a call waits,
/// a queue is set, or the agent serves a layout, and if the agent has no progress thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_take_notifications(
    agent: *mut kvmem_agent,
    timeout_ns: u64,
    notifications: *mut *mut kvmem_notifications,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (notifications, "notifications"), |scope| {
        let messages = borrow(scope, agent)?.agent.take_notifications(timeout(timeout_ns))?;
        Ok(value(messages))
    })
}

/// Has a queue report that messages have arrived at an agent, so that no thread needs to wait for them.
///
/// When messages arrive and none waited before, the queue gets a KVMEM_COMPLETION_NOTIFICATIONS. Take them
/// then (kvmem_agent_take_notifications, timeout 0). The next completion follows when messages arrive after
/// that. If messages were lost, another completion follows when those before the loss have been taken.
///
/// @param queue the queue, which replaces the one before; NULL ends the reports
/// @param user_data user_data of the completions
///
/// Notes: NIXL has no event for messages. While a queue is set, the thread of the agent looks for them, at
/// most every 50 us, and every 500 us if none arrive. If another thread uses the agent then, that one looks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_report_notifications(
    agent: *mut kvmem_agent,
    queue: *mut kvmem_queue,
    user_data: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let agent = &borrow(scope, agent)?.agent;
        let queue = borrow_nullable(scope, queue)?.map(|open| open.0.clone());
        agent.ring_on_notifications(queue.map(|queue| {
            let entry = QueueEntry::news(EntryKind::Notifications, user_data);
            Box::new(move || queue.push(entry)) as Box<dyn Fn() + Send + Sync>
        }))
    })
}

/// Destroys messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_notifications_destroy(notifications: *mut kvmem_notifications) {
    destroy(notifications);
}

fn value(messages: Vec<Notification>) -> Messages {
    let name = |agent: String| CString::new(agent).unwrap_or_default();
    let owners = messages.into_iter().map(|message| (name(message.agent), message.data)).collect();
    Array::new(owners, |(agent, data): &(CString, Vec<u8>)| kvmem_notification {
        agent: agent.as_ptr(),
        data: data.as_ptr().cast(),
        size: data.len(),
    })
}
