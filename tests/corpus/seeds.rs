// SPDX-License-Identifier: Apache-2.0
//! The seeds of the fuzzer for messages, requests, refusals, control blocks and served transfers. A program of the C
//! tests writes those for shares, because they need memory of every kind.

use kvmem::base::error::{Error, Status};
use kvmem::base::process::ProcessIdentity;
use kvmem::engine::peer::served::protocol::message::{Body, Message, Open, SessionKey};
use kvmem::region::Access;
use kvmem::run::LeaseRequest;
use kvmem::share::broker::{FetchRequest, Refusal, Token};
use kvmem::share::frame::{Header, MessageKind, ParcelInfo};
use kvmem::transfer::{BlockPair, Outline, PairedRange, Plan, Wanted};

use crate::reading::{self, CONTROL_HEAD, Target};

/// One file.
pub struct Seed {
    pub target: &'static Target,
    pub name: &'static str,
    pub bytes: Vec<u8>,
}

pub fn all() -> Vec<Seed> {
    let of = |name: &str, seeds: Vec<(&'static str, Vec<u8>)>| {
        let target = reading::target(name);
        let sealed = seeds.into_iter().map(|(name, bytes)| (name, (target.sealed)(&bytes)));
        sealed.map(|(name, bytes)| Seed { target, name, bytes }).collect::<Vec<_>>()
    };
    let (controls, served) = (of("control", controls()), of("served", served()));
    [of("message", messages()), of("request", requests()), of("refusal", refusals()), controls, served]
        .into_iter()
        .flatten()
        .collect()
}

/// The messages of a parcel of `bytes` bytes, with `pieces[i]` bytes in message `i`.
fn sent(kind: MessageKind, bytes: u32, pieces: &[u32]) -> Vec<u8> {
    let whole = ParcelInfo { kind, bytes, fds: 0 };
    let message = |(chunk, &bytes): (usize, &u32)| {
        let header = Header { whole, chunk: chunk as u32, bytes, fds: 0, checksum: 0 };
        [&header.write()[..], &vec![0x5A; bytes as usize]].concat()
    };
    pieces.iter().enumerate().flat_map(message).collect()
}

/// A share in one message, with one byte of its header changed.
fn changed(at: usize, value: u8) -> Vec<u8> {
    let mut bytes = sent(MessageKind::Share, 12, &[12]);
    bytes[at] = value;
    bytes
}

fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let cut = |size: usize| sent(MessageKind::Share, 12, &[12])[..size].to_vec();
    let another_share =
        [sent(MessageKind::Share, 12, &[5]), sent(MessageKind::Share, 13, &[5, 8])[45..].to_vec()].concat();
    vec![
        ("share", sent(MessageKind::Share, 12, &[12])),
        ("share-of-nothing", sent(MessageKind::Share, 0, &[0])),
        ("share-in-three", sent(MessageKind::Share, 17, &[7, 1, 9])),
        (
            "share-followed-by-another",
            [sent(MessageKind::Share, 3, &[3]), sent(MessageKind::Share, 3, &[3])].concat(),
        ),
        ("request", sent(MessageKind::Request, 40, &[40])),
        ("refusal", sent(MessageKind::Refusal, 8, &[8])),
        ("damaged-version-2", changed(8, 2)),
        ("damaged-kind-4", changed(10, 4)),
        ("damaged-huge-size", changed(15, 0xFF)),
        ("damaged-fds-without-end", changed(19, 0xFF)),
        ("damaged-fds-that-do-not-come", changed(16, 3)),
        ("damaged-fds-of-a-message-that-do-not-come", changed(28, 3)),
        ("damaged-fds-more-than-a-message-has", changed(28, 254)),
        ("damaged-message-too-large", changed(26, 1)),
        ("damaged-out-of-order", changed(20, 1)),
        ("damaged-message-of-nothing", sent(MessageKind::Share, 12, &[5, 0, 7])),
        ("damaged-more-than-it-says", sent(MessageKind::Share, 12, &[5, 8])),
        ("damaged-less-than-it-says", sent(MessageKind::Share, 12, &[5, 6])),
        ("damaged-another-share-within", another_share),
        ("damaged-cut-in-its-header", cut(39)),
        ("damaged-cut-in-its-bytes", cut(45)),
        ("damaged-empty", Vec::new()),
    ]
}

fn requests() -> Vec<(&'static str, Vec<u8>)> {
    let request =
        |access, name: &str| FetchRequest { name: name.into(), token: Token([0xA5; 32]), access }.write();
    let good = request(None, "kv");
    let with_access_3 = [&good[..32], &[3], &good[33..]].concat();
    vec![
        ("all-that-is-granted", good.clone()),
        ("to-read", request(Some(Access::Read), "kv")),
        ("to-write", request(Some(Access::ReadWrite), "schl\u{fc}ssel")),
        ("longest-name", request(None, &"n".repeat(255))),
        ("damaged-name-too-long", request(None, &"n".repeat(256))),
        ("damaged-no-name", request(None, "")),
        ("damaged-invalid-utf-8", [&good[..], &[0xFF]].concat()),
        ("damaged-access-3", with_access_3),
        ("damaged-no-access", good[..32].to_vec()),
        ("damaged-cut-in-its-token", good[..31].to_vec()),
    ]
}

fn refusals() -> Vec<(&'static str, Vec<u8>)> {
    let refusal = |status, text: &str| Refusal(Error::new(status, text.to_string())).write();
    let code = |code: i32, text: &[u8]| [&code.to_le_bytes(), text].concat();
    let denied = Status::PermissionDenied;
    vec![
        ("busy", refusal(Status::Busy, "come again")),
        ("without-text", refusal(denied, "")),
        ("longest", refusal(denied, &"\u{fc}".repeat(2048))),
        ("longer-than-is-read", code(denied as i32, &[b'w'; 5000])),
        ("control-characters", code(denied as i32, b"\x1b[2J\r\n\x07")),
        ("invalid-utf-8", code(denied as i32, b"\xff\xfe\xc3")),
        ("damaged-success", code(0, b"all is well")),
        ("damaged-in-progress", code(1, b"wait")),
        ("damaged-unknown-status", code(-1234, b"what")),
        ("damaged-cut", vec![0xFF; 3]),
    ]
}

/// The messages of a session, without the leading id of the service.
fn served() -> Vec<(&'static str, Vec<u8>)> {
    let here = reading::served_layout();
    let range = |source, count| Some(PairedRange { source, destination: 0, count });
    let planned = |wanted, pairs: &[(u32, u32)]| {
        let outline = std::sync::Arc::new(Outline::between(&here, &here, wanted, false).unwrap());
        let pair = |&(source, destination): &(u32, u32)| BlockPair { source, destination };
        Plan::new(&outline, &pairs.iter().map(pair).collect::<Vec<_>>(), None).unwrap()
    };
    let heads = Wanted { heads: range(1, 2), ..Wanted::default() };
    let plan = planned(heads, &[(7, 0), (1, 2), (2, 3), (8, 1)]);
    let all = planned(Wanted::default(), &(0..9).map(|id| (id, 8 - id)).collect::<Vec<_>>());
    let part = planned(Wanted { layers: range(2, 1), outers: range(1, 1), ..heads }, &[(5, 5)]);
    let message = |body| {
        let bytes =
            Message { session: SessionKey([7; 16]), body }.write(&kvmem::nixl::ServiceId([9; 16])).unwrap();
        bytes[24..].to_vec()
    };
    let open = |plan: &Plan, writes, bytes, chunk_size| {
        let terms = plan.led_by(1).unwrap().whole().terms(0).unwrap();
        let process = ProcessIdentity::unknown();
        message(Body::Open(std::sync::Arc::new(Open {
            process,
            writes,
            bytes,
            chunk_size,
            verifies: writes,
            terms,
        })))
    };
    let lease = |number, milliseconds, writes, runs: &[[u32; 2]]| {
        let blocks = runs.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect();
        let process = ProcessIdentity::unknown();
        message(Body::Lease(std::sync::Arc::new(LeaseRequest {
            process,
            number,
            milliseconds,
            writes,
            blocks,
        })))
    };
    let read = open(&plan, false, plan.bytes(), 4096);
    let cut = read[..60].to_vec();
    let lease_to_read = lease(0, 60_000, false, &[[0, 3], [5, 1]]);
    let cut_lease = lease_to_read[..lease_to_read.len() - 1].to_vec();
    vec![
        ("read", read),
        ("write", open(&plan, true, plan.bytes(), 4096)),
        ("read-all", open(&all, false, all.bytes(), 1 << 20)),
        ("write-one-layer", open(&part, true, part.bytes(), 4096)),
        ("lie-about-bytes", open(&plan, false, u64::MAX, 4096)),
        ("lie-about-chunks", open(&plan, false, plan.bytes(), 0)),
        ("progress", message(Body::progress(3))),
        ("progress-of-all", message(Body::progress(u64::MAX))),
        ("close", message(Body::Close)),
        ("lease-to-write", lease(0, u64::MAX, true, &[[8, 1]])),
        ("lease-reply-once-more", lease(0, 60_000, false, &[])),
        ("lease-renewal", lease(7, 60_000, false, &[])),
        ("lie-about-blocks-of-a-lease", lease(0, 60_000, false, &[[8, 2]])),
        ("lie-about-blocks-past-all", lease(0, 60_000, false, &[[u32::MAX, 2]])),
        ("lie-about-many-blocks", lease(0, 60_000, false, &[[0, u32::MAX], [0, u32::MAX]])),
        ("lease-to-read", lease_to_read),
        ("damaged-cut-in-its-blocks", cut_lease),
        ("damaged-cut", cut),
    ]
}

/// A control block, as specified in docs/share-manifest.md: the number of changes, whether the owner has released the
/// region, and the number of changes of each extent.
fn control(generation: u64, closed: u64, extents: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(CONTROL_HEAD);
    bytes.extend(b"KVMEMCTL");
    bytes.extend(1u32.to_le_bytes());
    bytes.extend((extents.len() as u32).to_le_bytes());
    bytes.extend([0xA5; 16]);
    bytes.extend(generation.to_le_bytes());
    bytes.extend(closed.to_le_bytes());
    bytes.extend([0; 16]);
    bytes.extend(extents.iter().flat_map(|changes| changes.to_le_bytes()));
    bytes
}

fn controls() -> Vec<(&'static str, Vec<u8>)> {
    let with = |at: usize, value: u8| {
        let mut bytes = control(3, 0, &[1, 2, 0]);
        bytes[at] = value;
        bytes
    };
    vec![
        ("no-extents", control(0, 0, &[])),
        ("one-extent", control(1, 0, &[1])),
        ("holes", control(9, 0, &[1, 0, 2, 0, 0, 6])),
        ("many-extents", control(5000, 0, &[5; 1000])),
        ("released", control(2, 1, &[2])),
        ("about-to-wrap-around", control(u64::MAX, 0, &[u32::MAX; 3])),
        ("reserved-is-used", with(CONTROL_HEAD - 1, 0xFF)),
        ("damaged-magic", with(0, b'k')),
        ("damaged-version-0", with(8, 0)),
        ("damaged-version-2", with(8, 2)),
        ("damaged-part-of-a-word", [&control(3, 0, &[1, 2])[..], &[0; 3]].concat()),
        ("damaged-cut-in-its-head", control(0, 0, &[])[..CONTROL_HEAD - 1].to_vec()),
        ("damaged-cut-in-its-id", control(0, 0, &[])[..20].to_vec()),
        ("damaged-zeroes", vec![0; 256]),
        ("damaged-empty", Vec::new()),
    ]
}
