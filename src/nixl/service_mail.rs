// SPDX-License-Identifier: Apache-2.0
//! Notifications for services of this process: requests of peers, which are kept apart from the messages of callers.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::notification::Notification;
use super::notification_inbox::MAX_MESSAGE;
use crate::base::{Leases, Result, ensure};

/// The first bytes of a notification for a service. Callers cannot send any that begin so.
pub const SERVICE_MAGIC: &[u8; 8] = b"KVMEMSRV";
/// Bytes before the message: the magic and the id of the service.
const PREFIX: usize = 24;
/// Bytes of a short message, with the name of its sender, at most.
const SHORT: usize = 1 << 10;
/// Short messages that wait for a service, of all peers and of one: it may end all its leases at once. Peers send again what they need.
const MAX_SHORT: usize = 2048;
const MAX_SHORT_OF_ONE: usize = 512;
const MAX_BYTES: usize = 4 << 20;
const MAX_BYTES_OF_ONE: usize = 1 << 20;
/// Short messages, and longer ones, that are taken at a time.
const SHORT_AT_A_TIME: usize = 32;
const LONG_AT_A_TIME: usize = 2;

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

#[derive(Default)]
pub struct Services(HashMap<ServiceId, Waiting>);

/// Long messages wait apart: those of a peer do not displace its short ones, which end its sessions.
struct Waiting {
    short: Leases<String, Vec<u8>>,
    long: Leases<String, Vec<u8>>,
    dropped: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct ServiceMail {
    /// The messages, without the prefix: short ones in order of arrival, then longer ones. More may wait.
    pub messages: Vec<Notification>,
    /// How many were dropped since the last time.
    pub dropped: u64,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            short: Leases::new(MAX_SHORT, MAX_SHORT_OF_ONE),
            long: Leases::new(MAX_BYTES, MAX_BYTES_OF_ONE),
            dropped: 0,
        }
    }
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
        let size = notification.data.len() + notification.agent.len();
        notification.data.drain(..PREFIX);
        let (kind, units) = match size <= SHORT {
            true => (&mut waiting.short, 1),
            false => (&mut waiting.long, size),
        };
        if kind.add(notification.agent, units, notification.data).is_err() {
            waiting.dropped += 1;
        }
        None
    }

    /// Takes the next messages for a service.
    pub fn take(&mut self, id: &ServiceId) -> ServiceMail {
        let Some(waiting) = self.0.get_mut(id) else { return ServiceMail::default() };
        let mut messages = Vec::new();
        for (kind, most) in [(&mut waiting.short, SHORT_AT_A_TIME), (&mut waiting.long, LONG_AT_A_TIME)] {
            let next = std::iter::from_fn(|| kind.end(|_| true)).take(most);
            messages.extend(next.map(|lease| Notification { agent: lease.peer, data: lease.item }));
        }
        ServiceMail { messages, dropped: std::mem::take(&mut waiting.dropped) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::notification_inbox::{MAX_NAME, NotificationInbox};
    use super::*;
    use crate::base::Status;

    const ID: ServiceId = ServiceId([7; 16]);

    fn message(data: &[u8]) -> Notification {
        Notification { agent: "peer".into(), data: data.to_vec() }
    }

    fn request(agent: &str, size: usize) -> Notification {
        Notification { agent: agent.into(), data: [&ID.prefix()[..], &vec![0; size]].concat() }
    }

    /// All messages that wait, and how many were dropped.
    fn take_all(services: &mut Services) -> (Vec<Notification>, u64) {
        let (mut all, mut lost) = (Vec::new(), 0);
        loop {
            let ServiceMail { messages, dropped } = services.take(&ID);
            lost += dropped;
            assert!(messages.len() <= SHORT_AT_A_TIME + LONG_AT_A_TIME);
            match messages.is_empty() {
                true => return (all, lost),
                false => all.extend(messages),
            }
        }
    }

    #[test]
    fn only_messages_for_open_services_are_kept() {
        let mut services = Services::default();
        let request = message(&[&ID.prefix()[..], b"ask"].concat());
        assert_eq!(services.keep(message(b"hello")), Some(message(b"hello")));
        assert_eq!(services.keep(request.clone()), None);
        assert_eq!(services.keep(message(SERVICE_MAGIC)), None);
        assert_eq!(services.take(&ID), ServiceMail::default(), "it was not open");
        services.open(ID);
        assert_eq!(services.keep(request), None);
        assert_eq!(services.take(&ID).messages, [message(b"ask")]);
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
        for (size, most) in [(1, MAX_SHORT), (MAX_BYTES / 32, 31)] {
            let mut services = Services::default();
            services.open(ID);
            for number in 0..4096 {
                services.keep(request(&format!("peer {}", number % 64), size));
            }
            let (kept, dropped) = take_all(&mut services);
            assert_eq!((kept.len(), kept.len() as u64 + dropped), (most, 4096));
            assert!(kept.iter().map(|kept| kept.data.len()).sum::<usize>() <= MAX_BYTES);
        }
    }

    #[test]
    fn a_flood_of_one_peer_displaces_no_message_of_another() {
        for size in [1, MAX_BYTES / 32] {
            let mut services = Services::default();
            services.open(ID);
            (0..4096).for_each(|_| drop(services.keep(request("flooder", size))));
            services.keep(request("other", size));
            services.keep(request("flooder", 2));
            let (kept, _) = take_all(&mut services);
            assert_eq!(kept.iter().filter(|message| message.agent == "other").count(), 1);
            let is_short = |message: &&Notification| message.agent == "flooder" && message.data.len() == 2;
            assert_eq!(
                kept.iter().filter(is_short).count(),
                usize::from(size > SHORT),
                "its own long ones neither"
            );
        }
    }
}
