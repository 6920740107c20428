// SPDX-License-Identifier: Apache-2.0
//! Handles of backends, of their parameters and of the memory types they accept.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ptr;
use std::time::Instant;

use super::call::{Owned, c_string, check, copied};
use super::descriptor::Descriptor;
use super::sys;
use crate::base::Result;

/// A backend of an agent. NIXL destroys it with the agent.
pub struct Backend {
    handle: Owned,
    pub(super) memory_types: Vec<sys::nixl_capi_mem_type_t>,
    /// When its store of objects last replied, as far as that is known: it completed a request or a query.
    pub(super) last_reply: Option<Instant>,
    /// The most parts of requests that it executes at a time; `None` if it has no such limit.
    pub(super) max_parts: Option<usize>,
}

impl Backend {
    pub(super) fn around(raw: sys::nixl_capi_backend_t) -> Self {
        // SAFETY: the handle is this value's alone; the backend itself belongs to the agent.
        let handle = unsafe { Owned::around(raw, sys::nixl_capi_destroy_backend) };
        Self { handle, memory_types: Vec::new(), last_reply: None, max_parts: None }
    }

    pub(super) fn raw(&self) -> sys::nixl_capi_backend_t {
        self.handle.raw()
    }

    /// Whether two handles are of one backend: NIXL makes a new handle each time it returns a backend. A handle is a struct
    /// that contains one pointer, to the backend; a test compares that with the source of the crate.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        // SAFETY: live handles, each of the size of a pointer.
        unsafe { *self.raw().cast::<usize>() == *other.raw().cast::<usize>() }
    }

    pub(super) fn accepts(&self, descriptor: &Descriptor) -> bool {
        self.memory_types.contains(&descriptor.memory_type.raw())
    }
}

pub(super) fn memory_types(list: &Owned) -> Vec<sys::nixl_capi_mem_type_t> {
    let mut size = 0;
    // SAFETY: live list.
    unsafe { sys::nixl_capi_mem_list_size(list.raw(), &mut size) };
    let get = |index| {
        let mut memory_type = 0;
        // SAFETY: live list; an index within its size.
        let status = unsafe { sys::nixl_capi_mem_list_get(list.raw(), index, &mut memory_type) };
        (status == sys::NIXL_CAPI_SUCCESS).then_some(memory_type)
    };
    (0..size).filter_map(get).collect()
}

/// NIXL's map of parameters.
pub(super) struct Params(Owned);

impl Params {
    /// # Safety
    /// A map that is this value's alone.
    pub unsafe fn around(raw: sys::nixl_capi_params_t) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Owned::around(raw, sys::nixl_capi_destroy_params) })
    }

    pub fn raw(&self) -> sys::nixl_capi_params_t {
        self.0.raw()
    }

    pub fn from_entries(entries: &BTreeMap<String, String>) -> Result<Self> {
        // SAFETY: the output is ours on success.
        let params = Self(unsafe {
            let destroy = sys::nixl_capi_destroy_params;
            Owned::create("a parameter map", destroy, |raw| sys::nixl_capi_create_params(raw))?
        });
        for (key, value) in entries {
            let key = c_string("a backend parameter's key", key)?;
            let value = c_string("a backend parameter's value", value)?;
            // SAFETY: live handle and strings, which are copied.
            let status = unsafe { sys::nixl_capi_params_add(params.raw(), key.as_ptr(), value.as_ptr()) };
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
            let status = sys::nixl_capi_params_create_iterator(self.raw(), &mut iterator);
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

/// The number that the value of a parameter begins with, as plugins read it; `None` if it begins with no digit.
pub(super) fn leading_number(value: &str) -> Option<u64> {
    let digits = value.len() - value.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    match &value[..digits] {
        "" => None,
        // Of more digits than a number has.
        number => Some(number.parse().unwrap_or(u64::MAX)),
    }
}
