// SPDX-License-Identifier: Apache-2.0
//! Reads or writes for io_uring or for threads.
#![forbid(unsafe_code)]

use super::planned::RequestSource;
use crate::error::Result;
use crate::transfer::run::Stop;

/// Some requests. `ending` is called once the kernel no longer uses any memory that they name.
pub struct Work {
    /// The requests.
    pub requests: RequestSource,
    /// Whether the caller cancelled those that have not begun.
    pub stop: Stop,
    /// Called once, on any thread.
    pub ending: Ending,
}

/// Receives the outcome.
pub type Ending = Box<dyn FnOnce(Result<()>) + Send>;
