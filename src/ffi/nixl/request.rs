// SPDX-License-Identifier: Apache-2.0
//! Requests on raw descriptors.

use std::ffi::c_char;

use crate::base::{Result, ensure};
use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::{
    Handle, KVMEM_STATUS_IN_PROGRESS, KVMEM_STATUS_OK, Out, blob, borrow, call, call_new, call_on, call_out,
    call_unless, destroy, items, kvmem_blob, kvmem_error, kvmem_status, not_one_of, opaque, text, timeout,
};
use crate::ffi::nixl::descriptors::{kvmem_nixl_descriptor, list};
use crate::ffi::nixl::options::{kvmem_nixl_options, request_options};
use crate::ffi::nixl::prepared::kvmem_prepared;
use crate::ffi::nixl::telemetry::nanoseconds;
use crate::nixl::Operation;
use crate::nixl::service_mail::ensure_sendable;
use crate::raw::Request;

/// A request: one NIXL transfer between raw descriptors. It can be posted repeatedly, and keeps its agent,
/// prepared lists and the regions of its descriptors alive. Other memory must stay valid until its end.
pub struct kvmem_request {
    handle: Handle<Request>,
}
opaque!(kvmem_request, Request, "request");

/// From the remote side to the local side.
pub const KVMEM_REQUEST_READ: u32 = 1;
/// From the local side to the remote side.
pub const KVMEM_REQUEST_WRITE: u32 = 2;

/// Creates a request on two arrays of descriptors, which correspond by index.
///
/// @param local memory of the agent
/// @param owner name of the remote side's agent: a peer that is loaded, or this agent for files and objects
/// @param remote memory of the owner, in descriptors of the same sizes
/// @param options all fields; NULL for the defaults
/// @return KVMEM_STATUS_INVALID_ARGUMENT: count is 0, or sizes differ
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_request_create(
    agent: *mut kvmem_agent,
    operation: u32,
    local: *const kvmem_nixl_descriptor,
    owner: *const c_char,
    remote: *const kvmem_nixl_descriptor,
    count: usize,
    options: *const kvmem_nixl_options,
    request: *mut *mut kvmem_request,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (request, "request"), |scope| {
        let agent = &borrow(scope, agent)?.agent;
        let operation = operation_of(operation)?;
        let local = list(scope, local, count, "local")?;
        let owner = text::required(owner, "owner")?;
        let remote = list(scope, remote, count, "remote")?;
        let (options, of_runs) = request_options(scope, options)?;
        Request::create(agent, operation, &local, (owner, &remote), options, of_runs)
    })
}

/// Creates a request on descriptors of two prepared lists. NIXL merges descriptors that are neighbours on
/// both sides, unless KVMEM_NIXL_SKIP_MERGE is set.
///
/// @param local a list that was prepared for the local side
/// @param local_indices indices in that list
/// @param remote a list that was prepared for the remote side, by the same agent
/// @param remote_indices indices in that list, which correspond to those of the local side by position
/// @param count number of indices of each side, at least 1
/// @param options all fields; NULL for the defaults
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the lists are of different agents or wrong sides, or sizes differ
///         KVMEM_STATUS_NOT_FOUND: no backend has both sides
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_request_make(
    operation: u32,
    local: *const kvmem_prepared,
    local_indices: *const u32,
    remote: *const kvmem_prepared,
    remote_indices: *const u32,
    count: usize,
    options: *const kvmem_nixl_options,
    request: *mut *mut kvmem_request,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let request = Out::new(request, "request")?;
        let operation = operation_of(operation)?;
        let local = borrow(scope, local).map_err(|error| error.context("local"))?;
        let remote = borrow(scope, remote).map_err(|error| error.context("remote"))?;
        ensure!(count > 0, InvalidArgument, "count is 0; a request has at least one pair of indices");
        let local = (local, items(local_indices, count, ("local_indices", "count"))?);
        let remote = (remote, items(remote_indices, count, ("remote_indices", "count"))?);
        let (options, of_runs) = request_options(scope, options)?;
        request.set(Request::make(operation, local, remote, options, of_runs)?);
        Ok(())
    })
}

/// Starts a run of a request. After the run has ended, the request can be posted again.
///
/// @param notification bytes for the peer, for this run; NULL with size 0 for those of the request's options
/// @return KVMEM_STATUS_OK: the run has started. Poll, wait and the queue report its end
///         KVMEM_STATUS_INVALID_ARGUMENT: the notification begins with KVMEMSRV, as requests of kvmem do
///         KVMEM_STATUS_BUSY: the request is in flight, or NIXL still executes a run that has timed out; or a
///           run of another request or transfer that has ended may still write to the same memory
///         KVMEM_STATUS_INVALID_STATE: a run has failed; NIXL cannot run the request again
///         KVMEM_STATUS_STALE: the metadata of the peer was invalidated
///
/// Notes: NIXL copies host memory of a peer within its call. A request to a peer, of at most 1 MiB in at most
/// 128 descriptors, is posted by the calling thread, if no other thread uses the agent; others by its thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_request_post(
    request: *mut kvmem_request,
    notification: *const std::ffi::c_void,
    size: usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_on(request, error, |request| {
        let message = text::bytes(notification, size, "notification")?;
        ensure_sendable(message)?;
        request.post(message)
    })
}

/// Returns the state of the last run of a request. Never waits.
///
/// @return KVMEM_STATUS_OK: the run has succeeded
///         KVMEM_STATUS_IN_PROGRESS: the run is in flight
///         KVMEM_STATUS_INVALID_STATE: the request was not posted
///         KVMEM_STATUS_TIMED_OUT: the run has ended, because it took longer than run_timeout_ns
///         KVMEM_STATUS_PEER_LOST, KVMEM_STATUS_STALE, KVMEM_STATUS_UNSUPPORTED, KVMEM_STATUS_NOT_FOUND,
///         KVMEM_STATUS_NIXL, KVMEM_STATUS_PANIC: the run has failed
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_request_poll(
    request: *const kvmem_request,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_unless(request, error, Request::has_succeeded, |request| {
        Ok(match request.poll()? {
            Some(()) => KVMEM_STATUS_OK,
            None => KVMEM_STATUS_IN_PROGRESS,
        })
    })
}

/// Waits for the end of the last run of a request.
///
/// @return KVMEM_STATUS_OK: the run has succeeded
///         KVMEM_STATUS_TIMED_OUT: the run is still in flight, or has ended because it took longer than
///           run_timeout_ns; kvmem_request_poll distinguishes them
///         KVMEM_STATUS_INVALID_STATE: the request was not posted
///         KVMEM_STATUS_PEER_LOST, KVMEM_STATUS_STALE, KVMEM_STATUS_UNSUPPORTED, KVMEM_STATUS_NOT_FOUND,
///         KVMEM_STATUS_NIXL, KVMEM_STATUS_PANIC: the run has failed
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_request_wait(
    request: *const kvmem_request,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_unless(request, error, Request::has_succeeded, |request| {
        request.wait(timeout(timeout_ns)).map(|()| KVMEM_STATUS_OK)
    })
}

/// Returns the plugin of the backend that NIXL chose for a request.
///
/// @return KVMEM_STATUS_STALE: the request was released, because it failed or its peer was invalidated
///         KVMEM_STATUS_NOT_FOUND
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_request_get_backend(
    request: *const kvmem_request,
    plugin: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (plugin, "plugin"), |scope| {
        Ok(blob::value(borrow(scope, request)?.backend()?.into_bytes()))
    })
}

/// NIXL's estimate of the duration of a request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_request_cost {
    /// Estimated duration in nanoseconds.
    pub duration_ns: u64,
    /// Margin of error of duration_ns, in nanoseconds.
    pub margin_ns: u64,
    /// 0 if the backend has calculated it; other values are NIXL's.
    pub method: u32,
    /// 0.
    pub reserved: u32,
}

/// Estimates how long a request takes.
///
/// @return KVMEM_STATUS_STALE: the request was released, because it failed or its peer was invalidated
///         KVMEM_STATUS_NIXL, KVMEM_STATUS_NOT_FOUND: the backend has no estimate
///
/// Notes: NIXL estimates in whole microseconds. UCX returns 0 for host memory of a peer on this machine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_request_estimate(
    request: *const kvmem_request,
    cost: *mut kvmem_request_cost,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (cost, "cost"), |scope| {
        let estimate = borrow(scope, request)?.estimate()?;
        Ok(kvmem_request_cost {
            duration_ns: nanoseconds(estimate.duration),
            margin_ns: nanoseconds(estimate.margin),
            method: estimate.method,
            reserved: 0,
        })
    })
}

/// NIXL's measurements of the last run of a request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_request_telemetry {
    /// When the run was posted: nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Duration of the call that posted it, in nanoseconds.
    pub post_ns: u64,
    /// Duration of the transfer, in nanoseconds.
    pub duration_ns: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Number of descriptors, after NIXL has merged neighbours.
    pub descriptors: u64,
}

/// Returns NIXL's measurements of the last run of a request.
///
/// @return KVMEM_STATUS_INVALID_STATE: the request was not posted, or KVMEM_AGENT_TELEMETRY is not set
///         KVMEM_STATUS_BUSY: the run is in flight
///         KVMEM_STATUS_STALE: the request was released, because it failed or its peer was invalidated
///         KVMEM_STATUS_NOT_FOUND
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_request_get_telemetry(
    request: *const kvmem_request,
    telemetry: *mut kvmem_request_telemetry,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (telemetry, "telemetry"), |scope| {
        let measured = borrow(scope, request)?.telemetry()?;
        Ok(kvmem_request_telemetry {
            start_ns: nanoseconds(measured.start),
            post_ns: nanoseconds(measured.post),
            duration_ns: nanoseconds(measured.transfer),
            bytes: measured.bytes,
            descriptors: measured.descriptors,
        })
    })
}

/// Destroys a request. A run in flight continues, and its end is reported to the queue: NIXL cannot cancel a
/// run. The memory must stay valid until then.
///
/// A completion can be in the queue before kvmem_request_post has returned in another thread. That call still
/// uses the request: destroy it after both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_request_destroy(request: *mut kvmem_request) {
    destroy(request);
}

fn operation_of(value: u32) -> Result<Operation> {
    match value {
        KVMEM_REQUEST_READ => Ok(Operation::Read),
        KVMEM_REQUEST_WRITE => Ok(Operation::Write),
        other => Err(not_one_of("operation", other, "KVMEM_REQUEST_*")),
    }
}
