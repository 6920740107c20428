// SPDX-License-Identifier: Apache-2.0
//! The broker's thread: it waits for all clients together, never for a single one.

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::catalogue::{Catalogue, Publication};
use super::config::BrokerConfig;
use super::connection::{ClientEvent, Connection, Reply, refuse};
use super::fetch_request::FetchRequest;
use super::listener::Listener;
use crate::base::{Error, EventFd, LocalFd, Result, ensure, fail, log, retried};
use crate::region::Access;
use crate::share::frame::Parcel;
use crate::share::message;

/// The maximum number of clients that are accepted before the connected ones are served.
const ACCEPTS_A_TURN: usize = 64;
/// How long nothing is tried again that has failed for want of file descriptors or of memory of the kernel.
const PAUSE: Duration = Duration::from_millis(50);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// All that the thread owns.
pub struct Service {
    shared: Arc<BrokerState>,
    listener: Listener,
    config: BrokerConfig,
    connections: Vec<Connection>,
    accept_from: Option<Instant>,
    /// The last wait or the last connection has failed, which the log has.
    has_failed: bool,
}

/// The ready file descriptors, in the order of the connections.
struct Ready {
    listener: bool,
    connections: Vec<bool>,
}

impl Service {
    /// A service without clients.
    pub fn new(shared: Arc<BrokerState>, listener: Listener, config: BrokerConfig) -> Self {
        Self { shared, listener, config, connections: Vec::new(), accept_from: None, has_failed: false }
    }

    /// Serves until the broker is dropped.
    pub fn run(mut self) {
        while !self.shared.stopping.load(Ordering::Acquire) {
            match self.wait() {
                Ok(ready) => self.serve(&ready),
                Err(errno) => {
                    self.note_failure("wait for its clients", errno);
                    std::thread::sleep(PAUSE);
                }
            }
        }
        self.connections.clear();
        self.count_clients();
    }

    /// The log has the first failure of a series.
    fn note_failure(&mut self, what: &str, errno: Errno) {
        if !std::mem::replace(&mut self.has_failed, true) {
            log!(Warn, "a broker cannot {what}: {errno}; it tries again every {PAUSE:?}");
        }
    }

    fn wait(&self) -> std::result::Result<Ready, Errno> {
        let accepts = if self.may_accept() { PollFlags::IN } else { PollFlags::empty() };
        let mut fds =
            vec![PollFd::new(&self.shared.wake, PollFlags::IN), PollFd::new(&self.listener, accepts)];
        let awaited = self.connections.iter().map(Connection::awaited);
        let polled = self.connections.iter().zip(awaited);
        fds.extend(polled.filter_map(|(client, awaited)| Some(PollFd::new(client, awaited?))));
        retried::poll(&mut fds, self.wait_limit())?;
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let listener = fds.get(1).is_some_and(is_ready);
        let mut polled = fds.iter().skip(2).map(is_ready);
        // The others are served every time.
        let connections = self.connections.iter();
        let connections = connections.map(|client| client.awaited().is_none() || polled.next() == Some(true));
        Ok(Ready { listener, connections: connections.collect() })
    }

    /// The maximum time to wait for an event.
    fn wait_limit(&self) -> Option<Duration> {
        let now = Instant::now();
        let turns = self.connections.iter().filter_map(|client| client.next_turn(now));
        turns.chain(self.accept_from).min().map(|next| next.saturating_duration_since(now))
    }

    /// Whether another client may be accepted. Others wait in the kernel's backlog.
    fn may_accept(&self) -> bool {
        let now = Instant::now();
        let clients = self.connections.iter().filter(|client| !client.is_overdue(now)).count();
        self.accept_from.is_none() && clients < self.config.max_clients
    }

    fn serve(&mut self, ready: &Ready) {
        let now = Instant::now();
        let mut over = vec![false; self.connections.len()];
        for (index, over) in over.iter_mut().enumerate() {
            let is_ready = ready.connections.get(index) == Some(&true);
            *over = is_ready && !self.serve_one(index) || self.is_late(index, now);
        }
        let mut over = over.into_iter();
        self.connections.retain(|_| over.next() != Some(true));
        self.accept_from = self.accept_from.filter(|from| now < *from);
        if ready.listener {
            self.accept();
        }
        self.count_clients();
    }

    /// Serves a client. Returns whether to keep the connection.
    fn serve_one(&mut self, index: usize) -> bool {
        match self.connections[index].advance() {
            ClientEvent::Waits => true,
            ClientEvent::Done => false,
            ClientEvent::Invalid(error) => self.refuse(&self.connections[index], error),
            ClientEvent::Request(request) => match self.send_reply(index, &request) {
                Ok(true) => matches!(self.connections[index].advance(), ClientEvent::Waits),
                Ok(false) => {
                    self.connections[index].queue(request);
                    true
                }
                Err(error) => self.refuse(&self.connections[index], error),
            },
        }
    }

    /// Whether a client has timed out. Sends it the error if possible.
    fn is_late(&mut self, index: usize, now: Instant) -> bool {
        let client = &mut self.connections[index];
        if client.deadline().is_none_or(|deadline| now < deadline) {
            return false;
        }
        match client.timeout_error(self.config.client_timeout) {
            Some(error) => !self.refuse(&self.connections[index], error),
            None => matches!(client.end_reply(), ClientEvent::Done),
        }
    }

    /// Refuses a client, whose connection is then closed.
    fn refuse(&self, client: &impl AsFd, error: Error) -> bool {
        self.shared.counts.refused.fetch_add(1, Ordering::Relaxed);
        log!(Debug, "refuse a client: {error}");
        refuse(client.as_fd(), error);
        false
    }

    /// Starts to send the share that a client requested, if it may have it. Returns false if other clients of its user must
    /// read first.
    fn send_reply(&mut self, index: usize, request: &FetchRequest) -> Result<bool> {
        let (publication, granted) = self.shared.catalogue.look_up(request)?;
        let parcel = parcel(&*publication, granted, request)?;
        let user = self.connections[index].user();
        self.check_bytes(user, parcel.bytes.len() as u64)?;
        if !self.may_send_fds(user, parcel.fds.len()) {
            return Ok(false);
        }
        let reply = Reply::new(parcel)?;
        // The last step that can fail, so that a failure does not use the token up.
        self.shared.catalogue.redeem(request)?;
        let deadline = self.deadline();
        self.connections[index].reply(reply, deadline);
        self.shared.counts.granted.fetch_add(1, Ordering::Relaxed);
        log!(Debug, "broker sends '{}' to user {user}", request.name);
        Ok(true)
    }

    /// Whether a user may have this many more file descriptors in flight: each user has an equal part of the kernel's limit. A
    /// single share may exceed it.
    fn may_send_fds(&self, user: u32, more: usize) -> bool {
        let of_user = self.connections.iter().filter(|client| client.user() == user);
        let now = Instant::now();
        // The connection of one that is overdue counts here, and no more among the clients.
        let fds: usize = of_user.map(|client| client.fds() + usize::from(client.is_overdue(now))).sum();
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        fds == 0 || (fds + more) as u64 <= limit / self.config.users.len() as u64
    }

    /// Fails if this many more bytes in flight would exceed the user's limit. A single share may exceed it.
    fn check_bytes(&self, user: u32, more: u64) -> Result<()> {
        let of_user = self.connections.iter().filter(|client| client.user() == user);
        let bytes: u64 = of_user.map(Connection::bytes).sum();
        let most = self.config.max_bytes_per_user;
        ensure!(
            bytes == 0 || bytes.saturating_add(more) <= most,
            Busy,
            "{bytes} bytes of shares are in flight to user {user}, and {more} more would exceed the limit of {most}"
        );
        Ok(())
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_A_TURN {
            if !self.may_accept() {
                return;
            }
            match self.listener.accept() {
                Ok(Some(socket)) => {
                    self.has_failed = false;
                    self.admit(socket);
                }
                Ok(None) => return,
                Err(errno) => {
                    self.note_failure("accept a client", errno);
                    self.accept_from = Instant::now().checked_add(PAUSE);
                }
            }
        }
    }

    fn admit(&mut self, socket: LocalFd) {
        match self.check_user(&socket) {
            Ok(user) => self.connections.push(Connection::new(socket, user, self.deadline())),
            Err(error) => drop(self.refuse(&socket, error)),
        }
    }

    /// The user of a client. Fails if that user may not fetch.
    fn check_user(&self, socket: &LocalFd) -> Result<u32> {
        let user = message::peer_user(socket.as_fd())
            .map_err(|errno| Error::errno("get the user of a client's process", errno))?;
        ensure!(
            self.config.users.contains(&user),
            PermissionDenied,
            "user {user} may not fetch from this broker"
        );
        let now = Instant::now();
        let of_user = self.connections.iter().filter(|client| client.user() == user);
        let clients = of_user.filter(|client| !client.is_overdue(now)).count();
        let most = self.config.max_clients_per_user;
        ensure!(
            clients < most,
            Busy,
            "user {user} has {clients} clients connected to this broker, which is the maximum"
        );
        Ok(user)
    }

    fn deadline(&self) -> Instant {
        let now = Instant::now();
        // A timeout that exceeds the clock's range is replaced by a day.
        now.checked_add(self.config.client_timeout).unwrap_or(now + DAY)
    }

    fn count_clients(&self) {
        self.shared.counts.clients.store(self.connections.len() as u64, Ordering::Relaxed);
    }
}

/// The parcel of a publication. A panic there does not end the broker.
fn parcel(publication: &dyn Publication, granted: Access, request: &FetchRequest) -> Result<Arc<Parcel>> {
    match catch_unwind(AssertUnwindSafe(|| publication.parcel(granted, request.access))) {
        Ok(parcel) => parcel.map_err(|error| error.context(format!("share '{}'", request.name))),
        Err(payload) => {
            // Dropping a payload can panic again.
            std::mem::forget(payload);
            log!(Error, "a panic on the broker's thread while '{}' was shared", request.name);
            fail!(Panic, "a bug was hit while '{}' was shared", request.name)
        }
    }
}

#[derive(Default)]
pub(super) struct BrokerCounts {
    pub clients: AtomicU64,
    pub granted: AtomicU64,
    pub refused: AtomicU64,
}

/// The state that a broker shares with its thread.
pub(super) struct BrokerState {
    pub catalogue: Catalogue,
    pub counts: BrokerCounts,
    pub stopping: AtomicBool,
    pub wake: EventFd,
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::share::broker::TokenTerms;
    use crate::share::frame::MessageKind;
    use crate::share::outgoing::ParcelRef;
    use crate::share::socket::send_kind;
    use crate::test_folder::TestFolder;

    /// A file, and more bytes than a socket takes.
    struct Large;

    impl Publication for Large {
        fn parcel(&self, _: Access, _: Option<Access>) -> Result<Arc<Parcel>> {
            Ok(Arc::new(Parcel { bytes: vec![0; 4 << 20], fds: vec![std::io::pipe().unwrap().0.into()] }))
        }
    }

    /// A reply of [`Large`] whose client reads nothing, after its time, which is none.
    fn with_an_unread_reply(folder: &TestFolder) -> (Service, UnixStream) {
        let config = BrokerConfig { client_timeout: Duration::ZERO, ..BrokerConfig::at(folder.join("s")) };
        let config = config.check().unwrap();
        let shared = Arc::new(BrokerState {
            catalogue: Catalogue::default(),
            counts: BrokerCounts::default(),
            stopping: AtomicBool::new(false),
            wake: EventFd::new().unwrap(),
        });
        let terms = TokenTerms { access: Access::Read, max_uses: 0, lifetime: None };
        let token = shared.catalogue.publish("large", Arc::new(Large), &terms).unwrap();
        let listener = Listener::bind(&config.path, config.mode, config.max_clients).unwrap();
        let client = UnixStream::connect(&config.path).unwrap();
        let request = FetchRequest { name: "large".into(), token, access: None }.write();
        let load: ParcelRef<'_, LocalFd> = ParcelRef { bytes: &request, fds: &[] };
        send_kind(client.as_fd(), MessageKind::Request, &load, None).unwrap();
        let mut service = Service::new(shared, listener, config);
        // It is accepted, gets the first bytes, and its time ends.
        for _ in 0..3 {
            service.turn();
        }
        assert_eq!(service.shared.counts.granted.load(Ordering::Relaxed), 1);
        (service, client)
    }

    impl Service {
        /// As after a wait that finds all ready.
        fn turn(&mut self) {
            self.serve(&Ready { listener: true, connections: vec![true; self.connections.len()] });
        }

        fn fds(&self) -> usize {
            self.connections.iter().map(Connection::fds).sum()
        }
    }

    #[test]
    fn files_of_a_reply_that_was_read_in_part_count_until_they_are_read() {
        let folder = TestFolder::new();
        let (mut service, mut client) = with_an_unread_reply(&folder);
        assert_eq!((service.fds(), service.may_accept()), (1, true));
        service.turn();
        assert_eq!(service.fds(), 1);
        let read = client.read_to_end(&mut Vec::new());
        assert!(read.is_ok_and(|bytes| bytes < 4 << 20));
        service.turn();
        assert_eq!((service.fds(), service.connections.len()), (0, 0));
    }

    #[test]
    fn files_of_a_reply_that_was_read_in_part_count_until_the_client_ends() {
        let folder = TestFolder::new();
        let (mut service, client) = with_an_unread_reply(&folder);
        drop(client);
        service.turn();
        assert_eq!((service.fds(), service.connections.len()), (0, 0));
    }
}
