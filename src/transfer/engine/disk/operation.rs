// SPDX-License-Identifier: Apache-2.0
//! One read or write under way: what the kernel answers, and what is left to do. The kernel may do less than it was
//! asked; nothing is over before all of it is done.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use super::requests::{Request, Requests, Span, after};
use crate::advice;
use crate::error::{Error, Result, Status};

/// How often the kernel may put it off without a byte moved.
const MOST_DELAYS: u32 = 1000;

/// A request, and how far it is.
pub struct Operation {
    request: usize,
    done: u64,
    /// Of the spans, once some bytes are done.
    left: Vec<Span>,
    delays: u32,
}

/// What the kernel is asked for.
pub struct Ask<'a> {
    /// The open file.
    pub file: i32,
    /// Where in it.
    pub offset: u64,
    /// Where in memory.
    pub spans: &'a [Span],
}

/// What comes next.
#[derive(Debug)]
pub enum Next {
    /// All is done.
    Done,
    /// It is asked again, for what is left.
    Again,
    /// It can't be done.
    Failed(Error),
}

impl Operation {
    /// One that has not begun.
    pub fn new(request: usize) -> Self {
        Self { request, done: 0, left: Vec::new(), delays: 0 }
    }

    /// What is left to ask for.
    pub fn ask<'a>(&'a self, requests: &'a Requests) -> Ask<'a> {
        let Request { file, offset, .. } = *requests.get(self.request);
        let spans = if self.done == 0 { requests.spans(self.request) } else { &self.left };
        Ask { file, offset: offset + self.done, spans }
    }

    /// Whether the kernel has put it off.
    pub fn is_delayed(&self) -> bool {
        self.delays > 0
    }

    /// Bytes of it.
    pub fn size(&self, requests: &Requests) -> u64 {
        requests.get(self.request).size
    }

    /// Takes the kernel's answer.
    pub fn advance(&mut self, requests: &Requests, answer: std::result::Result<u64, Errno>) -> Next {
        let size = self.size(requests);
        match answer {
            Ok(0) => Next::Failed(self.ended(requests, None)),
            Ok(moved) => {
                self.done += moved;
                self.delays = 0;
                if self.done >= size {
                    return Next::Done;
                }
                self.left = after(requests.spans(self.request), self.done as usize);
                Next::Again
            }
            Err(Errno::INTR | Errno::AGAIN) if self.delays < MOST_DELAYS => {
                self.delays += 1;
                Next::Again
            }
            // Direct I/O takes no part that begins where a file of odd length ends.
            Err(Errno::INVAL) if self.done > 0 => Next::Failed(self.ended(requests, Some(Errno::INVAL))),
            Err(errno) => Next::Failed(self.refused(requests, errno)),
        }
    }

    fn doing(&self, requests: &Requests) -> String {
        let Request { offset, size, .. } = *requests.get(self.request);
        let (verb, way) = if requests.writes() { ("write", "to") } else { ("read", "from") };
        format!("{verb} {} bytes {way} a file at {}", size - self.done, offset + self.done)
    }

    fn refused(&self, requests: &Requests, errno: Errno) -> Error {
        let file = requests.get(self.request).file;
        // SAFETY: the transfer holds the layout, and so the region with the open file, until its run is over.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        let advice = (errno == Errno::NOSPC).then(|| advice::free_space(file)).flatten();
        Error::errno(self.doing(requests), errno).with_advice(advice)
    }

    /// The kernel goes no further, without an error: a file that was cut short.
    fn ended(&self, requests: &Requests, errno: Option<Errno>) -> Error {
        let doing = self.doing(requests);
        let length = length(requests.get(self.request).file);
        match (length, errno) {
            (Ok(length), _) if !requests.writes() && length < self.end(requests) => Error::new(
                Status::Io,
                format!("{doing}: the file ends at {length}; it was cut short after its region was made"),
            ),
            (_, Some(errno)) => Error::errno(doing, errno),
            _ => Error::new(Status::Io, format!("{doing}: the kernel moves none of them")),
        }
    }

    fn end(&self, requests: &Requests) -> u64 {
        let Request { offset, size, .. } = *requests.get(self.request);
        offset + size
    }
}

fn length(file: i32) -> Result<u64> {
    // SAFETY: the transfer holds the layout, and so the region with the open file, until its run is over.
    let file = unsafe { BorrowedFd::borrow_raw(file) };
    let stat = rustix::fs::fstat(file).map_err(|errno| Error::errno("ask for a file's length", errno))?;
    Ok(stat.st_size as u64)
}

#[cfg(test)]
mod tests {
    use super::super::requests::Piece;
    use super::*;

    fn requests(writes: bool) -> Requests {
        let piece = |offset, address| Piece { file: 0, offset, address, size: 100 };
        Requests::gather(vec![piece(1000, 1), piece(1100, 5000)], writes)
    }

    #[test]
    fn a_short_answer_is_asked_again_for_the_rest() {
        let requests = requests(true);
        let mut operation = Operation::new(0);
        assert!(matches!(operation.advance(&requests, Ok(130)), Next::Again));
        let ask = operation.ask(&requests);
        assert_eq!((ask.offset, ask.spans), (1130, &[Span { address: 5030, size: 70 }][..]));
        assert!(matches!(operation.advance(&requests, Ok(70)), Next::Done));
    }

    #[test]
    fn an_interruption_is_asked_again_but_not_for_ever() {
        let requests = requests(false);
        let mut operation = Operation::new(0);
        for _ in 0..MOST_DELAYS {
            assert!(matches!(operation.advance(&requests, Err(Errno::INTR)), Next::Again));
        }
        let Next::Failed(error) = operation.advance(&requests, Err(Errno::AGAIN)) else { panic!("goes on") };
        assert_eq!(error.status(), Status::Io);
    }

    #[test]
    fn what_the_kernel_refuses_keeps_its_cause() {
        let requests = requests(true);
        for (errno, status) in [(Errno::NOSPC, Status::OutOfMemory), (Errno::IO, Status::Io)] {
            let Next::Failed(error) = Operation::new(0).advance(&requests, Err(errno)) else {
                panic!("goes on")
            };
            assert_eq!(error.status(), status);
            assert_eq!(error.cause(), Some(&crate::error::Cause::Errno(errno.raw_os_error())));
        }
    }

    #[test]
    fn no_bytes_and_no_error_is_an_error() {
        let Next::Failed(error) = Operation::new(0).advance(&requests(true), Ok(0)) else {
            panic!("goes on")
        };
        assert_eq!(error.status(), Status::Io);
    }
}
