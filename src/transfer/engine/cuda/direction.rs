// SPDX-License-Identifier: Apache-2.0
//! The direction of a copy, as the device that copies sees it.
#![forbid(unsafe_code)]

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From host memory.
    ToDevice,
    /// To host memory.
    ToHost,
    /// Within one device.
    OnDevice,
    /// To the device that does the work, from another one.
    FromPeer,
    /// From the device that does the work, to another one.
    ToPeer,
}
