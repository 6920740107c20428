// SPDX-License-Identifier: Apache-2.0
//! kvmem: KV-cache memory for LLM inference engines.
//!
//! A *region* is bytes on a tier; a *layout* says where each block lies in regions; a *share* carries either to another
//! process; a *transfer* moves blocks between two layouts by the fastest path that exists, and says which one it took.
//!
//! The rooms, ground floor first; a room uses only those above it in this list:
//!
//! - `advice`, [`error`], `file_limit`, [`guarded`], `leak`, [`log`], `log_id`, `callback_thread`, [`process`], `sync`,
//!   [`wire`]: what every room stands on.
//! - [`cuda`]: the driver, found at run time.
//! - [`nixl`]: the library, found at run time; agents, each driven by one thread.
//! - [`region`]: memory on a tier, one file a tier; registration.
//! - [`layout`]: geometry (pure arithmetic), the builder, the wire form.
//! - [`share`]: a region or layout on its way to another process.
//! - [`transfer`]: the plan (pure), runs and their completion, checksums, one folder per engine.
//! - [`ffi`]: the C face, one file a noun. The only room C sees.

mod advice;
mod callback_thread;
pub mod cuda;
pub mod error;
pub mod ffi;
mod file_limit;
pub mod guarded;
pub mod layout;
mod leak;
pub mod log;
mod log_id;
pub mod nixl;
pub mod process;
pub mod region;
pub mod share;
mod sync;
pub mod transfer;
pub mod wire;

#[cfg(test)]
#[path = "../tests/support/skip.rs"]
mod skip;
