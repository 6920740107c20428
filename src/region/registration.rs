// SPDX-License-Identifier: Apache-2.0
//! A region known to an agent. It is deregistered before its memory is freed, always.

use std::sync::{Arc, Mutex, MutexGuard};

use super::{Backing, Region};
use crate::cuda::{Context, Device};
use crate::error::{Result, ensure, fail};
use crate::log::{Quiet, log};
use crate::nixl::{Agent, Descriptor};

/// A region known to an agent. An elastic one is known extent by extent, and grows and shrinks there too.
pub struct Registration {
    region: Arc<Region>,
    agent: Arc<Agent>,
    /// Of the GPU it lies on: UCX registers memory that was mapped apart only where that one's context is current.
    context: Option<Arc<Context>>,
    state: Mutex<State>,
}

struct State {
    registered: bool,
    holds: usize,
    descriptors: Vec<Descriptor>,
}

impl Registration {
    /// Registers a region. One that this agent knows already is refused.
    pub fn create(region: &Arc<Region>, agent: &Arc<Agent>) -> Result<Arc<Self>> {
        let _unchanged = region.resizing();
        if Self::find(region, agent).is_some() {
            fail!(AlreadyExists, "the region is registered with agent '{}' already", agent.name());
        }
        let part_of_elastic =
            region.elastic_memory().is_some() && matches!(region.backing(), Backing::View { .. });
        ensure!(
            !part_of_elastic,
            Unsupported,
            "a view of an elastic region can't be registered; register the region"
        );
        if let Backing::Device(memory) = region.root() {
            ensure!(
                memory.pieces() == 1,
                Unsupported,
                "the region is made of {} mappings, of which NIXL would reach the first; adopt each as a region",
                memory.pieces()
            );
        }
        let descriptors = region.descriptors();
        let context = region.ordinal().map(|ordinal| Context::retain(Device::get(ordinal)?).map(Arc::new));
        let context = context.transpose()?;
        register(agent, &context, &descriptors)?;
        let registration = Arc::new(Self {
            region: region.clone(),
            agent: agent.clone(),
            context,
            state: Mutex::new(State { registered: true, holds: 0, descriptors }),
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
        let descriptors = std::mem::take(&mut state.descriptors);
        state.registered = false;
        deregister(&self.agent, &self.context, descriptors).inspect_err(|_| self.keep_memory())
    }

    /// Registers extents that were added to the region: all of them, or none.
    pub(super) fn extend(&self, added: &[Descriptor]) -> Result<()> {
        let mut state = self.state();
        if state.registered {
            register(&self.agent, &self.context, added)?;
            state.descriptors.extend_from_slice(added);
        }
        Ok(())
    }

    /// Deregisters extents that go from the region.
    pub(super) fn reduce(&self, removed: &[Descriptor]) -> Result<()> {
        let mut state = self.state();
        if state.registered {
            state.descriptors.retain(|descriptor| !removed.contains(descriptor));
            deregister(&self.agent, &self.context, removed.to_vec()).inspect_err(|_| self.keep_memory())?;
        }
        Ok(())
    }

    /// NIXL may still use memory it failed to deregister: that memory is never freed.
    fn keep_memory(&self) {
        std::mem::forget(self.region.clone());
    }

    fn state(&self) -> Quiet<MutexGuard<'_, State>> {
        Quiet::lock(|| self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

/// All of them, or none.
fn register(agent: &Agent, context: &Option<Arc<Context>>, descriptors: &[Descriptor]) -> Result<()> {
    let (context, descriptors) = (context.clone(), descriptors.to_vec());
    agent.call(move |driver| {
        let _entered = context.as_ref().map(|context| context.enter()).transpose()?;
        for (index, descriptor) in descriptors.iter().enumerate() {
            if let Err(error) = driver.register(*descriptor) {
                for registered in &descriptors[..index] {
                    if let Err(error) = driver.deregister(registered) {
                        log!(Error, "{error}");
                    }
                }
                return Err(error);
            }
        }
        Ok(())
    })
}

/// All of them, whatever fails; the first failure is told.
fn deregister(agent: &Agent, context: &Option<Arc<Context>>, descriptors: Vec<Descriptor>) -> Result<()> {
    let context = context.clone();
    agent.call(move |driver| {
        let _entered = context.as_ref().map(|context| context.enter_to_free()).transpose()?;
        let results: Vec<_> = descriptors.iter().map(|descriptor| driver.deregister(descriptor)).collect();
        results.into_iter().collect()
    })
}

impl Drop for Registration {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !state.registered {
            return;
        }
        let (descriptors, region) = (std::mem::take(&mut state.descriptors), self.region.clone());
        let context = self.context.take();
        self.agent.call_or_defer(move |driver| {
            // Without it NIXL fails to deregister, and says so below.
            let _entered = context.as_ref().and_then(|context| context.enter_to_free().ok());
            let failed = descriptors.iter().filter_map(|descriptor| driver.deregister(descriptor).err());
            if let Some(error) = failed.last() {
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
