// SPDX-License-Identifier: Apache-2.0
//! Arrays that a handle returns: structs of C, and what their pointers point to.

/// Structs of C with pointers to their owners, which never change.
pub struct Array<T, O> {
    items: Vec<T>,
    _owners: Vec<O>,
}

// SAFETY: the pointers of the items are to memory of the owners, which nothing changes.
unsafe impl<T, O: Send> Send for Array<T, O> {}
// SAFETY: see above.
unsafe impl<T, O: Sync> Sync for Array<T, O> {}

impl<T, O> Array<T, O> {
    /// `item` makes a struct with pointers to heap memory of its owner.
    pub fn new(owners: Vec<O>, item: impl Fn(&O) -> T) -> Self {
        Self { items: owners.iter().map(item).collect(), _owners: owners }
    }

    /// Pointer and count; NULL and 0 for none.
    pub fn raw(&self) -> (*const T, usize) {
        let pointer = if self.items.is_empty() { std::ptr::null() } else { self.items.as_ptr() };
        (pointer, self.items.len())
    }
}
