// SPDX-License-Identifier: Apache-2.0
//! Notifications: short messages between agents, sent alone or when a transfer is done.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::Ordering;

use super::AgentState;
use crate::base::{Count, Error, Result, error, log};
use crate::nixl::call::check;
use crate::nixl::notification::{Notification, NotificationMap, NotificationSupport};
use crate::nixl::remote::{Connecting, Remote};
use crate::nixl::{notification_inbox, sys};

impl AgentState {
    /// Sends a message to a peer whose metadata is loaded.
    pub fn notify(&mut self, peer: &str, message: &[u8]) -> Result<()> {
        self.ensure_peer(peer, "a notification is sent to a peer")?;
        let remote = self.remote(peer)?;
        self.notify_remote(&remote, message)
    }

    /// Sends a message to a peer that was invalidated at most while the caller holds it.
    pub fn notify_remote(&mut self, remote: &Remote, message: &[u8]) -> Result<()> {
        remote.ensure_connectable(Connecting::Notify)?;
        let (name, peer) = (remote.c_name(), remote.name());
        // NIXL fails for a null pointer, also with a size of 0.
        let data = if message.is_empty() { c"".as_ptr().cast::<c_void>() } else { message.as_ptr().cast() };
        // SAFETY: live agent; the message is copied.
        let status = unsafe {
            sys::nixl_capi_gen_notif(self.agent, name.as_ptr(), data, message.len(), ptr::null_mut())
        };
        check(status, || format!("send a notification of {} bytes to agent '{peer}'", message.len()))
            .map_err(|error| remote.explain_posted(error))?;
        remote.note_connected(Connecting::Notify);
        if let Some(sum) = &mut self.sum {
            sum.notifications_sent += 1;
        }
        log!(
            Debug,
            "agent {} sent a notification of {} to '{peer}'",
            self.log_name(),
            Count(message.len() as u64, "byte")
        );
        Ok(())
    }

    /// Looks for messages once, for all tasks of a round. Returns whether there were any. A failure that repeats is logged once.
    pub(in crate::nixl) fn look(&mut self) -> bool {
        let mut has_found = false;
        let failure = self.receive(&mut has_found).err();
        let is_known = |error: &Error| {
            self.look_failure.as_ref().is_some_and(|known| known.message() == error.message())
        };
        if let Some(error) = failure.as_ref().filter(|error| !is_known(error)) {
            log!(Warn, "{error}");
        }
        self.look_failure = failure;
        has_found
    }

    /// Why the last look has failed.
    pub fn look_failure(&self) -> Option<&Error> {
        self.look_failure.as_ref()
    }

    /// Moves received notifications to the inbox. Does nothing if no backend supports notifications. Without a progress thread this
    /// is also what drives the agent as a target. Notes whether there were any, also after a failure.
    pub fn receive(&mut self, has_found: &mut bool) -> Result<()> {
        if self.carrier == NotificationSupport::Missing || self.backends.is_empty() {
            return Ok(());
        }
        let map = NotificationMap::new()?;
        // SAFETY: live handles.
        let status = self
            .looking(|state| unsafe { sys::nixl_capi_get_notifs(state.agent, map.raw(), ptr::null_mut()) });
        // Such a backend has metadata, which fails without one.
        if status < 0 && self.carrier == NotificationSupport::Unknown && self.local_metadata().is_err() {
            self.carrier = NotificationSupport::Missing;
            return Ok(());
        }
        self.carrier = NotificationSupport::Present;
        // Also after a failure: NIXL asks one backend after the other, and the map has what the others have received.
        let mut known = std::mem::take(&mut self.known_names);
        let left = map.for_each(&mut known, |message| {
            *has_found = true;
            self.accept(message);
        });
        self.known_names = known;
        *has_found |= left > 0;
        if left > 0 && self.inbox.lose(left as u64) {
            self.log_loss();
        }
        check(status, || format!("get the notifications of agent '{}'", self.display_name()))
    }

    /// Takes a message of a peer: for a service of this process, or for the caller.
    fn accept(&mut self, message: Notification) {
        let Some(message) = self.services.keep(message) else { return };
        if let Some(sum) = &mut self.sum {
            sum.notifications_received += 1;
        }
        if self.inbox.keep(message) {
            self.log_loss();
        }
    }

    fn log_loss(&self) {
        log!(
            Warn,
            "agent {} loses notifications from here on: {}",
            self.log_name(),
            notification_inbox::LIMITS
        );
    }

    /// Looks for messages. Threads that post wait for it, rather than leave their requests to the agent's thread.
    pub(in crate::nixl) fn looking<R>(&self, look: impl FnOnce(&Self) -> R) -> R {
        self.is_looking.store(true, Ordering::Relaxed);
        let found = look(self);
        self.is_looking.store(false, Ordering::Relaxed);
        found
    }

    pub(in crate::nixl) fn none_arrived(&self) -> Error {
        let agent = self.display_name();
        if self.carrier == NotificationSupport::Missing || self.backends.is_empty() {
            return error!(
                TimedOut,
                "no notification can arrive for agent '{agent}': it has {}; create a backend that carries notifications, \
                 such as UCX",
                self.backend_names()
            );
        }
        Error::elapsed(format!("no notification has arrived for agent '{agent}' in time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::nixl::ServiceId;
    use crate::nixl::notification_inbox::Arrivals;

    #[test]
    fn a_full_inbox_loses_no_message_for_a_service() {
        let (mut state, service) = (AgentState::unloaded(), ServiceId([7; 16]));
        state.services.open(service);
        let message = |data: &[u8]| Notification { agent: "peer".into(), data: data.to_vec() };
        while !state.inbox.keep(message(b"")) {}
        state.accept(message(&[&service.prefix()[..], b"ask"].concat()));
        state.accept(message(b"hello"));
        assert_eq!(state.services.take(&service).messages, [message(b"ask")]);
        assert!(matches!(state.inbox.take(), Some(Arrivals::Messages(_))));
        let error = state.inbox.take().unwrap().into_messages("near").unwrap_err();
        assert_eq!(error.status(), Status::OutOfMemory);
        assert!(error.message().starts_with("agent 'near' has lost 2 notifications here"), "{error}");
    }
}
