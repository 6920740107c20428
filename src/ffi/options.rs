// SPDX-License-Identifier: Apache-2.0
//! Options structs: how one of another size than ours is read, and what every field may hold.

use super::handle::null;
use crate::error::{Error, Result, Status, ensure};

/// More than any options struct will ever have: a larger size is garbage.
const MOST_BYTES: usize = 4096;

/// A struct with `size_t struct_size` first and no padding.
///
/// # Safety
/// It must be `repr(C)`, start with a `usize`, and all zeroes must be a valid value.
pub unsafe trait Options: Copy {
    /// What to call it in messages.
    const NAME: &'static str;
}

macro_rules! options {
    ($type:ident) => {
        // SAFETY: repr(C), struct_size first, plain integers and nullable pointers only.
        unsafe impl $crate::ffi::options::Options for $type {
            const NAME: &'static str = stringify!($type);
        }
    };
}
pub(super) use options;

/// Reads options of an older, equal or newer caller. What an older one does not have is zero; what a newer one has
/// beyond ours must be zero.
///
/// # Safety
/// `pointer` must be NULL or readable for as many bytes as its `struct_size` says.
pub unsafe fn read<T: Options>(pointer: *const T) -> Result<T> {
    let known = size_of::<T>();
    if pointer.is_null() {
        return Err(null(T::NAME));
    }
    // SAFETY: the caller's promise; struct_size comes first.
    let size = unsafe { plausible_size(pointer) }?;
    // SAFETY: `size` bytes are readable by promise, and all zeroes is a valid T.
    let (options, tail) = unsafe {
        let mut options = std::mem::zeroed::<T>();
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut options).cast(), size.min(known));
        let tail =
            std::slice::from_raw_parts(pointer.cast::<u8>().add(size.min(known)), size - size.min(known));
        (options, tail)
    };
    ensure!(
        tail.iter().all(|byte| *byte == 0),
        InvalidArgument,
        "{} has {size} bytes, this library knows {known} of them, and the rest asks for something",
        T::NAME
    );
    Ok(options)
}

/// The same where NULL means the defaults.
///
/// # Safety
/// As for [`read`].
pub unsafe fn read_nullable<T: Options>(pointer: *const T) -> Result<Option<T>> {
    // SAFETY: the caller's promise.
    if pointer.is_null() { Ok(None) } else { unsafe { read(pointer) }.map(Some) }
}

/// Fills the caller's struct with defaults: zeroes, and its size. Never writes more than the caller has.
///
/// # Safety
/// `pointer` must be NULL or writable for `size` bytes.
pub unsafe fn init<T: Options>(pointer: *mut T, size: usize) {
    if pointer.is_null() || size < size_of::<usize>() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        pointer.cast::<u8>().write_bytes(0, size);
        pointer.cast::<usize>().write_unaligned(size);
    }
}

/// Answers in a struct of an older, equal or newer caller, who says its size: no more than that is written. The answer
/// is made once it is clear that there is where to put it.
///
/// # Safety
/// `pointer` must be NULL, or writable for as many bytes as its `struct_size` says.
pub unsafe fn write_known<T: Options>(pointer: *mut T, answer: impl FnOnce() -> Result<T>) -> Result<()> {
    if pointer.is_null() {
        return Err(null(T::NAME));
    }
    // SAFETY: the caller's promise; struct_size comes first.
    let size = unsafe { plausible_size(pointer) }?;
    let answer = answer()?;
    // SAFETY: the caller's promise, and all of the answer is read.
    unsafe {
        let known = size.min(size_of::<T>());
        std::ptr::copy_nonoverlapping((&raw const answer).cast::<u8>(), pointer.cast(), known);
        pointer.cast::<u8>().add(known).write_bytes(0, size - known);
        pointer.cast::<usize>().write_unaligned(size);
    }
    Ok(())
}

/// What a struct says its size is, if that can be.
///
/// # Safety
/// `pointer` must be readable for the size of a `usize`.
unsafe fn plausible_size<T: Options>(pointer: *const T) -> Result<usize> {
    // SAFETY: the caller's promise.
    let size = unsafe { pointer.cast::<usize>().read_unaligned() };
    let plausible =
        (size_of::<usize>()..=MOST_BYTES).contains(&size) && size.is_multiple_of(size_of::<usize>());
    ensure!(plausible, InvalidArgument, "struct_size of {} is {size}; set it to sizeof({0})", T::NAME);
    Ok(size)
}

/// Refuses flags this library does not know.
pub fn check_flags(what: &str, flags: u64, known: u64) -> Result<()> {
    ensure!(flags & !known == 0, InvalidArgument, "{what} has unknown flags {:#x}", flags & !known);
    Ok(())
}

/// The error for an enum that has a value this library does not know.
#[cold]
pub fn not_one_of(name: &str, value: u32, values: &str) -> Error {
    Error::new(Status::InvalidArgument, format!("{name} is {value}, which is no {values} value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Known {
        struct_size: usize,
        first: u64,
        second: u64,
    }
    options!(Known);

    fn read_as(words: &[u64]) -> Result<Known> {
        // SAFETY: each test says no larger size than the words have.
        unsafe { read(words.as_ptr().cast()) }
    }

    #[test]
    fn an_older_caller_is_extended_with_zeroes() {
        assert_eq!(read_as(&[16, 7]).unwrap(), Known { struct_size: 16, first: 7, second: 0 });
        assert_eq!(read_as(&[8]).unwrap(), Known { struct_size: 8, first: 0, second: 0 });
    }

    #[test]
    fn a_newer_caller_is_read_if_what_is_unknown_is_zero() {
        assert!(read_as(&[40, 7, 8, 0, 0]).is_ok());
        let error = read_as(&[40, 7, 8, 0, 1]).unwrap_err();
        assert!(error.message().contains("knows 24 of them"), "{error}");
    }

    #[test]
    fn a_size_that_can_not_be_is_refused() {
        for size in [0, 7, 25, 1 << 40, u64::MAX] {
            assert!(read_as(&[size, 0, 0]).is_err());
        }
        // SAFETY: NULL is allowed.
        assert!(unsafe { read::<Known>(std::ptr::null()) }.is_err());
    }

    #[test]
    fn an_answer_is_no_larger_than_the_caller_has_room() {
        let answer = || Ok(Known { struct_size: 24, first: 7, second: 8 });
        for (given, expected) in [([8, 1, 1, 1], [8, 1, 1, 1]), ([16, 1, 1, 1], [16, 7, 1, 1])] {
            let mut words: [u64; 4] = given;
            // SAFETY: it says no larger size than the words have.
            unsafe { write_known::<Known>(words.as_mut_ptr().cast(), answer) }.unwrap();
            assert_eq!(words, expected);
        }
        let mut words = [32u64, 1, 1, 1];
        // SAFETY: as above.
        unsafe { write_known::<Known>(words.as_mut_ptr().cast(), answer) }.unwrap();
        assert_eq!(words, [32, 7, 8, 0]);
        words[0] = 9;
        // SAFETY: as above; what it says can't be, and nothing is written.
        assert!(unsafe { write_known::<Known>(words.as_mut_ptr().cast(), answer) }.is_err());
    }

    #[test]
    fn init_writes_no_more_than_the_caller_has() {
        let mut words = [u64::MAX; 3];
        // SAFETY: 16 of 24 bytes.
        unsafe { init::<Known>(words.as_mut_ptr().cast(), 16) };
        assert_eq!(words, [16, 0, u64::MAX]);
    }
}
