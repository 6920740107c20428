// SPDX-License-Identifier: Apache-2.0
//! Many clients of a broker, and those that stall or die at any step.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use kvmem::base::error::Status;
use kvmem::base::log;
use kvmem::region::Access;
use kvmem::share::client::{Fetch, fetch};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::child::{Role, argument, ready};
use super::message;
use super::support::{Offer, PATIENCE, Shop, Test, check, soon, terms};

fn arguments(shop: &Shop, more: (&'static str, String)) -> Vec<(&'static str, String)> {
    let token = shop.token.0.map(|byte| byte.to_string()).join(" ");
    vec![("BROKER", shop.socket().display().to_string()), ("TOKEN", token), more]
}

fn token() -> [u8; 32] {
    let bytes: Vec<u8> = argument("TOKEN").split(' ').map(|byte| byte.parse().unwrap()).collect();
    bytes.try_into().unwrap()
}

#[test]
fn two_hundred_clients_at_once_are_all_served() {
    let _test = Test::begin();
    let shop = Shop::open();
    let mut roles: Vec<_> =
        (0..8).map(|_| Role::start("many fetches", &arguments(&shop, ("COUNT", "25".into())))).collect();
    // Each process has connected: two hundred connections are open at the same time.
    roles.iter_mut().for_each(Role::await_ready);
    roles.iter_mut().for_each(Role::resume);
    roles.into_iter().for_each(Role::finish);
    assert_eq!(shop.broker.info().granted, 200);
    shop.await_no_clients();
}

/// Role: connects many times, and sends requests on all connections after the test's signal.
pub fn many_fetches() {
    let count: usize = argument("COUNT").parse().unwrap();
    let mut clients: Vec<_> = (0..count).map(|_| UnixStream::connect(argument("BROKER")).unwrap()).collect();
    ready();
    let request = message::request("kv", &token());
    clients.iter_mut().for_each(|client| client.write_all(&request).unwrap());
    for client in clients {
        check(&kvmem::share::socket::receive(client.as_fd(), soon()).unwrap(), 1000, 3);
    }
}

/// A share that is larger than the buffer of a socket.
fn large(shop: &Shop) -> Fetch {
    let token = shop.broker.publish("large", Offer::new(8 << 20, 500), &terms(Access::Read)).unwrap();
    Fetch { name: "large".into(), token, ..shop.fetch() }
}

#[test]
fn a_client_killed_at_any_step_does_not_affect_others() {
    let _test = Test::begin();
    let mut shop = Shop::open();
    let small = shop.token;
    let large = large(&shop);
    for step in ["connected", "half a header", "half a request", "requested", "half a reply"] {
        shop.token = large.token;
        let mut role = Role::start("stop at a step", &arguments(&shop, ("STEP", step.into())));
        shop.token = small;
        role.await_ready();
        shop.check_service();
        shop.await_clients(1);
        role.kill();
        shop.await_no_clients();
        shop.check_service();
        shop.await_no_clients();
    }
    check(&fetch(&large, soon()).unwrap(), 8 << 20, 500);
}

/// Role: executes a fetch up to a step, and waits.
pub fn stop_at_a_step() {
    let mut client = UnixStream::connect(argument("BROKER")).unwrap();
    let request = message::request("large", &token());
    match argument("STEP").as_str() {
        "connected" => {}
        "half a header" => client.write_all(&request[..20]).unwrap(),
        "half a request" => client.write_all(&request[..60]).unwrap(),
        "requested" => client.write_all(&request).unwrap(),
        _ => {
            client.write_all(&request).unwrap();
            client.read_exact(&mut [0; 1000]).unwrap();
        }
    }
    ready();
}

#[test]
fn clients_that_stall_are_disconnected_while_others_are_served() {
    let _test = Test::begin();
    let shop = Shop::with(|config| config.client_timeout = Duration::from_secs(2));
    let request = message::request("kv", &shop.token.0);
    let stalled: Vec<_> = (0..100)
        .map(|index| {
            let mut client = UnixStream::connect(shop.socket()).unwrap();
            client.write_all(&request[..index % request.len()]).unwrap();
            client
        })
        .collect();
    for _ in 0..20 {
        shop.check_service();
    }
    for mut client in stalled {
        let mut reply = Vec::new();
        client.read_to_end(&mut reply).unwrap();
        assert_eq!(reply[10..12], [3, 0], "a refusal");
        assert_eq!(reply[40..44], (Status::TimedOut as i32).to_le_bytes());
    }
    shop.await_no_clients();
}

/// Waits until the broker sends no more, without reading what it has sent.
fn await_end_of_reply(client: &UnixStream) {
    let mut polled = [PollFd::new(client, PollFlags::RDHUP)];
    let limit = Timespec::try_from(PATIENCE).unwrap();
    assert_eq!(poll(&mut polled, Some(&limit)), Ok(1), "the broker goes on with a reply");
}

#[test]
fn replies_to_clients_that_do_not_read_end_while_others_are_served() {
    let _test = Test::begin();
    let shop = Shop::with(|config| config.client_timeout = Duration::from_secs(2));
    let large = large(&shop);
    let request = message::request("large", &large.token.0);
    let clients: Vec<_> = (0..10)
        .map(|_| {
            let mut client = UnixStream::connect(shop.socket()).unwrap();
            client.write_all(&request).unwrap();
            client
        })
        .collect();
    for _ in 0..20 {
        shop.check_service();
    }
    for mut client in clients {
        await_end_of_reply(&client);
        let mut reply = Vec::new();
        client.read_to_end(&mut reply).unwrap();
        assert!(reply.len() < 8 << 20, "{} bytes", reply.len());
    }
    shop.await_no_clients();
}

#[test]
fn clients_of_a_full_broker_wait() {
    let _test = Test::begin();
    let shop = Shop::with(|config| config.max_clients = 2);
    let stalled = [(), ()].map(|()| UnixStream::connect(shop.socket()).unwrap());
    shop.await_clients(2);
    let early = fetch(&shop.fetch(), Some(Instant::now() + Duration::from_millis(20))).unwrap_err();
    assert_eq!(early.status(), Status::TimedOut, "{early}");
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..20).map(|_| scope.spawn(|| shop.check_service())).collect();
        drop(stalled);
        waiting.into_iter().for_each(|client| client.join().unwrap());
    });
    shop.await_no_clients();
}

#[test]
fn one_user_cannot_use_more_than_its_share() {
    let _test = Test::begin();
    let shop = Shop::with(|config| config.max_clients_per_user = 1);
    let stalled = UnixStream::connect(shop.socket()).unwrap();
    shop.await_clients(1);
    let error = fetch(&shop.fetch(), soon()).unwrap_err();
    assert_eq!(error.status(), Status::Busy, "{error}");
    drop(stalled);
    shop.await_no_clients();
    shop.check_service();
}

#[test]
fn the_bytes_in_flight_of_one_user_are_limited() {
    let _test = Test::begin();
    let shop = Shop::with(|config| config.max_bytes_per_user = 1 << 20);
    let large = large(&shop);
    let mut reader = UnixStream::connect(shop.socket()).unwrap();
    reader.write_all(&message::request("large", &large.token.0)).unwrap();
    reader.read_exact(&mut [0; 100]).unwrap();
    let error = fetch(&shop.fetch(), soon()).unwrap_err();
    assert_eq!(error.status(), Status::Busy, "{error}");
    drop(reader);
    shop.await_no_clients();
    shop.check_service();
    check(&fetch(&large, soon()).unwrap(), 8 << 20, 500);
}

#[test]
fn a_broker_without_free_fds_accepts_clients_later() {
    let _test = Test::begin();
    let shop = Shop::open();
    let noticed = Arc::new((Mutex::new(false), Condvar::new()));
    let notice = noticed.clone();
    log::set_sink(
        log::Level::Warn as u32,
        Some(Box::new(move |_, _, message| {
            if message.contains("cannot accept a client") {
                *notice.0.lock().unwrap() = true;
                notice.1.notify_all();
            }
        })),
    )
    .unwrap();
    let limit = getrlimit(Resource::Nofile);
    let free = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 0).unwrap();
    let one_more = free.as_raw_fd() as u64 + 1;
    drop(free);
    setrlimit(Resource::Nofile, Rlimit { current: Some(one_more), ..limit }).unwrap();
    // The client's own end is the last file that this process can open.
    let client = UnixStream::connect(shop.socket());
    let seen = noticed.0.lock().unwrap();
    let waited = noticed.1.wait_timeout_while(seen, PATIENCE, |seen| !*seen);
    setrlimit(Resource::Nofile, limit).unwrap();
    log::set_sink(0, None).unwrap();
    assert!(*waited.unwrap().0, "the broker did not run out of files");
    let mut client = client.unwrap();
    client.write_all(&message::request("kv", &shop.token.0)).unwrap();
    check(&kvmem::share::socket::receive(client.as_fd(), soon()).unwrap(), 1000, 3);
    shop.await_no_clients();
}
