// SPDX-License-Identifier: Apache-2.0
//! Reading bytes of other processes, for the fuzzer and for the test that replays its corpus.

use std::fs::File;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use kvmem::base::error::{Result, Status};
use kvmem::engine::peer::served::protocol::message::{Body, Message};
use kvmem::layout::{
    AllocationConfig, Arrangement, Dimensions, Geometry, Layout, LayoutPart, LayoutSource, Placement,
};
use kvmem::region::{Control, SystemConfig};
use kvmem::run::accesses::of_blocks;
use kvmem::run::{LeaseRequest, PeerLeases};
use kvmem::share::broker::{FetchRequest, Refusal};
use kvmem::share::frame::{HEADER, Header, MessageKind};
use kvmem::share::{Manifest, socket};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// Size of the header of a share and of a layout descriptor.
const FORM_HEADER: usize = 20;
/// Size of a control block before the words of its extents, and the offsets of their number and of the region's id.
pub const CONTROL_HEAD: usize = 64;
const CONTROL_EXTENTS: usize = 12;
const CONTROL_ID: usize = 16;
/// More file descriptors than a manifest of the corpus has.
const MAX_FDS: usize = 16;
/// Bytes that a socket can buffer, and far more than a file of the corpus has.
const MAX_IN_A_SOCKET: usize = 64 << 10;

/// A wire form.
pub struct Target {
    /// The name of the fuzz target and of its corpus.
    pub name: &'static str,
    /// Returns whether bytes have this form. Panics if an error has the wrong status.
    pub read: fn(&[u8]) -> bool,
    /// Returns the bytes with correct lengths and checksums, so that the fields are read.
    pub sealed: fn(&[u8]) -> Vec<u8>,
}

pub static TARGETS: [Target; 6] = [
    Target { name: "share", read: share, sealed: sealed_form },
    Target { name: "message", read: messages, sealed: sealed_messages },
    Target { name: "request", read: request, sealed: <[u8]>::to_vec },
    Target { name: "refusal", read: refusal, sealed: <[u8]>::to_vec },
    Target { name: "control", read: control, sealed: sealed_control },
    Target { name: "served", read: served, sealed: sealed_form },
];

impl Target {
    /// Reads bytes unchanged and sealed.
    pub fn run(&self, bytes: &[u8]) {
        (self.read)(bytes);
        (self.read)(&(self.sealed)(bytes));
    }
}

/// Returns a target by its name.
pub fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).expect("a target of that name")
}

/// Returns the value that was read. An error must have the status for damaged data.
fn valid<T>(result: Result<T>) -> Option<T> {
    if let Err(error) = &result {
        assert!(
            matches!(error.status(), Status::Corrupt | Status::VersionMismatch),
            "damaged data has the status {:?}: {error}",
            error.status()
        );
    }
    result.ok()
}

/// A share's manifest, or a layout descriptor.
fn share(bytes: &[u8]) -> bool {
    let share = (0..MAX_FDS).any(|fds| valid(Manifest::read(bytes, fds)).is_some());
    share || valid(Layout::check_descriptor(bytes)).is_some()
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

/// The messages of a parcel from a socket. A share must be complete.
fn messages(bytes: &[u8]) -> bool {
    let received = received(bytes);
    let Some(header) = bytes.first_chunk::<HEADER>().and_then(|first| valid(Header::read(first))) else {
        assert!(!received, "a share without a header was received");
        return false;
    };
    assert_eq!(header.write(), bytes[..HEADER], "a header is written with the bytes that were read");
    received || header.whole.kind != MessageKind::Share
}

/// The layout of the owner.
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
        ..Dimensions::ONE
    };
    let geometry = Geometry::new(dimensions, Arrangement::FULLY_CONTIGUOUS).expect("a geometry");
    Placement::within(geometry, 1 << 20).expect("a placement")
}

/// A message to an owner that serves transfers. All rows of an accepted request are within the owner's layout.
fn served(bytes: &[u8]) -> bool {
    let Some(message) = valid(Message::read(bytes)) else { return false };
    let open = match message.body {
        Body::Open(open) => open,
        Body::Lease(request) => {
            OWNER.with(|layout| lease(layout, message.session.0, &request));
            return true;
        }
        Body::Progress { .. } | Body::Close => return true,
    };
    let placement = served_layout();
    let part = LayoutPart { name: "", placement: &placement, first_region: 0 };
    let Ok(checked) = open.terms.checked_in(std::iter::once(part)) else { return true };
    let Ok(plan) = checked.placed() else { return true };
    assert_eq!(checked.bytes(), plan.bytes(), "bytes are counted before spans are listed");
    let (base, size) = (placement.bases()[0], placement.geometry().region_size());
    // A request may contain the same bytes repeatedly, so only the first rows are checked.
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

thread_local! {
    /// The layout of an owner that keeps leases.
    static OWNER: Arc<Layout> = {
        let memory = AllocationConfig::System(SystemConfig::default());
        let geometry = served_layout().geometry().clone();
        Layout::build(geometry, LayoutSource::Allocate(memory), None).expect("a layout")
    };
}

/// A request for a lease, to an owner that keeps none. One that is accepted has exactly the blocks that it lists, until it is ended, and lasts
/// no longer than the owner permits; one that is refused has none.
fn lease(layout: &Layout, key: [u8; 16], request: &LeaseRequest) {
    const LONGEST: u32 = 60_000;
    let all = Vec::from_iter(0..layout.geometry().dimensions().num_blocks as u32);
    let leased = || of_blocks(layout, &all).expect("the accesses of all blocks");
    let mut leases = PeerLeases::new(LONGEST);
    match leases.reply(layout, "peer", key, request) {
        Ok(Some(granted)) => {
            assert_eq!(granted.number, request.number);
            assert!(
                (1..=LONGEST).contains(&granted.milliseconds),
                "a lease lasts {} ms",
                granted.milliseconds
            );
            let word = |at: &[u8]| u32::from_le_bytes(at.try_into().expect("four bytes"));
            let runs = request.blocks.chunks(8).map(|run| (word(&run[..4]), word(&run[4..])));
            let mut listed: Vec<_> = runs.flat_map(|(first, count)| first..first + count).collect();
            listed.sort_unstable();
            listed.dedup();
            let found: Vec<_> = leased().iter().map(|access| (access.block, access.writes)).collect();
            let expected: Vec<_> = listed.into_iter().map(|block| (block, request.writes)).collect();
            // A short lease may be over before it is looked for, or between two looks.
            assert!(found == expected || granted.milliseconds < LONGEST, "{found:?} instead of {expected:?}");
            leases.end(key, "another");
            assert!(!leases.is_empty(), "a lease was ended by another peer");
            leases.end(key, "peer");
        }
        Ok(None) => assert!(request.blocks.is_empty() && request.number == 0, "a new lease is not known"),
        Err(error) => assert!(
            matches!(
                error.status(),
                Status::InvalidArgument | Status::OutOfRange | Status::OutOfMemory | Status::Stale
            ),
            "a request for a lease has the status {:?}: {error}",
            error.status()
        ),
    }
    assert!(leases.is_empty() && leased().is_empty(), "a refused or ended lease has blocks");
}

/// Returns whether a share is received from a peer that sends these bytes without file descriptors, and disconnects.
fn received(bytes: &[u8]) -> bool {
    let Ok((mut peer, here)) = UnixStream::pair() else { return false };
    let sent = peer.write_all(&bytes[..bytes.len().min(MAX_IN_A_SOCKET)]);
    if sent.and_then(|()| peer.shutdown(Shutdown::Both)).is_err() {
        return false;
    }
    match socket::receive(here.as_fd(), None) {
        Err(error) if error.status() == Status::PeerLost => false,
        other => valid(other).is_some(),
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

/// A request of a client to a broker.
fn request(bytes: &[u8]) -> bool {
    let read = valid(FetchRequest::read(bytes));
    if let Some(request) = &read {
        assert_eq!(request.write(), bytes, "a request is written with the bytes that were read");
    }
    read.is_some()
}

/// A broker's refusal.
fn refusal(bytes: &[u8]) -> bool {
    let read = valid(Refusal::read(bytes));
    if let Some(Refusal(error)) = &read {
        assert!((error.status() as i32) < 0, "a refusal has the status of a success");
        assert!(!error.message().contains(char::is_control), "a refusal has control characters");
    }
    read.is_some()
}

/// The control block of a region: a memory file of the owner, which this process maps and reads.
fn control(bytes: &[u8]) -> bool {
    let id = bytes.get(CONTROL_ID..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
    copied(bytes);
    let Some(file) = memory_file(bytes, SealFlags::SHRINK) else { return false };
    let Some(control) = valid(Control::open(file, id)) else { return false };
    assert_eq!(control.id(), id);
    let count = control.extent_count();
    let fitting = Control::extents_of_size(bytes.len() as u64);
    assert_eq!(Some(count), fitting, "the number of words does not match the size");
    for (index, word) in bytes[CONTROL_HEAD..].chunks_exact(4).enumerate() {
        assert_eq!(control.extent(index).to_le_bytes(), word);
    }
    assert_eq!(
        (control.extent(count), control.extent(usize::MAX)),
        (0, 0),
        "words after the last extent are not 0"
    );
    assert!(control.owner_is_gone(), "without a lock the owner counts as gone");
    assert_eq!(control.importers().ok(), Some(0), "there is no other importer");
    control.changed(&[count]);
    control.close();
    let another = memory_file(bytes, SealFlags::SHRINK).map(|file| Control::open(file, id.map(|byte| !byte)));
    assert!(
        another.is_none_or(|opened| valid(opened).is_none()),
        "the control block of another region was opened"
    );
    let unsealed = memory_file(bytes, SealFlags::empty()).map(|file| Control::open(file, id));
    assert!(unsealed.is_none_or(|opened| valid(opened).is_none()), "a file that can shrink was opened");
    true
}

fn memory_file(bytes: &[u8], seals: SealFlags) -> Option<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("block", flags).ok()?);
    file.write_all(bytes).ok()?;
    fcntl_add_seals(&file, seals).ok()?;
    Some(file.into())
}

/// A control block from a network: a copy in memory of this process, of which one word is read.
fn copied(bytes: &[u8]) {
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect();
    let size = words.len() as u64 * 8;
    for index in [0, words.len(), usize::MAX] {
        // SAFETY: `words` has `size` bytes, aligned to 8, and exists during the call.
        let found = unsafe { Control::changes_in_copy(words.as_ptr() as u64, size, index) };
        let at = index.checked_mul(4).and_then(|at| at.checked_add(CONTROL_HEAD));
        let word = at.and_then(|at| bytes[..size as usize].get(at..)).and_then(|rest| rest.first_chunk());
        assert!(
            found.is_none_or(|found| word == Some(&found.to_le_bytes())),
            "a word outside the copy was returned"
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
