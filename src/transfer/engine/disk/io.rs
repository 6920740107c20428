// SPDX-License-Identifier: Apache-2.0
//! Who reads and writes files: io_uring, or threads that call preadv and pwritev.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use super::calls;
use super::requests::Requests;
use super::uring::Uring;
use crate::error::{Error, Result, Status};
use crate::transfer::run::Stop;
use crate::transfer::run::threads::Pool;

/// Some requests, and whom to tell once the kernel has let go of all memory they name.
pub struct Work {
    /// The requests.
    pub requests: Arc<Requests>,
    /// Which of them.
    pub range: Range<usize>,
    /// Whether its user wants no more of them to begin.
    pub stop: Stop,
    /// Told once, from any thread.
    pub ending: Ending,
}

/// Hears how it went.
pub type Ending = Box<dyn FnOnce(Result<()>) + Send>;

/// One of the two.
#[derive(Clone)]
pub enum Io {
    /// A ring.
    Uring(Arc<Uring>),
    /// Threads.
    Calls {
        /// At most so many for one piece of work.
        threads: usize,
    },
}

/// The two by name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// io_uring.
    Ring,
    /// Threads that call preadv and pwritev.
    Threads,
}

/// Why one of the two is not taken.
#[derive(Default)]
pub struct Reasons {
    /// Against io_uring.
    pub uring: Option<String>,
    /// The system has no usable io_uring.
    pub is_uring_impossible: bool,
    /// Against threads.
    pub calls: Option<String>,
}

/// Threads that keep a device busy, one request each.
const AT_DEVICE: usize = 8;
/// Threads that read from the page cache, on a machine with few cores: some may wait for the device.
const FEWEST_READERS: usize = 4;
/// Threads that write to the page cache: they wait for each other at the file.
const WRITERS: usize = 2;

impl Io {
    /// The better of the two, or the one that is asked for, with the reasons against the other.
    ///
    /// Direct I/O is io_uring's: one thread keeps the device busy. A buffered file's bytes are copied by the kernel
    /// within the call, so that there several threads are faster than one ring.
    pub fn choose(is_direct: bool, writes: bool, asked: Option<Who>) -> Result<(Self, Reasons)> {
        let threads = match (is_direct, writes) {
            (true, _) => AT_DEVICE,
            (false, false) => Pool::parallelism().clamp(FEWEST_READERS, AT_DEVICE),
            (false, true) => WRITERS,
        };
        let calls = Self::Calls { threads };
        let because = |reason: &str| Some(reason.to_string());
        let wanted = asked.unwrap_or(if is_direct { Who::Ring } else { Who::Threads });
        if wanted == Who::Threads {
            let reason = match asked {
                Some(_) => because("another path was asked for"),
                None => because("the file is buffered, and several threads copy faster"),
            };
            return Ok((calls, Reasons { uring: reason, ..Reasons::default() }));
        }
        match Uring::get() {
            Ok(uring) => {
                let reason = match asked {
                    Some(_) => because("another path was asked for"),
                    None => because("one ring keeps the device busier than threads, for less CPU time"),
                };
                Ok((Self::Uring(uring), Reasons { calls: reason, ..Reasons::default() }))
            }
            Err(reason) if asked.is_some() => Err(Error::new(
                Status::Unsupported,
                format!("the path that is asked for can't be taken: {reason}"),
            )),
            Err(reason) => {
                Ok((calls, Reasons { uring: Some(reason), is_uring_impossible: true, calls: None }))
            }
        }
    }

    /// Which of the two it is.
    pub fn who(&self) -> Who {
        match self {
            Self::Uring(_) => Who::Ring,
            Self::Calls { .. } => Who::Threads,
        }
    }

    /// Starts some work; never waits for it.
    pub fn start(&self, work: Work) {
        match self {
            Self::Uring(uring) => uring.start(work),
            Self::Calls { threads } => calls::start(work, *threads),
        }
    }
}
