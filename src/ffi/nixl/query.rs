// SPDX-License-Identifier: Apache-2.0
//! Queries of backends for files, objects and memory.

use std::collections::BTreeMap;

use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::{Array, borrow, call_new, deadline, destroy, item_list, kvmem_error, kvmem_status};
use crate::ffi::nixl::agent::kvmem_parameter;
use crate::ffi::nixl::descriptors::{kvmem_nixl_descriptor, list};
use crate::ffi::nixl::options::{call_options, kvmem_nixl_options};
use crate::ffi::nixl::plugins::{Parameters, parameters};
use crate::nixl::Command;

/// Results, each with its properties.
pub type Results = Array<kvmem_query_result, Option<Parameters>>;

/// The result for one descriptor.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_query_result {
    /// Properties of the file, object or memory, named by the backend.
    pub parameters: *const kvmem_parameter,
    /// Number of properties.
    pub parameter_count: usize,
    /// 1 if it exists, otherwise 0.
    pub exists: u32,
    /// 0.
    pub reserved: u32,
}

/// Results of a backend. The caller destroys them.
#[repr(C)]
pub struct kvmem_query {
    /// One per descriptor, in their order; NULL if there are none.
    pub items: *const kvmem_query_result,
    /// Their number.
    pub count: usize,
}
item_list!(kvmem_query, Results, "query");

/// Queries a backend for the existence and the properties of files, objects or memory.
///
/// @param descriptors for "POSIX" with the path of each file in metadata, for "OBJ" with the key of the
///         object
/// @param options backends: one; NULL if only one backend accepts the memory type
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
    timeout_ns: u64,
    query: *mut *mut kvmem_query,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (query, "query"), |scope| {
        let agent = &borrow(scope, agent)?.agent;
        let list = list(scope, descriptors, count, "descriptors")?;
        let options = call_options(options)?;
        let deadline = deadline(timeout_ns).or_else(|| agent.call_deadline());
        let results = agent.call_until(deadline, |reply| Command::Query(list, options, reply))?;
        Ok(value(results))
    })
}

/// Destroys results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_query_destroy(query: *mut kvmem_query) {
    destroy(query);
}

fn value(results: Vec<Option<BTreeMap<String, String>>>) -> Results {
    let owners = results.iter().map(|result| result.as_ref().map(parameters)).collect();
    Array::new(owners, |found: &Option<Parameters>| {
        let (parameters, parameter_count) = found.as_ref().map_or((std::ptr::null(), 0), Parameters::raw);
        kvmem_query_result { parameters, parameter_count, exists: found.is_some().into(), reserved: 0 }
    })
}
