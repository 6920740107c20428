// SPDX-License-Identifier: Apache-2.0
//! The registrations of a region, including those without holders that their agents have not deregistered yet, and the
//! threads that change them.
//!
//! No lock is held while an agent is called: NIXL may not return, and a getter or another agent's registration must not wait
//! for that. Instead a thread marks the entry of the agent that it calls, or the whole region if it resizes it. Threads that need
//! the mark gone wait until their deadline.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::Registration;
use crate::base::reported::HeldByTally;
use crate::base::{Condvar, Counted, Error, Gauge, LogId, Mutex, MutexGuard, Result, Status, earlier};
use crate::nixl::{self, Agent};

/// Registrations from the time that their agents begin to register the memory until they have deregistered it.
#[derive(Default)]
pub struct Registrations {
    state: Mutex<State>,
    change: Condvar,
}

#[derive(Default)]
struct State {
    /// At most one of each agent.
    entries: Vec<AgentRegistration>,
    /// A thread grows or shrinks the region, or must not see that another one does.
    is_resizing: bool,
}

struct AgentRegistration {
    /// Not the address: the agent may have been destroyed, and another one be there while NIXL still deregisters the memory.
    agent: LogId,
    agent_name: String,
    call_timeout: Option<Duration>,
    /// `Weak::new()` before the agent has registered the memory. It has no holders while the agent deregisters the memory
    /// because the last one was dropped.
    registration: Weak<Registration>,
    /// A thread registers or deregisters the memory.
    is_changing: bool,
    _counted: (Counted, HeldByTally),
}

/// Number of the entries of all regions.
pub static REGISTERED: Gauge = Gauge::new();

/// The registration that an agent has, or the right to make one.
pub enum Found<'a> {
    Known(Arc<Registration>),
    Missing(Changing<'a>),
}

/// The calling thread registers the region with an agent, or deregisters it. Nothing else does, or resizes the region, until this
/// is dropped.
pub struct Changing<'a> {
    all: &'a Registrations,
    agent: LogId,
    is_ending: bool,
}

/// Until this is dropped, the region does not grow or shrink on another thread, and is not registered or deregistered, except for
/// registrations without holders.
pub struct Resizing<'a>(&'a Registrations);

impl Registrations {
    /// The registration with an agent, or the right to make one. Waits until the previous registration has ended, because a new
    /// one would fail before that.
    pub fn find_or_begin(&self, agent: &Arc<Agent>, deadline: Option<Instant>) -> Result<Found<'_>> {
        let begin = |state: &mut State| {
            let Some(entry) = state.entry(agent) else {
                return (!state.is_resizing).then(|| Found::Missing(self.begin_new(state, agent)));
            };
            if entry.is_changing { None } else { entry.registration.upgrade().map(Found::Known) }
        };
        self.when(begin, |_| deadline)
    }

    fn begin_new(&self, state: &mut State, agent: &Arc<Agent>) -> Changing<'_> {
        state.entries.push(AgentRegistration {
            agent: agent.log_id(),
            agent_name: agent.name().to_string(),
            call_timeout: agent.call_timeout(),
            registration: Weak::new(),
            is_changing: true,
            _counted: (REGISTERED.count(1), agent.tally().hold()),
        });
        Changing { all: self, agent: agent.log_id(), is_ending: false }
    }

    /// The right to deregister a registration; `None` if it has ended.
    pub fn begin_end(
        &self,
        registration: &Registration,
        deadline: Option<Instant>,
    ) -> Result<Option<Changing<'_>>> {
        let begin = |state: &mut State| {
            let is_it =
                |entry: &&mut AgentRegistration| std::ptr::eq(entry.registration.as_ptr(), registration);
            let is_resizing = state.is_resizing;
            let Some(entry) = state.entries.iter_mut().find(is_it) else { return Some(None) };
            if is_resizing || entry.is_changing {
                return None;
            }
            entry.is_changing = true;
            Some(Some(Changing { all: self, agent: entry.agent, is_ending: false }))
        };
        self.when(begin, |_| deadline)
    }

    /// Keeps the region from being resized, registered and deregistered. Waits for threads that do; of these, those that are in
    /// a call of an agent end with its limit.
    pub fn resize(&self) -> Result<Resizing<'_>> {
        let begun = Instant::now();
        let begin = |state: &mut State| {
            let is_free = !state.is_resizing && state.entries.iter().all(|entry| !entry.is_changing);
            is_free.then(|| {
                state.is_resizing = true;
                Resizing(self)
            })
        };
        self.when(begin, |state| state.limit(begun))
    }

    /// Waits until `begin` returns something. The deadline depends on the state, too.
    fn when<R>(
        &self,
        mut begin: impl FnMut(&mut State) -> Option<R>,
        deadline: impl Fn(&State) -> Option<Instant>,
    ) -> Result<R> {
        let mut state = self.state();
        loop {
            if let Some(begun) = begin(&mut state) {
                return Ok(begun);
            }
            let end = deadline(&state);
            state = self.change.wait_until(state, end).map_err(|state| state.is_busy())?;
        }
    }

    /// Removes a registration without holders after its agent has deregistered it.
    pub fn remove(&self, over: *const Registration) {
        self.state().entries.retain(|entry| entry.registration.as_ptr() != over);
        self.change.notify_all();
    }

    /// The names of the agents that the region is registered with. Holds no registration: the last holder waits for its agent.
    pub fn agents(&self) -> Vec<String> {
        self.state().registered().map(|entry| entry.agent_name.clone()).collect()
    }

    pub fn count(&self) -> usize {
        self.state().registered().count()
    }

    pub fn find(&self, agent: &Arc<Agent>) -> Option<Arc<Registration>> {
        self.state().entry(agent).and_then(|entry| entry.registration.upgrade())
    }

    pub fn held(&self) -> Vec<Arc<Registration>> {
        self.upgraded().into_iter().flatten().collect()
    }

    /// All registrations. Fails while one is being deregistered, because its agent still uses the memory.
    pub fn all(&self) -> Result<Vec<Arc<Registration>>> {
        let all: Option<Vec<_>> = self.upgraded().into_iter().collect();
        all.ok_or_else(|| {
            let message = "an agent is still deregistering the region, because the last holder of a registration was \
                           destroyed; try again when the agent's transfers are complete";
            Error::new(Status::Busy, message)
        })
    }

    /// None of these may be dropped with the lock held: the last one waits for its agent's thread, which locks it too.
    fn upgraded(&self) -> Vec<Option<Arc<Registration>>> {
        self.state().entries.iter().map(|entry| entry.registration.upgrade()).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn entry(&self, agent: &Arc<Agent>) -> Option<&AgentRegistration> {
        self.entries.iter().find(|entry| entry.agent == agent.log_id())
    }

    fn registered(&self) -> impl Iterator<Item = &AgentRegistration> {
        self.entries.iter().filter(|entry| !entry.is_changing && entry.registration.strong_count() > 0)
    }

    /// When a wait for calls of all agents ends. They end with the limits of these agents.
    fn limit(&self, begun: Instant) -> Option<Instant> {
        let of_entry = |entry: &AgentRegistration| nixl::call_end(begun, entry.call_timeout);
        let of_agents: Option<Vec<_>> = self.entries.iter().map(of_entry).collect();
        earlier(of_agents.and_then(|ends| ends.into_iter().max()), nixl::limit())
    }

    /// The error of a wait that has taken too long.
    fn is_busy(&self) -> Error {
        let is_ending =
            |entry: &&AgentRegistration| entry.is_changing || entry.registration.strong_count() == 0;
        match self.entries.iter().find(is_ending) {
            Some(entry) => nixl::in_call(&entry.agent_name)
                .context("another thread registers or deregisters the region, or has deregistered it"),
            None => Error::new(Status::TimedOut, "another thread resizes the region"),
        }
    }
}

impl Changing<'_> {
    /// The agent has registered the memory.
    pub fn made(self, registration: &Arc<Registration>) {
        let mut state = self.all.state();
        if let Some(entry) = state.entries.iter_mut().find(|entry| entry.agent == self.agent) {
            entry.registration = Arc::downgrade(registration);
        }
    }

    /// The agent deregisters it, perhaps only when NIXL returns, but before it registers anything else. So the registration has ended
    /// when this is dropped, whatever happens before, unless the agent refuses it.
    pub fn ends(&mut self, is_ending: bool) {
        self.is_ending = is_ending;
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let none = Weak::new();
        self.all.state().entries.retain_mut(|entry| {
            let is_it = entry.agent == self.agent && entry.is_changing;
            entry.is_changing &= !is_it;
            !(is_it && (self.is_ending || entry.registration.ptr_eq(&none)))
        });
        self.all.change.notify_all();
    }
}

impl Drop for Resizing<'_> {
    fn drop(&mut self) {
        self.0.state().is_resizing = false;
        self.0.change.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn begin<'a>(all: &'a Registrations, agent: &Arc<Agent>) -> Changing<'a> {
        match all.find_or_begin(agent, Some(Instant::now())).unwrap() {
            Found::Missing(change) => change,
            Found::Known(_) => panic!("nothing was registered"),
        }
    }

    fn now<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
        nixl::within(Some(Instant::now()), work)
    }

    #[test]
    fn a_change_excludes_those_with_its_agent_and_resizing_until_it_ends() {
        let (all, (agent, _commands), (other, _others)) =
            (Registrations::default(), Agent::unattended(), Agent::unattended());
        let change = begin(&all, &agent);
        let error = all.find_or_begin(&agent, Some(Instant::now())).map(drop).unwrap_err();
        assert_eq!(error.status(), Status::TimedOut);
        assert!(error.message().contains("agent 'unattended' is in a call of NIXL"), "{error}");
        assert_eq!(now(|| all.resize().map(drop)).unwrap_err().status(), Status::TimedOut);
        drop(begin(&all, &other));
        assert_eq!((all.count(), all.agents().len()), (0, 0));
        drop(change);
        drop(begin(&all, &agent));
        now(|| all.resize().map(drop)).unwrap();
    }

    /// NIXL does not return from a call of the destroyed one.
    #[test]
    fn an_agent_does_not_wait_for_a_destroyed_one_at_the_same_address() {
        for _ in 0..1000 {
            let (all, (destroyed, _commands)) = (Registrations::default(), Agent::unattended());
            let (_change, address) = (begin(&all, &destroyed), Arc::as_ptr(&destroyed));
            drop(destroyed);
            let (agent, _commands) = Agent::unattended();
            drop(begin(&all, &agent));
            if Arc::as_ptr(&agent) == address {
                return;
            }
        }
        panic!("no address was used again");
    }

    #[test]
    fn resizing_excludes_changes_until_it_ends() {
        let (all, (agent, _commands)) = (Registrations::default(), Agent::unattended());
        let resizing = all.resize().unwrap();
        assert!(all.find_or_begin(&agent, Some(Instant::now())).is_err());
        assert_eq!(now(|| all.resize().map(drop)).unwrap_err().status(), Status::TimedOut);
        let (begun, begins) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _change = all.find_or_begin(&agent, None).unwrap();
                begun.send(()).unwrap();
            });
            drop(resizing);
            assert!(begins.recv_timeout(PATIENCE).is_ok());
        });
        assert!(all.state().entries.is_empty());
    }
}
