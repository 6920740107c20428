// SPDX-License-Identifier: Apache-2.0
//! The wire form of a layout: what a peer needs to reach its blocks. docs/layout-descriptor.md has it byte by byte.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Layout;
use super::config::{Dimensions, LayoutKind};
use super::geometry::{Geometry, Placement};
use super::memory::{LocalMemory, Memory, RemoteMemory};
use crate::error::{Error, Result, Status, ensure, fail};
use crate::nixl::{Agent, Descriptor};
use crate::process::Identity;
use crate::region::Tier;

const MAGIC: &[u8; 8] = b"KVMEMLAY";
const VERSION: u16 = 1;
/// Magic, version, flags, payload length, checksum. Every version begins so.
const HEADER: usize = 20;

#[derive(Serialize, Deserialize)]
struct Payload {
    agent: String,
    process: Identity,
    tier: Tier,
    kind: LayoutKind,
    dimensions: Dimensions,
    regions: Vec<Descriptor>,
    bases: Vec<u64>,
}

/// Serialises a layout that peers can reach.
pub fn export(layout: &Layout) -> Result<Vec<u8>> {
    let local = exportable(layout)?;
    let payload = Payload {
        agent: layout.memory().owner().unwrap_or_default().to_string(),
        process: Identity::current(),
        tier: local.tier,
        kind: layout.geometry().kind(),
        dimensions: layout.geometry().dimensions().clone(),
        regions: local.descriptors.clone(),
        bases: layout.placement().bases().to_vec(),
    };
    let mut body = Vec::new();
    ciborium::into_writer(&payload, &mut body)
        .map_err(|error| Error::new(Status::OutOfMemory, format!("serialise a layout: {error}")))?;
    frame(&body)
}

fn exportable(layout: &Layout) -> Result<&LocalMemory> {
    match layout.memory() {
        Memory::Remote(_) => fail!(Unsupported, "a remote layout is its owner's to export"),
        Memory::Local(local) => {
            ensure!(
                local.agent.is_some(),
                InvalidState,
                "the layout is local only: it was built without an agent, so no peer can reach it"
            );
            ensure!(
                local.tier != Tier::Disk,
                Unsupported,
                "a disk layout can't be reached by a peer; copy its blocks to a host layout"
            );
            ensure!(
                local.tier != Tier::Elastic,
                Unsupported,
                "a layout on elastic memory can't be exported yet; a peer would not learn what is committed"
            );
            Ok(local)
        }
    }
}

/// Reads a descriptor. All or nothing, whatever the bytes; what it claims is held against itself and against the
/// metadata that the agent has of the peer.
pub fn import(agent: &Arc<Agent>, bytes: &[u8]) -> Result<Arc<Layout>> {
    let payload = parse(bytes)?;
    let placement = validate(&payload)?;
    let Payload { agent: peer, process, tier, regions: descriptors, .. } = payload;
    ensure!(
        !process.is_gone(),
        PeerLost,
        "process {} of agent '{peer}', which exported the layout, has ended; one that runs now under that name has to \
         export its own",
        process.pid
    );
    let claimed = descriptors.clone();
    let peer = agent.call(move |driver| {
        driver.check_remote(&peer, &claimed)?;
        driver.remote(&peer)
    })?;
    let memory = RemoteMemory { agent: agent.clone(), peer, process, descriptors, tier };
    Ok(Layout::new(placement, Memory::Remote(memory)))
}

fn frame(body: &[u8]) -> Result<Vec<u8>> {
    let Ok(length) = u32::try_from(body.len()) else {
        fail!(OutOfRange, "a layout descriptor of {} bytes is too large", body.len());
    };
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&0u16.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes), body);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(body);
    Ok(bytes)
}

fn parse(bytes: &[u8]) -> Result<Payload> {
    let Some((header, body)) = bytes.split_at_checked(HEADER) else {
        fail!(Corrupt, "a layout descriptor has at least {HEADER} bytes, these are {}", bytes.len());
    };
    ensure!(header.starts_with(MAGIC), Corrupt, "the bytes are not a layout descriptor");
    let length = u32::from_le_bytes([header[12], header[13], header[14], header[15]]) as usize;
    ensure!(
        body.len() == length,
        Corrupt,
        "the layout descriptor says {length} bytes follow its header, {} do",
        body.len()
    );
    let stored = u32::from_le_bytes([header[16], header[17], header[18], header[19]]);
    let actual = crc32c::crc32c_append(crc32c::crc32c(&header[..16]), body);
    ensure!(
        stored == actual,
        Corrupt,
        "the layout descriptor's checksum is {actual:#x}, it says {stored:#x}"
    );
    let version = u16::from_le_bytes([header[8], header[9]]);
    ensure!(
        version == VERSION && header[10..12] == [0, 0],
        VersionMismatch,
        "the layout descriptor is of version {version}, this library reads version {VERSION}"
    );
    let mut rest = body;
    let payload = ciborium::from_reader(&mut rest)
        .map_err(|error| Error::new(Status::Corrupt, format!("the layout descriptor's fields: {error}")))?;
    ensure!(rest.is_empty(), Corrupt, "{} bytes follow the layout descriptor's fields", rest.len());
    Ok(payload)
}

fn validate(payload: &Payload) -> Result<Placement> {
    let corrupt =
        |error: Error| error.context("the layout descriptor is inconsistent").with_status(Status::Corrupt);
    let geometry = Geometry::new(payload.dimensions.clone(), payload.kind).map_err(corrupt)?;
    ensure!(
        payload.tier != Tier::Disk,
        Corrupt,
        "the layout descriptor names a disk layout, which no peer reaches"
    );
    ensure!(
        payload.regions.len() == payload.bases.len(),
        Corrupt,
        "the layout descriptor has {} regions and {} bases",
        payload.regions.len(),
        payload.bases.len()
    );
    let placement = Placement::new(geometry, payload.bases.clone()).map_err(corrupt)?;
    let size = placement.geometry().region_size();
    for (index, (region, base)) in payload.regions.iter().zip(placement.bases()).enumerate() {
        ensure!(
            region.memory_type == payload.tier.memory_type(),
            Corrupt,
            "region {index} of the layout descriptor is {} memory",
            region.memory_type.name()
        );
        let inside = region.address <= *base
            && region.address.checked_add(region.size).is_some_and(|end| base + size <= end);
        ensure!(
            inside,
            Corrupt,
            "blocks of the layout descriptor at {base:#x} of {size} bytes lie outside region {index} at {:#x} of {} \
             bytes",
            region.address,
            region.size
        );
    }
    Ok(placement)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::BlockDim;
    use crate::nixl::MemoryType;

    fn payload() -> Payload {
        let dimensions = Dimensions {
            num_blocks: 8,
            num_layers: 2,
            outer_dim: 2,
            page_size: 16,
            inner_dim: 32,
            dtype_width: 2,
            alignment: 1,
            num_heads: Some(4),
        };
        let region =
            |address| Descriptor { address, size: 16384, device_id: 0, memory_type: MemoryType::Dram };
        Payload {
            agent: "decode".into(),
            process: Identity { boot_id: "b".into(), pid: 7, start_time: 9, pid_namespace: 1 },
            tier: Tier::System,
            kind: LayoutKind::LayerSeparate(BlockDim::First),
            dimensions,
            regions: vec![region(0x10000), region(0x20000)],
            bases: vec![0x10000, 0x20000],
        }
    }

    fn encode(payload: &Payload) -> Vec<u8> {
        let mut body = Vec::new();
        ciborium::into_writer(payload, &mut body).unwrap();
        frame(&body).unwrap()
    }

    fn read(bytes: &[u8]) -> Result<Placement> {
        parse(bytes).and_then(|payload| validate(&payload))
    }

    #[test]
    fn what_was_written_is_read() {
        let placement = read(&encode(&payload())).unwrap();
        assert_eq!(placement.bases(), &[0x10000, 0x20000]);
        assert_eq!(placement.geometry().dimensions(), &payload().dimensions);
    }

    #[test]
    fn every_truncation_extension_and_bit_flip_is_corrupt() {
        let bytes = encode(&payload());
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]).unwrap_err().status(), Status::Corrupt);
        }
        assert_eq!(read(&[&bytes[..], &[0]].concat()).unwrap_err().status(), Status::Corrupt);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&flipped).unwrap_err().status(), Status::Corrupt, "bit {bit}");
        }
    }

    #[test]
    fn a_newer_version_says_so() {
        let mut bytes = encode(&payload());
        bytes[8] = 2;
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..16]), &bytes[HEADER..]);
        bytes[16..20].copy_from_slice(&checksum.to_le_bytes());
        let error = read(&bytes).unwrap_err();
        assert_eq!(error.status(), Status::VersionMismatch);
        assert!(error.message().contains("version 2"), "{error}");
    }

    #[test]
    fn a_hostile_sender_is_found_out() {
        let hostile: [fn(&mut Payload); 9] = [
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
        for (index, change) in hostile.iter().enumerate() {
            let mut changed = payload();
            change(&mut changed);
            assert_eq!(read(&encode(&changed)).unwrap_err().status(), Status::Corrupt, "case {index}");
        }
    }

    proptest! {
        #[test]
        fn any_payload_behind_a_true_checksum_gives_a_result_or_an_error(
            body in prop::collection::vec(any::<u8>(), 0..512),
        ) {
            let _ = read(&frame(&body).unwrap());
        }

        #[test]
        fn a_changed_byte_behind_a_true_checksum_gives_a_result_or_an_error(
            position in any::<prop::sample::Index>(), byte in any::<u8>(),
        ) {
            let bytes = encode(&payload());
            let mut body = bytes[HEADER..].to_vec();
            let position = position.index(body.len());
            body[position] = byte;
            let _ = read(&frame(&body).unwrap());
        }
    }
}
