// SPDX-License-Identifier: Apache-2.0
//! The current process: its identity on the machine, whether it was forked, and file descriptors that children close.
#![allow(unsafe_code)]

mod free_descriptors;
mod identity;
mod local_fd;

use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use once_cell::race::OnceRef;
use rustix::fs::Mode;
use rustix::mm::{Advice, MapFlags, ProtFlags, mmap_anonymous};

use crate::base::retried::madvise;
use crate::base::sync::{Mutex, MutexGuard};

pub use free_descriptors::ensure_free_descriptors;
pub(crate) use identity::explain_proc;
pub use identity::{ProcessIdentity, pid_has_ended};
pub use local_fd::LocalFd;

/// Whether this thread is the first one of the process.
pub fn is_main_thread() -> bool {
    // SAFETY: both only return a number.
    unsafe { libc::gettid() == libc::getpid() }
}

/// Whether the process has more rights than the user who started it, as a set-user-ID program has. Then the environment, which is
/// that user's, must not choose the code that runs.
pub fn is_privileged() -> bool {
    // SAFETY: reads what the kernel has passed to the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The path in an environment variable that names code to load. `None` for an empty one, and in a privileged process.
pub fn library_variable(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty() && !is_privileged());
    value.map(PathBuf::from)
}

/// The permissions that the umask of this process removes from those of new files; all but the owner's if it is unknown. Reading it
/// by umask() would change it for a moment, also for other threads.
pub fn file_mode_mask() -> Mode {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok());
    Mode::from_raw_mode(mask.unwrap_or(0o077))
}

/// A number that is constant for the life of a process, and different in its forked descendants.
///
/// Costs two loads, because every call reads it. The kernel zeroes its page in every forked child.
#[inline]
pub fn generation() -> u64 {
    match CELL.get().map_or(0, |cell| cell.load(Ordering::Relaxed)) {
        0 => begin_generation(),
        generation => generation,
    }
}

/// The number of the process, 0 before its first use.
static CELL: OnceRef<'static, AtomicU64> = OnceRef::new();

/// One more than the last generation of this process and its ancestors. A pid would not do: it is reused, and may be equal in
/// another namespace.
#[cold]
#[inline(never)]
fn begin_generation() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let cell = generation_cell();
    let own = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    // Another thread may have stored one concurrently.
    cell.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(own)
}

fn generation_cell() -> &'static AtomicU64 {
    // Concurrent threads may each map a page; one page is used.
    CELL.get_or_init(|| {
        let page = rustix::param::page_size();
        // SAFETY: a new private mapping of one page, never unmapped; zeroes are a valid AtomicU64.
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
                // Without the page a fork is not detected; everything else works.
                Err(_) => Box::leak(Box::new(AtomicU64::new(0))),
            }
        }
    })
}

/// A value that exists once per process. A forked child gets its own, because threads and locks do not survive a fork. Code
/// that only runs with CUDA or NIXL does not need it, because those calls fail in a forked child.
pub struct PerProcess<T: 'static>(AtomicPtr<Born<T>>);

struct Born<T> {
    generation: u64,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// Without a value.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The value of this process, created at first use.
    pub fn get(&self, make: impl FnOnce() -> T) -> &'static T {
        let generation = generation();
        let known = self.0.load(Ordering::Acquire);
        // SAFETY: a published value is never freed.
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

/// A lock for work that a fork can interrupt: in a child that is forked during the work, the work remains half done, because
/// the thread does not exist there. Locking fails in such a child.
#[derive(Default)]
pub struct ForkCheckedLock {
    turns: PerProcess<Mutex<()>>,
    /// The generation of the process that has it locked; 0 if it is unlocked.
    begun_in: AtomicU64,
}

impl ForkCheckedLock {
    pub const fn new() -> Self {
        Self { turns: PerProcess::new(), begun_in: AtomicU64::new(0) }
    }

    /// Locks it; `None` if this process was forked while its parent had it locked.
    pub fn lock(&'static self) -> Option<ForkCheckedGuard> {
        let turn = self.turns.get(Mutex::default).lock();
        let own = generation();
        // No other thread of this process has it locked now. If it is locked, it was locked in the parent at the fork.
        let is_free = self.begun_in.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        is_free.then(|| ForkCheckedGuard { begun_in: &self.begun_in, _turn: turn })
    }
}

/// Unlocks on drop.
pub struct ForkCheckedGuard {
    begun_in: &'static AtomicU64,
    // Declared last: unlocked after the generation is cleared.
    _turn: MutexGuard<'static, ()>,
}

impl Drop for ForkCheckedGuard {
    fn drop(&mut self) {
        self.begun_in.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_per_process_is_created_once() {
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
    fn a_fork_checked_lock_can_be_taken_again_even_after_a_panic() {
        static WORK: ForkCheckedLock = ForkCheckedLock::new();
        for _ in 0..2 {
            assert!(WORK.lock().is_some());
        }
        let panicked = std::thread::spawn(|| {
            let _turn = WORK.lock();
            panic!("deliberate");
        });
        assert!(panicked.join().is_err());
        assert!(WORK.lock().is_some());
    }
}
