// SPDX-License-Identifier: Apache-2.0
//! A listening socket at a path.
//!
//! No process can connect before the socket has its permissions. Nothing at the path is replaced except a socket of the same
//! user without a listener: the socket is created under a temporary name, and renamed to the path at the end, if that is
//! free. If the process is killed before that, the next broker in the directory removes the temporary name.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::base::error::errno_name;
use crate::base::folder_lock::FolderLock;
use crate::base::paths::{absolute, missing_directory};
use crate::base::process::{LocalFd, pid_has_ended};
use crate::base::{Error, Result, Status, ensure, error, fail, log, random, retried};
use crate::share::message::peer_pid;
use crate::share::user::ensure_unambiguous;

/// The most bytes of the path of a socket.
const MAX_PATH: usize = 107;
/// Temporary names are this, and the hexadecimal digits of so many random bytes.
const TEMPORARY: &str = ".kvmem-broker-";
const RANDOM_BYTES: usize = 6;
/// How long the directory may be locked by other processes: creating a socket takes a millisecond.
const LOCK_TIME: Duration = Duration::from_secs(1);

/// A socket at a path. Dropping it removes the path, if that still refers to the socket.
pub struct Listener {
    // Dropped first: no other file can have the inode number while the socket is open.
    name: Name,
    socket: LocalFd,
}

impl Listener {
    /// Listens at `path`, with a backlog of `backlog` clients.
    pub fn bind(path: &Path, mode: u32, backlog: usize) -> Result<Self> {
        let address = address(path)?;
        // The process may have another working directory when the socket is removed.
        let path = &absolute(path)?;
        match Self::bind_once(path, &address, mode, backlog) {
            // Another process may have removed the socket before it had a listener, if the directory could not be locked.
            Err(error) if error.status() == Status::NotFound => {
                Self::bind_once(path, &address, mode, backlog)
            }
            bound => bound,
        }
    }

    fn bind_once(path: &Path, address: &SocketAddrUnix, mode: u32, backlog: usize) -> Result<Self> {
        let _lock = lock_directory(path);
        let socket = socket()?;
        let mut name = bind_aside(&socket, path, Mode::from_raw_mode(mode))?;
        retried::listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))
            .map_err(|errno| Error::errno("listen", errno))?;
        if !name.move_to(path)? {
            remove_stale(path, address)?;
            ensure!(name.move_to(path)?, AlreadyExists, "another process has just created a socket there");
        }
        Ok(Self { name, socket })
    }

    pub fn path(&self) -> &Path {
        &self.name.path
    }

    /// Accepts the next client, if one waits.
    pub fn accept(&self) -> std::result::Result<Option<LocalFd>, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match retried::accept_with(&self.socket, flags) {
            Ok(client) => Ok(Some(LocalFd::from_opened(client))),
            Err(Errno::AGAIN) => Ok(None),
            // This client has disconnected; another may wait.
            Err(Errno::CONNABORTED) => self.accept(),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The path of a file of kvmem. Dropping it removes the path, unless that refers to another file.
struct Name {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Name {
    /// Renames the file, if the path is free.
    fn move_to(&mut self, path: &Path) -> Result<bool> {
        match rename(&self.path, path) {
            Ok(()) => {
                self.path = path.to_path_buf();
                Ok(true)
            }
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(Error::errno(format!("move {} there", self.path.display()), errno)),
        }
    }

    fn is(&self, stat: &Stat) -> bool {
        (stat.st_dev, stat.st_ino) == (self.device, self.inode)
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        match retried::lstat(&self.path) {
            Ok(stat) if self.is(&stat) => {
                if let Err(errno) = retried::unlink(&self.path) {
                    log!(Warn, "remove {}: {errno}", self.path.display());
                }
            }
            Ok(_) | Err(Errno::NOENT) => log!(
                Warn,
                "{} is no longer the socket of this broker, and is not removed",
                self.path.display()
            ),
            Err(errno) => {
                log!(Warn, "{} cannot be examined, and is not removed: {errno}", self.path.display())
            }
        }
    }
}

/// A forked child closes it, because it does not serve clients.
fn socket() -> Result<LocalFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let create = || net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    LocalFd::open(create).map_err(|errno| Error::errno("create a socket", errno))
}

/// Binds to a temporary name in the directory of `path`, with exactly the permissions of `mode`.
fn bind_aside(socket: &LocalFd, path: &Path, mode: Mode) -> Result<Name> {
    let aside = aside(path)?;
    // The name gets these without the bits of the umask, so never more. No process can connect before `listen`.
    retried::fchmod(socket, mode).map_err(|errno| Error::errno("set the socket's permissions", errno))?;
    bind(socket, &aside).map_err(|error| {
        let advice = path.parent().and_then(missing_directory);
        error.context("bind a socket in its directory").with_advice(advice)
    })?;
    let (file, stat) = match open(&aside) {
        Ok(opened) => opened,
        Err(errno) => {
            let error = Error::errno("examine the new socket", errno);
            return Err(or_left(error, &aside, || retried::unlink(&aside)));
        }
    };
    let name = Name { path: aside, device: stat.st_dev, inode: stat.st_ino };
    if Mode::from_raw_mode(stat.st_mode) != mode {
        // By /proc, which refers to the socket's file itself; the name may refer to another file by now.
        retried::chmod(&format!("/proc/thread-self/fd/{}", file.as_raw_fd()), mode)
            .map_err(|errno| Error::errno("set the socket's permissions against the umask", errno))?;
    }
    Ok(name)
}

/// Binds to a path that may be longer than an address, because the temporary name may be longer than `path`.
fn bind(socket: &LocalFd, path: &Path) -> Result<()> {
    let doing = |errno| Error::errno("bind", errno);
    if let Ok(address) = address(path) {
        return retried::bind(socket, &address).map_err(doing);
    }
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        fail!(InvalidArgument, "the path has no file name");
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = retried::open(directory, flags, Mode::empty()).map_err(doing)?;
    retried::bind(socket, &address_in(directory.as_fd(), name)?).map_err(doing)
}

/// The address of a file in a directory, whose path may be long.
fn address_in(directory: BorrowedFd<'_>, name: &OsStr) -> Result<SocketAddrUnix> {
    address(&Path::new("/proc/thread-self/fd").join(directory.as_raw_fd().to_string()).join(name))
}

/// Locks the directory of `path`, and removes the sockets that killed processes have left there under temporary names.
///
/// A process holds the lock while its socket has a temporary name and perhaps no listener. So a socket without a listener that
/// another process finds with the lock is of a process that has ended. If another process keeps the directory locked, nothing is
/// removed.
fn lock_directory(path: &Path) -> Option<FolderLock> {
    let directory = path.parent()?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = retried::open(directory, flags, Mode::empty()).ok()?;
    let lock = match FolderLock::take(&opened, LOCK_TIME) {
        Ok(lock) => lock,
        Err(errno) => {
            log!(
                Warn,
                "{} cannot be locked ({errno}), perhaps because another process keeps it locked: sockets that killed brokers have \
                 left there are not removed",
                directory.display()
            );
            return None;
        }
    };
    if let Err(errno) = remove_abandoned(directory, opened.as_fd()) {
        log!(Warn, "sockets that killed brokers have left in {} may remain: {errno}", directory.display());
    }
    Some(lock)
}

fn remove_abandoned(directory: &Path, opened: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
    for item in retried::read_folder(opened)? {
        let item = item?;
        let name = OsStr::from_bytes(item.file_name().to_bytes());
        let path = directory.join(name);
        if !is_temporary(name) || !is_abandoned(&path, opened) {
            continue;
        }
        match retried::unlink(&path) {
            Ok(()) => log!(Info, "removed the socket of a broker that was killed: {}", path.display()),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn is_temporary(name: &OsStr) -> bool {
    let digits = name.to_str().and_then(|name| name.strip_prefix(TEMPORARY));
    digits.is_some_and(|digits| {
        digits.len() == 2 * RANDOM_BYTES && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Whether it is a socket of this user that has no listener.
fn is_abandoned(path: &Path, directory: BorrowedFd<'_>) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let is_own = open(path).is_ok_and(|(_, stat)| stat.st_uid == own) && ensure_unambiguous(own).is_ok();
    let address = path.file_name().and_then(|name| address_in(directory, name).ok());
    is_own && address.is_some_and(|address| matches!(look(&address), Ok(Found::Stale)))
}

/// The file of a socket itself, without following links.
fn open(path: &Path) -> std::result::Result<(OwnedFd, Stat), Errno> {
    let file = retried::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let stat = retried::fstat(&file)?;
    let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
    if is_socket { Ok((file, stat)) } else { Err(Errno::NOTSOCK) }
}

/// Removes a socket of this user that has no listener.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<()> {
    // Held open, so that no other file can have its inode number.
    let (_file, stat) = match open(path) {
        Ok(opened) => opened,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTSOCK) => fail!(
            AlreadyExists,
            "the file at the path is not a socket, and is not replaced; use another path"
        ),
        Err(errno) => return Err(Error::errno("examine the file at the path", errno)),
    };
    ensure!(
        stat.st_uid == rustix::process::geteuid().as_raw(),
        AlreadyExists,
        "the socket at the path belongs to user {}, and is not replaced; use another path",
        stat.st_uid
    );
    ensure_unambiguous(stat.st_uid)?;
    if let Found::Listener(process) = look(address)? {
        fail!(AlreadyExists, "{process} listens there; end what listens, or use another path");
    }
    // Another process may have created a live socket since the check, so the file is moved aside and checked again.
    let taken = aside(path)?;
    match retried::renameat(CWD, path, CWD, &taken) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(Error::errno("move a stale socket aside", errno)),
    }
    let removed = match retried::lstat(&taken) {
        Ok(found) if (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino) => {
            retried::unlink(&taken).map_err(|errno| Error::errno("remove a stale socket", errno))
        }
        Ok(_) => Err(error!(AlreadyExists, "another process has just begun to listen there")),
        Err(errno) => Err(Error::errno("examine a stale socket", errno)),
    };
    removed.map_err(|error| or_left(error, &taken, || rename(&taken, path)))?;
    log!(Info, "replaced a socket without a listener: {}", path.display());
    Ok(())
}

/// The file at a socket's path.
enum Found {
    /// A socket that nothing listens on.
    Stale,
    /// A socket that this process listens on, in words.
    Listener(String),
}

fn look(address: &SocketAddrUnix) -> Result<Found> {
    let socket = socket()?;
    let (listener, is_broker) = match retried::connect(&socket, address) {
        Err(Errno::CONNREFUSED) => return Ok(Found::Stale),
        Ok(()) => (peer_pid(socket.as_fd()), is_bound_by_broker(&socket)),
        // Its queue is full, or it takes no clients of this kind or of this user.
        Err(errno @ (Errno::AGAIN | Errno::ACCESS | Errno::PERM | Errno::PROTOTYPE)) => {
            let name = errno_name(errno.raw_os_error());
            return Ok(Found::Listener(format!("another process, which accepts no connection ({name}),")));
        }
        // It was removed meanwhile.
        Err(Errno::NOENT) => return Ok(Found::Stale),
        Err(errno) => return Err(Error::errno("connect to the socket at the path", errno)),
    };
    Ok(match listener {
        Some(pid) if pid == std::process::id() => Found::Listener("this process itself".to_string()),
        // A child of a broker that was killed may still have its socket open, and serves no client.
        Some(pid) if pid_has_ended(pid) && is_broker => Found::Stale,
        // A program that has begun to listen, forked and ended: its child serves clients.
        Some(pid) if pid_has_ended(pid) => {
            Found::Listener(format!("a child of process {pid}, which has ended,"))
        }
        Some(pid) => Found::Listener(format!("process {pid}")),
        None => Found::Listener("another process".to_string()),
    })
}

/// Whether a broker has bound the socket that this one is connected to: it was bound to a temporary name.
fn is_bound_by_broker(socket: &LocalFd) -> bool {
    let bound =
        net::getpeername(socket).ok().flatten().and_then(|address| SocketAddrUnix::try_from(address).ok());
    let path = bound.as_ref().and_then(|bound| bound.path_bytes());
    path.and_then(|path| Path::new(OsStr::from_bytes(path)).file_name()).is_some_and(is_temporary)
}

/// The error, after what removes the temporary name of a socket. It says so if that fails and the name is left.
fn or_left(error: Error, path: &Path, remove: impl FnOnce() -> std::result::Result<(), Errno>) -> Error {
    match remove() {
        Ok(()) | Err(Errno::NOENT) => error,
        Err(errno) => {
            let name = errno_name(errno.raw_os_error());
            error.followed_by(format!("the socket is left as {} ({name})", path.display()))
        }
    }
}

/// Renames a file, unless the path is taken.
fn rename(from: &Path, to: &Path) -> std::result::Result<(), Errno> {
    match retried::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system has no such call, as NFS. If the process is killed in between, neither name has a listener.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            retried::link(from, to).and_then(|()| retried::unlink(from))
        }
        renamed => renamed,
    }
}

/// An unused name in the directory of `path`.
fn aside(path: &Path) -> Result<PathBuf> {
    let random: [u8; RANDOM_BYTES] = random()?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("{TEMPORARY}{digits}");
    ensure!(path.file_name().is_some(), InvalidArgument, "the path has no file name");
    Ok(path.with_file_name(name))
}

/// The address of a path, which is short by nature. The kernel accepts one more byte, without a NUL at the end: most programs
/// cannot connect to such a path.
pub fn address(path: &Path) -> Result<SocketAddrUnix> {
    let length = path.as_os_str().len();
    ensure!(
        (1..=MAX_PATH).contains(&length),
        InvalidArgument,
        "a socket's path has 1 to {MAX_PATH} bytes, this one has {length}"
    );
    SocketAddrUnix::new(path).map_err(|errno| Error::errno("use it as the path of a socket", errno))
}

#[cfg(test)]
mod tests;
