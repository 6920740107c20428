// SPDX-License-Identifier: Apache-2.0
//! Signal dispositions are the host program's: what a plugin changes while it loads is put back.

use std::mem::MaybeUninit;

/// UCX takes SIGHUP over with its first worker, unless the environment has UCX_DEBUG_SIGNO=0; of all signals it
/// changes no other.
const TAKEN: libc::c_int = libc::SIGHUP;

/// Puts the disposition back when dropped.
pub struct Preserved(Option<libc::sigaction>);

impl Preserved {
    /// Remembers the disposition as it is.
    pub fn new() -> Self {
        let mut action = MaybeUninit::uninit();
        // SAFETY: only asks; `action` is written on success.
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
