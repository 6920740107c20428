// SPDX-License-Identifier: Apache-2.0
//! kvmem: KV-cache memory for LLM inference engines.
//!
//! A *region* is memory on a tier; a *layout* defines where each block is located in regions; a *share* passes either to
//! another process; a *transfer* moves blocks between two layouts by the fastest available method, and reports which one.
//!
//! The modules, highest first; a file uses only its own module and those below it:
//!
//! - [`ffi`]: the C interface, one folder per header; the only module that C sees.
//! - [`transfer`]: a transfer's life: create, submit, wait, explain, verify.
//! - [`raw`]: NIXL requests on descriptors that the caller lists.
//! - [`store`]: blocks under keys in a folder, which survive the process.
//! - [`engine`]: how a plan is executed: directly, with files, with peers.
//! - [`run`]: one submission: completion, queue, deadline, learned costs.
//! - [`copy`]: rows and elements copied once, by the host or a GPU. No runs, and no choice of a method.
//! - [`plan`]: from two layouts and the caller's blocks to loops, rows and few large moves. Pure.
//! - [`share`]: passing a region or layout to another process.
//! - [`directory`]: agents are published and found by name, in a folder or in etcd.
//! - [`layout`]: geometry (pure arithmetic), the builder, the wire form.
//! - [`region`]: memory on a tier, one file per tier; registration.
//! - [`nixl`]: the library, found at run time; agents, each driven by one thread.
//! - [`cuda`]: the driver, found at run time.
//! - [`base`]: errors, log, locks, threads, processes, wire forms: what every module may use.

#![deny(unsafe_code)]

pub mod base;
pub mod copy;
pub mod cuda;
pub mod directory;
pub mod engine;
pub mod ffi;
pub mod layout;
pub mod nixl;
pub mod plan;
pub mod raw;
pub mod region;
pub mod run;
pub mod share;
pub mod store;
pub mod transfer;

#[cfg(test)]
#[path = "../tests/support/skip.rs"]
mod skip;
#[cfg(test)]
#[path = "../tests/support/test_folder.rs"]
mod test_folder;
#[cfg(test)]
#[path = "../tests/support/waiting.rs"]
mod waiting;
