// SPDX-License-Identifier: Apache-2.0
//! Served transfers: the owner of a layout gathers what a peer requests in an arena, and the peer reads it from there in few
//! large ranges; or the peer writes to the arena, and the owner scatters. docs/served-transfers.md specifies it.
//!
//! The requester makes all requests of NIXL. So an owner accesses no memory of a peer, needs no metadata of it, and has no
//! request in flight that a peer could delay.

mod owner;
pub mod protocol;
mod requester;
#[cfg(test)]
mod tests;

pub use self::owner::serve::{ServeOptions, serve};
pub use self::requester::flow::ServedFlow;
pub use self::requester::open_session::OpenSession;
pub use self::requester::plan::{ServedDivision, ServedPlan};
pub use self::requester::served_owner::ServedOwner;
