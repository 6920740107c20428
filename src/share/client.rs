// SPDX-License-Identifier: Apache-2.0
//! Fetching a share from a broker.

#![forbid(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use super::Parcel;
use super::broker::{FetchRequest, Refusal, Token, address, check_name};
use super::frame::MessageKind;
use super::incoming::{Boundaries, ParcelLimits};
use super::message::{peer_pid, peer_user};
use super::outgoing::ParcelRef;
use super::socket::{receive_kind, send_kind};
use crate::error::{Error, Result, Status, ensure, fail};
use crate::log::log;
use crate::process::{LocalFd, pid_has_ended};
use crate::region::Access;

/// What to fetch.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// Where the broker listens.
    pub path: PathBuf,
    /// What it was published as.
    pub name: String,
    /// The token that goes with it.
    pub token: Token,
    /// What will be done with the memory; `None` for all that is granted.
    pub access: Option<Access>,
    /// Whose process the broker must be; `None` for this process's own user.
    pub broker_user: Option<u32>,
}

/// Fetches a share. `None` waits as long as it takes.
pub fn fetch(what: &Fetch, deadline: Option<Instant>) -> Result<Parcel> {
    let doing = |error: Error| {
        error.context(format!("fetch '{}' from the broker at {}", what.name, what.path.display()))
    };
    check_name(&what.name).map_err(doing)?;
    let socket = connect(what, deadline).map_err(doing)?;
    check_broker(&socket, what).map_err(doing)?;
    let parcel = exchange(&socket, what, deadline).map_err(doing)?;
    log!(
        Debug,
        "share '{}' fetched from the broker at {}: {} bytes and {} file descriptors",
        what.name,
        what.path.display(),
        parcel.bytes.len(),
        parcel.fds.len()
    );
    Ok(parcel)
}

fn connect(what: &Fetch, deadline: Option<Instant>) -> Result<LocalFd> {
    let address = address(&what.path)?;
    let create = || net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = LocalFd::open(create).map_err(|errno| Error::errno("make a socket", errno))?;
    loop {
        limit_connect(&socket, deadline)?;
        match net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(connect_error(errno, &what.path)),
        }
    }
}

/// A connection waits while the broker has others to let in first; this bounds the wait.
fn limit_connect(socket: &LocalFd, deadline: Option<Instant>) -> Result<()> {
    let Some(deadline) = deadline else { return Ok(()) };
    // Zero would stand for no bound.
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_micros(1));
    match set_socket_timeout(socket, Timeout::Send, Some(left)) {
        // A time that the kernel can't count ends after the machine does.
        Ok(()) | Err(Errno::INVAL | Errno::DOM) => Ok(()),
        Err(errno) => Err(Error::errno("set a socket's timeout", errno)),
    }
}

fn connect_error(errno: Errno, path: &Path) -> Error {
    let (what, status) = match errno {
        Errno::NOENT => ("nothing is there", Status::NotFound),
        // The kernel says the same of a socket without a listener and of a file that is no socket.
        Errno::CONNREFUSED if !is_socket(path) => {
            ("the file there is no socket: it is not the path of a broker", Status::InvalidArgument)
        }
        Errno::CONNREFUSED => ("a socket is there, but its broker has ended", Status::PeerLost),
        Errno::AGAIN => ("it let nobody in in the time given", Status::TimedOut),
        Errno::ACCESS | Errno::PERM => ("this user may not connect", Status::PermissionDenied),
        Errno::PROTOTYPE => ("another kind of socket is there", Status::InvalidArgument),
        Errno::NOTDIR | Errno::LOOP => ("the path leads nowhere", Status::InvalidArgument),
        _ => return Error::errno("connect", errno),
    };
    Error::errno(what, errno).with_status(status)
}

fn is_socket(path: &Path) -> bool {
    let stat = rustix::fs::stat(path);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket)
}

/// Whoever listens at the path must be whom the caller trusts, not just who came first.
fn check_broker(socket: &LocalFd, what: &Fetch) -> Result<()> {
    let user =
        peer_user(socket.as_fd()).map_err(|errno| Error::errno("ask whose process the broker is", errno))?;
    let expected = what.broker_user.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    ensure!(
        user == expected,
        PermissionDenied,
        "it is a process of user {user}, only one of user {expected} is trusted"
    );
    ensure!(
        !peer_pid(socket.as_fd()).is_some_and(pid_has_ended),
        PeerLost,
        "the broker's process has ended; a child of it still has the socket open, and does not serve it"
    );
    Ok(())
}

fn exchange(socket: &LocalFd, what: &Fetch, deadline: Option<Instant>) -> Result<Parcel> {
    let request = FetchRequest { name: what.name.clone(), token: what.token, access: what.access }.write();
    let load: ParcelRef<'_, OwnedFd> = ParcelRef { bytes: &request, fds: &[] };
    let sent = send_kind(socket.as_fd(), MessageKind::Request, &load, deadline);
    if let Err(error) = &sent
        && error.status() != Status::PeerLost
    {
        return sent.map(|()| Parcel::default());
    }
    // A broker that hangs up before it has heard all may still have said why.
    let answer = receive_kind(socket.as_fd(), Boundaries::None, ParcelLimits::SHARE, deadline);
    match (sent, answer) {
        (_, Ok((MessageKind::Share, parcel))) => Ok(parcel),
        (_, Ok((MessageKind::Refusal, parcel))) => Err(Refusal::read(&parcel.bytes)?.0),
        (_, Ok((MessageKind::Request, _))) => fail!(Corrupt, "it answered by a request"),
        (Err(error), Err(_)) | (Ok(()), Err(error)) => Err(error),
    }
}
