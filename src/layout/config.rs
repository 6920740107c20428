// SPDX-License-Identifier: Apache-2.0
//! The dimensions of a KV cache, and the order of its blocks.

use serde::{Deserialize, Serialize};

use crate::error::{Result, ensure};

/// The dimensions of a KV cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dimensions {
    /// Blocks (pages) in the cache.
    pub num_blocks: u64,
    /// Layers of the model.
    pub num_layers: u64,
    /// 2 if K and V are separate, 1 if they are combined (MLA).
    pub outer_dim: u64,
    /// Tokens in a block.
    pub page_size: u64,
    /// Elements per token, layer and outer slot.
    pub inner_dim: u64,
    /// Bytes per element.
    pub dtype_width: u64,
    /// Each block starts at a multiple of this many bytes.
    pub alignment: u64,
    /// The number of attention heads in `inner_dim`, if known.
    pub num_heads: Option<u64>,
}

/// The order of blocks, layers and outer slots in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayoutKind {
    /// One region; a block contains all its layers, a layer its outer slots.
    FullyContiguous,
    /// One region per layer.
    LayerSeparate(BlockDim),
}

/// The position of the block dimension within a layer's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockDim {
    /// [block, outer, page, inner].
    First,
    /// [outer, block, page, inner].
    Second,
}

impl LayoutKind {
    /// Its name, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::FullyContiguous => "fully contiguous",
            Self::LayerSeparate(_) => "layer separate",
        }
    }

    /// Its constants in C, for messages.
    pub fn c_name(self) -> &'static str {
        match self {
            Self::FullyContiguous => "KVMEM_LAYOUT_FULLY_CONTIGUOUS",
            Self::LayerSeparate(BlockDim::First) => "KVMEM_LAYOUT_LAYER_SEPARATE with KVMEM_BLOCK_DIM_FIRST",
            Self::LayerSeparate(BlockDim::Second) => {
                "KVMEM_LAYOUT_LAYER_SEPARATE with KVMEM_BLOCK_DIM_SECOND"
            }
        }
    }
}

impl Dimensions {
    /// Fails for invalid dimensions.
    pub fn validate(&self) -> Result<()> {
        for (name, value) in [
            ("num_blocks", self.num_blocks),
            ("num_layers", self.num_layers),
            ("page_size", self.page_size),
            ("inner_dim", self.inner_dim),
        ] {
            ensure!(value >= 1, InvalidArgument, "{name} is {value}, it must be at least 1");
        }
        ensure!(
            self.num_blocks <= u64::from(u32::MAX),
            InvalidArgument,
            "num_blocks is {}, block ids have 32 bits",
            self.num_blocks
        );
        ensure!(
            matches!(self.outer_dim, 1 | 2),
            InvalidArgument,
            "outer_dim is {}, it must be 1 or 2",
            self.outer_dim
        );
        ensure!(
            matches!(self.dtype_width, 1 | 2 | 4 | 8),
            InvalidArgument,
            "dtype_width is {} bytes, it must be 1, 2, 4 or 8",
            self.dtype_width
        );
        ensure!(
            self.alignment.is_power_of_two(),
            InvalidArgument,
            "alignment is {}, it must be a power of two",
            self.alignment
        );
        if let Some(heads) = self.num_heads {
            ensure!(
                heads > 0 && self.inner_dim.is_multiple_of(heads),
                InvalidArgument,
                "inner_dim {} is no multiple of num_heads {heads}",
                self.inner_dim
            );
        }
        Ok(())
    }
}

#[cfg(test)]
impl Dimensions {
    /// A cache to test with.
    pub fn small() -> Self {
        Self {
            num_blocks: 4,
            num_layers: 2,
            outer_dim: 2,
            page_size: 16,
            inner_dim: 64,
            dtype_width: 2,
            alignment: 1,
            num_heads: Some(8),
        }
    }
}
