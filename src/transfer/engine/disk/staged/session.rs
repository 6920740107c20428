// SPDX-License-Identifier: Apache-2.0
//! A thread's time with a staging ring: it keeps both the file and the GPU at work, and sleeps in between.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::io::Work;
use super::super::requests::Requests;
use super::flight::Flight;
use super::inbox::{Answer, Inbox};
use super::ring::{Ring, SLOTS};
use crate::cuda::copy::{Batch, EngineLoad, SourceOrder};
use crate::cuda::ending::{is_fatal, is_over};
use crate::error::{Error, Result};

/// How long the thread polls the GPU before it begins to sleep in between.
const SPIN: Duration = Duration::from_micros(200);
const SLEEP: Duration = Duration::from_micros(20);
/// Where only answers are waited for, which wake it.
const LONG: Duration = Duration::from_secs(1);

/// What the thread knows of runs under way.
pub struct Session<'a> {
    inbox: &'a Inbox,
    flights: Vec<Option<Flight>>,
    vacant: Vec<usize>,
    /// Runs with chunks to begin with, in order of submission.
    waiting: VecDeque<usize>,
    slots: [Slot; SLOTS],
}

/// What a slot is at.
#[derive(Clone, Copy, Default)]
enum Slot {
    #[default]
    Free,
    /// The file is read to it, or written from it.
    AtFile(Chunk),
    /// The GPU copies from or to it.
    AtDevice(Chunk),
    /// Some copies were started, and then one could not be.
    Failing(Chunk),
}

#[derive(Clone, Copy)]
struct Chunk {
    flight: usize,
    index: usize,
}

impl<'a> Session<'a> {
    pub fn new(inbox: &'a Inbox) -> Self {
        Self {
            inbox,
            flights: Vec::new(),
            vacant: Vec::new(),
            waiting: VecDeque::new(),
            slots: Default::default(),
        }
    }

    /// Goes on until nothing is under way.
    pub fn run(&mut self) {
        let mut progress = Instant::now();
        while let Some((new, answers)) = self.inbox.take_new(self.is_idle()) {
            let came = !new.is_empty() || !answers.is_empty();
            self.begin(new);
            answers.into_iter().for_each(|answer| self.answered(answer));
            let copied = self.poll();
            self.fill();
            if came || copied || self.is_idle() {
                progress = Instant::now();
            } else {
                self.rest(progress);
            }
        }
    }

    /// Ends all runs after a panic.
    pub fn give_up(&mut self, error: &Error) {
        let left = std::mem::take(&mut self.flights);
        left.into_iter().flatten().for_each(|flight| flight.give_up(error.clone()));
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.slots.iter().all(|slot| matches!(slot, Slot::Free))
    }

    fn rest(&self, progress: Instant) {
        let at_device = self.slots.iter().any(|slot| matches!(slot, Slot::AtDevice(_) | Slot::Failing(_)));
        match at_device {
            false => self.inbox.sleep(LONG),
            true if progress.elapsed() < SPIN => std::thread::yield_now(),
            true => self.inbox.sleep(SLEEP),
        }
    }

    fn begin(&mut self, new: Vec<Flight>) {
        for flight in new {
            let index = self.vacant.pop().unwrap_or(self.flights.len());
            match self.flights.get_mut(index) {
                Some(place) => *place = Some(flight),
                None => self.flights.push(Some(flight)),
            }
            self.waiting.push_back(index);
        }
    }

    /// Puts chunks into free slots.
    fn fill(&mut self) {
        for which in &self.waiting {
            if let Some(flight) = &mut self.flights[*which] {
                flight.give_up_if_cancelled();
            }
        }
        while let Some(which) = self.waiting.front().copied() {
            let Some(flight) = self.flights[which].as_mut().filter(|flight| !flight.is_begun()) else {
                self.waiting.pop_front();
                self.end_if_over(which);
                continue;
            };
            let Some(slot) = self.slots.iter().position(|slot| matches!(slot, Slot::Free)) else { return };
            let chunk = Chunk { flight: which, index: flight.next };
            flight.next += 1;
            flight.under_way += 1;
            match flight.prepared.writes {
                true => self.copy(slot, chunk),
                false => self.transfer(slot, chunk),
            }
        }
    }

    /// Starts a chunk's I/O.
    fn transfer(&mut self, slot: usize, chunk: Chunk) {
        let Some(flight) = &self.flights[chunk.flight] else { return };
        let Flight { prepared, ring, .. } = flight;
        let pieces = prepared.chunks.in_file(&prepared.chunks.list[chunk.index], ring.slot(slot));
        let requests = Arc::new(Requests::gather(pieces, prepared.writes));
        let (inbox, stop) = (ring.inbox.clone(), flight.stop());
        let ending = Box::new(move |outcome| inbox.answer(Answer { slot, outcome }));
        self.slots[slot] = Slot::AtFile(chunk);
        prepared.io.start(Work { range: 0..requests.len(), requests, stop, ending });
    }

    /// A chunk's I/O is over.
    fn answered(&mut self, answer: Answer) {
        let Slot::AtFile(chunk) = self.slots[answer.slot] else { return };
        let writes = self.flights[chunk.flight].as_ref().is_some_and(|flight| flight.prepared.writes);
        match answer.outcome {
            Ok(()) if !writes => self.copy(answer.slot, chunk),
            outcome => self.leave(answer.slot, chunk, outcome),
        }
    }

    /// Starts a chunk's copies.
    fn copy(&mut self, slot: usize, chunk: Chunk) {
        let outcome = self.enqueue(slot, chunk);
        self.slots[slot] = match outcome {
            Ok(()) => Slot::AtDevice(chunk),
            Err(error) => {
                self.fail(chunk, error);
                Slot::Failing(chunk)
            }
        };
    }

    fn enqueue(&self, slot: usize, chunk: Chunk) -> Result<()> {
        let Some(flight) = &self.flights[chunk.flight] else { return Ok(()) };
        let Flight { prepared, ring, .. } = flight;
        let part = &prepared.chunks.list[chunk.index];
        let copies = prepared.chunks.on_device(part, ring.slot(slot), !prepared.writes);
        // What comes from the file is in the slot by now.
        let reading = if prepared.writes { SourceOrder::Stream } else { SourceOrder::Any };
        let on = ring.stream.activate()?;
        // SAFETY: the plan checked the GPU's spans against their layout, which the flight holds; the slot is this
        // chunk's alone until the driver is done with it.
        unsafe { on.copy_all(&Batch::new(copies.into_iter()), reading, EngineLoad::Idle)? };
        on.record(&ring.copied[slot])
    }

    /// Sees to slots that the GPU is done with; answers whether there were any.
    fn poll(&mut self) -> bool {
        let mut any = false;
        for slot in 0..SLOTS {
            let mut failure = None;
            let (chunk, done) = match self.slots[slot] {
                Slot::AtDevice(chunk) => {
                    (chunk, self.ask(chunk, &mut failure, |ring| ring.copied[slot].is_done()))
                }
                Slot::Failing(chunk) => (chunk, self.ask(chunk, &mut failure, |ring| ring.stream.is_done())),
                _ => continue,
            };
            let is_failing = matches!(self.slots[slot], Slot::Failing(_));
            match failure {
                // What its mark says is not to be trusted: all of the stream is waited for.
                Some(error) if !is_failing => {
                    self.slots[slot] = Slot::Failing(chunk);
                    self.fail(chunk, error);
                }
                _ if done => self.copied(slot, chunk),
                _ => continue,
            }
            any = true;
        }
        any
    }

    fn ask(
        &self,
        chunk: Chunk,
        failure: &mut Option<Error>,
        is_done: impl Fn(&Ring) -> Result<bool>,
    ) -> bool {
        let flight = self.flights[chunk.flight].as_ref();
        flight.is_none_or(|flight| is_over(|| is_done(&flight.ring), failure))
    }

    fn copied(&mut self, slot: usize, chunk: Chunk) {
        let is_failing = matches!(self.slots[slot], Slot::Failing(_));
        let writes = self.flights[chunk.flight].as_ref().is_some_and(|flight| flight.prepared.writes);
        match writes && !is_failing {
            true => self.transfer(slot, chunk),
            false => self.leave(slot, chunk, Ok(())),
        }
    }

    fn fail(&mut self, chunk: Chunk, error: Error) {
        if let Some(flight) = &mut self.flights[chunk.flight] {
            if is_fatal(&error) {
                flight.ring.retire();
            }
            flight.fail(error);
        }
    }

    /// A chunk is done with its slot.
    fn leave(&mut self, slot: usize, chunk: Chunk, outcome: Result<()>) {
        self.slots[slot] = Slot::Free;
        if let Some(flight) = &mut self.flights[chunk.flight] {
            flight.under_way -= 1;
            if let Err(error) = outcome {
                flight.fail(error);
            }
        }
        self.end_if_over(chunk.flight);
    }

    fn end_if_over(&mut self, which: usize) {
        let is_over = |flight: &mut Flight| flight.under_way == 0 && flight.is_begun();
        if let Some(flight) = self.flights[which].take_if(is_over) {
            self.vacant.push(which);
            flight.end();
        }
    }
}
