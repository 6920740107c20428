// SPDX-License-Identifier: Apache-2.0
//! A test process that a signal ends says where: the runner names neither the test nor the place.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;

const MAX_FRAMES: usize = 64;
const HEAD: &[u8] = b"\nthe tests crashed; the frames of the thread, for addr2line:\n";

/// Runs before the runner starts threads, and before the standard library sets its own handlers, which it then does not.
#[used]
#[unsafe(link_section = ".init_array")]
static INSTALL: extern "C" fn() = install;

extern "C" fn install() {
    // The first call loads a library, which a handler may not.
    let mut frame = ptr::null_mut();
    // SAFETY: one frame; a handler of the right type, which ends the process by the default of the signal.
    unsafe {
        libc::backtrace(&mut frame, 1);
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL] {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = report as extern "C" fn(c_int) as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_RESETHAND | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
}

/// Writes the frames, once, even if another signal interrupts it, and returns to the instruction, which raises the signal again.
#[allow(clippy::disallowed_methods)]
extern "C" fn report(signal: c_int) {
    let mut frames: [*mut c_void; MAX_FRAMES] = [ptr::null_mut(); MAX_FRAMES];
    // SAFETY: the buffers are of these sizes. What a signal from elsewhere raised is raised again.
    unsafe {
        libc::write(libc::STDERR_FILENO, HEAD.as_ptr().cast(), HEAD.len());
        let count = libc::backtrace(frames.as_mut_ptr(), MAX_FRAMES as c_int);
        libc::backtrace_symbols_fd(frames.as_ptr(), count, libc::STDERR_FILENO);
        libc::raise(signal);
    }
}
