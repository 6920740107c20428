// SPDX-License-Identifier: Apache-2.0
//! Served transfers: the owner of a layout gathers what a peer requests in an arena, and the peer reads it from there in few
//! large ranges; or the peer writes to the arena, and the owner scatters. docs/served-transfers.md specifies it.
//!
//! The requester makes all requests of NIXL. So an owner accesses no memory of a peer, needs no metadata of it, and has no
//! request in flight that a peer could delay.

mod admission;
mod control;
mod flow;
#[cfg(test)]
mod lying_owner_tests;
pub mod message;
mod open_session;
mod plan;
mod serve;
mod service;
mod session;
mod session_flow;
mod session_plan;
#[cfg(test)]
mod tests;
mod words;

pub use self::flow::ServedFlow;
pub use self::plan::{ServedDivision, ServedPlan};
pub use self::serve::{ServeOptions, serve};
