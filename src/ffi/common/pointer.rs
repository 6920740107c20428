// SPDX-License-Identifier: Apache-2.0
//! Pointers of callers: output parameters and arrays.

use std::mem::MaybeUninit;

use crate::base::{Error, Result, ensure, error};

/// An output parameter for a plain value. Fails for NULL.
///
/// # Safety
/// `slot` must be NULL or writable for as long as the call lasts.
#[inline]
pub unsafe fn out<'a, T>(slot: *mut T, name: &str) -> Result<&'a mut MaybeUninit<T>> {
    // SAFETY: the caller's promise. The value need not be initialised.
    unsafe { slot.cast::<MaybeUninit<T>>().as_mut() }.ok_or_else(|| null(name))
}

/// The error for a pointer that must not be NULL.
#[cold]
pub fn null(name: &str) -> Error {
    error!(InvalidArgument, "{name} is NULL")
}

/// An array of the caller. `names` are those of the parameters or fields that have it and its length.
///
/// # Safety
/// `items` must be NULL or readable for `count` items through the call.
pub unsafe fn items<'a, T>(items: *const T, count: usize, names: (&str, &str)) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check_items(items, count, names)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(items, count) })
}

/// An array of the caller for items that a call returns. Other arguments of the call may be in the same memory.
pub struct OutItems<T> {
    next: *mut T,
    left: usize,
}

impl<T> OutItems<T> {
    /// `items` may be NULL if `count` is 0. `names` are as for [`items`].
    ///
    /// # Safety
    /// `items` must be NULL or writable for `count` items for as long as this exists.
    #[inline]
    pub unsafe fn new(items: *mut T, count: usize, names: (&str, &str)) -> Result<Self> {
        if count > 0 {
            check_items(items, count, names)?;
        }
        Ok(Self { next: items, left: count })
    }

    /// Writes the next item, if it fits.
    #[inline]
    pub fn push(&mut self, item: T) {
        if self.left > 0 {
            // SAFETY: the promise of `new`.
            unsafe {
                self.next.write(item);
                self.next = self.next.add(1);
            }
            self.left -= 1;
        }
    }

    /// Writes what fits of a list, and returns the length of the list.
    pub fn fill(mut self, list: impl ExactSizeIterator<Item = T>) -> usize {
        let length = list.len();
        list.take(self.left).for_each(|item| self.push(item));
        length
    }

    /// How many more items fit.
    pub fn left(&self) -> usize {
        self.left
    }
}

/// Fails for an array that is NULL, too large or not aligned.
fn check_items<T>(items: *const T, count: usize, (name, length): (&str, &str)) -> Result<()> {
    ensure!(!items.is_null(), InvalidArgument, "{name} is NULL, and {length} is {count}");
    let fits = count.checked_mul(size_of::<T>()).is_some_and(|size| size <= isize::MAX as usize);
    ensure!(fits, InvalidArgument, "{name} can't have {count} items");
    ensure!(items.is_aligned(), InvalidArgument, "{name} is not aligned");
    Ok(())
}
