// SPDX-License-Identifier: Apache-2.0
//! The axes of a KV cache.

/// An axis of a KV cache. A layout gives each one a stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// Blocks (pages).
    Block,
    Layer,
    /// Outer slots: keys and values.
    Outer,
    /// Tokens of a block.
    Token,
    Head,
    /// Elements of one head of one token.
    Element,
}

impl Axis {
    pub const ALL: [Self; 6] =
        [Self::Block, Self::Layer, Self::Outer, Self::Token, Self::Head, Self::Element];

    /// Its letter in the order of a layout.
    pub fn letter(self) -> char {
        match self {
            Self::Block => 'B',
            Self::Layer => 'L',
            Self::Outer => 'O',
            Self::Token => 'N',
            Self::Head => 'H',
            Self::Element => 'C',
        }
    }

    pub fn from_letter(letter: char) -> Option<Self> {
        Self::ALL.into_iter().find(|axis| axis.letter() == letter)
    }

    /// What messages call one of its indices.
    pub fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Layer => "layer",
            Self::Outer => "outer slot",
            Self::Token => "token",
            Self::Head => "head",
            Self::Element => "element",
        }
    }

    /// The dimension that determines how many indices it has.
    pub fn field(self) -> &'static str {
        match self {
            Self::Block => "num_blocks",
            Self::Layer => "num_layers",
            Self::Outer => "outer_dim",
            Self::Token => "page_size",
            Self::Head => "num_heads",
            Self::Element => "inner_dim",
        }
    }
}
