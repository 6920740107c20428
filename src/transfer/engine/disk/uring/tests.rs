// SPDX-License-Identifier: Apache-2.0
//! What becomes of other runs when the ring's thread panics.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::super::requests::{Piece, Requests};
use super::*;
use crate::error::Result;
use crate::transfer::run::completion::Completion;
use crate::transfer::run::{Run, Stop};

const PATIENCE: Duration = Duration::from_secs(20);

fn stop() -> Stop {
    let completion = Arc::new(Completion::new(1, None));
    Run::start(completion, Arc::new(AtomicBool::new(true)), Default::default(), Default::default()).stop()
}

/// A read of a pipe, which is over when somebody has written there.
fn read(file: i32, into: &'static mut [u8], ending: impl FnOnce(Result<()>) + Send + 'static) -> Work {
    let piece = Piece { file, offset: 0, address: into.as_mut_ptr() as u64, size: into.len() as u64 };
    let requests = Arc::new(Requests::gather(vec![piece], false));
    Work { range: 0..requests.len(), requests, stop: stop(), ending: Box::new(ending) }
}

fn told(work: impl FnOnce(Box<dyn FnOnce(Result<()>) + Send>) -> Work) -> (Work, Receiver<Result<()>>) {
    let (tell, told) = channel();
    (work(Box::new(move |outcome| tell.send(outcome).unwrap())), told)
}

#[test]
fn a_panic_ends_all_runs_once_the_kernel_is_done_with_their_memory_and_the_next_goes_on() {
    let Ok(uring) = Uring::get() else {
        // Without a ring there is no thread that could panic.
        return crate::skip::skip("io_uring: this kernel has none, or does not permit it to this process");
    };
    let (theirs, mut they) = std::io::pipe().unwrap();
    let (ours, mut we) = std::io::pipe().unwrap();
    let memory = || Box::leak(Box::new([0; 8]));

    let (waiting, end) = told(|ending| read(theirs.as_raw_fd(), memory(), ending));
    let (tell, panics) = channel();
    uring.start(waiting);
    uring.start(read(ours.as_raw_fd(), memory(), move |_| {
        tell.send(()).unwrap();
        panic!("deliberate")
    }));
    we.write_all(&[1; 8]).unwrap();
    panics.recv_timeout(PATIENCE).unwrap();
    assert!(end.try_recv().is_err(), "the kernel has its memory");
    they.write_all(&[1; 8]).unwrap();
    let error = end.recv_timeout(PATIENCE).unwrap().unwrap_err();
    assert_eq!(error.status(), Status::Panic);
    assert!(error.message().contains("deliberate"));

    let (next, end) = told(|ending| read(theirs.as_raw_fd(), memory(), ending));
    uring.start(next);
    they.write_all(&[2; 8]).unwrap();
    assert!(end.recv_timeout(PATIENCE).unwrap().is_ok());
}
