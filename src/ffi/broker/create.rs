// SPDX-License-Identifier: Apache-2.0
//! Starting brokers.

use std::ffi::c_char;
use std::time::Duration;

use crate::error::{Result, ensure};
use crate::ffi::broker::kvmem_broker;
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::Out;
use crate::ffi::common::options::{check_flags, init, options, read};
use crate::ffi::common::pointer::{items, null};
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::text;
use crate::share::broker::{Broker, BrokerConfig};

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
    /// User ids that may fetch; copied. NULL with num_users 0 for the broker's own user alone. Nobody else
    /// may, root included.
    pub users: *const u32,
    /// How many.
    pub num_users: usize,
    /// How long a client may take to ask, and again to read the answer, in nanoseconds; 0 for 10 seconds.
    pub client_timeout_ns: u64,
    /// The most bytes of shares on their way to one user at once; 0 for 256 MiB.
    pub max_bytes_per_user: u64,
    /// Permission bits of the socket; 0 for 0600. Other users than the broker's own need 0660 or 0666 to
    /// connect.
    pub mode: u32,
    /// The most clients at once; 0 for 256. Those that come meanwhile wait to be let in.
    pub max_clients: u32,
    /// The most clients at once of one user; 0 for an equal part of max_clients. One that was sent file
    /// descriptors is there until it has read them.
    pub max_clients_per_user: u32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_broker_options);

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_broker_options_init(options: *mut kvmem_broker_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Starts a broker.
///
/// @param options where, and for whom
/// @param broker gets the broker; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_ALREADY_EXISTS when somebody listens at the path, or something that
///         is no socket is there; KVMEM_STATUS_NOT_FOUND without its folder; KVMEM_STATUS_PERMISSION_DENIED;
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

/// # Safety
/// The path must be NULL or NUL-terminated, the users readable.
unsafe fn config(options: &kvmem_broker_options) -> Result<BrokerConfig> {
    check_flags("kvmem_broker_options", options.flags, 0)?;
    ensure!(options.reserved == 0, InvalidArgument, "reserved is {}, it must be 0", options.reserved);
    // SAFETY: the caller's promise.
    let (path, users) =
        unsafe { (text::path(options.path), items(options.users, options.num_users, "users")?) };
    let Some(path) = path else { return Err(null("path")) };
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
