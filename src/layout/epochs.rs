// SPDX-License-Identifier: Apache-2.0
//! The epochs of a layout's blocks: which use of a block its bytes belong to.

use std::sync::Arc;

use super::Layout;
use super::axis::Axis;
use super::builder::registered;
use super::memory::Memory;
use crate::base::{Result, ensure, error, fail, lists};
use crate::nixl::{Descriptor, MemoryType};
use crate::region::{
    self, EpochTable, Region, RegistrationHold, SystemConfig, after_reading, fence_for_devices,
};

/// Where the epochs of the blocks are.
pub enum Epochs {
    /// In memory of this process, or mapped here.
    Mapped {
        table: EpochTable,
        /// Keeps it registered, if peers read it.
        _hold: Option<RegistrationHold>,
    },
    /// In memory of a peer.
    Remote(Descriptor),
}

impl Epochs {
    /// A table of another process that is mapped here.
    pub fn mapped(table: EpochTable) -> Self {
        Self::Mapped { table, _hold: None }
    }

    /// The table as NIXL reads it.
    pub fn descriptor(&self) -> Descriptor {
        match self {
            Self::Mapped { table, .. } => table.descriptor(),
            Self::Remote(descriptor) => *descriptor,
        }
    }

    /// Fails for a table that kvmem never exports.
    pub fn validate(table: &Descriptor, num_blocks: u64) -> Result<()> {
        ensure!(
            table.memory_type == MemoryType::Dram
                && table.address.is_multiple_of(8)
                && table.size == EpochTable::size(num_blocks)
                && table.address.checked_add(table.size).is_some(),
            Corrupt,
            "the epochs of the layout descriptor are {} bytes of {} memory at {:#x}; {num_blocks} blocks have {} bytes of host memory",
            table.size,
            table.memory_type.name(),
            table.address,
            EpochTable::size(num_blocks)
        );
        Ok(())
    }
}

impl Layout {
    /// Gives each block an epoch, in a region of the caller, which keeps its contents, or in a new one, as 0.
    pub fn create_epochs(&self, table: Option<Arc<Region>>) -> Result<()> {
        let Memory::Local(local) = self.memory() else {
            fail!(
                Unsupported,
                "the layout is remote; its owner creates the epochs, and exports the layout after that"
            );
        };
        ensure!(
            self.memory().regions().iter().all(|region| region.origin().is_none()),
            Unsupported,
            "the layout's memory belongs to another process; that process creates the epochs, and shares the layout after that"
        );
        ensure!(self.epochs().is_none(), AlreadyExists, "the layout has epochs already; raise them");
        let num_blocks = self.geometry().count(Axis::Block);
        let region = match table {
            Some(region) => region,
            None => Region::system(&SystemConfig {
                size: EpochTable::size(num_blocks),
                shareable: true,
                ..SystemConfig::default()
            })?,
        };
        ensure!(
            region.origin().is_none(),
            Unsupported,
            "the region of the table belongs to another process; give one of this process, or NULL"
        );
        region.ensure_writable().map_err(|error| error.context("create epochs"))?;
        for own in self.memory().regions() {
            let both = [own.clone(), region.clone()];
            ensure!(
                region::meetings(&both, &[own.size(), region.size()])?.is_empty(),
                InvalidArgument,
                "the region of the table has memory of the layout's blocks; give one outside of them, or NULL"
            );
        }
        let table = EpochTable::new(region, num_blocks)?;
        let agent = local.agent.as_ref().filter(|_| !local.tier.is_storage());
        let hold = agent.map(|agent| registered(table.region(), agent)).transpose()?;
        self.set_epochs(Epochs::Mapped { table, _hold: hold })
    }

    /// Notes where the epochs of its blocks are. Fails if that was noted before.
    pub fn set_epochs(&self, epochs: Epochs) -> Result<()> {
        let is_first = self.epochs.set(epochs).is_ok();
        ensure!(is_first, AlreadyExists, "the layout has epochs already; raise them");
        Ok(())
    }

    pub fn epochs(&self) -> Option<&Epochs> {
        self.epochs.get()
    }

    /// Raises the epochs of some blocks. What the caller writes to them after that, also by devices, is found by each reader that
    /// expects the epochs before. Returns the new ones.
    pub fn raise_epochs(&self, blocks: &[u32]) -> Result<Vec<u64>> {
        let table = self.table_with(blocks)?;
        ensure!(
            table.region().origin().is_none(),
            PermissionDenied,
            "raise epochs: the blocks belong to another process; only that process raises their epochs"
        );
        table.region().ensure_writable().map_err(|error| error.context("raise epochs"))?;
        // Before the first is raised, which cannot be undone.
        let mut raised = Vec::new();
        lists::reserve(&mut raised, blocks.len())?;
        raised.extend(blocks.iter().map(|block| table.raise((*block).into())));
        fence_for_devices();
        Ok(raised)
    }

    /// The current epochs of some blocks.
    pub fn read_epochs(&self, blocks: &[u32]) -> Result<Vec<u64>> {
        let table = self.table_with(blocks)?;
        after_reading();
        lists::collect(blocks.iter().map(|block| table.load((*block).into())))
    }

    /// The table, if it can be accessed here and has some blocks.
    fn table_with(&self, blocks: &[u32]) -> Result<&EpochTable> {
        let table = match self.epochs() {
            Some(Epochs::Mapped { table, .. }) => table,
            Some(Epochs::Remote(_)) => fail!(
                Unsupported,
                "the layout is remote, and its owner reads and raises its epochs; a transfer compares them with expected ones"
            ),
            None => return Err(self.no_epochs()),
        };
        for (index, block) in blocks.iter().enumerate() {
            ensure!(
                u64::from(*block) < table.words(),
                OutOfRange,
                "blocks[{index}] is {block}; the layout has {} blocks, give ids below that",
                table.words()
            );
        }
        Ok(table)
    }

    /// The error for a layout without epochs.
    pub fn no_epochs(&self) -> crate::base::Error {
        let advice = match (
            self.memory().is_remote(),
            self.memory().regions().first().and_then(|region| region.origin()),
        ) {
            (false, None) => "call kvmem_layout_create_epochs first",
            _ => "its owner calls kvmem_layout_create_epochs, and exports or shares it after that",
        };
        error!(InvalidState, "the layout has no epochs: {advice}")
    }
}
