// SPDX-License-Identifier: Apache-2.0
//! The identity of a process among all processes of a machine, and whether that process has ended.
//!
//! "Ended" needs proof. A process that is not in /proc may be hidden (hidepid), and one in state Z may have
//! threads that still run. ESRCH and an exit reported by a pidfd are proof.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::base::error::{Cause, Error, Result, Status, error};
use crate::base::retried;

/// Identifies a process until the machine restarts: a pid alone is reused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// The kernel's id of this boot of this machine.
    pub boot_id: String,
    /// The process id, as its own namespace numbers it.
    pub pid: u32,
    /// When it started, in clock ticks since boot, as its time namespace counts them.
    pub start_time: u64,
    /// The pid namespace that numbers `pid`.
    pub pid_namespace: u64,
    /// The time namespace of `start_time`; 0 if the kernel has none, or if the sender's version did not include it.
    #[serde(default)]
    pub time_namespace: u64,
}

impl ProcessIdentity {
    pub fn current() -> Result<Self> {
        let stat = read(OWN_STAT)?;
        let start_time = start_time(&stat)
            .ok_or_else(|| error!(Io, "{OWN_STAT} does not contain the start time of this process"))?;
        Ok(Self {
            boot_id: boot_id()?.to_string(),
            pid: std::process::id(),
            start_time,
            pid_namespace: pid_namespace()?,
            time_namespace: time_namespace()?,
        })
    }

    /// A process of which nothing is known, such as that of a peer that did not report it. It is never proven to have ended.
    pub fn unknown() -> Self {
        Self { boot_id: String::new(), pid: 0, start_time: 0, pid_namespace: 0, time_namespace: 0 }
    }

    /// Whether both have the same pid namespace, so that their pids can be compared.
    pub fn counts_like(&self, other: &Self) -> bool {
        self.boot_id == other.boot_id && self.pid_namespace == other.pid_namespace
    }

    /// Whether the process is proven to have ended. False for a process of another machine or pid namespace, which
    /// can't be examined from here.
    pub fn is_gone(&self) -> bool {
        self.is_visible() && (pid_has_ended(self.pid) || self.is_pid_reused())
    }

    /// Whether this process can find out whether the process has ended: both are of one machine and pid namespace.
    pub fn is_visible(&self) -> bool {
        boot_id().is_ok_and(|boot_id| boot_id == self.boot_id)
            && pid_namespace().is_ok_and(|namespace| namespace == self.pid_namespace)
    }

    /// Whether the pid is proven to be another process's now. False if the process is hidden, or if the start times
    /// are of different time namespaces.
    fn is_pid_reused(&self) -> bool {
        if time_namespace().ok() != Some(self.time_namespace) || !is_proc_our_own() {
            return false;
        }
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid));
        let found = stat.ok().and_then(|stat| start_time(&stat));
        found.is_some_and(|found| found != self.start_time)
    }
}

/// Whether it is proven that no process of this pid runs, in this process's pid namespace.
pub fn pid_has_ended(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().filter(|pid| *pid > 0).and_then(Pid::from_raw) else {
        return false;
    };
    match pidfd_open(pid, PidfdFlags::empty()) {
        // Readable once the last thread has ended, also before the parent has waited for the process.
        Ok(process) => {
            let mut fds = [PollFd::new(&process, PollFlags::IN)];
            retried::poll(&mut fds, Some(Duration::ZERO)).is_ok_and(|ready| ready > 0)
        }
        Err(Errno::SRCH) => true,
        // Linux before 5.3, a system call filter, or no free file descriptor.
        Err(_) => test_kill_process(pid) == Err(Errno::SRCH),
    }
}

/// The only file of a process that is still readable after the main thread has ended by pthread_exit.
const OWN_STAT: &str = "/proc/self/stat";

fn boot_id() -> Result<&'static str> {
    // Without a lock, because a forked child must not wait for a thread of its parent.
    static BOOT_ID: once_cell::race::OnceBox<String> = once_cell::race::OnceBox::new();
    let read = || read("/proc/sys/kernel/random/boot_id").map(|text| Box::new(text.trim().to_string()));
    BOOT_ID.get_or_try_init(read).map(String::as_str)
}

fn pid_namespace() -> Result<u64> {
    namespace("pid")
}

/// Start times of different time namespaces cannot be compared. Kernels before 5.6 have no time namespaces: 0. Any other failure is an
/// error, because an identity without its namespace is that of another process.
fn time_namespace() -> Result<u64> {
    match namespace("time") {
        Err(error) if matches!(error.cause(), Some(Cause::Errno(libc::ENOENT))) => Ok(0),
        found => found,
    }
}

/// Of this thread: a main thread that has ended has no namespaces.
fn namespace(kind: &str) -> Result<u64> {
    let path = format!("/proc/thread-self/ns/{kind}");
    retried::stat(&path).map(|namespace| namespace.st_ino).map_err(|errno| unreadable(&path, &errno.into()))
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &str, error: &std::io::Error) -> Error {
    explain_proc(Error::io(format!("read the identity of this process from {path}"), error))
}

/// The error of a call with a path in /proc: what it means if /proc is not mounted.
pub(crate) fn explain_proc(error: Error) -> Error {
    if is_proc_mounted() {
        return error;
    }
    error
        .with_status(Status::Unsupported)
        .followed_by("/proc is not mounted; mount it in this container or chroot")
}

/// Whether the file system at /proc is proc.
fn is_proc_mounted() -> bool {
    retried::statfs("/proc").is_ok_and(|found| found.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

/// Whether /proc numbers processes as this one does: in a new pid namespace it can be the outer one's.
fn is_proc_our_own() -> bool {
    let own = retried::readlink("/proc/self");
    own.is_ok_and(|target| target.as_bytes() == std::process::id().to_string().as_bytes())
}

/// The start time in the text of /proc/PID/stat.
fn start_time(stat: &str) -> Option<u64> {
    // The command name may hold spaces and brackets; the fields after its last bracket do not.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
impl ProcessIdentity {
    /// An identity of no process, for tests of wire forms.
    pub fn sample() -> Self {
        Self { boot_id: "b".into(), pid: 7, start_time: 9, pid_namespace: 1, time_namespace: 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that runs until it is killed.
    fn child() -> (std::process::Child, ProcessIdentity) {
        let child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let stat = read(&format!("/proc/{}/stat", child.id())).unwrap();
        let start_time = start_time(&stat).unwrap();
        let identity = ProcessIdentity { pid: child.id(), start_time, ..ProcessIdentity::current().unwrap() };
        (child, identity)
    }

    #[test]
    fn a_process_is_gone_once_it_has_ended() {
        assert!(!ProcessIdentity::current().unwrap().is_gone());
        let (mut child, identity) = child();
        assert!(!identity.is_gone());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(identity.is_gone());
    }

    #[test]
    fn a_zombie_process_is_gone() {
        let (mut child, identity) = child();
        child.kill().unwrap();
        let mut status = std::mem::MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: the kernel fills `status`, which nothing reads; the child is left as a zombie.
        let waited = unsafe {
            libc::waitid(libc::P_PID, child.id(), status.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT)
        };
        assert_eq!(waited, 0);
        assert!(identity.is_gone());
        child.wait().unwrap();
    }

    #[test]
    fn a_reused_pid_is_detected_by_the_start_time() {
        let (mut child, identity) = child();
        let before = ProcessIdentity { start_time: identity.start_time + 1, ..identity.clone() };
        assert!(before.is_gone());
        let elsewhere = ProcessIdentity { time_namespace: identity.time_namespace + 1, ..before };
        assert!(!elsewhere.is_gone(), "start times of different time namespaces can't be compared");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(ProcessIdentity { time_namespace: 1, ..identity }.is_gone(), "ESRCH is proof in any of them");
    }

    #[test]
    fn a_process_in_another_namespace_is_never_reported_as_gone() {
        let own = ProcessIdentity::current().unwrap();
        let absent = ProcessIdentity { pid: i32::MAX as u32, ..own };
        assert!(absent.is_gone());
        let elsewhere = [
            ProcessIdentity { boot_id: "elsewhere".into(), ..absent.clone() },
            ProcessIdentity { pid_namespace: 1, ..absent.clone() },
            ProcessIdentity::unknown(),
        ];
        assert!(elsewhere.iter().all(|process| !process.is_gone() && !process.is_visible()));
        assert!(absent.is_visible());
    }

    #[test]
    fn an_invalid_pid_proves_nothing() {
        for pid in [0, u32::MAX, 1 << 31] {
            assert!(!pid_has_ended(pid), "{pid}");
        }
    }

    #[test]
    fn the_start_time_is_parsed_after_any_command_name() {
        let fields: Vec<_> = (3..=52).map(|field| field.to_string()).collect();
        let stat = format!("7 (a) b) (c) {}", fields.join(" "));
        assert_eq!(start_time(&stat), Some(22));
        assert_eq!(start_time("7 (a) R 1"), None);
    }
}
