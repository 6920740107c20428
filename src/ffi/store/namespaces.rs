// SPDX-License-Identifier: Apache-2.0
//! Namespaces: parts of a store with keys, a quota and perhaps an encryption of their own.

use std::ffi::{c_char, c_void};

use crate::ffi::common::{
    borrow, call_new, call_out, deadline, kvmem_error, kvmem_status, options, read, text,
};
use crate::ffi::store::kvmem_store;
use crate::store::Secret;

/// Options of kvmem_store_open_namespace.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_store_namespace_options {
    /// sizeof(kvmem_store_namespace_options)
    pub struct_size: usize,
    /// Name of 1 to 128 bytes without control characters, such as the id of a tenant; copied. It is in the
    /// files of the store, in clear.
    pub name: *const c_char,
    /// Bytes of slots that its blocks may have, rounded down to whole slots. 0 for that of an existing
    /// namespace. Another value than before changes the quota.
    pub quota: u64,
    /// 32 random bytes, by which its blocks and keys are encrypted; copied. NULL for a namespace that is not
    /// encrypted. A namespace keeps its key: without that, its blocks cannot be read.
    pub key: *const c_void,
    /// Bytes of the key: 32, or 0 without one.
    pub key_size: usize,
}
options!(kvmem_store_namespace_options);

/// Opens a namespace of a store, or creates it: a handle of the same store, whose calls put, find, evict,
/// list and count the blocks of this namespace only.
///
///     const kvmem_store_namespace_options options = {
///         .struct_size = sizeof options, .name = "tenant-7", .quota = 64ull << 30, .key = key,
///         .key_size = 32,
///     };
///     kvmem_store_open_namespace(store, &options, timeout_ns, &tenant, &error);
///
/// A block of another namespace is not found, also under the same key. A namespace that has used its quota
/// evicts its own blocks. The handle of the store itself has the slots that no quota has, and blocks that are
/// in no namespace.
///
/// With a key, the bytes of blocks and the keys of the caller are encrypted and authenticated by
/// XChaCha20-Poly1305 before they are written. A block that was changed in the files ends its get with
/// KVMEM_STATUS_CORRUPT, as a damaged one. Such puts and gets pass through host memory of kvmem, and need a
/// method and flags of 0, except KVMEM_TRANSFER_REPORT_RELEASE. docs/store.md has what is protected.
///
/// @param store handle that kvmem_store_open has returned; it may be destroyed before the namespace
/// @param timeout_ns if the file system has not responded by then, the namespace is closed when it is open.
///        While an earlier call that writes the index still waits for it, nothing is done
/// @param opened receives the namespace; the caller destroys it by kvmem_store_destroy
/// @return KVMEM_STATUS_INVALID_ARGUMENT: a new namespace has no quota; the quota is less than a slot; the
///           key does not have 32 bytes, or is given for a namespace that is not encrypted; or `store` is a
///           namespace
///         KVMEM_STATUS_PERMISSION_DENIED: the key is not that of the namespace, or is missing
///         KVMEM_STATUS_OUT_OF_RANGE: the quotas of all namespaces have more slots than the store; or it has
///           4096 namespaces
///         KVMEM_STATUS_NOT_FOUND: the store is open for reading, and has no such namespace
///         KVMEM_STATUS_TIMED_OUT
///         KVMEM_STATUS_CORRUPT, KVMEM_STATUS_IO, KVMEM_STATUS_OUT_OF_MEMORY: the list of namespaces cannot
///           be read or written; it is that before or the new one
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_store_open_namespace(
    store: *mut kvmem_store,
    options: *const kvmem_store_namespace_options,
    timeout_ns: u64,
    opened: *mut *mut kvmem_store,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (opened, "opened"), |scope| {
        let options = read(options)?;
        let name = text::required(options.name, "name")?;
        let key = text::bytes(options.key, options.key_size, "key")?;
        let secret = (!options.key.is_null()).then(|| Secret::new(key)).transpose()?;
        borrow(scope, store)?.open_namespace(name, options.quota, secret, deadline(timeout_ns))
    })
}

/// Removes a namespace, its blocks and its quota. It needs no key: use it also if that is lost.
///
/// The encrypted bytes of its blocks stay in their slots until other blocks are written there.
///
/// @param store handle that kvmem_store_open has returned
/// @param name name of the namespace
/// @param timeout_ns if the file system has not responded by then, it is removed later, unless an earlier
///        call still waits for it
/// @param num_removed receives the number of blocks that were stored
/// @return KVMEM_STATUS_NOT_FOUND: the store has no such namespace
///         KVMEM_STATUS_BUSY: it is open; or kvmem_store_verify reads one of its blocks, and the others are
///           removed
///         KVMEM_STATUS_INVALID_ARGUMENT: `store` is a namespace
///         KVMEM_STATUS_PERMISSION_DENIED: the store is open for reading
///         KVMEM_STATUS_TIMED_OUT
///         KVMEM_STATUS_INVALID_STATE, KVMEM_STATUS_IO, KVMEM_STATUS_OUT_OF_MEMORY: the files cannot be
///           written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_store_remove_namespace(
    store: *mut kvmem_store,
    name: *const c_char,
    timeout_ns: u64,
    num_removed: *mut u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (num_removed, "num_removed"), |scope| {
        let name = text::required(name, "name")?;
        borrow(scope, store)?.remove_namespace(name, deadline(timeout_ns))
    })
}
