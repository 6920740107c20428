// SPDX-License-Identifier: Apache-2.0
//! Serving transfers of a layout: sessions of peers, which share the slots of an arena, and the task of the agent's thread
//! that handles their messages.
//!
//! Whatever peers send, the memory of a service is bounded: the arena, the messages that wait, and the plans of as many
//! sessions and requests as are admitted. So is the time of a step. A peer that stalls loses its slots.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::admission::{Admission, Admitted, silence};
use super::session::{Service, ServiceMemory, Session, held, over, silent, stalled};
use crate::base::{Error, Result, Status, ensure, fail, log};
use crate::engine::peer::served::protocol::message::{Body, Message, SessionKey};
use crate::engine::peer::served::protocol::session_control::{self, ChunkChecksums, SessionState};
use crate::engine::peer::staged::{SLOTS, StagingMemory, slot_size};
use crate::engine::preferences::STALL_TIMEOUT;
use crate::layout::cache::LayoutCache;
use crate::layout::{Layout, Locality, Served, ServiceEnd};
use crate::nixl::{AgentState, AgentTask, Command, Descriptor, MemoryType, ServiceId, ServiceMail, TaskStep};
use crate::region::{Registration, RegistrationHold, random};
use crate::run::{LeaseRequest, PeerLeases};

/// Sessions with slots. The entries of the control block after theirs are for refusals.
const MAX_SESSIONS: usize = 8;
const LIVENESS: Duration = Duration::from_millis(100);
/// The longest lease of a peer.
const LONGEST_LEASE: Duration = Duration::from_secs(60);
/// How long the agent's thread looks for messages without longer sleeps: the next request often follows at once.
const AWAKE: Duration = Duration::from_millis(5);

/// The services of layouts. Each ends with its layout.
pub static SERVICES: LayoutCache<Service> = LayoutCache::new();

#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// Bytes of the arena; 0 for the default.
    pub staging_size: u64,
    /// Peers may write to the layout.
    pub writes: bool,
    /// The slots are in host memory, also for a layout in GPU memory.
    pub from_host: bool,
    /// How long a peer may leave a session waiting; `None` for the default.
    pub stall_timeout: Option<Duration>,
    /// How long a lease of a peer lasts at most, unless it is renewed; `None` for the default.
    pub longest_lease: Option<Duration>,
}

/// Serves transfers of a layout to peers from now on, as long as it exists. Peers learn of it by its descriptor.
pub fn serve(layout: &Arc<Layout>, options: &ServeOptions) -> Result<()> {
    layout.ensure_exportable()?;
    ensure!(
        matches!(layout.memory_type(), MemoryType::Dram | MemoryType::Vram)
            && layout.memory().locality() == Locality::Registered,
        Unsupported,
        "the layout is in {} memory that is not of this process; its owner can serve it",
        layout.memory().tier().name()
    );
    ensure!(layout.served().is_none(), AlreadyExists, "transfers of the layout are served already");
    let Some(agent) = layout.agent() else {
        fail!(InvalidState, "the layout was built without an agent");
    };
    let identity = agent.call(Command::Identity).and_then(|identity| identity);
    identity.map_err(|error| error.context("serve the layout"))?;
    let slots = if options.from_host { MemoryType::Dram } else { layout.memory_type() };
    let memory = StagingMemory::between(layout, slots);
    let slot_size = slot_size("staging_size", options.staging_size, memory)?;
    let (control, slots) = (session_control::SIZE as u64, SLOTS * slot_size);
    let hold = |memory: StagingMemory, size| -> Result<(RegistrationHold, Descriptor)> {
        let hold = Registration::create(&memory.allocate(size)?, agent)?.hold()?;
        let (address, device_id) = (hold.region().address(), memory.device_id());
        Ok((hold, Descriptor { address, size, device_id, memory_type: memory.memory_type() }))
    };
    let ((host, arena), device) = match memory {
        StagingMemory::Device(_) => (hold(StagingMemory::Host, control)?, Some(hold(memory, slots)?)),
        _ => (hold(memory, control + slots)?, None),
    };
    let (held_device, device) = device.unzip();
    let served = Served {
        id: ServiceId(random()?),
        arena,
        device,
        slots: SLOTS as u32,
        slot_size,
        writes: options.writes,
        longest_lease: milliseconds(options.longest_lease.unwrap_or(LONGEST_LEASE)),
        end: ServiceEnd::default(),
    };
    let service = Arc::new(Service {
        served: served.clone(),
        layout: Arc::downgrade(layout),
        stall_timeout: options.stall_timeout.unwrap_or(STALL_TIMEOUT),
        arena: Arc::new(ServiceMemory { host, _device: held_device }),
        copier: memory.copier()?,
        contexts: layout.contexts(memory != StagingMemory::Host),
    });
    service.write(0, &session_control::head(&served.id, silence(service.stall_timeout)));
    agent.start(Box::new(ServeTask::new(&service)))?;
    layout.set_served(served)?;
    SERVICES.put(layout, service);
    Ok(())
}

fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX).max(1)
}

/// The work of the agent's thread for a service. It ends with the service.
struct ServeTask {
    service: Weak<Service>,
    id: ServiceId,
    stall_timeout: Duration,
    is_open: bool,
    /// While there are sessions and leases. A peer may read its slots and the control block after the layout was destroyed: if NIXL emulates that, the read is
    /// made by this process, and must find memory.
    arena: Option<Arc<ServiceMemory>>,
    sessions: Vec<Session>,
    admission: Admission,
    leases: PeerLeases,
    /// Free entries of sessions, the oldest first: requesters read how their sessions have ended.
    free_entries: VecDeque<usize>,
    last_check: Instant,
    /// Since when there was no long time between two checks, in which no message was received.
    attentive: Instant,
    last_progress: Instant,
    has_warned: bool,
}

impl AgentTask for ServeTask {
    fn look_interval(&self) -> Option<Duration> {
        // The agent drops messages for a service that is not open.
        self.is_open.then_some(Duration::ZERO)
    }

    fn step(&mut self, state: &mut AgentState) -> TaskStep {
        let Some(service) = self.service.upgrade() else { return self.linger(state) };
        if !self.is_open {
            state.services.open(self.id);
            self.is_open = true;
        }
        let mut has_progressed = self.receive(state, &service);
        has_progressed |= self.admit(&service);
        has_progressed |= self.advance(&service);
        if self.last_check.elapsed() >= LIVENESS {
            self.check_peers(&service);
        }
        let is_used =
            !self.sessions.is_empty() || self.admission.has_slots_in_use() || !self.leases.is_empty();
        self.arena = is_used.then(|| service.arena.clone());
        if has_progressed {
            self.last_progress = Instant::now();
            return TaskStep::Progressed;
        }
        let is_copying = self.sessions.iter().any(|session| !session.is_quiet());
        match is_copying || self.last_progress.elapsed() < AWAKE {
            true => TaskStep::InFlight,
            false => TaskStep::Waiting,
        }
    }

    fn abandon(&mut self, error: Error) {
        log!(Error, "transfers of a layout are no longer served: {error}");
        // Requesters find that at once, rather than after their timeouts.
        if let Some(service) = self.service.upgrade() {
            service.end();
        }
    }
}

impl ServeTask {
    fn new(service: &Arc<Service>) -> Self {
        Self {
            service: Arc::downgrade(service),
            id: service.served.id,
            stall_timeout: service.stall_timeout,
            is_open: false,
            arena: None,
            sessions: Vec::new(),
            admission: Admission::new(service.served.slots, MAX_SESSIONS + 1..=session_control::ENTRIES),
            leases: PeerLeases::new(service.served.longest_lease),
            free_entries: (1..=MAX_SESSIONS).collect(),
            last_check: Instant::now(),
            attentive: Instant::now(),
            last_progress: Instant::now(),
            has_warned: false,
        }
    }

    /// After the layout was destroyed: keeps the arena until its sessions are closed, or their requesters gone or too slow, and its
    /// leases over.
    fn linger(&mut self, state: &mut AgentState) -> TaskStep {
        self.leases.hide();
        for message in state.services.take(&self.id).messages {
            if let Ok(Message { session, body: Body::Close }) = Message::read(&message.data) {
                self.close(session, &message.agent);
            }
        }
        if state.look_failure().is_some() || self.last_check.elapsed() >= LIVENESS {
            self.last_check = Instant::now();
            let stall_timeout = self.stall_timeout;
            for session in &mut self.sessions {
                // The last copy has dropped the service. A failure is of no interest any more.
                session.is_over |= session.end_copies().is_err()
                    || session.is_stalled(stall_timeout)
                    || session.requester.process.is_gone();
            }
            self.admission.expire(stall_timeout);
            self.leases.expire();
        }
        self.dismiss_ended();
        if self.arena.is_some() && (self.admission.has_slots_in_use() || !self.leases.is_empty()) {
            return TaskStep::Waiting;
        }
        state.services.close(&self.id);
        TaskStep::Done
    }

    /// Handles some of the messages that have arrived. Returns whether there were any.
    fn receive(&mut self, state: &mut AgentState, service: &Service) -> bool {
        let ServiceMail { messages, dropped } = state.services.take(&self.id);
        if dropped > 0 {
            self.warn(format_args!("{dropped} requests of peers were dropped, because too many waited"));
        }
        let any = !messages.is_empty();
        for message in messages {
            match Message::read(&message.data) {
                Ok(Message { session, body }) => self.handle(service, message.agent, session, body),
                Err(error) => {
                    self.warn(format_args!("a request of agent '{}' is ignored: {error}", message.agent))
                }
            }
        }
        any
    }

    fn handle(&mut self, service: &Service, sender: String, key: SessionKey, body: Body) {
        match body {
            _ if self.admission.is_of_another(key, &sender) || self.leases.is_of_another(key.0, &sender) => {}
            Body::Lease(request) => self.lease(service, &sender, key, &request),
            Body::Open(_) if self.admission.knows(key) => {}
            Body::Open(open) if open.writes && !service.served.writes => {
                let message = "the owner serves reads only; it must allow writes";
                self.refuse(service, key, &sender, &Error::new(Status::PermissionDenied, message));
            }
            Body::Open(open) => {
                if let Some(entry) = self.admission.forget_refusal(key) {
                    service.write(entry, &[0; session_control::ENTRY]);
                }
                if !self.admission.wait(sender.clone(), key, open) {
                    let message = "too many requests wait for slots of the owner's arena; try again";
                    self.refuse(service, key, &sender, &Error::new(Status::Busy, message));
                }
            }
            Body::Progress { chunks, checksums } => {
                match self
                    .session(key, &sender)
                    .map(|session| session.report(chunks, ChunkChecksums(checksums)))
                {
                    Some(Ok(())) => {}
                    Some(Err(error)) => self.end(key, service, SessionState::failed(&error)),
                    // Its requester has not read the reason yet.
                    None if self.admission.has_refused(key) => {}
                    None if self.admission.has_ended(key, &sender) => {
                        self.put(service, key, &sender, &over())
                    }
                    None if self.admission.knows(key) => self.admission.renew(key, &sender),
                    None => self.put(service, key, &sender, &SessionState::Unknown),
                }
            }
            Body::Close => self.close(key, &sender),
        }
    }

    /// The requester accesses the slots of its session no more.
    fn close(&mut self, key: SessionKey, sender: &str) {
        self.leases.end(key.0, sender);
        self.admission.close(key, sender);
        if let Some(session) = self.session(key, sender) {
            (session.is_over, session.is_closed) = (true, true);
        }
    }

    /// Replies to a request for a lease, unless a message that closes it has arrived before.
    fn lease(&mut self, service: &Service, sender: &str, key: SessionKey, request: &LeaseRequest) {
        if self.admission.knows(key) {
            return;
        }
        let Ok(layout) = service.layout() else { return };
        match self.leases.reply(&layout, sender, key.0, request) {
            Ok(Some(granted)) => self.put(service, key, sender, &SessionState::Leased(granted)),
            Ok(None) => self.put(service, key, sender, &SessionState::Unknown),
            Err(error) => self.refuse(service, key, sender, &error),
        }
    }

    fn session(&mut self, key: SessionKey, sender: &str) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|session| session.key == key && session.requester.agent == sender)
    }

    fn refuse(&mut self, service: &Service, key: SessionKey, sender: &str, error: &Error) {
        self.warn(format_args!("a request was refused: {error}"));
        self.put(service, key, sender, &SessionState::failed(error));
    }

    /// Puts the state of a session that has no slots where its requester finds it.
    fn put(&mut self, service: &Service, key: SessionKey, sender: &str, state: &SessionState) {
        if let Some(entry) = self.admission.refuse(key, sender) {
            service.write(entry, &state.entry(key));
        }
    }

    /// Gives slots to a request that waits: to one for each step, because its spans are listed. Returns whether there was one.
    fn admit(&mut self, service: &Arc<Service>) -> bool {
        let Some(entry) = self.free_entries.pop_front() else { return false };
        let Some(Admitted { key, sender, open, slots }) = self.admission.next() else {
            self.free_entries.push_front(entry);
            return false;
        };
        match Session::new((key, sender.clone()), &open, service, slots, entry) {
            Ok(session) => {
                service.write(entry, &session.state().entry(key));
                self.sessions.push(session);
            }
            Err(error) => {
                self.free_entries.push_front(entry);
                self.admission.end_session(key, false);
                self.refuse(service, key, &sender, &error);
            }
        }
        true
    }

    /// Advances each session, and ends those that are over. Returns whether there was anything to do.
    fn advance(&mut self, service: &Arc<Service>) -> bool {
        let mut any = false;
        let mut failed = Vec::new();
        for session in &mut self.sessions {
            match session.advance(service) {
                Ok(false) => {}
                Ok(true) => {
                    any = true;
                    if !session.is_over {
                        service.write(session.entry, &session.state().entry(session.key));
                    }
                }
                Err(error) => failed.push((session.key, error)),
            }
        }
        for (key, error) in failed {
            any = true;
            self.end(key, service, SessionState::failed(&error));
        }
        any | self.dismiss_ended()
    }

    /// Frees what sessions had that are over. Returns whether there were any.
    fn dismiss_ended(&mut self) -> bool {
        let before = self.sessions.len();
        let mut index = 0;
        while let Some(session) = self.sessions.get(index) {
            if !(session.is_over && session.is_quiet()) {
                index += 1;
                continue;
            }
            let session = self.sessions.swap_remove(index);
            self.free_entries.push_back(session.entry);
            self.admission.end_session(session.key, session.may_be_written());
        }
        before != self.sessions.len()
    }

    /// Ends a session, and reports the reason to its requester.
    fn end(&mut self, key: SessionKey, service: &Service, reason: SessionState) {
        let Some(session) = self.sessions.iter_mut().find(|session| session.key == key) else { return };
        session.is_over = true;
        service.write(session.entry, &reason.entry(key));
    }

    /// Ends sessions whose requesters are gone, those without progress, and silent ones if a request waits for slots.
    fn check_peers(&mut self, service: &Service) {
        let (stall_timeout, silence) = (self.stall_timeout, silence(self.stall_timeout));
        if self.last_check.elapsed() >= silence / 2 {
            self.attentive = Instant::now();
        }
        self.last_check = Instant::now();
        let reason = |session: &Session| {
            let is_silent = session.heard.max(self.attentive).elapsed() >= silence;
            if session.is_over {
                None
            } else if session.is_stalled(stall_timeout) || session.requester.process.is_gone() {
                Some(stalled(stall_timeout))
            } else if session.is_held(stall_timeout) {
                Some(held(stall_timeout, service.copier.is_some()))
            } else {
                (is_silent && self.admission.are_wanted(&session.requester.agent)).then(|| silent(silence))
            }
        };
        let lost: Vec<_> =
            self.sessions.iter().filter_map(|session| Some((session.key, reason(session)?))).collect();
        for (key, reason) in lost {
            self.warn(format_args!("a session makes no progress, and ends"));
            self.end(key, service, reason);
        }
        self.admission.expire(stall_timeout);
        self.leases.expire();
    }

    fn warn(&mut self, text: std::fmt::Arguments<'_>) {
        match std::mem::replace(&mut self.has_warned, true) {
            false => log!(Warn, "{text}"),
            true => log!(Debug, "{text}"),
        }
    }
}
