// SPDX-License-Identifier: Apache-2.0
//! The release of adopted memory: the callback that reports that kvmem no longer uses the memory.

use crate::base::callback_thread::{CallbackHandle, CallbackThread};
use crate::base::{PerProcess, Result, log};

pub type ReleaseCallback = Box<dyn FnOnce() + Send + Sync>;

/// Has the callback run when it is dropped. The last holder of adopted memory may be an agent's thread or the thread of an
/// io_uring, so the callback runs on a thread of its own: it may call kvmem, which needs those threads.
pub struct Release {
    callback: Option<ReleaseCallback>,
    thread: CallbackHandle,
}

impl Release {
    /// Fails, without calling the callback, if the thread for it cannot be started.
    pub fn new(callback: ReleaseCallback, address: u64, size: u64) -> Result<Self> {
        let logged: ReleaseCallback = Box::new(move || {
            log!(Debug, "calling the release callback of {size} bytes adopted at {address:#x}");
            callback();
        });
        Ok(Self { callback: Some(logged), thread: releases().acquire()? })
    }

    /// Drops the callback without calling it, because the memory is not adopted after all.
    pub fn withdraw(&mut self) {
        self.callback = None;
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if let Some(callback) = self.callback.take() {
            self.thread.post(callback);
        }
    }
}

/// The thread of this process for release callbacks. The log has another: a log callback that blocks delays no release.
fn releases() -> &'static CallbackThread {
    static RELEASES: PerProcess<CallbackThread> = PerProcess::new();
    RELEASES
        .get(|| CallbackThread::new("kvmem-release", |error| log!(Error, "in a release callback: {error}")))
}
