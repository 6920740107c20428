// SPDX-License-Identifier: Apache-2.0
//! What the check of a run has found in the blocks that it moved.

/// Of the last run that was checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Indices of the pairs, or of the moved tokens of block tables, that differ, or whose blocks have another epoch than expected, in
    /// ascending order.
    pub mismatches: Vec<u64>,
    /// The checksums of the blocks in the order of the pairs, if the caller asked for them.
    pub checksums: Option<Vec<u32>>,
}
