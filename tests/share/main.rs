// SPDX-License-Identifier: Apache-2.0
//! Handing shares over, between real processes: what a socket carries, and what a broker gives to whom.
//!
//! The messages are written here anew from docs/share-transport.md, so that page, reader and writer agree.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod broker;
mod broker_clients;
mod broker_misuse;
mod child;
mod message;
#[path = "../support/skip.rs"]
mod skip;
mod socket;
mod socket_misuse;
mod support;
