// SPDX-License-Identifier: Apache-2.0
//! A thread's time with the ring: it hands requests to the kernel, a bounded number at a time, and sleeps until one of
//! them is over.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};
use rustix::io::Errno;

use super::super::operation::{IoCall, IoStep, Operation};
use super::super::work::Work;
use super::Uring;
use super::ring::DEPTH;
use crate::error::Error;
use crate::guarded::guarded;
use crate::log::log;
use crate::transfer::run::cancelled;

/// Bytes at the kernel at a time; one request may be more.
const MOST_BYTES: u64 = 32 << 20;
/// Marks what looks at the event fd.
const WAKE: u64 = u64::MAX;
/// How long the thread sleeps where the kernel takes nothing more and has nothing to answer.
const PAUSE: Duration = Duration::from_millis(1);

/// What the thread knows of requests under way.
pub struct UringSession<'a> {
    uring: &'a Uring,
    /// Work that has come, and was not looked at.
    new: VecDeque<Work>,
    flights: Vec<Option<WorkInFlight>>,
    vacant: Vec<usize>,
    /// Flights with requests to begin, which take turns.
    ready: VecDeque<usize>,
    /// What is at the kernel; the index is the entry's `user_data`.
    slots: Vec<Option<RingSlot>>,
    free: Vec<usize>,
    /// Entries of the ring that the kernel has not taken yet, by their `user_data`.
    untaken: VecDeque<u64>,
    /// Entries that were made and not answered, but for the one that looks at the event fd.
    unanswered: usize,
    bytes: u64,
}

/// Work under way.
struct WorkInFlight {
    work: Work,
    at_kernel: usize,
    failure: Option<Error>,
}

struct RingSlot {
    flight: usize,
    operation: Operation,
}

impl<'a> UringSession<'a> {
    pub fn new(uring: &'a Uring) -> Self {
        Self {
            uring,
            new: VecDeque::new(),
            flights: Vec::new(),
            vacant: Vec::new(),
            ready: VecDeque::new(),
            slots: (0..DEPTH).map(|_| None).collect(),
            free: (0..DEPTH).collect(),
            untaken: VecDeque::new(),
            unanswered: 0,
            bytes: 0,
        }
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.free.len() == DEPTH
    }

    /// Takes in new work.
    pub fn begin(&mut self, new: Vec<Work>) {
        self.new.extend(new);
        while let Some(work) = self.new.pop_front() {
            if work.range.is_empty() {
                (work.ending)(Ok(()));
                continue;
            }
            let flight = Some(WorkInFlight { work, at_kernel: 0, failure: None });
            let index = self.vacant.pop().unwrap_or(self.flights.len());
            match self.flights.get_mut(index) {
                Some(place) => *place = flight,
                None => self.flights.push(flight),
            }
            self.ready.push_back(index);
        }
    }

    /// Hands over what there is room for, sleeps until something is over, and sees to that.
    pub fn step(&mut self) {
        self.fill();
        if self.is_idle() {
            return;
        }
        self.watch();
        let error = self.submit_and_wait();
        let over = self.answers();
        let none = over.is_empty();
        for (what, answer) in over.into_iter().filter(|(what, _)| *what != WAKE) {
            self.answered(what as usize, answer);
        }
        if let (true, Some(error)) = (none, error) {
            self.stalled(error);
        }
    }

    /// Ends all after a panic, each once the kernel has let go of the memory of them all. What was begun goes on until
    /// then; nothing more is.
    pub fn abandon(mut self, panic: &Error) {
        while self.unanswered > 0 {
            let error = self.submit_and_wait();
            let over = self.answers();
            match error {
                Some(error) if over.is_empty() && !self.is_transient(&error) => {
                    self.uring.give_up();
                    break;
                }
                Some(_) if over.is_empty() => std::thread::sleep(PAUSE),
                _ => {}
            }
        }
        let begun = std::mem::take(&mut self.flights).into_iter().flatten().map(|flight| flight.work);
        for work in begun.chain(std::mem::take(&mut self.new)) {
            // One that panics again has told its end by being dropped.
            if let Err(again) = guarded(|| (work.ending)(Err(panic.clone()))) {
                log!(Error, "at the end of a run: {again}");
            }
        }
    }

    /// What the kernel says against it.
    fn submit_and_wait(&mut self) -> Option<std::io::Error> {
        let error = self.uring.ring.submit_and_wait(1).err();
        self.note_taken();
        error.filter(|error| error.raw_os_error() != Some(libc::EINTR))
    }

    fn fill(&mut self) {
        while let (Some(flight), true) = (self.ready.front().copied(), self.has_room()) {
            self.ready.pop_front();
            if self.flights[flight].as_mut().is_some_and(WorkInFlight::is_cancelled) {
                self.end_if_over(flight);
                continue;
            }
            let Some(request) = self.flights[flight].as_mut().and_then(WorkInFlight::take_next) else {
                continue;
            };
            self.enter(RingSlot { flight, operation: Operation::new(request) });
            if self.flights[flight].as_ref().is_some_and(|flight| !flight.work.range.is_empty()) {
                self.ready.push_back(flight);
            }
        }
    }

    fn has_room(&self) -> bool {
        !self.free.is_empty() && (self.bytes < MOST_BYTES || self.free.len() == DEPTH)
    }

    fn enter(&mut self, slot: RingSlot) {
        let (Some(flight), Some(index)) = (&self.flights[slot.flight], self.free.pop()) else { return };
        self.bytes += slot.operation.size(&flight.work.requests);
        self.slots[index] = Some(slot);
        self.hand_over(index);
    }

    fn hand_over(&mut self, index: usize) {
        let Some(slot) = &self.slots[index] else { return };
        let Some(flight) = &self.flights[slot.flight] else { return };
        let requests = &flight.work.requests;
        let mut entry = entry(&slot.operation.ask(requests), requests.writes());
        if slot.operation.is_delayed() {
            // By a thread of the kernel's, which may wait.
            entry = entry.flags(Flags::ASYNC);
        }
        self.push(entry, index as u64);
    }

    fn push(&mut self, entry: Entry, what: u64) {
        // SAFETY: this thread alone has the ring. What the entry names stays until its completion: the memory is held
        // by whoever gave the work, the spans by the work or the slot, neither of which is moved or freed before.
        let pushed = unsafe { self.uring.ring.submission_shared().push(&entry.user_data(what)) };
        debug_assert!(pushed.is_ok(), "there is an entry for each slot");
        self.unanswered += usize::from(what != WAKE);
        self.untaken.push_back(what);
    }

    /// The kernel takes entries in their order.
    fn note_taken(&mut self) {
        // SAFETY: this thread alone has the ring.
        let left = unsafe { self.uring.ring.submission_shared() }.len();
        self.untaken.drain(..self.untaken.len().saturating_sub(left));
    }

    /// Has the ring look at the event fd, if it does not.
    fn watch(&mut self) {
        if !self.uring.is_watching.swap(true, Ordering::Relaxed) {
            let fd = types::Fd(self.uring.wake.as_raw_fd());
            self.push(opcode::PollAdd::new(fd, libc::POLLIN as u32).build(), WAKE);
        }
    }

    /// What is over, and the kernel's answers. What is to be known of them all, whatever becomes of one, is noted.
    fn answers(&mut self) -> Vec<(u64, i32)> {
        // SAFETY: this thread alone has the ring.
        let over: Vec<_> = unsafe { self.uring.ring.completion_shared() }
            .map(|entry| (entry.user_data(), entry.result()))
            .collect();
        self.unanswered -= over.iter().filter(|(what, _)| *what != WAKE).count();
        if over.iter().any(|(what, _)| *what == WAKE) {
            self.woken();
        }
        over
    }

    /// Also when the thread that had the ring watch has ended.
    fn woken(&self) {
        // Empty is fine: then nobody woke us.
        let _ = rustix::io::read(&self.uring.wake, &mut [0u8; 8]);
        self.uring.is_watching.store(false, Ordering::Relaxed);
    }

    fn answered(&mut self, index: usize, answer: i32) {
        let Some(RingSlot { flight: which, operation }) = self.slots.get_mut(index).and_then(Option::as_mut)
        else {
            return;
        };
        let which = *which;
        let Some(flight) = &mut self.flights[which] else { return };
        let answer = u64::try_from(answer).map_err(|_| Errno::from_raw_os_error(-answer));
        match operation.advance(&flight.work.requests, answer) {
            IoStep::Again => return self.hand_over(index),
            IoStep::Failed(error) => flight.fail(error),
            IoStep::Done => {}
        }
        self.bytes -= operation.size(&flight.work.requests);
        flight.at_kernel -= 1;
        self.slots[index] = None;
        self.free.push(index);
        self.end_if_over(which);
    }

    fn end_if_over(&mut self, which: usize) {
        let is_over = |flight: &mut WorkInFlight| flight.at_kernel == 0 && flight.work.range.is_empty();
        let Some(flight) = self.flights[which].take_if(is_over) else { return };
        self.vacant.push(which);
        (flight.work.ending)(flight.failure.map_or(Ok(()), Err));
    }

    /// The kernel takes nothing more, for now or for good.
    fn stalled(&mut self, error: std::io::Error) {
        if self.is_transient(&error) {
            return std::thread::sleep(PAUSE);
        }
        self.uring.give_up();
        let code = error.raw_os_error().unwrap_or(libc::EIO);
        let error = Error::errno("submit requests to io_uring", Errno::from_raw_os_error(code));
        for flight in std::mem::take(&mut self.flights).into_iter().flatten() {
            (flight.work.ending)(Err(flight.failure.unwrap_or_else(|| error.clone())));
        }
        *self = Self::new(self.uring);
    }

    /// Whether there are answers to come all the same. What the kernel has it will answer; its memory is not let go
    /// before.
    fn is_transient(&self, error: &std::io::Error) -> bool {
        let untaken = self.untaken.iter().filter(|what| **what != WAKE).count();
        let is_passing = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM));
        is_passing || self.unanswered > untaken
    }
}

impl WorkInFlight {
    fn take_next(&mut self) -> Option<usize> {
        let next = self.work.range.next()?;
        self.at_kernel += 1;
        Some(next)
    }

    /// Whether its user wants no more of it: what has not begun is given up.
    fn is_cancelled(&mut self) -> bool {
        let gives_up = !self.work.range.is_empty() && self.work.stop.is_asked();
        if gives_up {
            self.fail(cancelled());
        }
        gives_up
    }

    /// Nothing more is begun; what is at the kernel is waited for.
    fn fail(&mut self, error: Error) {
        self.work.range.start = self.work.range.end;
        self.failure.get_or_insert(error);
    }
}

fn entry(ask: &IoCall<'_>, writes: bool) -> Entry {
    let file = types::Fd(ask.file);
    let count = ask.spans.len() as u32;
    match ask.spans {
        // One span costs the kernel less by itself.
        [span] if writes => {
            opcode::Write::new(file, span.address as *const u8, span.size as u32).offset(ask.offset).build()
        }
        [span] => {
            opcode::Read::new(file, span.address as *mut u8, span.size as u32).offset(ask.offset).build()
        }
        spans if writes => opcode::Writev::new(file, spans.as_ptr().cast(), count).offset(ask.offset).build(),
        spans => opcode::Readv::new(file, spans.as_ptr().cast(), count).offset(ask.offset).build(),
    }
}
