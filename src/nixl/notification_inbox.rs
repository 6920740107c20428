// SPDX-License-Identifier: Apache-2.0
//! The messages of peers that wait for the caller, within limits: peers send as many as they like, and the caller may never
//! take any. One peer can fill half of the inbox.

use std::collections::HashMap;

use super::notification::Notification;
use crate::base::{Count, Result, error};

/// The maximum number of messages of one peer that wait, and their bytes with its name, which it chooses too. All peers have twice
/// that.
const MAX_MESSAGES: usize = 1 << 16;
const MAX_BYTES: usize = 64 << 20;
/// The bytes of a sender's name that a message has space for.
pub const MAX_NAME: usize = 4096;
/// The bytes of one message that an empty inbox keeps.
pub const MAX_MESSAGE: usize = MAX_BYTES - MAX_NAME;
/// The same for messages of this library.
pub const LIMITS: &str = "at most 65536 of one sender, with 64 MiB, and twice that of all wait until they are taken, and at most 4096 unknown senders are \
     read at a time";

/// Messages that NIXL delivered and the caller has not taken. Once one does not fit, those after it are lost until the caller
/// takes the messages: what it gets has no gap that was not reported in its place. If one peer has filled its share, those are
/// only the messages of that peer.
#[derive(Default)]
pub struct NotificationInbox {
    /// The number of messages that were lost before those that wait.
    lost_before: u64,
    waiting: Vec<Notification>,
    bytes: usize,
    /// What each peer has of them.
    of: HashMap<String, Share>,
    /// Messages of all peers are lost.
    is_full: bool,
    /// The number of messages that were lost after them.
    lost_after: u64,
    taken: u64,
}

/// The messages of one peer that wait.
#[derive(Default)]
struct Share {
    messages: usize,
    bytes: usize,
    is_full: bool,
}

/// What the caller gets next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// All messages that wait, at least one, in order of arrival.
    Messages(Vec<Notification>),
    /// The number of messages that were lost here.
    Lost(u64),
}

impl Arrivals {
    /// The messages. Fails if some were lost.
    pub fn into_messages(self, agent: &str) -> Result<Vec<Notification>> {
        match self {
            Self::Messages(messages) => Ok(messages),
            Self::Lost(count) => {
                let lost = Count(count, "notification");
                Err(error!(
                    OutOfMemory,
                    "agent '{agent}' has lost {lost} here: {LIMITS}; take them more often"
                ))
            }
        }
    }
}

impl NotificationInbox {
    /// Keeps a message if it fits. Returns whether it is the first that is lost after those that wait.
    pub fn keep(&mut self, message: Notification) -> bool {
        let size = size(&message);
        // A loss before all that wait closes nothing.
        let closes = !self.waiting.is_empty();
        let known = self.of.get_mut(&message.agent);
        let is_over = known.as_ref().map_or(size > MAX_BYTES, |share| {
            share.is_full || share.messages >= MAX_MESSAGES || size > MAX_BYTES - share.bytes
        });
        // Of a peer that has lost its first message, the name waits.
        let added = match &known {
            _ if !is_over => size,
            None if closes => message.agent.len(),
            _ => 0,
        };
        let is_full = self.waiting.len() >= 2 * MAX_MESSAGES || added > 2 * MAX_BYTES - self.bytes;
        self.is_full |= closes && is_full;
        if self.is_full || (is_over && !closes) {
            return self.count_lost(1);
        }
        let share = match known {
            Some(share) => share,
            None => self.of.entry(message.agent.clone()).or_default(),
        };
        share.is_full = is_over;
        self.bytes += added;
        if is_over {
            return self.count_lost(1);
        }
        (share.messages, share.bytes) = (share.messages + 1, share.bytes + size);
        self.waiting.push(message);
        false
    }

    /// Notes that so many messages of unknown peers were lost now. Returns whether the first of them is the first that is lost after
    /// those that wait.
    pub fn lose(&mut self, count: u64) -> bool {
        self.is_full = !self.waiting.is_empty();
        self.count_lost(count)
    }

    fn count_lost(&mut self, count: u64) -> bool {
        let lost = if self.waiting.is_empty() { &mut self.lost_before } else { &mut self.lost_after };
        *lost += count;
        *lost == count
    }

    /// Takes what waits: a loss before the messages that arrived after it.
    pub fn take(&mut self) -> Option<Arrivals> {
        if self.is_empty() {
            return None;
        }
        self.taken += 1;
        if self.lost_before > 0 {
            return Some(Arrivals::Lost(std::mem::take(&mut self.lost_before)));
        }
        (self.bytes, self.is_full) = (0, false);
        self.of.clear();
        self.lost_before = std::mem::take(&mut self.lost_after);
        Some(Arrivals::Messages(std::mem::take(&mut self.waiting)))
    }

    /// Whether nothing waits to be taken.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.lost_before == 0
    }

    pub fn taken(&self) -> u64 {
        self.taken
    }
}

fn size(message: &Notification) -> usize {
    message.agent.len() + message.data.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: &str = "peer";

    /// One of this size, with the name of its sender.
    fn message(number: usize, size: usize) -> Notification {
        let mut data = number.to_le_bytes().to_vec();
        data.resize(size.saturating_sub(SENDER.len()).max(data.len()), 0);
        Notification { agent: SENDER.into(), data }
    }

    /// Keeps these messages; returns how many of them were reported as the first that is lost.
    fn keep(inbox: &mut NotificationInbox, numbers: std::ops::Range<usize>, size: usize) -> usize {
        numbers.filter(|number| inbox.keep(message(*number, size))).count()
    }

    fn take_numbers(inbox: &mut NotificationInbox) -> std::ops::Range<usize> {
        let Some(Arrivals::Messages(messages)) = inbox.take() else { panic!("no messages") };
        let numbers = messages.iter().map(|each| usize::from_le_bytes(each.data[..8].try_into().unwrap()));
        let numbers: Vec<_> = numbers.collect();
        let range = numbers[0]..numbers[0] + numbers.len();
        assert!(numbers.into_iter().eq(range.clone()), "messages are in order");
        range
    }

    #[test]
    fn each_loss_is_reported_between_the_messages_around_it() {
        let (mut inbox, size) = (NotificationInbox::default(), MAX_BYTES / 4);
        assert_eq!(keep(&mut inbox, 0..6, size), 1);
        assert!(!inbox.keep(message(6, 8)), "it would fit, and comes after lost ones");
        assert_eq!(take_numbers(&mut inbox), 0..4);
        assert!(!inbox.is_empty(), "the loss waits");
        assert_eq!(keep(&mut inbox, 7..12, size), 1);
        assert_eq!(inbox.take(), Some(Arrivals::Lost(3)));
        assert_eq!(take_numbers(&mut inbox), 7..11);
        assert_eq!(inbox.take(), Some(Arrivals::Lost(1)));
        assert_eq!(inbox.take(), None);
    }

    #[test]
    fn a_message_above_the_limit_is_lost_alone() {
        let mut inbox = NotificationInbox::default();
        assert!(inbox.keep(message(0, MAX_BYTES + 1)));
        assert!(!inbox.keep(message(1, MAX_BYTES)));
        assert_eq!(inbox.take(), Some(Arrivals::Lost(1)));
        assert_eq!(take_numbers(&mut inbox), 1..2);
    }

    /// Its name waits, so that its later messages are lost, too.
    #[test]
    fn a_message_above_the_limit_loses_no_message_of_another() {
        let mut inbox = NotificationInbox::default();
        let other = |number| Notification { agent: "other".into(), ..message(number, 8) };
        assert!(!inbox.keep(other(0)));
        assert!(inbox.keep(message(1, 2 * MAX_BYTES + 1)));
        assert!(!inbox.keep(message(2, 8)) && !inbox.keep(other(3)));
        let Some(Arrivals::Messages(messages)) = inbox.take() else { panic!("no messages") };
        assert_eq!(messages, [other(0), other(3)]);
        assert_eq!((inbox.take(), inbox.take()), (Some(Arrivals::Lost(2)), None));
    }

    #[test]
    fn the_names_of_senders_that_have_only_lost_messages_have_the_same_limit() {
        for waiting in 0..2 {
            let mut inbox = NotificationInbox::default();
            keep(&mut inbox, 0..waiting, 8);
            for number in 0..4 {
                let agent = format!("{number}{}", "x".repeat(MAX_BYTES));
                inbox.keep(Notification { agent, data: Vec::new() });
            }
            let names: usize = inbox.of.keys().map(String::len).sum();
            assert!(names <= 2 * MAX_BYTES, "{names} bytes of names with {waiting} waiting");
        }
    }

    #[test]
    fn a_flood_of_one_peer_loses_no_message_of_another() {
        for (size, most) in [(8, MAX_MESSAGES), (1 << 20, 64)] {
            let mut inbox = NotificationInbox::default();
            keep(&mut inbox, 0..most + 7, size);
            let other = |number| Notification { agent: "other".into(), ..message(number, 8) };
            assert!((0..5).all(|number| !inbox.keep(other(number))));
            keep(&mut inbox, most + 7..most + 8, 8);
            let Some(Arrivals::Messages(messages)) = inbox.take() else { panic!("no messages") };
            let of_other = messages.iter().filter(|each| each.agent == "other").count();
            assert_eq!((messages.len(), of_other), (most + 5, 5));
            assert_eq!((inbox.take(), inbox.take()), (Some(Arrivals::Lost(8)), None));
        }
    }

    #[test]
    fn all_peers_together_have_twice_the_share_of_one() {
        let (mut inbox, size) = (NotificationInbox::default(), MAX_BYTES / 2);
        let of = |peer: usize| Notification { agent: format!("{peer:4}"), ..message(0, size) };
        let kept: Vec<_> = (0..6)
            .map(|number| {
                inbox.keep(of(number));
                inbox.waiting.len()
            })
            .collect();
        assert_eq!(kept, [1, 2, 3, 4, 4, 4]);
    }

    #[test]
    fn the_names_of_senders_have_the_same_limit() {
        let mut inbox = NotificationInbox::default();
        let named = || Notification { agent: "x".repeat(MAX_BYTES / 2), data: Vec::new() };
        assert!([inbox.keep(named()), inbox.keep(named()), inbox.keep(named())] == [false, false, true]);
    }
}
