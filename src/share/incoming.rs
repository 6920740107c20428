// SPDX-License-Identifier: Apache-2.0
//! A parcel on its way in, one message at a time, without ever waiting and without trusting what comes.

#![forbid(unsafe_code)]

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::frame::{CHUNK, HEADER, Header, MessageKind, ParcelInfo};
use super::message::{self, FDS_A_MESSAGE, Fds, Received};
use super::parcel::{MOST_BYTES, MOST_FDS, Parcel};
use crate::error::{Cause, Error, Result, Status, ensure, fail};

/// How a socket keeps messages apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundaries {
    /// It does not: SOCK_STREAM.
    None,
    /// A message is read whole or cut off: SOCK_SEQPACKET.
    Retained,
}

/// What a reader is ready for.
#[derive(Clone, Copy, Debug)]
pub struct ParcelLimits {
    /// The most bytes.
    pub bytes: usize,
    /// The most file descriptors.
    pub fds: usize,
}

impl ParcelLimits {
    /// Any share.
    pub const SHARE: Self = Self { bytes: MOST_BYTES, fds: MOST_FDS };
}

/// How far one step came.
pub enum ReceiveStep {
    /// All of it.
    All(MessageKind, Parcel),
    /// Some of it; there may be more.
    Some,
    /// Nothing more has come yet.
    Nothing,
}

/// How much of a parcel is in.
pub struct Incoming {
    boundaries: Boundaries,
    limits: ParcelLimits,
    whole: Option<ParcelInfo>,
    next_chunk: u32,
    /// The message under way.
    buffer: Vec<u8>,
    filled: usize,
    fds: Vec<OwnedFd>,
    /// What came with the messages before.
    parcel: Parcel,
}

impl Incoming {
    /// Begins to receive a parcel.
    pub fn new(boundaries: Boundaries, limits: ParcelLimits) -> Self {
        Self {
            boundaries,
            limits,
            whole: None,
            next_chunk: 0,
            buffer: Vec::new(),
            filled: 0,
            fds: Vec::new(),
            parcel: Parcel::default(),
        }
    }

    /// Whether anything of it is in.
    pub fn has_begun(&self) -> bool {
        self.next_chunk > 0 || self.filled > 0
    }

    /// Receives what has come, at most one message.
    pub fn step(&mut self, socket: BorrowedFd<'_>) -> Result<ReceiveStep> {
        let wanted = match self.boundaries {
            Boundaries::Retained => HEADER + CHUNK,
            Boundaries::None => HEADER + self.header()?.map_or(0, |header| header.bytes as usize),
        };
        self.buffer.resize(wanted, 0);
        let take = if self.limits.fds == 0 { Fds::Refuse } else { Fds::Take };
        let received = match message::receive(socket, &mut self.buffer[self.filled..], take, &mut self.fds) {
            Ok(received) => received,
            Err(Errno::AGAIN) => return Ok(ReceiveStep::Nothing),
            Err(errno) => return Err(receive_error(errno)),
        };
        self.check_received(socket, &received)?;
        self.filled += received.bytes;
        let Some(header) = self.header()? else {
            ensure!(
                self.boundaries == Boundaries::None,
                Corrupt,
                "a message of {} bytes came, which is too short for its header",
                self.filled
            );
            return Ok(ReceiveStep::Some);
        };
        self.check_header(&header)?;
        if self.boundaries == Boundaries::Retained || self.filled == HEADER + header.bytes as usize {
            return self.end_chunk(&header);
        }
        Ok(ReceiveStep::Some)
    }

    /// The header of the message under way, once it is in.
    fn header(&self) -> Result<Option<Header>> {
        match self.buffer.first_chunk::<HEADER>() {
            Some(bytes) if self.filled >= HEADER => Header::read(bytes).map(Some),
            _ => Ok(None),
        }
    }

    fn check_received(&self, socket: BorrowedFd<'_>, received: &Received) -> Result<()> {
        if received.fds_cut {
            return Err(self.fds_cut(socket));
        }
        // More than come with any message, before a header could say how many should.
        ensure!(self.fds.len() <= FDS_A_MESSAGE, Corrupt, "file descriptors came that belong to no message");
        ensure!(!received.cut, Corrupt, "a message came that is longer than any of kvmem's");
        if received.bytes == 0 {
            fail!(PeerLost, "the peer has closed the socket {}", self.progress());
        }
        Ok(())
    }

    /// How far it came, for who is told that there is no more.
    fn progress(&self) -> String {
        match self.whole {
            Some(whole) => format!(
                "when {} of {} bytes and {} of {} file descriptors had come",
                self.parcel.bytes.len(),
                whole.bytes,
                self.parcel.fds.len(),
                whole.fds
            ),
            None if self.has_begun() => "amid the first message".to_string(),
            None => "before a message came".to_string(),
        }
    }

    /// Why the kernel kept file descriptors back.
    fn fds_cut(&self, socket: BorrowedFd<'_>) -> Error {
        if self.limits.fds == 0 {
            return Error::new(Status::Corrupt, "file descriptors came where none may come");
        }
        // Those that did come are still held: if the table is full, it is full now.
        let full = rustix::io::fcntl_dupfd_cloexec(socket, 0).err();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let error = match full {
            Some(Errno::MFILE) => Error::new(
                Status::OutOfMemory,
                format!(
                    "the process has no room for the file descriptors of a share: its limit (RLIMIT_NOFILE) is {}; \
                     raise it or close some",
                    limit.map_or("unlimited".to_string(), |limit| limit.to_string())
                ),
            ),
            Some(_) => Error::new(
                Status::OutOfMemory,
                "the system has no room for the file descriptors of a share: see /proc/sys/fs/file-max",
            ),
            None => Error::new(
                Status::PermissionDenied,
                "the kernel kept file descriptors of a share back: a security policy may forbid them",
            ),
        };
        full.map_or(error.clone(), |errno| error.with_cause(Cause::Errno(errno.raw_os_error())))
    }

    fn check_header(&self, header: &Header) -> Result<()> {
        let whole = header.whole;
        ensure!(
            header.chunk == self.next_chunk && self.whole.is_none_or(|first| first == whole),
            Corrupt,
            "message {} came where message {} of the same share was due; only one share at a time may be sent on a \
             socket",
            header.chunk,
            self.next_chunk
        );
        ensure!(
            whole.bytes as usize <= self.limits.bytes && whole.fds as usize <= self.limits.fds,
            Corrupt,
            "the message says {} bytes and {} file descriptors are coming; at most {} and {} may",
            whole.bytes,
            whole.fds,
            self.limits.bytes,
            self.limits.fds
        );
        ensure!(
            self.fds.len() <= header.fds as usize,
            Corrupt,
            "a message says it carries {} file descriptors, {} came with it",
            header.fds,
            self.fds.len()
        );
        Ok(())
    }

    /// Adds a message to the parcel, if it is what it says.
    fn end_chunk(&mut self, header: &Header) -> Result<ReceiveStep> {
        let body = &self.buffer[HEADER..self.filled];
        ensure!(
            body.len() == header.bytes as usize,
            Corrupt,
            "a message says it carries {} bytes, {} came with it",
            header.bytes,
            body.len()
        );
        let checksum = crc32c::crc32c(body);
        ensure!(
            checksum == header.checksum,
            Corrupt,
            "a message's checksum is {checksum:#x}, it says {:#x}",
            header.checksum
        );
        ensure!(
            self.fds.len() == header.fds as usize,
            Corrupt,
            "a message says it carries {} file descriptors, {} came with it",
            header.fds,
            self.fds.len()
        );
        self.parcel.bytes.extend_from_slice(body);
        self.parcel.fds.append(&mut self.fds);
        self.filled = 0;
        self.next_chunk += 1;
        self.whole = Some(header.whole);
        self.end_or_go_on(header)
    }

    fn end_or_go_on(&mut self, header: &Header) -> Result<ReceiveStep> {
        let whole = header.whole;
        let (bytes, fds) = (self.parcel.bytes.len(), self.parcel.fds.len());
        ensure!(
            bytes <= whole.bytes as usize && fds <= whole.fds as usize,
            Corrupt,
            "{bytes} bytes and {fds} file descriptors came of a share that should have {} and {}",
            whole.bytes,
            whole.fds
        );
        if bytes == whole.bytes as usize && fds == whole.fds as usize {
            return Ok(ReceiveStep::All(whole.kind, std::mem::take(&mut self.parcel)));
        }
        // Else a peer could go on for ever.
        ensure!(
            header.bytes > 0 || header.fds > 0,
            Corrupt,
            "a message carries nothing, and more is to come"
        );
        Ok(ReceiveStep::Some)
    }
}

fn receive_error(errno: Errno) -> Error {
    match errno {
        Errno::CONNRESET => {
            Error::errno("the peer has closed the socket", errno).with_status(Status::PeerLost)
        }
        _ => Error::errno("receive on a socket", errno),
    }
}
