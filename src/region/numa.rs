// SPDX-License-Identifier: Apache-2.0
//! Binding memory to a NUMA node.

use crate::error::{Error, Result, Status, ensure};

/// From <linux/mempolicy.h>, which the libc crate does not carry.
const MPOL_BIND: libc::c_int = 2;

/// Lets the pages of a range come from `node` only. The pages must not be there yet.
pub fn bind(address: usize, size: usize, node: u32) -> Result<()> {
    ensure!(
        node_exists(node),
        InvalidArgument,
        "this machine has no NUMA node {node}; it has {}",
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
            MPOL_BIND,
            mask.as_ptr(),
            mask.len() * bits as usize + 1,
            0 as libc::c_uint,
        )
    };
    if result == 0 {
        return Ok(());
    }
    let error = Error::last_errno(format!("bind {size} bytes to NUMA node {node}"));
    let kernel_without_numa = std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS);
    Err(if kernel_without_numa { error.with_status(Status::Unsupported) } else { error })
}

fn node_exists(node: u32) -> bool {
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
    fn a_node_that_is_not_there_is_refused_by_name() {
        let error = bind(0, 4096, 100_000).err().unwrap();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.message().contains("no NUMA node 100000"), "{error}");
    }
}
