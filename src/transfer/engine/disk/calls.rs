// SPDX-License-Identifier: Apache-2.0
//! preadv and pwritev on several threads, for systems without io_uring and where several threads copy faster.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;

use super::operation::{FileOperation, IoCall, IoStep};
use super::requests::FileRequests;
use super::work::{Ending, Work};
use crate::error::{Error, Result};
use crate::file_limit::FileSizeSignal;
use crate::guarded::guarded;
use crate::sync::{Mutex, MutexGuard};
use crate::transfer::run::threads::{Pool, Shared};
use crate::transfer::run::{Stop, cancelled};

/// The minimum amount of work for another thread.
const BYTES_A_THREAD: u64 = 128 << 10;

/// Executes the work on up to `most_threads` threads.
pub fn start(work: Work, most_threads: usize) {
    let Work { requests, range, stop, ending } = work;
    if range.is_empty() {
        return ending(Ok(()));
    }
    let worth = requests.bytes() / BYTES_A_THREAD;
    let threads = (worth as usize).min(range.len()).clamp(1, most_threads);
    let job = FileJob {
        requests,
        next: AtomicUsize::new(range.start),
        left: AtomicUsize::new(range.len()),
        range,
        stop,
        failure: Mutex::default(),
        ending: Mutex::new(Some(ending)),
    };
    Pool::files().run(&(Arc::new(job) as Arc<dyn Shared>), threads);
}

/// Requests that threads execute in order.
struct FileJob {
    requests: Arc<FileRequests>,
    range: Range<usize>,
    next: AtomicUsize,
    left: AtomicUsize,
    stop: Stop,
    /// The first failure; nothing begins after it.
    failure: Mutex<Option<Error>>,
    ending: Mutex<Option<Ending>>,
}

impl Shared for FileJob {
    fn run(&self) {
        // This may be the caller's thread.
        let _limit_reports_itself = FileSizeSignal::block();
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.range.end {
                return;
            }
            if let Err(error) = guarded(|| self.execute(index)).and_then(|outcome| outcome) {
                self.failure().get_or_insert(error);
            }
            if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.finish();
            }
        }
    }
}

impl FileJob {
    fn execute(&self, index: usize) -> Result<()> {
        if self.failure().is_some() {
            return Ok(());
        }
        if self.stop.is_asked() {
            return Err(cancelled());
        }
        let mut operation = FileOperation::new(index);
        loop {
            // SAFETY: the plan checked all spans against their layouts, which the run holds until `ending` is called.
            let result = unsafe { call(operation.next_call(&self.requests), self.requests.writes()) };
            match operation.advance(&self.requests, result) {
                IoStep::Done => return Ok(()),
                IoStep::Failed(error) => return Err(error),
                IoStep::Again if operation.is_delayed() => std::thread::yield_now(),
                IoStep::Again => {}
            }
        }
    }

    fn finish(&self) {
        let failure = self.failure().take();
        let ending = self.ending.lock().take();
        if let Some(ending) = ending {
            ending(failure.map_or(Ok(()), Err));
        }
    }

    fn failure(&self) -> MutexGuard<'_, Option<Error>> {
        self.failure.lock()
    }
}

/// # Safety
/// The spans are memory of this process that may be read or written; the file is open.
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
