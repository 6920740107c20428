// SPDX-License-Identifier: Apache-2.0
//! Memory that a program has made itself, as kernels of another device see it.

#![forbid(unsafe_code)]

use super::codes::{Code, INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, has_code};
use super::context::Context;
use super::device::Device;
use super::memory::{CONTEXT, attribute, is_accessible, range_in};
use crate::error::Result;

/// A pointer attribute, by its number in the driver's ABI.
const IS_LEGACY_CUDA_IPC_CAPABLE: std::ffi::c_int = 10;

/// How kernels of a device reach memory of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerReach {
    /// They do: it is mapped for them.
    Mapped,
    /// They do once the one's primary context may reach the other's.
    OncePeersAreEnabled,
    /// They don't, or nobody can tell.
    None,
}

/// What the driver answers where it won't have it: PEER_ACCESS_UNSUPPORTED, TOO_MANY_PEERS.
const REFUSALS: [Code; 4] = [INVALID_DEVICE, 217, 711, NOT_SUPPORTED];

/// Lets kernels of one primary context reach plain memory of another's; or says why they don't.
pub fn enable(own: &Context, peer: &Context) -> Result<std::result::Result<(), String>> {
    match own.enable_access_to(peer) {
        Err(error) if has_code(&error, &REFUSALS) => Ok(Err(error.message().to_string())),
        enabled => enabled.map(Ok),
    }
}

/// How kernels of `device` read `size` bytes at `address`, which are memory of the device of `owner`, that device's
/// primary context. What holds for one allocation or mapping of several holds for all of it.
///
/// Memory of cuMemAlloc is the only one that legacy IPC takes, and the only one that enabling peers maps: all of one
/// context at once. VMM memory says what each device may do with it; memory of a pool can't be asked so.
pub fn peer_reach(device: Device, owner: &Context, address: u64, size: u64) -> Result<PeerReach> {
    let (mut next, mut reach) = (address, PeerReach::Mapped);
    while next < address + size {
        match reach_at(device, owner, next)? {
            PeerReach::None => return Ok(PeerReach::None),
            PeerReach::OncePeersAreEnabled => reach = PeerReach::OncePeersAreEnabled,
            PeerReach::Mapped => {}
        }
        let (base, length) = range_in(owner, next)?;
        next = base.saturating_add(length).max(next + 1);
    }
    Ok(reach)
}

fn reach_at(device: Device, owner: &Context, address: u64) -> Result<PeerReach> {
    if attribute::<u32>(IS_LEGACY_CUDA_IPC_CAPABLE, address)? != 0 {
        let context: u64 = attribute(CONTEXT, address)?;
        return Ok(if owner.is(context as _) { PeerReach::OncePeersAreEnabled } else { PeerReach::None });
    }
    match is_accessible(device, address, false) {
        Ok(true) => Ok(PeerReach::Mapped),
        Ok(false) => Ok(PeerReach::None),
        Err(error) if has_code(&error, &[INVALID_VALUE]) => Ok(PeerReach::None),
        Err(error) => Err(error),
    }
}
