// SPDX-License-Identifier: Apache-2.0
//! Shares: memory on its way to another process.

pub mod broker;
pub mod client;
mod frame;
mod incoming;
mod message;
mod outgoing;
mod parcel;
pub mod socket;

pub use parcel::{MOST_BYTES, MOST_FDS, Parcel};

/// What a process may do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Read.
    Read,
    /// Read and write.
    ReadWrite,
}
