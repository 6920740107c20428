// SPDX-License-Identifier: Apache-2.0
//! Descriptors of every version, and damaged and hostile ones.

use proptest::prelude::*;

use super::*;
use crate::base::wire::tests::{ensure_all_damage_is_found, of_version};
use crate::layout::{Axis, ContentIdentity, Order, Strides};
use crate::nixl::MemoryType;

fn payload() -> Payload {
    let dimensions = Dimensions { num_blocks: 8, inner_dim: 32, num_heads: Some(4), ..Dimensions::small() };
    let region = |address| Descriptor { address, size: 16384, device_id: 0, memory_type: MemoryType::Dram };
    Payload {
        agent: "decode".into(),
        process: ProcessIdentity::sample(),
        tier: Tier::System,
        arrangement: Arrangement::LAYER_SEPARATE,
        dimensions,
        regions: vec![region(0x10000), region(0x20000)],
        bases: vec![0x10000, 0x20000],
        elastic: None,
        served: None,
        epochs: None,
        identity: None,
    }
}

/// The descriptor of a layout of a process that nothing is known of but this.
pub fn sample(process: ProcessIdentity) -> Vec<u8> {
    of_one(&Payload { process, ..payload() })
}

fn of_one(payload: &Payload) -> Vec<u8> {
    FORM.write(OF_ONE, payload).unwrap()
}

fn of_parts(parts: Vec<PartEntry>, epochs: Option<Descriptor>) -> Vec<u8> {
    FORM.write(OF_PARTS, &Parts { parts, served: None, epochs }).unwrap()
}

/// Fails unless a payload that a hostile sender has changed is rejected.
fn expect_refusal(mut payload: Payload, change: impl FnOnce(&mut Payload)) {
    change(&mut payload);
    read(&of_one(&payload)).unwrap_err().assert_is(Status::Corrupt, "");
}

fn read(bytes: &[u8]) -> Result<Placement> {
    super::read_layout(bytes).map(|checked| checked.placement)
}

/// Two parts of one process.
fn parts() -> Vec<PartEntry> {
    let part = |name: &str, by| PartEntry { name: name.to_string(), descriptor: of_one(&moved(by)) };
    vec![part("keys", 0), part("values", 0x8000)]
}

/// The payload at later addresses.
fn moved(by: u64) -> Payload {
    let mut part = payload();
    part.bases.iter_mut().for_each(|base| *base += by);
    part.regions.iter_mut().for_each(|region| region.address += by);
    part
}

fn read_parts(parts: Vec<PartEntry>) -> Result<Vec<String>> {
    match super::read(&of_parts(parts, None))? {
        Described::Parts(parts, _) => Ok(parts.into_iter().map(|(name, _)| name).collect()),
        Described::Layout(_) => unreachable!(),
    }
}

#[test]
fn parts_need_their_version() {
    assert_eq!(read_parts(parts()).unwrap(), ["keys", "values"]);
    let bytes = of_parts(parts(), None);
    super::read(&of_version(&bytes, OF_ONE)).map(drop).unwrap_err().assert_is(Status::Corrupt, "");
    ensure_all_damage_is_found(&bytes, |bytes| super::read(bytes).map(drop));
}

#[test]
fn hostile_parts_are_refused() {
    type Change = fn(&mut Vec<PartEntry>);
    let hostile: [(Change, &str); 9] = [
        (|p| p.clear(), "num_parts is 0"),
        (|p| p[1].name = "keys".into(), "two parts have the name 'keys'"),
        (|p| p[1].name = String::new(), "parts[1].name has 0 bytes"),
        (|p| p[1].name = "v".repeat(65), "parts[1].name has 65 bytes"),
        (|p| p[1].name = "a\nb".into(), "control character"),
        (|p| p[1].descriptor = p[0].descriptor.clone(), "'keys' and 'values' overlap in memory"),
        (|p| p[1].descriptor.truncate(40), "announces"),
        (|p| p[1].descriptor = of_parts(parts(), None), "a part of the layout descriptor has parts itself"),
        (|p| (0..2000).for_each(|_| p.extend(parts())), "4002 parts"),
    ];
    for (change, text) in hostile {
        let mut parts = parts();
        change(&mut parts);
        read_parts(parts).unwrap_err().assert_is(Status::Corrupt, text);
    }
}

#[test]
fn parts_of_other_blocks_agents_or_tiers_are_refused() {
    type Change = fn(&mut Payload);
    let changes: [(Change, &str); 4] = [
        (|p| p.dimensions.num_blocks = 4, "part 'values' has 4 blocks and part 'keys' 8"),
        (|p| p.agent = "other".into(), "part 'values' belongs to another agent, process or tier"),
        (|p| p.process.pid += 1, "another agent, process or tier"),
        (|p| p.tier = Tier::Pinned, "another agent, process or tier"),
    ];
    for (change, text) in changes {
        let mut part = moved(0x8000);
        change(&mut part);
        let mut all = parts();
        all[1].descriptor = of_one(&part);
        read_parts(all).unwrap_err().assert_is(Status::Corrupt, text);
    }
}

#[test]
fn what_was_written_is_read() {
    let placement = read(&of_one(&payload())).unwrap();
    assert_eq!(placement.bases(), &[0x10000, 0x20000]);
    assert_eq!(placement.geometry().dimensions(), &payload().dimensions);
}

#[test]
fn the_identity_of_the_content_is_read_and_optional() {
    let mut with_identity = payload();
    with_identity.dimensions.identity = ContentIdentity::new(b"llama-3\0bf16").unwrap();
    let bytes = of_one(&with_identity);
    assert_eq!(read(&bytes).unwrap().geometry().dimensions(), &with_identity.dimensions);
    ensure_all_damage_is_found(&bytes, read);
    let without = of_one(&payload());
    assert!(read(&without).unwrap().geometry().dimensions().identity.is_none());
    assert!(
        !without.windows(8).any(|key| key == b"identity"),
        "a reader of this form without it finds no key"
    );
}

fn ordered() -> Payload {
    let order = Order::parse("L/BOHNC").unwrap();
    Payload { arrangement: Arrangement::tight(order), ..payload() }
}

#[test]
fn an_order_is_read_and_other_versions_are_not() {
    let bytes = of_one(&ordered());
    assert_eq!(read(&bytes).unwrap().geometry().order().to_string(), "L/BOHNC");
    for version in [OF_ONE - 1, OF_PARTS + 1] {
        super::read(&of_version(&bytes, version))
            .map(drop)
            .unwrap_err()
            .assert_is(Status::VersionMismatch, "");
    }
}

#[test]
fn hostile_strides_are_refused() {
    for axis in Axis::ALL {
        for stride in [1, 24, 1 << 40, 1 << 62, u64::MAX] {
            expect_refusal(ordered(), |p| p.arrangement.strides = Strides::default().with(axis, stride));
        }
    }
}

#[test]
fn all_damage_is_found() {
    ensure_all_damage_is_found(&of_one(&payload()), read);
    ensure_all_damage_is_found(&of_one(&ordered()), read);
}

/// The epochs of its eight blocks.
fn epochs() -> Option<Descriptor> {
    Some(Descriptor { address: 0x9000, size: 64, device_id: 0, memory_type: MemoryType::Dram })
}

#[test]
fn epochs_are_read_and_optional() {
    let with_epochs = of_one(&Payload { epochs: epochs(), ..payload() });
    assert_eq!(super::read_layout(&with_epochs).unwrap().payload.epochs, epochs());
    ensure_all_damage_is_found(&with_epochs, read);
    let of_parts = of_parts(parts(), epochs());
    match super::read(&of_parts).unwrap() {
        Described::Parts(_, of_parts) => assert_eq!(of_parts.epochs, epochs()),
        Described::Layout(_) => panic!("it has parts"),
    }
}

#[test]
fn hostile_epochs_are_found_out() {
    let hostile: [fn(&mut Descriptor); 4] = [
        |e| e.size = 56,
        |e| e.address += 4,
        |e| e.address = u64::MAX - 7,
        |e| e.memory_type = MemoryType::Vram,
    ];
    for change in hostile {
        let mut epochs = epochs();
        epochs.as_mut().into_iter().for_each(change);
        let one = of_one(&Payload { epochs, ..payload() });
        assert_eq!(read(&one).unwrap_err().status(), Status::Corrupt);
        let several = of_parts(parts(), epochs);
        assert_eq!(super::read(&several).map(drop).unwrap_err().status(), Status::Corrupt);
    }
}

#[test]
fn a_hostile_sender_is_found_out() {
    let hostile: [fn(&mut Payload); 10] = [
        |p| p.dimensions.identity = ContentIdentity::too_large(),
        |p| p.dimensions.num_blocks = u64::MAX,
        |p| p.dimensions.inner_dim = 1 << 62,
        |p| p.dimensions.num_blocks = 9, // larger than the regions
        |p| p.bases[1] = 0x30000,
        |p| p.bases[1] = u64::MAX - 10,
        |p| p.bases.truncate(1),
        |p| p.regions.truncate(1),
        |p| p.regions[0].size = u64::MAX,
        |p| p.regions[1].memory_type = MemoryType::File,
    ];
    hostile.iter().for_each(|change| expect_refusal(payload(), change));
}

proptest! {
    #[test]
    fn any_payload_behind_a_true_checksum_gives_a_result_or_an_error(
        body in prop::collection::vec(any::<u8>(), 0..512),
    ) {
        for version in [OF_ONE, OF_PARTS] {
            let _ = super::read(&FORM.frame(version, &body).unwrap());
        }
    }

    #[test]
    fn a_changed_byte_of_parts_gives_a_result_or_an_error(
        position in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut body = minicbor_serde::to_vec(Parts { parts: parts(), served: None, epochs: None }).unwrap();
        let position = position.index(body.len());
        body[position] = byte;
        let _ = super::read(&FORM.frame(OF_PARTS, &body).unwrap());
    }

    #[test]
    fn a_changed_byte_behind_a_true_checksum_gives_a_result_or_an_error(
        position in any::<prop::sample::Index>(), byte in any::<u8>(), is_ordered in any::<bool>(),
    ) {
        let mut body = minicbor_serde::to_vec(if is_ordered { ordered() } else { payload() }).unwrap();
        let position = position.index(body.len());
        body[position] = byte;
        let _ = read(&FORM.frame(OF_ONE, &body).unwrap());
    }
}
