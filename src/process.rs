// SPDX-License-Identifier: Apache-2.0
//! Who a process is: its identity across a machine's processes, and whether it was forked since.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use once_cell::race::{OnceBox, OnceRef};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, Status};

/// A process for as long as its machine runs: a pid alone is used again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The kernel's id of this boot of this machine.
    pub boot_id: String,
    /// The process id, as its own namespace numbers it.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
    /// The pid namespace that numbers `pid`.
    pub pid_namespace: u64,
}

impl Identity {
    /// This process.
    pub fn current() -> Result<Self> {
        let stat = read(OWN_STAT)?;
        let parsed = Stat::of(&stat).filter(|stat| stat.runs);
        let start_time = parsed.map(|stat| stat.start_time).ok_or_else(|| {
            Error::new(Status::Io, format!("{OWN_STAT} does not say when this process started"))
        })?;
        let (boot_id, pid_namespace) = (boot_id()?.to_string(), pid_namespace()?);
        Ok(Self { boot_id, pid: std::process::id(), start_time, pid_namespace })
    }

    /// Whether both count processes in one pid namespace.
    pub fn counts_like(&self, other: &Self) -> bool {
        self.boot_id == other.boot_id && self.pid_namespace == other.pid_namespace
    }

    /// Whether the process is known to have ended. A process of another machine or container can't be seen from
    /// here and is never called gone.
    pub fn is_gone(&self) -> bool {
        self.ended().unwrap_or(false)
    }

    fn ended(&self) -> Result<bool> {
        if self.boot_id != boot_id()? || self.pid_namespace != pid_namespace()? || !is_proc_our_own() {
            return Ok(false);
        }
        let stat = match std::fs::read_to_string(format!("/proc/{}/stat", self.pid)) {
            Ok(stat) => stat,
            // ESRCH where it ends while it is looked at.
            Err(error) => return Ok(matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))),
        };
        Ok(Stat::of(&stat).is_some_and(|stat| !stat.runs || stat.start_time != self.start_time))
    }
}

const OWN_STAT: &str = "/proc/self/stat";

fn boot_id() -> Result<&'static str> {
    // Whoever is first has it: a forked child does not wait for a thread of its parent's.
    static BOOT_ID: OnceBox<String> = OnceBox::new();
    let read = || read("/proc/sys/kernel/random/boot_id").map(|text| Box::new(text.trim().to_string()));
    BOOT_ID.get_or_try_init(read).map(String::as_str)
}

fn pid_namespace() -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let path = "/proc/self/ns/pid";
    std::fs::metadata(path).map(|namespace| namespace.ino()).map_err(|error| unreadable(path, error))
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| unreadable(path, error))
}

fn unreadable(path: &str, error: std::io::Error) -> Error {
    let errno = rustix::io::Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO));
    Error::errno(format!("find out who this process is from {path}"), errno)
}

/// Whether /proc numbers processes as this one does: in a new pid namespace it can be the outer one's.
fn is_proc_our_own() -> bool {
    let own = std::fs::read_link("/proc/self");
    own.is_ok_and(|target| target.as_os_str() == std::process::id().to_string().as_str())
}

/// What is of interest in /proc/PID/stat.
struct Stat {
    /// It is no zombie.
    runs: bool,
    start_time: u64,
}

impl Stat {
    fn of(text: &str) -> Option<Self> {
        // The command name may hold spaces and brackets; the fields after its last bracket do not.
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        Some(Self { runs: state != "Z" && state != "X", start_time: fields.nth(18)?.parse().ok()? })
    }
}

/// A number that is the same for the life of a process and differs in a forked child, and in a child of that.
///
/// One load: it is asked on every call. The kernel wipes the page it lies in when the process forks, whatever way
/// it forks.
pub fn generation() -> u64 {
    let cell = generation_cell();
    match cell.load(Ordering::Relaxed) {
        0 => begin_generation(cell),
        generation => generation,
    }
}

/// One more than the last that this process, or one that it descends from, has begun: a pid is used again, and may be
/// the same in another namespace.
#[cold]
fn begin_generation(cell: &AtomicU64) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let own = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    // Another thread may have begun one meanwhile.
    cell.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(own)
}

fn generation_cell() -> &'static AtomicU64 {
    static CELL: OnceRef<'static, AtomicU64> = OnceRef::new();
    // Threads that come here at once may each map a page; one of them is taken.
    CELL.get_or_init(|| {
        let page = rustix::param::page_size();
        // SAFETY: a fresh private mapping of one page, never unmapped; zeroes are a valid AtomicU64.
        unsafe {
            let memory = mmap_anonymous(
                std::ptr::null_mut(),
                page,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
            .and_then(|memory| madvise(memory, page, Advice::LinuxWipeOnFork).map(|()| memory));
            match memory {
                Ok(memory) => &*memory.cast::<AtomicU64>(),
                // Without the page a fork goes unseen; the library works as before.
                Err(_) => Box::leak(Box::new(AtomicU64::new(0))),
            }
        }
    })
}

/// A value that a process has once. A forked child gets its own: threads and locks do not survive a fork. What only the
/// users of CUDA or NIXL come to needs no such care: a child of theirs is refused before.
pub struct PerProcess<T: 'static>(AtomicPtr<Born<T>>);

struct Born<T> {
    generation: u64,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The value of this process, made at first use.
    pub fn get(&self, make: impl FnOnce() -> T) -> &'static T {
        let generation = generation();
        let known = self.0.load(Ordering::Acquire);
        // SAFETY: what was published is never freed.
        if let Some(born) = unsafe { known.as_ref() }
            && born.generation == generation
        {
            return &born.value;
        }
        let fresh = Box::into_raw(Box::new(Born { generation, value: make() }));
        match self.0.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: published just now, and never freed.
            Ok(_) => unsafe { &(*fresh).value },
            Err(other) => {
                // SAFETY: `fresh` was not published; `other` was, by another thread, and is never freed.
                unsafe {
                    drop(Box::from_raw(fresh));
                    &(*other).value
                }
            }
        }
    }
}

impl<T: Send + Sync> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// What one thread of a process does at a time. In a child that is forked amid it, it stays half done: the thread is
/// not there.
#[derive(Default)]
pub struct Undertaking {
    turns: PerProcess<Mutex<()>>,
    /// The generation of the process in which it is under way; 0 in none.
    begun_in: AtomicU64,
}

impl Undertaking {
    /// Nobody is at it.
    pub const fn new() -> Self {
        Self { turns: PerProcess::new(), begun_in: AtomicU64::new(0) }
    }

    /// Waits for this thread's turn; `None` where this process was forked amid somebody's.
    pub fn begin(&'static self) -> Option<Turn> {
        let turn = self.turns.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        let own = generation();
        // No other thread of this process is at it now: if somebody is, the process that this one was forked from.
        let is_free = self.begun_in.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        is_free.then(|| Turn { begun_in: &self.begun_in, _turn: turn })
    }
}

/// Over when it is dropped.
pub struct Turn {
    begun_in: &'static AtomicU64,
    // Let go after that is noted.
    _turn: MutexGuard<'static, ()>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.begun_in.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_a_reaped_one_is_gone() {
        assert!(!Identity::current().unwrap().is_gone());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let stat = read(&format!("/proc/{}/stat", child.id())).unwrap();
        let start_time = Stat::of(&stat).unwrap().start_time;
        let identity = Identity { pid: child.id(), start_time, ..Identity::current().unwrap() };
        assert!(!identity.is_gone());
        assert!(Identity { start_time: start_time + 1, ..identity.clone() }.is_gone(), "another of that pid");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(identity.is_gone());
    }

    #[test]
    fn a_process_of_another_boot_is_never_called_gone() {
        let identity =
            Identity { boot_id: "elsewhere".into(), pid: 1, start_time: 0, ..Identity::current().unwrap() };
        assert!(!identity.is_gone());
    }

    #[test]
    fn a_value_of_the_process_is_made_once() {
        static NUMBER: PerProcess<u32> = PerProcess::new();
        let first: *const u32 = NUMBER.get(|| 7);
        assert!(std::ptr::eq(first, NUMBER.get(|| 8)));
    }

    #[test]
    fn generation_is_stable_within_a_process() {
        assert_ne!(generation(), 0);
        assert_eq!(generation(), generation());
    }

    #[test]
    fn an_undertaking_may_be_begun_again_when_it_is_over() {
        static WORK: Undertaking = Undertaking::new();
        for _ in 0..2 {
            assert!(WORK.begin().is_some());
        }
        let panicked = std::thread::spawn(|| {
            let _turn = WORK.begin();
            panic!("deliberate");
        });
        assert!(panicked.join().is_err());
        assert!(WORK.begin().is_some());
    }
}
