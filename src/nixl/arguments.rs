// SPDX-License-Identifier: Apache-2.0
//! NIXL's optional arguments: the backends that a call may use, a notification, or the address that it sends to.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;

use super::call::{Owned, c_string, check, too_old};
use super::sys;
use crate::base::Result;

/// Options of one call on raw descriptors, as the caller gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallOptions {
    /// Plugins of the backends that the call may use, in order of preference. Empty for all.
    pub backends: Vec<String>,
    /// Sent to the peer when the request is complete.
    pub notification: Option<Vec<u8>>,
    /// Bytes whose meaning is the backend's.
    pub custom_parameter: Option<Vec<u8>>,
    /// NIXL does not merge neighbouring descriptors.
    pub skips_merge: bool,
}

/// Optional arguments of one call; `None` for the defaults.
#[derive(Default)]
pub(super) struct Arguments(Option<Owned>);

impl Arguments {
    /// Restricts a call to one backend.
    pub fn with_backend(backend: sys::nixl_capi_backend_t) -> Result<Self> {
        let this = Self::new()?;
        this.add_backend(backend)?;
        Ok(this)
    }

    /// The address of a peer's listen thread.
    pub fn with_address(address: &str, port: u16) -> Result<Self> {
        let text = c_string("the address", address)?;
        let this = Self::new()?;
        // SAFETY: live handle and string, which is copied.
        let status = unsafe { sys::nixl_capi_opt_args_set_ip_addr(this.raw(), text.as_ptr()) };
        check(status, || format!("set address {address:?}"))?;
        // SAFETY: live handle.
        check(unsafe { sys::nixl_capi_opt_args_set_port(this.raw(), port) }, || format!("set port {port}"))?;
        Ok(this)
    }

    /// The caller's options, with the backends that they name.
    pub fn with_options(options: &CallOptions, backends: &[sys::nixl_capi_backend_t]) -> Result<Self> {
        if *options == CallOptions::default() {
            return Ok(Self::default());
        }
        let this = Self::new()?;
        backends.iter().try_for_each(|backend| this.add_backend(*backend))?;
        if let Some(message) = &options.notification {
            // SAFETY: live handle; the bytes are copied.
            let status = unsafe {
                sys::nixl_capi_opt_args_set_notif_msg(this.raw(), address_of(message), message.len())
            };
            check(status, || format!("set a notification of {} bytes", message.len()))?;
            // SAFETY: live handle.
            let status = unsafe { sys::nixl_capi_opt_args_set_has_notif(this.raw(), true) };
            check(status, || "set that there is a notification".to_string())?;
        }
        if let Some(bytes) = &options.custom_parameter {
            // SAFETY: live handle; the bytes are copied.
            let set = unsafe {
                sys::nixl_capi_opt_args_set_custom_param(this.raw(), address_of(bytes), bytes.len())
            };
            check(set.map_err(too_old)?, || format!("set a custom parameter of {} bytes", bytes.len()))?;
        }
        if options.skips_merge {
            // SAFETY: live handle.
            let status = unsafe { sys::nixl_capi_opt_args_set_skip_desc_merge(this.raw(), true) };
            check(status, || "set that descriptors are not merged".to_string())?;
        }
        Ok(this)
    }

    fn new() -> Result<Self> {
        // SAFETY: the output is ours on success.
        let owned = unsafe {
            let destroy = sys::nixl_capi_destroy_opt_args;
            Owned::create("optional arguments", destroy, |raw| sys::nixl_capi_create_opt_args(raw))
        };
        owned.map(|owned| Self(Some(owned)))
    }

    fn add_backend(&self, backend: sys::nixl_capi_backend_t) -> Result<()> {
        // SAFETY: live handles; the backend's engine is copied into the list.
        let status = unsafe { sys::nixl_capi_opt_args_add_backend(self.raw(), backend) };
        check(status, || "name a backend in optional arguments".to_string())
    }

    /// NULL for the defaults.
    pub fn raw(&self) -> sys::nixl_capi_opt_args_t {
        self.0.as_ref().map_or(ptr::null_mut(), Owned::raw)
    }
}

/// The first byte; never null, which NIXL refuses also for no bytes.
fn address_of(bytes: &[u8]) -> *const c_void {
    if bytes.is_empty() { c"".as_ptr().cast() } else { bytes.as_ptr().cast() }
}
