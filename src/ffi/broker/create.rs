// SPDX-License-Identifier: Apache-2.0
//! Creating brokers.

use std::ffi::c_char;
use std::time::Duration;

use crate::base::{Result, lists};
use crate::ffi::broker::kvmem_broker;
use crate::ffi::common::{
    call_new, check_flags, check_reserved, items, kvmem_error, kvmem_status, null, options, read, text,
};
use crate::share::broker::{Broker, BrokerConfig};

/// Options of kvmem_broker_create.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_broker_options {
    /// sizeof(kvmem_broker_options)
    pub struct_size: usize,
    /// Path of the socket, at most 107 bytes. A relative path begins in the present working directory, also
    /// after that has changed. A socket of the same user on which no process listens is replaced.
    pub path: *const c_char,
    /// User ids that may fetch, others may not, even root; copied. NULL with num_users 0: the broker's user.
    pub users: *const u32,
    /// Number of user ids.
    pub num_users: usize,
    /// Permission bits of the socket; 0 for 0600. Other users need 0660 or 0666 to connect.
    pub mode: u32,
    /// Maximum number of clients at once; 0 for 256. Others wait in the kernel.
    pub max_clients: u32,
    /// Maximum number of clients of one user at once; 0 for max_clients divided by the number of users. A
    /// client that was sent file descriptors counts until it has read them, or until its time to do so ends.
    pub max_clients_per_user: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Maximum bytes of shares in transit to one user, which a single share may exceed; 0 for 256 MiB.
    pub max_bytes_per_user: u64,
    /// Nanoseconds to send a request, and again to read the reply; 0 for 10 s.
    pub client_timeout_ns: u64,
    /// Must be 0.
    pub flags: u64,
}
options!(kvmem_broker_options);

/// Creates a broker. It listens at its path when the call returns.
///
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the path is NULL, empty or too long; mode has other bits than 0777;
///           or mode does not let all users connect
///         KVMEM_STATUS_UNSUPPORTED: the number of a user that may fetch also stands for all users that have
///           no number in this user namespace
///         KVMEM_STATUS_ALREADY_EXISTS: a process listens there, or it is a file or another user's socket
///         KVMEM_STATUS_NOT_FOUND: the directory of the path does not exist
///         KVMEM_STATUS_PERMISSION_DENIED: this process may not create a socket in the directory
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_broker_create(
    options: *const kvmem_broker_options,
    broker: *mut *mut kvmem_broker,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (broker, "broker"), |_| {
        let options = read(options)?;
        Broker::start(config(&options)?)
    })
}

/// # Safety
/// The path must be NULL or NUL-terminated, the users readable.
unsafe fn config(options: &kvmem_broker_options) -> Result<BrokerConfig> {
    check_flags("kvmem_broker_options", options.flags, 0)?;
    check_reserved("kvmem_broker_options", options.reserved)?;
    // SAFETY: the caller's promise.
    let (path, users) = unsafe {
        (text::path(options.path), items(options.users, options.num_users, ("users", "num_users"))?)
    };
    let Some(path) = path else { return Err(null("path")) };
    let defaults = BrokerConfig::at(path);
    let or = |given: u64, default: u64| if given == 0 { default } else { given };
    Ok(BrokerConfig {
        mode: if options.mode == 0 { defaults.mode } else { options.mode },
        users: lists::copied(users)?,
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
