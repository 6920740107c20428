// SPDX-License-Identifier: Apache-2.0
//! What the two sides of a session agree on: messages, and the control block of each side in the arena.

pub(crate) mod session_control;
pub mod message;
pub(crate) mod words;
