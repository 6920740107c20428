// SPDX-License-Identifier: Apache-2.0
//! The wire form of a layout: what a peer needs to reach its blocks. docs/layout-descriptor.md has it byte by byte.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Layout;
use super::config::{Dimensions, LayoutKind};
use super::geometry::Geometry;
use super::memory::{LocalMemory, Memory, RemoteMemory};
use super::placement::Placement;
use super::remote_elastic::RemoteElastic;
use crate::error::{Error, Result, Status, ensure, fail};
use crate::nixl::{Agent, Descriptor};
use crate::process::ProcessIdentity;
use crate::region::{Region, Tier};
use crate::wire::Form;

const FORM: Form = Form { magic: b"KVMEMLAY", versions: 1..=2, name: "layout descriptor" };

#[derive(Serialize, Deserialize)]
struct Payload {
    agent: String,
    process: ProcessIdentity,
    tier: Tier,
    kind: LayoutKind,
    dimensions: Dimensions,
    regions: Vec<Descriptor>,
    bases: Vec<u64>,
    elastic: Option<RemoteElastic>,
}

impl Layout {
    /// Exports the descriptor that a peer imports.
    pub fn export(&self) -> Result<Vec<u8>> {
        export(self)
    }

    /// Imports a layout from its descriptor. `agent` accesses it.
    pub fn import(agent: &Arc<Agent>, bytes: &[u8]) -> Result<Arc<Self>> {
        import(agent, bytes)
    }

    /// Fails unless the bytes are a consistent descriptor. Its claims about the peer are not checked.
    pub fn check_descriptor(bytes: &[u8]) -> Result<()> {
        read(bytes).map(|_| ())
    }
}

/// Serialises a layout that peers can access.
fn export(layout: &Layout) -> Result<Vec<u8>> {
    let local = exportable(layout)?;
    if let Some(agent) = &local.agent {
        agent
            .call(|driver| driver.ensure_reaches_peers())
            .map_err(|error| error.context("export the layout"))?;
    }
    let payload = Payload {
        agent: layout.memory().owner().unwrap_or_default().to_string(),
        process: ProcessIdentity::current()?,
        tier: local.tier,
        kind: layout.geometry().kind(),
        dimensions: layout.geometry().dimensions().clone(),
        regions: local.descriptors.clone(),
        bases: layout.placement().bases().to_vec(),
        elastic: elastic(&local.regions)?,
    };
    FORM.write(payload.kind.version(), &payload)
}

fn exportable(layout: &Layout) -> Result<&LocalMemory> {
    match layout.memory() {
        Memory::Remote(_) => {
            fail!(Unsupported, "a remote layout can be exported only by the process that owns it")
        }
        Memory::Local(local) => {
            ensure!(
                local.agent.is_some(),
                InvalidState,
                "the layout was built without an agent, so no peer can access it; build it with an agent"
            );
            ensure!(
                local.tier != Tier::Disk,
                Unsupported,
                "a peer cannot access a disk layout; copy its blocks to a host layout"
            );
            ensure!(
                local.regions.iter().all(|region| region.origin().is_none()),
                Unsupported,
                "the layout's memory belongs to another process; only that process can export it"
            );
            Ok(local)
        }
    }
}

/// The committed extents. Peers detect changes by the control block.
fn elastic(regions: &[Arc<Region>]) -> Result<Option<RemoteElastic>> {
    let (base, _) = Region::root_of(&regions[0]);
    let Some(memory) = base.elastic_memory() else { return Ok(None) };
    ensure!(
        regions.iter().all(|region| Arc::ptr_eq(Region::root_of(region).0, base)),
        Unsupported,
        "the layout uses several elastic regions, and a descriptor supports one: make its regions views of one region"
    );
    Ok(Some(RemoteElastic {
        start: memory.address(),
        extent_size: memory.extent_size(),
        committed: memory.committed_changes(),
        control: memory.control().descriptor(),
    }))
}

/// Reads a descriptor. The bytes may be anything; claims are checked for consistency, and against the metadata that the
/// agent has of the peer.
fn import(agent: &Arc<Agent>, bytes: &[u8]) -> Result<Arc<Layout>> {
    let (payload, placement, claimed) = read(bytes)?;
    let Payload { agent: peer, process, tier, regions: descriptors, elastic, .. } = payload;
    ensure!(
        !process.is_gone(),
        PeerLost,
        "process {} of agent '{peer}', which exported the layout, has ended; if a new process has that agent name, import \
         a layout that it exports",
        process.pid
    );
    let peer = agent.call(move |state| {
        state.check_remote(&peer, &claimed)?;
        state.remote(&peer)
    })?;
    peer.note_process(&process);
    let memory = RemoteMemory { agent: agent.clone(), peer, process, descriptors, tier, elastic };
    Ok(Layout::new(placement, Memory::Remote(memory)))
}

fn read(bytes: &[u8]) -> Result<(Payload, Placement, Vec<Descriptor>)> {
    let (version, payload): (_, Payload) = FORM.read(bytes)?;
    ensure!(
        payload.kind.version() <= version,
        Corrupt,
        "the layout descriptor has version {version}, and contains an order, which version {} introduced",
        payload.kind.version()
    );
    let (placement, claimed) = validate(&payload)?;
    Ok((payload, placement, claimed))
}

/// The addresses of the blocks, and the memory that the peer must have registered.
fn validate(payload: &Payload) -> Result<(Placement, Vec<Descriptor>)> {
    let corrupt =
        |error: Error| error.context("the layout descriptor is inconsistent").with_status(Status::Corrupt);
    let geometry = Geometry::new(payload.dimensions.clone(), payload.kind).map_err(corrupt)?;
    ensure!(
        payload.tier != Tier::Disk,
        Corrupt,
        "the layout descriptor is of a disk layout, which no peer can access"
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
            "blocks of the layout descriptor at {base:#x} of {size} bytes are outside region {index} at {:#x} of {} bytes",
            region.address,
            region.size
        );
    }
    ensure!(
        payload.elastic.is_some() == (payload.tier == Tier::Elastic),
        Corrupt,
        "the layout descriptor is of {} memory; it must contain extents if the memory is elastic, and none otherwise",
        payload.tier.name()
    );
    let claimed = match &payload.elastic {
        Some(elastic) => elastic.validate(&placement, payload.regions[0].device_id)?,
        None => payload.regions.clone(),
    };
    Ok((placement, claimed))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::{Arrangement, Axis, BlockDim, Order, Strides};
    use crate::nixl::MemoryType;
    use crate::wire::tests::{ensure_all_damage_is_found, of_version};

    fn payload() -> Payload {
        let dimensions =
            Dimensions { num_blocks: 8, inner_dim: 32, num_heads: Some(4), ..Dimensions::small() };
        let region =
            |address| Descriptor { address, size: 16384, device_id: 0, memory_type: MemoryType::Dram };
        Payload {
            agent: "decode".into(),
            process: ProcessIdentity::sample(),
            tier: Tier::System,
            kind: LayoutKind::LayerSeparate(BlockDim::First),
            dimensions,
            regions: vec![region(0x10000), region(0x20000)],
            bases: vec![0x10000, 0x20000],
            elastic: None,
        }
    }

    fn read(bytes: &[u8]) -> Result<Placement> {
        super::read(bytes).map(|(_, placement, _)| placement)
    }

    #[test]
    fn what_was_written_is_read() {
        let placement = read(&FORM.write(1, &payload()).unwrap()).unwrap();
        assert_eq!(placement.bases(), &[0x10000, 0x20000]);
        assert_eq!(placement.geometry().dimensions(), &payload().dimensions);
    }

    fn ordered() -> Payload {
        let order = Order::parse("L/BOHNC").unwrap();
        Payload { kind: LayoutKind::Ordered(Arrangement::tight(order)), ..payload() }
    }

    fn strides(payload: &mut Payload) -> &mut Strides {
        match &mut payload.kind {
            LayoutKind::Ordered(arrangement) => &mut arrangement.strides,
            _ => unreachable!(),
        }
    }

    #[test]
    fn an_order_needs_version_2() {
        let bytes = FORM.write(2, &ordered()).unwrap();
        assert_eq!(read(&bytes).unwrap().geometry().order().to_string(), "L/BOHNC");
        let older = read(&of_version(&bytes, 1)).unwrap_err();
        assert_eq!(older.status(), Status::Corrupt, "{older}");
        assert!(read(&FORM.write(2, &payload()).unwrap()).is_ok(), "a kind in version 2");
        assert_eq!(read(&of_version(&bytes, 3)).unwrap_err().status(), Status::VersionMismatch);
    }

    #[test]
    fn hostile_strides_are_refused() {
        for axis in Axis::ALL {
            for stride in [1, 24, 1 << 40, 1 << 62, u64::MAX] {
                let mut changed = ordered();
                *strides(&mut changed) = Strides::default().with(axis, stride);
                let error = read(&FORM.write(2, &changed).unwrap()).unwrap_err();
                assert_eq!(error.status(), Status::Corrupt, "{axis:?} {stride}: {error}");
            }
        }
    }

    #[test]
    fn all_damage_is_found() {
        ensure_all_damage_is_found(&FORM.write(1, &payload()).unwrap(), read);
        ensure_all_damage_is_found(&FORM.write(2, &ordered()).unwrap(), read);
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
            assert_eq!(
                read(&FORM.write(changed.kind.version(), &changed).unwrap()).unwrap_err().status(),
                Status::Corrupt,
                "case {index}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_payload_behind_a_true_checksum_gives_a_result_or_an_error(
            body in prop::collection::vec(any::<u8>(), 0..512),
        ) {
            let _ = read(&FORM.frame(2, &body).unwrap());
        }

        #[test]
        fn a_changed_byte_behind_a_true_checksum_gives_a_result_or_an_error(
            position in any::<prop::sample::Index>(), byte in any::<u8>(), is_ordered in any::<bool>(),
        ) {
            let mut body = Vec::new();
            ciborium::into_writer(&if is_ordered { ordered() } else { payload() }, &mut body).unwrap();
            let position = position.index(body.len());
            body[position] = byte;
            let _ = read(&FORM.frame(2, &body).unwrap());
        }
    }
}
