// SPDX-License-Identifier: Apache-2.0
//! Notifications that an agent has received, and NIXL's map of them.

use std::ptr;

use super::call::{check, copied};
use super::sys;
use crate::error::{Result, ensure};

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
pub(super) struct NotificationMap(pub sys::nixl_capi_notif_map_t);

impl NotificationMap {
    pub fn new() -> Result<Self> {
        let mut map = ptr::null_mut();
        // SAFETY: the output is ours on success.
        check(unsafe { sys::nixl_capi_create_notif_map(&mut map) }, || {
            "create a notification map".to_string()
        })?;
        ensure!(!map.is_null(), Nixl, "NIXL created no notification map; free memory of this process");
        Ok(Self(map))
    }

    /// Copies one message after the other, those of one sender in order.
    pub fn for_each(&self, mut receive: impl FnMut(Notification)) {
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
                    receive(Notification { agent: copied(name), data: data.to_vec() });
                }
            }
        }
    }
}

impl Drop for NotificationMap {
    fn drop(&mut self) {
        // SAFETY: created by this value, and not shared.
        unsafe { sys::nixl_capi_destroy_notif_map(self.0) };
    }
}
