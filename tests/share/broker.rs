// SPDX-License-Identifier: Apache-2.0
//! Publishing and fetching with a broker: names, tokens, access, users.

use std::sync::Arc;
use std::time::Duration;

use kvmem::base::error::{Error, Result, Status};
use kvmem::region::Access;
use kvmem::share::Parcel;
use kvmem::share::broker::{Broker, BrokerConfig, Publication, Token, TokenTerms};
use kvmem::share::client::{Fetch, fetch};

use super::child::{OTHER_USER, Role, argument, ready};
use super::skip::skip;
use super::support::{Offer, Shop, Test, check, soon, terms};
use super::test_folder::TestFolder;

fn refused(fetch_this: &Fetch) -> Error {
    fetch(fetch_this, soon()).unwrap_err()
}

#[test]
fn a_published_object_is_fetched_by_name_and_token() {
    let _test = Test::begin();
    let shop = Shop::open();
    let token = shop.broker.publish("much", Offer::new(5 << 20, 700), &terms(Access::Read)).unwrap();
    for _ in 0..3 {
        shop.check_service();
        check(&fetch(&Fetch { name: "much".into(), token, ..shop.fetch() }, soon()).unwrap(), 5 << 20, 700);
    }
    let info = shop.broker.info();
    assert_eq!((info.publications, info.granted, info.refused), (2, 6, 0));
}

#[test]
fn wrong_tokens_unknown_names_and_replayed_tokens_fail_with_the_same_error() {
    let _test = Test::begin();
    let shop = Shop::open();
    let once = shop.broker.grant("kv", &TokenTerms { max_uses: 1, ..terms(Access::Read) }).unwrap();
    let over = TokenTerms { lifetime: Some(Duration::ZERO), ..terms(Access::Read) };
    let over = shop.broker.grant("kv", &over).unwrap();
    check(&fetch(&Fetch { token: once, ..shop.fetch() }, soon()).unwrap(), 1000, 3);
    let errors = [
        refused(&Fetch { token: once, ..shop.fetch() }),
        refused(&Fetch { token: over, ..shop.fetch() }),
        refused(&Fetch { token: Token([0; 32]), ..shop.fetch() }),
        refused(&Fetch { name: "vk".into(), ..shop.fetch() }),
    ];
    for error in &errors {
        assert_eq!(error.status(), Status::PermissionDenied);
        assert_eq!(error.message().replace("'vk'", "'kv'"), errors[0].message());
    }
    shop.check_service();
    assert_eq!((shop.broker.info().granted, shop.broker.info().refused), (2, 4));
}

/// Returns the name of the granted access as bytes.
struct Plain;
impl Publication for Plain {
    fn parcel(&self, granted: Access, requested: Option<Access>) -> Result<Arc<Parcel>> {
        let access = requested.unwrap_or(granted);
        Ok(Arc::new(Parcel { bytes: format!("{access:?}").into_bytes(), fds: Vec::new() }))
    }
}

#[test]
fn access_is_limited_by_request_and_grant() {
    let _test = Test::begin();
    let shop = Shop::open();
    let reader = shop.broker.publish("plain", Arc::new(Plain), &terms(Access::Read)).unwrap();
    let writer = shop.broker.grant("plain", &terms(Access::ReadWrite)).unwrap();
    let ask = |token, access| Fetch { name: "plain".into(), token, access, ..shop.fetch() };
    for (token, access, expected) in [
        (reader, None, "Read"),
        (reader, Some(Access::Read), "Read"),
        (writer, None, "ReadWrite"),
        (writer, Some(Access::Read), "Read"),
        (writer, Some(Access::ReadWrite), "ReadWrite"),
    ] {
        assert_eq!(fetch(&ask(token, access), soon()).unwrap().bytes, expected.as_bytes());
    }
    let error = refused(&ask(reader, Some(Access::ReadWrite)));
    assert_eq!(error.status(), Status::PermissionDenied);
    assert!(error.message().contains("write"), "{error}");
}

#[test]
fn an_unpublished_object_is_not_found() {
    let _test = Test::begin();
    let shop = Shop::open();
    shop.broker.unpublish("kv").unwrap();
    assert_eq!(refused(&shop.fetch()).status(), Status::PermissionDenied);
    assert_eq!(shop.broker.unpublish("kv").unwrap_err().status(), Status::NotFound);
}

/// Fails by an error, or if true by a panic.
struct Broken(bool);
impl Publication for Broken {
    fn parcel(&self, _: Access, _: Option<Access>) -> Result<Arc<Parcel>> {
        assert!(!self.0, "deliberate");
        Err(Error::new(Status::Stale, "it has shrunk"))
    }
}

#[test]
fn a_failed_publication_reports_its_cause_and_keeps_its_token() {
    let _test = Test::begin();
    let shop = Shop::open();
    let once = TokenTerms { max_uses: 1, ..terms(Access::Read) };
    for (panics, status, words) in [(false, Status::Stale, "it has shrunk"), (true, Status::Panic, "bug")] {
        let token = shop.broker.publish("broken", Arc::new(Broken(panics)), &once).unwrap();
        for _ in 0..2 {
            let error = refused(&Fetch { name: "broken".into(), token, ..shop.fetch() });
            assert_eq!(error.status(), status, "{error}");
            assert!(error.message().contains(words), "{error}");
        }
        shop.broker.unpublish("broken").unwrap();
    }
    shop.check_service();
}

#[test]
fn a_broker_removes_its_socket_and_reports_what_blocks_its_path() {
    let _test = Test::begin();
    let shop = Shop::open();
    let again = Broker::start(BrokerConfig::at(shop.socket())).err().unwrap();
    assert_eq!(again.status(), Status::AlreadyExists, "{again}");
    shop.check_service();
    let what = shop.fetch();
    let Shop { broker, directory, .. } = shop;
    drop(broker);
    assert_eq!(directory.entries(), 0);
    assert_eq!(refused(&what).status(), Status::NotFound);
    drop(std::os::unix::net::UnixListener::bind(directory.join("broker")).unwrap());
    assert_eq!(refused(&what).status(), Status::PeerLost);
    drop(std::os::unix::net::UnixDatagram::bind(directory.join("broker")).err().unwrap());
    std::fs::remove_file(directory.join("broker")).unwrap();
    let _other_kind = std::os::unix::net::UnixDatagram::bind(directory.join("broker")).unwrap();
    assert_eq!(refused(&what).status(), Status::InvalidArgument);
}

#[test]
fn a_killed_broker_is_a_lost_peer_and_can_be_replaced() {
    let _test = Test::begin();
    let directory = TestFolder::new();
    let path = directory.join("broker");
    let mut role = Role::start("serve until killed", &[("BROKER", path.display().to_string())]);
    role.await_ready();
    let what = |token| Fetch {
        path: path.clone(),
        name: "kv".into(),
        token,
        access: Some(Access::Read),
        broker_user: None,
        broker_process: None,
    };
    assert_eq!(refused(&what(Token([1; 32]))).status(), Status::PermissionDenied);
    role.kill();
    assert_eq!(refused(&what(Token([1; 32]))).status(), Status::PeerLost);
    let broker = Broker::start(BrokerConfig::at(&path)).unwrap();
    let token = broker.publish("kv", Offer::new(10, 1), &terms(Access::Read)).unwrap();
    check(&fetch(&what(token), soon()).unwrap(), 10, 1);
}

/// Role: a broker.
pub fn serve_until_killed() {
    let broker = Broker::start(BrokerConfig::at(argument("BROKER"))).unwrap();
    broker.publish("kv", Offer::new(10, 1), &terms(Access::Read)).unwrap();
    ready();
}

#[test]
fn a_broker_of_another_user_is_not_trusted() {
    let _test = Test::begin();
    let shop = Shop::open();
    let own = rustix::process::geteuid().as_raw();
    let error = refused(&Fetch { broker_user: Some(own + 1), ..shop.fetch() });
    assert_eq!(error.status(), Status::PermissionDenied);
    assert!(error.message().contains(&format!("expected user {}", own + 1)), "{error}");
    check(&fetch(&Fetch { broker_user: Some(own), ..shop.fetch() }, soon()).unwrap(), 1000, 3);
}

/// As root the client is another user. Otherwise the broker's list of users excludes this one.
#[test]
fn users_without_permission_are_rejected() {
    let _test = Test::begin();
    let own = rustix::process::geteuid();
    let ask_as = |shop: &Shop, user: Option<u32>, expected: &str| {
        let token = shop.token.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let arguments = [
            ("BROKER", shop.socket().display().to_string()),
            ("TOKEN", token),
            ("OWNER", own.as_raw().to_string()),
            ("EXPECTED", expected.to_string()),
        ];
        Role::start_as(user, "fetch as another user", &arguments).finish();
    };
    let others = if own.is_root() { OTHER_USER } else { own.as_raw() + 1 };
    let other_alone = Shop::with(|config| (config.users, config.mode) = (vec![others], 0o666));
    ask_as(&other_alone, None, "may not fetch");
    if own.is_root() {
        ask_as(&other_alone, Some(OTHER_USER), "");
        ask_as(&Shop::with(|config| config.mode = 0o666), Some(OTHER_USER), "may not fetch");
        ask_as(&Shop::open(), Some(OTHER_USER), "may not connect");
        let both = Shop::with(|config| (config.users, config.mode) = (vec![0, OTHER_USER], 0o666));
        ask_as(&both, Some(OTHER_USER), "");
        ask_as(&both, None, "");
    } else {
        skip("a client of another user needs a switch to that user; run as root");
    }
}

/// Role: fetches. Expects an error that contains EXPECTED, or success if EXPECTED is empty.
pub fn fetch_as_another_user() {
    let digits = argument("TOKEN");
    let mut token = [0; 32];
    for (byte, digits) in token.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
    }
    let what = Fetch {
        path: argument("BROKER").into(),
        name: "kv".into(),
        token: Token(token),
        access: Some(Access::Read),
        broker_user: Some(argument("OWNER").parse().unwrap()),
        broker_process: None,
    };
    let expected = argument("EXPECTED");
    match fetch(&what, soon()) {
        Ok(parcel) => {
            check(&parcel, 1000, 3);
            assert_eq!(expected, "");
        }
        Err(error) => {
            assert_eq!(error.status(), Status::PermissionDenied, "{error}");
            assert!(!expected.is_empty() && error.message().contains(&expected), "{error}");
        }
    }
}

#[test]
fn an_invalid_configuration_fails() {
    let _test = Test::begin();
    let directory = TestFolder::new();
    let start = |change: &dyn Fn(&mut BrokerConfig)| {
        let mut config = BrokerConfig::at(directory.join("broker"));
        change(&mut config);
        Broker::start(config).err().unwrap()
    };
    let errors = [
        start(&|config| config.mode = 0o4600),
        start(&|config| config.users = vec![12345]),
        start(&|config| config.max_clients = 0),
        start(&|config| config.path = "".into()),
    ];
    for error in errors {
        assert_eq!(error.status(), Status::InvalidArgument, "{error}");
    }
    assert_eq!(directory.entries(), 0);
}
