// SPDX-License-Identifier: Apache-2.0
//! Notifications for services of this process: requests of peers, which are kept apart from the messages of callers.

#![forbid(unsafe_code)]

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::inbox::MAX_MESSAGE;
use super::notification::Notification;
use crate::error::{Result, ensure};

/// The first bytes of a notification for a service. Callers cannot send any that begin so.
pub const SERVICE_MAGIC: &[u8; 8] = b"KVMEMSRV";
/// Bytes before the message: the magic and the id of the service.
const PREFIX: usize = 24;
/// The maximum number of messages that wait for a service, and their bytes. Peers send again what they need.
const MOST_MESSAGES: usize = 256;
const MOST_BYTES: usize = 4 << 20;

/// 128 random bits that identify a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ServiceId(#[serde(with = "serde_bytes")] pub [u8; 16]);

impl ServiceId {
    /// The first bytes of each notification for the service.
    pub fn prefix(&self) -> [u8; PREFIX] {
        let mut prefix = [0; PREFIX];
        prefix[..8].copy_from_slice(SERVICE_MAGIC);
        prefix[8..].copy_from_slice(&self.0);
        prefix
    }
}

/// Fails for a caller's notification that a peer would take for a request to a service, or could never keep.
pub fn ensure_sendable(notification: &[u8]) -> Result<()> {
    ensure!(
        !notification.starts_with(SERVICE_MAGIC),
        InvalidArgument,
        "notifications that begin with '{}' are requests of kvmem itself; begin with other bytes",
        SERVICE_MAGIC.escape_ascii()
    );
    ensure!(
        notification.len() <= MAX_MESSAGE,
        OutOfRange,
        "the notification has {} bytes, and a peer keeps at most {MAX_MESSAGE} in one; send less, or move the bytes as blocks",
        notification.len()
    );
    Ok(())
}

/// The messages that wait for each service.
#[derive(Default)]
pub struct Services(HashMap<ServiceId, Waiting>);

#[derive(Default)]
struct Waiting {
    messages: Vec<Notification>,
    bytes: usize,
    dropped: u64,
}

impl Services {
    /// Keeps messages for a service from now on.
    pub fn open(&mut self, id: ServiceId) {
        self.0.entry(id).or_default();
    }

    /// Keeps no more messages for a service.
    pub fn close(&mut self, id: &ServiceId) {
        self.0.remove(id);
    }

    /// Keeps a notification if it is for a service, and drops it if there is no such service, or if too many wait. Returns
    /// others.
    pub fn keep(&mut self, mut notification: Notification) -> Option<Notification> {
        if !notification.data.starts_with(SERVICE_MAGIC) {
            return Some(notification);
        }
        let id = notification.data.get(SERVICE_MAGIC.len()..PREFIX)?.try_into().ok().map(ServiceId)?;
        let waiting = self.0.get_mut(&id)?;
        let size = notification.data.len();
        if waiting.messages.len() >= MOST_MESSAGES || waiting.bytes + size > MOST_BYTES {
            waiting.dropped += 1;
            return None;
        }
        waiting.bytes += size;
        notification.data.drain(..PREFIX);
        waiting.messages.push(notification);
        None
    }

    /// Takes the messages for a service, without the prefix, and how many were dropped before them.
    pub fn take(&mut self, id: &ServiceId) -> (Vec<Notification>, u64) {
        let taken = self.0.get_mut(id).map(std::mem::take).unwrap_or_default();
        (taken.messages, taken.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::super::inbox::{MAX_NAME, NotificationInbox};
    use super::*;
    use crate::error::Status;

    const ID: ServiceId = ServiceId([7; 16]);

    fn message(data: &[u8]) -> Notification {
        Notification { agent: "peer".into(), data: data.to_vec() }
    }

    #[test]
    fn only_messages_for_open_services_are_kept() {
        let mut services = Services::default();
        let request = message(&[&ID.prefix()[..], b"ask"].concat());
        assert_eq!(services.keep(message(b"hello")), Some(message(b"hello")));
        assert_eq!(services.keep(request.clone()), None);
        assert_eq!(services.keep(message(SERVICE_MAGIC)), None);
        assert_eq!(services.take(&ID), (Vec::new(), 0), "it was not open");
        services.open(ID);
        assert_eq!(services.keep(request), None);
        assert_eq!(services.take(&ID), (vec![message(b"ask")], 0));
        services.close(&ID);
        assert!(ensure_sendable(b"KVMEMSR").is_ok());
        assert!(ensure_sendable(b"KVMEMSRV.").is_err());
        assert!(ensure_sendable(&vec![0; MAX_MESSAGE]).is_ok());
        assert_eq!(ensure_sendable(&vec![0; MAX_MESSAGE + 1]).unwrap_err().status(), Status::OutOfRange);
        let largest = Notification { agent: "a".repeat(MAX_NAME), data: vec![0; MAX_MESSAGE] };
        assert!(!NotificationInbox::default().keep(largest), "its receiver loses it");
    }

    #[test]
    fn a_flood_takes_bounded_memory() {
        let mut services = Services::default();
        services.open(ID);
        for size in [1, MOST_BYTES / 8] {
            for _ in 0..2 * MOST_MESSAGES {
                services.keep(message(&[&ID.prefix()[..], &vec![0; size]].concat()));
            }
            let (kept, dropped) = services.take(&ID);
            assert!(kept.iter().map(|kept| kept.data.len()).sum::<usize>() <= MOST_BYTES);
            assert_eq!(kept.len() as u64 + dropped, 2 * MOST_MESSAGES as u64);
            assert!(dropped > 0);
        }
    }
}
