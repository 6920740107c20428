// SPDX-License-Identifier: Apache-2.0
//! The method that reads and writes files: io_uring, or threads that call preadv and pwritev.

use std::sync::Arc;

use super::calls::Callers;
use super::file_sides::FileSides;
use super::uring::Uring;
use super::work::FileJob;
use crate::base::{Pool, Result, error};
use crate::run::TransferMethod;

/// A method, ready for use.
#[derive(Clone)]
pub enum Io {
    Uring(Arc<Uring>),
    Calls(Arc<Callers>),
}

/// Why a method is not used.
#[derive(Default)]
pub struct Reasons {
    /// Against io_uring.
    pub uring: Option<String>,
    /// The system has no usable io_uring.
    pub is_uring_impossible: bool,
    /// Against threads.
    pub calls: Option<String>,
}

/// Number of threads that saturate a device, with one request each.
const AT_DEVICE: usize = 8;
/// Number of threads that read from the page cache on a machine with few cores; some may wait for the device.
const FEWEST_READERS: usize = 4;
/// Number of threads that write to the page cache; they serialise on the file's lock.
const WRITERS: usize = 2;

impl Io {
    /// The better of the two methods, or the requested one, with the reason against the other.
    ///
    /// io_uring is better for direct I/O: one thread saturates the device. For a buffered file the kernel
    /// copies the bytes within the call, so several threads are faster than one ring.
    pub fn choose(sides: &FileSides<'_>, requested: Option<TransferMethod>) -> Result<(Self, Reasons)> {
        let (is_direct, writes, on) = (sides.is_direct(), sides.writes, sides.file.file_systems());
        let threads = match (is_direct, writes) {
            (true, _) => AT_DEVICE,
            (false, false) => Pool::parallelism().clamp(FEWEST_READERS, AT_DEVICE),
            (false, true) => WRITERS,
        };
        let calls = || Self::Calls(Arc::new(Callers::new(threads, on.clone())));
        let because = |reason: &str| Some(reason.to_string());
        let wanted =
            requested.unwrap_or(if is_direct { TransferMethod::Uring } else { TransferMethod::Pread });
        if wanted == TransferMethod::Pread {
            let reason = match requested {
                Some(_) => because("another method was requested"),
                None => because("the file is buffered, and several threads copy faster"),
            };
            return Ok((calls(), Reasons { uring: reason, ..Reasons::default() }));
        }
        match Uring::get(on) {
            Ok(uring) => {
                let reason = match requested {
                    Some(_) => because("another method was requested"),
                    None => because("one ring keeps the device busier than threads, for less CPU time"),
                };
                Ok((Self::Uring(uring), Reasons { calls: reason, ..Reasons::default() }))
            }
            Err(reason) if requested.is_some() => {
                Err(error!(Unsupported, "the requested method is not possible: {reason}"))
            }
            Err(reason) => {
                Ok((calls(), Reasons { uring: Some(reason), is_uring_impossible: true, calls: None }))
            }
        }
    }

    pub fn method(&self) -> TransferMethod {
        match self {
            Self::Uring(_) => TransferMethod::Uring,
            Self::Calls(_) => TransferMethod::Pread,
        }
    }

    /// Starts some work, without waiting for it.
    pub fn start(&self, job: &Arc<FileJob>) {
        match self {
            Self::Uring(uring) => uring.start(job.clone()),
            Self::Calls(callers) => callers.start(job),
        }
    }
}
