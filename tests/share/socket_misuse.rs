// SPDX-License-Identifier: Apache-2.0
//! Invalid data on a socket, and file descriptors that are no sockets: each gives an error and leaves no file open.

use std::os::fd::{AsFd, OwnedFd};

use kvmem::base::error::{Error, Status};
use kvmem::share::socket::{receive, send};
use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::message::{self, Header};
use super::support::{Test, bytes, files, open_files, pair, soon};

/// Returns the error of receiving these messages from a peer that then closes its end.
fn received(kind: SocketType, messages: &[(&[u8], usize)]) -> Error {
    let (left, right) = pair(kind);
    for (message, fds) in messages {
        message::send(&left, message, &files(*fds));
    }
    drop(left);
    receive(right.as_fd(), soon()).unwrap_err()
}

fn both(messages: &[(&[u8], usize)]) -> [Error; 2] {
    [SocketType::STREAM, SocketType::SEQPACKET].map(|kind| received(kind, messages))
}

#[test]
fn only_connected_unix_sockets_are_accepted() {
    let _test = Test::begin();
    let (pipe, _end) = std::io::pipe().unwrap();
    let pipe: OwnedFd = pipe.into();
    let (datagrams, _peer) = pair(SocketType::DGRAM);
    let unix =
        |kind| rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    let (idle, listening) = (unix(SocketType::STREAM), unix(SocketType::SEQPACKET));
    let name = format!("kvmem-test-{}", std::process::id());
    let address = rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    rustix::net::bind(&listening, &address).unwrap();
    rustix::net::listen(&listening, 1).unwrap();
    let other_family = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp: OwnedFd = other_family.into();
    let file = files(1).remove(0);
    for socket in [&pipe, &datagrams, &idle, &listening, &tcp, &file] {
        for error in [
            receive(socket.as_fd(), soon()).unwrap_err(),
            send(socket.as_fd(), b"x", &[&file], soon()).unwrap_err(),
        ] {
            assert_eq!(error.status(), Status::InvalidArgument, "{error}");
        }
    }
}

#[test]
fn a_message_truncated_at_any_length_is_detected() {
    let _test = Test::begin();
    let message = Header::share(9, 2).message(&bytes(9));
    for length in 1..message.len() {
        let [stream, packets] = both(&[(&message[..length], 2)]);
        assert_eq!(stream.status(), Status::PeerLost, "{length}: {stream}");
        assert_eq!(packets.status(), Status::Corrupt, "{length}: {packets}");
    }
    for nothing in both(&[]) {
        assert_eq!(nothing.status(), Status::PeerLost, "{nothing}");
    }
}

#[test]
fn every_flipped_bit_of_a_message_is_detected() {
    let _test = Test::begin();
    let message = Header::share(9, 2).message(&bytes(9));
    for bit in 0..message.len() * 8 {
        let mut flipped = message.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        for error in both(&[(&flipped, 2)]) {
            assert_eq!(error.status(), Status::Corrupt, "bit {bit}: {error}");
        }
    }
}

#[test]
fn a_packet_longer_than_its_header_is_detected() {
    let _test = Test::begin();
    for more in [1, 40_000] {
        let message = [Header::share(9, 0).message(&bytes(9)), vec![0; more]].concat();
        let error = received(SocketType::SEQPACKET, &[(&message, 0)]);
        assert_eq!(error.status(), Status::Corrupt, "{error}");
    }
}

#[test]
fn fewer_or_more_files_than_announced_are_detected() {
    let _test = Test::begin();
    for (announced, sent) in [(0, 1), (1, 0), (2, 1), (1, 2), (1, 253), (253, 252)] {
        for error in both(&[(&Header::share(9, announced).message(&bytes(9)), sent)]) {
            assert_eq!(error.status(), Status::Corrupt, "{error}");
            assert!(error.message().contains(&format!("has {sent}")), "{error}");
        }
    }
    // The share has two files, its only message one.
    let header = Header { total_fds: 2, ..Header::share(9, 1) };
    for error in both(&[(&header.message(&bytes(9)), 1)]) {
        assert_eq!(error.status(), Status::PeerLost, "{error}");
    }
}

#[test]
fn files_without_a_message_are_closed() {
    let _test = Test::begin();
    let message = Header::share(9, 253).message(&bytes(9));
    let parts: Vec<(&[u8], usize)> = message[..40].chunks(1).map(|byte| (byte, 253)).collect();
    let error = received(SocketType::STREAM, &parts[..3]);
    assert_eq!(error.status(), Status::Corrupt, "{error}");
}

#[test]
fn impossible_sizes_fail_before_anything_is_read() {
    let _test = Test::begin();
    let share = Header::share(9, 0);
    let hostile = [
        Header { total_bytes: u32::MAX, ..share },
        Header { total_bytes: (64 << 20) + 1, ..share },
        Header { total_fds: 65537, ..share },
        Header { bytes: 32769, total_bytes: 32769, ..share },
        Header { fds: 254, total_fds: 254, ..share },
        Header { total_bytes: 8, ..share },
        Header { kind: 0, ..share },
        Header { kind: 4, ..share },
        Header { kind: 2, ..share },
        Header { kind: 3, ..share },
        Header { number: 1, ..share },
    ];
    for header in hostile {
        for error in both(&[(&header.message(&bytes(9)), 0)]) {
            assert_eq!(error.status(), Status::Corrupt, "{header:?}: {error}");
        }
    }
}

#[test]
fn messages_of_two_shares_are_not_mixed() {
    let _test = Test::begin();
    let first = Header { total_bytes: 18, ..Header::share(9, 1) };
    let next = Header { number: 1, ..first };
    let second_of = |header: Header| header.message(&bytes(9));
    for wrong in [first, Header { number: 2, ..next }, Header { total_bytes: 19, ..next }] {
        for error in both(&[(&second_of(first), 1), (&second_of(wrong), 1)]) {
            assert_eq!(error.status(), Status::Corrupt, "{wrong:?}: {error}");
        }
    }
    let empty = Header { bytes: 0, fds: 0, ..next };
    for error in both(&[(&second_of(first), 1), (&empty.message(&[]), 0)]) {
        assert_eq!(error.status(), Status::Corrupt, "{error}");
    }
    let more = Header { total_fds: 2, ..next };
    for error in both(&[(&second_of(first), 1), (&second_of(more), 1)]) {
        assert_eq!(error.status(), Status::Corrupt, "{error}");
    }
}

#[test]
fn the_error_without_free_fds_contains_the_limit() {
    let _test = Test::begin();
    let limit = getrlimit(Resource::Nofile);
    for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
        let (left, right) = pair(kind);
        send(left.as_fd(), &bytes(9), &files(200), soon()).unwrap();
        let most = open_files() as u64 + 50;
        setrlimit(Resource::Nofile, rustix::process::Rlimit { current: Some(most), ..limit }).unwrap();
        let error = receive(right.as_fd(), soon()).unwrap_err();
        setrlimit(Resource::Nofile, limit).unwrap();
        assert_eq!(error.status(), Status::OutOfMemory, "{error}");
        assert!(error.message().contains(&most.to_string()), "{error}");
    }
}

#[test]
fn sending_to_a_peer_that_has_ended_is_reported() {
    let _test = Test::begin();
    for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
        let (left, right) = pair(kind);
        drop(right);
        let error = send(left.as_fd(), &bytes(9), &files(2), soon()).unwrap_err();
        assert_eq!(error.status(), Status::PeerLost, "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn random_bytes_give_an_error_and_leave_no_file_open(
        parts in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 1..200), 0usize..4), 0..6),
        begin_well in any::<bool>(),
    ) {
        let _test = Test::begin();
        let header = Header { total_bytes: 1 << 20, ..Header::share(9, 1) }.message(&bytes(9));
        let mut messages: Vec<(&[u8], usize)> = Vec::new();
        if begin_well {
            messages.push((&header, 1));
        }
        messages.extend(parts.iter().map(|(bytes, fds)| (&bytes[..], *fds)));
        for error in both(&messages) {
            prop_assert!(matches!(error.status(), Status::Corrupt | Status::PeerLost), "{}", error);
        }
    }
}
