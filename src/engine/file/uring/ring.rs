// SPDX-License-Identifier: Apache-2.0
//! A ring, and the event fd that wakes its thread. Many containers do not permit io_uring, so creating a ring may fail.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::{IoUring, Probe, opcode};

use crate::base::{Error, EventFd, advice};

/// Maximum number of requests in the kernel.
pub const DEPTH: usize = 64;
/// Size of the ring: enough for the requests and for the poll of the event fd.
const ENTRIES: u32 = 2 * DEPTH as u32;

/// A ring. Only its thread submits to it.
pub struct Ring {
    pub io: IoUring,
    /// Wakes the thread that sleeps in the kernel.
    pub event: EventFd,
    /// The ring polls `event`.
    pub is_watching: AtomicBool,
    is_broken: AtomicBool,
}

impl Ring {
    /// Creates a ring and tests it. Fails with the reason.
    pub fn create() -> Result<Self, String> {
        let event = EventFd::new().map_err(|error| error.context("io_uring cannot be set up").to_string())?;
        let (is_watching, is_broken) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { io: create_io()?, event, is_watching, is_broken })
    }

    /// Whether the ring contains entries that the kernel does not accept, so that it can't be used again.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Makes further work fail.
    pub fn set_broken(&self) {
        self.is_broken.store(true, Ordering::Release);
    }
}

fn create_io() -> Result<IoUring, String> {
    // Completions need not interrupt the thread, because it enters the kernel to wait for them. Kernels before 5.19 do not
    // support this.
    let cooperative = IoUring::builder().dontfork().setup_coop_taskrun().build(ENTRIES);
    let mut ring = match cooperative {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().dontfork().build(ENTRIES).map_err(refusal)?
        }
        cooperative => cooperative.map_err(refusal)?,
    };
    ensure_operations(&ring)?;
    try_out(&mut ring).map_err(refusal)?;
    Ok(ring)
}

fn refusal(error: std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => "the kernel has no io_uring, or a seccomp filter hides it".to_string(),
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is not permitted: by a seccomp filter, or kernel.io_uring_disabled".to_string()
        }
        Some(code) => {
            let errno = rustix::io::Errno::from_raw_os_error(code);
            let error = Error::errno("io_uring cannot be set up", errno);
            let advice = (errno == rustix::io::Errno::NOMEM).then(advice::locked_memory).flatten();
            error.with_advice(advice).to_string()
        }
        None => format!("io_uring cannot be set up: {error}"),
    }
}

fn ensure_operations(ring: &IoUring) -> Result<(), String> {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(refusal)?;
    let wanted = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Readv::CODE,
        opcode::Writev::CODE,
        opcode::PollAdd::CODE,
    ];
    match wanted.iter().all(|code| probe.is_supported(*code)) {
        true => Ok(()),
        false => Err("the kernel's io_uring is too old".to_string()),
    }
}

/// Submits a request that does nothing: a seccomp filter may permit creating a ring, but not using it.
fn try_out(ring: &mut IoUring) -> std::io::Result<()> {
    // SAFETY: the request does nothing.
    let pushed = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
    pushed.map_err(std::io::Error::other)?;
    ring.submit_and_wait(1)?;
    match ring.completion().count() {
        0 => Err(std::io::Error::other("the kernel reports no error and completes no request")),
        _ => Ok(()),
    }
}
