// SPDX-License-Identifier: Apache-2.0
//! A listening socket at a path.
//!
//! No process can connect before the socket has its permissions. Nothing at the path is replaced except a socket of the same
//! user without a listener: the socket is created under a temporary name, and renamed to the path at the end, if that is
//! free.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::token::Token;
use crate::base::error::{Error, Result, ensure, fail};
use crate::base::log::log;
use crate::base::paths::absolute;
use crate::base::process::{LocalFd, pid_has_ended};
use crate::base::retried;
use crate::share::message::peer_pid;
use crate::share::user::ensure_unambiguous;

/// The most bytes of the path of a socket.
const MAX_PATH: usize = 107;

/// A socket at a path. Dropping it removes the path, if that still refers to the socket.
pub struct Listener {
    // Dropped first: no other file can have the inode number while the socket is open.
    _name: Name,
    socket: LocalFd,
}

impl Listener {
    /// Listens at `path`, with a backlog of `backlog` clients.
    pub fn bind(path: &Path, mode: u32, backlog: usize) -> Result<Self> {
        let address = address(path)?;
        // The process may have another working directory when the socket is removed.
        let path = &absolute(path)?;
        let socket = socket()?;
        let mut name = bind_aside(&socket, path, Mode::from_raw_mode(mode))?;
        retried::listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))
            .map_err(|errno| Error::errno("listen", errno))?;
        if !name.move_to(path)? {
            remove_stale(path, &address)?;
            ensure!(name.move_to(path)?, AlreadyExists, "another process has just created a socket there");
        }
        Ok(Self { _name: name, socket })
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
            _ => log!(
                Warn,
                "{} is no longer the socket of this broker, and is not removed",
                self.path.display()
            ),
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
    bind(socket, &aside).map_err(|error| error.context("bind a socket in its directory"))?;
    let (file, stat) = match open(&aside) {
        Ok(opened) => opened,
        Err(errno) => {
            let _ = retried::unlink(&aside);
            return Err(Error::errno("examine the new socket", errno));
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
    let short = Path::new("/proc/thread-self/fd").join(directory.as_raw_fd().to_string()).join(name);
    retried::bind(socket, &address(&short)?).map_err(doing)
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
        fail!(AlreadyExists, "{process} listens there; end it, or use another path");
    }
    // Another process may have created a live socket since the check, so the file is moved aside and checked again.
    let mut taken = Name { path: path.to_path_buf(), device: stat.st_dev, inode: stat.st_ino };
    taken.path = aside(path)?;
    match rename(path, &taken.path) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(Error::errno("move a stale socket aside", errno)),
    }
    let is_the_stale_one = retried::lstat(&taken.path).is_ok_and(|found| taken.is(&found));
    if !is_the_stale_one {
        let _ = rename(&taken.path, path);
        fail!(AlreadyExists, "another process has just begun to listen there");
    }
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
    let listener = match retried::connect(&socket, address) {
        Err(Errno::CONNREFUSED) => return Ok(Found::Stale),
        Ok(()) => peer_pid(socket.as_fd()),
        // Its queue is full, or it takes no clients of this kind or of this user.
        Err(_) => None,
    };
    Ok(match listener {
        Some(pid) if pid == std::process::id() => Found::Listener("this process itself".to_string()),
        // A child of a broker that was killed may still have its socket open, and serves no client.
        Some(pid) if pid_has_ended(pid) => Found::Stale,
        Some(pid) => Found::Listener(format!("process {pid}")),
        None => Found::Listener("another process".to_string()),
    })
}

fn rename(from: &Path, to: &Path) -> std::result::Result<(), Errno> {
    retried::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)
}

/// An unused name in the directory of `path`.
fn aside(path: &Path) -> Result<PathBuf> {
    let [a, b, c, d, e, f, ..] = Token::generate()?.0;
    let name = format!(".{a:02x}{b:02x}{c:02x}{d:02x}{e:02x}{f:02x}");
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
mod tests {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    use super::*;
    use crate::base::error::Status;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("kvmem-listener-{}-{name}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn socket(&self) -> PathBuf {
            self.0.join("s")
        }

        fn entries(&self) -> usize {
            std::fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn stale(path: &Path) {
        drop(std::os::unix::net::UnixListener::bind(path).unwrap());
        assert!(path.exists());
    }

    #[test]
    fn the_path_has_the_requested_mode_and_is_removed_with_the_listener() {
        let directory = Directory::new("mode");
        for mode in [0o600, 0o660, 0o666] {
            let listener = Listener::bind(&directory.socket(), mode, 8).unwrap();
            let metadata = std::fs::symlink_metadata(directory.socket()).unwrap();
            assert!(metadata.file_type().is_socket());
            assert_eq!((metadata.permissions().mode() & 0o777, directory.entries()), (mode, 1));
            drop(listener);
            assert_eq!(directory.entries(), 0);
        }
    }

    #[test]
    fn binding_a_live_socket_fails_and_a_stale_one_is_replaced() {
        let directory = Directory::new("live");
        stale(&directory.socket());
        let first = Listener::bind(&directory.socket(), 0o600, 8).unwrap();
        let error = Listener::bind(&directory.socket(), 0o600, 8).err().unwrap();
        assert_eq!(error.status(), Status::AlreadyExists);
        assert!(error.message().contains("this process itself listens there"), "{error}");
        assert_eq!(directory.entries(), 1);
        std::os::unix::net::UnixStream::connect(directory.socket()).unwrap();
        drop(first);
    }

    #[test]
    fn a_file_that_is_not_a_socket_is_unchanged() {
        let directory = Directory::new("file");
        std::fs::write(directory.socket(), "precious").unwrap();
        let error = Listener::bind(&directory.socket(), 0o600, 8).err().unwrap();
        assert_eq!(error.status(), Status::AlreadyExists);
        assert_eq!(std::fs::read(directory.socket()).unwrap(), b"precious");
        std::fs::remove_file(directory.socket()).unwrap();
        std::os::unix::fs::symlink("nowhere", directory.socket()).unwrap();
        assert!(Listener::bind(&directory.socket(), 0o600, 8).is_err());
        assert_eq!(directory.entries(), 1);
    }

    #[test]
    fn a_path_that_another_process_has_replaced_is_not_removed() {
        let directory = Directory::new("taken");
        let first = Listener::bind(&directory.socket(), 0o600, 8).unwrap();
        std::fs::remove_file(directory.socket()).unwrap();
        let second = Listener::bind(&directory.socket(), 0o600, 8).unwrap();
        drop(first);
        std::os::unix::net::UnixStream::connect(directory.socket()).unwrap();
        drop(second);
        assert_eq!(directory.entries(), 0);
    }

    #[test]
    fn only_one_of_many_processes_replaces_a_stale_socket() {
        let directory = Directory::new("race");
        for _ in 0..20 {
            stale(&directory.socket());
            let path = directory.socket();
            let results: Vec<_> = std::thread::scope(|scope| {
                let starts: Vec<_> =
                    (0..4).map(|_| scope.spawn(|| Listener::bind(&path, 0o600, 8))).collect();
                starts.into_iter().map(|start| start.join().unwrap()).collect()
            });
            assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
            std::os::unix::net::UnixStream::connect(&path).unwrap();
            drop(results);
            assert_eq!(directory.entries(), 0);
        }
    }

    #[test]
    fn the_longest_path_works_and_a_stale_one_is_replaced() {
        let directory = Directory::new("long");
        let longest = 107 - directory.0.as_os_str().len() - "/".len() - "/s".len();
        let deep = directory.0.join("x".repeat(longest));
        std::fs::create_dir(&deep).unwrap();
        let path = deep.join("s");
        assert_eq!(path.as_os_str().len(), 107);
        stale(&path);
        let listener = Listener::bind(&path, 0o600, 8).unwrap();
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        drop(listener);
        assert_eq!(std::fs::read_dir(&deep).unwrap().count(), 0);
    }

    #[test]
    fn a_path_that_is_too_long_or_missing_is_reported() {
        let folder = std::env::temp_dir();
        for length in [108, 109, 120] {
            let long = folder.join("x".repeat(length - folder.as_os_str().len() - 1));
            assert_eq!(long.as_os_str().len(), length);
            let error = Listener::bind(&long, 0o600, 8).err().unwrap();
            assert_eq!(error.status(), Status::InvalidArgument, "{error}");
            assert!(error.message().contains(&format!("this one has {length}")), "{error}");
        }
        let error = Listener::bind(Path::new("/nowhere/at/all"), 0o600, 8).err().unwrap();
        assert_eq!(error.status(), Status::NotFound, "{error}");
        for path in ["", "/", ".."] {
            let error = Listener::bind(Path::new(path), 0o600, 8).err().unwrap();
            assert_eq!(error.status(), Status::InvalidArgument, "{path}: {error}");
        }
    }
}
