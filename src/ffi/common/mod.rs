// SPDX-License-Identifier: Apache-2.0
//! The common parts of the C interface: statuses, errors, handles, options, text, the log.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod array;
pub mod blob;
mod call_log;
pub mod error;
pub mod fd;
pub mod guard;
pub mod handle;
pub mod kind;
pub mod log;
pub mod options;
pub mod pointer;
pub mod scope;
pub mod status;
pub mod text;
pub mod time;
pub mod version;
