// SPDX-License-Identifier: Apache-2.0
//! Layouts: where each block of a KV cache is located in regions.

mod arrangement;
mod axes;
mod axis;
mod builder;
pub mod cache;
mod caches;
mod combined;
mod config;
mod content_identity;
mod descriptor;
mod epochs;
mod extent_set;
mod extents;
pub mod fingerprint;
mod geometry;
mod nixl_lists;
mod mapped;
mod memory;
mod order;
mod part;
mod placement;
mod prepared_list;
mod raw_layout;
mod regions;
mod remote_elastic;
mod separate;
mod served;
mod storage;
mod tally;
mod unit;
mod whole_blocks;
mod whole_objects;

use std::sync::Arc;

pub use arrangement::{Arrangement, Strides};
pub use axis::Axis;
pub use builder::{AllocationConfig, LayoutSource};
pub use config::Dimensions;
pub use content_identity::ContentIdentity;
#[cfg(test)]
pub use descriptor::tests::sample as sample_descriptor;
pub use epochs::Epochs;
pub use extents::TouchedExtents;
pub use geometry::Geometry;
pub use memory::{Locality, Memory, RemoteMemory};
pub use order::Order;
pub use part::{LayoutPart, MAX_PARTS, ensure_parts, names};
pub use placement::Placement;
pub use remote_elastic::RemoteElastic;
pub use served::{Served, ServiceEnd};
pub use unit::Unit;

use caches::Caches;
use nixl_lists::Lists;
use once_cell::sync::OnceCell;
use storage::Storage;

use crate::base::reported::OpenTally;
use crate::base::{Error, LogId, Result, ensure, error, fail, log};
use crate::nixl::{Agent, Descriptor, MemoryType, RequestSide, Span};
use crate::region::Region;

/// Block geometry over memory of this process or of a peer.
pub struct Layout {
    log_id: LogId,
    /// Of the first part, if it has parts.
    placement: Placement,
    /// The parts that it was combined from, in the order of their names; empty if it was built.
    parts: Vec<NamedPart>,
    /// Of all parts, in their order.
    memory: Memory,
    storage: Storage,
    lists: Lists,
    /// How its owner serves transfers of it, if it does.
    served: OnceCell<Served>,
    /// Where the epochs of its blocks are, if it has some.
    epochs: OnceCell<Epochs>,
    /// From its first transfer on.
    tally: OnceCell<OpenTally>,
    caches: Caches,
}

/// One of the parts that a layout was combined from.
struct NamedPart {
    name: String,
    layout: Arc<Layout>,
    /// The index of its first region among those of all parts.
    first_region: u32,
}

impl Layout {
    fn new(placement: Placement, memory: Memory) -> Arc<Self> {
        let layout = Self::unlogged(placement, Vec::new(), memory);
        layout.log_creation();
        Arc::new(layout)
    }

    fn unlogged(placement: Placement, parts: Vec<NamedPart>, memory: Memory) -> Self {
        Self {
            log_id: LogId::next(),
            placement,
            parts,
            storage: Storage::from_memory(&memory),
            memory,
            lists: Lists::default(),
            served: OnceCell::new(),
            epochs: OnceCell::new(),
            tally: OnceCell::new(),
            caches: Caches::default(),
        }
    }

    fn log_creation(&self) {
        let (geometry, memory) = (self.geometry(), &self.memory);
        let dimensions = geometry.dimensions();
        log!(
            Debug,
            "layout {} created: {} blocks of {} layers and {} outer slots, {} bytes each, {} over {} {} regions from {}{}",
            self.log_id,
            dimensions.num_blocks,
            dimensions.num_layers,
            dimensions.outer_dim,
            geometry.piece_size(),
            geometry.order(),
            geometry.num_regions(),
            memory.tier().name(),
            memory
                .regions()
                .first()
                .map_or("a peer's memory".to_string(), |first| first.log_id().to_string()),
            memory.owner().map_or(String::new(), |agent| format!(", agent '{agent}'"))
        );
    }

    pub fn log_id(&self) -> LogId {
        self.log_id
    }

    /// The addresses of its blocks; of those of the first part, if it has parts.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Its shape; that of the first part, if it has parts.
    pub fn geometry(&self) -> &Geometry {
        self.placement.geometry()
    }

    /// How its owner serves transfers of it, if it does.
    pub fn served(&self) -> Option<&Served> {
        self.served.get()
    }

    /// Notes how its owner serves transfers of it. Fails if that was noted before.
    pub fn set_served(&self, served: Served) -> Result<()> {
        let is_first = self.served.set(served).is_ok();
        ensure!(is_first, AlreadyExists, "transfers of the layout are served already");
        Ok(())
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The agent that reaches it: its own, or the one that imported it.
    pub fn agent(&self) -> Option<&Arc<Agent>> {
        self.memory.agent()
    }

    /// The agent that memory must be registered with to copy blocks to it: NIXL alone reads objects, block storage and memory of
    /// peers.
    pub fn agent_of_copies(&self) -> Option<Arc<Agent>> {
        let is_storage = matches!(self.memory_type(), MemoryType::Object | MemoryType::Block);
        self.agent().filter(|_| is_storage || self.memory.is_remote()).cloned()
    }

    /// The NIXL descriptor of each of its regions.
    pub fn descriptors(&self) -> &[Descriptor] {
        self.memory.descriptors()
    }

    /// Bytes of one of its regions as NIXL addresses them. They are in one piece ([`Self::bytes_in_piece`]).
    pub fn span(&self, region: u32, address: u64, size: u64) -> Span {
        match self.memory.regions().get(region as usize) {
            Some(region) => region.span(address, size),
            None => Span { address, size, device_id: self.descriptors()[region as usize].device_id },
        }
    }

    /// The side that it is in a request: storage is memory of the agent itself, on the side of the peer.
    pub fn request_side(&self) -> RequestSide {
        match &self.memory {
            Memory::Remote(remote) => RequestSide::Peer(remote.peer.clone()),
            Memory::Local(_) if self.memory_type().is_storage() => RequestSide::Own,
            Memory::Local(_) => RequestSide::Local,
        }
    }

    pub fn memory_type(&self) -> MemoryType {
        self.memory.tier().memory_type()
    }

    /// One of its regions. Fails for a remote layout.
    pub fn region(&self, index: usize) -> Result<&Arc<Region>> {
        if let Memory::Remote(remote) = &self.memory {
            fail!(Unsupported, "the layout's regions are in the process of agent '{}'", remote.peer.name());
        }
        let regions = self.memory.regions();
        ensure!(
            index < regions.len(),
            OutOfRange,
            "index is {index}; the layout has {} regions",
            regions.len()
        );
        Ok(&regions[index])
    }

    /// Address and size of the part of a block in one layer and outer slot. Fails if it is not contiguous.
    #[inline]
    pub fn block(&self, block: u64, layer: u64, outer: u64) -> Result<(u64, u64)> {
        let address = self.single()?.checked_address(block, layer, outer)?;
        let geometry = self.geometry();
        match geometry.has_contiguous_pieces() {
            true => Ok((address, geometry.piece_size())),
            false => Err(not_contiguous(geometry)),
        }
    }

    /// Address and contiguous bytes of one head of one token of a block, in one layer and outer slot.
    pub fn row(&self, indices: [u64; 5]) -> Result<(u64, u64)> {
        let address = self.single()?.checked_row(indices)?;
        Ok((address, self.geometry().row_size()))
    }
}

#[cold]
fn not_contiguous(geometry: &Geometry) -> Error {
    error!(
        Unsupported,
        "the bytes of a block in one layer and outer slot are not contiguous in this layout, whose order is {}; use \
         kvmem_layout_get_row for those of one head of one token, or kvmem_layout_get_strides",
        geometry.order()
    )
}

impl Drop for Layout {
    fn drop(&mut self) {
        log!(Debug, "layout {} destroyed", self.log_id);
        self.caches.forget(self.log_id);
        self.lists.release(self.memory.agent());
    }
}
