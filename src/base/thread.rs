// SPDX-License-Identifier: Apache-2.0
//! Starts the threads of the library. They block signals, so that the program's handlers run on its own threads: a handler
//! may need data of its thread, and would delay what a thread of the library does. SIGXFSZ is among them: writes of NIXL's
//! file backends beyond the limit on the size of files fail, and do not end the process.
#![allow(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "the one place that starts threads")]

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::base::advice;
use crate::base::error::{Error, Result, Status, error};
use crate::base::sync::Mutex;

/// Signals that report a fault of the thread that gets them. Handlers of them must run on it: blocked, they end the process.
const FAULTS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// Starts a thread that blocks all signals but those of faults, as threads that it starts will.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let _inherited = SignalsBlocked::begin();
    // In a box, so that std's code is compiled once.
    let body: Box<dyn FnOnce() -> T + Send> = Box::new(body);
    Builder::new().name(name.to_string()).spawn(body).map_err(|error| not_started(name, &error))
}

/// The same for a thread that ends before the scope.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let _inherited = SignalsBlocked::begin();
    Builder::new().name(name.to_string()).spawn_scoped(scope, body).map_err(|error| not_started(name, &error))
}

/// The limits that a thread can exceed are named, because the errno is the same for all of them.
#[cold]
fn not_started(name: &str, error: &std::io::Error) -> Error {
    let doing = format!("start the thread {name}");
    let failed = match error.raw_os_error() {
        Some(code) => Error::errno(doing, rustix::io::Errno::from_raw_os_error(code)),
        None => error!(OutOfMemory, "{doing}: {error}"),
    };
    failed.with_status(Status::OutOfMemory).with_advice(advice::threads())
}

/// Fails if so many more threads, with stacks as large as the C library gives them, cannot be started after `size` bytes of
/// addresses were mapped: some libraries end the process if they cannot start theirs.
pub fn ensure_startable(count: usize, size: usize) -> Result<()> {
    let gate = Mutex::new(());
    let _mapped = Reserved::new(size)?;
    std::thread::scope(|scope| {
        let _inherited = SignalsBlocked::begin();
        // They end together, when all have been started or one could not be.
        let _closed = gate.lock();
        let wait = || drop(gate.lock());
        let name = "kvmem-trial";
        (0..count).try_for_each(|_| {
            let builder = Builder::new().name(name.to_string()).stack_size(default_stack_size());
            builder.spawn_scoped(scope, wait).map(drop).map_err(|error| not_started(name, &error))
        })
    })
}

/// The size of the stack that the C library gives to a thread, which follows from RLIMIT_STACK.
fn default_stack_size() -> usize {
    let mut size = 0;
    // SAFETY: the attributes are initialised by the first call, live through the others, and are destroyed once.
    unsafe {
        let mut attributes = std::mem::zeroed::<libc::pthread_attr_t>();
        if libc::pthread_attr_init(&mut attributes) == 0 {
            libc::pthread_attr_getstacksize(&attributes, &mut size);
            libc::pthread_attr_destroy(&mut attributes);
        }
    }
    size
}

/// Addresses without memory.
struct Reserved(*mut libc::c_void, usize);

impl Reserved {
    fn new(size: usize) -> Result<Self> {
        if size == 0 {
            return Ok(Self(std::ptr::null_mut(), 0));
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, which nothing accesses.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), size, ProtFlags::empty(), flags) };
        mapped
            .map(|address| Self(address, size))
            .map_err(|errno| Error::errno(format!("map {size} bytes"), errno).with_advice(advice::threads()))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.1 > 0 {
            // SAFETY: the mapping of this value, which nothing accesses.
            unsafe { libc::munmap(self.0, self.1) };
        }
    }
}

/// Lets other threads run before the calling thread polls again. Returns false if it should sleep instead: the processors are
/// busy, so that a yield takes milliseconds, whereas a thread that sleeps runs as soon as it is woken. After a long yield it
/// returns false at once for a while, in all threads.
pub fn yields_soon() -> bool {
    static BUSY_UNTIL: AtomicU64 = AtomicU64::new(0);
    yields_soon_by(&BUSY_UNTIL, std::thread::yield_now)
}

/// A yield that takes longer has waited for a thread with work.
const LONG_YIELD: Duration = Duration::from_micros(500);
/// How long threads do not yield after a long yield.
const BUSY: Duration = Duration::from_millis(100);

fn yields_soon_by(busy_until: &AtomicU64, yield_now: impl Fn()) -> bool {
    let begun = monotonic();
    if begun.as_nanos() < u128::from(busy_until.load(Ordering::Relaxed)) {
        return false;
    }
    yield_now();
    let ended = monotonic();
    let is_short = is_short(begun, ended);
    if !is_short {
        busy_until.store((ended + BUSY).as_nanos() as u64, Ordering::Relaxed);
    }
    is_short
}

/// Clocks of two processors may differ, in a virtual machine by microseconds: a thread that has moved between them may have ended
/// before it began.
fn is_short(begun: Duration, ended: Duration) -> bool {
    ended.saturating_sub(begun) < LONG_YIELD
}

/// Polls until `is_done` returns true: without a pause for as long as `spin`, and then with a sleep between polls.
pub fn poll(spin: Duration, sleep: Duration, mut is_done: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is_done()? {
        if begun.elapsed() < spin { std::thread::yield_now() } else { std::thread::sleep(sleep) }
    }
    Ok(())
}

/// Makes the calling thread, which is the library's, wake on time: the kernel may lengthen a sleep by 50 µs to save a wake-up, which is more
/// than the sleeps of some threads.
pub fn wake_precisely() {
    const SLACK_NANOSECONDS: libc::c_ulong = 1000;
    // SAFETY: changes nothing but the timer slack of this thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NANOSECONDS) };
}

/// The time since the first call.
fn monotonic() -> Duration {
    static FIRST: OnceCell<Instant> = OnceCell::new();
    FIRST.get_or_init(Instant::now).elapsed()
}

/// The calling thread blocks them while this lives. Threads that are started meanwhile, by whatever library, inherit that.
pub struct SignalsBlocked {
    before: libc::sigset_t,
    /// The mask belongs to the thread.
    not_send: PhantomData<*const ()>,
}

impl SignalsBlocked {
    pub fn begin() -> Self {
        // SAFETY: the sets are plain integers, for which zero is a valid value, and live through the calls; only this thread's
        // mask changes. The calls cannot fail, because their arguments are valid.
        let before = unsafe {
            let (mut blocked, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut blocked);
            for fault in FAULTS {
                libc::sigdelset(&mut blocked, fault);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &blocked, &mut before);
            before
        };
        Self { before, not_send: PhantomData }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_do_not_yield_for_a_while_after_a_long_yield() {
        let busy_until = AtomicU64::new(0);
        assert!(yields_soon_by(&busy_until, || ()));
        assert!(!yields_soon_by(&busy_until, || std::thread::sleep(2 * LONG_YIELD)));
        assert!(!yields_soon_by(&busy_until, || panic!("it yielded")));
        assert!(is_short(LONG_YIELD, Duration::ZERO), "on another processor");
        busy_until.store(1, Ordering::Relaxed);
        assert!(yields_soon_by(&busy_until, || ()));
    }

    /// Signals that the calling thread blocks.
    fn blocked() -> Vec<i32> {
        // SAFETY: as in `begin`; without a new set the mask does not change.
        let mask = unsafe {
            let mut mask = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
            mask
        };
        // SAFETY: an initialised set and valid signals.
        (1..=libc::SIGSYS).filter(|signal| unsafe { libc::sigismember(&mask, *signal) } == 1).collect()
    }

    #[test]
    fn threads_are_startable_and_have_ended_after_the_trial() {
        ensure_startable(0, 0).unwrap();
        ensure_startable(3, 1 << 20).unwrap();
    }

    #[test]
    fn a_trial_fails_without_addresses_for_what_follows() {
        let error = ensure_startable(1, 1 << 60).unwrap_err();
        assert_eq!(error.status(), Status::OutOfMemory);
        assert!(error.message().starts_with("map 1152921504606846976 bytes"), "{error}");
    }

    #[test]
    fn a_thread_that_cannot_be_started_names_the_limits() {
        let error = not_started("kvmem-test", &std::io::Error::from_raw_os_error(libc::EAGAIN));
        assert_eq!(error.status(), Status::OutOfMemory);
        assert!(error.message().starts_with("start the thread kvmem-test: "), "{error}");
        assert!(error.message().contains("(EAGAIN)") && error.message().contains("pids.max"), "{error}");
    }

    #[test]
    fn threads_block_all_signals_except_faults_and_the_caller_blocks_those_it_did() {
        let before = blocked();
        let own = spawn("kvmem-test", blocked).unwrap().join().unwrap();
        let scoped =
            std::thread::scope(|scope| spawn_scoped(scope, "kvmem-test", blocked).unwrap().join().unwrap());
        let can_be_blocked = |signal: &i32| ![libc::SIGKILL, libc::SIGSTOP].contains(signal);
        let expected: Vec<_> =
            (1..=libc::SIGSYS).filter(can_be_blocked).filter(|signal| !FAULTS.contains(signal)).collect();
        assert_eq!(own, expected);
        assert_eq!(scoped, expected);
        assert_eq!(blocked(), before);
    }
}
