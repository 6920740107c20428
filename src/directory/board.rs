// SPDX-License-Identifier: Apache-2.0
//! What was reported to the watcher of a directory, and what is to be reported next. Pure.
//!
//! A caller that does not take its events must not cost memory: only the last state per agent is kept, and an event is the
//! difference between that and the state that was reported last. So an agent that was restarted twice since is one event.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::store::{Report, State};
use crate::base::{Error, Status, log};

/// The most agents whose state is kept: another process may write more to the directory.
pub const MAX_AGENTS: usize = 1 << 16;

#[derive(Clone, Debug)]
pub enum Change {
    /// The agent has an entry, and had none.
    Published,
    /// The agent was restarted: its entry is of another incarnation.
    Restarted,
    /// The entry of the agent has another version.
    Updated,
    /// The agent has no entry any more.
    Withdrawn,
    /// The entry of the agent is not valid, for this reason.
    Invalid(String),
    /// Another process has published an agent that this directory had published.
    Superseded,
    /// An entry of this directory was missing or damaged, and is published again.
    Restored,
    /// The directory cannot be reached, for this reason. Changes are reported later.
    Interrupted(Error),
    /// The directory is reached again. The changes in between follow.
    Resumed,
    /// There are more agents than are kept: the others are not reported.
    Full(Error),
}

#[derive(Clone, Debug)]
pub struct Event {
    /// The name of the agent; empty for the directory itself.
    pub agent: String,
    pub change: Change,
    /// The incarnation of the entry, or 0.
    pub incarnation: u64,
    /// The version of the entry, or 0.
    pub version: u64,
}

#[derive(Default)]
pub struct Board {
    agents: HashMap<String, Agent>,
    /// The agents with a difference, in the order in which it arose, by its number.
    changed: BTreeMap<u64, String>,
    last_change: u64,
    superseded: BTreeSet<String>,
    restored: BTreeSet<String>,
    /// Why the directory cannot be reached.
    trouble: Option<Error>,
    /// It was reported that it cannot be reached.
    reported_trouble: bool,
    /// An interruption that ended before it was reported. Both are reported.
    ended: Option<Error>,
    /// The known agents that the parts of a list so far have.
    listed: BTreeSet<String>,
    is_full: bool,
    is_full_reported: bool,
}

struct Agent {
    known: State,
    reported: State,
    /// The number of the difference.
    change: Option<u64>,
}

impl Board {
    pub fn has_events(&self) -> bool {
        !self.changed.is_empty()
            || !self.superseded.is_empty()
            || !self.restored.is_empty()
            || self.ended.is_some()
            || self.trouble.is_some() != self.reported_trouble
            || self.is_full != self.is_full_reported
    }

    pub fn apply(&mut self, report: Report) {
        match report {
            Report::State(name, state) => self.set(name, state),
            Report::States { scope, states, is_first, is_last } => {
                if is_first {
                    self.listed.clear();
                }
                for (name, state) in states {
                    self.set(name.clone(), state);
                    if self.agents.contains_key(&name) {
                        self.listed.insert(name);
                    }
                }
                if is_last {
                    self.withdraw_unlisted(scope.as_deref());
                }
            }
            Report::Superseded(name) => drop(self.superseded.insert(name)),
            Report::Restored(name) => drop(self.restored.insert(name)),
            Report::Interrupted(error) | Report::Ended(error) => self.trouble = Some(error),
            Report::Resumed => {
                let trouble = self.trouble.take();
                if !self.reported_trouble {
                    self.ended = trouble.or(self.ended.take());
                }
            }
        }
    }

    /// Those that a complete list does not have are absent.
    fn withdraw_unlisted(&mut self, scope: Option<&str>) {
        let listed = std::mem::take(&mut self.listed);
        let is_absent = |name: &&String| scope.is_none_or(|scope| scope == *name) && !listed.contains(*name);
        let absent: Vec<_> = self.agents.keys().filter(is_absent).cloned().collect();
        absent.into_iter().for_each(|name| self.set(name, State::Absent));
    }

    /// Forgets the agents that are not watched any more.
    pub fn retain(&mut self, is_watched: impl Fn(&str) -> bool) {
        self.agents.retain(|name, _| is_watched(name));
        self.changed.retain(|_, name| is_watched(name));
        (self.is_full, self.is_full_reported) = (false, false);
    }

    fn set(&mut self, name: String, state: State) {
        if !self.agents.contains_key(&name) {
            if state == State::Absent {
                return;
            }
            if self.agents.len() >= MAX_AGENTS {
                if !std::mem::replace(&mut self.is_full, true) {
                    log!(Warn, "{}", full());
                }
                return;
            }
        }
        let fresh = || Agent { known: State::Absent, reported: State::Absent, change: None };
        let agent = self.agents.entry(name.clone()).or_insert_with(fresh);
        agent.known = state;
        if agent.known == agent.reported {
            agent.change.take().and_then(|change| self.changed.remove(&change));
        } else if agent.change.is_none() {
            self.last_change += 1;
            agent.change = Some(self.last_change);
            self.changed.insert(self.last_change, name.clone());
        }
        self.forget_if_absent(&name);
    }

    fn forget_if_absent(&mut self, name: &str) {
        let is_over = |agent: &Agent| agent.known == State::Absent && agent.reported == State::Absent;
        if self.agents.get(name).is_some_and(is_over) {
            self.agents.remove(name);
        }
    }

    /// Removes all events and returns them.
    pub fn take(&mut self) -> Vec<Event> {
        let mut events = Vec::with_capacity(self.changed.len() + 2);
        let of_directory = |change| Event { agent: String::new(), change, incarnation: 0, version: 0 };
        if let Some(error) = self.ended.take() {
            events.push(of_directory(Change::Interrupted(error)));
            events.push(of_directory(Change::Resumed));
        }
        match (&self.trouble, self.reported_trouble) {
            (Some(error), false) => events.push(of_directory(Change::Interrupted(error.clone()))),
            (None, true) => events.push(of_directory(Change::Resumed)),
            _ => {}
        }
        self.reported_trouble = self.trouble.is_some();
        if self.is_full && !std::mem::replace(&mut self.is_full_reported, true) {
            events.push(of_directory(Change::Full(full())));
        }
        let of_own = |agent, change| Event { agent, change, incarnation: 0, version: 0 };
        events.extend(
            std::mem::take(&mut self.restored).into_iter().map(|name| of_own(name, Change::Restored)),
        );
        events.extend(
            std::mem::take(&mut self.superseded).into_iter().map(|name| of_own(name, Change::Superseded)),
        );
        for name in std::mem::take(&mut self.changed).into_values() {
            if let Some(agent) = self.agents.get_mut(&name) {
                agent.change = None;
                events.extend(difference(&name, &agent.reported, &agent.known));
                agent.reported = agent.known.clone();
            }
            self.forget_if_absent(&name);
        }
        events
    }
}

fn full() -> Error {
    let message = format!(
        "the directory has more than {MAX_AGENTS} agents, and the others are not reported; watch single agents"
    );
    Error::new(Status::OutOfMemory, message)
}

fn difference(name: &str, reported: &State, known: &State) -> Option<Event> {
    let event =
        |change, incarnation, version| Some(Event { agent: name.to_string(), change, incarnation, version });
    match (reported, known) {
        (reported, known) if reported == known => None,
        (State::Present(reported), State::Present(known)) => {
            let is_same = reported.incarnation == known.incarnation;
            event(if is_same { Change::Updated } else { Change::Restarted }, known.incarnation, known.version)
        }
        (_, State::Present(known)) => event(Change::Published, known.incarnation, known.version),
        (_, State::Invalid(reason)) => event(Change::Invalid(reason.clone()), 0, 0),
        (State::Present(reported), State::Absent) => {
            event(Change::Withdrawn, reported.incarnation, reported.version)
        }
        (_, State::Absent) => event(Change::Withdrawn, 0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::directory::entry::Presence;

    fn present(name: &str, incarnation: u64, version: u64) -> State {
        State::Present(Presence { name: name.to_string(), incarnation, version })
    }

    /// The events that are taken, as text: "a Published".
    fn changes(board: &mut Board) -> Vec<String> {
        let events = board.take();
        assert!(!board.has_events());
        events.into_iter().map(|event| format!("{} {:?}", event.agent, event.change)).collect()
    }

    fn set(board: &mut Board, name: &str, state: State) {
        board.apply(Report::State(name.to_string(), state));
    }

    #[test]
    fn changes_that_were_not_taken_are_one_event_or_none() {
        let mut board = Board::default();
        set(&mut board, "a", present("a", 1, 1));
        changes(&mut board);
        for state in [State::Absent, present("a", 2, 1), State::Absent, present("a", 3, 1)] {
            set(&mut board, "a", state);
        }
        assert_eq!(changes(&mut board), ["a Restarted"]);
        set(&mut board, "b", present("b", 1, 1));
        set(&mut board, "b", State::Absent);
        assert!(!board.has_events());
        assert_eq!(changes(&mut board), [""; 0]);
    }

    #[test]
    fn events_are_in_the_order_of_the_differences_that_are_left() {
        let mut board = Board::default();
        for name in ["c", "a", "b", "d"] {
            set(&mut board, name, present(name, 1, 1));
        }
        for state in [State::Absent, present("c", 1, 1), State::Absent] {
            set(&mut board, "a", state.clone());
            set(&mut board, "c", state);
        }
        set(&mut board, "a", present("a", 1, 1));
        assert_eq!(board.changed.len(), 3);
        assert_eq!(changes(&mut board), ["b Published", "d Published", "a Published"]);
    }

    #[test]
    fn agents_that_a_snapshot_lacks_are_withdrawn() {
        let mut board = Board::default();
        for name in ["a", "b", "c"] {
            set(&mut board, name, present(name, 1, 1));
        }
        changes(&mut board);
        let states = |scope: Option<&str>, states: Vec<(String, State)>, [is_first, is_last]: [bool; 2]| {
            Report::States { scope: scope.map(str::to_string), states, is_first, is_last }
        };
        let whole = [true, true];
        board.apply(states(Some("a"), Vec::new(), whole));
        assert_eq!(changes(&mut board), ["a Withdrawn"]);
        board.apply(states(None, vec![("c".to_string(), present("c", 2, 1))], whole));
        let mut found = changes(&mut board);
        found.sort();
        assert_eq!(found, ["b Withdrawn", "c Restarted"]);
        let one = |name: &str| vec![(name.to_string(), present(name, 2, 1))];
        board.apply(states(None, one("c"), [true, false]));
        board.apply(states(None, one("d"), [true, false])); // after the connection was lost
        board.apply(states(None, one("e"), [false, false]));
        assert_eq!(changes(&mut board), ["d Published", "e Published"]);
        board.apply(states(None, one("f"), [false, true]));
        assert_eq!(changes(&mut board), ["f Published", "c Withdrawn"]);
    }

    #[test]
    fn what_happens_to_own_entries_is_reported_once_until_it_is_taken() {
        let mut board = Board::default();
        for _ in 0..2 {
            board.apply(Report::Restored("a".to_string()));
            board.apply(Report::Superseded("a".to_string()));
        }
        assert!(board.has_events());
        assert_eq!(changes(&mut board), ["a Restored", "a Superseded"]);
    }

    #[test]
    fn an_interruption_is_reported_even_if_it_is_over() {
        let mut board = Board::default();
        let error = || Error::new(Status::Io, "gone");
        let kinds = |board: &mut Board| -> Vec<&str> {
            let name = |event: Event| match event.change {
                Change::Interrupted(_) => "interrupted",
                Change::Resumed => "resumed",
                _ => "other",
            };
            board.take().into_iter().map(name).collect()
        };
        board.apply(Report::Interrupted(error()));
        assert_eq!(kinds(&mut board), ["interrupted"]);
        board.apply(Report::Interrupted(error()));
        assert!(!board.has_events());
        board.apply(Report::Resumed);
        assert_eq!(kinds(&mut board), ["resumed"]);
        board.apply(Report::Interrupted(error()));
        board.apply(Report::Resumed);
        assert!(board.has_events());
        assert_eq!(kinds(&mut board), ["interrupted", "resumed"]);
        assert!(!board.has_events());
        board.apply(Report::Resumed);
        assert!(!board.has_events());
    }

    #[test]
    fn the_number_of_agents_is_bounded() {
        let mut board = Board::default();
        for index in 0..MAX_AGENTS + 10 {
            let name = index.to_string();
            board.apply(Report::State(name.clone(), present(&name, 1, 1)));
        }
        let events = board.take();
        assert_eq!(events.len(), 1 + MAX_AGENTS);
        assert!(
            events.iter().any(
                |event| matches!(&event.change, Change::Full(error) if error.message().contains("65536"))
            )
        );
        set(&mut board, "more", present("more", 1, 1));
        assert!(!board.has_events(), "once");
        board.retain(|name| name == "7");
        board.apply(Report::State("new".to_string(), present("new", 1, 1)));
        assert_eq!(board.take().len(), 1);
    }
}
