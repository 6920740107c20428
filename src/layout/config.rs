// SPDX-License-Identifier: Apache-2.0
//! The dimensions of a KV cache.

use serde::{Deserialize, Serialize};

use super::axis::Axis;
use super::content_identity::ContentIdentity;
use crate::base::{Result, ensure};

/// The dimensions of a KV cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dimensions {
    /// Blocks (pages) in the cache.
    pub num_blocks: u64,
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
    /// What the blocks contain. Readers that do not know it ignore it.
    #[serde(default, skip_serializing_if = "ContentIdentity::is_none")]
    pub identity: ContentIdentity,
}

impl Dimensions {
    /// The number of indices of an axis. Without a number of heads, all elements of a token belong to one head.
    pub fn count(&self, axis: Axis) -> u64 {
        let heads = self.num_heads.unwrap_or(1);
        match axis {
            Axis::Block => self.num_blocks,
            Axis::Layer => self.num_layers,
            Axis::Outer => self.outer_dim,
            Axis::Token => self.page_size,
            Axis::Head => heads,
            Axis::Element => self.inner_dim / heads,
        }
    }

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
            "num_blocks is {}; block ids have 32 bits, so it must be at most 4294967295",
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
                "inner_dim is {}, which is not a multiple of num_heads, {heads}; it counts the elements of all heads of a token",
                self.inner_dim
            );
        }
        self.identity.validate()
    }

    /// One block of one byte, to state only what differs.
    pub const ONE: Self = Self {
        num_blocks: 1,
        num_layers: 1,
        outer_dim: 1,
        page_size: 1,
        inner_dim: 1,
        dtype_width: 1,
        alignment: 1,
        num_heads: None,
        identity: ContentIdentity::NONE,
    };
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
            identity: ContentIdentity::NONE,
        }
    }

    /// Blocks of 384 bytes to test with, each of which is an element.
    pub fn of_bytes(num_blocks: u64) -> Self {
        Self { num_blocks, num_layers: 3, page_size: 1, dtype_width: 1, num_heads: None, ..Self::small() }
    }
}
