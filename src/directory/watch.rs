// SPDX-License-Identifier: Apache-2.0
//! What the caller watches, what its calls wait for, and the events that it has not taken.

use std::collections::HashMap;
use std::time::Instant;

use super::board::Board;
use super::store::{Reply, Report, Request, State, Store};
use crate::base::{Condvar, Error, Mutex, Result, Taker, handoff};

#[derive(Default)]
pub struct Watch {
    pub state: Mutex<WatchState>,
    pub arrival: Condvar,
}

#[derive(Default)]
pub struct WatchState {
    pub board: Board,
    pub watched: Watched,
    /// What calls wait for, by name.
    pub awaited: HashMap<String, Arrivals>,
    pub bell: Option<Box<dyn Fn() + Send + Sync>>,
    /// The events that wait were reported.
    pub is_rung: bool,
    /// Why the store has ended: nothing arrives any more.
    ended: Option<Error>,
}

/// What is watched: names, and `None` for all. Reports of the rest are ignored: a store may execute a request later, whose
/// call has timed out.
#[derive(Default)]
pub struct Watched {
    names: HashMap<Option<String>, Watching>,
    last_call: u64,
}

/// A watch, and the calls that have not ended yet.
#[derive(Default)]
struct Watching {
    pending: Vec<u64>,
    is_confirmed: bool,
}

impl Watched {
    /// Whether reports of an agent are events.
    pub fn has(&self, name: &str) -> bool {
        self.contains(None) || self.contains(Some(name))
    }

    /// Whether the caller watches that name, or all.
    pub fn contains(&self, name: Option<&str>) -> bool {
        self.names.contains_key(&name.map(str::to_string))
    }

    /// A call begins to watch. Returns its number.
    pub fn begin(&mut self, name: Option<&str>) -> u64 {
        self.last_call += 1;
        self.names.entry(name.map(str::to_string)).or_default().pending.push(self.last_call);
        self.last_call
    }

    /// The call has succeeded or failed. Returns whether nothing is watched by it and by others.
    pub fn finish(&mut self, name: Option<&str>, call: u64, is_confirmed: bool) -> bool {
        let Some(watching) = self.names.get_mut(&name.map(str::to_string)) else { return false };
        let Some(index) = watching.pending.iter().position(|pending| *pending == call) else { return false };
        watching.pending.swap_remove(index);
        watching.is_confirmed |= is_confirmed;
        watching.pending.is_empty() && !watching.is_confirmed
    }

    pub fn end(&mut self, name: Option<&str>) {
        self.names.remove(&name.map(str::to_string));
    }
}

impl Watch {
    pub fn report(&self, mut report: Report) {
        let mut state = self.state.lock();
        state.note_arrivals(&report);
        if let Report::Ended(error) = &report {
            state.ended = Some(error.clone());
        }
        self.arrival.notify_all();
        match &mut report {
            Report::State(name, _) | Report::States { scope: Some(name), .. } if !state.watched.has(name) => {
                return;
            }
            Report::States { states, .. } => states.retain(|(name, _)| state.watched.has(name)),
            _ => {}
        }
        state.board.apply(report);
        ring(&mut state);
    }
}

impl WatchState {
    /// Fails if the store has ended, so that nothing is to be waited for.
    pub fn ensure_running(&self) -> Result<()> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    fn note_arrivals(&mut self, report: &Report) {
        if self.awaited.is_empty() {
            return;
        }
        let mut arrive = |name: &str| {
            if let Some(arrivals) = self.awaited.get_mut(name) {
                arrivals.count += 1;
            }
        };
        match report {
            Report::State(name, state) if *state != State::Absent => arrive(name),
            Report::States { states, .. } => states.iter().for_each(|(name, _)| arrive(name)),
            _ => {}
        }
    }
}

/// Rings the bell if events have arrived and none waited before. A bell only adds a completion to a queue.
pub fn ring(state: &mut WatchState) {
    if !state.board.has_events() {
        state.is_rung = false;
    } else if !state.is_rung
        && let Some(bell) = &state.bell
    {
        state.is_rung = true;
        bell();
    }
}

/// How often an agent was reported as published, and how many calls wait for it.
#[derive(Default)]
pub struct Arrivals {
    waiters: usize,
    count: u64,
}

/// An agent that a call waits for: the store watches it until this is dropped.
pub struct Awaited<'a> {
    watch: &'a Watch,
    store: &'a dyn Store,
    name: &'a str,
}

impl<'a> Awaited<'a> {
    /// Begins to wait. The reply to the request comes after the present state was reported.
    pub fn begin(
        watch: &'a Watch,
        store: &'a dyn Store,
        name: &'a str,
        deadline: Option<Instant>,
    ) -> (Self, Taker<Result<Reply>>) {
        let mut state = watch.state.lock();
        state.awaited.entry(name.to_string()).or_default().waiters += 1;
        let (giver, reply) = handoff();
        store.submit(Request::Watch(Some(name.to_string())), deadline, giver);
        (Self { watch, store, name }, reply)
    }

    /// Waits until the agent was reported as published more often than `seen`. Returns how often; `None` after the deadline.
    /// Fails if the store has ended.
    pub fn arrival(&self, seen: u64, deadline: Option<Instant>) -> Result<Option<u64>> {
        let mut state = self.watch.state.lock();
        loop {
            let count = state.awaited.get(self.name).map_or(0, |arrivals| arrivals.count);
            if count != seen {
                return Ok(Some(count));
            }
            state.ensure_running()?;
            let Ok(woken) = self.watch.arrival.wait_until(state, deadline) else { return Ok(None) };
            state = woken;
        }
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let mut state = self.watch.state.lock();
        if let Some(arrivals) = state.awaited.get_mut(self.name) {
            arrivals.waiters -= 1;
            if arrivals.waiters > 0 {
                return;
            }
            state.awaited.remove(self.name);
        }
        if !state.watched.contains(Some(self.name)) {
            self.store.submit(Request::Unwatch(Some(self.name.to_string())), None, handoff().0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_ends_no_watch_of_another_call() {
        let mut watched = Watched::default();
        let (first, second) = (watched.begin(Some("a")), watched.begin(Some("a")));
        assert!(!watched.finish(Some("a"), first, false), "the second call has not ended");
        assert!(!watched.finish(Some("a"), second, true));
        let third = watched.begin(Some("a"));
        assert!(!watched.finish(Some("a"), third, false), "it was watched before");
        assert!(watched.has("a") && !watched.has("b"));
        watched.end(Some("a"));
        let (all, late) = (watched.begin(None), third);
        assert!(!watched.finish(Some("a"), late, false));
        assert!(watched.has("b"));
        assert!(watched.finish(None, all, false));
    }
}
