// SPDX-License-Identifier: Apache-2.0
//! Notifications: short messages between agents, sent alone or when a transfer is done.

use std::ffi::c_void;
use std::ptr;
use std::time::Instant;

use super::backend::copied;
use super::driver::{Driver, c_string, check};
use super::handoff::Giver;
use super::sys;
use super::thread::{Step, Work};
use crate::error::{Error, Result, Status, ensure};
use crate::log::{Count, log};

/// One message, and who sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The sending agent's name.
    pub agent: String,
    /// The bytes, as sent.
    pub data: Vec<u8>,
}

/// Messages that NIXL handed over and nobody took yet.
#[derive(Default)]
pub struct Inbox(Vec<Notification>);

/// Whether one of the agent's backends carries notifications. NIXL has no function that returns it: without such a backend
/// every call fails, and is reported on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Not known since the last backend was created.
    Unknown,
    /// None does.
    Missing,
    /// At least one does.
    Present,
}

impl Carrier {
    pub(super) fn after_new_backend(self) -> Self {
        if self == Self::Present { Self::Present } else { Self::Unknown }
    }
}

impl Driver {
    /// Sends a message to a peer whose metadata is loaded.
    pub fn notify(&mut self, peer: &str, message: &[u8]) -> Result<()> {
        self.ensure_peer(peer, "a notification is sent to a peer")?;
        let remote = self.remote(peer)?;
        remote.ensure_valid()?;
        let name = c_string("the peer's name", peer)?;
        // NIXL refuses a null pointer, also where there is nothing to read.
        let data = if message.is_empty() { c"".as_ptr().cast::<c_void>() } else { message.as_ptr().cast() };
        // SAFETY: live agent; the message is copied.
        let status = unsafe {
            sys::nixl_capi_gen_notif(self.agent, name.as_ptr(), data, message.len(), ptr::null_mut())
        };
        check(status, || format!("send a notification of {} bytes to agent '{peer}'", message.len()))
            .map_err(|error| remote.explain(error))?;
        log!(
            Debug,
            "agent {} sent a notification of {} to '{peer}'",
            self.log_name(),
            Count(message.len() as u64, "byte")
        );
        Ok(())
    }

    /// Moves what has arrived into the inbox; nothing if no backend carries notifications. Without a progress thread this
    /// is also what drives the agent as a target.
    pub fn receive(&mut self) -> Result<()> {
        if self.carrier == Carrier::Missing || self.backends.is_empty() {
            return Ok(());
        }
        let map = Map::new()?;
        // SAFETY: live handles.
        let status = unsafe { sys::nixl_capi_get_notifs(self.agent, map.0, ptr::null_mut()) };
        // Such a backend has metadata, which fails without one.
        if status < 0 && self.carrier == Carrier::Unknown && self.local_metadata().is_err() {
            self.carrier = Carrier::Missing;
            return Ok(());
        }
        self.carrier = Carrier::Present;
        check(status, || format!("get the notifications of agent '{}'", self.display_name()))?;
        map.copy_into(&mut self.inbox.0);
        Ok(())
    }

    fn none_arrived(&self) -> Error {
        let agent = self.display_name();
        let message = match self.carrier == Carrier::Missing || self.backends.is_empty() {
            true => format!(
                "no notification can arrive for agent '{agent}': it has {}; create a backend that carries notifications, \
                 such as UCX",
                self.backend_names()
            ),
            false => format!("no notification has arrived for agent '{agent}' in time"),
        };
        Error::new(Status::TimedOut, message)
    }

    fn take_inbox(&mut self) -> Vec<Notification> {
        std::mem::take(&mut self.inbox.0)
    }
}

/// Waits on the agent's thread until a message is there or the time is over.
pub(super) struct Receive {
    deadline: Option<Instant>,
    reply: Giver<Result<Vec<Notification>>>,
}

impl Receive {
    /// Without a deadline it waits for ever.
    pub(super) fn new(deadline: Option<Instant>, reply: Giver<Result<Vec<Notification>>>) -> Self {
        Self { deadline, reply }
    }

    fn poll(&self, driver: &mut Driver) -> Option<Result<Vec<Notification>>> {
        if let Err(error) = driver.receive() {
            return Some(Err(error));
        }
        let messages = driver.take_inbox();
        if !messages.is_empty() {
            let count = Count(messages.len() as u64, "notification");
            log!(Debug, "agent {} took {count}", driver.log_name());
            return Some(Ok(messages));
        }
        let over = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        over.then(|| Err(driver.none_arrived()))
    }
}

impl Work for Receive {
    fn step(&mut self, driver: &mut Driver) -> Step {
        match self.poll(driver) {
            Some(result) => {
                // A caller that waits no more leaves its messages to the next one.
                if let Err(Ok(messages)) = self.reply.give(result) {
                    driver.inbox.0.extend(messages);
                }
                Step::Done
            }
            None => Step::Waiting,
        }
    }

    fn abandon(&mut self, error: Error) {
        let _ = self.reply.give(Err(error));
    }
}

/// NIXL's map from agent to messages.
struct Map(sys::nixl_capi_notif_map_t);

impl Map {
    fn new() -> Result<Self> {
        let mut map = ptr::null_mut();
        // SAFETY: the output is ours on success.
        check(unsafe { sys::nixl_capi_create_notif_map(&mut map) }, || {
            "create a notification map".to_string()
        })?;
        ensure!(!map.is_null(), OutOfMemory, "NIXL gave no notification map");
        Ok(Self(map))
    }

    fn copy_into(&self, inbox: &mut Vec<Notification>) {
        let mut agents = 0;
        // SAFETY: live map throughout; names and bytes are copied while it lives unchanged.
        unsafe {
            sys::nixl_capi_notif_map_size(self.0, &mut agents);
            for agent in 0..agents {
                let mut name = ptr::null();
                if sys::nixl_capi_notif_map_get_agent_at(self.0, agent, &mut name) != sys::NIXL_CAPI_SUCCESS {
                    continue;
                }
                let mut count = 0;
                sys::nixl_capi_notif_map_get_notifs_size(self.0, name, &mut count);
                for index in 0..count {
                    let (mut data, mut size) = (ptr::null(), 0);
                    sys::nixl_capi_notif_map_get_notif(self.0, name, index, &mut data, &mut size);
                    let data =
                        if data.is_null() { &[] } else { std::slice::from_raw_parts(data.cast(), size) };
                    inbox.push(Notification { agent: copied(name), data: data.to_vec() });
                }
            }
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: made by this value alone.
        unsafe { sys::nixl_capi_destroy_notif_map(self.0) };
    }
}
