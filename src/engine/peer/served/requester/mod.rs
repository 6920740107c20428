// SPDX-License-Identifier: Apache-2.0
//! The requester's side: opens a session, and reads from or writes to the owner's arena.

pub mod flow;
mod open_session;
pub mod plan;
mod session_plan;
