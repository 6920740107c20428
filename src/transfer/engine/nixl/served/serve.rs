// SPDX-License-Identifier: Apache-2.0
//! Serving transfers of a layout: sessions of peers, which share the slots of an arena, and the task of the agent's thread
//! that handles their messages.
//!
//! Whatever peers send, the memory of a service is bounded: the arena, the messages that wait, and the plans of as many
//! sessions and requests as are admitted. A peer that stalls loses its slots.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::control::{self, GrantedSlots, SessionState};
use super::message::{Body, Message, Open, SessionKey};
use super::service::{Service, ServiceMemory};
use super::session::{Session, stalled};
use crate::error::{Error, Result, Status, ensure};
use crate::layout::{Layout, Locality, Served};
use crate::log::log;
use crate::nixl::{AgentState, AgentTask, Descriptor, MemoryType, ServiceId, TaskStep};
use crate::process::ProcessIdentity;
use crate::region::{Registration, RegistrationHold, random};
use crate::transfer::engine::nixl::staged::{SLOTS, StagingMemory, slot_size};

/// Sessions with slots. The entries of the control block after theirs are for refusals.
const MOST_SESSIONS: usize = 8;
/// Requests that wait for slots, of all peers and of one.
const MOST_WAITING: usize = 32;
const MOST_WAITING_OF_ONE: usize = 16;
/// Closed sessions that are known.
const MOST_CLOSED: usize = 64;
/// Slots of a session.
const SLOTS_OF_SESSION: usize = 4;
/// Slots of all sessions of one peer, so that another one finds some.
const SLOTS_OF_PEER: usize = SLOTS as usize * 3 / 4;
/// How long a peer may leave a session waiting, unless the caller sets it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval between checks of peers.
const LIVENESS: Duration = Duration::from_millis(100);
/// How long the agent's thread looks for messages without longer sleeps: the next request often follows at once.
const AWAKE: Duration = Duration::from_millis(5);

/// How an owner serves.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// Bytes of the arena; 0 for the default.
    pub arena_size: u64,
    /// Peers may write to the layout.
    pub writes: bool,
    /// The slots are in host memory, also for a layout in GPU memory.
    pub from_host: bool,
    /// How long a peer may leave a session waiting; `None` for the default.
    pub stall_timeout: Option<Duration>,
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
        return Err(Error::new(Status::InvalidState, "the layout was built without an agent"));
    };
    agent.call(|state| state.ensure_reaches_peers()).map_err(|error| error.context("serve the layout"))?;
    let slots = if options.from_host { MemoryType::Dram } else { layout.memory_type() };
    let memory = StagingMemory::between(layout, slots);
    let slot_size = slot_size(options.arena_size, memory)?;
    let (control, slots) = (control::SIZE as u64, SLOTS * slot_size);
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
    };
    let service = Arc::new(Service {
        served: served.clone(),
        layout: Arc::downgrade(layout),
        patience: options.stall_timeout.unwrap_or(PATIENCE),
        arena: Arc::new(ServiceMemory { host, _device: held_device }),
        copier: memory.copier()?,
        contexts: layout.contexts(memory != StagingMemory::Host),
    });
    service.write(0, &control::head(&served.id));
    agent.start(Box::new(ServeTask::new(&service)))?;
    layout.set_served(served)?;
    layout.keep(service);
    Ok(())
}

/// A request that waits for slots.
struct Waiting {
    key: SessionKey,
    sender: String,
    open: Arc<Open>,
    since: Instant,
}

/// Slots of a session that has ended without the requester, which may still write to them.
struct Quarantine {
    key: SessionKey,
    sender: String,
    process: ProcessIdentity,
    slots: GrantedSlots,
    since: Instant,
    /// Since when the process of the requester is known to have ended.
    gone_since: Option<Instant>,
}

/// The work of the agent's thread for a service. It ends with the service.
struct ServeTask {
    service: Weak<Service>,
    id: ServiceId,
    patience: Duration,
    is_open: bool,
    /// While there are sessions. A peer may read its slots after the layout was destroyed: if NIXL emulates that, the read is
    /// made by this process, and must find memory.
    arena: Option<Arc<ServiceMemory>>,
    sessions: Vec<Session>,
    waiting: VecDeque<Waiting>,
    quarantined: Vec<Quarantine>,
    free_slots: Vec<u32>,
    /// Sessions that their requesters have closed, the last ones. A request is large, so that it may arrive after the message
    /// that closes it.
    closed: VecDeque<SessionKey>,
    /// Free entries of sessions, and those of refusals, the oldest first.
    free_entries: VecDeque<usize>,
    refusals: VecDeque<usize>,
    last_check: Instant,
    last_progress: Instant,
    /// Why messages could not be received the last time. It is logged once.
    failure: Option<String>,
    has_warned: bool,
}

impl AgentTask for ServeTask {
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
            self.last_check = Instant::now();
            self.check_peers(&service);
        }
        let is_used = !self.sessions.is_empty() || !self.quarantined.is_empty();
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
    }
}

impl ServeTask {
    fn new(service: &Arc<Service>) -> Self {
        Self {
            service: Arc::downgrade(service),
            id: service.served.id,
            patience: service.patience,
            is_open: false,
            arena: None,
            sessions: Vec::new(),
            waiting: VecDeque::new(),
            quarantined: Vec::new(),
            free_slots: (0..service.served.slots).rev().collect(),
            closed: VecDeque::with_capacity(MOST_CLOSED),
            free_entries: (1..=MOST_SESSIONS).collect(),
            refusals: (MOST_SESSIONS + 1..=control::ENTRIES).collect(),
            last_check: Instant::now(),
            last_progress: Instant::now(),
            failure: None,
            has_warned: false,
        }
    }

    /// After the layout was destroyed: keeps the arena until its sessions are closed, or their requesters gone or too slow.
    fn linger(&mut self, state: &mut AgentState) -> TaskStep {
        let received = state.receive();
        let (messages, _) = state.services.take(&self.id);
        for message in messages {
            if let Ok(Message { session, body: Body::Close }) = Message::read(&message.data) {
                self.sessions.retain(|each| each.key != session || each.sender != message.agent);
                self.quarantined.retain(|each| each.key != session || each.sender != message.agent);
            }
        }
        if received.is_err() || self.last_check.elapsed() >= LIVENESS {
            self.last_check = Instant::now();
            let patience = self.patience;
            // The last copy has dropped the service.
            self.sessions.iter_mut().for_each(|session| drop(session.end_copies()));
            self.sessions.retain(|session| !session.is_stalled(patience) && !session.process.is_gone());
            self.quarantined.retain(|each| each.since.elapsed() < patience && !each.process.is_gone());
        }
        if self.arena.is_some() && !(self.sessions.is_empty() && self.quarantined.is_empty()) {
            return TaskStep::Waiting;
        }
        state.services.close(&self.id);
        TaskStep::Done
    }

    /// Handles the messages that have arrived. Returns whether there were any.
    fn receive(&mut self, state: &mut AgentState, service: &Service) -> bool {
        let failure = state.receive().err().map(|error| error.to_string());
        if let Some(failure) = failure.as_ref().filter(|failure| self.failure.as_ref() != Some(*failure)) {
            log!(Warn, "{failure}");
        }
        self.failure = failure;
        let (messages, dropped) = state.services.take(&self.id);
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
            Body::Open(open) => self.open(service, Waiting { key, sender, open, since: Instant::now() }),
            Body::Progress(chunks) => {
                let Some(session) = self.session(key, &sender) else { return };
                if let Err(error) = session.report(chunks) {
                    self.end(key, service, SessionState::failed(&error));
                }
            }
            Body::Close => {
                self.note_closed(key);
                self.waiting.retain(|waiting| waiting.key != key || waiting.sender != sender);
                // The requester accesses the slots no more.
                let is_it = |each: &Quarantine| each.key == key && each.sender == sender;
                if let Some(index) = self.quarantined.iter().position(is_it) {
                    self.free_slots.extend_from_slice(&self.quarantined.swap_remove(index).slots);
                }
                if let Some(session) = self.session(key, &sender) {
                    session.is_over = true;
                    session.writes = false; // no quarantine
                }
            }
        }
    }

    fn note_closed(&mut self, key: SessionKey) {
        if self.closed.len() == MOST_CLOSED {
            self.closed.pop_front();
        }
        self.closed.push_back(key);
    }

    fn session(&mut self, key: SessionKey, sender: &str) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|session| session.key == key && session.sender == sender)
    }

    fn open(&mut self, service: &Service, request: Waiting) {
        let is_known = self.sessions.iter().any(|session| session.key == request.key)
            || self.waiting.iter().any(|waiting| waiting.key == request.key)
            || self.quarantined.iter().any(|each| each.key == request.key)
            || self.closed.contains(&request.key);
        if is_known {
            return;
        }
        let of_one = self.waiting.iter().filter(|waiting| waiting.sender == request.sender).count();
        let refusal = if request.open.writes && !service.served.writes {
            Some(Error::new(Status::PermissionDenied, "the owner serves reads only; it must allow writes"))
        } else if self.waiting.len() >= MOST_WAITING || of_one >= MOST_WAITING_OF_ONE {
            Some(Error::new(Status::Busy, "too many requests wait for slots of the owner's arena; try again"))
        } else {
            None
        };
        match refusal {
            Some(error) => self.refuse(service, request.key, &error),
            None => self.waiting.push_back(request),
        }
    }

    fn refuse(&mut self, service: &Service, key: SessionKey, error: &Error) {
        self.warn(format_args!("a request was refused: {error}"));
        if let Some(entry) = self.refusals.pop_front() {
            service.write(entry, &SessionState::failed(error).entry(key));
            self.refusals.push_back(entry);
        }
    }

    /// Gives slots to requests that wait. Returns whether there were any.
    fn admit(&mut self, service: &Arc<Service>) -> bool {
        let mut any = false;
        let mut index = 0;
        while index < self.waiting.len() && !self.free_slots.is_empty() && !self.free_entries.is_empty() {
            let sender = &self.waiting[index].sender;
            let of_sessions = self.sessions.iter().map(|session| (&session.sender, &session.slots));
            let quarantined = self.quarantined.iter().map(|each| (&each.sender, &each.slots));
            let of_peer = of_sessions.chain(quarantined).filter(|(of, _)| *of == sender);
            let taken: usize = of_peer.map(|(_, slots)| slots.len()).sum();
            let count = SLOTS_OF_SESSION.min(self.free_slots.len()).min(SLOTS_OF_PEER.saturating_sub(taken));
            if count == 0 {
                index += 1;
                continue;
            }
            let (Some(Waiting { key, sender, open, .. }), Some(entry)) =
                (self.waiting.remove(index), self.free_entries.pop_front())
            else {
                break;
            };
            let slots = self.free_slots.split_off(self.free_slots.len() - count);
            any = true;
            match Session::new((key, sender), &open, service, GrantedSlots::new(&slots), entry) {
                Ok(session) => {
                    service.write(entry, &session.state().entry(key));
                    self.sessions.push(session);
                }
                Err(error) => {
                    self.free_slots.extend(slots);
                    self.free_entries.push_front(entry);
                    self.refuse(service, key, &error);
                }
            }
        }
        any
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
        let mut index = 0;
        while let Some(session) = self.sessions.get(index) {
            if session.is_over && session.is_quiet() {
                let session = self.sessions.swap_remove(index);
                self.dismiss(session);
                any = true;
            } else {
                index += 1;
            }
        }
        any
    }

    /// Ends a session, and reports the reason to its requester.
    fn end(&mut self, key: SessionKey, service: &Service, reason: SessionState) {
        let Some(session) = self.sessions.iter_mut().find(|session| session.key == key) else { return };
        session.is_over = true;
        service.write(session.entry, &reason.entry(key));
    }

    /// Frees what a session had. A requester that has not closed it may still write to its slots.
    fn dismiss(&mut self, session: Session) {
        let Session { key, sender, process, writes, slots, entry, .. } = session;
        self.free_entries.push_back(entry);
        match writes {
            true => self.quarantined.push(Quarantine {
                key,
                sender,
                process,
                slots,
                since: Instant::now(),
                gone_since: None,
            }),
            false => self.free_slots.extend_from_slice(&slots),
        }
    }

    /// Ends sessions whose requesters are gone or make no progress.
    fn check_peers(&mut self, service: &Service) {
        let patience = self.patience;
        let lost: Vec<_> = self
            .sessions
            .iter()
            .filter(|session| !session.is_over)
            .filter(|session| session.is_stalled(patience) || session.process.is_gone())
            .map(|session| session.key)
            .collect();
        for key in lost {
            self.warn(format_args!("a requester is gone or makes no progress, and loses its session"));
            self.end(key, service, stalled(patience));
        }
        self.waiting.retain(|waiting| waiting.since.elapsed() < patience && !waiting.open.process.is_gone());
        let mut freed = Vec::new();
        self.quarantined.retain_mut(|each| {
            if each.gone_since.is_none() && each.process.is_gone() {
                each.gone_since = Some(Instant::now());
            }
            // What a process has sent may arrive after its end.
            let is_over = each.gone_since.is_some_and(|since| since.elapsed() >= patience);
            if is_over {
                freed.extend_from_slice(&each.slots);
            }
            !is_over
        });
        self.free_slots.append(&mut freed);
    }

    fn warn(&mut self, text: std::fmt::Arguments<'_>) {
        match std::mem::replace(&mut self.has_warned, true) {
            false => log!(Warn, "{text}"),
            true => log!(Debug, "{text}"),
        }
    }
}
