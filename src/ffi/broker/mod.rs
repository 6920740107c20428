// SPDX-License-Identifier: Apache-2.0
//! Brokers: shares published by name.

pub mod create;
pub mod fetch;
pub mod info;
pub mod publish;

use crate::ffi::common::handle::{Handle, opaque};
use crate::share::broker::Broker;

/// Shares published by name at a socket path. One thread serves all clients and never waits for one of them;
/// a client is heard if its user is allowed, asks in time, and shows a token.
///
/// Threads: all functions on one broker may run at once, except kvmem_broker_destroy.
pub struct kvmem_broker {
    handle: Handle<Broker>,
}
opaque!(kvmem_broker, Broker, "broker");
