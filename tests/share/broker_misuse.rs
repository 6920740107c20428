// SPDX-License-Identifier: Apache-2.0
//! Invalid data from clients of a broker: the client gets an error and is disconnected, and the broker continues.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use kvmem::base::error::Status;
use proptest::prelude::*;

use super::message::{self, Header};
use super::support::{Shop, Test, await_readable, files, open_files};

/// Sends bytes, ends the stream, and returns the status and text of the broker's refusal. None if it sends nothing.
fn reply(shop: &Shop, sent: &[u8], fds: &[OwnedFd]) -> Option<(i32, String)> {
    let mut client = UnixStream::connect(shop.socket()).unwrap();
    if !sent.is_empty() {
        message::send(&client, sent, fds);
    }
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let reply = read_all(&mut client);
    let (_, body) = reply.split_at_checked(40)?;
    assert_eq!(reply[10..12], [3, 0], "a refusal");
    let (status, text) = body.split_first_chunk::<4>().unwrap();
    Some((i32::from_le_bytes(*status), String::from_utf8(text.to_vec()).unwrap()))
}

/// Returns all bytes that the broker sends before it disconnects.
fn read_all(client: &mut UnixStream) -> Vec<u8> {
    let mut reply = Vec::new();
    match client.read_to_end(&mut reply) {
        Ok(_) => {}
        // It disconnected before it had read all bytes of the client.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    reply
}

#[test]
fn messages_that_are_no_requests_fail() {
    let _test = Test::begin();
    let shop = Shop::open();
    let good = message::request("kv", &shop.token.0);
    let body = &good[40..];
    let mut bad_access = body.to_vec();
    bad_access[32] = 9;
    let mut no_text = body.to_vec();
    no_text[33] = 0xff;
    let long = vec![1; 32 + 1 + 256];
    let wrong = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n12345678".to_vec(),
        Header::share(body.len(), 0).message(body),
        Header { kind: 3, ..Header::share(body.len(), 0) }.message(body),
        Header { total_bytes: 1 << 26, ..Header::request(body.len()) }.message(body),
        Header::request(33).message(&body[..33]),
        Header::request(0).message(&[]),
        Header::request(bad_access.len()).message(&bad_access),
        Header::request(no_text.len()).message(&no_text),
        Header::request(long.len()).message(&long),
    ];
    for message in wrong {
        let (status, text) = reply(&shop, &message, &[]).unwrap();
        assert_eq!(status, Status::Corrupt as i32, "{text}");
    }
    shop.check_service();
    shop.await_no_clients();
}

#[test]
fn a_client_with_half_a_request_is_disconnected() {
    let _test = Test::begin();
    let shop = Shop::open();
    let good = message::request("kv", &shop.token.0);
    for length in 0..good.len() {
        assert_eq!(reply(&shop, &good[..length], &[]), None);
    }
    shop.check_service();
    shop.await_no_clients();
}

#[test]
fn a_broker_closes_files_that_clients_send() {
    let _test = Test::begin();
    let shop = Shop::open();
    let good = message::request("kv", &shop.token.0);
    let before = open_files();
    for length in [1, 20, 40, good.len()] {
        let (read_end, write_end) = std::io::pipe().unwrap();
        let mut client = UnixStream::connect(shop.socket()).unwrap();
        message::send(&client, &good[..length], &[write_end.into()]);
        // The broker has closed the other end, although this client is still connected.
        await_readable(&read_end);
        assert_eq!(rustix::io::read(&read_end, &mut [0; 1]), Ok(0));
        let refusal = read_all(&mut client);
        assert_eq!(refusal[40..44], (Status::Corrupt as i32).to_le_bytes());
    }
    assert!(reply(&shop, &good, &files(253)).is_some());
    shop.await_no_clients();
    assert_eq!(open_files(), before);
    shop.check_service();
}

#[test]
fn bytes_after_a_request_are_ignored() {
    let _test = Test::begin();
    let shop = Shop::open();
    let mut client = UnixStream::connect(shop.socket()).unwrap();
    client.write_all(&message::request("kv", &shop.token.0)).unwrap();
    let mut header = [0; 40];
    client.read_exact(&mut header).unwrap();
    assert_eq!(header[10..12], [1, 0], "a share");
    shop.check_service();
}

#[test]
fn a_client_that_disconnects_at_once_is_closed() {
    let _test = Test::begin();
    let shop = Shop::open();
    for _ in 0..500 {
        drop(UnixStream::connect(shop.socket()).unwrap());
    }
    shop.check_service();
    shop.await_no_clients();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn random_bytes_are_rejected_and_the_broker_continues(
        bytes in proptest::collection::vec(any::<u8>(), 40..400),
        kind in 0u16..5,
        fds in 0usize..3,
        with_header in any::<bool>(),
    ) {
        let _test = Test::begin();
        let shop = Shop::open();
        let header = Header { kind, ..Header::share(bytes.len(), 0) };
        let sent = if with_header { header.message(&bytes) } else { bytes };
        prop_assert!(reply(&shop, &sent, &files(fds)).is_some());
        shop.check_service();
    }
}
