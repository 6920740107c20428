// SPDX-License-Identifier: Apache-2.0
//! preadv and pwritev on several threads, for systems without io_uring and where several threads copy faster.
#![allow(unsafe_code)]

use std::sync::Arc;

use rustix::io::Errno;

use super::file_requests::FileRequests;
use super::operation::{FileOperation, IoCall, IoStep};
use super::work::{FileJob, Report};
use crate::base::file_systems::FileSystems;
use crate::base::{Pool, Result, Shared, guarded, log};

/// The minimum amount of work for another thread.
const BYTES_A_THREAD: u64 = 128 << 10;

/// Threads that execute work of one transfer.
pub struct Callers {
    max_threads: usize,
    file_systems: FileSystems,
}

impl Callers {
    /// Up to `max_threads` threads, for files on these file systems.
    pub fn new(max_threads: usize, file_systems: FileSystems) -> Self {
        Self { max_threads, file_systems }
    }

    /// Executes some work. It fails if there is no thread for it: the calling thread would wait for the file system.
    pub fn start(&self, job: &Arc<FileJob>) {
        if job.end_if_over() {
            return;
        }
        let (bytes, max_requests) = job.sizes();
        let threads = (bytes / BYTES_A_THREAD).min(max_requests).clamp(1, self.max_threads as u64) as usize;
        let shared: Arc<dyn Shared> = job.clone();
        if let Err(error) = Pool::files(&self.file_systems).pass(&shared, threads) {
            job.end_with(error);
        }
    }
}

/// Requests that threads execute in order.
impl Shared for FileJob {
    fn run(&self) {
        let take = || {
            guarded(|| self.take()).unwrap_or_else(|panic| {
                self.fail(panic);
                None
            })
        };
        while let Some(((requests, index), begun)) = take() {
            // A request that was taken ends, also by a panic of what it is reported to.
            let outcome = guarded(|| {
                begun.into_iter().for_each(Report::make);
                execute(&requests, index)
            });
            let outcome = outcome.and_then(|outcome| outcome).map(|()| *requests.get(index));
            drop(requests);
            if let Err(panic) = guarded(|| self.ended(outcome).into_iter().for_each(Report::make)) {
                log!(Error, "panic after a read or a write of a file: {panic}");
                self.fail(panic);
            }
        }
        self.end_if_over();
    }
}

fn execute(requests: &FileRequests, index: usize) -> Result<()> {
    let mut operation = FileOperation::new(index);
    loop {
        // SAFETY: the plan checked all spans against their layouts, which the run holds until its outcome is reported.
        let result = unsafe { call(operation.next_call(requests), requests.writes()) };
        match operation.advance(requests, result) {
            IoStep::Done => return Ok(()),
            IoStep::Failed(error) => return Err(error),
            IoStep::Again if operation.is_delayed() => std::thread::yield_now(),
            IoStep::Again => {}
        }
    }
}

/// # Safety
/// The spans are memory of this process that may be read or written; the file is open.
#[allow(clippy::disallowed_methods, reason = "the operation is continued after a signal")]
unsafe fn call(call: IoCall<'_>, writes: bool) -> std::result::Result<u64, Errno> {
    let (spans, count) = (call.spans.as_ptr().cast::<libc::iovec>(), call.spans.len() as libc::c_int);
    let offset = call.offset as libc::off_t;
    // SAFETY: a span has the layout of an iovec; the caller's promise.
    let moved = unsafe {
        match writes {
            true => libc::pwritev(call.file, spans, count, offset),
            false => libc::preadv(call.file, spans, count, offset),
        }
    };
    u64::try_from(moved).map_err(|_| {
        let code = std::io::Error::last_os_error().raw_os_error();
        Errno::from_raw_os_error(code.unwrap_or(libc::EIO))
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::super::file_requests::Piece;
    use super::super::planned::RequestSource;
    use super::super::work::{Ending, Work};
    use super::*;
    use crate::base::Status;
    use crate::run::{FileProgress, Stop};

    /// Panics when a request begins, or when it has moved.
    struct Brittle(bool);

    impl FileProgress for Brittle {
        fn begun(&self) {
            assert!(self.0, "deliberate");
        }

        fn moved(&self, _offset: u64, _size: u64) {
            panic!("deliberate");
        }
    }

    #[test]
    fn a_panic_of_what_requests_are_reported_to_ends_their_work() {
        let (file, memory) = (memfd_create("requests", MemfdFlags::CLOEXEC).unwrap(), [1u8; 16]);
        let (fd, address) = (file.as_raw_fd(), memory.as_ptr() as u64);
        for begins in [false, true] {
            let piece = |at: u64| Piece { file: fd, offset: at * 2, address: address + at, size: 8 };
            let requests = Arc::new(FileRequests::gather([0, 8].map(piece), true).unwrap());
            let (sender, end) = std::sync::mpsc::channel();
            let ending = Ending::OfSlot { to: Arc::new(move |end| sender.send(end).unwrap()), slot: 0 };
            let stop = Stop::reporting_to(Arc::new(Brittle(begins)));
            FileJob::new(Work { requests: RequestSource::listed(requests), stop, ending }).run();
            assert_eq!(end.recv().unwrap().unwrap_err().status(), Status::Panic);
        }
    }
}
