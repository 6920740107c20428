// SPDX-License-Identifier: Apache-2.0
//! A region known to an agent. It is deregistered before its memory is freed, always.

use std::sync::{Arc, Mutex, MutexGuard};

use super::Region;
use crate::error::{Result, ensure, fail};
use crate::log::log;
use crate::nixl::{Agent, Descriptor};

/// A region known to an agent.
pub struct Registration {
    region: Arc<Region>,
    agent: Arc<Agent>,
    descriptor: Descriptor,
    state: Mutex<State>,
}

struct State {
    registered: bool,
    holds: usize,
}

impl Registration {
    /// Registers a region. One that this agent knows already is refused.
    pub fn create(region: &Arc<Region>, agent: &Arc<Agent>) -> Result<Arc<Self>> {
        if Self::find(region, agent).is_some() {
            fail!(AlreadyExists, "the region is registered with agent '{}' already", agent.name());
        }
        let descriptor = region.descriptor();
        agent.call(move |driver| driver.register(descriptor))?;
        let registration = Arc::new(Self {
            region: region.clone(),
            agent: agent.clone(),
            descriptor,
            state: Mutex::new(State { registered: true, holds: 0 }),
        });
        region.add_registration(&registration);
        Ok(registration)
    }

    /// The registration a region has with an agent.
    pub fn find(region: &Arc<Region>, agent: &Arc<Agent>) -> Option<Arc<Self>> {
        region.registrations().into_iter().find(|registration| Arc::ptr_eq(&registration.agent, agent))
    }

    /// The region.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The agent.
    pub fn agent(&self) -> &Arc<Agent> {
        &self.agent
    }

    /// What the agent knows it as.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Whether the agent still knows it.
    pub fn is_registered(&self) -> bool {
        self.state().registered
    }

    /// Keeps it registered until the hold is dropped.
    pub fn hold(self: &Arc<Self>) -> Result<Hold> {
        let mut state = self.state();
        ensure!(
            state.registered,
            InvalidState,
            "the registration with agent '{}' was taken back",
            self.agent.name()
        );
        state.holds += 1;
        Ok(Hold(self.clone()))
    }

    /// Takes the registration back; refused while something holds it.
    pub fn deregister(&self) -> Result<()> {
        let mut state = self.state();
        ensure!(
            state.registered,
            InvalidState,
            "the region is not registered with agent '{}'",
            self.agent.name()
        );
        ensure!(state.holds == 0, Busy, "{} layouts or transfers hold the registration", state.holds);
        let descriptor = self.descriptor;
        state.registered = false;
        self.agent.call(move |driver| driver.deregister(&descriptor)).inspect_err(|_| self.keep_memory())
    }

    /// NIXL may still use memory it failed to deregister: that memory is never freed.
    fn keep_memory(&self) {
        std::mem::forget(self.region.clone());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.is_registered() {
            return;
        }
        let (descriptor, region) = (self.descriptor, self.region.clone());
        self.agent.call_or_defer(move |driver| {
            if let Err(error) = driver.deregister(&descriptor) {
                log!(Error, "{error}; its memory is kept");
                std::mem::forget(region);
            }
        });
    }
}

/// A promise that a registration stays.
pub struct Hold(Arc<Registration>);

impl std::ops::Deref for Hold {
    type Target = Arc<Registration>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.state().holds -= 1;
    }
}
