// SPDX-License-Identifier: Apache-2.0
//! Runs of a requester whose owner sends false states, over NIXL and UCX in one process. The test is the owner.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::{DEADLINE, build, known_to};
use crate::base::{Error, Result, Status};
use crate::engine::peer::served::protocol::message::{Body, Message, SessionKey};
use crate::engine::peer::served::protocol::session_control::{
    self, ChunkChecksums, ENTRY, GrantedSlots, MAX_SLOTS, SessionState, seed,
};
use crate::engine::peer::served::protocol::words;
use crate::layout::{Dimensions, Layout, Served, ServiceEnd};
use crate::nixl::{Agent, Descriptor, MemoryType, ServiceId};
use crate::region::{Region, Registration, RegistrationHold, SystemConfig, random};
use crate::run::{Granted, LeaseRequest};
use crate::transfer::{
    BlockPair, Lease, LeaseTerms, Preferences, Step, Transfer, TransferMethod, TransferRequest,
};
use crate::waiting::{until, until_some};

const SLOTS: u32 = 4;
const SLOT: u64 = 4096;
/// One chunk each.
const BLOCKS: u64 = 12;

fn layout(agent: &Arc<Agent>) -> Arc<Layout> {
    build(agent, Dimensions { num_blocks: BLOCKS, inner_dim: SLOT, ..Dimensions::ONE })
}

/// An owner whose service is the test.
struct Owner {
    agent: Arc<Agent>,
    id: ServiceId,
    arena: RegistrationHold,
    local: Arc<Layout>,
    remote: Arc<Layout>,
    layout: Arc<Layout>,
    /// Messages that were received and not looked at.
    unread: RefCell<VecDeque<Message>>,
    /// The sessions that were served. Their requests may arrive again: a requester repeats one that has no reply yet.
    served: RefCell<Vec<SessionKey>>,
    _peer: Arc<Agent>,
}

impl Owner {
    /// `None` without NIXL.
    fn new() -> Option<Self> {
        let (agent, peer) = (Agent::with_ucx("liar")?, Agent::with_ucx("requester")?);
        let size = session_control::SIZE as u64 + u64::from(SLOTS) * SLOT;
        let region = Region::system(&SystemConfig { size, ..SystemConfig::default() }).unwrap();
        let arena = Registration::create(&region, &agent).unwrap().hold().unwrap();
        let id = ServiceId(random().unwrap());
        let layout = layout(&agent);
        layout.create_epochs(None).unwrap();
        let descriptor =
            Descriptor { address: region.address(), size, device_id: 0, memory_type: MemoryType::Dram };
        let served = Served {
            id,
            arena: descriptor,
            device: None,
            slots: SLOTS,
            slot_size: SLOT,
            writes: true,
            longest_lease: 60_000,
            end: ServiceEnd::default(),
        };
        layout.set_served(served).unwrap();
        agent
            .run(move |state| {
                state.services.open(id);
                Ok(())
            })
            .unwrap();
        let remote = known_to(&peer, &agent, &layout);
        let local = self::layout(&peer);
        let (unread, served) = Default::default();
        let owner = Self { agent, id, arena, local, remote, layout, unread, served, _peer: peer };
        owner.write(0, &session_control::head(&id, DEADLINE));
        Some(owner)
    }

    fn write(&self, entry: usize, bytes: &[u8; ENTRY]) {
        let region = self.arena.region();
        words::write(region.address() + (entry * ENTRY) as u64, region, bytes);
    }

    /// Waits for a message that suits. Those after it are looked at by the next call.
    fn await_message<R>(&self, suits: impl Fn(Message) -> Option<R>) -> R {
        until_some("the requester sends nothing", || {
            if let Some(found) = std::iter::from_fn(|| self.next_unread()).find_map(&suits) {
                return Some(found);
            }
            let id = self.id;
            let messages = self.agent.run(move |state| {
                state.receive(&mut false)?;
                Ok(state.services.take(&id).messages)
            });
            let read = messages.unwrap().into_iter().map(|message| Message::read(&message.data).unwrap());
            self.unread.borrow_mut().extend(read);
            None
        })
    }

    /// Waits until a session has moved a chunk. A requester that has moved none repeats that after a time.
    fn await_progress(&self, key: SessionKey) {
        self.await_message(|message| {
            let Body::Progress { chunks: 1.., .. } = message.body else { return None };
            (message.session == key).then_some(())
        });
    }

    fn next_unread(&self) -> Option<Message> {
        self.unread.borrow_mut().pop_front()
    }

    /// Waits for the request of a session that was not served before.
    fn await_request(&self) -> SessionKey {
        let is_new = |message: &Message| {
            matches!(message.body, Body::Open(_)) && !self.served.borrow().contains(&message.session)
        };
        let session = self.await_message(|message| is_new(&message).then_some(message.session));
        self.served.borrow_mut().push(session);
        session
    }

    /// Waits for a request for a lease that suits.
    fn await_lease(&self, suits: impl Fn(&LeaseRequest) -> bool) -> SessionKey {
        self.await_message(|Message { session, body }| match body {
            Body::Lease(request) if suits(&request) => Some(session),
            _ => None,
        })
    }

    /// Has blocks leased; the test replies.
    fn lease(&self, timeout: Duration, reply: impl FnOnce(SessionKey)) -> Result<Lease> {
        std::thread::scope(|scope| {
            let (terms, remote) =
                (LeaseTerms { timeout: Some(timeout), ..LeaseTerms::default() }, &self.remote);
            let taken = scope.spawn(move || Lease::take(remote, &[3, 1, 2], terms));
            reply(self.await_lease(|request| !request.blocks.is_empty()));
            taken.join().unwrap()
        })
    }

    /// Runs a transfer whose session the test serves. Returns how it fails.
    fn run(&self, reads: bool, lie: impl FnOnce(&Self, SessionKey)) -> Error {
        self.run_within(None, reads, lie)
    }

    fn run_within(
        &self,
        stall_timeout: Option<Duration>,
        reads: bool,
        lie: impl FnOnce(&Self, SessionKey),
    ) -> Error {
        let preferences = Preferences { stall_timeout, ..Preferences::default() };
        self.run_with(preferences, reads, lie).unwrap_err()
    }

    fn run_with(
        &self,
        preferences: Preferences,
        reads: bool,
        serve: impl FnOnce(&Self, SessionKey),
    ) -> Result<()> {
        self.run_step(preferences, Step::default(), reads, serve)
    }

    fn run_step(
        &self,
        preferences: Preferences,
        step: Step<'_>,
        reads: bool,
        serve: impl FnOnce(&Self, SessionKey),
    ) -> Result<()> {
        let pairs: Vec<_> = (0..BLOCKS as u32).map(|id| BlockPair { source: id, destination: id }).collect();
        let method = TransferMethod::NixlServed;
        let preferences = Preferences { method: Some(method), ..preferences };
        let request = TransferRequest { preferences, ..TransferRequest::default() };
        let [source, destination] =
            if reads { [&self.remote, &self.local] } else { [&self.local, &self.remote] };
        let transfer = Transfer::create(source, destination, request).unwrap();
        transfer.prepare(Step { pairs: &pairs, ..step }).unwrap();
        submit(&transfer);
        serve(self, self.await_request());
        transfer.wait(Some(DEADLINE))
    }
}

/// Submits a transfer. The run before may have ended at a limit, and use its blocks for a moment more.
fn submit(transfer: &Transfer) {
    until("the run before goes on", || {
        let submitted = transfer.submit(None);
        submitted.inspect_err(|error| assert_eq!(error.status(), Status::Busy, "{error}")).is_ok()
    });
}

fn open(slots: &[u32], chunks: u64) -> SessionState {
    SessionState::Open { slots: GrantedSlots::new(slots), chunks, checksums: [0; MAX_SLOTS] }
}

/// The entry of a state, with the checksums of slots that nothing was written to.
fn entry(state: &SessionState, key: SessionKey) -> [u8; ENTRY] {
    match *state {
        SessionState::Open { slots, chunks, .. } => {
            let first = chunks.saturating_sub(slots.len() as u64);
            let mut checksums = ChunkChecksums::default();
            for chunk in first..chunks.min(first + slots.len() as u64) {
                checksums.set(&slots, chunk, empty(key, chunk));
            }
            SessionState::Open { slots, chunks, checksums: checksums.0 }.entry(key)
        }
        _ => state.entry(key),
    }
}

/// The checksum of a chunk whose slot is empty.
fn empty(key: SessionKey, chunk: u64) -> u32 {
    crc32c::crc32c_append(seed(key, chunk), &[0; SLOT as usize])
}

fn expect(error: &Error, status: Status, text: &str) {
    error.assert_is(status, text);
}

#[test]
fn states_that_contradict_each_other_end_the_run() {
    let Some(owner) = Owner::new() else { return };
    for reads in [true, false] {
        let of = |states: &[SessionState]| {
            owner.run(reads, |owner, key| {
                let (last, before) = states.split_last().unwrap();
                for state in before {
                    owner.write(1, &entry(state, key));
                    owner.await_progress(key);
                }
                owner.write(1, &entry(last, key));
            })
        };
        let contradicts = "which contradicts its earlier entries";
        expect(&of(&[open(&[0, 1], 3)]), Status::Corrupt, contradicts);
        expect(&of(&[open(&[0], u64::MAX)]), Status::Corrupt, contradicts);
        expect(
            &of(&[open(&[0, 1], if reads { 2 } else { 0 }), open(&[1, 0], 2)]),
            Status::Corrupt,
            contradicts,
        );
        expect(&of(&[open(&[0, SLOTS], 0)]), Status::Corrupt, "slots that its arena does not have");
        expect(&of(&[open(&[1, 1], 0)]), Status::Corrupt, "or one twice");
        expect(&of(&[open(&[], 0)]), Status::Corrupt, "the owner's entry is damaged");
        if reads {
            expect(&of(&[open(&[0, 1], 2), open(&[0, 1], 1)]), Status::Corrupt, contradicts);
        }
        let ended = |status, reason: &str| SessionState::Ended { status, reason: reason.into() };
        expect(&of(&[ended(0, "success")]), Status::Corrupt, "success");
        expect(&of(&[ended(Status::Busy as i32, "later\x1b[31m")]), Status::Busy, r"later\u{1b}[31m");
    }
}

#[test]
fn an_owner_that_says_nothing_new_is_stalled() {
    let Some(owner) = Owner::new() else { return };
    for reads in [true, false] {
        let stalls = "with agent 'liar': nothing was moved for 300 ms";
        let stall_timeout = Some(Duration::from_millis(300));
        expect(&owner.run_within(stall_timeout, reads, |_, _| ()), Status::TimedOut, stalls);
        let torn = owner.run_within(stall_timeout, reads, |owner, key| {
            let mut torn = entry(&open(&[0], 0), key);
            torn[ENTRY - 1] ^= 1;
            owner.write(1, &torn);
        });
        expect(&torn, Status::TimedOut, stalls);
        let reply = |owner: &Owner, key| owner.write(1, &entry(&open(&[0], 0), key));
        let idle = owner.run_within(stall_timeout, reads, reply);
        expect(&idle, Status::TimedOut, stalls);
    }
}

#[test]
fn a_session_or_a_service_that_is_gone_ends_the_run() {
    let Some(owner) = Owner::new() else { return };
    let await_progress = |owner: &Owner, key: SessionKey| {
        owner.write(1, &entry(&open(&[0, 1], 2), key));
        owner.await_progress(key);
    };
    let forgotten = owner.run(true, |owner, key| {
        await_progress(owner, key);
        owner.write(1, &[0; ENTRY]);
    });
    expect(&forgotten, Status::Stale, "the blocks of the destination may have other bytes");
    let gone = owner.run(true, |owner, key| {
        await_progress(owner, key);
        owner.write(0, &[0; ENTRY]);
    });
    expect(&gone, Status::Stale, "the owner serves the layout no more");
}

/// An owner without a request for some time may have given the slots to another session.
#[test]
fn a_write_begins_only_within_the_lease_of_its_slots() {
    let Some(owner) = Owner::new() else { return };
    let mut head = session_control::head(&owner.id, DEADLINE);
    head[12..16].fill(0);
    owner.write(0, &head);
    let stall_timeout = Some(Duration::from_millis(300));
    let grant = |owner: &Owner, key| owner.write(1, &entry(&open(&[0], 0), key));
    let error = owner.run_within(stall_timeout, false, grant);
    expect(&error, Status::TimedOut, "with agent 'liar': nothing was moved");
    let reported = Cell::new(0);
    owner.await_message(|message| {
        if let Body::Progress { chunks, .. } = message.body {
            reported.set(chunks.max(reported.get()));
        }
        matches!(message.body, Body::Close).then_some(())
    });
    assert_eq!(reported.get(), 0, "the slot was written");
}

/// Of the bytes in the slots, in which nothing was changed.
#[test]
fn chunks_whose_checksums_differ_are_no_data() {
    let Some(owner) = Owner::new() else { return };
    let slots = GrantedSlots::new(&[2, 0]);
    let read = |verifies, checksums: &dyn Fn(SessionKey) -> [u32; 2]| {
        let step = Step { verifies, ..Step::default() };
        // The owner does not serve the blocks a second time, so those that differ are not found.
        let stall_timeout = Some(Duration::from_secs(2));
        let preferences = Preferences { stall_timeout, ..Preferences::default() };
        owner.run_step(preferences, step, true, |owner, key| {
            let mut all = [0; MAX_SLOTS];
            all[..2].copy_from_slice(&checksums(key));
            owner.write(1, &SessionState::Open { slots, chunks: 2, checksums: all }.entry(key));
        })
    };
    let is_corrupt = |checksums: &dyn Fn(SessionKey) -> [u32; 2]| {
        expect(&read(false, checksums).unwrap_err(), Status::Corrupt, "damaged on the way");
    };
    is_corrupt(&|key| [empty(key, 0), empty(key, 1) ^ 1]);
    // Of another session, and of the round before.
    is_corrupt(&|key| [empty(SessionKey([7; 16]), 0), empty(key, 1)]);
    is_corrupt(&|key| [empty(key, 0), empty(key, 3)]);
    let error = read(true, &|key| [empty(key, 0), empty(key, 1) ^ 1]).unwrap_err();
    expect(&error, Status::Corrupt, "damaged on the way");
    expect(&error, Status::Corrupt, "the blocks that differ were not found");
}

/// As if the owner had filled a block again while it gathered the chunk.
#[test]
fn chunks_of_reused_blocks_are_stale_rather_than_damaged() {
    let Some(owner) = Owner::new() else { return };
    let step = Step { verifies: true, epochs: Some(&[0; BLOCKS as usize]), ..Step::default() };
    let read = owner.run_step(Preferences::default(), step, true, |owner, key| {
        owner.layout.raise_epochs(&[0]).unwrap();
        owner.write(1, &open(&[0, 1], 2).entry(key));
    });
    expect(&read.unwrap_err(), Status::Stale, "1 of 12 source blocks have other epochs than expected");
}

#[test]
fn a_write_reports_the_checksum_of_each_chunk() {
    let Some(owner) = Owner::new() else { return };
    let slots = GrantedSlots::new(&[1, 3]);
    let written = owner.run_with(Preferences::default(), false, |owner, key| {
        let mut scattered = 0;
        while scattered < BLOCKS {
            owner.write(
                1,
                &SessionState::Open { slots, chunks: scattered, checksums: [0; MAX_SLOTS] }.entry(key),
            );
            let known = scattered;
            scattered = owner.await_message(|message| match message.body {
                Body::Progress { chunks, checksums } if message.session == key && chunks > known => {
                    for chunk in known..chunks {
                        assert_eq!(checksums[slots.index(chunk)], empty(key, chunk), "chunk {chunk}");
                    }
                    Some(chunks)
                }
                _ => None,
            });
        }
        owner.write(1, &SessionState::Open { slots, chunks: BLOCKS, checksums: [0; MAX_SLOTS] }.entry(key));
    });
    written.unwrap();
}

fn leased(number: u64, milliseconds: u32) -> SessionState {
    SessionState::Leased(Granted { number, milliseconds })
}

#[test]
fn replies_to_requests_for_leases_are_checked() {
    let Some(owner) = Owner::new() else { return };
    let of =
        |state: SessionState| owner.lease(DEADLINE, |key| owner.write(1, &state.entry(key))).err().unwrap();
    expect(&of(open(&[0], 0)), Status::Corrupt, "its entry of a lease is one of a session");
    let full = SessionState::Ended { status: Status::OutOfMemory as i32, reason: "no more".into() };
    expect(&of(full), Status::OutOfMemory, "agent 'liar' serves the layout: no more");
    let timeout = Duration::from_millis(300);
    let silent = owner.lease(timeout, |_| ()).err().unwrap();
    expect(
        &silent,
        Status::TimedOut,
        "agent 'liar' has not replied within 300 ms to the request for a lease",
    );
}

#[test]
fn a_lease_lasts_as_long_as_its_owner_says_and_lost_messages_are_sent_again() {
    let Some(owner) = Owner::new() else { return };
    let key = Cell::new(SessionKey([0; 16]));
    let asked = owner.lease(DEADLINE, |of| {
        key.set(of);
        assert!(of == owner.await_lease(|request| request.blocks.is_empty()), "it asks for the reply");
        owner.write(1, &SessionState::Unknown.entry(of));
        assert!(of == owner.await_lease(|request| !request.blocks.is_empty()), "its request was lost");
        owner.write(1, &leased(0, 20_000).entry(of));
    });
    let lease = asked.unwrap();
    assert!(lease.remaining() <= Some(Duration::from_secs(20)) && lease.remaining() > Some(Duration::ZERO));
    std::thread::scope(|scope| {
        let renewed = scope.spawn(|| lease.renew(Some(Duration::from_secs(50))));
        // The reply before is still there.
        owner.await_lease(|request| request.number == 1 && request.milliseconds == 50_000);
        owner.await_lease(|request| request.number == 1);
        assert!(!renewed.is_finished());
        owner.write(1, &leased(1, 40_000).entry(key.get()));
        renewed.join().unwrap().unwrap();
    });
    let remaining = lease.remaining().unwrap();
    assert!(remaining <= Duration::from_secs(40) && remaining > Duration::from_secs(20), "{remaining:?}");
    drop(lease);
    owner.await_message(|message| {
        (message == Message { session: key.get(), body: Body::Close }).then_some(())
    });
}
