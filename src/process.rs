// SPDX-License-Identifier: Apache-2.0
//! Which process this is: its identity on the machine, whether it was forked, and what a forked child must not keep.

mod identity;
mod local_fd;

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use once_cell::race::OnceRef;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::sync::{Mutex, MutexGuard};

pub use identity::{ProcessIdentity, pid_has_ended};
pub use local_fd::LocalFd;

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
pub struct ForkCheckedLock {
    turns: PerProcess<Mutex<()>>,
    /// The generation of the process in which it is under way; 0 in none.
    begun_in: AtomicU64,
}

impl ForkCheckedLock {
    /// Nobody is at it.
    pub const fn new() -> Self {
        Self { turns: PerProcess::new(), begun_in: AtomicU64::new(0) }
    }

    /// Waits for this thread's turn; `None` where this process was forked amid somebody's.
    pub fn lock(&'static self) -> Option<ForkCheckedGuard> {
        let turn = self.turns.get(Mutex::default).lock();
        let own = generation();
        // No other thread of this process is at it now: if somebody is, the process that this one was forked from.
        let is_free = self.begun_in.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        is_free.then(|| ForkCheckedGuard { begun_in: &self.begun_in, _turn: turn })
    }
}

/// Over when it is dropped.
pub struct ForkCheckedGuard {
    begun_in: &'static AtomicU64,
    // Let go after that is noted.
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
