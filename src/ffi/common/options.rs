// SPDX-License-Identifier: Apache-2.0
//! Options structs: reads and writes structs of another version's size, and checks fields.

use crate::base::{Error, Result, ensure, error};
use crate::ffi::common::pointer::null;

/// A limit that no options struct will exceed: a larger size is not initialized.
const MAX_BYTES: usize = 4096;

/// A struct with `size_t struct_size` first and no padding.
///
/// # Safety
/// It must be `repr(C)`, start with a `usize`, and all zeroes must be a valid value.
pub unsafe trait Options: Copy {
    /// Its C name, for messages.
    const NAME: &'static str;
    /// The size of the first published version. Every caller has at least its fields. So a smaller size is an
    /// error; otherwise fields after that size would be ignored silently.
    const FIRST_SIZE: usize;
}

/// Defines an options struct: `options!(kvmem_x_options)` until it is changed after its publication. New
/// fields are then added at the end, and the macro names the last field of the first published version:
/// `options!(kvmem_x_options, last_field)`.
macro_rules! options {
    ($type:ident) => {
        $crate::ffi::common::options::options!(@ $type, size_of::<$type>());
    };
    ($type:ident, $last_of_first:ident) => {
        $crate::ffi::common::options::options!(@ $type, {
            const fn size_of_pointee<T>(_: *const T) -> usize {
                size_of::<T>()
            }
            let uninit = std::mem::MaybeUninit::<$type>::uninit();
            // SAFETY: a pointer within the struct; nothing is read.
            let field = unsafe { &raw const (*uninit.as_ptr()).$last_of_first };
            std::mem::offset_of!($type, $last_of_first) + size_of_pointee(field)
        });
    };
    (@ $type:ident, $first_size:expr) => {
        // SAFETY: repr(C), struct_size first, plain integers and nullable pointers only.
        unsafe impl $crate::ffi::common::options::Options for $type {
            const NAME: &'static str = stringify!($type);
            const FIRST_SIZE: usize = $first_size;
        }
    };
}
pub(in crate::ffi) use options;

/// Reads options of an older, equal or newer caller. Fields that an older caller does not have are zero;
/// fields of a newer caller that are unknown here must be zero.
///
/// # Safety
/// `pointer` must be NULL or readable for as many bytes as its `struct_size` says.
pub unsafe fn read<T: Options>(pointer: *const T) -> Result<T> {
    let known = size_of::<T>();
    if pointer.is_null() {
        return Err(null(T::NAME));
    }
    // SAFETY: the caller's promise; struct_size comes first.
    let size = unsafe { stated_size(pointer) }?;
    // SAFETY: `size` bytes are readable by promise, and all zeroes is a valid T.
    let (options, tail) = unsafe {
        let mut options = std::mem::zeroed::<T>();
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut options).cast(), size.min(known));
        let tail =
            std::slice::from_raw_parts(pointer.cast::<u8>().add(size.min(known)), size - size.min(known));
        (options, tail)
    };
    if let Some(at) = tail.iter().position(|byte| *byte != 0) {
        return Err(unknown_tail(T::NAME, size, known, known + at));
    }
    Ok(options)
}

/// Writes a struct to that of an older, equal or newer caller, whose `struct_size` is unchanged. An older caller gets the fields that it
/// has; fields of a newer caller that are unknown here are zero.
///
/// # Safety
/// `pointer` must be NULL, or readable and writable for as many bytes as its `struct_size` says.
pub unsafe fn write<T: Options>(pointer: *mut T, value: impl FnOnce() -> T) -> Result<()> {
    let (first, known) = (size_of::<usize>(), size_of::<T>());
    if pointer.is_null() {
        return Err(null(T::NAME));
    }
    // SAFETY: the caller's promise; struct_size comes first.
    let size = unsafe { stated_size(pointer) }?;
    let value = value();
    // SAFETY: `size` bytes are writable by promise. Bytes are copied, so that nothing is assumed about the alignment.
    unsafe {
        let (to, from) = (pointer.cast::<u8>(), (&raw const value).cast::<u8>());
        std::ptr::copy_nonoverlapping(from.add(first), to.add(first), size.min(known) - first);
        std::ptr::write_bytes(to.add(size.min(known)), 0, size.saturating_sub(known));
    }
    Ok(())
}

/// Like [`read`], but returns the defaults for NULL.
///
/// # Safety
/// As for [`read`].
pub unsafe fn read_nullable<T: Options>(pointer: *const T) -> Result<Option<T>> {
    // SAFETY: the caller's promise.
    if pointer.is_null() { Ok(None) } else { unsafe { read(pointer) }.map(Some) }
}

/// Returns the size that a struct states. Fails if no version of the struct has that size.
///
/// # Safety
/// `pointer` must be readable for the size of a `usize`.
unsafe fn stated_size<T: Options>(pointer: *const T) -> Result<usize> {
    // SAFETY: the caller's promise.
    let size = unsafe { pointer.cast::<usize>().read_unaligned() };
    let plausible = (T::FIRST_SIZE..=MAX_BYTES).contains(&size) && size.is_multiple_of(size_of::<usize>());
    if plausible { Ok(size) } else { Err(wrong_size(T::NAME, size, T::FIRST_SIZE)) }
}

#[cold]
fn wrong_size(name: &str, size: usize, first: usize) -> Error {
    let found = if size < first {
        format!("less than the {first} bytes that every version of it has")
    } else if size > MAX_BYTES {
        "more than any version of it has".to_string()
    } else {
        format!("no multiple of {}", size_of::<usize>())
    };
    // Frequent errors: the field is not set, sizeof of a pointer to the struct, headers of another version.
    let hint = match size {
        0 => String::new(),
        _ if size == size_of::<*const ()>() => {
            format!("; {size} is the size of a pointer: is it the sizeof of a pointer to the struct?")
        }
        _ => "; if it is that, compile the program with the headers of this version of kvmem".to_string(),
    };
    error!(InvalidArgument, "struct_size of {name} is {size}, {found}; set it to sizeof({name}){hint}")
}

#[cold]
fn unknown_tail(name: &str, size: usize, known: usize, at: usize) -> Error {
    error!(
        InvalidArgument,
        "{name} has {size} bytes, this library knows the first {known}, and byte {at} is not 0: the caller uses an option \
         of a newer version"
    )
}

/// Fails for unknown flags.
pub fn check_flags(what: &str, flags: u64, known: u64) -> Result<()> {
    ensure!(flags & !known == 0, InvalidArgument, "{what} has unknown flags {:#x}", flags & !known);
    Ok(())
}

/// Fails for a value that a later version may give a meaning.
pub fn check_reserved(what: &str, reserved: u32) -> Result<()> {
    ensure!(reserved == 0, InvalidArgument, "reserved of {what} is {reserved}; it must be 0");
    Ok(())
}

/// Fails if required fields of a struct are zero, and lists all of them.
pub fn ensure_given(name: &str, required: &[(&str, bool)]) -> Result<()> {
    let missing: Vec<_> =
        required.iter().filter(|(_, is_given)| !is_given).map(|(field, _)| *field).collect();
    ensure!(
        missing.is_empty(),
        InvalidArgument,
        "required fields of {name} are missing: {}",
        missing.join(", ")
    );
    Ok(())
}

/// The error for an unknown value of an enum.
#[cold]
pub fn not_one_of(name: &str, value: u32, values: &str) -> Error {
    error!(InvalidArgument, "{name} is {value}, which is no {values} value")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First published with two fields; the third one came later.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Known {
        struct_size: usize,
        first: u64,
        second: u64,
    }
    options!(Known, first);

    /// As it was first published.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Fresh {
        struct_size: usize,
        only: u64,
    }
    options!(Fresh);

    fn read_as(words: &[u64]) -> Result<Known> {
        // SAFETY: each test states no larger size than the words have.
        unsafe { read(words.as_ptr().cast()) }
    }

    #[test]
    fn a_struct_smaller_than_its_first_version_fails() {
        assert_eq!((Known::FIRST_SIZE, Fresh::FIRST_SIZE), (16, 16));
        let error = read_as(&[8, 7]).unwrap_err();
        assert!(error.message().contains("struct_size of Known is 8"), "{error}");
        assert!(error.message().contains("less than the 16 bytes"), "{error}");
        assert!(error.message().contains("sizeof of a pointer"), "{error}");
        let error = read_as(&[24 + 4096, 7]).unwrap_err();
        assert!(!error.message().contains("pointer"), "{error}");
        assert!(error.message().ends_with("with the headers of this version of kvmem"), "{error}");
        assert!(read_as(&[0, 7]).unwrap_err().message().ends_with("set it to sizeof(Known)"));
    }

    fn written_to(mut words: [u64; 5]) -> Result<[u64; 5]> {
        let value = || Known { struct_size: 0, first: 1, second: 2 };
        // SAFETY: no test states a larger size than the words have.
        unsafe { write(words.as_mut_ptr().cast(), value) }.map(|()| words)
    }

    #[test]
    fn a_caller_gets_the_fields_that_it_has() {
        assert_eq!(written_to([16, 7, 8, 9, 10]).unwrap(), [16, 1, 8, 9, 10]);
        assert_eq!(written_to([24, 7, 8, 9, 10]).unwrap(), [24, 1, 2, 9, 10]);
        assert_eq!(written_to([32, 7, 8, 9, 10]).unwrap(), [32, 1, 2, 0, 10]);
        assert!(written_to([8, 7, 8, 9, 10]).unwrap_err().message().contains("struct_size of Known is 8"));
        let unused = || Known { struct_size: 0, first: 0, second: 0 };
        // SAFETY: NULL is allowed.
        let missing = unsafe { write(std::ptr::null_mut(), unused) };
        assert!(missing.is_err());
    }

    #[test]
    fn missing_fields_of_an_older_caller_are_zero() {
        assert_eq!(read_as(&[16, 7, 9]).unwrap(), Known { struct_size: 16, first: 7, second: 0 });
    }

    #[test]
    fn unknown_fields_of_a_newer_caller_must_be_zero() {
        assert!(read_as(&[40, 7, 8, 0, 0]).is_ok());
        let error = read_as(&[40, 7, 8, 0, 1]).unwrap_err();
        assert!(error.message().contains("knows the first 24, and byte 32 is not 0"), "{error}");
    }

    #[test]
    fn an_impossible_size_fails() {
        for size in [0, 7, 9, 17, 25, 1 << 40, u64::MAX] {
            let error = read_as(&[size, 0, 0]).unwrap_err();
            assert!(error.message().contains("sizeof(Known)"), "{error}");
        }
        // SAFETY: NULL is allowed.
        assert!(unsafe { read::<Known>(std::ptr::null()) }.is_err());
    }

    #[test]
    fn an_error_lists_all_missing_fields() {
        assert!(ensure_given("kvmem_x", &[("a", true)]).is_ok());
        let error = ensure_given("kvmem_x", &[("a", false), ("b", true), ("c", false)]).unwrap_err();
        assert_eq!(error.message(), "required fields of kvmem_x are missing: a, c");
    }
}
