// SPDX-License-Identifier: Apache-2.0
//! One message with file descriptors on a Unix socket, and the credentials of the peer.
//!
//! Every call returns at once, whether the socket is blocking or not, and none raises SIGPIPE.
#![allow(unsafe_code)]

use std::io::IoSlice;
use std::mem::{MaybeUninit, size_of, size_of_val};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::base::retried;

/// The maximum number of file descriptors per message, set by the kernel.
pub const FDS_A_MESSAGE: usize = 253;

/// Space for the file descriptors of a message, and for other control messages that an engine may have enabled on its
/// socket: credentials, a time stamp, a security label.
const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(FDS_A_MESSAGE)) + 512;

/// A pidfd of the sender, which the kernel adds if an engine has set SO_PASSPIDFD.
const SCM_PIDFD: libc::c_int = 4;

/// The result of `receive`.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// The number of bytes; 0 if the peer has closed its end.
    pub bytes: usize,
    /// The message was longer than the buffer, and the rest is lost.
    pub cut: bool,
    /// More file descriptors were sent than received; the kernel has closed the others.
    pub fds_cut: bool,
}

/// Whether to accept file descriptors. Others are never opened in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fds {
    /// They are appended to the caller's.
    Take,
    /// The kernel closes them, which sets `fds_cut`.
    Refuse,
}

/// Sends one message of two parts. Returns the number of bytes sent. The file descriptors are sent with the first byte.
pub fn send(
    socket: BorrowedFd<'_>,
    parts: [&[u8]; 2],
    fds: &[BorrowedFd<'_>],
) -> std::result::Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_A_MESSAGE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    let parts = parts.map(IoSlice::new);
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    #[allow(clippy::disallowed_methods, reason = "repeated here")]
    retried::call(|| rustix::net::sendmsg(socket, &parts, &mut control, flags))
}

/// Receives one message, or a part of a stream, into `buffer`. All received file descriptors are owned at once, so that none
/// leaks.
pub fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    wanted: Fds,
    fds: &mut Vec<OwnedFd>,
) -> std::result::Result<Received, Errno> {
    // Words, because control messages must be aligned.
    let mut control = [0u64; CONTROL_BYTES.div_ceil(size_of::<u64>())];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeroes is a valid msghdr, and the only portable initial value: C libraries have different fields.
    let mut header = unsafe { MaybeUninit::<libc::msghdr>::zeroed().assume_init() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    if wanted == Fds::Take {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control);
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    let bytes = retried::call(|| {
        #[allow(clippy::disallowed_methods, reason = "repeated here")]
        // SAFETY: the header points to a buffer and a control buffer of the given sizes, which live through the call.
        let bytes = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
        usize::try_from(bytes).map_err(|_| last_errno())
    })?;
    // SAFETY: the kernel has just filled the header and its control buffer.
    unsafe { take_fds(&header, fds) };
    Ok(Received {
        bytes,
        cut: header.msg_flags & libc::MSG_TRUNC != 0,
        fds_cut: header.msg_flags & libc::MSG_CTRUNC != 0,
    })
}

/// Owns the file descriptors in the control messages of `header`.
///
/// # Safety
/// `recvmsg` must have just filled `header`, and its file descriptors must not be owned yet.
unsafe fn take_fds(header: &libc::msghdr, fds: &mut Vec<OwnedFd>) {
    // SAFETY: the control buffer has the length in the header, and the macros do not exceed it.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: NULL, or a control message the kernel wrote.
    while let Some(message) = unsafe { next.as_ref() } {
        // SAFETY: computes an address, and a length from nothing.
        let (data, overhead) = unsafe { (libc::CMSG_DATA(message), libc::CMSG_LEN(0)) };
        // The types of both differ between C libraries.
        #[allow(clippy::unnecessary_cast)]
        let count = (message.cmsg_len as usize).saturating_sub(overhead as usize) / size_of::<RawFd>();
        for index in 0..count {
            let fd = || {
                // SAFETY: within the message; a file descriptor that the kernel has opened for this process.
                unsafe { OwnedFd::from_raw_fd(data.cast::<RawFd>().add(index).read_unaligned()) }
            };
            match (message.cmsg_level, message.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => fds.push(fd()),
                (libc::SOL_SOCKET, SCM_PIDFD) => drop(fd()),
                _ => break,
            }
        }
        // SAFETY: `message` is one of `header`.
        next = unsafe { libc::CMSG_NXTHDR(header, message) };
    }
}

/// The user of the peer at the time of connect or listen.
pub fn peer_user(socket: BorrowedFd<'_>) -> std::result::Result<u32, Errno> {
    peer(socket).map(|peer| peer.uid)
}

/// The process of the peer at the time of connect or listen; `None` if it is in a pid namespace that is not visible from
/// here.
pub fn peer_pid(socket: BorrowedFd<'_>) -> Option<u32> {
    let peer = peer(socket).ok()?;
    u32::try_from(peer.pid).ok().filter(|pid| *pid > 0)
}

fn peer(socket: BorrowedFd<'_>) -> std::result::Result<libc::ucred, Errno> {
    // Not by rustix: its process ids cannot be 0, which is the value for a peer in a namespace that is not visible.
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: a ucred and its size, both writable.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut size,
        )
    };
    if result == 0 { Ok(peer) } else { Err(last_errno()) }
}

/// Whether the peer has not yet read all data that was sent on a socket.
pub fn is_unread(socket: BorrowedFd<'_>) -> std::result::Result<bool, Errno> {
    let mut unread: libc::c_int = 0;
    // SAFETY: it writes an int.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut unread) };
    if result == 0 { Ok(unread > 0) } else { Err(last_errno()) }
}

/// Borrows file descriptors of a parcel.
pub fn borrow<F: AsFd>(fds: &[F]) -> Vec<BorrowedFd<'_>> {
    fds.iter().map(AsFd::as_fd).collect()
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
