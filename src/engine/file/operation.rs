// SPDX-License-Identifier: Apache-2.0
//! One read or write in progress: the result of the system call, and what remains. The kernel may transfer
//! fewer bytes than requested; the operation ends when all are transferred.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use super::file_requests::{FileRequest, FileRequests, IoSpan, after};
use crate::base::{Error, Result, advice, error, retried};
use crate::run::counters;

/// How often the kernel may return EINTR or EAGAIN without transferring a byte.
const MAX_DELAYS: u32 = 1000;

/// A request and its progress.
pub struct FileOperation {
    request: usize,
    done: u64,
    /// The remaining spans, once some bytes are transferred.
    left: Vec<IoSpan>,
    delays: u32,
}

/// The arguments of a system call.
pub struct IoCall<'a> {
    pub file: i32,
    pub offset: u64,
    pub spans: &'a [IoSpan],
}

#[derive(Debug)]
pub enum IoStep {
    Done,
    /// Repeat, for the remaining bytes.
    Again,
    Failed(Error),
}

impl FileOperation {
    /// An operation that has not begun.
    pub fn new(request: usize) -> Self {
        Self { request, done: 0, left: Vec::new(), delays: 0 }
    }

    /// The arguments for the remaining bytes.
    pub fn next_call<'a>(&'a self, requests: &'a FileRequests) -> IoCall<'a> {
        let FileRequest { file, offset, .. } = *requests.get(self.request);
        let spans = if self.done == 0 { requests.spans(self.request) } else { &self.left };
        IoCall { file, offset: offset + self.done, spans }
    }

    /// Whether the kernel has returned EINTR or EAGAIN since the last byte.
    pub fn is_delayed(&self) -> bool {
        self.delays > 0
    }

    pub fn request<'a>(&self, requests: &'a FileRequests) -> &'a FileRequest {
        requests.get(self.request)
    }

    pub fn size(&self, requests: &FileRequests) -> u64 {
        self.request(requests).size
    }

    /// Handles the result of a system call.
    pub fn advance(&mut self, requests: &FileRequests, result: std::result::Result<u64, Errno>) -> IoStep {
        let size = self.size(requests);
        let step = self.after_call(requests, size, result);
        if let IoStep::Again = step {
            counters::FILE_RETRIES.add(1);
        }
        step
    }

    fn after_call(
        &mut self,
        requests: &FileRequests,
        size: u64,
        result: std::result::Result<u64, Errno>,
    ) -> IoStep {
        match result {
            Ok(0) => IoStep::Failed(self.end_of_file(requests, None)),
            Ok(moved) => {
                self.done += moved;
                self.delays = 0;
                if self.done >= size {
                    return IoStep::Done;
                }
                self.left = after(requests.spans(self.request), self.done as usize);
                IoStep::Again
            }
            Err(Errno::INTR | Errno::AGAIN) if self.delays < MAX_DELAYS => {
                self.delays += 1;
                IoStep::Again
            }
            // Direct I/O fails with EINVAL at the unaligned end of a truncated file.
            Err(Errno::INVAL) if self.done > 0 => {
                IoStep::Failed(self.end_of_file(requests, Some(Errno::INVAL)))
            }
            Err(errno) => IoStep::Failed(self.failed(requests, errno)),
        }
    }

    fn description(&self, requests: &FileRequests) -> String {
        let FileRequest { offset, size, .. } = *requests.get(self.request);
        let (verb, preposition) = if requests.writes() { ("write", "to") } else { ("read", "from") };
        format!("{verb} {} bytes {preposition} a file at {}", size - self.done, offset + self.done)
    }

    fn failed(&self, requests: &FileRequests, errno: Errno) -> Error {
        let file = requests.get(self.request).file;
        // SAFETY: the transfer holds the layout, and so the region with the open file, until its run is over.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        let advice = (errno == Errno::NOSPC).then(|| advice::free_space(file)).flatten();
        Error::errno(self.description(requests), errno).with_advice(advice)
    }

    /// The kernel transferred nothing and reported no error: the file was truncated.
    fn end_of_file(&self, requests: &FileRequests, errno: Option<Errno>) -> Error {
        let description = self.description(requests);
        let length = length(requests.get(self.request).file);
        match (length, errno) {
            (Ok(length), _) if !requests.writes() && length < self.end(requests) => error!(
                Io,
                "{description}: the file ends at {length}; it was truncated after its region was created"
            ),
            (_, Some(errno)) => Error::errno(description, errno),
            _ => error!(Io, "{description}: the kernel transferred 0 bytes"),
        }
    }

    fn end(&self, requests: &FileRequests) -> u64 {
        let FileRequest { offset, size, .. } = *requests.get(self.request);
        offset + size
    }
}

fn length(file: i32) -> Result<u64> {
    // SAFETY: the transfer holds the layout, and so the region with the open file, until its run is over.
    let file = unsafe { BorrowedFd::borrow_raw(file) };
    let stat = retried::fstat(file).map_err(|errno| Error::errno("query the length of a file", errno))?;
    Ok(stat.st_size as u64)
}

#[cfg(test)]
mod tests {
    use super::super::file_requests::Piece;
    use super::*;
    use crate::base::Status;

    fn requests(writes: bool) -> FileRequests {
        let piece = |offset, address| Piece { file: 0, offset, address, size: 100 };
        FileRequests::gather(vec![piece(1000, 1), piece(1100, 5000)], writes).unwrap()
    }

    #[test]
    fn after_a_short_write_the_rest_is_written() {
        let requests = requests(true);
        let mut operation = FileOperation::new(0);
        assert!(matches!(operation.advance(&requests, Ok(130)), IoStep::Again));
        let call = operation.next_call(&requests);
        assert_eq!((call.offset, call.spans), (1130, &[IoSpan { address: 5030, size: 70 }][..]));
        assert!(matches!(operation.advance(&requests, Ok(70)), IoStep::Done));
    }

    #[test]
    fn an_interrupted_call_is_repeated_a_limited_number_of_times() {
        let requests = requests(false);
        let mut operation = FileOperation::new(0);
        let before = counters::FILE_RETRIES.value();
        for _ in 0..MAX_DELAYS {
            assert!(matches!(operation.advance(&requests, Err(Errno::INTR)), IoStep::Again));
        }
        // Other tests may add to it.
        assert!(counters::FILE_RETRIES.value() - before >= MAX_DELAYS.into());
        let IoStep::Failed(error) = operation.advance(&requests, Err(Errno::AGAIN)) else {
            panic!("no failure")
        };
        assert_eq!(error.status(), Status::Io);
    }

    #[test]
    fn an_error_keeps_the_errno_of_the_kernel() {
        let requests = requests(true);
        for (errno, status) in [(Errno::NOSPC, Status::OutOfMemory), (Errno::IO, Status::Io)] {
            let IoStep::Failed(error) = FileOperation::new(0).advance(&requests, Err(errno)) else {
                panic!("no failure")
            };
            assert_eq!(error.status(), status);
            assert_eq!(error.cause(), Some(&crate::base::error::Cause::Errno(errno.raw_os_error())));
        }
    }

    #[test]
    fn a_write_of_no_bytes_without_an_errno_fails() {
        let IoStep::Failed(error) = FileOperation::new(0).advance(&requests(true), Ok(0)) else {
            panic!("no failure")
        };
        assert_eq!(error.status(), Status::Io);
    }
}
