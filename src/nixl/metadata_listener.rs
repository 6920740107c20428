// SPDX-License-Identifier: Apache-2.0
//! Metadata over TCP, between NIXL's listen threads: fetching a peer's metadata, and sending the agent's own.
//!
//! NIXL reports success once such a request is queued. Its listen thread writes what then fails to stderr, and does not
//! try again. So the reasons why it must fail are checked here, by a connection that is closed at once.

use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;

use super::agent::{self, Agent};
use super::command::{Command, ForListener, Reply};
use super::host_names;
use super::state::AgentState;
use super::task::{AgentTask, TaskStep};
use crate::base::{Error, Result, Status, deadline_of, ensure, error, handoff, has_passed, time_left};

/// How long metadata may take before the peer's address is checked. The listen threads of both sides sleep 100 ms between
/// rounds by default, so that it mostly arrives before.
const GRACE: Duration = Duration::from_millis(400);
/// How long a check waits for the peer's machine, and how often it is repeated: NIXL's own limit for a connection.
const CHECK: Duration = Duration::from_secs(1);

impl Agent {
    /// Requests a peer's metadata from its listen thread. Waits until it is loaded, without a timeout for ever, unless
    /// older metadata of the peer is loaded: NIXL adds the newer to it and reports the arrival nowhere. Then this returns
    /// once a listen thread was found at the address and the request is queued.
    pub fn fetch_remote(
        &self,
        name: &str,
        address: &str,
        port: u16,
        timeout: Option<Duration>,
    ) -> Result<()> {
        ensure!(
            name != self.name(),
            InvalidArgument,
            "'{name}' is the agent itself; only the metadata of a peer can be fetched"
        );
        let deadline = deadline_of(timeout);
        let listener = self.peer_listener(address, port, deadline)?;
        let (peer, host) = (name.to_string(), listener.ip().to_string());
        let fetching = |error: Error| {
            error.context(format!("fetch the metadata of agent '{name}' from {address}:{port}"))
        };
        let is_loaded = self.is_loaded(name, deadline).map_err(fetching)?;
        if is_loaded {
            // A connection to a local address takes less, so the check is made even with a timeout of 0.
            let soonest = Instant::now() + Duration::from_millis(1);
            let until = deadline.map(|deadline| deadline.max(soonest));
            ensure_listens(&listener, until).map_err(fetching)?;
        }
        let request = |reply| Command::RequestRemote(peer, (host, port), reply);
        self.call_until(deadline, request).map_err(fetching)?;
        if is_loaded { Ok(()) } else { self.await_remote(name, &listener, deadline).map_err(fetching) }
    }

    fn is_loaded(&self, name: &str, deadline: Option<Instant>) -> Result<bool> {
        let name = name.to_string();
        match self.call_until(deadline, |reply| Command::Remote(name, Vec::new(), reply)) {
            Ok(_) => Ok(true),
            Err(error) if error.status() == Status::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn await_remote(&self, name: &str, listener: &SocketAddr, deadline: Option<Instant>) -> Result<()> {
        let (reply, result) = handoff();
        self.start(Box::new(MetadataArrival { name: name.to_string(), deadline, reply }))?;
        let mut patience = GRACE;
        while !result.wait(Some(Instant::now() + patience)) {
            let is_over = deadline.is_some_and(|deadline| deadline + agent::GRACE < Instant::now());
            ensure!(!is_over, TimedOut, "{}", self.is_busy());
            ensure_listens(listener, deadline)?;
            patience = CHECK;
        }
        self.taken(result, deadline)
    }

    /// Sends something to the listen thread of a peer. Fails if none listens at the address.
    pub fn send_to(&self, address: &str, port: u16, sent: ForListener) -> Result<()> {
        let listener = self.peer_listener(address, port, None)?;
        ensure_listens(&listener, None).map_err(|error| {
            error.context(format!(
                "{} of agent '{}', listen thread {address}:{port}",
                sent.doing(),
                self.name()
            ))
        })?;
        self.call(|reply| Command::SendTo((listener.ip().to_string(), port), sent, reply))
    }

    /// The address of a peer's listen thread, which this agent needs its own one to reach. NIXL takes no host names.
    fn peer_listener(&self, address: &str, port: u16, deadline: Option<Instant>) -> Result<SocketAddr> {
        ensure!(
            self.has_listen_thread(),
            InvalidState,
            "agent '{}' has no listen thread, which NIXL needs to exchange metadata by address; create it with \
             KVMEM_AGENT_LISTEN_THREAD",
            self.name()
        );
        Ok(SocketAddrV4::new(host_names::resolved(address, deadline)?, port).into())
    }
}

/// Fails if nothing listens at an address, or if it is unreachable. Other failures, and a machine that does not respond in
/// time, prove nothing.
fn ensure_listens(listener: &SocketAddr, deadline: Option<Instant>) -> Result<()> {
    let left = time_left(deadline).map_or(CHECK, |left| left.min(CHECK));
    if left.is_zero() {
        return Ok(());
    }
    match TcpStream::connect_timeout(listener, left) {
        Ok(stream) => {
            // NIXL keeps a connection that ends in order; it closes one that is reset.
            let _ = set_socket_linger(&stream, Some(Duration::ZERO));
            Ok(())
        }
        Err(error) => refusal(listener, &error).map_or(Ok(()), Err),
    }
}

fn refusal(listener: &SocketAddr, error: &std::io::Error) -> Option<Error> {
    let errno = Errno::from_raw_os_error(error.raw_os_error()?);
    match errno {
        Errno::CONNREFUSED => {
            let doing =
                format!("nothing listens at {listener}; create the peer with KVMEM_AGENT_LISTEN_THREAD");
            Some(Error::errno(doing, errno).with_status(Status::NotFound))
        }
        Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NETDOWN | Errno::ACCESS | Errno::PERM => {
            Some(Error::errno(format!("connect to {listener}"), errno))
        }
        _ => None,
    }
}

/// Waits until a peer's metadata has been loaded by NIXL's listen thread.
struct MetadataArrival {
    name: String,
    deadline: Option<Instant>,
    reply: Reply<()>,
}

impl AgentTask for MetadataArrival {
    fn step(&mut self, state: &mut AgentState) -> TaskStep {
        if !self.reply.is_awaited() {
            return TaskStep::Done;
        }
        let over = has_passed(self.deadline);
        let result = match state.remote(&self.name) {
            Err(error) if error.status() == Status::NotFound && !over => return TaskStep::Waiting,
            Err(error) if error.status() == Status::NotFound => Err(error!(
                TimedOut,
                "the metadata did not arrive in time; check the name, the address and the port"
            )),
            arrived => arrived.map(|_| ()),
        };
        let _ = self.reply.give(result);
        TaskStep::Done
    }

    fn abandon(&mut self, error: Error) {
        let _ = self.reply.give(Err(error));
    }
}
