// SPDX-License-Identifier: Apache-2.0
//! A share as it is handed over: bytes, and the file descriptors they speak of.

#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;

/// The most bytes of a parcel.
pub const MOST_BYTES: usize = 64 << 20;
/// The most file descriptors of a parcel.
pub const MOST_FDS: usize = 1 << 16;

/// What one process hands to another. Whoever carries it never looks inside.
#[derive(Debug, Default)]
pub struct Parcel {
    /// The wire form of a share.
    pub bytes: Vec<u8>,
    /// The file descriptors that come along, in the order the bytes count them. All are close-on-exec.
    pub fds: Vec<OwnedFd>,
}
