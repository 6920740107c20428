// SPDX-License-Identifier: Apache-2.0
//! Handles: the objects behind opaque pointers, and the checks on each pointer that a caller passes.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::{Counted, Error, Result, Status, guarded, lists, log, process};
use crate::ffi::common::kind::{ALIVE, HandleState, Kind};
use crate::ffi::common::pointer::{self, null};
use crate::ffi::common::scope::Scope;

/// The first fields of every handle. They are read before the type of the handle is known.
#[repr(C)]
struct Header {
    /// Pointer and count of a list, which callers read; 0 in other handles. An allocator keeps its own data in the first words
    /// of free memory. So the kind, which is stored after these words, usually survives the handle, and a destroyed handle is
    /// recognized until its memory is used again.
    list: [usize; 2],
    generation: u64,
    poisoned: AtomicBool,
    kind: Kind,
}

/// The contents of every opaque type.
#[repr(C)]
pub struct Handle<T> {
    header: Header,
    value: T,
    _counted: Counted,
}

impl<T> Handle<T> {
    /// A handle of this process.
    fn new(value: T, (kind, index): (Kind, usize), list: [usize; 2]) -> Self {
        let (generation, poisoned) = (process::generation(), AtomicBool::new(false));
        Self { header: Header { list, generation, poisoned, kind }, value, _counted: ALIVE[index].count(1) }
    }

    /// The core object.
    #[inline]
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Makes the handle unusable.
    pub fn poison(&self) {
        self.header.poisoned.store(true, Ordering::Release);
    }
}

/// A C type that the caller has a pointer to, which points to a [`Handle`]. The type itself is opaque, or the `list` of the
/// header.
///
/// # Safety
/// It must be made by [`opaque!`] or [`item_list!`].
pub unsafe trait Opaque: Sized + 'static {
    /// The core object.
    type Value;
    /// Its name in messages.
    const NAME: &'static str;
    /// Distinguishes its handles from those of other types.
    const KIND: Kind;
    /// That of its name in [`NAMES`](crate::ffi::common::kind::NAMES).
    const INDEX: usize = Kind::index(Self::NAME);
    /// Address and number of the items of a list.
    fn list(_: &Self::Value) -> [usize; 2] {
        [0; 2]
    }
}

/// Makes a struct with one field `handle` opaque. Its name must be one of
/// [`crate::ffi::common::kind::NAMES`].
macro_rules! opaque {
    ($type:ident, $value:ty, $name:literal) => {
        const _: () = assert!(std::mem::offset_of!($type, handle) == 0);
        // SAFETY: made by this macro.
        unsafe impl $crate::ffi::common::handle::Opaque for $type {
            type Value = $value;
            const NAME: &'static str = $name;
            const KIND: $crate::ffi::common::kind::Kind = $crate::ffi::common::kind::Kind::named($name);
        }
    };
}
pub(in crate::ffi) use opaque;

/// Makes a struct with the fields `items` and `count` the list of an [`Array`](crate::ffi::common::Array).
macro_rules! item_list {
    ($type:ident, $value:ty, $name:literal) => {
        const _: () = assert!(std::mem::offset_of!($type, items) == 0);
        const _: () = assert!(std::mem::offset_of!($type, count) == size_of::<usize>());
        // SAFETY: made by this macro.
        unsafe impl $crate::ffi::common::handle::Opaque for $type {
            type Value = $value;
            const NAME: &'static str = $name;
            const KIND: $crate::ffi::common::kind::Kind = $crate::ffi::common::kind::Kind::named($name);
            fn list(value: &$value) -> [usize; 2] {
                let (items, count) = value.raw();
                [items.expose_provenance(), count]
            }
        }
    };
}
pub(in crate::ffi) use item_list;

/// Reads the kind of handle that a pointer points to, if it points to one.
///
/// # Safety
/// `pointer` must be readable for the size of a header.
#[inline]
unsafe fn kind_at<T>(pointer: *const T) -> Kind {
    // SAFETY: the caller's promise; nothing is assumed about the alignment or what is there.
    unsafe { (&raw const (*pointer.cast::<Header>()).kind).read_unaligned() }
}

/// Returns a handle, if it is not NULL, not destroyed, and of this type. A destroyed handle is not recognized if its memory
/// was used for another handle of this type.
///
/// # Safety
/// `pointer` must be NULL or point to a handle of kvmem, of any type. No other thread may destroy it concurrently.
#[inline]
unsafe fn checked<'a, T: Opaque>(pointer: *const T) -> Result<&'a Handle<T::Value>> {
    if pointer.is_null() {
        return Err(null(T::NAME));
    }
    // SAFETY: the caller's promise.
    let found = unsafe { kind_at(pointer) };
    if found != T::KIND {
        return Err(wrong_kind(T::NAME, found));
    }
    // SAFETY: only live handles of this type have this kind.
    Ok(unsafe { &*pointer.cast() })
}

/// Returns the core object of a handle. Fails if the handle has another type, is destroyed, was created by another process,
/// or if an earlier call on it panicked.
///
/// # Safety
/// `pointer` must be NULL or a handle of ours.
#[inline]
pub unsafe fn borrow<'a, T: Opaque>(scope: &Scope<'a>, pointer: *const T) -> Result<&'a T::Value> {
    // SAFETY: the caller's promise.
    let Some(handle) = (unsafe { usable(pointer) }) else {
        // SAFETY: see above.
        return Err(unsafe { unusable(pointer) });
    };
    scope.uses(&handle.header.poisoned)?;
    Ok(&handle.value)
}

/// A handle that may be used. Small enough to be inlined in every function, because all functions call it.
///
/// # Safety
/// As for [`borrow`].
#[inline]
pub unsafe fn usable<'a, T: Opaque>(pointer: *const T) -> Option<&'a Handle<T::Value>> {
    // SAFETY: the caller's promise.
    if pointer.is_null() || unsafe { kind_at(pointer) } != T::KIND {
        return None;
    }
    // SAFETY: only live handles of this type have this kind.
    let handle: &Handle<T::Value> = unsafe { &*pointer.cast() };
    let header = &handle.header;
    let is_usable = header.generation == process::generation() && !header.poisoned.load(Ordering::Relaxed);
    is_usable.then_some(handle)
}

/// Why a handle may not be used.
///
/// # Safety
/// As for [`borrow`].
#[cold]
pub unsafe fn unusable<T: Opaque>(pointer: *const T) -> Error {
    // SAFETY: the caller's promise.
    match unsafe { checked(pointer) } {
        Err(error) => error,
        Ok(handle) if handle.header.generation != process::generation() => forked(T::NAME),
        Ok(_) => poisoned(T::NAME),
    }
}

/// Like [`borrow`], but returns `None` for NULL.
///
/// # Safety
/// As for [`borrow`].
pub unsafe fn borrow_nullable<'a, T: Opaque>(
    scope: &Scope<'a>,
    pointer: *const T,
) -> Result<Option<&'a T::Value>> {
    // SAFETY: the caller's promise.
    if pointer.is_null() { Ok(None) } else { unsafe { borrow(scope, pointer) }.map(Some) }
}

/// Returns the core objects of an array of handles, which the call uses.
///
/// # Safety
/// `items` must be NULL or readable for `count` handles, each as for [`borrow`].
pub unsafe fn borrow_each<'a, T: Opaque>(
    scope: &Scope<'a>,
    items: *const *mut T,
    count: usize,
    name: &str,
) -> Result<Vec<&'a T::Value>> {
    // SAFETY: the caller's promise.
    let items = unsafe { pointer::items(items, count, (name, "count")) }?;
    let value = |(index, item): (usize, &*mut T)| {
        // SAFETY: the caller's promise.
        let value = unsafe { borrow(scope, item.cast_const()) };
        value.map_err(|error| error.context(format!("{name}[{index}] of {count}")))
    };
    let mut values = Vec::new();
    lists::reserve(&mut values, count)?;
    for item in items.iter().enumerate() {
        values.push(value(item)?);
    }
    Ok(values)
}

/// Returns the core object of a handle, for the few functions that cannot fail. Returns `None` if the handle is NULL,
/// destroyed or of another type.
///
/// # Safety
/// `pointer` must be NULL or a handle of ours.
pub unsafe fn peek<'a, T: Opaque>(pointer: *const T) -> Option<&'a T::Value> {
    // SAFETY: the caller's promise.
    unsafe { checked(pointer) }.ok().map(|handle| &handle.value)
}

/// The output parameter for a new handle. It is set to NULL first, so that it is NULL after a failure.
pub struct Out<T>(*mut *mut T);

impl<T: Opaque> Out<T> {
    /// # Safety
    /// `slot` must be NULL or writable.
    pub unsafe fn new(slot: *mut *mut T, name: &str) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::nullable(slot) }.ok_or_else(|| null(name))
    }

    /// # Safety
    /// `slot` must be NULL or writable.
    pub unsafe fn nullable(slot: *mut *mut T) -> Option<Self> {
        // SAFETY: the caller's promise.
        unsafe { slot.as_mut() }.map(|place| {
            *place = std::ptr::null_mut();
            Self(slot)
        })
    }

    /// Passes a new handle to the caller.
    pub fn set(self, value: T::Value) {
        let handle = new_handle(value);
        // SAFETY: checked and written when this was created, in the same call.
        unsafe { *self.0 = handle };
    }
}

/// Creates a handle, which the caller owns.
pub fn new_handle<T: Opaque>(value: T::Value) -> *mut T {
    let list = T::list(&value);
    let handle: *mut T = Box::into_raw(Box::new(Handle::new(value, (T::KIND, T::INDEX), list))).cast();
    log!(Trace, "{} handle {handle:p} created", T::NAME);
    handle
}

/// Destroys a handle. Does nothing in a forked child, because the parent owns the object. If the pointer is not a live
/// handle of this type, logs an error and frees nothing: freeing it could crash the process.
///
/// # Safety
/// `pointer` must be NULL or a handle of ours that is not used again.
pub unsafe fn destroy<T: Opaque>(pointer: *mut T) {
    quiet((), || {
        if pointer.is_null() {
            return;
        }
        // SAFETY: the caller's promise.
        let handle = match unsafe { checked(pointer) } {
            Ok(handle) => handle,
            Err(error) => return not_destroyed(std::any::type_name::<T>(), &error),
        };
        if handle.header.generation == process::generation() {
            log!(Trace, "{} handle {pointer:p} destroyed", T::NAME);
            // SAFETY: created by `new_handle`, and marked as destroyed below, so that this happens once.
            unsafe {
                let kind = &raw mut (*pointer.cast::<Header>()).kind;
                // Volatile, because the compiler may drop a store to memory that is about to be freed.
                kind.write_volatile(T::KIND.destroyed());
                drop(Box::from_raw(pointer.cast::<Handle<T::Value>>()));
            }
        }
    });
}

/// The last part of the path of an opaque type is its name in C.
#[cold]
#[inline(never)]
fn not_destroyed(path: &str, error: &Error) {
    let name = path.rsplit_once("::").map_or(path, |(_, name)| name);
    log!(Error, "{name}_destroy: nothing is destroyed: {error}");
}

/// Runs the body of a C function that can't fail; a panic is logged.
pub(in crate::ffi) fn quiet<R>(fallback: R, body: impl FnOnce() -> R) -> R {
    guarded(body).unwrap_or_else(|error| {
        log_bug(error);
        fallback
    })
}

#[cold]
#[inline(never)]
fn log_bug(error: Error) {
    log!(Error, "{error}");
}

/// The user data of a callback.
pub struct UserData(pub *mut c_void);

// SAFETY: the caller promises that the callback may run on any thread with it.
unsafe impl Send for UserData {}
// SAFETY: see above.
unsafe impl Sync for UserData {}

#[cold]
fn wrong_kind(wanted: &str, found: Kind) -> Error {
    let message = match found.state() {
        HandleState::Live(other) => format!("the handle is of type {other}, the call needs type {wanted}"),
        HandleState::Destroyed(name) if name == wanted => {
            format!("the {wanted} handle was destroyed before this call")
        }
        HandleState::Destroyed(other) => {
            format!("the handle is of type {other} and was destroyed, the call needs type {wanted}")
        }
        HandleState::Unknown => format!(
            "the pointer is no handle of kvmem, or one that was destroyed and whose memory was used again, or an empty handle \
             of C++, which was moved from or never set; the call needs type {wanted}"
        ),
    };
    Error::new(Status::InvalidArgument, message)
}

#[cold]
fn forked(name: &str) -> Error {
    let message =
        format!("the {name} was created before this process was forked; the child must create its own");
    Error::new(Status::InvalidState, message)
}

#[cold]
fn poisoned(name: &str) -> Error {
    Error::new(Status::InvalidState, format!("an earlier call on the {name} hit a bug in kvmem; destroy it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::common::blob::kvmem_blob;

    #[test]
    fn the_error_for_an_array_has_the_index_of_the_wrong_handle() {
        let handle: *mut kvmem_blob = new_handle(Vec::new());
        let items = [handle, std::ptr::null_mut()];
        let scope = Scope::default();
        // SAFETY: a live handle and NULL.
        let error = unsafe { borrow_each(&scope, items.as_ptr(), 2, "blobs") }.err().unwrap();
        assert!(error.message().contains("blobs[1] of 2"), "{error}");
        // SAFETY: live, and not used again.
        unsafe { destroy(handle) };
    }
}
