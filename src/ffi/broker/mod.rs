// SPDX-License-Identifier: Apache-2.0
//! Brokers: shares published by name.

pub mod create;
pub mod fetch;
pub mod info;
pub mod publish;

use crate::ffi::common::{Handle, opaque};
use crate::share::broker::Broker;

/// A server that publishes shares by name at a socket path. One thread serves all clients, and never waits
/// for a single one. A client must run as an allowed user, send its request in time, and present a token.
pub struct kvmem_broker {
    handle: Handle<Broker>,
}
opaque!(kvmem_broker, Broker, "broker");
