// SPDX-License-Identifier: Apache-2.0
//! The direction of a copy, from the point of view of the device that executes it.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    ToDevice,
    ToHost,
    OnDevice,
    /// From a peer to the device that executes the copy.
    FromPeer,
    /// From the device that executes the copy to a peer.
    ToPeer,
}
