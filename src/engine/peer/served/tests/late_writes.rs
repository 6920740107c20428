// SPDX-License-Identifier: Apache-2.0
//! Writes that the network has held until their slot belongs to another session, over NIXL and UCX in one process.

use std::time::Duration;

use super::{BLOCK, BLOCKS, STALL_TIMEOUT, Served, ended_process, key, layout, terms};
use crate::base::Status;
use crate::engine::peer::served::protocol::message::Body;
use crate::engine::peer::served::protocol::session_control::{ENTRY, MAX_SLOTS, SessionState, seed};
use crate::engine::peer::served::protocol::words;
use crate::layout::Memory;
use crate::nixl::{MemoryType, Operation, RequestSide, Span};
use crate::waiting::until;

const CHUNK: u64 = 4096;

impl Served {
    /// Writes these bytes to a slot of the owner by NIXL.
    fn write_slot(&self, slot: u32, byte: u8) {
        let local = layout(&self.peer, BLOCKS);
        let regions = local.memory().regions();
        let address = regions[0].address();
        for at in (0..CHUNK).step_by(ENTRY) {
            words::write(address + at, &regions[0], &[byte; ENTRY]);
        }
        let Memory::Remote(remote) = self.remote.memory() else { panic!("the layout is remote") };
        let side = RequestSide::Peer(remote.peer.clone());
        let there = self.remote.served().unwrap().slot(slot);
        let span = |address| [Span { address, size: CHUNK, device_id: 0 }].into_iter();
        let request = self.peer.run(move |state| {
            let (here, there) = ((MemoryType::Dram, span(address)), (&side, MemoryType::Dram, span(there)));
            let request = state.create_request(Operation::Write, here, there)?;
            state.post(request).map(|is_done| (request, is_done))
        });
        let (request, is_done) = request.unwrap();
        until("the write does not end", || {
            is_done || self.peer.run(move |state| state.is_done(request)).unwrap()
        });
        self.peer.run(move |state| state.release_request(request)).unwrap();
    }

    /// A write of all blocks, once it has slots.
    fn open_write(&self, number: u8) -> Vec<u32> {
        self.open(key(number), true, BLOCKS * BLOCK, terms(BLOCKS as u32));
        match self.wait(key(number), |state| matches!(state, SessionState::Open { .. })) {
            SessionState::Open { slots, .. } => slots.to_vec(),
            _ => unreachable!(),
        }
    }
}

/// The checksum of the first chunk of a session.
fn checksum(number: u8, byte: u8) -> u32 {
    crc32c::crc32c_append(seed(key(number), 0), &[byte; CHUNK as usize])
}

fn report(number: u8, byte: u8) -> Body {
    let mut checksums = [0; MAX_SLOTS];
    checksums[0] = checksum(number, byte);
    Body::Progress { chunks: 1, checksums }
}

#[test]
fn a_write_that_arrives_in_a_slot_of_another_session_is_found() {
    let Some(served) = Served::new(Duration::from_secs(3600), true) else { return };
    let (second, reader) = (served.with_peer_named("second"), served.with_peer_named("reader"));
    // Its process has ended, and something of its is still in the network.
    served.open_by(ended_process(), key(1), true, BLOCKS * BLOCK, terms(BLOCKS as u32));
    served.expect_refusal(key(1), Status::TimedOut, "");
    // The other slots.
    reader.open(key(9), false, BLOCKS * BLOCK, terms(BLOCKS as u32));
    reader.wait(key(9), |state| matches!(state, SessionState::Open { slots, .. } if slots.len() == 4));
    let slots = second.open_write(2);
    second.write_slot(slots[0], 5);
    served.write_slot(slots[0], 6);
    second.say(key(2), report(2, 5));
    second.expect_refusal(key(2), Status::Corrupt, "chunk 0 has CRC32C");
}

#[test]
fn a_write_without_checksums_or_with_those_of_another_session_is_refused() {
    let Some(served) = Served::new(STALL_TIMEOUT, true) else { return };
    for (number, body) in [(1, Body::progress(1)), (2, report(1, 5))] {
        let slots = served.open_write(number);
        served.write_slot(slots[0], 5);
        served.say(key(number), body);
        served.expect_refusal(key(number), Status::Corrupt, "chunk 0 has CRC32C");
        served.say(key(number), Body::Close);
    }
    let slots = served.open_write(3);
    served.write_slot(slots[0], 5);
    served.say(key(3), report(3, 5));
    served.wait(key(3), |state| matches!(state, SessionState::Open { chunks: 1, .. }));
    // A repeated report changes nothing.
    served.say(key(3), report(3, 4));
    served.say(key(3), Body::Close);
}
