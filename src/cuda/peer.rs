// SPDX-License-Identifier: Apache-2.0
//! Access of kernels to memory that the program itself allocated on another device.

use super::codes::{Code, INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, has_code};
use super::context::Context;
use super::device::Device;
use super::memory::{CONTEXT, attribute, is_accessible, range_in};
use crate::base::Result;

/// A pointer attribute, by its number in the driver's ABI.
const IS_LEGACY_CUDA_IPC_CAPABLE: std::ffi::c_int = 10;

/// How kernels of a device reach memory of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerReach {
    /// They can access it: it is mapped for them.
    Mapped,
    /// They can once peer access between the primary contexts is enabled.
    OncePeersAreEnabled,
    /// They cannot, or it cannot be determined.
    None,
}

/// Codes by which the driver refuses peer access; 217 is PEER_ACCESS_UNSUPPORTED, 711 is TOO_MANY_PEERS.
const REFUSALS: [Code; 4] = [INVALID_DEVICE, 217, 711, NOT_SUPPORTED];

/// Enables access of kernels of one primary context to plain memory of another. The inner error is the reason why the
/// driver does not.
pub fn enable(own: &Context, peer: &Context) -> Result<std::result::Result<(), String>> {
    match own.enable_access_to(peer) {
        Err(error) if has_code(&error, &REFUSALS) => Ok(Err(error.message().to_string())),
        enabled => enabled.map(Ok),
    }
}

/// How kernels of `device` read, or write, `size` bytes at `address`, which are memory of the device of `owner`, that device's
/// primary context. The range may consist of several allocations or mappings; the most restricted one counts.
///
/// Only memory of cuMemAlloc supports legacy IPC, and only such memory is mapped when peer access is enabled: all memory
/// of a context at once. VMM memory has access rights per device. Memory of a pool cannot be queried.
pub fn peer_reach(
    device: Device,
    owner: &Context,
    address: u64,
    size: u64,
    write: bool,
) -> Result<PeerReach> {
    let (mut next, mut reach) = (address, PeerReach::Mapped);
    while next < address + size {
        match reach_at(device, owner, next, write)? {
            PeerReach::None => return Ok(PeerReach::None),
            PeerReach::OncePeersAreEnabled => reach = PeerReach::OncePeersAreEnabled,
            PeerReach::Mapped => {}
        }
        let (base, length) = range_in(owner, next)?;
        next = base.saturating_add(length).max(next + 1);
    }
    Ok(reach)
}

fn reach_at(device: Device, owner: &Context, address: u64, write: bool) -> Result<PeerReach> {
    if attribute::<u32>(IS_LEGACY_CUDA_IPC_CAPABLE, address)? != 0 {
        let context: u64 = attribute(CONTEXT, address)?;
        return Ok(if owner.is(context as _) { PeerReach::OncePeersAreEnabled } else { PeerReach::None });
    }
    match is_accessible(device, address, write) {
        Ok(true) => Ok(PeerReach::Mapped),
        Ok(false) => Ok(PeerReach::None),
        Err(error) if has_code(&error, &[INVALID_VALUE]) => Ok(PeerReach::None),
        Err(error) => Err(error),
    }
}
