// SPDX-License-Identifier: Apache-2.0
//! A socket by which other processes of the same user read reports of this process.
//!
//! A client sends one byte, the kind of the report, and receives the report until the end of the stream. One client is served at a
//! time, on a thread of its own, with a deadline: a client that stops delays other clients, and nothing else.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::message::peer_user;
use super::socket;
use super::user::ensure_unambiguous;
use crate::base::process::LocalFd;
use crate::base::{Error, Mutex, PerProcess, Result, Status, ensure, guarded, log, retried, thread};

/// How long a client may take to ask, and then to read.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause after each client: a client that comes again and again costs the process few reports.
const PAUSE: Duration = Duration::from_millis(20);
const BACKLOG: i32 = 8;
const ROOT: u32 = 0;

/// Makes the report of a kind; `None` if there is none.
pub type Reports = fn(u8) -> Option<Result<Vec<u8>>>;

/// Serves reports until the process ends. Does nothing if it does so already. A forked child serves none until it calls this.
pub fn serve(reports: Reports) -> Result<()> {
    static SERVES: PerProcess<Mutex<bool>> = PerProcess::new();
    let mut serves = SERVES.get(Mutex::default).lock();
    if !*serves {
        let socket = listen(&name(std::process::id()))?;
        thread::spawn("kvmem-reports", move || serve_clients(&socket, reports))?;
        *serves = true;
    }
    Ok(())
}

/// The name of the socket of a process. It is abstract: no file is left when the process ends.
fn name(process: u32) -> String {
    format!("kvmem-reports-{process}")
}

fn listen(name: &str) -> Result<LocalFd> {
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes());
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let opened = LocalFd::open(|| {
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        retried::bind(&socket, address.as_ref().map_err(|errno| *errno)?)?;
        retried::listen(&socket, BACKLOG)?;
        Ok(socket)
    });
    opened.map_err(|errno: Errno| {
        let failed = Error::errno(format!("open the abstract socket {name} for reports"), errno);
        match errno {
            // The numbers of processes are those of a PID namespace, and names of sockets those of a network namespace.
            Errno::ADDRINUSE => failed.with_status(Status::AlreadyExists).with_advice(Some(
                "a process of another PID namespace, or another user, has the name".into(),
            )),
            _ => failed,
        }
    })
}

fn serve_clients(socket: &LocalFd, reports: Reports) {
    loop {
        let mut ready = [PollFd::new(socket, PollFlags::IN)];
        let outcome = retried::poll(&mut ready, None).and_then(|_| accept(socket));
        let outcome = match outcome {
            Ok(client) => serve_client(&client, reports),
            Err(Errno::AGAIN | Errno::CONNABORTED) => Ok(()),
            Err(errno) => Err(Error::errno("accept a client", errno)),
        };
        if let Err(error) = outcome {
            log!(Debug, "a client got no report: {error}");
        }
        std::thread::sleep(PAUSE);
    }
}

fn accept(socket: &LocalFd) -> std::result::Result<LocalFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    retried::accept_with(socket, flags).map(LocalFd::from_opened)
}

fn serve_client(client: &LocalFd, reports: Reports) -> Result<()> {
    let user = peer_user(client.as_fd()).map_err(|errno| Error::errno("get the user of a client", errno))?;
    let own = rustix::process::geteuid().as_raw();
    ensure!(user == own || user == ROOT, PermissionDenied, "user {user} may not read reports of user {own}");
    ensure_unambiguous(user)?;
    let kind = receive_kind(client, Instant::now() + PATIENCE)?;
    let report = guarded(|| reports(kind))?;
    let Some(report) = report.transpose()? else {
        return Err(Error::new(Status::InvalidArgument, format!("there is no report of the kind {kind}")));
    };
    send_all(client, &report, Instant::now() + PATIENCE)
}

fn receive_kind(client: &LocalFd, deadline: Instant) -> Result<u8> {
    let mut kind = [0];
    loop {
        match retried::read(client, &mut kind) {
            Ok(1) => return Ok(kind[0]),
            Ok(_) => return Err(Error::new(Status::PeerLost, "it has asked for nothing")),
            Err(Errno::AGAIN) => wait(client, PollFlags::IN, deadline)?,
            Err(errno) => return Err(Error::errno("receive the kind of a report", errno)),
        }
    }
}

fn send_all(client: &LocalFd, mut report: &[u8], deadline: Instant) -> Result<()> {
    while !report.is_empty() {
        // Threads of kvmem block SIGPIPE.
        match retried::write(client, report) {
            Ok(sent) => report = report.get(sent..).unwrap_or_default(),
            Err(Errno::AGAIN) => wait(client, PollFlags::OUT, deadline)?,
            Err(errno) => return Err(Error::errno("send a report", errno)),
        }
        ensure!(
            Instant::now() < deadline,
            TimedOut,
            "{} bytes of a report were not read in time",
            report.len()
        );
    }
    Ok(())
}

fn wait(client: &LocalFd, what: PollFlags, deadline: Instant) -> Result<()> {
    ensure!(socket::wait(client.as_fd(), what, Some(deadline))?, TimedOut, "a client neither asks nor reads");
    Ok(())
}
