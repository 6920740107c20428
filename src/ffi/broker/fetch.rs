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

/// The broker is a process of `broker_user`.
pub const KVMEM_FETCH_BROKER_USER: u64 = 2;
/// Ask for reading and writing: KVMEM_STATUS_PERMISSION_DENIED where less is granted.
pub const KVMEM_FETCH_READ_WRITE: u64 = 4;

/// What to fetch, and from whom.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_fetch_options {
    /// sizeof(kvmem_fetch_options)
    pub struct_size: usize,
    /// Without a flag all that is granted is fetched. KVMEM_SHARE_READ_ONLY to ask for no more than reading,
    /// KVMEM_FETCH_READ_WRITE to be refused less than all; KVMEM_FETCH_BROKER_USER.
    pub flags: u64,
    /// Where the broker listens.
    pub path: *const c_char,
    /// What the share was published as.
    pub name: *const c_char,
    /// The token that goes with it; read during the call.
    pub token: *const kvmem_token,
    /// How long to wait, in nanoseconds; 0 for 10 seconds, KVMEM_TIMEOUT_FOREVER for ever.
    pub timeout_ns: u64,
    /// Whose process the broker must be, with KVMEM_FETCH_BROKER_USER; else 0, and it must be of the caller's
    /// own user.
    pub broker_user: u32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_fetch_options);

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_fetch_options_init(options: *mut kvmem_fetch_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Fetches a share from a broker.
///
/// @param options what to fetch, and from whom
/// @param share gets the share; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_PERMISSION_DENIED for a wrong user, name or token, which are not
///         told apart, a token that is used up, KVMEM_FETCH_READ_WRITE where less is granted, or a broker of
///         another user; KVMEM_STATUS_NOT_FOUND when nothing is at the path; KVMEM_STATUS_INVALID_ARGUMENT
///         when a file is there that is no socket; KVMEM_STATUS_PEER_LOST when the broker there has ended, or
///         ends meanwhile; KVMEM_STATUS_BUSY when this user has too many clients, bytes or file descriptors
///         under way; KVMEM_STATUS_TIMED_OUT; KVMEM_STATUS_CORRUPT; KVMEM_STATUS_OUT_OF_MEMORY also without
///         file descriptors; what kvmem_share_create_region returns where the broker cannot share what was
///         published, such as KVMEM_STATUS_UNSUPPORTED for read access to a share that the broker's process
///         has received itself
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
    let read_only = crate::ffi::share::create::KVMEM_SHARE_READ_ONLY;
    let known = read_only | KVMEM_FETCH_READ_WRITE | KVMEM_FETCH_BROKER_USER;
    check_flags("kvmem_fetch_options", options.flags, known)?;
    let access = match (options.flags & read_only != 0, options.flags & KVMEM_FETCH_READ_WRITE != 0) {
        (false, false) => None,
        (true, false) => Some(Access::Read),
        (false, true) => Some(Access::ReadWrite),
        (true, true) => {
            fail!(InvalidArgument, "KVMEM_SHARE_READ_ONLY and KVMEM_FETCH_READ_WRITE exclude each other")
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
