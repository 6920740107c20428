// SPDX-License-Identifier: Apache-2.0
//! Stores of blocks under keys.

pub mod keys;
pub mod moves;
pub mod namespaces;
pub mod open;
pub mod upkeep;

use std::sync::Arc;

use crate::ffi::common::{Handle, opaque};
use crate::transfer::stored::OpenStore;

/// Blocks under keys in a folder, open for writing or for reading. They survive the process and a loss of
/// power.
///
/// Runs of puts and gets, and handles of namespaces, keep the store open, also after its handle was
/// destroyed.
///
/// Threads: all functions may be called concurrently, except kvmem_store_destroy.
pub struct kvmem_store {
    handle: Handle<Arc<OpenStore>>,
}
opaque!(kvmem_store, Arc<OpenStore>, "store");
