// SPDX-License-Identifier: Apache-2.0
//! Handlers of `exit` that are called before those of the libraries that they protect.
//!
//! `exit` ends the thread-local objects of its thread, and then calls its handlers, the last one first. Libraries register theirs when
//! they first need them, which may be later than any moment that kvmem knows. So the main thread, which calls `exit` in nearly every
//! program, can register a handler of kvmem once more when its thread-local objects end. That handler is called several times.
#![allow(unsafe_code)]

use std::cell::RefCell;

use super::process;

pub type Handler = extern "C" fn();

/// Registers the handlers once more when the thread ends.
struct Again(RefCell<Vec<Handler>>);

thread_local! {
    static AGAIN: Again = const { Again(RefCell::new(Vec::new())) };
}

impl Drop for Again {
    fn drop(&mut self) {
        for handler in self.0.take() {
            precede(handler);
        }
    }
}

/// Has `exit` call `handler`, which does not unwind, before what was registered until now. If this library is unloaded, it is called then.
/// Returns false if there is no memory for that.
pub fn precede(handler: Handler) -> bool {
    // SAFETY: a function of this library, which the C library forgets when it unloads this one.
    unsafe { libc::atexit(handler) == 0 }
}

/// On the main thread: has `exit` call `handler` also before what is registered later, such as handlers of the caller.
pub fn precede_later_ones(handler: Handler) {
    if !process::is_main_thread() {
        return;
    }
    // While the thread ends, `handler` has been registered again.
    let _ = AGAIN.try_with(|again| {
        let mut handlers = again.0.borrow_mut();
        if !handlers.iter().any(|known| std::ptr::fn_addr_eq(*known, handler)) {
            handlers.push(handler);
        }
    });
}
