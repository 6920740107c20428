// SPDX-License-Identifier: Apache-2.0
//! A region that is registered with an agent. It is always deregistered before its memory is freed.

mod registrar;
mod registrations;
mod used_memory;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::base::{Count, Microseconds, Mutex, MutexGuard, Result, ensure, fail, log};
use crate::cuda::vmm::DeviceMapping;
use crate::cuda::{Context, Device};
use crate::nixl::{Agent, Descriptor, RegionMemory, Registered, SpanFailure, SpanResult, within};
use crate::region::Region;
use registrar::Registrar;
use registrations::Found;
pub(super) use registrations::{REGISTERED, Registrations};
use used_memory::UsedMemory;

/// A region that is registered with an agent. An elastic region is registered extent by extent, and later extents are
/// registered and deregistered too. Objects are registered as one list.
pub struct Registration {
    region: Arc<Region>,
    registrar: Registrar,
    /// `None` once it was deregistered. Not locked while the agent is called: getters lock it.
    registered: Mutex<Option<Registered>>,
    /// Incremented with the lock above, decremented without.
    holds: AtomicUsize,
}

impl Registration {
    /// Registers a region. Fails if it is registered with this agent.
    pub fn create(region: &Arc<Region>, agent: &Arc<Agent>) -> Result<Arc<Self>> {
        match Self::find_or_register(region, agent, agent.call_deadline())? {
            (registration, true) => Ok(registration),
            (_, false) => {
                fail!(AlreadyExists, "the region is registered with agent '{}' already", agent.name())
            }
        }
    }

    /// Holds the registration that a region has with an agent, or registers it.
    pub fn hold_or_create(region: &Arc<Region>, agent: &Arc<Agent>) -> Result<RegistrationHold> {
        let deadline = agent.call_deadline();
        loop {
            let (registration, _) = Self::find_or_register(region, agent, deadline)?;
            match registration.hold() {
                // Another thread has begun to deregister it since it was found.
                Err(_) if !registration.is_registered() => {}
                held => return held,
            }
        }
    }

    /// Looking and registering are one step: otherwise two callers could both find none, and the later one would fail. Returns
    /// whether the registration is new.
    fn find_or_register(
        region: &Arc<Region>,
        agent: &Arc<Agent>,
        deadline: Option<Instant>,
    ) -> Result<(Arc<Self>, bool)> {
        match region.registrations.find_or_begin(agent, deadline)? {
            Found::Known(registration) => Ok((registration, false)),
            Found::Missing(change) => {
                let registration = within(deadline, || Self::register(region, agent))?;
                change.made(&registration);
                Ok((registration, true))
            }
        }
    }

    /// The caller has marked that the region is being registered with the agent.
    fn register(region: &Arc<Region>, agent: &Arc<Agent>) -> Result<Arc<Self>> {
        ensure!(
            !(region.is_registered_whole() && region.is_view()),
            Unsupported,
            "a view of memory on tier {} cannot be registered; register the region",
            region.tier().name()
        );
        // NIXL has no read-only registration, so a peer could write. Peers cannot access storage.
        if !region.tier().is_storage() {
            region.ensure_writable().map_err(|error| error.context("register with NIXL"))?;
        }
        region.memory.ensure_registrable()?;
        let started = Instant::now();
        let context = region.ordinal().map(|ordinal| Context::retain(Device::get(ordinal)?).map(Arc::new));
        let context = context.transpose()?;
        let memory = RegionMemory { context, pages: region.host_pages() };
        let registrar = Registrar { agent: agent.clone(), memory };
        let (registered, count) = match region.storage_list().transpose()? {
            Some(list) => {
                let count = list.entries().len();
                (registrar.register_list(list), count)
            }
            None => {
                let (used, spans) = (UsedMemory::all_of(region), region.descriptors());
                let count = spans.len();
                (used.register(&registrar, &spans).map(|()| Registered::Spans(spans)), count)
            }
        };
        let registered = registered.map_err(|failure| failure.error)?;
        let registration = Arc::new(Self {
            region: region.clone(),
            registrar,
            registered: Mutex::new(Some(registered)),
            holds: AtomicUsize::new(0),
        });
        log!(
            Debug,
            "region {} registered with agent '{}' in {}, as {}",
            region.log_id(),
            agent.name(),
            Microseconds(started.elapsed()),
            Count(count as u64, "span")
        );
        Ok(registration)
    }

    pub fn find(region: &Arc<Region>, agent: &Arc<Agent>) -> Option<Arc<Self>> {
        region.registrations.find(agent).filter(|registration| registration.is_registered())
    }

    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    pub fn agent(&self) -> &Arc<Agent> {
        &self.registrar.agent
    }

    pub fn is_registered(&self) -> bool {
        self.registered().is_some()
    }

    /// The backends that a region of objects or block storage is registered with, and their stores, for messages.
    pub fn store(&self) -> Option<String> {
        match &*self.registered() {
            Some(Registered::Listed(_, store)) => Some(store.clone()),
            Some(Registered::Spans(_)) | None => None,
        }
    }

    /// Keeps it registered until the hold is dropped.
    pub fn hold(self: &Arc<Self>) -> Result<RegistrationHold> {
        let registered = self.registered();
        ensure!(
            registered.is_some(),
            InvalidState,
            "the region was deregistered from agent '{}'; register it again",
            self.agent().name()
        );
        self.holds.fetch_add(1, Ordering::Relaxed);
        Ok(RegistrationHold(self.clone()))
    }

    /// Deregisters the region. Fails while the registration has holds.
    pub fn deregister(&self) -> Result<()> {
        let deadline = self.agent().call_deadline();
        let change = self.region.registrations.begin_end(self, deadline)?;
        let (Some(mut change), Some(known)) = (change, self.take()?) else {
            fail!(InvalidState, "the region is not registered with agent '{}'", self.agent().name());
        };
        change.ends(true);
        let used = UsedMemory::all_of(&self.region);
        let outcome = within(deadline, || used.deregister(&self.registrar, known.clone()));
        if outcome.as_ref().is_err_and(SpanFailure::is_refusal) {
            *self.registered() = Some(known);
            change.ends(false);
        } else {
            log!(Debug, "region {} deregistered from agent '{}'", self.region.log_id(), self.agent().name());
        }
        drop(change);
        outcome.map_err(|failure| failure.error)
    }

    /// Takes what is registered, so that nothing holds it any more. Fails while there are holds.
    fn take(&self) -> Result<Option<Registered>> {
        let mut registered = self.registered();
        let holds = self.holds.load(Ordering::Acquire);
        ensure!(
            holds == 0,
            Busy,
            "{holds} layouts or transfers hold the registration with agent '{}'; wait for the transfers and destroy \
             both, then deregister again",
            self.agent().name()
        );
        Ok(registered.take())
    }

    /// Registers extents that were added to the region: all of them, or none. The caller resizes the region.
    pub fn extend(&self, added: &[Descriptor], mappings: &[Arc<DeviceMapping>]) -> SpanResult {
        if self.is_registered() {
            UsedMemory::of_extents(&self.region, mappings).register(&self.registrar, added)?;
            self.change_spans(|spans| spans.extend_from_slice(added));
        }
        Ok(())
    }

    /// Deregisters extents that are removed from the region. The caller resizes the region, and keeps them if that is refused.
    pub fn reduce(&self, removed: &[Descriptor], mappings: &[Arc<DeviceMapping>]) -> SpanResult {
        if !self.is_registered() {
            return Ok(());
        }
        let used = UsedMemory::of_extents(&self.region, mappings);
        let outcome = used.deregister(&self.registrar, Registered::Spans(removed.to_vec()));
        if !outcome.as_ref().is_err_and(SpanFailure::is_refusal) {
            // A region may have millions of extents.
            let all: HashSet<_> = removed.iter().collect();
            self.change_spans(|spans| spans.retain(|descriptor| !all.contains(descriptor)));
        }
        outcome
    }

    fn change_spans(&self, change: impl FnOnce(&mut Vec<Descriptor>)) {
        if let Some(Registered::Spans(spans)) = &mut *self.registered() {
            change(spans);
        }
    }

    fn registered(&self) -> MutexGuard<'_, Option<Registered>> {
        self.registered.lock()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let over: *const Self = self;
        let Some(registered) = self.registered.get_mut().take() else { return };
        let used = UsedMemory::all_of(&self.region);
        let deregistering = Deregistering { region: self.region.clone(), over: over as usize };
        log!(
            Debug,
            "region {} is deregistered from agent '{}'",
            self.region.log_id(),
            self.registrar.agent.name()
        );
        self.registrar.deregister_or_defer(registered, move |outcome| {
            used.end_late(outcome);
            drop(deregistering);
        });
    }
}

/// A registration without holders, until its agent has deregistered it, or cannot because its thread has ended.
struct Deregistering {
    region: Arc<Region>,
    /// The address of the registration.
    over: usize,
}

impl Drop for Deregistering {
    fn drop(&mut self) {
        self.region.registrations.remove(self.over as *const Registration);
    }
}

/// Keeps a region registered.
pub struct RegistrationHold(Arc<Registration>);

impl std::ops::Deref for RegistrationHold {
    type Target = Arc<Registration>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for RegistrationHold {
    fn drop(&mut self) {
        self.0.holds.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::region::SystemConfig;
    use crate::waiting::until;

    fn memory() -> RegionMemory {
        RegionMemory { context: None, pages: crate::nixl::HostPages::Own }
    }

    #[test]
    fn getters_and_holds_do_not_wait_while_the_registration_waits_for_its_agent() {
        let (agent, commands) = Agent::unattended();
        let region = Region::system(&SystemConfig { size: 4096, ..SystemConfig::default() }).unwrap();
        let registered = Mutex::new(Some(Registered::Spans(Vec::new())));
        let registrar = Registrar { agent, memory: memory() };
        let registration =
            Arc::new(Registration { region, registrar, registered, holds: AtomicUsize::new(0) });
        let growing = std::thread::spawn({
            let registration = registration.clone();
            move || registration.extend(&[], &[]).is_err()
        });
        until("no command is sent", || commands.len() > 0);
        let (ended, seen) = channel();
        std::thread::spawn({
            let registration = registration.clone();
            move || {
                let hold = registration.hold().unwrap();
                assert!(hold.is_registered() && hold.store().is_none());
                drop(hold);
                ended.send(())
            }
        });
        assert!(seen.recv_timeout(Duration::from_secs(20)).is_ok());
        drop(commands);
        assert!(growing.join().unwrap());
        assert_eq!(registration.holds.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_panic_while_a_region_is_deregistered_leaves_no_registration() {
        let (agent, commands) = Agent::unattended();
        let region = Region::system(&SystemConfig { size: 4096, ..SystemConfig::default() }).unwrap();
        let Ok(Found::Missing(change)) = region.registrations.find_or_begin(&agent, None) else { panic!() };
        let registered = Mutex::new(Some(Registered::Spans(Vec::new())));
        let registrar = Registrar { agent: agent.clone(), memory: memory() };
        let registration = Arc::new(Registration {
            region: region.clone(),
            registrar,
            registered,
            holds: AtomicUsize::new(0),
        });
        change.made(&registration);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut change = region.registrations.begin_end(&registration, None).unwrap().unwrap();
            assert!(registration.take().unwrap().is_some());
            change.ends(true);
            panic!("deliberate");
        }));
        assert!(panicked.is_err());
        drop(commands);
        let (ended, seen) = channel();
        std::thread::spawn(move || ended.send(Registration::hold_or_create(&region, &agent).is_err()));
        assert_eq!(seen.recv_timeout(Duration::from_secs(20)), Ok(true), "the agent is called again");
    }
}
