// SPDX-License-Identifier: Apache-2.0
//! Manifests of every version, and damaged and hostile ones.

use proptest::prelude::*;

use super::super::memory_handle::{Extent, FabricExtent, SharedHandle, SharedMapping};
use super::*;
use crate::base::Error;
use crate::base::wire::tests::{ensure_all_damage_is_found, of_version};
use crate::layout::{Arrangement, Axis, Order, Strides};

/// A layout over one region of each way to carry it that has extents, with all fields in use.
pub fn manifest() -> Manifest {
    let dimensions = Dimensions { num_blocks: 8, inner_dim: 32, num_heads: Some(4), ..Dimensions::small() };
    let extents = vec![Extent { index: 0, fd: 1, changes: 1 }, Extent { index: 3, fd: 2, changes: 5 }];
    let elastic = MemoryHandle::Extents { device: [7; 16], extent_size: 8192, extents };
    let ipc = MemoryHandle::Ipc {
        device: [8; 16],
        handle: [9; 64],
        base_size: 1 << 20,
        offset: 4096,
        buffer_id: 77,
    };
    let region = |control, tier, carried| RegionEntry { id: [3; 16], control, tier, size: 32768, carried };
    let part = |region| RegionPart { region, offset: 1024, size: 16384 };
    Manifest {
        process: ProcessIdentity::sample(),
        access: Access::Read,
        fds: 4,
        regions: vec![region(0, Tier::Elastic, elastic), region(3, Tier::Device, ipc)],
        object: Object::Layout(LayoutEntry {
            dimensions,
            arrangement: Arrangement::LAYER_SEPARATE,
            parts: vec![part(0), part(1)],
            remote: Some(RemoteEntry { metadata: vec![1, 2, 3], descriptor: vec![4; 8] }),
            epochs: None,
        }),
    }
}

/// The same regions carried in other forms.
pub fn newer() -> Manifest {
    let extents = vec![
        FabricExtent { index: 0, handle: [5; 64], changes: 1 },
        FabricExtent { index: 3, handle: [6; 64], changes: 5 },
    ];
    let mapping = |size, handle| SharedMapping { size, handle };
    let mappings = vec![
        mapping(8192, SharedHandle::Fd(2)),
        mapping(16384, SharedHandle::Fabric([4; 64])),
        mapping(16384, SharedHandle::Fd(3)),
    ];
    let mut manifest = manifest();
    manifest.regions[0].carried = MemoryHandle::Fabric { device: [7; 16], extent_size: 8192, extents };
    manifest.regions[1].control = 1;
    manifest.regions[1].carried = MemoryHandle::Mappings { device: [8; 16], offset: 4096, mappings };
    manifest
}

/// A part of a memory file.
fn newest() -> Manifest {
    let mut manifest = manifest();
    manifest.regions.truncate(1);
    manifest.regions[0].tier = Tier::System;
    manifest.regions[0].carried = MemoryHandle::Memory { fd: 1, offset: 4096 };
    manifest.fds = 2;
    manifest.object = Object::Region(RegionPart { region: 0, offset: 0, size: 32768 });
    manifest
}

/// A layout with an order.
fn ordered() -> Manifest {
    let mut manifest = manifest();
    let order = Order::parse("L/BOHNC").unwrap();
    layout(&mut manifest).arrangement = Arrangement::tight(order);
    manifest
}

fn layout(manifest: &mut Manifest) -> &mut LayoutEntry {
    match &mut manifest.object {
        Object::Layout(layout) => layout,
        Object::Region(_) | Object::Parts(_) => unreachable!(),
    }
}

/// Two parts over the same regions, which alternate in them.
fn combined() -> Manifest {
    let mut manifest = manifest();
    let layout = LayoutEntry { remote: None, ..layout(&mut manifest).clone() };
    let mut values = layout.clone();
    values.parts.iter_mut().for_each(|part| part.offset += 64);
    let remote = Some(RemoteEntry { metadata: vec![1, 2, 3], descriptor: vec![4; 8] });
    let parts = vec![("keys".to_string(), layout), ("values".to_string(), values)];
    manifest.object = Object::Parts(PartsEntry { parts, remote, epochs: None });
    manifest
}

/// The error for a manifest that a hostile sender has changed.
fn refused(mut manifest: Manifest, change: impl FnOnce(&mut Manifest)) -> Error {
    let fds = manifest.fds as usize;
    change(&mut manifest);
    let error = Manifest::read(&manifest.write().unwrap(), fds).unwrap_err();
    assert_eq!(error.status(), Status::Corrupt, "{error}");
    error
}

#[test]
fn parts_are_read() {
    let bytes = combined().write().unwrap();
    assert_eq!(Manifest::read(&bytes, 4).unwrap(), combined());
    ensure_all_damage_is_found(&bytes, |bytes| Manifest::read(bytes, 4));
}

#[test]
fn hostile_parts_are_found_out() {
    type Change = fn(&mut PartsEntry);
    let hostile: [(Change, &str); 8] = [
        (|p| p.parts.clear(), "num_parts is 0"),
        (|p| p.parts[1].0 = "keys".into(), "two parts have the name 'keys'"),
        (|p| p.parts[1].1.remote = p.remote.clone(), "NIXL metadata or epochs of its own"),
        (|p| p.parts[1].1.epochs = Some(p.parts[1].1.parts[0].clone()), "NIXL metadata or epochs of its own"),
        (|p| p.parts[1].1.dimensions.num_blocks = 4, "part 'values'"),
        (|p| p.parts[0].1.parts[1].offset = u64::MAX, "part 'keys'"),
        (|p| p.parts[0].1.parts.truncate(1), "the layout needs 2 parts"),
        (|p| p.parts = vec![p.parts[0].clone(); 2000], "it has 2000 parts"),
    ];
    for (change, text) in hostile {
        let error = refused(combined(), |manifest| match &mut manifest.object {
            Object::Parts(parts) => change(parts),
            _ => unreachable!(),
        });
        assert!(error.message().contains(text), "{error}");
    }
}

/// A layout in host memory, with the epochs of its blocks behind them.
fn with_epochs() -> Manifest {
    let mut manifest = newest();
    let of_one = RegionPart { region: 0, offset: 0, size: 16384 };
    let dimensions = layout(&mut self::manifest()).dimensions.clone();
    let num_blocks = dimensions.num_blocks;
    manifest.object = Object::Layout(LayoutEntry {
        dimensions,
        arrangement: Arrangement::LAYER_SEPARATE,
        parts: vec![of_one.clone(), of_one],
        remote: None,
        epochs: Some(RegionPart { region: 0, offset: 16384, size: 8 * num_blocks }),
    });
    manifest
}

#[test]
fn epochs_are_read_and_hostile_ones_are_not() {
    let bytes = with_epochs().write().unwrap();
    assert_eq!(Manifest::read(&bytes, 2).unwrap(), with_epochs());
    ensure_all_damage_is_found(&bytes, |bytes| Manifest::read(bytes, 2));
    let hostile: [fn(&mut RegionPart); 4] =
        [|e| e.region = 1, |e| e.offset += 4, |e| e.size -= 8, |e| e.offset = 32768];
    for change in hostile {
        refused(with_epochs(), |m| layout(m).epochs.as_mut().into_iter().for_each(change));
    }
    let on_gpu = RegionPart { region: 1, offset: 0, size: 64 };
    let error = refused(manifest(), |m| layout(m).epochs = Some(on_gpu));
    assert!(error.message().contains("bytes of host memory"), "{error}");
}

#[test]
fn an_order_is_read_and_hostile_strides_are_not() {
    let bytes = ordered().write().unwrap();
    assert_eq!(Manifest::read(&bytes, 4).unwrap(), ordered());
    for axis in Axis::ALL {
        for stride in [1, 24, 1 << 40, 1 << 62, u64::MAX] {
            let strides = Strides::default().with(axis, stride);
            refused(ordered(), |m| layout(m).arrangement.strides = strides);
        }
    }
}

#[test]
fn a_part_of_a_memory_file_is_read() {
    assert_eq!(Manifest::read(&newest().write().unwrap(), 2).unwrap(), newest());
    let past_the_end = MemoryHandle::Memory { fd: 1, offset: i64::MAX as u64 };
    refused(newest(), |m| m.regions[0].carried = past_the_end);
}

#[test]
fn all_forms_are_read_in_one_version() {
    for manifest in [manifest(), newer()] {
        let bytes = manifest.write().unwrap();
        assert_eq!(Manifest::read(&bytes, 4).unwrap(), manifest);
        for version in [VERSION - 1, VERSION + 1] {
            Manifest::read(&of_version(&bytes, version), 4)
                .unwrap_err()
                .assert_is(Status::VersionMismatch, "");
        }
    }
}

#[test]
fn a_written_manifest_is_read_back() {
    let bytes = manifest().write().unwrap();
    assert_eq!(Manifest::read(&bytes, 4).unwrap(), manifest());
    assert_eq!(Manifest::read(&bytes, 3).unwrap_err().status(), Status::Corrupt);
}

#[test]
fn all_damage_is_detected() {
    for manifest in [manifest(), newer(), newest(), ordered()] {
        let fds = manifest.fds as usize;
        ensure_all_damage_is_found(&manifest.write().unwrap(), |bytes| Manifest::read(bytes, fds));
    }
}

#[test]
fn a_manifest_of_a_hostile_sender_is_rejected() {
    let hostile: [fn(&mut Manifest); 14] = [
        |m| m.fds = 5,
        |m| m.regions[0].control = 1,
        |m| m.regions[0].size = 0,
        |m| m.regions[0].size = u64::MAX,
        |m| m.regions[0].tier = Tier::Disk,
        |m| m.regions[1].size = 1 << 30,
        |m| m.regions.clear(),
        |m| {
            m.regions.truncate(1);
        },
        |m| layout(m).parts[1].offset = u64::MAX,
        |m| layout(m).parts[1].size = 1,
        |m| layout(m).parts.truncate(1),
        |m| layout(m).dimensions.num_blocks = u64::MAX,
        |m| layout(m).dimensions.num_blocks = 9,
        |m| {
            let MemoryHandle::Extents { extents, .. } = &mut m.regions[0].carried else { unreachable!() };
            extents[1].index = 4;
        },
    ];
    hostile.iter().for_each(|change| drop(refused(manifest(), change)));
}

#[test]
fn a_version_2_manifest_of_a_hostile_sender_is_rejected() {
    fn mappings(manifest: &mut Manifest) -> (&mut u64, &mut Vec<SharedMapping>) {
        match &mut manifest.regions[1].carried {
            MemoryHandle::Mappings { offset, mappings, .. } => (offset, mappings),
            _ => unreachable!(),
        }
    }
    let hostile: [fn(&mut Manifest); 11] = [
        |m| m.regions[0].tier = Tier::Device,
        |m| m.regions[1].tier = Tier::Elastic,
        |m| *mappings(m).0 = 8192,
        |m| *mappings(m).0 = u64::MAX,
        |m| mappings(m).1.clear(),
        |m| mappings(m).1[1].size = 0,
        |m| mappings(m).1[1].size = u64::MAX,
        |m| mappings(m).1[2].handle = SharedHandle::Fd(2),
        |m| mappings(m).1.truncate(2),
        |m| m.regions[1].size = 20480,
        |m| {
            let MemoryHandle::Fabric { extents, .. } = &mut m.regions[0].carried else { unreachable!() };
            extents[1].index = 0;
        },
    ];
    hostile.iter().for_each(|change| drop(refused(newer(), change)));
}

proptest! {
    #[test]
    fn a_changed_byte_with_a_valid_checksum_gives_a_result_or_an_error(
        position in any::<prop::sample::Index>(), byte in any::<u8>(), is_newer in any::<bool>(),
    ) {
        let whole = if is_newer { newer() } else { manifest() };
        let mut body = minicbor_serde::to_vec(&whole).unwrap();
        let position = position.index(body.len());
        body[position] = byte;
        let _ = Manifest::read(&FORM.frame(2, &body).unwrap(), 4);
    }

    #[test]
    fn any_fields_with_a_valid_checksum_give_a_result_or_an_error(
        body in prop::collection::vec(any::<u8>(), 0..512), fds in 0usize..9,
    ) {
        let _ = Manifest::read(&FORM.frame(2, &body).unwrap(), fds);
    }
}
