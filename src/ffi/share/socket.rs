// SPDX-License-Identifier: Apache-2.0
//! Sending and receiving a share over a Unix socket.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::base::{Result, ensure};
use crate::ffi::common::{borrow, call, call_new, deadline, kvmem_error, kvmem_status};
use crate::ffi::share::kvmem_share;
use crate::share::{Share, socket};

/// Sends a share over a connected Unix socket of the caller.
///
/// The socket is of type SOCK_STREAM or SOCK_SEQPACKET, blocking or non-blocking. The caller keeps the share,
/// and can send it again. docs/share-transport.md specifies the bytes on the socket.
///
/// After KVMEM_STATUS_OK the share and the memory may be destroyed if file descriptors carry the memory.
/// Memory that an IPC handle or a fabric handle carries must exist until the peer has opened it, and memory
/// that is reached by NIXL as long as the peer uses it.
///
/// After a failure, close the socket, unless the message says that the call may be tried again.
///
/// @param fd the socket; send nothing else on it during the call
/// @return KVMEM_STATUS_OK: the socket has accepted all of it
///         KVMEM_STATUS_TIMED_OUT: the peer has not read all of it in time
///         KVMEM_STATUS_PEER_LOST: the other end is closed
///         KVMEM_STATUS_INVALID_ARGUMENT: fd is no such socket, or its send buffer is too small
///         KVMEM_STATUS_IO
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_send(
    share: *const kvmem_share,
    fd: i32,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let share = borrow(scope, share)?;
        socket::send(open_socket(fd)?, share.bytes(), share.fds(), deadline(timeout_ns))
    })
}

/// Receives a share that kvmem_share_send sent. kvmem does not trust the bytes. After a failure, close the
/// socket, unless the message says that the call may be tried again.
/// @param fd a connected Unix socket, as for kvmem_share_send; receive nothing else on it during the call
/// @return KVMEM_STATUS_PEER_LOST: the other end is closed
///         KVMEM_STATUS_PERMISSION_DENIED: the kernel withheld file descriptors, as by a security policy
///         KVMEM_STATUS_INVALID_ARGUMENT: fd is not a connected Unix socket of these types
///         KVMEM_STATUS_CORRUPT: the bytes on the socket are not a message of kvmem
///         KVMEM_STATUS_IO
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_receive(
    fd: i32,
    timeout_ns: u64,
    share: *mut *mut kvmem_share,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (share, "share"), |_| {
        let parcel = socket::receive(open_socket(fd)?, deadline(timeout_ns))?;
        Ok(Arc::new(Share::from_parcel(parcel)?))
    })
}

fn open_socket<'a>(fd: i32) -> Result<BorrowedFd<'a>> {
    ensure!(fd >= 0, InvalidArgument, "fd is {fd}, which is not a socket");
    // SAFETY: not -1; the kernel checks whether it is open, and the caller keeps it open during the call.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}
