// SPDX-License-Identifier: Apache-2.0
//! The changes of a folder that the kernel reports.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::names::name_of;

/// An instance of inotify, which watches one folder. It is kept when the path leads to another one: the kernel takes about 10 ms to close it.
pub struct Inotify {
    pub fd: OwnedFd,
    /// The watch of the folder. The kernel gives no number twice.
    watch: Option<i32>,
}

#[derive(Default)]
pub struct Changes {
    pub names: BTreeSet<String>,
    pub closed: BTreeSet<String>,
    /// Reports were lost.
    pub is_incomplete: bool,
    /// The folder was moved, or its file system is gone. Its removal is not reported while it is open.
    pub is_folder_gone: bool,
}

impl Inotify {
    /// Watches the folder that the path leads to, in place of the one before. Creates an instance if there is none.
    pub fn watch(this: &mut Option<Self>, path: &Path) -> Result<(), Errno> {
        let flags = WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let this = match this {
            Some(this) => this,
            None => this.insert(Self {
                fd: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
                watch: None,
            }),
        };
        let watch = inotify::add_watch(&this.fd, path, flags)?;
        if let Some(before) = this.watch.replace(watch).filter(|before| *before != watch) {
            // Without an effect if its folder is gone.
            let _ = inotify::remove_watch(&this.fd, before);
        }
        Ok(())
    }

    /// What was reported since the last call.
    pub fn changes(&self) -> Changes {
        let mut changes = Changes::default();
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = Reader::new(&self.fd, &mut buffer);
        // An error is EAGAIN: all was read.
        while let Ok(event) = reader.next() {
            let flags = event.events();
            changes.is_incomplete |= flags.contains(ReadFlags::QUEUE_OVERFLOW);
            if Some(event.wd()) != self.watch {
                continue;
            }
            changes.is_folder_gone |= flags.intersects(ReadFlags::MOVE_SELF | ReadFlags::IGNORED);
            let Some(name) = event.file_name().and_then(|file| name_of(file.to_bytes())) else { continue };
            if flags.contains(ReadFlags::CLOSE_WRITE) {
                changes.closed.insert(name);
            } else {
                changes.names.insert(name);
            }
        }
        changes
    }
}
