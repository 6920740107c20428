// SPDX-License-Identifier: Apache-2.0
//! Fetching shares from a broker.

use std::ffi::c_char;
use std::sync::Arc;

use crate::base::{Result, ensure, fail};
use crate::ffi::broker::publish::kvmem_token;
use crate::ffi::common::{
    call_new, check_flags, check_reserved, deadline, ensure_given, kvmem_error, kvmem_status, null, options,
    read, text,
};
use crate::ffi::share::kvmem_share;

use crate::region::Access;
use crate::share::Share;
use crate::share::broker::Token;
use crate::share::client::{Fetch, fetch};

/// Fetch read access only, even if write access is granted.
pub const KVMEM_FETCH_READ_ONLY: u64 = 1;
/// The broker must run as `broker_user`, instead of the caller's user.
pub const KVMEM_FETCH_BROKER_USER: u64 = 2;
/// Fetch read and write access, and fail if less is granted.
pub const KVMEM_FETCH_READ_WRITE: u64 = 4;

/// Options of kvmem_share_fetch.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_fetch_options {
    /// sizeof(kvmem_fetch_options)
    pub struct_size: usize,
    /// Path of the broker's socket, at most 107 bytes.
    pub path: *const c_char,
    /// Name of the published share.
    pub name: *const c_char,
    /// Token for that share; read during the call.
    pub token: *const kvmem_token,
    /// KVMEM_FETCH_* flags; 0 fetches all granted rights.
    pub flags: u64,
    /// User id of KVMEM_FETCH_BROKER_USER. Must be 0 without that flag.
    pub broker_user: u32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_fetch_options);

/// Fetches a share from a broker.
///
/// @return KVMEM_STATUS_PERMISSION_DENIED: the broker does not serve this user; the name or the token is
///           wrong, or the token is used up or expired, which are not distinguished; KVMEM_FETCH_READ_WRITE
///           is set and less is granted; or the broker runs as another user
///         KVMEM_STATUS_NOT_FOUND: nothing is at the path
///         KVMEM_STATUS_INVALID_ARGUMENT: the path is no broker's socket; or name, path or flags are invalid
///         KVMEM_STATUS_PEER_LOST: the broker has ended
///         KVMEM_STATUS_BUSY: this user has too many clients, or bytes or file descriptors in transit
///         KVMEM_STATUS_TIMED_OUT: the share has not arrived in time, or the broker has not received the
///           request in time
///         any status of kvmem_share_create_region: the broker cannot share the published object, for example
///           read-only if it received the share from another process (KVMEM_STATUS_UNSUPPORTED)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_fetch(
    options: *const kvmem_fetch_options,
    timeout_ns: u64,
    share: *mut *mut kvmem_share,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (share, "share"), |_| {
        let options = read(options)?;
        let what = wanted(&options)?;
        let parcel = fetch(&what, deadline(timeout_ns))?;
        Ok(Arc::new(Share::from_parcel(parcel)?))
    })
}

/// # Safety
/// The strings must be NULL or NUL-terminated, and the token NULL or readable.
unsafe fn wanted(options: &kvmem_fetch_options) -> Result<Fetch> {
    let known = KVMEM_FETCH_READ_ONLY | KVMEM_FETCH_READ_WRITE | KVMEM_FETCH_BROKER_USER;
    check_flags("kvmem_fetch_options", options.flags, known)?;
    let access =
        match (options.flags & KVMEM_FETCH_READ_ONLY != 0, options.flags & KVMEM_FETCH_READ_WRITE != 0) {
            (false, false) => None,
            (true, false) => Some(Access::Read),
            (false, true) => Some(Access::ReadWrite),
            (true, true) => {
                fail!(InvalidArgument, "KVMEM_FETCH_READ_ONLY and KVMEM_FETCH_READ_WRITE exclude each other")
            }
        };
    check_reserved("kvmem_fetch_options", options.reserved)?;
    let names_user = options.flags & KVMEM_FETCH_BROKER_USER != 0;
    ensure!(
        options.broker_user == 0 || names_user,
        InvalidArgument,
        "broker_user is {}, and KVMEM_FETCH_BROKER_USER is not set: set the flag, or set broker_user to 0",
        options.broker_user
    );
    ensure_given(
        "kvmem_fetch_options",
        &[
            ("path", !options.path.is_null()),
            ("name", !options.name.is_null()),
            ("token", !options.token.is_null()),
        ],
    )?;
    // SAFETY: the caller's promise.
    let (path, name, token) =
        unsafe { (text::path(options.path), text::required(options.name, "name")?, options.token.as_ref()) };
    Ok(Fetch {
        path: path.ok_or_else(|| null("path"))?.to_path_buf(),
        name: name.to_string(),
        token: Token(token.ok_or_else(|| null("token"))?.bytes),
        access,
        broker_user: names_user.then_some(options.broker_user),
        broker_process: None,
    })
}
