// SPDX-License-Identifier: Apache-2.0
//! Fetching a share from a broker.

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
use super::user::ensure_unambiguous;
use crate::base::process::{LocalFd, ProcessIdentity, pid_has_ended};
use crate::base::{Error, Result, Status, ensure, fail, log, retried};
use crate::region::Access;

#[derive(Clone, Debug)]
pub struct Fetch {
    /// The path of the broker's socket.
    pub path: PathBuf,
    pub name: String,
    pub token: Token,
    /// The requested access; `None` requests all that is granted.
    pub access: Option<Access>,
    /// The user that the broker must run as; `None` means the user of this process.
    pub broker_user: Option<u32>,
    /// The process whose broker it must be, as far as that is visible from this process.
    pub broker_process: Option<ProcessIdentity>,
}

/// Fetches a share. A deadline of `None` means no timeout.
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
    let socket = LocalFd::open(create).map_err(|errno| Error::errno("create a socket", errno))?;
    loop {
        limit_connect(&socket, deadline)?;
        #[allow(
            clippy::disallowed_methods,
            reason = "repeated here, for no longer than the time that is left"
        )]
        match net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(connect_error(errno, &what.path)),
        }
    }
}

/// Bounds the wait for a connection: the broker may have to accept others first.
fn limit_connect(socket: &LocalFd, deadline: Option<Instant>) -> Result<()> {
    let Some(deadline) = deadline else { return Ok(()) };
    // Zero would mean no timeout.
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_micros(1));
    match set_socket_timeout(socket, Timeout::Send, Some(left)) {
        // A timeout that exceeds the kernel's range is as good as none.
        Ok(()) | Err(Errno::INVAL | Errno::DOM) => Ok(()),
        Err(errno) => Err(Error::errno("set a socket's timeout", errno)),
    }
}

fn connect_error(errno: Errno, path: &Path) -> Error {
    let (what, status) = match errno {
        Errno::NOENT => ("there is no socket at the path", Status::NotFound),
        // The kernel returns the same for a socket without a listener and for a file that is not a socket.
        Errno::CONNREFUSED if !is_socket(path) => {
            ("the file at the path is not a socket: pass the path of a broker", Status::InvalidArgument)
        }
        Errno::CONNREFUSED => ("the broker of the socket has ended", Status::PeerLost),
        Errno::AGAIN => ("it did not accept the connection before the timeout", Status::TimedOut),
        Errno::ACCESS | Errno::PERM => ("this user may not connect", Status::PermissionDenied),
        Errno::PROTOTYPE => ("the socket at the path has another type", Status::InvalidArgument),
        Errno::NOTDIR | Errno::LOOP => ("the path is invalid", Status::InvalidArgument),
        _ => return Error::errno("connect", errno),
    };
    Error::errno(what, errno).with_status(status)
}

fn is_socket(path: &Path) -> bool {
    let stat = retried::stat(path);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket)
}

/// The process that listens at the path must run as the user that the caller trusts, because any process may have created
/// the socket.
fn check_broker(socket: &LocalFd, what: &Fetch) -> Result<()> {
    let user = peer_user(socket.as_fd())
        .map_err(|errno| Error::errno("get the user of the broker's process", errno))?;
    let expected = what.broker_user.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    ensure!(user == expected, PermissionDenied, "it runs as user {user}, expected user {expected}");
    ensure_unambiguous(user).map_err(|error| error.context(format!("it runs as user {user}")))?;
    let listener = peer_pid(socket.as_fd());
    if let (Some(pid), Some(process)) = (listener, what.broker_process.as_ref().filter(|it| it.is_visible()))
    {
        ensure!(
            pid == process.pid,
            Stale,
            "process {pid} listens there now, and the share was offered by process {}",
            process.pid
        );
    }
    ensure!(
        !listener.is_some_and(pid_has_ended),
        PeerLost,
        "the broker's process has ended; a child of it still has the socket open, but does not serve it"
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
    // A broker that closes the connection early may have sent a refusal.
    let reply = receive_kind(socket.as_fd(), Boundaries::None, ParcelLimits::SHARE, deadline);
    match (sent, reply) {
        (_, Ok((MessageKind::Share, parcel))) => Ok(parcel),
        (_, Ok((MessageKind::Refusal, parcel))) => Err(Refusal::read(&parcel.bytes)?.0),
        (_, Ok((MessageKind::Request, _))) => fail!(Corrupt, "it replied with a request"),
        (Err(error), Err(_)) | (Ok(()), Err(error)) => Err(error),
    }
}
