// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::base::Status;
use crate::layout::{Arrangement, Dimensions, Order};
use crate::region::{Region, SystemConfig};
use crate::run::accesses::{Accessor, of_blocks};

const LONGEST: u32 = 3_600_000;
const KEY: [u8; 16] = [1; 16];

fn with_blocks(num_blocks: u64) -> Arc<Layout> {
    let dimensions = Dimensions { num_blocks, ..Dimensions::ONE };
    let region = Region::system(&SystemConfig { size: 1 << 20, ..SystemConfig::default() }).unwrap();
    Layout::place(dimensions, Arrangement::tight(Order::parse("BLONHC").unwrap()), vec![region]).unwrap()
}

fn key(number: usize) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key
}

fn request(layout: &Layout, blocks: &[u32]) -> LeaseRequest {
    let blocks = spans(layout, blocks).unwrap();
    LeaseRequest {
        process: ProcessIdentity::unknown(),
        number: 0,
        milliseconds: 1_000_000,
        writes: false,
        blocks,
    }
}

/// Another end; of a new lease its reply once more.
fn renewal(number: u64, milliseconds: u64) -> LeaseRequest {
    let (process, blocks) = (ProcessIdentity::unknown(), Vec::new());
    LeaseRequest { process, number, milliseconds, writes: false, blocks }
}

/// The blocks that a lease has, and whether they may be written.
fn leased(layout: &Layout, blocks: &[u32]) -> Vec<(u32, bool)> {
    let found = of_blocks(layout, blocks).unwrap();
    let of_a_peer = |by: &Accessor| matches!(by, Accessor::PeerLease { agent, .. } if agent == "far");
    assert!(found.iter().all(|access| access.reads && of_a_peer(&access.by)));
    found.iter().map(|access| (access.block, access.writes)).collect()
}

#[test]
fn blocks_are_leased_until_the_peer_ends_that() {
    let layout = with_blocks(8);
    let mut leases = PeerLeases::new(LONGEST);
    let granted = leases.reply(&layout, "far", KEY, &request(&layout, &[5, 1, 2, 1])).unwrap();
    assert_eq!(granted, Some(Granted { number: 0, milliseconds: 1_000_000 }));
    let all = Vec::from_iter(0..8);
    assert_eq!(leased(&layout, &all), [(1, false), (2, false), (5, false)]);
    let writes = LeaseRequest { writes: true, ..request(&layout, &[7]) };
    leases.reply(&layout, "far", key(2), &writes).unwrap();
    assert_eq!(leased(&layout, &[6, 7]), [(7, true)]);
    leases.end(KEY, "near");
    leases.end(key(3), "far");
    assert_eq!(leased(&layout, &[5]), [(5, false)], "it is not theirs");
    assert!(leases.is_of_another(KEY, "near") && !leases.is_of_another(KEY, "far"));
    leases.end(KEY, "far");
    assert_eq!(leased(&layout, &all), [(7, true)]);
    leases.hide();
    assert!(leased(&layout, &all).is_empty() && !leases.is_empty());
    leases.end(key(2), "far");
    assert!(leases.is_empty());
}

#[test]
fn a_lease_lasts_no_longer_than_the_owner_wants_and_is_renewed() {
    let layout = with_blocks(8);
    let mut leases = PeerLeases::new(500_000);
    let remaining = || {
        let found = of_blocks(&layout, &[3]).unwrap();
        match &*found[0].by {
            Accessor::PeerLease { end, .. } => end.remaining().unwrap().as_millis(),
            by => panic!("{by:?}"),
        }
    };
    let asked = LeaseRequest { milliseconds: u64::MAX, ..request(&layout, &[3]) };
    let granted = |number, milliseconds| Some(Granted { number, milliseconds });
    assert_eq!(leases.reply(&layout, "far", KEY, &asked).unwrap(), granted(0, 500_000));
    assert!((400_000..=500_001).contains(&remaining()));
    assert_eq!(leases.reply(&layout, "far", KEY, &renewal(1, 100_000)).unwrap(), granted(1, 100_000));
    assert!(remaining() <= 100_001);
    for late in [renewal(0, 400_000), renewal(1, 400_000), asked] {
        assert_eq!(leases.reply(&layout, "far", KEY, &late).unwrap(), granted(1, 100_000));
        assert!(remaining() <= 100_001, "a message that arrives twice changes nothing");
    }
    assert_eq!(leases.reply(&layout, "far", KEY, &renewal(2, 300_000)).unwrap(), granted(2, 300_000));
    assert!(remaining() > 200_000);
}

#[test]
fn a_lease_that_is_over_is_stale() {
    let layout = with_blocks(8);
    let mut leases = PeerLeases::new(LONGEST);
    assert_eq!(leases.reply(&layout, "far", KEY, &renewal(0, 1)).unwrap(), None, "its request was lost");
    leases.reply(&layout, "far", KEY, &request(&layout, &[3])).unwrap();
    leases.held.iter().for_each(|lease| lease.item.access.renew(LeaseEnd::passed()));
    assert!(leased(&layout, &[3]).is_empty());
    leases.reply(&layout, "far", KEY, &renewal(1, 1000)).unwrap_err().assert_is(Status::Stale, "");
    assert!(leases.held.is_empty());
    leases.reply(&layout, "far", KEY, &request(&layout, &[3])).unwrap();
    leases.held.iter().for_each(|lease| lease.item.access.renew(LeaseEnd::passed()));
    leases.expire();
    assert!(leases.held.is_empty());
}

#[test]
fn leases_of_a_process_that_has_ended_end() {
    const COUNT: usize = 3 * LOOKED_FOR;
    let layout = with_blocks(8);
    let mut leases = PeerLeases::new(LONGEST);
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let gone = ProcessIdentity { pid: child.id(), ..ProcessIdentity::current().unwrap() };
    for number in 0..COUNT {
        let process = if number % 2 == 0 { gone.clone() } else { ProcessIdentity::current().unwrap() };
        leases
            .reply(&layout, "far", key(number), &LeaseRequest { process, ..request(&layout, &[0]) })
            .unwrap();
    }
    // A look is at some of them.
    for _ in 0..COUNT {
        leases.expire();
    }
    assert_eq!(leased(&layout, &[0]).len(), COUNT / 2);
}

#[test]
fn a_peer_has_a_share_of_leases_and_of_blocks() {
    let layout = with_blocks(MAX_BLOCKS_OF_ONE as u64 + 1);
    let mut leases = PeerLeases::new(LONGEST);
    let most = MAX_BLOCKS_OF_ONE / MIN_BLOCKS;
    for number in 0..most {
        leases.reply(&layout, "far", key(number), &request(&layout, &[0])).unwrap();
    }
    let refused = |leases: &mut PeerLeases, sender: &str, number, request| {
        let error = leases.reply(&layout, sender, key(number), &request).unwrap_err();
        assert_eq!(error.status(), Status::OutOfMemory, "{error}");
        assert!(error.message().ends_with("lease fewer blocks"), "{error}");
        assert_eq!(error.message().contains("all agents can have 0 more"), sender == "e", "{error}");
        // What the entry of a refusal has for the reason, in docs/served-transfers.md.
        assert!(error.message().len() <= 188 && !error.message().contains(" 1 blocks"), "{error}");
    };
    refused(&mut leases, "far", most, request(&layout, &[0]));
    leases.reply(&layout, "near", key(most), &request(&layout, &[1])).unwrap();
    leases.end(key(0), "far");
    leases.reply(&layout, "far", key(most + 1), &request(&layout, &[0])).unwrap();
    leases.held.end_all(|_| true);
    let all = Vec::from_iter(0..MAX_BLOCKS_OF_ONE as u32);
    refused(&mut leases, "far", 0, request(&layout, &[&all[..], &[MAX_BLOCKS_OF_ONE as u32]].concat()));
    for (number, sender) in ["a", "b", "c", "d"].into_iter().enumerate() {
        leases.reply(&layout, sender, key(number), &request(&layout, &all)).unwrap();
        refused(&mut leases, sender, 9, request(&layout, &[0]));
    }
    refused(&mut leases, "e", 9, request(&layout, &[0]));
    assert_eq!(leases.held.iter().count(), 4);
}

#[test]
fn blocks_that_cannot_be_are_refused_before_they_are_listed() {
    let layout = with_blocks(8);
    let mut leases = PeerLeases::new(LONGEST);
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    for (blocks, status) in [
        (words(&[8, 1]), Status::OutOfRange),
        (words(&[0, 9]), Status::OutOfRange),
        (words(&[u32::MAX, 1]), Status::InvalidArgument),
        (words(&[1, 0]), Status::InvalidArgument),
        (words(&[1, 1, 2]), Status::InvalidArgument),
        (words(&[0, u32::MAX]), Status::OutOfMemory),
        (words(&[0, 40_000, 0, 40_000]), Status::OutOfMemory),
        (vec![0; 3], Status::InvalidArgument),
    ] {
        let asked = LeaseRequest { blocks: blocks.clone(), ..request(&layout, &[0]) };
        let error = leases.reply(&layout, "far", KEY, &asked).unwrap_err();
        assert_eq!(error.status(), status, "{blocks:?}: {error}");
        assert!(leases.held.is_empty());
    }
    let error = spans(&layout, &[0, 8]).unwrap_err();
    assert!(error.status() == Status::OutOfRange && error.message().contains("blocks[1] is 8"), "{error}");
    assert_eq!(spans(&layout, &[]).unwrap_err().status(), Status::InvalidArgument);
    assert_eq!(spans(&layout, &[4, 3, 0, 4]).unwrap(), words(&[0, 1, 3, 2]));
}
