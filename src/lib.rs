// SPDX-License-Identifier: Apache-2.0
//! kvmem: KV-cache memory for LLM inference engines.
//!
//! A *region* is memory on a tier; a *layout* defines where each block is located in regions; a *share* passes either to
//! another process; a *transfer* moves blocks between two layouts by the fastest available path, and reports which one.
//!
//! The modules, lowest first; a module uses only those above it in this list:
//!
//! - `advice`, [`error`], `file_limit`, [`guarded`], `leak`, `lists`, [`log`], `log_id`, `callback_thread`, [`process`], `sorting`,
//!   `sync`, `thread`, [`wire`]: used by all others.
//! - [`cuda`]: the driver, found at run time.
//! - [`nixl`]: the library, found at run time; agents, each driven by one thread.
//! - [`region`]: memory on a tier, one file per tier; registration.
//! - [`layout`]: geometry (pure arithmetic), the builder, the wire form.
//! - [`share`]: passing a region or layout to another process.
//! - [`directory`]: agents are published and found by name, in a folder or in etcd.
//! - [`transfer`]: the plan (pure), runs and their completion, checksums, one folder per engine.
//! - [`ffi`]: the C interface, one file per noun; the only module that C sees.

mod advice;
mod callback_thread;
pub mod cuda;
pub mod directory;
pub mod error;
pub mod ffi;
mod file_limit;
pub mod guarded;
mod keyed;
pub mod layout;
mod leak;
mod leases;
mod lists;
pub mod log;
mod log_id;
pub mod nixl;
mod paths;
pub mod process;
mod random;
pub mod region;
mod retried;
pub mod share;
mod sorting;
mod sync;
mod thread;
pub mod transfer;
pub mod wire;

#[cfg(test)]
#[path = "../tests/support/skip.rs"]
mod skip;
