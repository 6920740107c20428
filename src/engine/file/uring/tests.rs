// SPDX-License-Identifier: Apache-2.0
//! After a panic of the ring's thread, other runs fail, and later ones work.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::super::file_requests::{FileRequests, Piece};
use super::super::planned::RequestSource;
use super::super::work::{Ending, FileJob, Work};
use super::*;
use crate::base::{Mutex, Result, retried};
use crate::run::{Completion, FileProgress, Stop, Ticket};

const PATIENCE: Duration = Duration::from_secs(20);

/// Lets one request begin at a time, and notes what each has done. At the end of the first of two writes to a pipe, waits for the second.
struct OneByOne(Mutex<Vec<&'static str>>, std::io::PipeReader);

impl FileProgress for OneByOne {
    fn may_begin(&self, in_flight: u64, _left: u64) -> bool {
        in_flight == 0
    }

    fn begun(&self) {
        self.0.lock().push("begun");
    }

    fn moved(&self, offset: u64, _size: u64) {
        if offset == 0 {
            (&self.1).read_exact(&mut [0; 8]).unwrap();
            let mut fds = [PollFd::new(&self.1, PollFlags::IN)];
            self.0.lock().extend((retried::poll(&mut fds, Some(PATIENCE)) == Ok(1)).then_some("next"));
        }
        self.0.lock().push("moved");
    }
}

fn ring(on: &FileSystems) -> Option<Arc<Uring>> {
    let ring = Uring::get(on).ok();
    if ring.is_none() {
        crate::skip::skip("io_uring: this kernel has none, or does not permit it to this process");
    }
    ring
}

/// What is reported may wake threads, which would take the processor of the ring's thread.
#[test]
fn a_request_begins_when_it_may_and_is_submitted_before_the_end_of_another_is_reported() {
    let Some(uring) = ring(&Arc::default()) else { return };
    let (reader, writer) = std::io::pipe().unwrap();
    let memory = Box::leak(Box::new([1u8; 16])).as_ptr() as u64;
    let piece = |at: u64| Piece { file: writer.as_raw_fd(), offset: at * 2, address: memory + at, size: 8 };
    let requests = Arc::new(FileRequests::gather([0, 8].map(piece), true).unwrap());
    let noted = Arc::new(OneByOne(Mutex::default(), reader));
    let stop = Stop::reporting_to(noted.clone());
    let (sender, end) = channel();
    let ending = Ending::OfSlot { to: Arc::new(move |end| sender.send(end).unwrap()), slot: 0 };
    uring.start(FileJob::new(Work { requests: RequestSource::listed(requests), stop, ending }));
    end.recv_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(*noted.0.lock(), ["begun", "next", "moved", "begun", "moved"]);
}

/// A read of a pipe, which ends when the test has written to the pipe.
fn read(
    file: i32,
    into: &'static mut [u8],
    stop: Stop,
    ended: impl Fn(Result<()>) + Send + Sync + 'static,
) -> Arc<FileJob> {
    let piece = Piece { file, offset: 0, address: into.as_mut_ptr() as u64, size: into.len() as u64 };
    let requests = Arc::new(FileRequests::gather([piece], false).unwrap());
    let ending = Ending::OfSlot { to: Arc::new(ended), slot: 0 };
    FileJob::new(Work { requests: RequestSource::listed(requests), stop, ending })
}

/// A read, and the receiver of its outcome.
fn read_with_outcome(file: i32, into: &'static mut [u8]) -> (Arc<FileJob>, Receiver<Result<()>>) {
    let (sender, receiver) = channel();
    (read(file, into, Stop::default(), move |outcome| sender.send(outcome).unwrap()), receiver)
}

#[test]
fn a_panic_ends_all_runs_when_the_kernel_no_longer_uses_their_memory() {
    // Without a ring there is no thread that could panic.
    let Some(uring) = ring(&Arc::default()) else { return };
    let (other_reader, mut other_writer) = std::io::pipe().unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let memory = || Box::leak(Box::new([0; 8]));

    let (waiting, end) = read_with_outcome(other_reader.as_raw_fd(), memory());
    let (sender, panics) = channel();
    uring.start(waiting);
    uring.start(read(reader.as_raw_fd(), memory(), Stop::default(), move |_| {
        sender.send(()).unwrap();
        panic!("deliberate")
    }));
    writer.write_all(&[1; 8]).unwrap();
    panics.recv_timeout(PATIENCE).unwrap();
    assert!(end.try_recv().is_err(), "the kernel still uses its memory");
    other_writer.write_all(&[1; 8]).unwrap();
    end.recv_timeout(PATIENCE).unwrap().unwrap_err().assert_is(Status::Panic, "deliberate");

    let (next, end) = read_with_outcome(other_reader.as_raw_fd(), memory());
    uring.start(next);
    other_writer.write_all(&[2; 8]).unwrap();
    assert!(end.recv_timeout(PATIENCE).unwrap().is_ok());
}

/// All requests that a ring has at a time are to a file system that does not respond. What waits behind them can be cancelled.
#[test]
fn a_file_system_that_does_not_respond_delays_no_other() {
    let [hung, other]: [FileSystems; 2] = [Arc::from([(250, 1)]), Arc::from([(250, 2)])];
    let (Some(uring), Some(others)) = (ring(&hung), ring(&other)) else { return };
    let memory = || Box::leak(Box::new([0; 8]));
    let (silent, writer) = std::io::pipe().unwrap();
    let waiting: Vec<_> = (0..2 * ring::DEPTH)
        .map(|_| {
            let (work, end) = read_with_outcome(silent.as_raw_fd(), memory());
            uring.start(work);
            end
        })
        .collect();
    let completion = Arc::new(Completion::new(1, None));
    let run = Ticket::unheld(&completion, Default::default()).start();
    let (sender, cancelled) = channel();
    let report = move |outcome| sender.send(outcome).unwrap();
    let behind = read(silent.as_raw_fd(), memory(), run.stop(), report);
    uring.start(behind.clone());
    completion.cancel().unwrap();
    behind.end_if_cancelled();
    assert_eq!(cancelled.recv_timeout(PATIENCE).unwrap().unwrap_err().status(), Status::Cancelled);

    let (reader, mut filled) = std::io::pipe().unwrap();
    filled.write_all(&[1; 8]).unwrap();
    let (work, end) = read_with_outcome(reader.as_raw_fd(), memory());
    others.start(work);
    assert!(end.recv_timeout(PATIENCE).unwrap().is_ok());
    assert!(waiting.iter().all(|end| end.try_recv().is_err()));
    // Reads of a pipe without a writer end.
    drop(writer);
    waiting.iter().for_each(|end| drop(end.recv_timeout(PATIENCE).unwrap()));
}
