// SPDX-License-Identifier: Apache-2.0
//! Options of calls on raw descriptors.

use std::collections::HashSet;
use std::ffi::{c_char, c_void};

use crate::base::{Result, ensure, lists};
use crate::ffi::common::{Scope, borrow_nullable, check_flags, items, options, read_nullable, text, timeout};
use crate::ffi::queue::kvmem_queue;
use crate::nixl::CallOptions;
use crate::nixl::service_mail::ensure_sendable;
use crate::raw::RunOptions;
use crate::transfer::Reports;

/// Send the notification, also if it has no bytes.
pub const KVMEM_NIXL_NOTIFY: u64 = 1;
/// NIXL does not merge neighbouring descriptors.
pub const KVMEM_NIXL_SKIP_MERGE: u64 = 2;
/// As KVMEM_TRANSFER_REPORT_RELEASE, for runs of a request.
pub const KVMEM_NIXL_REPORT_RELEASE: u64 = 4;

const FLAGS: u64 = KVMEM_NIXL_NOTIFY | KVMEM_NIXL_SKIP_MERGE | KVMEM_NIXL_REPORT_RELEASE;

/// Options of functions that take raw descriptors. A function fails with KVMEM_STATUS_INVALID_ARGUMENT for a
/// field that it does not use; its comment lists the fields that it uses.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_nixl_options {
    /// sizeof(kvmem_nixl_options)
    pub struct_size: usize,
    /// KVMEM_NIXL_* flags.
    pub flags: u64,
    /// Plugins of the backends to use, each once, in order of preference; NULL with count 0 for all.
    pub backends: *const *const c_char,
    /// Number of backends.
    pub backend_count: usize,
    /// Bytes that the backend understands; NULL with size 0 for none.
    pub custom_parameter: *const c_void,
    /// Number of those bytes.
    pub custom_parameter_size: usize,
    /// Receives a completion for each run of a request; may be NULL.
    pub queue: *mut kvmem_queue,
    /// user_data of the completions.
    pub user_data: u64,
    /// Nanoseconds that a run of a request may take; 0 or KVMEM_TIMEOUT_FOREVER for no limit. A
    /// run that takes longer ends with KVMEM_STATUS_TIMED_OUT, also if a call of NIXL does not return, and
    /// NIXL may use its memory until the request can be posted again. Runs with a limit are posted by the
    /// thread of the agent, which has to wake up first.
    pub run_timeout_ns: u64,
    /// Bytes that the peer gets at the end; NULL with size 0 for none.
    pub notification: *const c_void,
    /// Number of those bytes.
    pub notification_size: usize,
}
options!(kvmem_nixl_options);

/// Reads the options of a function that has nothing to do with requests.
///
/// # Safety
/// Every pointer, also in the options, must be NULL or valid.
pub(in crate::ffi) unsafe fn call_options(options: *const kvmem_nixl_options) -> Result<CallOptions> {
    let Some(options) = (read_nullable(options))? else { return Ok(Default::default()) };
    check_flags("kvmem_nixl_options", options.flags, FLAGS)?;
    for (field, is_set) in [
        // Before the flags: kvmem.hpp sets one with each notification.
        ("notification", !options.notification.is_null() || options.notification_size != 0),
        ("flags", options.flags != 0),
        ("queue", !options.queue.is_null()),
        ("user_data", options.user_data != 0),
        ("run_timeout_ns", options.run_timeout_ns != 0),
    ] {
        ensure!(
            !is_set,
            InvalidArgument,
            "{field} of kvmem_nixl_options is set, and only requests use it; set it to 0"
        );
    }
    converted(&options)
}

/// Reads the options of a request.
///
/// # Safety
/// As for [`call_options`].
pub(in crate::ffi) unsafe fn request_options(
    scope: &Scope<'_>,
    options: *const kvmem_nixl_options,
) -> Result<(CallOptions, RunOptions)> {
    let Some(options) = (read_nullable(options))? else { return Ok(Default::default()) };
    check_flags("kvmem_nixl_options", options.flags, FLAGS)?;
    let (given, queue) = (converted(&options)?, borrow_nullable(scope, options.queue));
    let queue = queue.map_err(|error| error.context("queue"))?.map(|open| open.0.clone());
    let release = options.flags & KVMEM_NIXL_REPORT_RELEASE != 0;
    ensure!(
        queue.is_some() || !release,
        InvalidArgument,
        "KVMEM_NIXL_REPORT_RELEASE is set, and queue is NULL; set the queue that gets the completions"
    );
    let reports = Reports { queue, release, ..Reports::default() };
    let limit = timeout(options.run_timeout_ns).filter(|limit| !limit.is_zero());
    Ok((given, RunOptions { reports, user_data: options.user_data, limit }))
}

/// # Safety
/// As for [`call_options`].
unsafe fn converted(options: &kvmem_nixl_options) -> Result<CallOptions> {
    let (mut backends, mut seen) = (Vec::new(), HashSet::new());
    for name in items(options.backends, options.backend_count, ("backends", "backend_count"))? {
        let name = text::required(*name, "a name in backends")?;
        ensure!(seen.insert(name), InvalidArgument, "backends has '{name}' twice");
        lists::push(&mut backends, name.to_string())?;
    }
    let notification = text::bytes(options.notification, options.notification_size, "notification")?;
    ensure_sendable(notification)?;
    let notifies = options.flags & KVMEM_NIXL_NOTIFY != 0 || !notification.is_empty();
    let parameter = text::bytes(options.custom_parameter, options.custom_parameter_size, "custom_parameter")?;
    Ok(CallOptions {
        backends,
        notification: notifies.then(|| lists::copied(notification)).transpose()?,
        custom_parameter: (!parameter.is_empty()).then(|| lists::copied(parameter)).transpose()?,
        skips_merge: options.flags & KVMEM_NIXL_SKIP_MERGE != 0,
    })
}
