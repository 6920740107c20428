// SPDX-License-Identifier: Apache-2.0
//! Common parts of the tests: files to send, sockets, directories, brokers, and the number of open files.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use kvmem::base::error::Result;
use kvmem::region::Access;
use kvmem::share::Parcel;
use kvmem::share::broker::{Broker, BrokerConfig, Publication, Token, TokenTerms};
use kvmem::share::client::{Fetch, fetch};
use rustix::fs::MemfdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::test_folder::TestFolder;
use super::waiting::until;

/// The timeout of waits, far longer than they need.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the deadline of a wait that starts now.
pub fn soon() -> Option<Instant> {
    Some(Instant::now() + PATIENCE)
}

static ALONE: Mutex<()> = Mutex::new(());

/// Runs one test at a time, and checks at its end that as many files are open as at its start.
pub struct Test {
    open: usize,
    _alone: MutexGuard<'static, ()>,
}

impl Test {
    pub fn begin() -> Self {
        let alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Self { open: open_files(), _alone: alone }
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(open_files(), self.open, "open files after the test, and before");
        }
    }
}

/// Returns the number of open files of this process, including the directory that is read for this.
///
/// One file is not counted: glibc's allocator opens it briefly, on any thread, when a thread gets its own arena. The
/// threads of other tests do this while they wait.
pub fn open_files() -> usize {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().map(|file| file.unwrap().path());
    // A file without a target was closed after the directory was read.
    let targets = files.filter_map(|file| std::fs::read_link(file).ok());
    targets.filter(|target| target.as_os_str() != "/sys/devices/system/cpu/online").count()
}

#[test]
fn the_file_of_the_allocator_is_not_counted() {
    let _test = Test::begin();
    let _of_test = files(1);
    let before = open_files();
    let _of_allocator = std::fs::File::open("/sys/devices/system/cpu/online").unwrap();
    assert_eq!(open_files(), before);
}

/// Returns memory files; each contains its index.
pub fn files(count: usize) -> Vec<OwnedFd> {
    let file = |index: usize| {
        let file = rustix::fs::memfd_create("kvmem-test", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&file, &index.to_le_bytes()).unwrap();
        file
    };
    (0..count).map(file).collect()
}

/// Returns bytes that depend on their position.
pub fn bytes(size: usize) -> Vec<u8> {
    (0..size as u32).map(|position| (position.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Checks a parcel made of [`bytes`] and [`files`].
pub fn check(parcel: &Parcel, size: usize, count: usize) {
    assert!(parcel.bytes == bytes(size), "{} of {size} bytes", parcel.bytes.len());
    assert_eq!(parcel.fds.len(), count);
    for (index, file) in parcel.fds.iter().enumerate() {
        let mut content = [0; size_of::<usize>()];
        assert_eq!(rustix::io::pread(file, &mut content, 0).unwrap(), content.len());
        assert_eq!(usize::from_le_bytes(content), index);
        assert!(rustix::io::fcntl_getfd(file).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }
}

pub fn pair(kind: SocketType) -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
}

/// Waits until a socket or pipe has something to read, or is at its end.
pub fn await_readable(fd: impl AsFd) {
    let fd = fd.as_fd();
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN)];
    let time = rustix::event::Timespec::try_from(PATIENCE).unwrap();
    assert_eq!(rustix::event::poll(&mut fds, Some(&time)), Ok(1), "nothing to read before the timeout");
}

/// A publication that returns the same parcel to every client.
pub struct Offer(pub Arc<Parcel>);

impl Offer {
    pub fn new(size: usize, count: usize) -> Arc<Self> {
        Arc::new(Self(Arc::new(Parcel { bytes: bytes(size), fds: files(count) })))
    }
}

impl Publication for Offer {
    fn parcel(&self, _: Access, _: Option<Access>) -> Result<Arc<Parcel>> {
        Ok(self.0.clone())
    }
}

/// Terms without a limit of uses or time.
pub fn terms(access: Access) -> TokenTerms {
    TokenTerms { access, max_uses: 0, lifetime: None }
}

/// A broker with one name, `kv`, of 1000 bytes and 3 files.
pub struct Shop {
    pub broker: Broker,
    pub token: Token,
    pub directory: TestFolder,
}

impl Shop {
    pub fn open() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut BrokerConfig)) -> Self {
        let directory = TestFolder::new();
        let mut config = BrokerConfig::at(directory.join("broker"));
        config.client_timeout = PATIENCE;
        change(&mut config);
        let broker = Broker::start(config).unwrap();
        let token = broker.publish("kv", Offer::new(1000, 3), &terms(Access::Read)).unwrap();
        Self { broker, token, directory }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join("broker")
    }

    pub fn fetch(&self) -> Fetch {
        Fetch {
            path: self.socket(),
            name: "kv".to_string(),
            token: self.token,
            access: Some(Access::Read),
            broker_user: None,
            broker_process: None,
        }
    }

    /// Checks that a valid client can fetch the published share.
    pub fn check_service(&self) {
        check(&fetch(&self.fetch(), soon()).unwrap(), 1000, 3);
    }

    /// Waits until the broker has disconnected all its clients.
    pub fn await_no_clients(&self) {
        self.await_clients(0);
    }

    pub fn await_clients(&self, count: u64) {
        until("the broker has other clients", || self.broker.info().clients == count);
    }
}
