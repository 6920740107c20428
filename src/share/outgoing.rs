// SPDX-License-Identifier: Apache-2.0
//! Sending a parcel, message by message, without waiting.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::frame::{HEADER, Header, MessageKind, Parcel, ParcelInfo};
use super::message;
use crate::base::{Error, Result, Status};

/// The bytes and file descriptors to send, which the sender owns.
pub struct ParcelRef<'a, F> {
    pub bytes: &'a [u8],
    pub fds: &'a [F],
}

impl Parcel {
    pub(super) fn load(&self) -> ParcelRef<'_, std::os::fd::OwnedFd> {
        ParcelRef { bytes: &self.bytes, fds: &self.fds }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStep {
    All,
    /// A part is sent; the socket may accept more.
    Some,
    /// The socket accepts no more until the peer reads.
    Full,
    /// This user has the maximum number of file descriptors in flight in sockets. The kernel does not report when there are
    /// fewer, so retry after a pause.
    TooManyInFlight,
}

/// The progress of sending a parcel. The parcel itself is passed to each step.
pub struct Outgoing {
    whole: ParcelInfo,
    chunk: u32,
    header: [u8; HEADER],
    /// The number of bytes of the message that are sent, including the header.
    sent: usize,
}

impl Outgoing {
    pub fn new<F: AsFd>(kind: MessageKind, load: &ParcelRef<'_, F>) -> Result<Self> {
        let whole = ParcelInfo::new(kind, load.bytes.len(), load.fds.len())?;
        let mut outgoing = Self { whole, chunk: 0, header: [0; HEADER], sent: 0 };
        outgoing.begin_chunk(load);
        Ok(outgoing)
    }

    pub fn has_begun(&self) -> bool {
        self.chunk > 0 || self.sent > 0
    }

    /// Sends as many bytes as the socket accepts without waiting, at most one message.
    pub fn step<F: AsFd>(&mut self, socket: BorrowedFd<'_>, load: &ParcelRef<'_, F>) -> Result<SendStep> {
        if self.chunk == self.whole.chunks() {
            return Ok(SendStep::All);
        }
        let (bytes, fds) = self.whole.piece(self.chunk);
        let body = &load.bytes[bytes];
        // A stream may accept a message in parts. The file descriptors are sent with the first.
        let fds = if self.sent == 0 { message::borrow(&load.fds[fds]) } else { Vec::new() };
        let parts = [&self.header[self.sent.min(HEADER)..], &body[self.sent.saturating_sub(HEADER)..]];
        match message::send(socket, parts, &fds) {
            Ok(count) => self.sent += count,
            Err(Errno::AGAIN) => return Ok(SendStep::Full),
            Err(Errno::TOOMANYREFS) => return Ok(SendStep::TooManyInFlight),
            Err(errno) => return Err(send_error(errno, HEADER + body.len())),
        }
        if self.sent == HEADER + body.len() {
            self.chunk += 1;
            self.begin_chunk(load);
        }
        Ok(if self.chunk == self.whole.chunks() { SendStep::All } else { SendStep::Some })
    }

    fn begin_chunk<F: AsFd>(&mut self, load: &ParcelRef<'_, F>) {
        let (bytes, fds) = self.whole.piece(self.chunk);
        let header = Header {
            whole: self.whole,
            chunk: self.chunk,
            bytes: bytes.len() as u32,
            fds: fds.len() as u32,
            checksum: crc32c::crc32c(&load.bytes[bytes]),
        };
        self.header = header.write();
        self.sent = 0;
    }
}

fn send_error(errno: Errno, size: usize) -> Error {
    match errno {
        Errno::PIPE | Errno::CONNRESET => {
            Error::errno("the peer has closed the socket", errno).with_status(Status::PeerLost)
        }
        Errno::MSGSIZE => {
            let what = format!(
                "the socket's send buffer is too small for a message of {size} bytes; raise SO_SNDBUF"
            );
            Error::errno(what, errno).with_status(Status::InvalidArgument)
        }
        Errno::NOBUFS => Error::errno("send on a socket", errno).with_status(Status::OutOfMemory),
        _ => Error::errno("send on a socket", errno),
    }
}
