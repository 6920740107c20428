// SPDX-License-Identifier: Apache-2.0
//! Ranges in the timeline of a profiler, by NVTX. A profiler names its library in NVTX_INJECTION64_PATH; that library gets tables with a
//! place for each function of NVTX, and writes its functions to them. A function that it does not write does nothing.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem::{size_of, transmute};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::log;
use super::open_library::OpenLibrary;
use super::process::library_variable;

const VARIABLE: &str = "NVTX_INJECTION64_PATH";
const VERSION: u16 = 3;

/// Number of functions of each module, and one for none. A profiler may fill all modules; those of domains are used.
const SIZES: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
const MAX_SIZE: usize = 16;
const DOMAINS: usize = 5;
const RANGE_START: usize = 2;
const RANGE_END: usize = 3;
const CREATE: usize = 12;

const TABLE_CALLBACKS: u32 = 1;
const TABLE_VERSION: u32 = 3;

type Place = AtomicPtr<c_void>;
static PLACES: [[Place; MAX_SIZE]; SIZES.len()] =
    [const { [const { Place::new(null_mut()) }; MAX_SIZE] }; SIZES.len()];
/// Addresses of places, and NULL behind the last one.
static TABLES: [[AtomicPtr<Place>; MAX_SIZE + 1]; SIZES.len()] =
    [const { [const { AtomicPtr::new(null_mut()) }; MAX_SIZE + 1] }; SIZES.len()];

static DOMAIN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// The library has functions for ranges, and the domain exists.
static IS_ON: AtomicBool = AtomicBool::new(false);

#[repr(C)]
struct Callbacks {
    struct_size: usize,
    get_module_function_table: unsafe extern "C" fn(c_uint, *mut *const c_void, *mut c_uint) -> c_int,
}

#[repr(C)]
struct VersionInfo {
    struct_size: usize,
    version: u32,
    reserved: u32,
    set_injection_version: extern "C" fn(u32),
}

/// What a range shows.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const std::ffi::c_char,
}

const PAYLOAD_U64: i32 = 1;
const MESSAGE_ASCII: i32 = 1;

type Initialize = unsafe extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
type Create = unsafe extern "C" fn(*const std::ffi::c_char) -> *mut c_void;
type Start = unsafe extern "C" fn(*mut c_void, *const Attributes) -> u64;
type End = unsafe extern "C" fn(*mut c_void, u64);

/// Loads the library of the profiler, if there is one, at the first call of the process. No other thread waits for that: until it is done,
/// there are no ranges.
pub fn load() {
    static IS_LOOKED_FOR: AtomicBool = AtomicBool::new(false);
    if IS_LOOKED_FOR.load(Ordering::Relaxed) || IS_LOOKED_FOR.swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(path) = library_variable(VARIABLE) else { return };
    match attach(&path) {
        Ok(()) => log!(Info, "runs are NVTX ranges of '{}'", path.display()),
        Err(reason) => log!(Warn, "no NVTX ranges by '{}' of {VARIABLE}: {reason}", path.display()),
    }
}

/// Whether ranges are shown.
#[inline]
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Acquire)
}

/// Starts a range, which any thread may end. Only if ranges are shown.
pub fn start(message: &CStr, payload: u64) -> u64 {
    let attributes = Attributes {
        version: VERSION,
        size: size_of::<Attributes>() as u16,
        category: 0,
        color_type: 0,
        color: 0,
        payload_type: PAYLOAD_U64,
        reserved: 0,
        payload,
        message_type: MESSAGE_ASCII,
        message: message.as_ptr(),
    };
    let function = function(RANGE_START);
    // SAFETY: the profiler's function of this place, if it has one; it copies what it keeps.
    function.map_or(0, |start| unsafe {
        transmute::<*mut c_void, Start>(start)(DOMAIN.load(Ordering::Relaxed), &attributes)
    })
}

pub fn end(range: u64) {
    if let Some(end) = function(RANGE_END) {
        // SAFETY: the profiler's function of this place.
        unsafe { transmute::<*mut c_void, End>(end)(DOMAIN.load(Ordering::Relaxed), range) };
    }
}

fn function(index: usize) -> Option<*mut c_void> {
    let function = PLACES[DOMAINS][index].load(Ordering::Acquire);
    (!function.is_null()).then_some(function)
}

fn attach(path: &Path) -> Result<(), String> {
    let library = OpenLibrary::open(path)?;
    let initialize = library.address_of(c"InitializeInjectionNvtx2");
    let initialize = initialize.ok_or("it has no function InitializeInjectionNvtx2")?;
    for ((table, places), size) in TABLES.iter().zip(&PLACES).zip(SIZES) {
        for (entry, place) in table.iter().zip(places).take(size).skip(1) {
            entry.store((&raw const *place).cast_mut(), Ordering::Release);
        }
    }
    // SAFETY: its function of this name has this type. It gets tables that are valid for ever.
    if unsafe { transmute::<*mut c_void, Initialize>(initialize.as_ptr())(export_table) } == 0 {
        return Err("its function InitializeInjectionNvtx2 has failed".to_string());
    }
    library.keep();
    if let Some(create) = function(CREATE) {
        // SAFETY: the profiler's function of this place.
        let domain = unsafe { transmute::<*mut c_void, Create>(create)(c"kvmem".as_ptr()) };
        DOMAIN.store(domain, Ordering::Relaxed);
    }
    if function(RANGE_START).is_none() || function(RANGE_END).is_none() {
        return Err("it has no functions for ranges of a domain".to_string());
    }
    IS_ON.store(true, Ordering::Release);
    Ok(())
}

extern "C" fn export_table(id: u32) -> *const c_void {
    static CALLBACKS: Callbacks =
        Callbacks { struct_size: size_of::<Callbacks>(), get_module_function_table: module_function_table };
    static VERSION_INFO: VersionInfo = VersionInfo {
        struct_size: size_of::<VersionInfo>(),
        version: VERSION as u32,
        reserved: 0,
        set_injection_version,
    };
    match id {
        TABLE_CALLBACKS => (&raw const CALLBACKS).cast(),
        TABLE_VERSION => (&raw const VERSION_INFO).cast(),
        _ => std::ptr::null(),
    }
}

/// # Safety
/// `table` and `size` must be NULL or writable.
unsafe extern "C" fn module_function_table(
    module: c_uint,
    table: *mut *const c_void,
    size: *mut c_uint,
) -> c_int {
    let module = module as usize;
    let Some(count) = SIZES.get(module).copied().filter(|count| *count > 0) else { return 0 };
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(table) = table.as_mut() {
            *table = (&raw const TABLES[module]).cast();
        }
        if let Some(size) = size.as_mut() {
            *size = count as c_uint;
        }
    }
    1
}

extern "C" fn set_injection_version(_: u32) {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::open_library::file_of;

    #[test]
    fn a_library_that_is_none_of_a_profiler_leaves_ranges_off() {
        let missing = attach(Path::new("/nonexistent/libprofiler.so")).unwrap_err();
        assert!(missing.contains("/nonexistent/libprofiler.so"), "{missing}");
        let other = file_of(libc::strlen as *const c_void).unwrap();
        assert_eq!(attach(&other).unwrap_err(), "it has no function InitializeInjectionNvtx2");
        assert!(!is_on());
    }
}
