// SPDX-License-Identifier: Apache-2.0
//! Signal dispositions belong to the program: those that a plugin changes while it is loaded are restored.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

/// UCX installs a handler for SIGHUP when its libraries are loaded, or with its first worker, unless the environment has
/// UCX_DEBUG_SIGNO=0. It changes no other signal. A test compares all of them.
const TAKEN: libc::c_int = libc::SIGHUP;

/// Restores the disposition when it is dropped. It must be created before NIXL or a plugin is loaded, because the
/// constructors of their libraries change the disposition. A change by another thread of the program in between is lost:
/// it cannot be distinguished from one by UCX.
pub struct Preserved(Option<libc::sigaction>);

impl Preserved {
    pub fn new() -> Self {
        let mut action = MaybeUninit::uninit();
        // SAFETY: only reads the disposition; `action` is written on success.
        let asked = unsafe { libc::sigaction(TAKEN, std::ptr::null(), action.as_mut_ptr()) };
        // SAFETY: written, see above.
        Self((asked == 0).then(|| unsafe { action.assume_init() }))
    }
}

impl Drop for Preserved {
    fn drop(&mut self) {
        if let Some(action) = &self.0 {
            // SAFETY: the disposition that was in force before.
            unsafe { libc::sigaction(TAKEN, action, std::ptr::null_mut()) };
        }
    }
}
