// SPDX-License-Identifier: Apache-2.0
//! Sending and receiving shares over stream and packet sockets.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use kvmem::base::error::Status;
use kvmem::share::Parcel;
use kvmem::share::socket::{receive, send};
use rustix::net::SocketType;

use super::child::{OTHER_USER, Role, argument, ready};
use super::message::{self, Header};
use super::support::{Test, bytes, check, files, pair, soon};
use super::waiting::until;

const KINDS: [SocketType; 2] = [SocketType::STREAM, SocketType::SEQPACKET];

fn carry(sockets: (&OwnedFd, &OwnedFd), size: usize, count: usize) -> Parcel {
    let files = files(count);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(sockets.0.as_fd(), &bytes(size), &files, soon()));
        let parcel = receive(sockets.1.as_fd(), soon());
        sender.join().unwrap().unwrap();
        parcel.unwrap()
    })
}

#[test]
fn bytes_and_files_arrive_in_order() {
    let _test = Test::begin();
    let sizes = [
        (0, 0),
        (1, 0),
        (0, 1),
        (5, 2),
        (32768, 253),
        (32769, 254),
        (100_000, 600),
        (3 << 20, 1),
        (10, 1200),
    ];
    for kind in KINDS {
        let (left, right) = pair(kind);
        for (size, count) in sizes {
            check(&carry((&left, &right), size, count), size, count);
        }
    }
}

#[test]
fn the_largest_share_passes_both_kinds_of_socket() {
    let _test = Test::begin();
    let (left, right) = pair(SocketType::STREAM);
    let size = 64 << 20;
    check(&carry((&left, &right), size, 0), size, 0);
    check(&carry((&right, &left), 7, 3), 7, 3);
    let error = send::<OwnedFd>(left.as_fd(), &vec![0; size + 1], &[], soon()).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument, "{error}");
}

#[test]
fn the_blocking_mode_of_a_socket_is_unchanged() {
    let _test = Test::begin();
    for kind in KINDS {
        let (left, right) = pair(kind);
        for nonblocking in [true, false] {
            for socket in [&left, &right] {
                rustix::io::ioctl_fionbio(socket, nonblocking).unwrap();
            }
            let before = [&left, &right].map(|socket| rustix::fs::fcntl_getfl(socket).unwrap());
            check(&carry((&left, &right), 1 << 20, 10), 1 << 20, 10);
            assert_eq!(before, [&left, &right].map(|socket| rustix::fs::fcntl_getfl(socket).unwrap()));
        }
    }
}

#[test]
fn small_send_buffers_of_a_stream_are_enough() {
    let _test = Test::begin();
    let (left, right) = pair(SocketType::STREAM);
    rustix::net::sockopt::set_socket_send_buffer_size(&left, 1).unwrap();
    check(&carry((&left, &right), 200_000, 300), 200_000, 300);
    let (left, _right) = pair(SocketType::SEQPACKET);
    rustix::net::sockopt::set_socket_send_buffer_size(&left, 1).unwrap();
    let error = send::<OwnedFd>(left.as_fd(), &bytes(32768), &[], soon()).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("SO_SNDBUF"), "{error}");
}

#[test]
fn a_message_may_arrive_byte_by_byte() {
    let _test = Test::begin();
    let (left, right) = pair(SocketType::STREAM);
    let message = Header::share(9, 1).message(&bytes(9));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            message::send(&left, &message[..1], &files(1));
            message[1..].chunks(1).for_each(|byte| message::send(&left, byte, &[]));
        });
        check(&receive(right.as_fd(), soon()).unwrap(), 9, 1);
    });
}

#[test]
fn a_wait_ends_at_its_deadline_and_can_be_repeated() {
    let _test = Test::begin();
    for kind in KINDS {
        let (left, right) = pair(kind);
        let error = receive(right.as_fd(), Some(Instant::now())).unwrap_err();
        assert_eq!(error.status(), Status::TimedOut);
        assert!(error.message().contains("try again"), "{error}");
        check(&carry((&left, &right), 10, 1), 10, 1);
    }
}

#[test]
fn a_peer_that_stops_half_way_does_not_block_receiving() {
    let _test = Test::begin();
    let (left, right) = pair(SocketType::STREAM);
    message::send(&left, &Header::share(9, 1).message(&bytes(9))[..20], &files(1));
    let error = receive(right.as_fd(), Some(Instant::now())).unwrap_err();
    assert_eq!(error.status(), Status::TimedOut);
    assert!(error.message().contains("only a part"), "{error}");
    let error = send::<OwnedFd>(left.as_fd(), &bytes(4 << 20), &[], Some(Instant::now())).unwrap_err();
    assert_eq!(error.status(), Status::TimedOut);
    assert!(error.message().contains("only a part"), "{error}");
}

#[test]
fn a_peer_that_sends_byte_by_byte_is_limited_by_the_deadline() {
    let _test = Test::begin();
    let (left, right) = pair(SocketType::STREAM);
    let byte_message =
        |number| Header { total_bytes: 64 << 20, number, ..Header::share(1, 0) }.message(&bytes(1));
    let byte_messages: Vec<u8> = (0..50_000).flat_map(byte_message).collect();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| UnixStream::from(left).write_all(&byte_messages));
        // Enough bytes that the sender always adds more before they are read.
        until("the sender adds nothing", || rustix::io::ioctl_fionread(&right).unwrap() >= 100_000);
        let error = receive(right.as_fd(), Some(Instant::now())).unwrap_err();
        assert_eq!(error.status(), Status::TimedOut, "{error}");
        drop(right);
        assert!(sender.join().unwrap().is_err(), "all messages were read, long after the deadline");
    });
}

#[test]
fn an_available_share_is_received_without_waiting() {
    let _test = Test::begin();
    let (left, right) = pair(SocketType::STREAM);
    send(left.as_fd(), &bytes(100_000), &files(600), soon()).unwrap();
    check(&receive(right.as_fd(), Some(Instant::now())).unwrap(), 100_000, 600);
}

#[test]
fn a_sender_killed_half_way_is_a_lost_peer() {
    let _test = Test::begin();
    for sent in [0, 1, 39, 40, 45] {
        let (left, right) = pair(SocketType::STREAM);
        // The child's end is its standard error, because the test harness does not write to that stream.
        let mut role = Role::start_with_error(left, "half a share", &[("SENT", sent.to_string())]);
        role.await_ready();
        role.kill();
        let error = receive(right.as_fd(), soon()).unwrap_err();
        assert_eq!(error.status(), Status::PeerLost, "{error}");
    }
}

/// Role: sends the beginning of a share, with its files.
pub fn half_a_share() {
    let socket = std::io::stderr();
    let message = Header::share(9, 2).message(&bytes(9));
    let sent: usize = argument("SENT").parse().unwrap();
    if sent > 0 {
        message::send(socket, &message[..sent], &files(2));
    }
    ready();
}

#[test]
fn more_files_than_may_be_in_flight_arrive_as_they_are_read() {
    let _test = Test::begin();
    // The kernel does not limit the files in flight of root.
    let user = rustix::process::geteuid().is_root().then_some(OTHER_USER);
    Role::start_as(user, "many files in flight", &[]).finish();
}

/// Role: sends more files than the limit of files in flight, to a reader that starts late.
pub fn many_files_in_flight() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: Some(700), ..limit }).unwrap();
    let (left, right) = pair(SocketType::STREAM);
    let file = files(1);
    // The same file many times: many are in flight, but few are open in this process.
    let many: Vec<_> = (0..2000).map(|_| file[0].as_fd()).collect();
    let early = send(left.as_fd(), b"x", &many, Some(Instant::now())).unwrap_err();
    assert_eq!(early.status(), Status::TimedOut, "{early}");

    let (left, right_again) = pair(SocketType::STREAM);
    drop(right);
    let many = &many[..500];
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| (0..4).try_for_each(|_| send(left.as_fd(), b"x", many, soon())));
        for _ in 0..4 {
            assert_eq!(receive(right_again.as_fd(), soon()).unwrap().fds.len(), 500);
        }
        sender.join().unwrap().unwrap();
    });
}
