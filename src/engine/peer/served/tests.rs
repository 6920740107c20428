// SPDX-License-Identifier: Apache-2.0
//! A service and peers that send nonsense, over NIXL and UCX in one process.

mod late_writes;
mod lying_owner;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::protocol::words;
use super::*;
use crate::base::{ProcessIdentity, Result, Status};
use crate::engine::peer::served::protocol::message::{Body, MAX_BYTES, Message, Open, SessionKey};
use crate::engine::peer::served::protocol::session_control::{Entry, SessionState};
use crate::engine::preferences::STALL_TIMEOUT;
use crate::layout::{AllocationConfig, Arrangement, Dimensions, Geometry, Layout, LayoutSource};
use crate::nixl::{Agent, AgentState, ServiceId};
use crate::plan::Terms;
use crate::region::SystemConfig;
use crate::transfer::{BlockPair, Preferences, Step, Transfer, TransferMethod, TransferRequest};
use crate::waiting::{until, until_some};

const BLOCKS: u64 = 64;
const DEADLINE: Duration = Duration::from_secs(60);

/// The layout of an owner, as the peer knows it.
fn known_to(peer: &Arc<Agent>, owner: &Agent, layout: &Layout) -> Arc<Layout> {
    let metadata = owner.run(|state| state.local_metadata()).unwrap();
    peer.run(move |state| state.load_remote(&metadata)).unwrap();
    Layout::import(peer, &layout.export().unwrap()).unwrap()
}

fn build(agent: &Arc<Agent>, dimensions: Dimensions) -> Arc<Layout> {
    let memory = LayoutSource::Allocate(AllocationConfig::System(SystemConfig::default()));
    let geometry = Geometry::new(dimensions, Arrangement::FULLY_CONTIGUOUS).unwrap();
    Layout::build(geometry, memory, Some(agent.clone())).unwrap()
}

fn layout(agent: &Arc<Agent>, num_blocks: u64) -> Arc<Layout> {
    let dimensions = Dimensions {
        num_blocks,
        num_layers: 2,
        outer_dim: 2,
        page_size: 4,
        inner_dim: 64,
        dtype_width: 2,
        ..Dimensions::ONE
    };
    build(agent, dimensions)
}

/// An owner that serves a layout, and a peer that knows it.
struct Served {
    owner: Arc<Agent>,
    layout: Arc<Layout>,
    peer: Arc<Agent>,
    remote: Arc<Layout>,
}

impl Served {
    /// With eight slots of a page, of which a peer has at most six. `None` without NIXL.
    fn new(stall_timeout: Duration, writes: bool) -> Option<Self> {
        let stall_timeout = Some(stall_timeout);
        let options =
            ServeOptions { staging_size: 8 * 4096, stall_timeout, writes, ..ServeOptions::default() };
        Self::with_blocks(BLOCKS, &options)
    }

    fn with_blocks(num_blocks: u64, options: &ServeOptions) -> Option<Self> {
        let (owner, peer) = (Agent::with_ucx("owner")?, Agent::with_ucx("peer")?);
        let layout = layout(&owner, num_blocks);
        serve(&layout, options).unwrap();
        Some(Self::with_peer(owner, layout, peer))
    }

    /// The same layout, with another peer that knows it.
    fn with_peer_named(&self, name: &str) -> Self {
        Self::with_peer(self.owner.clone(), self.layout.clone(), Agent::with_ucx(name).unwrap())
    }

    fn with_peer(owner: Arc<Agent>, layout: Arc<Layout>, peer: Arc<Agent>) -> Self {
        let remote = known_to(&peer, &owner, &layout);
        Self { owner, layout, peer, remote }
    }

    fn service(&self) -> ServiceId {
        self.layout.served().unwrap().id
    }

    fn send(&self, bytes: Vec<u8>) {
        self.peer.run(move |state| state.notify("owner", &bytes)).unwrap();
    }

    fn say(&self, session: SessionKey, body: Body) {
        self.send(Message { session, body }.write(&self.service()).unwrap());
    }

    fn open(&self, session: SessionKey, writes: bool, bytes: u64, terms: Terms) {
        self.open_by(ProcessIdentity::current().unwrap(), session, writes, bytes, terms);
    }

    fn open_by(&self, process: ProcessIdentity, session: SessionKey, writes: bool, bytes: u64, terms: Terms) {
        self.say(
            session,
            Body::Open(Arc::new(Open { process, writes, bytes, chunk_size: 4096, verifies: false, terms })),
        );
    }

    /// What the owner says of a session, once it says something that suits.
    fn wait(&self, session: SessionKey, suits: impl Fn(&SessionState) -> bool) -> SessionState {
        let served = self.layout.served().unwrap();
        until_some("the owner says nothing", || {
            // The owner's arena is in this process. Its agent's thread writes it.
            let bytes = words::copy_of(served.arena.address);
            match SessionState::find(&bytes, session, served.slots).unwrap() {
                Entry::State(state) => Some(state).filter(&suits),
                _ => None,
            }
        })
    }

    /// Opens sessions of reads, beginning with this key, until one is seen open: one may have ended at a short stall timeout before
    /// this thread looks. Returns the number of its slots.
    fn open_until_seen(&self, first: u8, bytes: u64, terms: &Terms) -> usize {
        for number in first.. {
            self.open(key(number), false, bytes, terms.clone());
            match self.wait(key(number), |state| *state != SessionState::Unknown) {
                SessionState::Open { slots, .. } => return slots.len(),
                state => {
                    assert!(
                        matches!(&state, SessionState::Ended { status, .. } if *status == Status::TimedOut as i32),
                        "{state:?}"
                    );
                }
            }
        }
        unreachable!()
    }

    fn expect_refusal(&self, session: SessionKey, expected: Status, text: &str) {
        let state = self.wait(session, |state| matches!(state, SessionState::Ended { .. }));
        let SessionState::Ended { status, reason } = state else { unreachable!() };
        assert!(status == expected as i32 && reason.contains(text), "{status}: {reason}");
    }

    fn read_all(&self) {
        read_all(&self.transfer()).unwrap();
    }

    fn transfer(&self) -> Transfer {
        let preferences = Preferences { method: Some(TransferMethod::NixlServed), ..Preferences::default() };
        let request = TransferRequest { preferences, ..TransferRequest::default() };
        Transfer::create(&self.remote, &layout(&self.peer, BLOCKS), request).unwrap()
    }
}

/// Reads all blocks, in reverse.
fn read_all(transfer: &Transfer) -> Result<()> {
    let pairs: Vec<_> = (0..BLOCKS as u32)
        .map(|source| BlockPair { source, destination: BLOCKS as u32 - 1 - source })
        .collect();
    transfer.submit(Some(Step { pairs: &pairs, ..Step::default() }))?;
    transfer.wait(Some(DEADLINE)).map(drop)
}

fn key(number: u8) -> SessionKey {
    SessionKey([number; 16])
}

fn ended_process() -> ProcessIdentity {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    ProcessIdentity { pid: child.id(), ..ProcessIdentity::current().unwrap() }
}

/// All of the first blocks of the layout.
fn terms(blocks: u32) -> Terms {
    let spans = [0, 0, blocks].map(u32::to_le_bytes).concat();
    Terms::raw("BLONHC".into(), [0, 2], [0, 2], [0, 1], [1, 4, 1, 2], spans)
}

const BLOCK: u64 = 2 * 2 * 4 * 64 * 2;

#[test]
fn nonsense_neither_ends_nor_stalls_a_service() {
    let Some(served) = Served::new(STALL_TIMEOUT, false) else { return };
    let prefix = served.service().prefix();
    let good = Message { session: key(1), body: Body::progress(1) }.write(&served.service()).unwrap();
    for bytes in
        [&prefix[..], &prefix[..8], &prefix[..20], &good[..good.len() - 1], &[&good[..], &[0]].concat()]
    {
        served.send(bytes.to_vec());
    }
    served.send([&prefix[..], &vec![7; MAX_BYTES + 1]].concat());
    served.send([&prefix[..8], &[0; 64]].concat());
    for _ in 0..600 {
        served.send(good.clone());
    }
    served.say(key(1), Body::progress(u64::MAX));
    served.say(key(1), Body::Close);
    served.read_all();
    assert!(served.owner.take_notifications(Some(Duration::ZERO)).is_err(), "a caller got a request");
}

#[test]
fn requests_that_the_layout_does_not_allow_are_refused_with_the_reason() {
    let Some(served) = Served::new(STALL_TIMEOUT, false) else { return };
    served.open(key(1), true, 2 * BLOCK, terms(2));
    served.expect_refusal(key(1), Status::PermissionDenied, "serves reads only");
    served.open(key(2), false, 2 * BLOCK + 1, terms(2));
    served.expect_refusal(key(2), Status::InvalidArgument, "the request is for 4097 bytes");
    served.open(key(3), false, 0, terms(BLOCKS as u32 + 1));
    served.expect_refusal(key(3), Status::OutOfRange, "");
    served.read_all();
}

/// The owner's step holds the service, as this test does. Then a lease asks no more either.
#[test]
fn a_layout_that_is_destroyed_during_a_step_is_known_to_be_destroyed() {
    let Some(served) = Served::new(STALL_TIMEOUT, false) else { return };
    let (_step, transfer) = (owner::serve::SERVICES.get(&served.layout).unwrap(), served.transfer());
    let Served { owner: _owner, layout, peer: _peer, remote } = served;
    drop(layout);
    for is_known in [false, true] {
        let error = read_all(&transfer).unwrap_err();
        assert_eq!(error.status(), Status::Stale, "{error}");
        assert_eq!(error.to_string().contains("as an earlier request has found"), is_known, "{error}");
        assert!(remote.served().unwrap().end.ensure_unknown("owner").is_err());
    }
}

/// Two peers have all slots, and say nothing more.
#[test]
fn silent_readers_lose_their_slots_to_a_peer_that_waits() {
    let Some(served) = Served::new(Duration::from_secs(3600), false) else { return };
    let (other, third) = (served.with_peer_named("other"), served.with_peer_named("third"));
    for (number, peer, slots) in [(1, &served, 4), (2, &served, 2), (3, &other, 2)] {
        peer.open(key(number), false, 2 * BLOCK, terms(2));
        let has_slots = |state: &SessionState| matches!(state, SessionState::Open { slots: granted, .. } if granted.len() == slots);
        peer.wait(key(number), has_slots);
    }
    third.read_all();
    served.expect_refusal(key(1), Status::TimedOut, "has sent no message for 5000 ms and others wait");
}

/// A requester repeats its reports, and others find its key in the control block.
#[test]
fn a_refusal_remains_until_its_requester_asks_again() {
    let Some(served) = Served::new(STALL_TIMEOUT, false) else { return };
    let other = served.with_peer_named("other");
    served.open(key(1), true, 2 * BLOCK, terms(2));
    served.expect_refusal(key(1), Status::PermissionDenied, "");
    served.say(key(1), Body::progress(0));
    other.say(key(1), Body::progress(0));
    other.open(key(1), false, 2 * BLOCK, terms(2));
    served.read_all();
    other.read_all();
    let state = served.wait(key(1), |_| true);
    assert!(matches!(state, SessionState::Ended { .. }), "{state:?}");
    served.open(key(1), false, 2 * BLOCK, terms(2));
    served.wait(key(1), |state| matches!(state, SessionState::Open { .. }));
}

#[test]
fn a_session_ends_at_a_report_that_is_not_possible() {
    let Some(served) = Served::new(STALL_TIMEOUT, false) else { return };
    let all = BLOCKS * BLOCK; // 32 chunks of a page
    served.open(key(1), false, all, terms(BLOCKS as u32));
    let state = served.wait(key(1), |state| matches!(state, SessionState::Open { chunks: 4, .. }));
    let SessionState::Open { slots, .. } = state else { unreachable!() };
    assert_eq!(slots.len(), 4, "no chunk without a slot");
    served.say(key(1), Body::progress(1));
    served.wait(key(1), |state| matches!(state, SessionState::Open { chunks: 5, .. }));
    served.say(key(1), Body::progress(6));
    served.expect_refusal(key(1), Status::InvalidArgument, "chunk 6 was reported, and 5 are possible");
    served.read_all();
}

#[test]
fn a_requester_that_stalls_loses_its_session() {
    let Some(served) = Served::new(Duration::from_millis(30), true) else { return };
    let all = BLOCKS * BLOCK;
    // One reads and one writes, and neither goes on. The slots of one peer are at most six of eight.
    served.open(key(1), false, all, terms(BLOCKS as u32));
    served.open(key(2), true, all, terms(BLOCKS as u32));
    for session in [1, 2] {
        served.expect_refusal(key(session), Status::TimedOut, "for 30 ms");
    }
    // The slots of the write are not used until it is closed.
    assert_eq!(served.open_until_seen(3, all, &terms(BLOCKS as u32)), 4);
    served.say(key(2), Body::Close);
    served.open_until_seen(100, all, &terms(BLOCKS as u32));
}

/// A large message may arrive after a small one that was sent later. Its session would keep slots that no run uses.
#[test]
fn a_request_that_arrives_after_it_was_closed_gets_no_slots() {
    let Some(served) = Served::new(STALL_TIMEOUT, false) else { return };
    for session in [1, 2] {
        served.say(key(session), Body::Close);
        served.open(key(session), false, BLOCKS * BLOCK, terms(BLOCKS as u32));
    }
    served.open(key(3), false, BLOCKS * BLOCK, terms(BLOCKS as u32));
    let state = served.wait(key(3), |state| matches!(state, SessionState::Open { .. }));
    assert!(matches!(state, SessionState::Open { slots, .. } if slots.len() == 4));
}

/// It was sent twice, because the owner did not know the session in time.
#[test]
fn a_request_that_arrives_again_after_its_session_has_ended_gets_no_slots() {
    let Some(served) = Served::new(Duration::from_secs(3600), false) else { return };
    served.open_by(ended_process(), key(1), false, BLOCKS * BLOCK, terms(BLOCKS as u32));
    served.expect_refusal(key(1), Status::TimedOut, "");
    served.open(key(1), false, BLOCKS * BLOCK, terms(BLOCKS as u32));
    // The owner handles requests in order: with this one, it has handled the one before.
    served.open(key(2), false, BLOCKS * BLOCK, terms(BLOCKS as u32));
    served.wait(key(2), |state| matches!(state, SessionState::Open { .. }));
    served.say(key(1), Body::progress(0));
    served.expect_refusal(key(1), Status::TimedOut, "");
    served.read_all();
}

/// Slots of ended writes, to which their requester may still write, count as slots of that peer.
#[test]
fn writes_that_stall_leave_slots_for_others() {
    // Long enough for the peer that goes on.
    let Some(served) = Served::new(Duration::from_secs(2), true) else { return };
    let write = |number| served.open(key(number), true, BLOCKS * BLOCK, terms(BLOCKS as u32));
    (1..=2).for_each(write);
    (1..=2).for_each(|number| served.expect_refusal(key(number), Status::TimedOut, ""));
    (3..=20).for_each(write);
    served.expect_refusal(key(20), Status::Busy, "");
    served.with_peer_named("other").read_all();
}

#[test]
fn the_owner_says_that_it_does_not_know_a_session_whose_request_was_lost() {
    let Some(served) = Served::new(STALL_TIMEOUT, false) else { return };
    let is_open = |state: &SessionState| matches!(state, SessionState::Open { .. });
    served.say(key(1), Body::progress(0));
    served.wait(key(1), |state| *state == SessionState::Unknown);
    served.open(key(1), false, BLOCKS * BLOCK, terms(BLOCKS as u32));
    served.wait(key(1), is_open);
    // A repeated report changes nothing, nor does one of another agent.
    served.say(key(1), Body::progress(0));
    served.with_peer_named("other").say(key(1), Body::Close);
    served.open(key(2), false, BLOCKS * BLOCK, terms(BLOCKS as u32));
    served.wait(key(2), is_open);
    served.wait(key(1), is_open);
}

#[test]
fn a_flood_of_one_peer_does_not_end_the_runs_of_another() {
    let Some(served) = Served::new(STALL_TIMEOUT, false) else { return };
    let (other, is_over) = (served.with_peer_named("other"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let report =
                Message { session: key(7), body: Body::progress(1) }.write(&served.service()).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                let report = report.clone();
                let send =
                    move |state: &mut AgentState| (0..256).try_for_each(|_| state.notify("owner", &report));
                served.peer.run(send).unwrap();
            }
        });
        let over = Over(&is_over);
        (0..20).for_each(|_| other.read_all());
        drop(over);
    });
}

/// Set when it is dropped, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is wrong is found before spans are listed, and a request has few of them.
#[test]
fn requests_of_many_spans_are_refused_before_these_are_listed() {
    let Some(served) = Served::new(STALL_TIMEOUT, false) else { return };
    let repeated = |count: usize| {
        let spans = [0, 0, BLOCKS as u32].map(u32::to_le_bytes).concat().repeat(count);
        Terms::raw("BLONHC".into(), [0, 2], [0, 2], [0, 1], [1, 4, 1, 2], spans)
    };
    served.open(key(1), false, 1, repeated(1024));
    served.expect_refusal(key(1), Status::InvalidArgument, "the request is for 1 bytes");
    served.open(key(2), false, 1025 * BLOCKS * BLOCK, repeated(1025));
    served.expect_refusal(key(2), Status::OutOfRange, "more than 65536 spans");
}

/// Waits until nothing else holds an agent.
fn await_end(owner: Arc<Agent>) {
    let weak = Arc::downgrade(&owner);
    drop(owner);
    until("the session is not over", || weak.upgrade().is_none());
}

/// The copies in progress hold the layout and the service, and drop them when they end.
#[test]
fn a_layout_that_is_destroyed_while_it_is_copied_frees_its_arena() {
    let stall_timeout = Some(Duration::from_millis(30));
    const SLOT: u64 = 16 << 20;
    let options = ServeOptions { staging_size: 8 * SLOT, stall_timeout, ..ServeOptions::default() };
    let Some(served) = Served::with_blocks(SLOT / BLOCK * 4, &options) else { return };
    let blocks = (SLOT / BLOCK * 4) as u32;
    let process = ProcessIdentity::current().unwrap();
    let open = Open {
        process,
        writes: false,
        bytes: 4 * SLOT,
        chunk_size: SLOT,
        verifies: false,
        terms: terms(blocks),
    };
    served.say(key(1), Body::Open(Arc::new(open)));
    // It may have stalled before this thread looks.
    served.wait(key(1), |state| *state != SessionState::Unknown);
    let Served { owner, layout, peer: _peer, remote: _remote } = served;
    drop(layout);
    await_end(owner);
}

#[test]
fn a_layout_that_is_destroyed_ends_its_sessions() {
    let Some(served) = Served::new(STALL_TIMEOUT, false) else { return };
    served.open(key(1), false, BLOCKS * BLOCK, terms(BLOCKS as u32));
    served.wait(key(1), |state| matches!(state, SessionState::Open { chunks: 4, .. }));
    let weak = Arc::downgrade(&served.layout);
    let Served { owner, layout, peer, .. } = served;
    let id = layout.served().unwrap().id;
    drop(layout);
    assert!(weak.upgrade().is_none(), "a session holds the layout");
    // The arena and its agent go when the peer has closed its session.
    let close = Message { session: key(1), body: Body::Close }.write(&id).unwrap();
    peer.run(move |state| state.notify("owner", &close)).unwrap();
    await_end(owner);
}
