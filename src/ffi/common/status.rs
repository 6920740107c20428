// SPDX-License-Identifier: Apache-2.0
//! Statuses.

use std::borrow::Cow;
use std::ffi::{CStr, c_char};

use crate::base::Status;

/// Result of a call: KVMEM_STATUS_OK, a positive state such as KVMEM_STATUS_IN_PROGRESS, or a negative error.
/// A value is never renumbered or reused.
pub type kvmem_status = i32;

/// The call succeeded.
pub const KVMEM_STATUS_OK: kvmem_status = 0;
/// The run is in flight.
pub const KVMEM_STATUS_IN_PROGRESS: kvmem_status = 1;
/// An argument is invalid, whatever the library's state.
pub const KVMEM_STATUS_INVALID_ARGUMENT: kvmem_status = -1;
/// Memory, disk space or another resource is exhausted.
pub const KVMEM_STATUS_OUT_OF_MEMORY: kvmem_status = -2;
/// An index or a size is outside the object.
pub const KVMEM_STATUS_OUT_OF_RANGE: kvmem_status = -3;
/// The named object does not exist.
pub const KVMEM_STATUS_NOT_FOUND: kvmem_status = -4;
/// The object to create already exists.
pub const KVMEM_STATUS_ALREADY_EXISTS: kvmem_status = -5;
/// The state of the object does not allow the call.
pub const KVMEM_STATUS_INVALID_STATE: kvmem_status = -6;
/// The object is in use.
pub const KVMEM_STATUS_BUSY: kvmem_status = -7;
/// The timeout expired.
pub const KVMEM_STATUS_TIMED_OUT: kvmem_status = -8;
/// The work was cancelled.
pub const KVMEM_STATUS_CANCELLED: kvmem_status = -9;
/// The operation is not supported, here or in general.
pub const KVMEM_STATUS_UNSUPPORTED: kvmem_status = -10;
/// The system or a peer denied access.
pub const KVMEM_STATUS_PERMISSION_DENIED: kvmem_status = -11;
/// There is no usable CUDA driver; the message says why.
pub const KVMEM_STATUS_UNAVAILABLE_CUDA: kvmem_status = -12;
/// There is no usable NIXL library; the message says why.
pub const KVMEM_STATUS_UNAVAILABLE_NIXL: kvmem_status = -13;
/// The CUDA driver reported an error.
pub const KVMEM_STATUS_CUDA: kvmem_status = -14;
/// NIXL reported an error.
pub const KVMEM_STATUS_NIXL: kvmem_status = -15;
/// The operating system reported an error.
pub const KVMEM_STATUS_IO: kvmem_status = -16;
/// The peer process has ended.
pub const KVMEM_STATUS_PEER_LOST: kvmem_status = -17;
/// What the handle refers to has changed since.
pub const KVMEM_STATUS_STALE: kvmem_status = -18;
/// Received or stored bytes are damaged or malicious.
pub const KVMEM_STATUS_CORRUPT: kvmem_status = -19;
/// Received or stored bytes have an unsupported version.
pub const KVMEM_STATUS_VERSION_MISMATCH: kvmem_status = -20;
/// A bug in kvmem. Later calls with the same objects fail with KVMEM_STATUS_INVALID_STATE.
pub const KVMEM_STATUS_PANIC: kvmem_status = -21;

/// Returns the name of a status, such as "KVMEM_STATUS_BUSY". The string is static.
///
/// @param status any value; the name of an unknown one is "KVMEM_STATUS_UNKNOWN"
#[unsafe(no_mangle)]
pub extern "C" fn kvmem_status_name(status: kvmem_status) -> *const c_char {
    c_name(status).as_ptr()
}

/// Returns the meaning of a status in one sentence. The string is static.
#[unsafe(no_mangle)]
pub extern "C" fn kvmem_status_message(status: kvmem_status) -> *const c_char {
    described(status).map_or(c"The status is unknown.", |(_, meaning)| meaning).as_ptr()
}

/// The name of a status, for messages.
pub(in crate::ffi) fn name(status: kvmem_status) -> Cow<'static, str> {
    c_name(status).to_string_lossy()
}

fn c_name(status: kvmem_status) -> &'static CStr {
    described(status).map_or(c"KVMEM_STATUS_UNKNOWN", |(name, _)| name)
}

/// The name of a status and its meaning.
fn described(status: kvmem_status) -> Option<(&'static CStr, &'static CStr)> {
    match status {
        KVMEM_STATUS_OK => Some((c"KVMEM_STATUS_OK", c"The call succeeded.")),
        KVMEM_STATUS_IN_PROGRESS => Some((c"KVMEM_STATUS_IN_PROGRESS", c"The run is in flight.")),
        error => Status::from_code(error).map(|status| (status.name(), status.meaning())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_own_name() {
        let constants = include_str!("status.rs")
            .lines()
            .filter_map(|line| line.strip_prefix("pub const KVMEM_STATUS_"))
            .filter_map(|line| line.strip_suffix(';')?.split_once(": kvmem_status = "));
        let mut count = 0;
        for (constant, value) in constants {
            let status = value.parse().unwrap();
            assert_eq!(name(status), format!("KVMEM_STATUS_{constant}"));
            count += usize::from(Status::from_code(status).is_some());
        }
        assert_eq!(count, Status::ALL.len());
    }
}
