// SPDX-License-Identifier: Apache-2.0
//! The work of the ring's thread: it submits requests to the kernel, a bounded number at a time, and sleeps until one of
//! them completes.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};
use rustix::io::Errno;

use super::super::file_requests::FileRequests;
use super::super::operation::{FileOperation, IoCall, IoStep};
use super::super::work::{FileJob, Report};
use super::ring::{DEPTH, Ring};
use crate::base::Error;

/// Maximum number of bytes in the kernel. A single request may be larger.
const MAX_BYTES: u64 = 32 << 20;
/// The `user_data` of the poll of the event fd.
const WAKE: u64 = u64::MAX;
/// How long the thread sleeps if the kernel accepts no entries and has no completions.
const PAUSE: Duration = Duration::from_millis(1);
/// How long the kernel may refuse all entries for lack of a resource, before the work fails.
const PATIENCE: Duration = Duration::from_secs(5);

/// The work in flight, and the requests in the kernel.
pub struct UringSession {
    ring: Arc<Ring>,
    /// Work that was received and has not begun.
    new: VecDeque<Arc<FileJob>>,
    in_flight: BTreeMap<WorkNumber, Arc<FileJob>>,
    last_number: WorkNumber,
    /// Work with requests that were not submitted, served round-robin.
    ready: VecDeque<WorkNumber>,
    /// Requests in the kernel. The index is the entry's `user_data`.
    slots: Vec<Option<RingSlot>>,
    /// Indices of unused slots.
    free: Vec<usize>,
    /// The `user_data` of entries that the kernel has not accepted yet.
    unaccepted: VecDeque<u64>,
    /// Number of entries without a completion, except the poll of the event fd.
    uncompleted: usize,
    /// Bytes of the requests in the kernel.
    bytes: u64,
    /// Since when the kernel has refused all entries.
    refused_since: Option<Instant>,
    /// Completions, as pairs of `user_data` and result. Empty except while they are handled.
    completed: Vec<(u64, i32)>,
    /// What is reported after the next requests were submitted, and may be the end of its work.
    reports: Vec<(WorkNumber, Report)>,
}

/// A number that no other work of the session has.
type WorkNumber = u64;

/// A request in the kernel, and the work that it belongs to.
struct RingSlot {
    work: WorkNumber,
    requests: Arc<FileRequests>,
    operation: FileOperation,
}

impl UringSession {
    pub fn new(ring: Arc<Ring>) -> Self {
        Self {
            ring,
            new: VecDeque::new(),
            in_flight: BTreeMap::new(),
            last_number: 0,
            ready: VecDeque::new(),
            slots: (0..DEPTH).map(|_| None).collect(),
            free: (0..DEPTH).collect(),
            unaccepted: VecDeque::new(),
            uncompleted: 0,
            bytes: 0,
            refused_since: None,
            completed: Vec::new(),
            reports: Vec::new(),
        }
    }

    /// Whether no work is in flight.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.free.len() == DEPTH && self.reports.is_empty()
    }

    pub fn receive(&mut self, new: &mut VecDeque<Arc<FileJob>>) {
        self.new.append(new);
    }

    /// Ends new work with an error instead of beginning it.
    pub fn reject_new(&mut self, error: &Error) {
        FileJob::end_all(self.new.drain(..), error);
    }

    pub fn begin(&mut self) {
        while let Some(job) = self.new.pop_front() {
            if job.end_if_over() {
                continue;
            }
            self.last_number += 1;
            self.in_flight.insert(self.last_number, job);
            self.ready.push_back(self.last_number);
        }
    }

    /// Submits as many requests as the limits permit, reports, sleeps until one completes, and handles the completions.
    pub fn step(&mut self) {
        self.fill();
        self.report();
        if self.is_idle() {
            return;
        }
        self.watch();
        let error = self.submit_and_wait();
        let mut completed = self.take_completed();
        let has_none = completed.is_empty();
        for (user_data, result) in completed.drain(..).filter(|(user_data, _)| *user_data != WAKE) {
            self.handle(user_data as usize, result);
        }
        self.completed = completed;
        match error {
            Some(error) if has_none => self.stalled(error),
            _ => self.refused_since = None,
        }
    }

    /// Ends all work after a panic. Waits first until the kernel uses no memory of any of it. Begins no further requests.
    pub fn abandon(mut self, panic: &Error) {
        while self.uncompleted > 0 {
            let error = self.submit_and_wait();
            let has_none = self.take_completed().is_empty();
            match error {
                Some(error) if has_none && !self.is_transient(&error) => {
                    self.ring.set_broken();
                    break;
                }
                Some(_) if has_none => std::thread::sleep(PAUSE),
                _ => {}
            }
        }
        FileJob::end_all(self.in_flight.into_values().chain(self.new), panic);
    }

    /// Submits the entries and waits for a completion. Returns the kernel's error, unless a signal interrupted the call. It is EAGAIN
    /// if the kernel accepts none and reports none: without a completion, that would be repeated without a pause or an end.
    fn submit_and_wait(&mut self) -> Option<std::io::Error> {
        let (result, left) = (self.ring.io.submit_and_wait(1), self.unaccepted.len());
        self.note_accepted();
        let is_refused = self.unaccepted.len() == left;
        let error =
            result.err().or_else(|| is_refused.then(|| std::io::Error::from_raw_os_error(libc::EAGAIN)));
        error.filter(|error| error.raw_os_error() != Some(libc::EINTR))
    }

    /// Submits first what has been added: what is reported may wake threads, which could take the processor, or compare blocks.
    fn report(&mut self) {
        let mut reports = std::mem::take(&mut self.reports);
        if !reports.is_empty() && !self.unaccepted.is_empty() {
            // What the kernel does not accept is submitted again before the thread sleeps, and then a failure is handled.
            let _ = self.ring.io.submit();
            self.note_accepted();
        }
        for (number, report) in reports.drain(..) {
            report.make();
            self.end_if_over(number);
        }
        self.reports = reports;
    }

    fn fill(&mut self) {
        while let (Some(number), true) = (self.ready.front().copied(), self.has_capacity()) {
            self.ready.pop_front();
            let Some(job) = self.in_flight.get(&number) else { continue };
            if !job.may_begin() {
                continue;
            }
            let Some(((requests, request), begun)) = job.take() else {
                self.end_if_over(number);
                continue;
            };
            if job.has_more() {
                self.ready.push_back(number);
            }
            self.reports.extend(begun.map(|report| (number, report)));
            self.add(RingSlot { work: number, requests, operation: FileOperation::new(request) });
        }
    }

    fn has_capacity(&self) -> bool {
        !self.free.is_empty() && (self.bytes < MAX_BYTES || self.free.len() == DEPTH)
    }

    fn add(&mut self, slot: RingSlot) {
        let Some(index) = self.free.pop() else { return };
        self.bytes += slot.operation.size(&slot.requests);
        self.slots[index] = Some(slot);
        self.push_request(index);
    }

    /// Adds the request of a slot, or what remains of it, to the ring.
    fn push_request(&mut self, index: usize) {
        let Some(RingSlot { requests, operation, .. }) = &self.slots[index] else { return };
        let mut entry = entry(&operation.next_call(requests), requests.writes());
        if operation.is_delayed() {
            // A kernel thread executes it, which may wait.
            entry = entry.flags(Flags::ASYNC);
        }
        self.push(entry, index as u64);
    }

    fn push(&mut self, entry: Entry, user_data: u64) {
        // SAFETY: only this thread uses the ring. The entry's pointers stay valid until its completion: the run holds the
        // memory until its outcome is reported, and the slot holds the spans, which are not moved or freed before.
        let pushed = unsafe { self.ring.io.submission_shared().push(&entry.user_data(user_data)) };
        debug_assert!(pushed.is_ok(), "there is an entry for each slot");
        self.uncompleted += usize::from(user_data != WAKE);
        self.unaccepted.push_back(user_data);
    }

    /// Removes the accepted entries from `unaccepted`: the kernel accepts them in order.
    fn note_accepted(&mut self) {
        // SAFETY: only this thread uses the ring.
        let left = unsafe { self.ring.io.submission_shared() }.len();
        self.unaccepted.drain(..self.unaccepted.len().saturating_sub(left));
    }

    /// Adds the poll of the event fd to the ring, unless it is pending.
    fn watch(&mut self) {
        if !self.ring.is_watching.swap(true, Ordering::Relaxed) {
            let fd = types::Fd(self.ring.event.as_fd().as_raw_fd());
            self.push(opcode::PollAdd::new(fd, libc::POLLIN as u32).build(), WAKE);
        }
    }

    /// Takes all completions as pairs of `user_data` and result. Updates the counts before any of them is handled, because
    /// handling one may panic.
    fn take_completed(&mut self) -> Vec<(u64, i32)> {
        let mut completed = std::mem::take(&mut self.completed);
        // SAFETY: only this thread uses the ring.
        let entries = unsafe { self.ring.io.completion_shared() };
        completed.extend(entries.map(|entry| (entry.user_data(), entry.result())));
        self.uncompleted -= completed.iter().filter(|(user_data, _)| *user_data != WAKE).count();
        if completed.iter().any(|(user_data, _)| *user_data == WAKE) {
            self.woken();
        }
        completed
    }

    /// Handles the end of the poll of the event fd. The kernel also ends it when the thread that added it ends.
    fn woken(&self) {
        self.ring.event.clear();
        self.ring.is_watching.store(false, Ordering::Relaxed);
    }

    fn handle(&mut self, index: usize, result: i32) {
        let Some(RingSlot { work, requests, operation }) = self.slots.get_mut(index).and_then(Option::as_mut)
        else {
            return;
        };
        let work = *work;
        let result = u64::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
        let request = *operation.request(requests);
        let outcome = match operation.advance(requests, result) {
            IoStep::Again => return self.push_request(index),
            IoStep::Failed(error) => Err(error),
            IoStep::Done => Ok(request),
        };
        self.bytes -= request.size;
        self.slots[index] = None;
        self.free.push(index);
        if let Some(job) = self.in_flight.get(&work) {
            let moved = job.ended(outcome);
            if job.goes_on() {
                self.ready.push_back(work);
            }
            match moved {
                Some(report) => self.reports.push((work, report)),
                None => self.end_if_over(work),
            }
        }
    }

    fn end_if_over(&mut self, number: WorkNumber) {
        if self.in_flight.get(&number).is_some_and(|job| job.end_if_over()) {
            self.in_flight.remove(&number);
        }
    }

    /// Handles an error of the kernel: waits if it is transient, otherwise fails all work and closes the ring.
    fn stalled(&mut self, error: std::io::Error) {
        if self.is_transient(&error) {
            return std::thread::sleep(PAUSE);
        }
        self.ring.set_broken();
        let code = error.raw_os_error().unwrap_or(libc::EIO);
        let error = Error::errno("submit requests to io_uring", Errno::from_raw_os_error(code));
        FileJob::end_all(std::mem::take(&mut self.in_flight).into_values(), &error);
        *self = Self::new(self.ring.clone());
    }

    /// Whether to retry. If the kernel has accepted requests, it will complete them, and it uses their memory until then:
    /// so any error counts as transient.
    fn is_transient(&mut self, error: &std::io::Error) -> bool {
        let unaccepted = self.unaccepted.iter().filter(|user_data| **user_data != WAKE).count();
        if self.uncompleted > unaccepted {
            return true;
        }
        let is_retried = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM));
        is_retried && self.refused_since.get_or_insert_with(Instant::now).elapsed() < PATIENCE
    }
}

fn entry(call: &IoCall<'_>, writes: bool) -> Entry {
    let file = types::Fd(call.file);
    let count = call.spans.len() as u32;
    match call.spans {
        // For one span, these cost the kernel less than Writev and Readv.
        [span] if writes => {
            opcode::Write::new(file, span.address as *const u8, span.size as u32).offset(call.offset).build()
        }
        [span] => {
            opcode::Read::new(file, span.address as *mut u8, span.size as u32).offset(call.offset).build()
        }
        spans if writes => {
            opcode::Writev::new(file, spans.as_ptr().cast(), count).offset(call.offset).build()
        }
        spans => opcode::Readv::new(file, spans.as_ptr().cast(), count).offset(call.offset).build(),
    }
}
