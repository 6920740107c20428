// SPDX-License-Identifier: Apache-2.0
//! Lists whose length depends on what a caller passes, such as one entry for each block pair or contiguous range. A list that
//! does not fit in memory is an error: an allocation that the standard library makes by itself ends the process.

use std::collections::TryReserveError;

use crate::base::error::{Error, Result, error};

/// Reserves memory for more entries.
pub fn reserve<T>(list: &mut Vec<T>, more: usize) -> Result<()> {
    list.try_reserve(more).map_err(|_| no_memory(list.len().saturating_add(more), size_of::<T>()))
}

/// Explains why a collection other than a list has no memory for `entries` of `size` bytes.
pub fn reserved(
    outcome: std::result::Result<(), TryReserveError>,
    entries: usize,
    size: usize,
) -> Result<()> {
    outcome.map_err(|_| no_memory(entries, size))
}

#[inline]
pub fn push<T>(list: &mut Vec<T>, entry: T) -> Result<()> {
    if list.len() == list.capacity() {
        grow(list)?;
    }
    list.push(entry);
    Ok(())
}

#[inline]
pub fn extend<T>(list: &mut Vec<T>, entries: impl IntoIterator<Item = T>) -> Result<()> {
    let mut entries = entries.into_iter();
    reserve(list, entries.size_hint().0)?;
    entries.try_for_each(|entry| push(list, entry))
}

#[inline]
pub fn collect<T>(entries: impl IntoIterator<Item = T>) -> Result<Vec<T>> {
    let mut list = Vec::new();
    extend(&mut list, entries)?;
    Ok(list)
}

/// A list of entries each of which may fail. The first failure ends it.
pub fn collect_each<T>(entries: impl IntoIterator<Item = Result<T>>) -> Result<Vec<T>> {
    let mut list = Vec::new();
    for entry in entries {
        push(&mut list, entry?)?;
    }
    Ok(list)
}

/// A copy of what the caller passes.
pub fn copied<T: Copy>(items: &[T]) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(items.len())
        .map_err(|_| error!(OutOfMemory, "no memory for a copy of {} bytes", size_of_val(items)))?;
    list.extend_from_slice(items);
    Ok(list)
}

#[cold]
fn grow<T>(list: &mut Vec<T>) -> Result<()> {
    reserve(list, 1)
}

#[cold]
pub fn no_memory(entries: usize, size: usize) -> Error {
    error!(
        OutOfMemory,
        "no memory for a list of {entries} entries of {size} bytes; the list grows with the blocks that are moved or read, and \
         with the separate ranges of each: pass fewer blocks at a time"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;

    #[test]
    fn a_list_that_does_not_fit_in_memory_is_an_error_and_stays_unchanged() {
        let mut list = vec![[7u64; 4]];
        let error = reserve(&mut list, usize::MAX / 64).unwrap_err();
        assert_eq!(error.status(), Status::OutOfMemory);
        assert!(error.message().starts_with("no memory for a list of "), "{error}");
        assert_eq!(
            extend(&mut list, (0..usize::MAX).map(|_| [0; 4])).unwrap_err().status(),
            Status::OutOfMemory
        );
        assert_eq!(list, [[7; 4]]);
    }

    #[test]
    fn entries_are_added_in_order() {
        let mut list = collect(0..3).unwrap();
        extend(&mut list, (3..9).filter(|entry| entry % 2 == 0)).unwrap();
        push(&mut list, 9).unwrap();
        assert_eq!(list, [0, 1, 2, 4, 6, 8, 9]);
    }
}
