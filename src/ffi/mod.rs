// SPDX-License-Identifier: Apache-2.0
//! The C face, one file a noun. A function here validates, converts, calls one core function and converts back.
//!
//! The only room with exported symbols, pointers of callers and C types. `include/kvmem.h` is generated from it, so
//! the comments here are the manual.

#![allow(non_camel_case_types)]
// The contract of each function is its page in the header: pointers are NULL or valid as it says.
#![allow(clippy::missing_safety_doc)]

mod call_log;
mod guard;
mod handle;
mod kind;
mod text;
mod options;
mod region_config;
mod transfer_request;

// The header's order.
pub mod version;
pub mod status;
pub mod error;
pub mod log;
pub mod time;
pub mod nixl;
pub mod cuda;
pub mod copy_rates;
pub mod peer_rates;
pub mod blob;
pub mod region;
pub mod region_create;
pub mod region_adopt;
pub mod ipc;
pub mod agent;
pub mod notification;
pub mod registration;
pub mod layout_build;
pub mod layout;
pub mod checksum;
pub mod elastic;
pub mod share;
pub mod share_open;
pub mod share_socket;
pub mod broker;
pub mod queue;
pub mod transfer;
pub mod progress;
pub mod path;
pub mod vmm;
pub mod vmm_handles;
