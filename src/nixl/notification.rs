// SPDX-License-Identifier: Apache-2.0
//! Notifications that an agent has received, and NIXL's map of them.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::ptr;

use super::call::Owned;
use super::sys;
use crate::base::Result;

/// A message, and the agent that sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The sending agent's name.
    pub agent: String,
    /// The bytes, as sent.
    pub data: Vec<u8>,
}

/// Whether one of the agent's backends carries notifications. NIXL has no function that returns it: without such a backend
/// every call fails, and is reported on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotificationSupport {
    /// Not known since the last backend was created.
    Unknown,
    /// None does.
    Missing,
    /// At least one does.
    Present,
}

impl NotificationSupport {
    pub(super) fn after_new_backend(self) -> Self {
        if self == Self::Present { Self::Present } else { Self::Unknown }
    }
}

/// NIXL's map from agent to messages.
pub(super) struct NotificationMap(Owned);

impl NotificationMap {
    pub fn new() -> Result<Self> {
        // SAFETY: the output is ours on success.
        let map = unsafe {
            let destroy = sys::nixl_capi_destroy_notif_map;
            Owned::create("a notification map", destroy, |raw| sys::nixl_capi_create_notif_map(raw))
        };
        map.map(Self)
    }

    pub fn raw(&self) -> sys::nixl_capi_notif_map_t {
        self.0.raw()
    }

    /// Copies one message after the other, those of one sender in order. Returns the number of senders whose messages it leaves
    /// in the map.
    ///
    /// NIXL's map returns its nth sender by counting from the first, so that reading n senders by position takes n² steps. Senders
    /// whose names are known are read by name, if there are many.
    pub fn for_each(&self, known: &mut KnownNames, mut receive: impl FnMut(Notification)) -> usize {
        let mut senders = 0;
        // SAFETY: live map.
        unsafe { sys::nixl_capi_notif_map_size(self.raw(), &mut senders) };
        let mut left = senders;
        let by_name = senders > FEW;
        for name in known.0.iter().filter(|_| by_name) {
            if left == 0 {
                break;
            }
            left -= usize::from(self.copy_from(name, &mut receive));
        }
        for index in 0..senders.min(MAX_BY_POSITION) {
            if left == 0 {
                break;
            }
            let mut name = ptr::null();
            // SAFETY: live map.
            let status = unsafe { sys::nixl_capi_notif_map_get_agent_at(self.raw(), index, &mut name) };
            if status != sys::NIXL_CAPI_SUCCESS {
                continue;
            }
            // SAFETY: a string of the map, which lives unchanged.
            let name = unsafe { CStr::from_ptr(name) };
            if !(by_name && known.0.contains(name)) {
                left -= usize::from(self.copy_from(name, &mut receive));
                known.add(name);
            }
        }
        left
    }

    /// Copies the messages of a sender. Returns whether there are any.
    fn copy_from(&self, sender: &CStr, receive: &mut impl FnMut(Notification)) -> bool {
        let mut count = 0;
        // SAFETY: live map and string.
        let status =
            unsafe { sys::nixl_capi_notif_map_get_notifs_size(self.raw(), sender.as_ptr(), &mut count) };
        if status != sys::NIXL_CAPI_SUCCESS {
            return false;
        }
        for index in 0..count {
            let (mut data, mut size) = (ptr::null(), 0);
            // SAFETY: live map throughout; the bytes are copied while it lives unchanged.
            let bytes = unsafe {
                sys::nixl_capi_notif_map_get_notif(self.raw(), sender.as_ptr(), index, &mut data, &mut size);
                if data.is_null() { &[] } else { std::slice::from_raw_parts(data.cast(), size) }
            };
            receive(Notification { agent: sender.to_string_lossy().into_owned(), data: bytes.to_vec() });
        }
        true
    }
}

/// The number of senders of one look up to which all are read by position.
const FEW: usize = 64;
/// The number of senders of one look that are read by position: 8 million steps, some 50 ms. Peers choose the names of senders.
const MAX_BY_POSITION: usize = 4096;
/// The number of names that are kept, and the bytes of one.
const MAX_KNOWN: usize = 16384;
const LONGEST_KNOWN: usize = 256;

/// The names of agents that have sent messages, or that were asked for.
#[derive(Default)]
pub struct KnownNames(HashSet<CString>);

impl KnownNames {
    /// Those that agents of kvmem can have.
    pub fn iter(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(|name| name.to_str().ok().map(str::to_string))
    }

    /// Adds a name, if there is space for it.
    pub fn add(&mut self, name: &CStr) {
        let has_space = self.0.len() < MAX_KNOWN && name.count_bytes() <= LONGEST_KNOWN;
        if has_space && !self.0.contains(name) {
            self.0.insert(name.to_owned());
        }
    }
}
