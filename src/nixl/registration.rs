// SPDX-License-Identifier: Apache-2.0
//! Making memory known to an agent's backends.

use std::ptr;

use super::descriptor::Descriptor;
use super::driver::{Driver, check};
use super::sys;
use crate::error::{Error, Result, Status, ensure};

impl Driver {
    /// Registers a span with every backend that takes its kind of memory.
    pub fn register(&mut self, descriptor: Descriptor) -> Result<()> {
        ensure!(
            !self.registered.contains(&descriptor),
            AlreadyExists,
            "{} is registered with agent '{}' already",
            describe(&descriptor),
            self.display_name()
        );
        let list = RegistrationList::new(&descriptor)?;
        // SAFETY: live handles; the list is copied.
        let status = unsafe { sys::nixl_capi_register_mem(self.agent, list.0, ptr::null_mut()) };
        check(status, || {
            format!(
                "register {} with agent '{}', which has {} (a backend that takes {} memory is needed)",
                describe(&descriptor),
                self.display_name(),
                self.backend_names(),
                descriptor.memory_type.name()
            )
        })
        .map_err(|error| error.with_status(Status::Nixl))?;
        self.registered.insert(descriptor);
        Ok(())
    }

    /// Takes a registration back. After a failure the memory may still be in use and must not be freed.
    pub fn deregister(&mut self, descriptor: &Descriptor) -> Result<()> {
        if !self.registered.remove(descriptor) {
            let message =
                format!("{} is not registered with agent '{}'", describe(descriptor), self.display_name());
            return Err(Error::new(Status::InvalidState, message));
        }
        let list = RegistrationList::new(descriptor)?;
        // SAFETY: live handles; the list is copied.
        let status = unsafe { sys::nixl_capi_deregister_mem(self.agent, list.0, ptr::null_mut()) };
        check(status, || format!("deregister {} from agent '{}'", describe(descriptor), self.display_name()))
    }
}

fn describe(descriptor: &Descriptor) -> String {
    let Descriptor { address, size, device_id, memory_type } = descriptor;
    format!("{} memory at {address:#x} of {size} bytes on device {device_id}", memory_type.name())
}

/// NIXL's list of spans to register; here it always holds one.
struct RegistrationList(sys::nixl_capi_reg_dlist_t);

impl RegistrationList {
    fn new(descriptor: &Descriptor) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the output is ours on success.
        let status = unsafe { sys::nixl_capi_create_reg_dlist(descriptor.memory_type.raw(), &mut raw) };
        check(status, || "create a registration list".to_string())?;
        let list = Self(raw);
        // SAFETY: live list; no metadata.
        let status = unsafe {
            sys::nixl_capi_reg_dlist_add_desc(
                list.0,
                descriptor.address as usize,
                descriptor.size as usize,
                descriptor.device_id,
                ptr::null(),
                0,
            )
        };
        check(status, || format!("list {}", describe(descriptor)))?;
        Ok(list)
    }
}

impl Drop for RegistrationList {
    fn drop(&mut self) {
        // SAFETY: made by this value alone.
        unsafe { sys::nixl_capi_destroy_reg_dlist(self.0) };
    }
}
