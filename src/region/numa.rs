// SPDX-License-Identifier: Apache-2.0
//! Placing memory on a NUMA node.
#![allow(unsafe_code)]

use crate::base::{Cause, Error, Result, Status, ensure, log};

/// From <linux/mempolicy.h>, which the libc crate does not carry.
const MPOL_PREFERRED: libc::c_int = 1;
const MPOL_BIND: libc::c_int = 2;

/// The node that the pages of a range are allocated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumaPlacement {
    /// This node only.
    Bind(u32),
    /// This node if it has free pages, otherwise any.
    Prefer(u32),
}

impl NumaPlacement {
    pub fn node(self) -> u32 {
        match self {
            Self::Bind(node) | Self::Prefer(node) => node,
        }
    }
}

/// Sets the node for the pages of a range, which must not be populated yet. Returns the placement that is in effect: `None`
/// for a preference that the system does not allow, for example in a container.
pub fn place(address: usize, size: usize, placement: NumaPlacement) -> Result<Option<NumaPlacement>> {
    let node = placement.node();
    let mode = match placement {
        NumaPlacement::Bind(_) => MPOL_BIND,
        NumaPlacement::Prefer(_) => MPOL_PREFERRED,
    };
    ensure!(
        node_exists(node),
        InvalidArgument,
        "this machine has no NUMA node {node}; its nodes are {}",
        online_nodes()
    );
    let bits = libc::c_ulong::BITS;
    let mut mask = vec![0 as libc::c_ulong; (node / bits) as usize + 1];
    mask[(node / bits) as usize] = 1 << (node % bits);
    // SAFETY: policy for a mapping of our own; the mask holds `maxnode - 1` bits and lives through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            address,
            size,
            mode,
            mask.as_ptr(),
            mask.len() * bits as usize + 1,
            0 as libc::c_uint,
        )
    };
    if result == 0 {
        return Ok(Some(placement));
    }
    let error = Error::last_errno(format!("place {size} bytes on NUMA node {node}"));
    let kernel_without_numa = error.cause() == Some(&Cause::Errno(libc::ENOSYS));
    let is_forbidden = error.cause() == Some(&Cause::Errno(libc::EPERM));
    let error = error.with_advice(is_forbidden.then(|| {
        "a container forbids mbind unless it has the capability CAP_SYS_NICE, or a seccomp profile that allows the call; \
         kvmem-doctor checks it"
            .to_string()
    }));
    if matches!(placement, NumaPlacement::Prefer(_)) {
        log!(Warn, "{error}; they are allocated on any node");
        return Ok(None);
    }
    Err(if kernel_without_numa { error.with_status(Status::Unsupported) } else { error })
}

pub fn node_exists(node: u32) -> bool {
    let present = std::path::Path::new("/sys/devices/system/node");
    // A kernel without NUMA has one node and no folder for it.
    if present.exists() { present.join(format!("node{node}")).exists() } else { node == 0 }
}

fn online_nodes() -> String {
    std::fs::read_to_string("/sys/devices/system/node/online")
        .map_or("0".to_string(), |text| text.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_missing_node_contains_its_number() {
        let error = place(0, 4096, NumaPlacement::Bind(100_000)).err().unwrap();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.message().contains("no NUMA node 100000"), "{error}");
    }
}
