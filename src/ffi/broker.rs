// SPDX-License-Identifier: Apache-2.0
//! Brokers.

use std::ffi::c_char;
use std::sync::Arc;
use std::time::Duration;

use super::error::kvmem_error;
use super::guard::call;
use super::handle::{Handle, Out, borrow, destroy, opaque, out};
use super::options::{check_flags, ensure_given, init, options, read, read_nullable};
use super::share::kvmem_share;
use super::share_socket::deadline;
use super::status::kvmem_status;
use super::text;
use crate::error::{Result, ensure, fail};
use crate::region::Access;
use crate::share::broker::{Broker, BrokerConfig, Token, TokenTerms};
use crate::share::client::{Fetch, fetch};
use crate::share::{Published, Share};

/// Shares published by name at a socket path. One thread serves all clients and never waits for one of them; a client
/// is heard if its user is allowed, asks in time, and shows a token.
///
/// Threads: all functions on one broker may run at once, except kvmem_broker_destroy.
pub struct kvmem_broker {
    handle: Handle<Broker>,
}
opaque!(kvmem_broker, Broker, "broker");

/// How a broker runs. All zeroes but struct_size and path serves the broker's own user.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_broker_options {
    /// sizeof(kvmem_broker_options)
    pub struct_size: usize,
    /// Must be 0.
    pub flags: u64,
    /// Where its socket lies; at most 107 bytes. A socket there that nobody listens at is replaced.
    pub path: *const c_char,
    /// User ids that may fetch; copied. NULL with num_users 0 for the broker's own user alone. Nobody else may, root
    /// included.
    pub users: *const u32,
    /// How many.
    pub num_users: usize,
    /// How long a client may take to ask, and again to read the answer, in nanoseconds; 0 for 10 seconds.
    pub client_timeout_ns: u64,
    /// The most bytes of shares on their way to one user at once; 0 for 256 MiB.
    pub max_bytes_per_user: u64,
    /// Permission bits of the socket; 0 for 0600. Other users than the broker's own need 0660 or 0666 to connect.
    pub mode: u32,
    /// The most clients at once; 0 for 256. Those that come meanwhile wait to be let in.
    pub max_clients: u32,
    /// The most clients at once of one user; 0 for an equal part of max_clients. One that was sent file descriptors is
    /// there until it has read them.
    pub max_clients_per_user: u32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_broker_options);

/// What a token is good for. All zeroes but struct_size: all that the share grants, for as long as it is published.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_publish_options {
    /// sizeof(kvmem_publish_options)
    pub struct_size: usize,
    /// KVMEM_SHARE_READ_ONLY: its bearer may only read, whatever the share grants. Or 0.
    pub flags: u64,
    /// How often it can be used; 0 for any number. A token that is used up is refused like a wrong one.
    pub max_uses: u64,
    /// For how long, in nanoseconds; 0 for as long as the name is published.
    pub lifetime_ns: u64,
}
options!(kvmem_publish_options);

/// 256 bits that nobody can guess: whoever has them may fetch. A secret, to be handed over as one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_token {
    /// The bits.
    pub bytes: [u8; 32],
}

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
    /// Whose process the broker must be, with KVMEM_FETCH_BROKER_USER; else 0, and it must be of the caller's own user.
    pub broker_user: u32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_fetch_options);

/// The broker is a process of `broker_user`.
pub const KVMEM_FETCH_BROKER_USER: u64 = 2;
/// Ask for reading and writing: KVMEM_STATUS_PERMISSION_DENIED where less is granted.
pub const KVMEM_FETCH_READ_WRITE: u64 = 4;

/// What a broker has done.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_broker_info {
    /// Names published now.
    pub publications: u64,
    /// Clients connected now.
    pub clients: u64,
    /// Shares handed out.
    pub granted: u64,
    /// Clients that were told no.
    pub refused: u64,
}

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_broker_options_init(options: *mut kvmem_broker_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_publish_options_init(options: *mut kvmem_publish_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_fetch_options_init(options: *mut kvmem_fetch_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Starts a broker.
///
/// @param options where, and for whom
/// @param broker gets the broker; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_ALREADY_EXISTS when somebody listens at the path, or something that is no
///         socket is there; KVMEM_STATUS_NOT_FOUND without its folder; KVMEM_STATUS_PERMISSION_DENIED;
///         KVMEM_STATUS_INVALID_ARGUMENT, also for users that the mode keeps out; KVMEM_STATUS_OUT_OF_MEMORY
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_broker_create(
    options: *const kvmem_broker_options,
    broker: *mut *mut kvmem_broker,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (broker, options) = unsafe { (Out::new(broker)?, read(options)?) };
        // SAFETY: by contract.
        broker.set(Broker::start(unsafe { config(&options) }?)?);
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Offers a share under a name. While it is published the share is held, also when its handle is destroyed.
///
/// @param broker a broker
/// @param name a name that is free: 1 to 255 bytes of UTF-8
/// @param share what is offered
/// @param options what the token is good for; NULL for all that the share grants
/// @param token gets the token by which it is fetched
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_ALREADY_EXISTS for a name in use; KVMEM_STATUS_INVALID_ARGUMENT
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_broker_publish(
    broker: *mut kvmem_broker,
    name: *const c_char,
    share: *const kvmem_share,
    options: *const kvmem_publish_options,
    token: *mut kvmem_token,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let (token, options) = (out(token, "token")?, read_nullable(options)?);
            let (name, share) = (text::required(name, "name")?, borrow(scope, share)?);
            let terms = terms(options, share.manifest().access)?;
            let published = Arc::new(Published::new(share));
            let made = borrow(scope, broker)?.publish(name, published, &terms)?;
            token.write(kvmem_token { bytes: made.0 });
            Ok(())
        })
    }
}

/// Makes another token for what is published.
///
/// @param broker a broker
/// @param name what it is published as
/// @param options what the token is good for; NULL for everything
/// @param token gets the token
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NOT_FOUND when the name is not published; KVMEM_STATUS_INVALID_ARGUMENT
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_broker_grant(
    broker: *mut kvmem_broker,
    name: *const c_char,
    options: *const kvmem_publish_options,
    token: *mut kvmem_token,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let (token, options) = (out(token, "token")?, read_nullable(options)?);
            let name = text::required(name, "name")?;
            let made = borrow(scope, broker)?.grant(name, &terms(options, Access::ReadWrite)?)?;
            token.write(kvmem_token { bytes: made.0 });
            Ok(())
        })
    }
}

/// Takes an offer back, and all its tokens with it. Who is being sent it just now still gets it, and what was opened
/// stays open.
///
/// @param broker a broker
/// @param name what it is published as
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NOT_FOUND when the name is not published
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_broker_unpublish(
    broker: *mut kvmem_broker,
    name: *const c_char,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, broker)?.unpublish(text::required(name, "name")?)) }
}

/// Tells what a broker has done.
///
/// @param broker a broker
/// @param info gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_broker_get_info(
    broker: *const kvmem_broker,
    info: *mut kvmem_broker_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let info = out(info, "info")?;
            let now = borrow(scope, broker)?.info();
            info.write(kvmem_broker_info {
                publications: now.publications,
                clients: now.clients,
                granted: now.granted,
                refused: now.refused,
            });
            Ok(())
        })
    }
}

/// Destroys a broker: ends its thread, closes and removes its socket, and releases its shares.
///
/// @param broker a broker that no other call uses; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_broker_destroy(broker: *mut kvmem_broker) {
    // SAFETY: by contract.
    unsafe { destroy(broker) };
}

/// Fetches a share from a broker.
///
/// @param options what to fetch, and from whom
/// @param share gets the share; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_PERMISSION_DENIED for a wrong user, name or token, which are not told apart, a
///         token that is used up, KVMEM_FETCH_READ_WRITE where less is granted, or a broker of another user; KVMEM_STATUS_NOT_FOUND when nothing
///         is at the path; KVMEM_STATUS_INVALID_ARGUMENT when a file is there that is no socket;
///         KVMEM_STATUS_PEER_LOST when the broker there has ended, or ends meanwhile;
///         KVMEM_STATUS_BUSY when this user has too many clients, bytes or file descriptors under way;
///         KVMEM_STATUS_TIMED_OUT; KVMEM_STATUS_CORRUPT; KVMEM_STATUS_OUT_OF_MEMORY also without file descriptors;
///         what kvmem_share_create_region returns where the broker cannot share what was published, such as
///         KVMEM_STATUS_UNSUPPORTED for read access to a share that the broker's process has received itself
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
/// The path must be NULL or NUL-terminated, the users readable.
unsafe fn config(options: &kvmem_broker_options) -> Result<BrokerConfig> {
    check_flags("kvmem_broker_options", options.flags, 0)?;
    ensure!(options.reserved == 0, InvalidArgument, "reserved is {}, it must be 0", options.reserved);
    // SAFETY: the caller's promise.
    let (path, users) =
        unsafe { (text::path(options.path), text::items(options.users, options.num_users, "users")?) };
    let Some(path) = path else { return Err(super::handle::null("path")) };
    let defaults = BrokerConfig::at(path);
    let or = |given: u64, default: u64| if given == 0 { default } else { given };
    Ok(BrokerConfig {
        mode: if options.mode == 0 { defaults.mode } else { options.mode },
        users: users.to_vec(),
        max_clients: or(options.max_clients.into(), defaults.max_clients as u64) as usize,
        max_clients_per_user: options.max_clients_per_user as usize,
        max_bytes_per_user: or(options.max_bytes_per_user, defaults.max_bytes_per_user),
        client_timeout: match options.client_timeout_ns {
            0 => defaults.client_timeout,
            nanoseconds => Duration::from_nanos(nanoseconds),
        },
        ..defaults
    })
}

fn terms(options: Option<kvmem_publish_options>, granted: Access) -> Result<TokenTerms> {
    let Some(options) = options else {
        return Ok(TokenTerms { access: granted, max_uses: 0, lifetime: None });
    };
    check_flags("kvmem_publish_options", options.flags, super::share::KVMEM_SHARE_READ_ONLY)?;
    Ok(TokenTerms {
        access: if options.flags == 0 { granted } else { Access::Read },
        max_uses: options.max_uses,
        lifetime: (options.lifetime_ns > 0).then(|| Duration::from_nanos(options.lifetime_ns)),
    })
}

/// # Safety
/// The strings must be NULL or NUL-terminated, the token NULL or readable.
unsafe fn wanted(options: &kvmem_fetch_options) -> Result<Fetch> {
    let read_only = super::share::KVMEM_SHARE_READ_ONLY;
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
    let null = super::handle::null;
    Ok(Fetch {
        path: path.ok_or_else(|| null("path"))?.to_path_buf(),
        name: name.to_string(),
        token: Token(token.ok_or_else(|| null("token"))?.bytes),
        access,
        broker_user: names_user.then_some(options.broker_user),
    })
}
