// SPDX-License-Identifier: Apache-2.0
//! Counts of a broker, and its end.

use crate::ffi::broker::kvmem_broker;
use crate::ffi::common::{borrow, call_out, destroy, kvmem_error, kvmem_status};

/// Counts of a broker.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_broker_info {
    /// Names published now.
    pub publications: u64,
    /// Clients connected now.
    pub clients: u64,
    /// Fetches granted since the broker was created.
    pub granted: u64,
    /// Clients and requests refused since the broker was created.
    pub refused: u64,
}

/// Returns the counts of a broker.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_broker_get_info(
    broker: *const kvmem_broker,
    info: *mut kvmem_broker_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (info, "info"), |scope| {
        let now = borrow(scope, broker)?.info();
        Ok(kvmem_broker_info {
            publications: now.publications,
            clients: now.clients,
            granted: now.granted,
            refused: now.refused,
        })
    })
}

/// Destroys a broker: ends its thread, closes and removes its socket, and releases its shares.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_broker_destroy(broker: *mut kvmem_broker) {
    destroy(broker);
}
