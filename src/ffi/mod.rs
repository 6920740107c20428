// SPDX-License-Identifier: Apache-2.0
//! The C interface, one folder or file per noun. A function here validates, converts, calls one core function and
//! converts back.
//!
//! The only module with exported symbols, pointers of callers and C types. `include/kvmem.h` is generated from it, so
//! the comments here are its text. So each item has one; elsewhere a comment says what its name and type do not.
#![allow(unsafe_code)]
#![warn(missing_docs)]
#![allow(non_camel_case_types)]
// The contract of each function is its page in the header: pointers are NULL or valid as it says.
#![allow(clippy::missing_safety_doc)]
// For the same reason the whole body of such a function is unsafe, without a block that repeats it. `common` has blocks.
#![allow(unsafe_op_in_unsafe_fn)]

pub mod agent;
pub mod broker;
pub mod common;
pub mod cuda;
pub mod layout;
pub mod nixl;
pub mod queue;
pub mod region;
pub mod share;
pub mod statistics;
pub mod store;
pub mod transfer;
