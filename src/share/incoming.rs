// SPDX-License-Identifier: Apache-2.0
//! Receiving a parcel, message by message, without waiting and without trusting the sender.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::frame::{CHUNK, HEADER, Header, MAX_BYTES, MAX_FDS, MessageKind, Parcel, ParcelInfo};
use super::message::{self, FDS_A_MESSAGE, Fds, Received};
use crate::base::{Cause, Error, Result, Status, ensure, error, fail, lists};

/// Whether a socket preserves message boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundaries {
    /// It does not: SOCK_STREAM.
    None,
    /// A message is read whole or cut off: SOCK_SEQPACKET.
    Retained,
}

#[derive(Clone, Copy, Debug)]
pub struct ParcelLimits {
    pub bytes: usize,
    /// Maximum number of file descriptors.
    pub fds: usize,
}

impl ParcelLimits {
    pub const SHARE: Self = Self { bytes: MAX_BYTES, fds: MAX_FDS };
}

pub enum ReceiveStep {
    All(MessageKind, Parcel),
    /// Some of it; there may be more.
    Some,
    Nothing,
}

pub struct Incoming {
    boundaries: Boundaries,
    limits: ParcelLimits,
    whole: Option<ParcelInfo>,
    next_chunk: u32,
    /// The message that is being received.
    buffer: Vec<u8>,
    filled: usize,
    fds: Vec<OwnedFd>,
    /// The content of the earlier messages.
    parcel: Parcel,
}

impl Incoming {
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

    pub fn has_begun(&self) -> bool {
        self.next_chunk > 0 || self.filled > 0
    }

    /// Receives available bytes, at most one message.
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
                "received a message of {} bytes, which is too short for a header",
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

    /// The header of the current message, once it is complete.
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
        // More than any message has, even before the header with the expected number is complete.
        ensure!(
            self.fds.len() <= FDS_A_MESSAGE,
            Corrupt,
            "received more file descriptors than a message can have"
        );
        ensure!(!received.cut, Corrupt, "received a message that is longer than the maximum");
        if received.bytes == 0 {
            fail!(PeerLost, "the peer has closed the socket {}", self.progress());
        }
        Ok(())
    }

    /// The progress, for the error after the peer has closed the socket.
    fn progress(&self) -> String {
        match self.whole {
            Some(whole) => format!(
                "after {} of {} bytes and {} of {} file descriptors",
                self.parcel.bytes.len(),
                whole.bytes,
                self.parcel.fds.len(),
                whole.fds
            ),
            None if self.has_begun() => "within the first message".to_string(),
            None => "before the first message".to_string(),
        }
    }

    /// Why the kernel kept file descriptors back.
    fn fds_cut(&self, socket: BorrowedFd<'_>) -> Error {
        if self.limits.fds == 0 {
            return error!(Corrupt, "received file descriptors with a message that may have none");
        }
        // The received ones are still open: if the table of file descriptors was full, it still is.
        let full = rustix::io::fcntl_dupfd_cloexec(socket, 0).err();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let error = match full {
            Some(Errno::MFILE) => error!(
                OutOfMemory,
                "the process cannot open the file descriptors of a share: its limit (RLIMIT_NOFILE) is {}; \
                     raise it or close some",
                limit.map_or("unlimited".to_string(), |limit| limit.to_string())
            ),
            Some(_) => error!(
                OutOfMemory,
                "the system cannot open the file descriptors of a share: raise /proc/sys/fs/file-max"
            ),
            None => error!(
                PermissionDenied,
                "the kernel kept file descriptors of a share back: a security policy may forbid them"
            ),
        };
        full.map_or(error.clone(), |errno| error.with_cause(Cause::Errno(errno.raw_os_error())))
    }

    fn check_header(&self, header: &Header) -> Result<()> {
        let whole = header.whole;
        ensure!(
            header.chunk == self.next_chunk && self.whole.is_none_or(|first| first == whole),
            Corrupt,
            "received message {}, expected message {} of the same share; only one share at a time may be sent on a \
             socket",
            header.chunk,
            self.next_chunk
        );
        ensure!(
            whole.bytes as usize <= self.limits.bytes && whole.fds as usize <= self.limits.fds,
            Corrupt,
            "the message announces {} bytes and {} file descriptors; the maximum is {} and {}",
            whole.bytes,
            whole.fds,
            self.limits.bytes,
            self.limits.fds
        );
        ensure!(
            self.fds.len() <= header.fds as usize,
            Corrupt,
            "a message announces {} file descriptors, and has {}",
            header.fds,
            self.fds.len()
        );
        Ok(())
    }

    /// Adds a message to the parcel, if it matches its header.
    fn end_chunk(&mut self, header: &Header) -> Result<ReceiveStep> {
        let body = &self.buffer[HEADER..self.filled];
        ensure!(
            body.len() == header.bytes as usize,
            Corrupt,
            "a message announces {} bytes, and has {}",
            header.bytes,
            body.len()
        );
        let checksum = crc32c::crc32c(body);
        ensure!(
            checksum == header.checksum,
            Corrupt,
            "a message's checksum is {checksum:#x}, its header contains {:#x}",
            header.checksum
        );
        ensure!(
            self.fds.len() == header.fds as usize,
            Corrupt,
            "a message announces {} file descriptors, and has {}",
            header.fds,
            self.fds.len()
        );
        lists::reserve(&mut self.parcel.bytes, body.len())?;
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
            "received {bytes} bytes and {fds} file descriptors of a share that announces {} and {}",
            whole.bytes,
            whole.fds
        );
        if bytes == whole.bytes as usize && fds == whole.fds as usize {
            return Ok(ReceiveStep::All(whole.kind, std::mem::take(&mut self.parcel)));
        }
        // Otherwise a peer could send such messages without end.
        ensure!(header.bytes > 0 || header.fds > 0, Corrupt, "a message before the last one is empty");
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
