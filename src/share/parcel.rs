// SPDX-License-Identifier: Apache-2.0
//! A share in transit: bytes, and the file descriptors that they refer to.

use std::os::fd::OwnedFd;

/// The maximum size of a parcel in bytes.
pub const MAX_BYTES: usize = 64 << 20;
/// The maximum number of file descriptors of a parcel.
pub const MAX_FDS: usize = 1 << 16;

/// The data that one process sends to another. The transport does not interpret it.
#[derive(Debug, Default)]
pub struct Parcel {
    /// The wire form of a share.
    pub bytes: Vec<u8>,
    /// The file descriptors, in the order that the bytes refer to. All are close-on-exec.
    pub fds: Vec<OwnedFd>,
}
