// SPDX-License-Identifier: Apache-2.0
//! Sending shares between processes, over sockets and with a broker.
//!
//! `message` is a second implementation of docs/share-transport.md, so that page, reader and writer are compared.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_methods, reason = "tests need no repetition after a signal")]

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
#[path = "../support/test_folder.rs"]
mod test_folder;
#[path = "../support/waiting.rs"]
mod waiting;
