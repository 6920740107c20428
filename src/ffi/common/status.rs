// SPDX-License-Identifier: Apache-2.0
//! Statuses.

use std::ffi::c_char;

use crate::base::Status;

/// Result of a call: KVMEM_STATUS_OK, a positive state such as KVMEM_STATUS_IN_PROGRESS, or a negative error.
/// A value is never renumbered or reused.
pub type kvmem_status = i32;

/// The call succeeded.
pub const KVMEM_STATUS_OK: kvmem_status = 0;
/// The run is in flight.
pub const KVMEM_STATUS_IN_PROGRESS: kvmem_status = 1;
/// An argument is invalid, independent of the state of the library.
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
/// There is no usable CUDA driver: it is missing, too old, or has no device. The message says which.
pub const KVMEM_STATUS_UNAVAILABLE_CUDA: kvmem_status = -12;
/// There is no usable NIXL library: it is missing, too old or broken. The message says which.
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
/// Received or stored bytes have a version that this library cannot read.
pub const KVMEM_STATUS_VERSION_MISMATCH: kvmem_status = -20;
/// A bug in kvmem. Later calls with the same objects fail with KVMEM_STATUS_INVALID_STATE.
pub const KVMEM_STATUS_PANIC: kvmem_status = -21;

/// Statuses the core has no error for, and every error it has.
const TABLE: [(kvmem_status, &str, &str); 23] = [
    (KVMEM_STATUS_OK, "KVMEM_STATUS_OK\0", "The call succeeded.\0"),
    (KVMEM_STATUS_IN_PROGRESS, "KVMEM_STATUS_IN_PROGRESS\0", "The run is in flight.\0"),
    (Status::InvalidArgument as i32, "KVMEM_STATUS_INVALID_ARGUMENT\0", "An argument is invalid.\0"),
    (
        Status::OutOfMemory as i32,
        "KVMEM_STATUS_OUT_OF_MEMORY\0",
        "Memory, disk space or another resource is exhausted.\0",
    ),
    (Status::OutOfRange as i32, "KVMEM_STATUS_OUT_OF_RANGE\0", "An index or a size is out of range.\0"),
    (Status::NotFound as i32, "KVMEM_STATUS_NOT_FOUND\0", "The named object does not exist.\0"),
    (Status::AlreadyExists as i32, "KVMEM_STATUS_ALREADY_EXISTS\0", "The object to create already exists.\0"),
    (
        Status::InvalidState as i32,
        "KVMEM_STATUS_INVALID_STATE\0",
        "The state of the object does not allow the call.\0",
    ),
    (Status::Busy as i32, "KVMEM_STATUS_BUSY\0", "The object is in use.\0"),
    (Status::TimedOut as i32, "KVMEM_STATUS_TIMED_OUT\0", "The timeout expired.\0"),
    (Status::Cancelled as i32, "KVMEM_STATUS_CANCELLED\0", "The work was cancelled.\0"),
    (Status::Unsupported as i32, "KVMEM_STATUS_UNSUPPORTED\0", "The operation is not supported.\0"),
    (
        Status::PermissionDenied as i32,
        "KVMEM_STATUS_PERMISSION_DENIED\0",
        "The system or a peer denied access.\0",
    ),
    (Status::UnavailableCuda as i32, "KVMEM_STATUS_UNAVAILABLE_CUDA\0", "There is no usable CUDA driver.\0"),
    (Status::UnavailableNixl as i32, "KVMEM_STATUS_UNAVAILABLE_NIXL\0", "There is no usable NIXL library.\0"),
    (Status::Cuda as i32, "KVMEM_STATUS_CUDA\0", "The CUDA driver reported an error.\0"),
    (Status::Nixl as i32, "KVMEM_STATUS_NIXL\0", "NIXL reported an error.\0"),
    (Status::Io as i32, "KVMEM_STATUS_IO\0", "The operating system reported an error.\0"),
    (
        Status::PeerLost as i32,
        "KVMEM_STATUS_PEER_LOST\0",
        "The peer process has ended, or the connection to it has failed.\0",
    ),
    (Status::Stale as i32, "KVMEM_STATUS_STALE\0", "The object that the handle refers to has changed.\0"),
    (Status::Corrupt as i32, "KVMEM_STATUS_CORRUPT\0", "Received or stored bytes are damaged.\0"),
    (
        Status::VersionMismatch as i32,
        "KVMEM_STATUS_VERSION_MISMATCH\0",
        "Received or stored bytes have an unsupported version.\0",
    ),
    (Status::Panic as i32, "KVMEM_STATUS_PANIC\0", "A bug in kvmem.\0"),
];

/// Returns the name of a status, such as "KVMEM_STATUS_BUSY". The string is static.
///
/// @param status any value; the name of an unknown one is "KVMEM_STATUS_UNKNOWN"
#[unsafe(no_mangle)]
pub extern "C" fn kvmem_status_name(status: kvmem_status) -> *const c_char {
    find(status).map_or("KVMEM_STATUS_UNKNOWN\0", |(_, name, _)| name).as_ptr().cast()
}

/// Returns the meaning of a status in one sentence. The string is static.
#[unsafe(no_mangle)]
pub extern "C" fn kvmem_status_message(status: kvmem_status) -> *const c_char {
    find(status).map_or("The status is unknown.\0", |(_, _, message)| message).as_ptr().cast()
}

/// The name of a status, for messages.
pub(in crate::ffi) fn name(status: kvmem_status) -> &'static str {
    find(status).map_or("KVMEM_STATUS_UNKNOWN", |(_, name, _)| name.trim_end_matches('\0'))
}

fn find(status: kvmem_status) -> Option<&'static (kvmem_status, &'static str, &'static str)> {
    TABLE.iter().find(|(value, _, _)| *value == status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_status_once_under_its_own_name() {
        let constants = include_str!("status.rs")
            .lines()
            .filter_map(|line| line.strip_prefix("pub const KVMEM_STATUS_"))
            .filter_map(|line| line.strip_suffix(';')?.split_once(": kvmem_status = "));
        let mut count = 0;
        for (name, value) in constants {
            let found = find(value.parse().unwrap()).unwrap();
            assert_eq!(found.1, format!("KVMEM_STATUS_{name}\0"));
            if let Some(status) = Status::from_code(found.0) {
                assert_eq!(status.name(), format!("KVMEM_STATUS_{name}"));
            }
            count += 1;
        }
        assert_eq!(count, TABLE.len());
    }
}
