// SPDX-License-Identifier: Apache-2.0
//! Prepared lists of descriptors.

use std::ffi::c_char;
use std::sync::Arc;

use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::{Handle, borrow, call_new, destroy, kvmem_error, kvmem_status, opaque, text};
use crate::ffi::nixl::descriptors::{kvmem_nixl_descriptor, list};
use crate::ffi::nixl::options::{call_options, kvmem_nixl_options};
use crate::raw::Prepared;

/// A list of descriptors that NIXL has resolved, for one side of requests. It keeps agent and regions alive.
pub struct kvmem_prepared {
    handle: Handle<Arc<Prepared>>,
}
opaque!(kvmem_prepared, Arc<Prepared>, "prepared");

/// Prepares descriptors, for requests that choose from them by index.
///
/// @param agent the agent that will post the requests
/// @param owner name of the agent that owns the memory, for the remote side of requests: a peer whose
///        metadata is loaded, or the agent itself for files and objects; NULL for the local side
/// @param options backends, custom_parameter; NULL for NIXL's choice
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_prepared_create(
    agent: *mut kvmem_agent,
    owner: *const c_char,
    descriptors: *const kvmem_nixl_descriptor,
    count: usize,
    options: *const kvmem_nixl_options,
    prepared: *mut *mut kvmem_prepared,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (prepared, "prepared"), |scope| {
        let agent = &borrow(scope, agent)?.agent;
        let owner = if owner.is_null() { None } else { Some(text::required(owner, "owner")?) };
        let list = list(scope, descriptors, count, "descriptors")?;
        Prepared::create(agent, owner, &list, call_options(options)?)
    })
}

/// Destroys a prepared list. Requests that were made from it keep it until they are destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_prepared_destroy(prepared: *mut kvmem_prepared) {
    destroy(prepared);
}
