// SPDX-License-Identifier: Apache-2.0
//! Fetching shares from a broker.

use std::ffi::c_char;
use std::sync::Arc;

use crate::error::{Result, ensure, fail};
use crate::ffi::broker::publish::kvmem_token;
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::Out;
use crate::ffi::common::options::{check_flags, ensure_given, init, options, read};
use crate::ffi::common::pointer::null;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::text;
use crate::ffi::share::kvmem_share;
use crate::ffi::share::socket::deadline;
use crate::region::Access;
use crate::share::Share;
use crate::share::broker::Token;
use crate::share::client::{Fetch, fetch};

/// Fetch for reading, even if writing is granted.
pub const KVMEM_FETCH_READ_ONLY: u64 = 1;
/// The broker must run as `broker_user`. Without this flag it must run as the user of the caller.
pub const KVMEM_FETCH_BROKER_USER: u64 = 2;
/// Fail with KVMEM_STATUS_PERMISSION_DENIED unless reading and writing is granted.
pub const KVMEM_FETCH_READ_WRITE: u64 = 4;

/// Options of kvmem_share_fetch.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_fetch_options {
    /// sizeof(kvmem_fetch_options)
    pub struct_size: usize,
    /// KVMEM_FETCH_* flags; 0 fetches all granted rights.
    pub flags: u64,
    /// Path of the broker's socket.
    pub path: *const c_char,
    /// Name of the published share.
    pub name: *const c_char,
    /// Token for that share; read during the call.
    pub token: *const kvmem_token,
    /// Nanoseconds; 0 for 10 seconds; KVMEM_TIMEOUT_FOREVER.
    pub timeout_ns: u64,
    /// User id of KVMEM_FETCH_BROKER_USER; 0 without that flag.
    pub broker_user: u32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_fetch_options);

/// Sets options to their defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_fetch_options_init(options: *mut kvmem_fetch_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Fetches a share from a broker.
///
/// @param options what to fetch, and from which broker
/// @param share receives the share; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_PERMISSION_DENIED: wrong user, name or token, which are not distinguished; the token
///           is used up; KVMEM_FETCH_READ_WRITE is set and less is granted; or the broker runs as another
///           user
///         KVMEM_STATUS_NOT_FOUND: there is no socket at the path
///         KVMEM_STATUS_INVALID_ARGUMENT: the file at the path is not a socket
///         KVMEM_STATUS_PEER_LOST: the broker has ended
///         KVMEM_STATUS_BUSY: this user has too many clients, bytes or file descriptors in transit
///         KVMEM_STATUS_TIMED_OUT: the broker did not reply in time
///         KVMEM_STATUS_CORRUPT: the reply is damaged
///         KVMEM_STATUS_OUT_OF_MEMORY: also if no file descriptor is free
///         any status of kvmem_share_create_region: the broker cannot grant what was requested, for example
///           read-only access to a share that it received itself
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_fetch(
    options: *const kvmem_fetch_options,
    share: *mut *mut kvmem_share,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (share, options) = unsafe { (Out::new(share)?, read(options)?) };
        // SAFETY: by contract.
        let what = unsafe { wanted(&options) }?;
        let timeout = if options.timeout_ns == 0 { DEFAULT_FETCH_NS } else { options.timeout_ns };
        let parcel = fetch(&what, deadline(timeout))?;
        share.set(Arc::new(Share::of_parcel(parcel)?));
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

const DEFAULT_FETCH_NS: u64 = 10_000_000_000;

/// # Safety
/// The strings must be NULL or NUL-terminated, the token NULL or readable.
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
    ensure!(options.reserved == 0, InvalidArgument, "reserved is {}, it must be 0", options.reserved);
    let names_user = options.flags & KVMEM_FETCH_BROKER_USER != 0;
    ensure!(
        options.broker_user == 0 || names_user,
        InvalidArgument,
        "broker_user is {}, which means nothing without KVMEM_FETCH_BROKER_USER",
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
    })
}
