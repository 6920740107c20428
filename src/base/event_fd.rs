// SPDX-License-Identifier: Apache-2.0
//! Event fds, which wake a thread that waits for file descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::log::log;
use super::retried;
use crate::base::error::{Error, Result};

pub struct EventFd(OwnedFd);

impl EventFd {
    pub fn new() -> Result<Self> {
        let created = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        created.map(Self).map_err(|errno| Error::errno("create an event fd", errno))
    }

    /// Makes it readable.
    pub fn signal(&self) {
        // With a full counter it is readable.
        if let Err(errno) = retried::write(&self.0, &1u64.to_ne_bytes())
            && errno != Errno::AGAIN
        {
            log!(Error, "signal an event fd: {errno}");
        }
    }

    /// Makes it unreadable, if it is not.
    pub fn clear(&self) {
        let _ = retried::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
