// SPDX-License-Identifier: Apache-2.0
//! What is done with bytes that another process may have sent. The fuzzer and the replay of its corpus do the same.

use std::fs::File;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use kvmem::error::{Result, Status};
use kvmem::layout::{Dimensions, Geometry, Layout, LayoutKind, LayoutPart, Placement};
use kvmem::region::Control;
use kvmem::share::broker::{FetchRequest, Refusal};
use kvmem::share::frame::{HEADER, Header, MessageKind};
use kvmem::share::{Manifest, socket};
use kvmem::transfer::engine::nixl::served::message::{Body, Message};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// Bytes before the fields of a share and of a layout descriptor.
const FORM_HEADER: usize = 20;
/// Bytes of a control block before the words of its extents, and where in them it says how many follow and which region
/// it is.
pub const CONTROL_HEAD: usize = 64;
const CONTROL_EXTENTS: usize = 12;
const CONTROL_ID: usize = 16;
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
pub static TARGETS: [Target; 6] = [
    Target { name: "share", read: share, sealed: sealed_form },
    Target { name: "message", read: messages, sealed: sealed_messages },
    Target { name: "request", read: request, sealed: <[u8]>::to_vec },
    Target { name: "refusal", read: refusal, sealed: <[u8]>::to_vec },
    Target { name: "control", read: control, sealed: sealed_control },
    Target { name: "served", read: served, sealed: sealed_form },
];

impl Target {
    /// Reads bytes as they come and sealed.
    pub fn run(&self, bytes: &[u8]) {
        (self.read)(bytes);
        (self.read)(&(self.sealed)(bytes));
    }
}

/// The one of that name.
pub fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).expect("a target of that name")
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
    received || header.whole.kind != MessageKind::Share
}

/// The layout that served requests are placed in.
pub fn served_layout() -> Placement {
    let dimensions = Dimensions {
        num_blocks: 9,
        num_layers: 3,
        outer_dim: 2,
        page_size: 4,
        inner_dim: 12,
        dtype_width: 2,
        alignment: 64,
        num_heads: Some(3),
    };
    let geometry = Geometry::new(dimensions, LayoutKind::FullyContiguous).expect("a geometry");
    Placement::within(geometry, 1 << 20).expect("a placement")
}

/// A message to an owner that serves transfers. What a request names is in the owner's layout, or it is refused.
fn served(bytes: &[u8]) -> bool {
    let Some(message) = told(Message::read(bytes)) else { return false };
    let Body::Open(open) = message.body else { return true };
    let placement = served_layout();
    let part = LayoutPart { name: "", placement: &placement, first_region: 0 };
    let Ok(plan) = open.terms.placed_in(std::iter::once(part)) else { return true };
    let (base, size) = (placement.bases()[0], placement.geometry().region_size());
    // A request may name the same bytes again and again.
    for row in plan.rows_in(0..plan.bytes().min(1 << 16)) {
        let [last, last_in_row] = [(row.first.source, 0), (row.first.destination, 1)]
            .map(|(first, side)| first + (row.rows - 1) * row.strides[side]);
        assert!(
            row.first.source >= base && last + row.first.size <= base + size,
            "a row is outside of the layout"
        );
        assert!(last_in_row + row.first.size <= plan.bytes(), "a row is outside of the staging memory");
    }
    true
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
    let read = told(FetchRequest::read(bytes));
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

/// The control block of a region: a memory file of its owner's, which this process maps and asks.
fn control(bytes: &[u8]) -> bool {
    let id = bytes.get(CONTROL_ID..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
    copied(bytes);
    let Some(file) = memory_file(bytes, SealFlags::SHRINK) else { return false };
    let Some(control) = told(Control::open(file, id)) else { return false };
    assert_eq!(control.id(), id);
    let count = control.extent_count();
    assert_eq!(Some(count), Control::extents_of_size(bytes.len() as u64), "it tells of no words but its own");
    for (index, word) in bytes[CONTROL_HEAD..].chunks_exact(4).enumerate() {
        assert_eq!(control.extent(index).to_le_bytes(), word);
    }
    assert_eq!(
        (control.extent(count), control.extent(usize::MAX)),
        (0, 0),
        "there is nothing behind the last"
    );
    assert!(control.owner_is_gone(), "nobody has its owner's lock");
    assert_eq!(control.importers().ok(), Some(0), "nobody else has it open");
    control.changed(&[count]);
    control.close();
    let another = memory_file(bytes, SealFlags::SHRINK).map(|file| Control::open(file, id.map(|byte| !byte)));
    assert!(another.is_none_or(|opened| told(opened).is_none()), "another region's was opened");
    let unsealed = memory_file(bytes, SealFlags::empty()).map(|file| Control::open(file, id));
    assert!(unsealed.is_none_or(|opened| told(opened).is_none()), "it can shrink under its reader");
    true
}

fn memory_file(bytes: &[u8], seals: SealFlags) -> Option<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("block", flags).ok()?);
    file.write_all(bytes).ok()?;
    fcntl_add_seals(&file, seals).ok()?;
    Some(file.into())
}

/// The same as it comes over a network: a copy in memory of this process, of which one word is asked.
fn copied(bytes: &[u8]) {
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect();
    let size = words.len() as u64 * 8;
    for index in [0, words.len(), usize::MAX] {
        // SAFETY: that many bytes, aligned as 8 are, live through the call.
        let told = unsafe { Control::changes_in_copy(words.as_ptr() as u64, size, index) };
        let at = index.checked_mul(4).and_then(|at| at.checked_add(CONTROL_HEAD));
        let word = at.and_then(|at| bytes[..size as usize].get(at..)).and_then(|rest| rest.first_chunk());
        assert!(
            told.is_none_or(|told| word == Some(&told.to_le_bytes())),
            "a word that is not there was told"
        );
    }
}

fn sealed_control(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some(words) = bytes.len().checked_sub(CONTROL_HEAD) {
        bytes[CONTROL_EXTENTS..CONTROL_ID].copy_from_slice(&(words as u32 / 4).to_le_bytes());
    }
    bytes
}
