// SPDX-License-Identifier: Apache-2.0
//! Sending and receiving a share over a connected Unix socket of the engine.
//!
//! The socket may be blocking or not, and of type stream or with message boundaries; its flags are never changed.
//! docs/share-transport.md specifies the bytes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};

use super::frame::{CHUNK, MAX_BYTES, MAX_FDS, MessageKind, Parcel};
use super::incoming::{Boundaries, Incoming, ParcelLimits, ReceiveStep};
use super::message::FDS_A_MESSAGE;
use super::outgoing::{Outgoing, ParcelRef, SendStep};
use crate::base::{Error, Result, Status, ensure, fail, has_passed, log, retried, time_left};

/// The pause between attempts while the kernel allows no more file descriptors in flight.
pub(super) const IN_FLIGHT_PAUSE: Duration = Duration::from_millis(5);

/// The maximum number of messages that are still received after the deadline if they have already arrived. It is enough for
/// the largest share in full-size messages, and bounds the work for a peer that sends small messages without end.
const LATE_STEPS: usize = 2 * (MAX_BYTES / CHUNK + MAX_FDS / FDS_A_MESSAGE + 2);

/// Sends bytes and file descriptors, which the caller continues to own. A deadline of `None` means no timeout.
///
/// After a failure the peer may have received a part: the socket must be closed, unless the error allows a retry.
pub fn send<F: AsFd>(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[F],
    deadline: Option<Instant>,
) -> Result<()> {
    let doing = |error: Error| error.context("send a share");
    boundaries(socket).map_err(doing)?;
    send_kind(socket, MessageKind::Share, &ParcelRef { bytes, fds }, deadline).map_err(doing)?;
    log!(Debug, "share sent: {} bytes and {} file descriptors", bytes.len(), fds.len());
    Ok(())
}

/// Receives the data of [`send`]. A deadline of `None` means no timeout.
///
/// After a failure the socket must be closed, unless the error allows a retry.
pub fn receive(socket: BorrowedFd<'_>, deadline: Option<Instant>) -> Result<Parcel> {
    let doing = |error: Error| {
        let error = error.context("receive a share");
        match error.status() {
            Status::Corrupt => {
                error.followed_by("close the socket: where the next message starts is not known")
            }
            _ => error,
        }
    };
    let boundaries = boundaries(socket).map_err(doing)?;
    match receive_kind(socket, boundaries, ParcelLimits::SHARE, deadline).map_err(doing)? {
        (MessageKind::Share, parcel) => {
            log!(
                Debug,
                "share received: {} bytes and {} file descriptors",
                parcel.bytes.len(),
                parcel.fds.len()
            );
            Ok(parcel)
        }
        (kind, _) => {
            let message = format!("a message of another kind came ({kind:?})");
            Err(doing(Error::new(Status::Corrupt, message)))
        }
    }
}

pub(super) fn send_kind<F: AsFd>(
    socket: BorrowedFd<'_>,
    kind: MessageKind,
    load: &ParcelRef<'_, F>,
    deadline: Option<Instant>,
) -> Result<()> {
    let mut outgoing = Outgoing::new(kind, load)?;
    loop {
        let in_time = match outgoing.step(socket, load)? {
            SendStep::All => return Ok(()),
            SendStep::Some => true,
            SendStep::Full => wait(socket, PollFlags::OUT, deadline)?,
            SendStep::TooManyInFlight => pause(socket, deadline)?,
        };
        if !in_time {
            let what = if outgoing.has_begun() {
                "the peer has read only a part before the timeout; close the socket"
            } else {
                "the socket accepted nothing before the timeout; try again"
            };
            fail!(TimedOut, "{what}");
        }
    }
}

pub(super) fn receive_kind(
    socket: BorrowedFd<'_>,
    boundaries: Boundaries,
    limits: ParcelLimits,
    deadline: Option<Instant>,
) -> Result<(MessageKind, Parcel)> {
    let mut incoming = Incoming::new(boundaries, limits);
    let mut late_steps = LATE_STEPS;
    loop {
        let in_time = match incoming.step(socket)? {
            ReceiveStep::All(kind, parcel) => return Ok((kind, parcel)),
            ReceiveStep::Some => !has_passed(deadline) || spend(&mut late_steps),
            ReceiveStep::Nothing => wait(socket, PollFlags::IN, deadline)?,
        };
        if !in_time {
            let what = if incoming.has_begun() {
                "the peer has sent only a part before the timeout; close the socket"
            } else {
                "nothing was received before the timeout; try again"
            };
            fail!(TimedOut, "{what}");
        }
    }
}

/// The message boundaries of the socket. Fails for a socket that cannot carry a share.
fn boundaries(socket: BorrowedFd<'_>) -> Result<Boundaries> {
    let fd = socket.as_raw_fd();
    let refused = |errno| {
        let what = match errno {
            Errno::NOTSOCK => format!("fd {fd} is not a socket; pass one end of a connected Unix socket"),
            Errno::BADF => format!("fd {fd} is not open in this process"),
            _ => format!("get the type of socket {fd}"),
        };
        Error::errno(what, errno).with_status(Status::InvalidArgument)
    };
    let is_unix = socket_domain(socket).map_err(refused)? == AddressFamily::UNIX;
    ensure!(
        is_unix,
        InvalidArgument,
        "socket {fd} is not a Unix socket, which alone carries file descriptors"
    );
    let boundaries = match socket_type(socket).map_err(refused)? {
        SocketType::STREAM => Boundaries::None,
        SocketType::SEQPACKET => Boundaries::Retained,
        _ => fail!(InvalidArgument, "socket {fd} is neither SOCK_STREAM nor SOCK_SEQPACKET"),
    };
    let listens = socket_acceptconn(socket).map_err(refused)?;
    ensure!(!listens, InvalidArgument, "socket {fd} listens; accept a connection, and use that");
    match rustix::net::getpeername(socket) {
        Err(Errno::NOTCONN) => fail!(InvalidArgument, "socket {fd} is not connected"),
        _ => Ok(boundaries),
    }
}

/// Takes one away, if there is one.
fn spend(steps: &mut usize) -> bool {
    let left = steps.checked_sub(1);
    *steps = left.unwrap_or_default();
    left.is_some()
}

/// Waits until the socket is ready. Returns false after a timeout.
pub(super) fn wait(socket: BorrowedFd<'_>, event: PollFlags, deadline: Option<Instant>) -> Result<bool> {
    loop {
        let left = time_left(deadline);
        if poll_once(socket, event, left)? {
            return Ok(true);
        }
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(false);
        }
    }
}

/// Pauses before another attempt. Returns false if the deadline has passed.
fn pause(socket: BorrowedFd<'_>, deadline: Option<Instant>) -> Result<bool> {
    let left = time_left(deadline);
    poll_once(socket, PollFlags::empty(), Some(left.unwrap_or(IN_FLIGHT_PAUSE).min(IN_FLIGHT_PAUSE)))?;
    Ok(left.is_none_or(|left| !left.is_zero()))
}

fn poll_once(socket: BorrowedFd<'_>, event: PollFlags, time: Option<Duration>) -> Result<bool> {
    match retried::poll(&mut [PollFd::from_borrowed_fd(socket, event)], time) {
        Ok(ready) => Ok(ready > 0),
        Err(errno) => Err(Error::errno("wait for a socket", errno)),
    }
}
