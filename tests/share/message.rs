// SPDX-License-Identifier: Apache-2.0
//! Messages as docs/share-transport.md specifies them, and invalid ones.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// All fields of a header.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub kind: u16,
    pub total_bytes: u32,
    pub total_fds: u32,
    pub number: u32,
    pub bytes: u32,
    pub fds: u32,
}

impl Header {
    /// The header of a share in one message.
    pub fn share(bytes: usize, fds: usize) -> Self {
        let (bytes, fds) = (bytes as u32, fds as u32);
        Self { kind: 1, total_bytes: bytes, total_fds: fds, number: 0, bytes, fds }
    }

    /// The header of a request.
    pub fn request(bytes: usize) -> Self {
        Self { kind: 2, ..Self::share(bytes, 0) }
    }

    /// The message with this body.
    pub fn message(&self, body: &[u8]) -> Vec<u8> {
        let mut message = b"KVMEMMSG".to_vec();
        message.extend(1u16.to_le_bytes());
        message.extend(self.kind.to_le_bytes());
        for word in
            [self.total_bytes, self.total_fds, self.number, self.bytes, self.fds, crc32c::crc32c(body)]
        {
            message.extend(word.to_le_bytes());
        }
        message.extend(crc32c::crc32c(&message).to_le_bytes());
        message.extend(body);
        message
    }
}

/// A request to read `name`.
pub fn request(name: &str, token: &[u8; 32]) -> Vec<u8> {
    let body = [token, &[1][..], name.as_bytes()].concat();
    Header::request(body.len()).message(&body)
}

/// Sends bytes with file descriptors, as one message.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[OwnedFd]) {
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(fds.len()))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    }
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(bytes.len()));
}
