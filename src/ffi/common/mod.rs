// SPDX-License-Identifier: Apache-2.0
//! The common parts of the C interface: statuses, errors, handles, options, text, the log.

#![deny(unsafe_op_in_unsafe_fn)]

mod array;
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

pub use array::Array;
pub use blob::kvmem_blob;
pub use error::kvmem_error;
pub use fd::open_fd;
pub use guard::{call, call_new, call_on, call_out, call_unless};
pub use handle::{Handle, Out, UserData, borrow, borrow_nullable, destroy, peek};
pub(super) use handle::{item_list, opaque};
pub(super) use options::options;
pub use options::{check_flags, check_reserved, ensure_given, not_one_of, read, read_nullable, write};
pub use pointer::{OutItems, items, null, out};
pub use scope::Scope;
pub use status::{KVMEM_STATUS_IN_PROGRESS, KVMEM_STATUS_OK, kvmem_status};
pub(super) use time::{deadline, timeout};
