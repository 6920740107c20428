// SPDX-License-Identifier: Apache-2.0
//! NIXL's optional arguments: the backends that a call uses, or the address that it sends to.

use std::ptr;

use super::call::{c_string, check};
use super::sys;
use crate::error::Result;

/// Optional arguments of one call.
pub(super) struct Arguments(sys::nixl_capi_opt_args_t);

impl Arguments {
    /// Restricts a call to one backend.
    pub fn of_backend(backend: sys::nixl_capi_backend_t) -> Result<Self> {
        let this = Self::new()?;
        // SAFETY: live handles; the backend's engine is copied into the list.
        let status = unsafe { sys::nixl_capi_opt_args_add_backend(this.0, backend) };
        check(status, || "name a backend in optional arguments".to_string())?;
        Ok(this)
    }

    /// The address of a peer's listen thread.
    pub fn of_address(address: &str, port: u16) -> Result<Self> {
        let text = c_string("the address", address)?;
        let this = Self::new()?;
        // SAFETY: live handle and string, which is copied.
        let status = unsafe { sys::nixl_capi_opt_args_set_ip_addr(this.0, text.as_ptr()) };
        check(status, || format!("set address {address:?}"))?;
        // SAFETY: live handle.
        check(unsafe { sys::nixl_capi_opt_args_set_port(this.0, port) }, || format!("set port {port}"))?;
        Ok(this)
    }

    fn new() -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the output is ours on success.
        let status = unsafe { sys::nixl_capi_create_opt_args(&mut raw) };
        check(status, || "create optional arguments".to_string())?;
        Ok(Self(raw))
    }

    pub fn raw(&self) -> sys::nixl_capi_opt_args_t {
        self.0
    }
}

impl Drop for Arguments {
    fn drop(&mut self) {
        // SAFETY: created by this value, and not shared.
        unsafe { sys::nixl_capi_destroy_opt_args(self.0) };
    }
}
