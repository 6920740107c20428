// SPDX-License-Identifier: Apache-2.0
//! The requester's side: opens a session, and reads from or writes to the owner's arena.

pub mod flow;
pub mod open_session;
pub mod plan;
pub mod served_owner;
mod session_plan;
