// SPDX-License-Identifier: Apache-2.0
//! Registered descriptors.

use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::{Handle, borrow, call, call_new, destroy, kvmem_error, kvmem_status, opaque};
use crate::ffi::nixl::descriptors::{kvmem_nixl_descriptor, list};
use crate::ffi::nixl::options::{call_options, kvmem_nixl_options};
use crate::raw::Segments;

/// Descriptors that an agent has registered: memory that is in no region, objects and blocks. It keeps the
/// agent alive, and the regions of its descriptors.
pub struct kvmem_segments {
    handle: Handle<Segments>,
}
opaque!(kvmem_segments, Segments, "segments");

/// Registers descriptors with an agent. The memory must stay valid until they are deregistered.
///
/// @param options backends, custom_parameter; NULL for all backends that accept the memory type
/// @return KVMEM_STATUS_OK: all given backends have accepted the descriptors; without backends at least one
///         KVMEM_STATUS_ALREADY_EXISTS: a descriptor is registered with the agent, or is listed twice
///         KVMEM_STATUS_UNSUPPORTED: a given backend does not accept the memory type
///         KVMEM_STATUS_NIXL: no backend has accepted the descriptors, or a given backend has not; no backend
///           has them now
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_segments_register(
    agent: *mut kvmem_agent,
    descriptors: *const kvmem_nixl_descriptor,
    count: usize,
    options: *const kvmem_nixl_options,
    segments: *mut *mut kvmem_segments,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (segments, "segments"), |scope| {
        let agent = &borrow(scope, agent)?.agent;
        let list = list(scope, descriptors, count, "descriptors")?;
        Segments::register(agent, list, call_options(options)?)
    })
}

/// Deregisters descriptors, and reports whether that failed. kvmem_segments_destroy deregisters them too, but
/// does not report. Requests and prepared lists of the agent that use the memory become stale: the next run
/// of such a request ends with KVMEM_STATUS_STALE, and kvmem_request_make fails with it.
///
/// @param segments registered descriptors; the handle stays valid and must be destroyed
/// @return KVMEM_STATUS_BUSY: a request on the descriptors is in flight
///         KVMEM_STATUS_INVALID_STATE: the descriptors were already deregistered
///         KVMEM_STATUS_TIMED_OUT, KVMEM_STATUS_NIXL: NIXL has not returned within call_timeout_ns of the
///           agent, or has failed; the memory may still be in use and must not be freed
///         KVMEM_STATUS_NIXL: NIXL failed
///         After the last two the memory may still be in use and must not be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_segments_deregister(
    segments: *mut kvmem_segments,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, segments)?.deregister())
}

/// Destroys registered descriptors, and deregisters them. If a request on them is in flight, the agent
/// deregisters them when it has ended. Wait for requests before this call. If NIXL does not return within
/// call_timeout_ns of the agent, they stay registered: kvmem_segments_deregister reports that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_segments_destroy(segments: *mut kvmem_segments) {
    destroy(segments);
}
