// SPDX-License-Identifier: Apache-2.0
//! Memory views.

use std::ffi::c_void;

use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::{Handle, borrow, call_new, destroy, kvmem_error, kvmem_status, opaque, out};
use crate::ffi::nixl::descriptors::{kvmem_nixl_descriptor, list};
use crate::ffi::nixl::options::{call_options, kvmem_nixl_options};
use crate::raw::View;

/// A memory view of NIXL: registered memory that kernels on a GPU can access through NIXL's device API. It is
/// not a region; kvmem_region_create_view creates a region that is a part of another one. It keeps the agent
/// alive.
pub struct kvmem_memory_view {
    handle: Handle<View>,
}
opaque!(kvmem_memory_view, View, "view");

/// Creates a memory view: of memory of the agent, or of memory of peers if the descriptors name agents.
///
/// @param options backends, custom_parameter; NULL for NIXL's choice
/// @param handle receives the handle of the view for NIXL's device API, which is valid as long as the view
/// @return KVMEM_STATUS_UNSUPPORTED: the loaded NIXL has no memory views
///         KVMEM_STATUS_NIXL: no backend has views of this memory; UCX has none on a host without a GPU
///
/// Notes: UCX creates a view only if it was built with its device API, as in NIXL's wheels, and if it can
/// allocate GPU memory, which it does for views of any memory. NIXL's other plugins have no views.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_memory_view_create(
    agent: *mut kvmem_agent,
    descriptors: *const kvmem_nixl_descriptor,
    count: usize,
    options: *const kvmem_nixl_options,
    handle: *mut *mut c_void,
    view: *mut *mut kvmem_memory_view,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (view, "view"), |scope| {
        let handle = out(handle, "handle")?;
        let agent = &borrow(scope, agent)?.agent;
        let list = list(scope, descriptors, count, "descriptors")?;
        let view = View::create(agent, &list, call_options(options)?)?;
        handle.write(std::ptr::with_exposed_provenance_mut(view.handle()));
        Ok(view)
    })
}

/// Destroys a memory view. No kernel may use it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_memory_view_destroy(view: *mut kvmem_memory_view) {
    destroy(view);
}
