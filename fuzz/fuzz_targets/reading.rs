// SPDX-License-Identifier: Apache-2.0
//! What is done with bytes that another process may have sent. The fuzzer and the replay of its corpus do the same.

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use kvmem::error::{Result, Status};
use kvmem::layout::Layout;
use kvmem::share::broker::{Refusal, Request};
use kvmem::share::frame::{HEADER, Header, Kind};
use kvmem::share::{Manifest, socket};

/// Bytes before the fields of a share and of a layout descriptor.
const FORM_HEADER: usize = 20;
/// The most file descriptors that a manifest of the corpus names, and some more.
const MOST_FDS: usize = 16;
/// What a socket holds of messages before anybody reads, and far more than the corpus has.
const MOST_IN_A_SOCKET: usize = 64 << 10;

/// A wire form.
pub struct Target {
    /// As its fuzz target and its corpus are called.
    pub name: &'static str,
    /// Whether bytes are of that form. Whatever they are, this ends, and an error says what it must.
    pub read: fn(&[u8]) -> bool,
    /// The same bytes with lengths and checksums that are right, so that the reader goes on to the fields.
    pub sealed: fn(&[u8]) -> Vec<u8>,
}

/// All of them.
pub const TARGETS: [Target; 4] = [
    Target { name: "share", read: share, sealed: sealed_form },
    Target { name: "message", read: messages, sealed: sealed_messages },
    Target { name: "request", read: request, sealed: <[u8]>::to_vec },
    Target { name: "refusal", read: refusal, sealed: <[u8]>::to_vec },
];

impl Target {
    /// Reads bytes as they come and sealed.
    pub fn run(&self, bytes: &[u8]) {
        (self.read)(bytes);
        (self.read)(&(self.sealed)(bytes));
    }
}

/// Runs the target of that name, as the fuzzer does; the replay goes over all of them instead.
#[allow(dead_code)]
pub fn run(name: &str, bytes: &[u8]) {
    TARGETS.iter().filter(|target| target.name == name).for_each(|target| target.run(bytes));
}

/// What was read; an error must call damage by its name.
fn told<T>(result: Result<T>) -> Option<T> {
    if let Err(error) = &result {
        assert!(
            matches!(error.status(), Status::Corrupt | Status::VersionMismatch),
            "damage is called {:?}: {error}",
            error.status()
        );
    }
    result.ok()
}

/// A share's manifest, or a layout descriptor.
fn share(bytes: &[u8]) -> bool {
    let share = (0..MOST_FDS).any(|fds| told(Manifest::read(bytes, fds)).is_some());
    share || told(Layout::check_descriptor(bytes)).is_some()
}

fn sealed_form(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() < FORM_HEADER {
        return bytes;
    }
    let length = (bytes.len() - FORM_HEADER) as u32;
    bytes[12..16].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..16]), &bytes[FORM_HEADER..]);
    bytes[16..20].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The messages of a parcel as they come over a socket; a share must be all there.
fn messages(bytes: &[u8]) -> bool {
    let received = received(bytes);
    let Some(header) = bytes.first_chunk::<HEADER>().and_then(|first| told(Header::read(first))) else {
        assert!(!received, "a share without a header was received");
        return false;
    };
    assert_eq!(header.write(), bytes[..HEADER], "a header is written as it was read");
    received || header.whole.kind != Kind::Share
}

/// Whether a share is received of a peer that sends this, without file descriptors, and is gone.
fn received(bytes: &[u8]) -> bool {
    let Ok((mut peer, here)) = UnixStream::pair() else { return false };
    let sent = peer.write_all(&bytes[..bytes.len().min(MOST_IN_A_SOCKET)]);
    if sent.and_then(|()| peer.shutdown(Shutdown::Both)).is_err() {
        return false;
    }
    match socket::receive(here.as_fd(), None) {
        Err(error) if error.status() == Status::PeerLost => false,
        other => told(other).is_some(),
    }
}

fn sealed_messages(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut rest = &mut bytes[..];
    while let Some((header, bodies)) = rest.split_first_chunk_mut::<HEADER>() {
        let claimed = u32::from_le_bytes([header[24], header[25], header[26], header[27]]) as usize;
        let (body, next) = bodies.split_at_mut(claimed.min(bodies.len()));
        header[32..36].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
        let checksum = crc32c::crc32c(&header[..36]);
        header[36..].copy_from_slice(&checksum.to_le_bytes());
        rest = next;
    }
    bytes
}

/// What a client asks of a broker.
fn request(bytes: &[u8]) -> bool {
    let read = told(Request::read(bytes));
    if let Some(request) = &read {
        assert_eq!(request.write(), bytes, "a request is written as it was read");
    }
    read.is_some()
}

/// What a broker answers to whom it gives nothing.
fn refusal(bytes: &[u8]) -> bool {
    let read = told(Refusal::read(bytes));
    if let Some(Refusal(error)) = &read {
        assert!((error.status() as i32) < 0, "a refusal is no failure");
        assert!(!error.message().contains(char::is_control), "a refusal that a terminal obeys");
    }
    read.is_some()
}
