// SPDX-License-Identifier: Apache-2.0
//! Queries of backends for files, objects and memory.

use std::collections::BTreeMap;

use crate::base::error::{Error, Status};
use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Handle, Out, borrow, destroy, opaque, peek};
use crate::ffi::common::pointer::out;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::nixl::agent::kvmem_parameter;
use crate::ffi::nixl::descriptors::{kvmem_nixl_descriptor, list};
use crate::ffi::nixl::options::{kvmem_nixl_options, timed_options};
use crate::ffi::nixl::plugins::Parameters;
use crate::nixl::Command;

/// Results of a backend. They never change, so any threads may read them at the same time.
pub struct kvmem_query {
    handle: Handle<Vec<Option<Parameters>>>,
}
opaque!(kvmem_query, Vec<Option<Parameters>>, "query");

/// The result for one descriptor. The pointer is valid as long as the kvmem_query.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_query_result {
    /// Properties of the file, object or memory. The backend defines their names.
    pub parameters: *const kvmem_parameter,
    /// Number of properties.
    pub parameter_count: usize,
    /// 1 if it exists, otherwise 0.
    pub exists: u32,
    /// 0.
    pub reserved: u32,
}

/// Queries a backend for the existence and the properties of files, objects or memory.
///
/// @param descriptors descriptors of one memory type; "POSIX" needs the path of each file in metadata, "OBJ"
///        the key of each object
/// @param count number of descriptors, at least 1
/// @param options backends: one, timeout_ns; NULL if only one backend accepts the memory type
/// @param query receives a result per descriptor, in their order
/// @return KVMEM_STATUS_INVALID_ARGUMENT: several backends accept the memory type, and none is given; or
///           count is 0, or a file has no metadata
///         KVMEM_STATUS_UNSUPPORTED: the given backend does not accept the memory type
///         KVMEM_STATUS_TIMED_OUT: NIXL has not returned 100 ms after timeout_ns
///         KVMEM_STATUS_NIXL: no backend accepts the memory type, or the backend cannot be queried
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_query(
    agent: *mut kvmem_agent,
    descriptors: *const kvmem_nixl_descriptor,
    count: usize,
    options: *const kvmem_nixl_options,
    query: *mut *mut kvmem_query,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let query = Out::new(query, "query")?;
            let agent = &borrow(scope, agent)?.agent;
            let list = list(scope, descriptors, count, "descriptors")?;
            let (options, deadline) = timed_options(options)?;
            let deadline = deadline.or_else(|| agent.call_deadline());
            let results = agent.call_until(deadline, |reply| Command::Query(list, options, reply))?;
            let converted =
                |result: Option<BTreeMap<String, String>>| result.map(|map| Parameters::new(&map));
            query.set(results.into_iter().map(converted).collect());
            Ok(())
        })
    }
}

/// Returns the number of results.
///
/// @param query results; NULL returns 0
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_query_count(query: *const kvmem_query) -> usize {
    // SAFETY: NULL or live, by contract.
    unsafe { peek(query) }.map_or(0, Vec::len)
}

/// Returns a result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_query_get(
    query: *const kvmem_query,
    index: usize,
    result: *mut kvmem_query_result,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let results = borrow(scope, query)?;
            let past = || {
                let message = format!("index is {index}, and there are {} results", results.len());
                Error::new(Status::OutOfRange, message)
            };
            let found = results.get(index).ok_or_else(past)?;
            let (parameters, parameter_count) = found.as_ref().map_or((std::ptr::null(), 0), Parameters::raw);
            let exists = found.is_some().into();
            let value = kvmem_query_result { parameters, parameter_count, exists, reserved: 0 };
            out(result, "result")?.write(value);
            Ok(())
        })
    }
}

/// Destroys results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_query_destroy(query: *mut kvmem_query) {
    // SAFETY: by contract.
    unsafe { destroy(query) };
}
