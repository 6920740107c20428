// SPDX-License-Identifier: Apache-2.0
//! Handles of backends, of their parameters and of the memory types they accept.

use std::collections::BTreeMap;
use std::ptr;
use std::time::Instant;

use super::call::{c_string, check, copied};
use super::descriptor::Descriptor;
use super::sys;
use crate::base::error::{Error, Result, Status};

/// A backend of an agent. NIXL destroys it with the agent.
pub struct Backend {
    pub(super) raw: sys::nixl_capi_backend_t,
    pub(super) memory_types: Vec<sys::nixl_capi_mem_type_t>,
    /// When its store of objects last replied, as far as that is known: it completed a request or a query.
    pub(super) last_reply: Option<Instant>,
    /// The most parts of requests that it executes at a time; `None` if it has no such limit.
    pub(super) max_parts: Option<usize>,
}

impl Backend {
    pub(super) fn around(raw: sys::nixl_capi_backend_t) -> Self {
        Self { raw, memory_types: Vec::new(), last_reply: None, max_parts: None }
    }

    pub(super) fn raw(&self) -> sys::nixl_capi_backend_t {
        self.raw
    }

    /// Whether two handles are of one backend: NIXL makes a new handle each time it returns a backend. A handle is a struct
    /// that contains one pointer, to the backend; a test compares that with the source of the crate.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        // SAFETY: live handles, each of the size of a pointer.
        unsafe { *self.raw.cast::<usize>() == *other.raw.cast::<usize>() }
    }

    /// Whether it accepts memory of this type.
    pub(super) fn accepts(&self, descriptor: &Descriptor) -> bool {
        self.memory_types.contains(&descriptor.memory_type.raw())
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        // SAFETY: frees the handle, which is this value's alone; the backend itself belongs to the agent.
        unsafe { sys::nixl_capi_destroy_backend(self.raw) };
    }
}

/// NIXL's list of memory types.
pub(super) struct MemoryList(pub sys::nixl_capi_mem_list_t);

impl MemoryList {
    pub fn types(&self) -> Vec<sys::nixl_capi_mem_type_t> {
        let mut size = 0;
        // SAFETY: live list.
        unsafe { sys::nixl_capi_mem_list_size(self.0, &mut size) };
        let get = |index| {
            let mut memory_type = 0;
            // SAFETY: live list; an index within its size.
            let status = unsafe { sys::nixl_capi_mem_list_get(self.0, index, &mut memory_type) };
            (status == sys::NIXL_CAPI_SUCCESS).then_some(memory_type)
        };
        (0..size).filter_map(get).collect()
    }
}

impl Drop for MemoryList {
    fn drop(&mut self) {
        // SAFETY: this value owns it.
        unsafe { sys::nixl_capi_destroy_mem_list(self.0) };
    }
}

/// NIXL's map of parameters.
pub(super) struct Params(pub sys::nixl_capi_params_t);

impl Params {
    pub fn new() -> Result<Self> {
        let mut params = ptr::null_mut();
        // SAFETY: the output is ours on success.
        let status = unsafe { sys::nixl_capi_create_params(&mut params) };
        check(status, || "create a parameter map".to_string())?;
        if params.is_null() {
            return Err(Error::new(
                Status::OutOfMemory,
                "NIXL created no parameter map; free memory of this process",
            ));
        }
        Ok(Self(params))
    }

    pub fn from_entries(entries: &BTreeMap<String, String>) -> Result<Self> {
        let params = Self::new()?;
        for (key, value) in entries {
            let key = c_string("a backend parameter's key", key)?;
            let value = c_string("a backend parameter's value", value)?;
            // SAFETY: live handle and strings, which are copied.
            let status = unsafe { sys::nixl_capi_params_add(params.0, key.as_ptr(), value.as_ptr()) };
            check(status, || format!("set parameter {key:?} of a backend"))?;
        }
        Ok(params)
    }

    pub fn entries(&self) -> Result<BTreeMap<String, String>> {
        let mut entries = BTreeMap::new();
        let mut iterator = ptr::null_mut();
        // SAFETY: live handles; key and value are copied before the iterator moves on. `has_next` is whether
        // this call returned a pair.
        unsafe {
            let status = sys::nixl_capi_params_create_iterator(self.0, &mut iterator);
            check(status, || "read a plugin's parameters".to_string())?;
            loop {
                let (mut key, mut value, mut has_next) = (ptr::null(), ptr::null(), false);
                let status =
                    sys::nixl_capi_params_iterator_next(iterator, &mut key, &mut value, &mut has_next);
                if status != sys::NIXL_CAPI_SUCCESS || key.is_null() || value.is_null() {
                    break;
                }
                entries.insert(copied(key), copied(value));
                if !has_next {
                    break;
                }
            }
            sys::nixl_capi_params_destroy_iterator(iterator);
        }
        Ok(entries)
    }
}

impl Drop for Params {
    fn drop(&mut self) {
        // SAFETY: this value owns it.
        unsafe { sys::nixl_capi_destroy_params(self.0) };
    }
}

/// The number that the value of a parameter begins with, as plugins read it; `None` if it begins with no digit.
pub(super) fn leading_number(value: &str) -> Option<u64> {
    let digits = value.len() - value.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    match &value[..digits] {
        "" => None,
        // Of more digits than a number has.
        number => Some(number.parse().unwrap_or(u64::MAX)),
    }
}
