// SPDX-License-Identifier: Apache-2.0
//! The dynamic section of a loaded library.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::ptr;

/// `Elf64_Dyn`.
#[repr(C)]
pub struct DynamicEntry {
    tag: i64,
    value: u64,
}

/// Where a library is loaded, and its dynamic section.
#[derive(Clone, Copy)]
pub struct Section {
    base: usize,
    first: *const DynamicEntry,
}

pub const STRINGS: i64 = 5;
const END: i64 = 0;

impl Section {
    /// # Safety
    /// A library must be loaded at `base`, and stay loaded while this value is used; `first` is its section, or NULL.
    pub unsafe fn new(base: usize, first: *const DynamicEntry) -> Self {
        Self { base, first }
    }

    pub fn value(self, tag: i64) -> Option<usize> {
        let mut entry = self.first;
        // SAFETY: the promise of `new`; the section ends with such an entry.
        unsafe {
            while !entry.is_null() && (*entry).tag != END {
                if (*entry).tag == tag {
                    return usize::try_from((*entry).value).ok();
                }
                entry = entry.add(1);
            }
        }
        None
    }

    /// The value of an entry that is an address. The loader has replaced the offset by the address, except on platforms where the
    /// section is read-only.
    pub fn address(self, tag: i64) -> Option<usize> {
        let at = self.value(tag)?;
        Some(if at < self.base { self.base + at } else { at })
    }

    /// A string of the library's table.
    pub fn string(&self, offset: usize) -> Option<&CStr> {
        let text = ptr::with_exposed_provenance::<c_char>(self.address(STRINGS)? + offset);
        // SAFETY: the promise of `new`; the strings of the table are NUL-terminated.
        Some(unsafe { CStr::from_ptr(text) })
    }
}
