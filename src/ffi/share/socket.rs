// SPDX-License-Identifier: Apache-2.0
//! Handing a share over a Unix socket.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use crate::error::{Result, ensure};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::Out;
use crate::ffi::common::handle::borrow;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::time::timeout;
use crate::ffi::share::kvmem_share;
use crate::share::{Share, socket};

/// Sends a share over a connected Unix socket of the caller's: SOCK_STREAM or SOCK_SEQPACKET, blocking or
/// not. The share stays the caller's, and can be sent to others. docs/share-transport.md has what goes over
/// the socket.
///
/// @param share a share
/// @param fd the socket; nothing else may be sent on it meanwhile
/// @param timeout_ns how long to wait for the peer to read, in nanoseconds; KVMEM_TIMEOUT_FOREVER for ever
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK when all of it is in the socket; KVMEM_STATUS_TIMED_OUT; KVMEM_STATUS_PEER_LOST
///         when the other end is closed; KVMEM_STATUS_INVALID_ARGUMENT for what is no connected Unix socket;
///         KVMEM_STATUS_IO. After a failure the message says whether the socket can still be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_send(
    share: *const kvmem_share,
    fd: i32,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let share = borrow(scope, share)?;
            socket::send(open_socket(fd)?, share.bytes(), share.fds(), deadline(timeout_ns))
        })
    }
}

/// Receives a share that kvmem_share_send sent. The bytes are not trusted.
///
/// After a failure, close the socket, unless the message says that the call may be tried again.
///
/// @param fd a connected Unix socket; nothing else may be received on it meanwhile
/// @param timeout_ns how long to wait, in nanoseconds; KVMEM_TIMEOUT_FOREVER for ever
/// @param share gets the share; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_TIMED_OUT; KVMEM_STATUS_PEER_LOST when the other end is closed;
///         KVMEM_STATUS_CORRUPT for what is no share; KVMEM_STATUS_VERSION_MISMATCH;
///         KVMEM_STATUS_OUT_OF_MEMORY also without file descriptors; KVMEM_STATUS_INVALID_ARGUMENT for what
///         is no connected Unix socket
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_receive(
    fd: i32,
    timeout_ns: u64,
    share: *mut *mut kvmem_share,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: NULL or writable, by contract.
        let share = unsafe { Out::new(share) }?;
        let parcel = socket::receive(open_socket(fd)?, deadline(timeout_ns))?;
        share.set(Arc::new(Share::of_parcel(parcel)?));
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

fn open_socket<'a>(fd: i32) -> Result<BorrowedFd<'a>> {
    ensure!(fd >= 0, InvalidArgument, "socket {fd} is none");
    // SAFETY: not -1; whether it is open the kernel says, and the caller keeps it so for the call.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// When a timeout ends; one beyond the clock's end never does.
pub(in crate::ffi) fn deadline(timeout_ns: u64) -> Option<Instant> {
    timeout(timeout_ns).and_then(|timeout| Instant::now().checked_add(timeout))
}
