// SPDX-License-Identifier: Apache-2.0
//! Who a process is: its identity across a machine's processes, and whether it was forked since.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use once_cell::sync::OnceCell;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use serde::{Deserialize, Serialize};

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
    pub fn current() -> Self {
        let pid = std::process::id();
        Self {
            boot_id: boot_id(),
            pid,
            start_time: start_time(pid).unwrap_or(0),
            pid_namespace: pid_namespace(),
        }
    }

    /// Whether the process is known to have ended. A process of another machine or container can't be seen from
    /// here and is never called gone.
    pub fn is_gone(&self) -> bool {
        self.boot_id == boot_id()
            && self.pid_namespace == pid_namespace()
            && start_time(self.pid).is_none_or(|started| started != self.start_time)
    }
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string()
}

fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map(|namespace| namespace.ino()).unwrap_or(0)
}

/// Field 22 of /proc/PID/stat, unless the process is a zombie: that one runs no more.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold spaces and brackets; the fields after its last bracket do not.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" { None } else { fields.nth(18)?.parse().ok() }
}

/// A number that is the same for the life of a process and differs in a forked child.
///
/// One load: it is asked on every call. The kernel wipes the page it lies in when the process forks, whatever way
/// it forks.
pub fn generation() -> u64 {
    let cell = generation_cell();
    match cell.load(Ordering::Relaxed) {
        0 => {
            let own = u64::from(std::process::id());
            cell.store(own, Ordering::Relaxed);
            own
        }
        generation => generation,
    }
}

fn generation_cell() -> &'static AtomicU64 {
    static CELL: OnceCell<&'static AtomicU64> = OnceCell::new();
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

/// A value that a process has once. A forked child gets its own: threads and locks do not survive a fork.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_a_reaped_one_is_gone() {
        assert!(!Identity::current().is_gone());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let identity =
            Identity { pid: child.id(), start_time: start_time(child.id()).unwrap(), ..Identity::current() };
        assert!(!identity.is_gone());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(identity.is_gone());
    }

    #[test]
    fn a_process_of_another_boot_is_never_called_gone() {
        let identity = Identity { boot_id: "elsewhere".into(), pid: 1, start_time: 0, ..Identity::current() };
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
}
